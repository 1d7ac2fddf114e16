"""The event loop of programs in this process: simulated time, connections in memory, one thread."""

import asyncio
import datetime as dt
import os
import random
import signal
import threading
import time
from contextlib import nullcontext, suppress

import pytest

from dralab.kernel.clock import SECOND, ManualClock
from dralab.runtime.simulated import SimulatedEngine
from dralab.testing.program_globals import ProgramGlobals
from dralab.testing.virtual_loop import VirtualLoop, nowhere


def ran(main, *, connect=nowhere, until=1000, around=nullcontext):
    """Run a coroutine function on a loop; return what it returned."""
    engine = SimulatedEngine()
    engine.clock.advance_to(1_767_225_600 * SECOND)
    loop = VirtualLoop(engine, engine.clock, connect=connect, around=around)
    done = []
    loop.call_soon(lambda: loop.create_task(main()).add_done_callback(done.append))
    engine.run(engine.clock.now() + until * SECOND)
    loop.close()
    loop.bury()
    return done[0].result()


def test_time_passes_only_in_waits_and_timers_are_never_early():
    async def main():
        loop, seen = asyncio.get_running_loop(), []
        for delay in (0.1, 1 / 3, 0.7, 86_400.000_000_1):
            due = loop.time() + delay
            await asyncio.sleep(delay)
            seen.append(due <= loop.time() < due + 1e-6)
        async with asyncio.timeout(1):
            await asyncio.sleep(0.999)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(1):
                await asyncio.sleep(1.001)
        return seen, loop.time() // 1

    assert ran(main, until=100_000) == ([True] * 4, 86_403)


def test_a_deadline_that_is_asked_again_when_it_comes_has_come():
    """anyio asks for the time in the callback of its timer, and sets another where it is early."""

    async def main():
        loop, calls = asyncio.get_running_loop(), []
        chance = random.Random(1)
        for _ in range(2000):
            await asyncio.sleep(chance.random())
            due = loop.time() + chance.random()
            loop.call_at(due, lambda due=due: calls.append(loop.time() >= due))
        await asyncio.sleep(2)
        return len(calls), all(calls)

    assert ran(main, until=3000) == (2000, True)


def test_a_cancelled_timer_leaves_nothing_to_wait_for():
    engine = SimulatedEngine()
    loop = VirtualLoop(engine, engine.clock)
    loop.call_later(60, print).cancel()
    assert engine.events.next_time() is None


def test_work_for_threads_is_done_in_this_one():
    async def main():
        async def refused():
            await asyncio.to_thread(int, "x")

        with pytest.raises(ValueError, match="invalid literal"):
            await refused()
        return await asyncio.to_thread(threading.get_ident)

    assert ran(main) == threading.get_ident()


def test_sets_of_tasks_have_the_order_in_which_they_were_made():
    async def main():
        async def nothing():
            pass

        tasks = {asyncio.create_task(nothing(), name=str(n)) for n in range(20)}
        return [int(task.get_name()) for task in tasks]

    assert ran(main) == sorted(ran(main))


def test_streams_talk_in_memory_and_end():
    class Shouting(asyncio.Protocol):
        def connection_made(self, transport):
            self.transport = transport

        def data_received(self, data):
            self.transport.write(data.upper())
            if b"bye" in data:
                self.transport.close()

    engine = SimulatedEngine()
    server = VirtualLoop(engine, engine.clock)

    def connect(host, port):
        return (server, Shouting()) if (host, port) == ("there.example", 80) else None

    async def main():
        reader, writer = await asyncio.open_connection("there.example", 80)
        writer.write(b"hello")
        first = await reader.readexactly(5)
        writer.write(b" bye")
        rest = await reader.read()
        writer.close()
        await writer.wait_closed()
        with pytest.raises(ConnectionRefusedError, match=r"at elsewhere\.example:80"):
            await asyncio.open_connection("elsewhere.example", 80)
        with pytest.raises(NotImplementedError, match="without TLS"):
            await asyncio.open_connection("there.example", 80, ssl=True)
        return first, rest

    loop = VirtualLoop(engine, engine.clock, connect=connect)
    done = []
    loop.call_soon(lambda: loop.create_task(main()).add_done_callback(done.append))
    engine.run()
    assert done[0].result() == (b"HELLO", b" BYE")


