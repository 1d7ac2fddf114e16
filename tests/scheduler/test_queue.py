import random

import pytest

from builders import pod
from dralab.kernel.clock import SECOND, ManualClock
from dralab.scheduler.queue import SchedulingQueue
from dralab.scheduling.pods import pod_info
from dralab.scheduling.reasons import ClusterChange


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


def test_a_pod_that_failed_again_goes_behind_one_that_failed_before(queue, clock):
    for name in ("first", "second"):
        queue.add_pod(info(name))
        clock.advance(1)
    for awaits in (ClusterChange.NODE | ClusterChange.DEVICES, ClusterChange.NODE):
        queue.add_unschedulable(queue.pop(), awaits)
    clock.advance(20 * SECOND)
    queue.wake_for(ClusterChange.DEVICES)
    queue.add_unschedulable(queue.pop(), ClusterChange.NODE)
    clock.advance(20 * SECOND)
    queue.wake_for(ClusterChange.NODE)
    assert [popped(queue), popped(queue)] == ["second", "first"]


def test_a_pod_counts_as_failed_when_the_first_of_its_kind_did(queue, clock):
    for name in ("a", "b", "other"):
        queue.add_pod(info(name))
        clock.advance(1)
    for _ in range(3):
        item = queue.pop()
        other = item.pod.key.name == "other"
        awaits = ClusterChange.NODE if other else ClusterChange.ANY
        queue.add_unschedulable(item, awaits, "other" if other else "kind")
    clock.advance(20 * SECOND)
    queue.wake_for(ClusterChange.DEVICES)
    queue.add_unschedulable(queue.pop(), ClusterChange.ANY, "kind")
    clock.advance(20 * SECOND)
    queue.wake_for(ClusterChange.NODE)
    tried = [popped(queue), queue.pop()]
    queue.wake_next_like(tried[1])
    assert [tried[0], tried[1].pod.key.name, popped(queue)] == ["other", "a", "b"]


def test_a_failed_pod_waits_for_a_change_that_could_help(queue):
    queue.add_pod(info("p"))
    queue.add_unschedulable(queue.pop(), ClusterChange.NODE)
    assert queue.wake_for(ClusterChange.POD_GONE) == 0
    assert popped(queue) is None
    assert queue.wake_for(ClusterChange.NODE) == 1
    assert popped(queue) == "p"


