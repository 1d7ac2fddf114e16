import pytest
from hypothesis import given
from hypothesis import strategies as st

from dralab.kernel.clock import ManualClock
from dralab.kernel.events import BEGINNING, DECIDING, ENDING, Events

PLAN = st.lists(st.tuples(st.integers(0, 5), st.integers(0, 3)), max_size=30)


@given(PLAN)
def test_events_come_by_time_then_priority_then_order_of_putting_in(plan):
    events = Events()
    seen = []
    for number, (when, priority) in enumerate(plan):
        events.at(when, lambda item=(when, priority, number): seen.append(item), priority=priority)
    events.run()
    assert seen == sorted((when, priority, number) for number, (when, priority) in enumerate(plan))


def test_an_end_comes_before_a_beginning_of_the_same_instant():
    events, seen = Events(), []
    events.at(3, lambda: seen.append("begins"), priority=BEGINNING)
    events.at(3, lambda: seen.append("ends"), priority=ENDING)
    events.run()
    assert seen == ["ends", "begins"]


def test_the_clock_shows_the_time_of_the_event_while_it_happens():
    clock = ManualClock(100)
    events, seen = Events(clock), []
    events.after(7, lambda: seen.append(clock.now()))
    assert events.next_time() == 107
    assert events.step()
    assert seen == [107]
    assert not events.step()


def test_what_an_event_puts_in_at_its_own_instant_still_happens_then():
    events, seen = Events(), []
    events.at(1, lambda: events.after(0, lambda: seen.append(events.now())))
    events.run()
    assert seen == [1]


def test_a_cancelled_event_never_happens_and_does_not_count():
    events, seen = Events(), []
    kept = events.at(1, lambda: seen.append("kept"))
    gone = events.at(0, lambda: seen.append("gone"))
    gone.cancel()
    gone.cancel()
    assert len(events) == 1
    assert events.next_time() == 1
    assert events.run() == 1
    assert seen == ["kept"]
    assert kept.cancelled


def test_running_until_a_time_stops_there_and_shows_it():
    events, seen = Events(), []
    for when in (1, 5, 6):
        events.at(when, lambda when=when: seen.append(when))
    assert events.run(until=5) == 2
    assert seen == [1, 5]
    assert events.run(until=5) == 0
    assert events.now() == 5
    events.run(until=9)
    assert (seen, events.now()) == ([1, 5, 6], 9)


def test_nothing_can_be_put_into_the_past():
    events = Events(ManualClock(10))
    with pytest.raises(ValueError, match="cannot schedule an event at 9"):
        events.at(9, print)


def test_what_comes_before_a_priority_is_of_this_instant_and_not_cancelled():
    events = Events()
    events.at(5, print, priority=ENDING)
    assert not events.next_before(DECIDING)
    events.run(until=4)
    cancelled = events.at(4, print, priority=BEGINNING)
    assert events.next_before(DECIDING)
    assert not events.next_before(BEGINNING)
    cancelled.cancel()
    assert not events.next_before(DECIDING)


@given(PLAN, PLAN)
def test_events_of_far_times_come_in_the_same_order(plan, late):
    events, seen, far = Events(), [], 1 << 41

    def put_in(plan, first):
        for number, (when, priority) in enumerate(plan, first):
            item = when * far, priority, number
            events.at(item[0], lambda item=item: seen.append(item), priority=priority)

    put_in(plan, 0)
    order = [event.when for event in events.pending()]
    events.at(2 * far, lambda: put_in([(when + 2, each) for when, each in late], 100), priority=-1)
    events.run()
    expected = [(when * far, priority, number) for number, (when, priority) in enumerate(plan)]
    assert order == [when for when, *_ in sorted(expected)]
    expected += [((when + 2) * far, each, number) for number, (when, each) in enumerate(late, 100)]
    assert seen == sorted(expected)