def test_what_is_closed_runs_no_more_and_unwinds_in_silence(caplog):
    engine, seen = SimulatedEngine(), []
    loop = VirtualLoop(engine, engine.clock)

    async def main():
        try:
            await asyncio.sleep(10)
            seen.append("slept")
        finally:
            await asyncio.sleep(10)
            seen.append("never")

    async def last():
        try:
            await asyncio.Event().wait()
        finally:
            seen.append("unwound")

    loop.call_soon(lambda: [loop.create_task(main()), loop.create_task(last())])
    engine.run(SECOND)
    loop.close()
    engine.run(100 * SECOND)
    assert seen == []
    loop.bury()
    assert seen == ["unwound"]
    assert caplog.records == []


def test_a_task_that_begins_others_when_it_is_closed_is_unwound_too():
    engine, seen = SimulatedEngine(), []
    loop = VirtualLoop(engine, engine.clock)

    async def stubborn():
        try:
            while True:
                with suppress(asyncio.CancelledError):
                    await asyncio.sleep(10)
        finally:
            seen.append(loop.create_task(asyncio.sleep(1)))

    loop.call_soon(lambda: seen.append(loop.create_task(stubborn())))
    engine.run(SECOND)
    loop.close()
    loop.bury()
    assert len(seen) == 2


@pytest.fixture
def given():
    """What modules give a program two hours ahead."""
    clock, steady, waited = ManualClock(7_200 * SECOND), ManualClock(5 * SECOND), []
    ended = []
    found = ProgramGlobals(
        clock,
        steady,
        waited.append,
        chance=random.Random(1),
        environment={"KUBECONFIG": "/there"},
        end=lambda: ended.append(True),
    )
    with found.installed():
        yield waited, ended


def test_modules_have_the_time_of_the_trial(given):
    seconds, wait = getattr(time, "time"), getattr(time, "sleep")  # noqa: B009 - as a program calls them
    assert (seconds(), time.monotonic_ns()) == (7_200, 5 * SECOND)
    now = getattr(dt.datetime, "now")(dt.UTC)  # noqa: B009
    assert now.isoformat() == "1970-01-01T02:00:00+00:00"
    assert type(dt.datetime(2026, 1, 1, tzinfo=dt.UTC)) is type(now)
    assert isinstance(now, dt.datetime)
    assert os.environ["KUBECONFIG"] == "/there"
    wait(1.5)
    assert given[0] == [1.5 * SECOND]


def test_a_program_ends_only_itself(given):
    os.kill(os.getpid(), signal.SIGKILL)
    signal.pthread_kill(threading.get_ident(), signal.SIGKILL)
    os._exit(3)
    assert given[1] == [True] * 3
    with pytest.raises(RuntimeError, match="cannot start threads"):
        threading.Thread(target=print).start()


def test_afterwards_the_modules_are_what_they_were():
    def named():
        places = {time: ("time", "sleep", "monotonic"), os: ("kill", "urandom"), dt: ("datetime",)}
        return [vars(module)[name] for module, names in places.items() for name in names]

    before, start = named(), threading.Thread.start
    found = ProgramGlobals(
        ManualClock(), ManualClock(), print,
        chance=random.Random(1), environment={"NEW": "1"}, end=print,
    )  # fmt: skip
    with found.installed():
        assert not set(before) & set(named())
    assert (before, start) == (named(), threading.Thread.start)
    assert "NEW" not in os.environ


def test_other_threads_of_the_process_keep_their_time():
    found = ProgramGlobals(
        ManualClock(), ManualClock(), print,
        chance=random.Random(1), environment={}, end=print,
    )  # fmt: skip
    asked, told = threading.Event(), []

    def other():
        asked.wait()
        now = dt.datetime.now(dt.UTC)  # noqa: TID251 - as any program calls it
        told.extend((time.time_ns(), time.monotonic_ns(), now.timestamp()))
        own = threading.Thread(target=told.append, args=("a thread of its own",))
        own.start()
        own.join()

    before, thread = (time.time_ns(), time.monotonic_ns()), threading.Thread(target=other)
    thread.start()
    with found.installed():
        assert (time.time_ns(), time.monotonic_ns()) == (0, 0)
        asked.set()
        thread.join()
    assert told[0] >= before[0]
    assert told[1] >= before[1]
    assert told[2] >= before[0] / SECOND - 1
    assert told[3:] == ["a thread of its own"]