def test_back_off_doubles_to_ten_seconds(queue, clock):
    queue.add_pod(info("p"))
    clock.advance(SECOND // 2)
    waits = []
    for _ in range(6):
        item = queue.pop()
        queue.add_unschedulable(item, ClusterChange.ANY)
        waits.append((item.backoff_ends() - clock.now()) / SECOND)
        queue.wake_for(ClusterChange.NODE)
    # It ends with the full second.
    assert waits == [1.5, 2.5, 4.5, 8.5, 10.5, 10.5]


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
    clock.advance(2 * SECOND)
    queue.put_back(queue.pop())
    assert popped(queue) is None
    clock.advance(3 * SECOND)
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
    assert queue.overdue_at() == 300 * SECOND
    clock.advance(299 * SECOND)
    assert queue.wake_overdue() == 0
    clock.advance(1 * SECOND)
    assert queue.wake_overdue() == 1
    assert (queue.overdue_at(), popped(queue)) == (None, "p")


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


def test_a_second_change_wakes_no_other_of_a_kind_whose_first_is_awake(queue):
    for name in ("a", "b"):
        queue.add_pod(info(name))
    for _ in range(2):
        queue.add_unschedulable(queue.pop(), ClusterChange.DEVICES, "kind")
    assert [queue.wake_for(ClusterChange.DEVICES) for _ in range(2)] == [1, 0]
    first = queue.pop()
    assert (first.pod.key.name, popped(queue)) == ("a", None)
    queue.add_unschedulable(first, ClusterChange.DEVICES, "kind")
    assert queue.wake_for(ClusterChange.DEVICES) == 1


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


def test_a_back_off_is_not_cut_short_by_an_earlier_one(queue, clock):
    queue.add_pod(info("p"))
    queue.add_unschedulable(queue.pop(), ClusterChange.NODE)
    queue.wake_for(ClusterChange.NODE)
    queue.put_back(queue.pop())  # tried at once, for no other is ready; its binding failed
    clock.advance(2 * SECOND)
    assert popped(queue) is None
    clock.advance(SECOND)
    assert popped(queue) == "p"


class PlainQueue:
    """The rules of the queue, with a list that is looked through each time."""

    def __init__(self, now):
        self.now, self.pods, self.failures = now, {}, {}

    def add_pod(self, pod):
        new = {"since": self.now(), "added": self.now(), "tries": 0, "failed": 0}
        one = self.pods.setdefault(pod.uid, {**new, "kind": None, "leads": False})
        one["pod"] = pod
        if pod.gates:
            one["where"] = "gated"
        else:
            one["where"] = "active"

    def update_pod(self, pod):
        one = self.pods.get(pod.uid)
        if one is None or pod.gates or one["where"] == "gated":
            self.add_pod(pod)
        else:
            one["pod"] = pod
            self.wake_pods([pod.uid])

    def remove_pod(self, uid):
        one = self.pods.pop(uid, None)
        if one is not None and one["leads"]:
            self.wake_next_like(one)

    def pop(self):
        for one in self._at("backoff"):
            if self._ends(one) <= self.now():
                one["where"] = "active"
        ready = self._at("active")
        eager = [one for one in self._at("backoff") if one["eager"]]
        if ready:
            found = min(ready, key=self._order)
        elif eager:
            found = min(eager, key=lambda one: (self._ends(one), *self._order(one)))
        else:
            return None
        found["where"] = "trying"
        return found

    def add_unschedulable(self, one, awaits, kind):
        if one["pod"].uid in self.pods:
            self._fail(one)
            one |= {"kind": kind, "leads": False, "where": "unschedulable"}
            self.failures[kind] = (awaits, self.now())

    def put_back(self, one):
        if one["pod"].uid in self.pods:
            self._fail(one)
            self._requeue(one, eager=False)

    def wake_next_like(self, one):
        one["leads"] = False
        return self._wake(one["kind"])

    def wake_for(self, change):
        kinds = dict.fromkeys(one["kind"] for one in self._at("unschedulable"))
        return sum(self._wake(kind) for kind in kinds if self.failures[kind][0] & change)

    def wake_pods(self, uids):
        chosen = [one for one in self._at("unschedulable") if one["pod"].uid in uids]
        for one in chosen:
            self._requeue(one)
        return len(chosen)

    def wake_overdue(self):
        moved = 0
        for kind in dict.fromkeys(one["kind"] for one in self._at("unschedulable")):
            if self.now() - self.failures[kind][1] >= 300 * SECOND:
                moved += self._wake(kind)
        return moved

    def counts(self):
        places = ("active", "backoff", "unschedulable", "gated", "trying")
        return {place: len(self._at(place)) for place in places}

    def _at(self, where):
        return [one for one in self.pods.values() if one["where"] == where]

    def _order(self, one):
        return (-one["pod"].priority, one["since"], one["added"])

    def _fail(self, one):
        one |= {"tries": one["tries"] + 1, "failed": self.now(), "since": self.now()}

    def _first(self, kind):
        alike = [one for one in self._at("unschedulable") if one["kind"] == kind]
        return min(alike, key=lambda one: (-one["pod"].priority, one["added"]), default=None)

    def _wake(self, kind):
        found = self._first(kind)
        led = any(one["leads"] and one["kind"] == kind for one in self.pods.values())
        if found is None or kind is None or led:
            return 0
        found |= {"leads": True, "since": max(found["since"], self.failures[kind][1])}
        self._requeue(found)
        return 1

    def _requeue(self, one, *, eager=True):
        over = self._ends(one) <= self.now()
        one |= {"where": "active" if over else "backoff", "eager": eager}

    def _ends(self, one):
        if not one["tries"]:
            return 0
        seconds = one["failed"] // SECOND + min(2 ** (one["tries"] - 1), 10)
        return (seconds + 1) * SECOND


@pytest.mark.parametrize("seed", range(30))
def test_the_queue_does_what_a_plain_list_does(queue, clock, seed):
    chance, plain = random.Random(seed), PlainQueue(clock.now)
    trying, gone = [], set()
    changes = [ClusterChange.NODE, ClusterChange.DEVICES, ClusterChange.ANY]
    for _ in range(150):
        uid = f"p{chance.randrange(len(gone), len(gone) + 8)}"
        gates = ("g",) * (chance.random() < 0.1)
        clock.advance(1)  # No two came at the same time.
        match chance.randrange(10):
            case 0 | 1:
                new = info(uid, int(uid[1:]) % 3, gates)
                if uid not in {item.pod.uid for item, _ in trying} | gone:
                    for each in (queue, plain):
                        (each.add_pod if uid not in plain.pods else each.update_pod)(new)
            case 2 | 3 | 4:
                item, one = queue.pop(), plain.pop()
                assert (item and item.pod.uid) == (one and one["pod"].uid)
                if item is not None:
                    trying.append((item, one))
            case 5 | 6 if trying:
                item, one = trying.pop(chance.randrange(len(trying)))
                awaits, kind = chance.choice(changes), chance.choice("ab")
                queue.add_unschedulable(item, awaits, kind)
                plain.add_unschedulable(one, awaits, kind)
            case 7 if trying:
                item, one = trying.pop()
                if chance.random() < 0.5:
                    queue.put_back(item)
                    plain.put_back(one)
                else:
                    gone.add(item.pod.uid)
                    queue.remove_pod(item.pod.uid)
                    plain.remove_pod(item.pod.uid)
                    queue.wake_next_like(item)
                    plain.wake_next_like(one)
            case 8:
                clock.advance(chance.choice((0, 1, 2, 5, 400)) * SECOND)
                assert queue.wake_overdue() == plain.wake_overdue()
            case 9:
                change, uids = chance.choice(changes), {uid, "p0"}
                if chance.random() < 0.5:
                    assert queue.wake_for(change) == plain.wake_for(change)
                else:
                    assert queue.wake_pods(uids) == plain.wake_pods(uids)
        assert queue.counts() == plain.counts()
        assert len(queue) == len(plain.pods)


def test_pods_that_one_object_wakes_are_tried_by_priority_and_age(queue, clock):
    for number, name in enumerate(("z", "a", "m")):
        queue.add_pod(info(name, priority=number == 2))
        clock.advance(1)
    for _ in range(3):
        queue.add_unschedulable(queue.pop(), ClusterChange.NOTHING)
    assert queue.wake_pods({"a", "m", "z"}) == 3
    assert [popped(queue) for _ in range(3)] == ["m", "z", "a"]
