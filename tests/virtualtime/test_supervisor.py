"""The clock as its owner sees it."""

import sys
import tempfile

import pytest

from clocked import SECOND, START, needs_clock, python
from dralab.virtualtime import Supervisor
from dralab.virtualtime import supervisor as supervisor_module
from dralab.virtualtime.threads import TracedThread

pytestmark = needs_clock


def test_it_says_when_all_is_idle_and_for_what_instant_it_waits():
    with Supervisor(start=START) as supervisor:
        program = supervisor.start(["sleep", "3600"])
        assert supervisor.wait_idle()
        assert supervisor.next_deadline() == START + 3600 * SECOND
        supervisor.advance(START + 3600 * SECOND)
        assert supervisor.wait_idle()
        assert (program.returncode, supervisor.now) == (0, START + 3600 * SECOND)
        assert supervisor.next_deadline() is None


def test_several_programs_have_one_clock():
    with Supervisor(start=START) as supervisor:
        programs = [supervisor.start(["sleep", str(n)]) for n in (30, 10, 20)]
        ended = []
        while supervisor.running:
            supervisor.wait_idle()
            ended += [
                (program.arguments[1], (supervisor.now - START) // SECOND)
                for program in programs
                if program.returncode == 0 and program.arguments[1] not in dict(ended)
            ]
            supervisor.step()
        assert ended == [("10", 10), ("20", 20), ("30", 30)]


def test_the_caller_may_stop_anywhere_on_the_way_but_pass_no_deadline():
    with Supervisor(start=START) as supervisor:
        supervisor.start(["sleep", "100"])
        supervisor.wait_idle()
        supervisor.advance(START + 60 * SECOND)
        assert supervisor.next_deadline() == START + 100 * SECOND
        with pytest.raises(ValueError, match="a program waits until"):
            supervisor.advance(START + 101 * SECOND)
        with pytest.raises(ValueError, match="time cannot go back"):
            supervisor.advance(START)


def test_steps_end_where_the_caller_wants():
    with Supervisor(start=START) as supervisor:
        supervisor.start(["sleep", "100"])
        supervisor.wait_idle()
        assert not supervisor.step(START + 99 * SECOND)
        assert supervisor.step(START + 100 * SECOND)


def test_a_program_that_never_rests_does_not_keep_its_owner_waiting():
    with Supervisor(start=START) as supervisor:
        supervisor.start(["sh", "-c", "while :; do :; done"])
        assert not supervisor.wait_idle(0.05)


def test_closing_ends_everything():
    with Supervisor(start=START) as supervisor:
        program = supervisor.start(["sh", "-c", "sleep 10 & sleep 20"])
        supervisor.wait_idle()
    assert program.returncode == -9
    assert not supervisor.running


def random_numbers(seed):
    program = (
        "import os, random, secrets; "
        "print(os.urandom(4).hex(), secrets.token_hex(4), random.random(), hash('a'), id(os))"
    )
    with tempfile.TemporaryFile() as out, Supervisor(start=START, seed=seed) as supervisor:
        supervisor.start([sys.executable, "-S", "-c", program], stdout=out.fileno())
        while supervisor.running:
            supervisor.wait_idle()
            supervisor.step()
        out.seek(0)
        return out.read().decode().split()


def test_with_a_seed_programs_get_the_same_random_numbers_and_addresses_again():
    first = random_numbers(7)
    assert len(first) == 5
    assert random_numbers(7) == first
    assert not set(random_numbers(8)[:4]) & set(first)


# Two threads that take turns to write, as fast as they can; then each waits for a descriptor.
RACING = """
import os, select, threading
lines = []
def race(name):
    for n in range(50):
        lines.append(name)
        os.sched_yield()
        with gate:
            gate.notify_all()
        with gate:
            gate.wait(0.001)
gate = threading.Condition()
threads = [threading.Thread(target=race, args=(name,)) for name in "ab"]
for thread in threads: thread.start()
for thread in threads: thread.join()
print("".join(lines))
"""


def test_with_gates_threads_take_turns_in_the_same_order_each_time():
    found = set()
    for _ in range(3):
        with (
            tempfile.TemporaryFile() as out,
            Supervisor(start=START, seed=1, gates=True) as supervisor,
        ):
            program = supervisor.start([sys.executable, "-S", "-c", RACING], stdout=out.fileno())
            while supervisor.running:
                supervisor.wait_idle()
                supervisor.step()
            assert program.returncode == 0
            out.seek(0)
            found.add(out.read())
    assert len(found) == 1
    assert len(found.pop().strip()) == 100


def test_with_gates_what_waits_for_descriptors_sees_them_and_its_timeout():
    program = (
        "import os, select, threading, time; r, w = os.pipe(); e = select.epoll(); "
        "e.register(r, select.EPOLLIN); began = time.monotonic(); "
        "threading.Timer(5, os.write, (w, b'x')).start(); "
        "assert e.poll(3) == []; assert time.monotonic() - began == 3; "
        "assert e.poll(-1) == [(r, select.EPOLLIN)]; assert time.monotonic() - began == 5"
    )
    with Supervisor(start=START, gates=True) as supervisor:
        done = supervisor.start([sys.executable, "-S", "-c", program])
        while supervisor.running:
            supervisor.wait_idle()
            supervisor.step()
    assert done.returncode == 0


def test_with_gates_a_program_may_be_seen_before_it_waits_for_the_one_it_lent_its_memory(
    monkeypatch,
):
    looked = TracedThread._letter
    early = set()

    def letter(thread):
        found = looked(thread)
        if found != b"D" or thread.tid in early:
            return found
        early.add(thread.tid)
        return b"R"  # as it is for an instant

    monkeypatch.setattr(TracedThread, "_letter", letter)
    monkeypatch.setattr(supervisor_module, "PATIENCE", 1e9)  # after it, the child has its turn
    spawning = "import os; os.posix_spawn('/bin/sleep', ['sleep', '9'], {}); os.wait()"
    with Supervisor(start=START, gates=True) as supervisor:
        supervisor.start([sys.executable, "-S", "-c", spawning])
        assert supervisor.wait_idle(timeout=60)
        assert supervisor.next_deadline() == START + 9 * SECOND
    assert early


def test_a_thread_that_ends_its_program_is_not_outrun_by_the_clock():
    # exit_group ends sleepers, too: until they are gone, they do not wait for their instants.
    code = (
        "for n in range(50): threading.Thread(target=time.sleep, args=(1000 + n,)).start()\n"
        "threading.Timer(5, os._exit, (0,)).start(); time.sleep(1000)"
    )
    for _ in range(5):
        assert python(code).passed == 5


def test_with_gates_a_wait_without_a_timeout_never_ends():
    program = "import threading; lock = threading.Lock(); lock.acquire(); lock.acquire()"
    with Supervisor(start=START, seed=1, gates=True) as supervisor:
        supervisor.start([sys.executable, "-S", "-c", program])
        supervisor.wait_idle()
        assert supervisor.next_deadline() is None
