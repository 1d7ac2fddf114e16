import pytest

from builders import pod
from dralab.kernel.clock import SECOND, ManualClock
from dralab.scheduler.pods import pod_info
from dralab.scheduler.queue import ClusterChange, SchedulingQueue


@pytest.fixture
def clock():
    return ManualClock()


@pytest.fixture
def queue(clock):
    return SchedulingQueue(clock.now)


def info(name, priority=0, gates=()):
    made = pod(name, priority=priority)
    made["metadata"]["uid"] = name
    if gates:
        made["spec"]["schedulingGates"] = [{"name": gate} for gate in gates]
    return pod_info(made)


def popped(queue):
    item = queue.pop()
    return item and item.pod.key.name


def test_priority_then_age_decides_who_is_next(queue, clock):
    queue.add_pod(info("old"))
    clock.advance(1)
    queue.add_pod(info("new"))
    queue.add_pod(info("urgent", priority=5))
    assert [popped(queue) for _ in range(4)] == ["urgent", "old", "new", None]


def test_a_failed_pod_waits_for_a_change_that_could_help(queue):
    queue.add_pod(info("p"))
    queue.add_unschedulable(queue.pop(), ClusterChange.NODE)
    assert queue.wake_for(ClusterChange.POD_GONE) == 0
    assert popped(queue) is None
    assert queue.wake_for(ClusterChange.NODE) == 1
    assert popped(queue) == "p"


def test_back_off_doubles_to_ten_seconds(queue, clock):
    queue.add_pod(info("p"))
    waits = []
    for _ in range(6):
        item = queue.pop()
        queue.add_unschedulable(item, ClusterChange.ANY)
        waits.append((item.backoff_ends() - clock.now()) // SECOND)
        queue.wake_for(ClusterChange.NODE)
    assert waits == [1, 2, 4, 8, 10, 10]


def test_of_those_who_back_off_the_urgent_goes_first(queue, clock):
    for name, priority in (("low", 0), ("urgent", 5), ("late", 0)):
        queue.add_pod(info(name, priority))
        queue.add_unschedulable(queue.pop(), ClusterChange.NODE)
        clock.advance(SECOND // 10)
    queue.wake_for(ClusterChange.NODE)
    assert [popped(queue) for _ in range(4)] == ["urgent", "low", "late", None]


def test_who_backs_off_goes_after_who_is_ready_but_does_not_idle(queue):
    queue.add_pod(info("tired", priority=9))
    queue.add_unschedulable(queue.pop(), ClusterChange.ANY)
    queue.wake_for(ClusterChange.NODE)
    queue.add_pod(info("fresh"))
    assert [popped(queue), popped(queue)] == ["fresh", "tired"]


def test_a_pod_whose_binding_failed_waits_even_if_no_other_is_ready(queue, clock):
    queue.add_pod(info("p"))
    queue.add_unschedulable(queue.pop(), ClusterChange.ANY)
    queue.wake_for(ClusterChange.NODE)
    clock.advance(1 * SECOND)  # now it is active, and left an entry among those that may be early
    queue.put_back(queue.pop())
    assert popped(queue) is None
    clock.advance(2 * SECOND)
    assert popped(queue) == "p"


def test_a_gated_pod_is_not_tried_until_its_gates_go(queue):
    queue.add_pod(info("p", gates=("g",)))
    assert popped(queue) is None
    assert queue.counts()["gated"] == 1
    queue.update_pod(info("p"))
    assert popped(queue) == "p"


def test_after_five_minutes_a_pod_is_tried_whatever_it_awaits(queue, clock):
    queue.add_pod(info("p"))
    queue.add_unschedulable(queue.pop(), ClusterChange.NODE)
    clock.advance(299 * SECOND)
    assert queue.wake_overdue() == 0
    clock.advance(1 * SECOND)
    assert queue.wake_overdue() == 1
    assert popped(queue) == "p"


def test_a_removed_pod_is_forgotten_wherever_it_waited(queue):
    for name in ("active", "failed"):
        queue.add_pod(info(name))
    queue.add_unschedulable(queue.pop(), ClusterChange.NODE)
    queue.remove_pod("active")
    queue.remove_pod("failed")
    assert (popped(queue), len(queue)) == (None, 0)


def test_a_change_wakes_the_first_of_a_kind_and_its_placement_the_next(queue, clock):
    for name in ("a", "b", "c", "other"):
        queue.add_pod(info(name))
        clock.advance(1)
    for _ in range(4):
        item = queue.pop()
        queue.add_unschedulable(
            item, ClusterChange.DEVICES, "other" if item.pod.key.name == "other" else "kind"
        )
    assert queue.wake_for(ClusterChange.DEVICES) == 2
    first = queue.pop()
    assert (first.pod.key.name, popped(queue), popped(queue)) == ("a", "other", None)
    queue.wake_next_like(first)
    assert popped(queue) == "b"


def test_a_pod_that_fails_again_leaves_the_others_of_its_kind_asleep(queue):
    for name in ("a", "b"):
        queue.add_pod(info(name))
    for _ in range(2):
        queue.add_unschedulable(queue.pop(), ClusterChange.DEVICES, "kind")
    queue.wake_for(ClusterChange.DEVICES)
    queue.add_unschedulable(queue.pop(), ClusterChange.DEVICES, "kind")
    assert popped(queue) is None


def test_a_woken_pod_that_goes_away_wakes_the_next_of_its_kind(queue):
    for name in ("a", "b"):
        queue.add_pod(info(name))
    for _ in range(2):
        queue.add_unschedulable(queue.pop(), ClusterChange.DEVICES, "kind")
    queue.wake_for(ClusterChange.DEVICES)
    queue.remove_pod("a")
    assert popped(queue) == "b"


def test_a_pod_can_be_woken_by_name(queue):
    for name in ("a", "b"):
        queue.add_pod(info(name))
    for _ in range(2):
        queue.add_unschedulable(queue.pop(), ClusterChange.NOTHING, "kind")
    assert queue.wake_for(ClusterChange.ANY) == 0
    assert queue.wake_pods(["b", "unknown"]) == 1
    assert (popped(queue), popped(queue)) == ("b", None)


def test_a_kind_awaits_what_the_last_of_it_found_lacking(queue):
    for name, awaited in (("a", ClusterChange.NODE), ("b", ClusterChange.POD_GONE)):
        queue.add_pod(info(name))
        queue.add_unschedulable(queue.pop(), awaited, "kind")
    assert queue.wake_for(ClusterChange.POD_GONE) == 1
    assert popped(queue) == "a"
