"""Faults that refuse requests for a while, and those of the cluster: each shows a bug of its own."""

from functools import cache

import pytest

import sitescenarios
from dralab.kernel.clock import SECOND
from dralab.runtime.resources import CONFIG_MAPS
from dralab.testing.faults import FAULTS, OF_NODES, PlannedFault
from dralab.testing.search import search
from dralab.testing.trial import expected_end, run_trial, schedule
from faultoperators import (
    ClosesNodes,
    Counts,
    ForgetsNodes,
    ForgetsRestarted,
    GivesUpInAnOutage,
    GivesUpWhenThrottled,
    Members,
    TakesADenialForGood,
    TakesExpiryForGood,
    members_scenario,
)
from siteoperators import Sites

MAPS = "configmaps"


def request(name, verb, nth, **given):
    return PlannedFault(fault=name, program="operator", verb=verb, resource=MAPS, nth=nth, **given)


# fault → (the operator with the bug, the one without, the fault that shows it)
BUGS = {
    "throttle": (
        GivesUpWhenThrottled,
        Sites,
        request("throttle", "create", 1, duration=15 * SECOND),
    ),
    "deny": (
        TakesADenialForGood,
        Sites,
        request("deny", "create", 4, duration=2 * SECOND, code=403),
    ),
    "expire-credentials": (
        TakesExpiryForGood,
        Sites,
        PlannedFault(
            fault="expire-credentials", program="operator", at=11 * SECOND // 2, duration=5 * SECOND
        ),
    ),
    "outage": (
        GivesUpInAnOutage,
        Counts,
        PlannedFault(fault="outage", at=3 * SECOND, duration=15 * SECOND),
    ),
    "out-of-memory": (
        ForgetsRestarted,
        Members,
        PlannedFault(fault="out-of-memory", nth=1, at=30 * SECOND),
    ),
    "node-down": (
        ForgetsNodes,
        Members,
        PlannedFault(fault="node-down", nth=1, at=20 * SECOND, duration=60 * SECOND),
    ),
    "driver-down": (
        ClosesNodes,
        Members,
        PlannedFault(fault="driver-down", nth=1, at=4 * SECOND, duration=5 * SECOND),
    ),
}


@cache
def prepared(operator):
    made = sitescenarios.scenario if issubclass(operator, Sites) else members_scenario
    found = made(operator)
    return found, expected_end(found)


def tried(operator, fault):
    return run_trial(*prepared(operator), [fault], 0)


@pytest.mark.parametrize("name", BUGS)
def test_a_fault_shows_its_bug_and_the_correct_operator_passes(name):
    careless, correct, fault = BUGS[name]
    result = tried(careless, fault)
    assert [each.oracle for each in result.violations[:1]] == ["final-state"]
    assert list(result.fired) == [fault]
    assert not tried(correct, fault).violations


@pytest.mark.conformance
@pytest.mark.parametrize("name", BUGS)
def test_only_this_fault_finds_its_bug(name):
    from dataclasses import replace

    scenario, expected = prepared(BUGS[name][0])
    assert search(scenario, expected, range(100)).failed
    # A container is also restarted when its node comes back.
    others = [each for each in FAULTS if each not in {name, *(OF_NODES if "out" in name else ())}]
    without = replace(scenario, allowed=others)
    assert search(without, expected, range(100)).failures == {}


# --- what programs see ---------------------------------------------------------------------------


def texts(result, *who):
    return [entry.text for entry in result.history.entries if not who or entry.who in who]


def test_a_throttled_program_is_told_when_to_come_back():
    from dralab.testing.refusals import lasting_refusal

    error = lasting_refusal(BUGS["throttle"][2])
    assert (error.code, error.details) == (429, {"retryAfterSeconds": 1})


def test_only_the_writes_that_admission_denies_are_refused():
    found = texts(tried(Sites, BUGS["deny"][2]), "operator")
    refused = [text for text in found if "-> 403 Forbidden" in text]
    assert refused
    assert all(text.startswith("create configmaps") for text in refused)


def test_a_webhook_that_cannot_be_called_is_an_internal_error():
    fault = request("deny", "create", 1, duration=5 * SECOND, code=500)
    found = texts(tried(Sites, fault), "operator")
    assert "create configmaps registry/a -> 500 InternalError" in found


def test_a_watch_outlives_the_credentials_it_was_opened_with():
    fault = BUGS["expire-credentials"][2]
    entries = tried(Sites, fault).history.entries
    during = [e for e in entries if fault.at < e.at < fault.at + fault.duration]
    assert "sees ADDED sites.example.com default/b" in [e.text for e in during]
    assert any("-> 401 Unauthorized" in e.text for e in during)


def test_watches_end_with_the_server_and_the_program_lists_again_after_it():
    fault = PlannedFault(fault="outage", at=SECOND // 2, duration=5 * SECOND)
    entries = [e for e in tried(Sites, fault).history.entries if e.who == "operator"]
    during = [e for e in entries if fault.at < e.at < fault.at + fault.duration]
    assert during
    assert all("-> 503" in e.text for e in during)
    listed = next(e for e in entries if e.text == "list sites.example.com" and e.at > fault.at)
    assert listed.at >= fault.at + fault.duration


def test_a_program_that_finds_no_server_at_its_start_is_started_again():
    class Asks(Sites):
        def __init__(self, manager):
            super().__init__(manager)
            self.client.list(CONFIG_MAPS)

    scenario = sitescenarios.scenario(Asks)
    faults = [
        PlannedFault(fault="outage", at=2 * SECOND, duration=5 * SECOND),
        PlannedFault(fault="restart", program="operator", at=3 * SECOND, duration=SECOND),
    ]
    result = run_trial(scenario, expected_end(scenario), faults, 0)
    assert result.violations == ()
    assert "cannot start: 503 ServiceUnavailable" in texts(result, "operator")


def test_the_container_that_ran_out_of_memory_is_told_and_started_again():
    found = texts(tried(Members, BUGS["out-of-memory"][2]))
    assert any(text.endswith(": OOMKilled") for text in found)


def test_a_node_without_power_becomes_unready_and_comes_back():
    found = texts(tried(Members, BUGS["node-down"][2]), "other", "operator")
    assert "node node-0 loses power" in found
    assert "delete configmaps registry/node-node-0" in found
    assert "node node-0 is back" in found


def test_faults_of_nodes_are_drawn_only_where_there_are_nodes():
    scenario, expected = prepared(Sites)
    drawn = {each.fault for seed in range(60) for each in schedule(scenario, expected, seed)}
    assert not drawn & OF_NODES
    assert "outage" in drawn
