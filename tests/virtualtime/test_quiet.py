"""A timer of a program that is otherwise idle: its threads are not looked at, unless one may be woken."""

import shutil
import subprocess

import pytest

from clocked import clocked, needs_clock, python
from dralab.virtualtime import idleness
from dralab.virtualtime.sockets import Connections
from dralab.virtualtime.threads import TracedThread
from dralab.virtualtime.tracer import Tracer

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


# A server without clients that reads a file in /proc at each tick, as redis does.
SERVER = """
server = socket.create_server(("127.0.0.1", 0))
def serve():
    for _ in range(6): server.accept()[0].recv(1); compute()
threading.Thread(target=serve, daemon=True).start()
def tick(what):
    for n in range(1, 200):
        time.sleep(0.1)
        file = os.open("/proc/self/stat", os.O_RDONLY); os.read(file, 99); os.close(file)
        if not n % 30: what()
def compute(): sum(range(1_000_000)); print(elapsed(), flush=True)
"""


def test_the_calls_of_a_server_without_clients_do_not_stop_it(monkeypatch):
    stops = 0

    def counted(tracer, thread, number, event, stopped=Tracer._stopped):
        nonlocal stops
        stops += 1
        stopped(tracer, thread, number, event)

    monkeypatch.setattr(Tracer, "_stopped", counted)
    assert python(SERVER + "tick(lambda: None)").jumps == 199
    assert stops < 199 * 3  # with a watch, two for each call


def test_a_first_client_of_a_server_is_not_outrun_by_the_clock(monkeypatch):
    found = []

    def noted(connections, *arguments, traffic=Connections.traffic):
        found.append(traffic(connections, *arguments))
        return found[-1]

    monkeypatch.setattr(Connections, "traffic", noted)
    monkeypatch.setattr(idleness, "CONNECTIONS_SHARE", 1e9)  # no look without a reason
    result = python(
        SERVER + "clients = []\ndef connect():\n"
        "    clients.append(socket.create_connection(server.getsockname()))\n"
        "    clients[-1].send(b'x')\ntick(connect)"
    )
    assert result.lines == ["3.0", "6.0", "9.0", "12.0", "15.0", "18.0"]
    assert not all(each.apart for each in found)


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
