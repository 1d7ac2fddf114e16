"""Which thread of the queue has its turn; the process of the tests plays the program."""

import ctypes
import os
import select
from pathlib import Path

import pytest

from dralab.virtualtime.machine import this_machine
from dralab.virtualtime.programs import TracedProcess
from dralab.virtualtime.ptrace import Registers
from dralab.virtualtime.threads import ThreadState, ThreadTable, ThreadWait, TracedThread
from dralab.virtualtime.timed_calls import NEVER, TIMED_CALLS
from dralab.virtualtime.turns import ThreadTurns, finds_something

pytestmark = pytest.mark.skipif(this_machine() is None, reason="no virtual clock here")
GO, C = 0x80, 0x189  # how Go's runtime waits for a futex, and how C's condition variables do


class Queue:
    """Threads of one program that has no other threads."""

    def __init__(self) -> None:
        self.table = ThreadTable()
        self.turns = ThreadTurns(self.table)
        self.process = TracedProcess(os.getpid())

    def thread(self, name, *arguments, process=None):
        process = process or self.process
        tid = len(self.table.all) + 1
        machine = this_machine()
        thread = TracedThread(
            tid=tid, process=process, registers=Registers(machine, tid), table=self.table
        )
        process.threads.add(tid)
        self.table.add(thread)
        thread.wait = ThreadWait(
            call=TIMED_CALLS[name],
            number=machine.calls[name],
            arguments=(*arguments, 0, 0, 0, 0, 0, 0)[:6],
            place=(0, 0),
            deadline=NEVER,
            order=tid,
        )
        self.turns.queue(thread)
        return thread


@pytest.fixture
def queue():
    queue = Queue()
    yield queue
    queue.process.close()


def test_a_futex_lets_its_thread_go_on_when_its_word_has_changed(queue):
    word = ctypes.c_uint32(7)
    thread = queue.thread("futex", ctypes.addressof(word), GO, 7)
    assert queue.turns.next(finds_something) is None
    word.value = 8
    # No thread of the program has run: then nobody can have changed it, and it is not read.
    queue.table.moves += 1
    assert queue.turns.next(finds_something) is None
    queue.table.has_run(queue.process)
    assert queue.turns.next(finds_something) is thread


def test_a_futex_that_programs_share_is_looked_at_when_another_one_has_run(queue):
    word = ctypes.c_uint32(7)
    thread = queue.thread("futex", ctypes.addressof(word), 0, 7)
    assert queue.turns.next(finds_something) is None
    word.value = 8
    queue.table.has_run(TracedProcess(os.getpid()))
    assert queue.turns.next(finds_something) is thread


def test_descriptors_are_looked_at_when_something_has_moved(queue):
    read, write = os.pipe()
    with select.epoll() as epoll:
        epoll.register(read, select.EPOLLIN)
        thread = queue.thread("epoll_wait", epoll.fileno())
        assert queue.turns.next(finds_something) is None
        os.write(write, b"x")
        assert queue.turns.next(finds_something) is None
        queue.table.moves += 1
        assert queue.turns.next(finds_something) is thread
    os.close(read)
    os.close(write)


def test_a_descriptor_that_was_closed_and_opened_again_is_another_one(queue):
    read, write = os.pipe()
    epoll = select.epoll()
    number = epoll.fileno()
    assert not queue.process.is_readable(number)
    epoll.close()
    assert queue.process.is_readable(number)  # the kernel will say that there is none
    with select.epoll() as epoll:
        assert epoll.fileno() == number
        epoll.register(write, select.EPOLLIN)
        epoll.register(read, select.EPOLLIN)
        assert not queue.process.is_readable(number)
        os.write(write, b"x")
        assert queue.process.is_readable(number)
    os.close(read)
    os.close(write)


def test_threads_have_their_turns_in_the_order_in_which_they_stopped(queue):
    threads = [queue.thread("futex", 8, GO, 7) for _ in range(3)]
    asked = []
    queue.turns.queue(threads[0])
    assert queue.turns.next(asked.append) is None
    assert asked == [threads[1], threads[2], threads[0]]
    threads[2].state = ThreadState.LOOSE  # a signal let it go on
    queue.table.moves += 1
    queue.table.has_run(queue.process)
    assert queue.turns.next(lambda thread: thread is threads[0]) is threads[0]
    assert queue.turns.next(asked.append) is None
    assert threads[2] not in asked[3:]


def test_a_thread_that_is_killed_meanwhile_does_not_stop_the_others(queue):
    killed, other = (queue.thread("futex", 8, GO, 7) for _ in range(2))

    def goes_on(thread):
        if thread is killed:
            raise ProcessLookupError
        return True

    assert queue.turns.next(goes_on) is other


@pytest.mark.parametrize(
    ("call", "arguments", "needed"),
    [
        ("futex", (8, GO, 7), False),
        ("epoll_pwait", (3, 8, 128), False),
        # Waits of the program's own, not those of the runtime.
        ("epoll_pwait", (4, 8, 128), True),
        ("epoll_pwait", (3, 8, 1), True),
        ("epoll_wait", (3, 8, 128), True),
        ("futex", (8, C, 7), True),
        ("nanosleep", (8,), True),
    ],
)
def test_gos_monitor_sleeps_while_its_threads_wait_as_its_runtime_does(
    queue, call, arguments, needed
):
    monitor = queue.thread("nanosleep", 8)
    queue.thread("epoll_pwait", 3, 8, 128)
    other = queue.thread(call, *arguments)
    assert queue.turns.needs_monitor(monitor) is needed
    other.state = ThreadState.LOOSE  # it is in a system call, say a read from a terminal
    assert queue.turns.needs_monitor(monitor)


def test_code_of_the_program_is_told_from_that_of_libraries(queue):
    libc = ctypes.cast(ctypes.CDLL(None).getpid, ctypes.c_void_p).value
    assert not queue.process.has_code_at(libc)
    assert not queue.process.has_code_at(8)
    program = os.path.realpath("/proc/self/exe")
    lines = Path("/proc/self/maps").read_text(encoding="ascii").splitlines()
    own = [line for line in lines if line.endswith(program) and " r-x" in line]
    assert queue.process.has_code_at(int(own[0].split("-")[0], 16))
