import threading

import pytest

from dralab.api.status import ApiError
from dralab.runtime.live import LiveEngine
from dralab.runtime.queue import FIRST_DELAY, WorkQueue
from dralab.runtime.simulated import SimulatedEngine
from waiting import PATIENCE


@pytest.fixture
def engine():
    return SimulatedEngine()


def test_events_happen_by_time_then_priority_then_age(engine):
    seen = []
    engine.at(20, lambda: seen.append("late"))
    engine.at(10, lambda: seen.append("second"), priority=9)
    engine.at(10, lambda: seen.append("third"), priority=9)
    engine.at(10, lambda: seen.append("first"))
    engine.run()
    assert seen == ["first", "second", "third", "late"]
    assert engine.clock.now() == 20


def test_a_cancelled_event_does_not_happen_and_does_not_move_the_clock(engine):
    engine.at(5, lambda: None).cancel()
    assert engine.run() == 0
    assert engine.clock.now() == 0


def test_a_run_leaves_the_clock_at_its_end_and_what_comes_later_undone(engine):
    seen = []
    engine.at(5, lambda: seen.append(5))
    engine.at(9, lambda: seen.append(9))
    engine.run(7)
    assert (seen, engine.clock.now()) == ([5], 7)


def test_an_event_in_the_past_happens_now(engine):
    engine.run(100)
    seen = []
    engine.at(3, lambda: seen.append(engine.clock.now()))
    engine.run()
    assert seen == [100]


def test_a_run_that_never_rests_is_refused(engine):
    def again():
        engine.soon(again)

    engine.soon(again)
    with pytest.raises(RuntimeError, match="without progress"):
        engine.settle(at_most=50)


def test_offloaded_work_hands_back_its_result_or_its_error(engine):
    seen = []

    def broken():
        raise ApiError.bad_request("no")

    engine.offload(lambda: 7, seen.append)
    engine.offload(broken, seen.append)
    engine.run()
    assert seen[0] == 7
    assert isinstance(seen[1], ApiError)


@pytest.mark.parametrize("workers", [0, 2])
def test_a_live_engine_runs_its_events_in_one_thread_and_stops(workers):
    engine, seen, done = LiveEngine(workers=workers), [], threading.Event()
    engine.start()
    engine.soon(lambda: seen.append(threading.current_thread().name))
    engine.offload(lambda: 1, lambda _: seen.append(threading.current_thread().name))
    engine.after(1_000_000, done.set)
    assert done.wait(PATIENCE)
    while len(seen) < 2:
        done.wait(0.001)
    engine.stop()
    assert set(seen) == {"engine"}


@pytest.mark.parametrize("lane", ["", "a driver"])
def test_work_that_comes_after_the_end_is_left_undone(lane):
    engine, seen = LiveEngine(workers=1), []
    engine.start()
    engine.stop()
    engine.offload(lambda: seen.append("done"), seen.append, lane=lane)
    assert (seen, engine.wait_idle(0)) == ([], None)


def test_a_live_engine_survives_a_broken_event(caplog):
    engine, done = LiveEngine(), threading.Event()
    engine.soon(lambda: 1 / 0)
    engine.soon(done.set)
    engine.start()
    assert done.wait(PATIENCE)
    engine.stop()
    assert "an event failed" in caplog.text


def test_a_key_is_reconciled_once_however_often_it_was_added(engine):
    seen = []
    queue = WorkQueue(engine, "q", seen.append)
    for key in ("a", "b", "a", "a"):
        queue.add(key)
    engine.run()
    assert seen == ["a", "b"]


def test_a_failing_key_comes_back_after_doubled_delays_and_is_then_forgotten(engine):
    times = []

    def reconcile(_key):
        times.append(engine.clock.now())
        if len(times) < 4:
            raise ApiError.bad_request("not yet")

    queue = WorkQueue(engine, "q", reconcile)
    queue.add("a")
    engine.run()
    assert times == [0, FIRST_DELAY, 3 * FIRST_DELAY, 7 * FIRST_DELAY]
    assert queue.failures == {}


def test_the_earliest_of_several_delays_counts(engine):
    times = []
    queue = WorkQueue(engine, "q", lambda _: times.append(engine.clock.now()))
    queue.add_after("a", 50)
    queue.add_after("a", 10)
    queue.add_after("a", 70)
    engine.run()
    assert times == [10]


def test_a_reconciler_says_when_to_look_again(engine):
    times = []

    def reconcile(_key):
        times.append(engine.clock.now())
        return 30 if len(times) < 3 else None

    WorkQueue(engine, "q", reconcile).add("a")
    engine.run()
    assert times == [0, 30, 60]


def test_a_queue_waits_until_it_may_begin(engine):
    seen, ready = [], [False]
    queue = WorkQueue(engine, "q", seen.append, ready=lambda: ready[0])
    queue.add("a")
    engine.run()
    assert seen == []
    ready[0] = True
    queue.wake()
    engine.run()
    assert seen == ["a"]
