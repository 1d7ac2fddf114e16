"""A timer of a program that is otherwise idle: its threads are not looked at, unless one may be woken."""

import shutil
import subprocess

import pytest

from clocked import clocked, needs_clock, python
from dralab.virtualtime.threads import TracedThread

pytestmark = needs_clock

# Threads that wait for nothing, one that ticks, and one that computes when the tick wakes it.
CROWD = """
import queue
for _ in range(30):
    lock = threading.Lock(); lock.acquire(); threading.Thread(target=lock.acquire, daemon=True).start()
def compute(): sum(range(1_000_000)); print(elapsed(), flush=True)
def tick(what):
    for n in range(1, 200):
        time.sleep(0.1) if n % 2 else threading.Event().wait(0.1)
        if not n % 30: what()
r, w = os.pipe()
"""
# How the tick wakes the other one.
WAKES = {
    "a lock": "a = threading.Semaphore(0); wait, wake = a.acquire, a.release",
    "a pipe": "wait, wake = lambda: os.read(r, 1), lambda: os.write(w, b'x')",
    "a poll": (
        "p = select.poll(); p.register(r, 1)\n"
        "wait, wake = lambda: (p.poll(), os.read(r, 1)), lambda: os.write(w, b'x')"
    ),
    "a socket": "a, b = socket.socketpair(); wait, wake = lambda: a.recv(1), lambda: b.send(b'x')",
    "a signal": (
        "on(signal.SIGUSR1); wait, wake = signal.pause, lambda: os.kill(os.getpid(), signal.SIGUSR1)"
    ),
    "a new process": (
        "a = threading.Semaphore(0); wait, wake = a.acquire, lambda: (os.system('exit 3'), a.release())"
    ),
}


@pytest.mark.parametrize("code", WAKES.values(), ids=WAKES)
def test_what_a_tick_wakes_is_not_outrun_by_the_clock(code):
    main = (
        "\nthreading.Thread(target=tick, args=(wake,), daemon=True).start()\n"
        "for _ in range(6): wait(); compute()"
    )
    result = python(CROWD + code + main)
    assert result.lines == ["3.0", "6.0", "9.0", "12.0", "15.0", "18.0"]


def test_idle_threads_are_not_looked_at_again_and_again(monkeypatch):
    looks = 0

    def counted(thread, rest=TracedThread.rest):
        nonlocal looks
        looks += 1
        return rest(thread)

    monkeypatch.setattr(TracedThread, "rest", counted)
    assert python(CROWD + "tick(lambda: None)").jumps == 199
    assert looks < 199 * 15  # twice the threads at each jump without a watch


JAVA = """
public class Housekeeping {
    public static void main(String[] arguments) throws Exception {
        long began = System.currentTimeMillis();
        for (int i = 0; i < 3; i++) {
            Thread.sleep(3_600_000);
            System.gc();
            System.out.println(System.currentTimeMillis() - began);
        }
    }
}
"""


@pytest.mark.conformance
@pytest.mark.skipif(shutil.which("javac") is None, reason="needs javac")
@pytest.mark.parametrize("seed", [None, 1], ids=["", "seeded"])
def test_a_jvm_looks_after_itself_once_a_minute(tmp_path, seed):
    (tmp_path / "Housekeeping.java").write_text(JAVA)
    subprocess.run(["javac", "-d", tmp_path, tmp_path / "Housekeeping.java"], check=True)
    result = clocked(["java", "-cp", str(tmp_path), "Housekeeping"], seed=seed)
    assert result.lines == ["3600000", "7200000", "10800000"]
    assert result.jumps < 1000  # 75,000 if every timer of the JVM were one
