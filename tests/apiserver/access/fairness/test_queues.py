"""Whose turn it is among requests that wait."""

from collections import Counter

import pytest

from dralab.apiserver.access.fairness.queues import PROGRAMS, FairQueue, PriorityLevel, QueueFull
from dralab.apiserver.cpu_use import KEPT, CpuUse

LOW = PriorityLevel("low", 100)


def test_one_that_waits_alone_is_next_whatever_others_have_asked_before():
    queue = FairQueue()
    for number in range(500):
        queue.push(f"greedy-{number}", LOW, "greedy")
    queue.push("once", LOW, "kubectl")
    assert queue.take_batch(2) == ["greedy-0", "once"]


def test_programs_of_one_user_take_turns():
    queue = FairQueue()
    for number in range(500):
        queue.push(f"greedy-{number}", LOW, "admin", "loader")
    queue.push("once", LOW, "admin", "kubectl")
    assert queue.take_batch(2) == ["greedy-0", "once"]


def test_many_program_names_take_no_more_of_the_turns_of_other_users():
    queue = FairQueue()
    for number in range(500):
        queue.push(("greedy", number), LOW, "greedy", f"program-{number}")
    for number in range(5):
        queue.push(("modest", number), LOW, "modest")
    assert Counter(user for user, _ in queue.take_batch(10)) == {"greedy": 5, "modest": 5}
    assert len(queue.take_batch(1000)) == 495


def test_the_order_of_one_program_is_kept():
    queue = FairQueue()
    for number in range(100):
        queue.push(number, LOW, "admin", f"program-{number % 2}" if number < PROGRAMS else "x")
    taken = queue.take_batch(100)
    for kept in (0, 1):
        assert [n for n in taken if n < PROGRAMS and n % 2 == kept] == list(
            range(kept, PROGRAMS, 2)
        )


def test_levels_get_turns_by_their_shares_and_exempt_ones_go_first():
    queue = FairQueue()
    for number in range(100):
        queue.push("high", PriorityLevel("high", 30), number)
        queue.push("low", PriorityLevel("low", 10), number)
    for _ in range(5):
        queue.push("exempt", PriorityLevel("exempt", exempt=True), "admin")
    taken = queue.take_batch(45)
    assert taken[:5] == ["exempt"] * 5
    assert Counter(taken[5:]) == {"high": 30, "low": 10}


def test_a_flow_and_a_level_hold_no_more_than_they_may():
    level = PriorityLevel("small", per_flow=2, in_all=3)
    queue = FairQueue()
    queue.push(1, level, "a")
    queue.push(2, level, "a")
    with pytest.raises(QueueFull):
        queue.push(3, level, "a")
    queue.push(4, level, "b")
    with pytest.raises(QueueFull):
        queue.push(5, level, "c")
    assert (len(queue), sorted(queue)) == (3, [1, 2, 4])
    assert queue.take_batch(5) == [1, 4, 2]
    queue.push(6, level, "a")
    assert queue.take_batch(1) == [6]


def test_who_has_used_more_cpu_time_waits_until_others_have_used_as_much():
    use = CpuUse()
    queue = FairQueue(use)
    for number in range(3):
        queue.push(("heavy", number), LOW, "heavy")
        queue.push(("light", number), LOW, "light")
    use.charge(("low", "heavy"), 0.25)
    assert queue.take_batch(2) == [("light", 0), ("light", 1)]
    use.charge(("low", "light"), 0.5)
    assert queue.take_batch(2) == [("heavy", 0), ("heavy", 1)]


def test_what_was_used_is_forgotten_and_never_counts_for_more_than_two_seconds():
    now = [0.0]
    use = CpuUse(lambda: now[0])
    use.charge("jane", 60)
    assert use.of("jane") == 2.0
    now[0] = 4
    assert use.of("jane") == 1.0
    now[0] = 60
    assert use.of("jane") == 0.0


def test_flows_that_used_nothing_of_late_are_not_kept():
    now = [0.0]
    use = CpuUse(lambda: now[0])
    for number in range(3 * KEPT):
        now[0] += 1
        use.charge(number, 0.1)
    assert len(use) <= KEPT


def test_what_is_put_back_has_used_nothing():
    use = CpuUse()
    queue = FairQueue(use)
    queue.push("a", LOW, "jane")
    assert queue.take_batch(1) == ["a"]
    queue.put_back("a", LOW, "jane")
    assert use.of(("low", "jane")) == 0
