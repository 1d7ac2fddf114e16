from types import SimpleNamespace

import pytest

from dralab.api.status import ApiError
from dralab.kernel.clock import SECOND, ManualClock
from dralab.runtime.leader_election import (
    DURATION,
    NAMESPACE,
    RENEW_DEADLINE,
    RETRY,
    Leadership,
)
from dralab.runtime.resources import LEASES
from dralab.runtime.simulated import SimulatedEngine
from labs import Server


class Candidate(Leadership):
    def __init__(self, engine, server, identity):
        self.told = []
        super().__init__(
            engine,
            server,
            "lead",
            identity,
            lambda: self.told.append("begin"),
            lambda: self.told.append("lost"),
        )
        self.start()


@pytest.fixture
def engine():
    return SimulatedEngine()


@pytest.fixture
def server(engine):
    return Server(engine.clock)


class LaneEngine(SimulatedEngine):
    """Remembers in which lanes work was done."""

    def __init__(self):
        super().__init__()
        self.lanes = set()

    def offload(self, work, done, *, lane=""):
        self.lanes.add(lane)
        super().offload(work, done, lane=lane)


def wait(engine, span):
    engine.run(engine.clock.now() + span)


def holder(server):
    return server.get(LEASES, "lead", NAMESPACE)["spec"]["holderIdentity"]


def test_of_several_one_leads(engine, server):
    candidates = [Candidate(engine, server, name) for name in ("a", "b", "c")]
    wait(engine, 60 * SECOND)
    assert [each.told for each in candidates].count(["begin"]) == 1
    assert sum(each.holds for each in candidates) == 1


def test_a_lease_that_is_given_back_is_taken_at_the_next_try(engine, server):
    first = Candidate(engine, server, "a")
    wait(engine, SECOND)
    second = Candidate(engine, server, "b")
    wait(engine, 60 * SECOND)
    first.stop()
    assert holder(server) == ""
    wait(engine, RETRY)
    assert second.holds
    assert holder(server) == "b"
    assert server.get(LEASES, "lead", NAMESPACE)["spec"]["leaseTransitions"] == 1


def test_a_lease_whose_holder_is_silent_runs_out(engine, server):
    first = Candidate(engine, server, "a")
    wait(engine, SECOND)
    first._stopped = True  # killed
    second = Candidate(engine, server, "b")
    wait(engine, DURATION - SECOND)
    assert not second.holds
    wait(engine, 2 * RETRY)
    assert second.holds


def test_who_comes_back_under_its_own_name_goes_on(engine, server):
    first = Candidate(engine, server, "a")
    wait(engine, SECOND)
    first._stopped = True
    again = Candidate(engine, server, "a")
    wait(engine, SECOND)
    assert again.holds


def test_a_holder_whose_lease_was_taken_stops(engine, server):
    first = Candidate(engine, server, "a")
    wait(engine, SECOND)
    lease = server.get(LEASES, "lead", NAMESPACE)
    spec = {**lease["spec"], "holderIdentity": "thief", "renewTime": "2027-01-15T08:00:00.000000Z"}
    server.update(LEASES, {**lease, "spec": spec})
    wait(engine, RETRY)
    assert first.told == ["begin", "lost"]


def test_a_holder_that_reaches_nobody_stops_before_its_lease_runs_out(engine, server):
    first = Candidate(engine, server, "a")
    wait(engine, SECOND)
    for _ in range(20):
        server.fail_next("get", "leases", ApiError("Timeout", "no answer"))
    wait(engine, 8 * SECOND)
    assert first.told == ["begin"]
    wait(engine, DURATION - 9 * SECOND)
    assert first.told == ["begin", "lost"]
    wait(engine, 60 * SECOND)
    assert first.told == ["begin", "lost", "begin"]


def test_of_two_who_see_it_run_out_one_gets_it(engine, server):
    silent = Candidate(engine, server, "a")
    wait(engine, SECOND)
    silent._stopped = True
    others = [Candidate(engine, server, name) for name in ("b", "c")]
    wait(engine, 3 * DURATION)
    assert sum(each.holds for each in others) == 1


def test_who_stops_does_not_give_back_what_another_holds_by_now(engine, server):
    first = Candidate(engine, server, "a")
    wait(engine, SECOND)
    lease = server.get(LEASES, "lead", NAMESPACE)
    server.update(LEASES, {**lease, "spec": {**lease["spec"], "holderIdentity": "b"}})
    assert first.holds, "it has not heard of it"
    first.stop()
    assert holder(server) == "b"


def test_a_lease_that_says_the_year_0_is_taken_over_when_it_has_been_seen_for_long_enough(
    engine, server
):
    spec = {
        "holderIdentity": "gone",
        "leaseDurationSeconds": 15,
        "acquireTime": "0000-01-01T00:00:00.000000Z",
        "renewTime": "0000-01-01T00:00:00.000000Z",
    }
    server.add(LEASES, {"metadata": {"name": "lead", "namespace": NAMESPACE}, "spec": spec})
    candidate = Candidate(engine, server, "a")
    wait(engine, DURATION - RETRY)
    assert not candidate.holds
    wait(engine, 3 * RETRY)
    assert candidate.holds


def test_a_holder_that_was_stopped_may_not_act_before_it_hears_of_it(engine, server):
    first = Candidate(engine, server, "a")
    wait(engine, SECOND)
    assert first.may_act()
    later = ManualClock(engine.clock.now() + RENEW_DEADLINE)
    first.engine = SimpleNamespace(clock=later)  # no event has run meanwhile
    assert first.holds
    assert not first.may_act()


def test_a_lease_counts_from_before_it_was_asked_for(engine, server):
    first = Candidate(engine, server, "a")
    wait(engine, SECOND)
    now = engine.clock.now()
    first._tried(now - RENEW_DEADLINE, result=True)  # read late: the process was stopped
    assert not first.may_act()
    first._tried(now, result=True)
    assert first.may_act()


def test_the_lease_does_not_wait_behind_what_its_holder_writes():
    engine = LaneEngine()
    Candidate(engine, Server(engine.clock), "a")
    wait(engine, 10 * SECOND)
    assert engine.lanes == {"lease"}
