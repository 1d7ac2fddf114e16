"""Requests that wait without a thread."""

import asyncio
import threading

import pytest

pytest.importorskip("greenlet")

from dralab.apiserver.http.connections import tasks as tasks_module
from dralab.apiserver.http.connections.tasks import Tasks
from dralab.apiserver.signals import ObjectTurns, Signal, current


def run(main, lock=None):
    """Run a function of the tasks of a loop until what it returns is done."""

    async def in_loop():
        await asyncio.wait_for(main(Tasks(lock or threading.RLock())), 60)

    asyncio.run(in_loop())


def done_by(tasks, work):
    """Return a future that is done once some work is."""
    loop = asyncio.get_running_loop()
    done = loop.create_future()

    def worked():
        try:
            done.set_result(work())
        except BaseException as error:  # noqa: BLE001 - raised by who awaits it
            done.set_exception(error)

    tasks.submit(worked)
    return done


def test_many_tasks_wait_at_once_in_the_thread_of_the_loop():
    async def main(tasks):
        signals, seen = [], set()

        def wait():
            seen.add(threading.get_ident())
            signals.append(Signal())
            if len(signals) == 50:  # from another thread, as etcd's answers may come
                threading.Thread(target=lambda: [each.give() for each in signals]).start()
            return signals[-1].wait()

        found = await asyncio.gather(*(done_by(tasks, wait) for _ in range(50)))
        assert found == [True] * 50
        assert seen == {threading.get_ident()}

    run(main)


def test_the_loop_goes_on_while_a_task_waits():
    async def main(tasks):
        signal = []

        def wait():
            signal.append(Signal())
            signal[0].wait()

        waiting = done_by(tasks, wait)
        await done_by(tasks, lambda: None)
        assert signal
        assert await done_by(tasks, lambda: "another") == "another"
        signal[0].give()
        await waiting

    run(main)


def test_a_wait_ends_after_its_time_and_only_once():
    async def main(tasks):
        def wait():
            first, second = Signal(), Signal()
            assert not first.wait(0.001)
            asyncio.get_running_loop().call_soon(first.give)  # it is not awaited any more
            assert not second.wait(0.02)
            assert first.wait()
            second.give()
            return second.wait(0)

        assert await done_by(tasks, wait)

    run(main)


def test_who_holds_the_lock_is_not_put_aside():
    lock = threading.RLock()

    async def main(tasks):
        def look():
            assert current() is not None
            with lock:
                assert current() is None
                signal = Signal()
                threading.Timer(0.01, signal.give).start()
                assert signal.wait()  # in which the whole thread sleeps
            return current()

        assert await done_by(tasks, look) is not None
        assert current() is None, "outside of a task"

    run(main, lock)


def test_a_task_that_begins_another_goes_on_itself():
    async def main(tasks):
        order = []

        def begin():
            done = done_by(tasks, lambda: order.append("inner"))
            order.append("outer")
            return done

        await (await done_by(tasks, begin))
        assert order == ["outer", "inner"]

    run(main)


def test_what_is_to_be_done_after_others_comes_after_all_that_are_ready():
    async def main(tasks):
        order = []

        def first():
            order.append("first")
            current().after_others(lambda: order.append("after"))

        await asyncio.gather(done_by(tasks, first), done_by(tasks, lambda: order.append("second")))
        await asyncio.sleep(0)
        assert order == ["first", "second", "after"]

    run(main)


def test_many_tasks_let_the_loop_have_turns(monkeypatch):
    monkeypatch.setattr(tasks_module, "HELD", -1.0)

    async def main(tasks):
        order = []
        works = [done_by(tasks, lambda n=n: order.append(n)) for n in range(3)]
        asyncio.get_running_loop().call_soon(lambda: order.append("loop"))
        await asyncio.gather(*works)
        assert order == [0, "loop", 1, 2]

    run(main)


def test_a_task_is_charged_what_it_has_used_itself(monkeypatch):
    spent = iter(range(0, 1000, 10))
    monkeypatch.setattr(tasks_module, "thread_time", lambda: next(spent))

    async def main(tasks):
        def work():
            before = tasks.seconds()  # 10: from its beginning to here
            signal = Signal()
            tasks.submit(lambda: [tasks.seconds() for _ in range(20)])
            tasks.submit(signal.give)
            signal.wait()  # 10 until it is put aside
            return before, tasks.seconds()  # and 10 since it went on

        assert await done_by(tasks, work) == (10, 30)

    run(main)


def test_an_object_is_changed_by_one_task_or_thread_at_a_time():
    turns, inside, most = ObjectTurns(), [], []

    def change(thing):
        with turns.of(thing):
            inside.append(thing)
            most.append(inside.count(thing))
            signal = Signal()
            threading.Timer(0.001, signal.give).start()
            signal.wait()
            inside.remove(thing)

    async def main(tasks):
        threads = [threading.Thread(target=change, args=("a",)) for _ in range(4)]
        for thread in threads:
            thread.start()
        await asyncio.gather(
            *(done_by(tasks, lambda thing=thing: change(thing)) for thing in "aabab")
        )
        for thread in threads:
            await asyncio.to_thread(thread.join)

    run(main)
    assert (len(most), set(most)) == (9, {1})
    assert turns._waiting == {}


def test_a_task_of_a_loop_that_is_over_is_left():
    signals = []

    async def main(tasks):
        tasks.submit(lambda: (signals.append(Signal()), signals[0].wait()))
        await done_by(tasks, lambda: None)
        assert signals

    run(main)
    signals[0].give()  # an answer that comes too late
