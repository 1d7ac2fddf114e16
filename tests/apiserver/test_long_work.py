"""Long computations take turns: whoever has used least CPU time is next."""

import threading

import pytest

from dralab.apiserver.access.scope import MustCompute, RequestScope, deadline
from dralab.apiserver.long_work import LongWork, WaitedTooLong
from dralab.apiserver.storage import MemoryStore


def in_turn(work, user, order, waiting):
    """Start a thread that notes its turn; return it once it waits."""

    def run():
        with work.turn(user, timeout=60):
            order.append(user)

    thread = threading.Thread(target=run)
    thread.start()
    while len(work._waiting) < waiting:
        pass
    return thread


def test_one_thread_at_a_time_and_who_has_used_least_is_next():
    work, order = LongWork(), []
    work._use.charge("greedy", 2.0)
    with work.turn("greedy", timeout=1):
        users = ["greedy", "greedy", "jane"]
        threads = [in_turn(work, user, order, at) for at, user in enumerate(users, start=1)]
        assert order == []
    for thread in threads:
        thread.join()
    assert order == ["jane", "greedy", "greedy"]
    with work.turn("joe", timeout=1):
        assert work._busy
    assert not work._busy


def test_a_turn_that_does_not_come_in_time_is_given_up():
    work = LongWork()
    with work.turn("greedy", timeout=1):
        with pytest.raises(WaitedTooLong), work.turn("jane", timeout=0.01):
            pass
        assert not work._waiting


def test_a_scope_says_who_may_compute_for_long():
    store = MemoryStore()
    with pytest.raises(MustCompute), RequestScope(store=store).long_work():
        pass
    with RequestScope(store=store, until=deadline(), work=LongWork()).long_work():
        pass
