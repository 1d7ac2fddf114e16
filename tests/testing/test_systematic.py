"""One fault at each place of the run without faults: which trials there are, and what they find."""

from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest

import dralab
import sitescenarios
from dralab.kernel.clock import SECOND
from dralab.testing.faults import FAULTS, NODES, READS, PlannedFault
from dralab.testing.places import ObservedTraffic
from dralab.testing.scenario import load
from dralab.testing.search import search, trial_numbers
from dralab.testing.systematic import single_faults
from dralab.testing.trial import expected_end, run_trial, systematic_schedules
from siteoperators import LeavesOrphans, Sites

EXAMPLE = Path(__file__).parents[2] / "examples/60-find-the-bug/scenario.yaml"

CREATED = "create configmaps default/shop-settings"


@cache
def prepared(operator):
    scenario = sitescenarios.scenario(operator)
    expected = expected_end(scenario)
    return scenario, expected, systematic_schedules(scenario, expected)


@cache
def traffic_of_sites():
    return prepared(Sites)[1].traffic


def faults_of(found):
    return [each for schedule in found.schedules for each in schedule]


def test_each_write_has_its_kill_and_each_event_its_lag():
    traffic, found = traffic_of_sites(), faults_of(prepared(Sites)[2])
    killed = {(f.program, f.verb, f.resource, f.nth) for f in found if f.fault == "kill"}
    writes = {each[:4] for each in traffic.occurrences if each.verb not in READS}
    assert len(writes) > 10
    assert killed == writes
    late = {(f.resource, f.nth) for f in found if f.fault == "hold-watch"}
    events = {(each.resource, each.nth) for each in traffic.occurrences if each.is_event}
    assert len(events) > 10
    assert late == events


def test_a_trial_has_one_fault_or_a_restart_with_old_lists():
    schedules = prepared(Sites)[2].schedules
    assert len(set(schedules)) == len(schedules)
    together = {tuple(sorted({f.fault for f in each})) for each in schedules if len(each) > 1}
    assert together == {("restart", "stale-list")}


def test_the_same_run_has_the_same_trials():
    scenario = sitescenarios.scenario(Sites)
    again = systematic_schedules(scenario, expected_end(scenario))
    assert again == prepared(Sites)[2]


def test_places_that_are_alike_come_last():
    """Two sites of one step: the second one's writes are like the first one's."""
    scenario = sitescenarios.scenario(Sites)
    first, *others = scenario.script
    both = replace(first, objects=[*first.objects, sitescenarios.site("e")])
    scenario = replace(scenario, script=[both, *others])
    found = systematic_schedules(scenario, expected_end(scenario))
    one_each, alike = found.schedules[: found.unlike], found.schedules[found.unlike :]
    kills = [
        {f.nth for s in part for f in s if f.fault == "kill" and f.verb == "create"}
        for part in (one_each, alike)
    ]
    # Each site has three objects made for it; the creations of both sites alternate.
    assert all(kills)
    assert not kills[0] & kills[1]


def test_all_kinds_of_faults_take_turns():
    found = prepared(Sites)[2]
    begin = {each.fault for schedule in found.schedules[:60] for each in schedule}
    assert {"kill", "restart", "conflict", "lose-answer", "hold-watch", "stale-list"} <= begin


def test_the_steps_of_the_user_take_turns():
    traffic, found = traffic_of_sites(), prepared(Sites)[2]
    stages = {each[:4]: traffic.stage(each.at) for each in traffic.occurrences if not each.is_event}
    kills = [f for f in faults_of(found) if f.fault == "kill" and f.moment == "after"]
    first = [stages[f.program, f.verb, f.resource, f.nth] for f in kills[: len(traffic.steps)]]
    assert sorted(first) == [1, 2, 3, 4, 5]


def test_only_what_is_allowed_and_possible_is_planned():
    traffic = traffic_of_sites()
    some = single_faults(traffic, allowed=["kill", "restart"], cached_lists=["operator"])
    assert {each.fault for each in faults_of(some)} == {"kill", "restart"}
    without = {each.fault for each in faults_of(single_faults(traffic))}
    assert "stale-list" not in without
    assert without.isdisjoint(name for name, kind in FAULTS.items() if kind.target == NODES)
    with_nodes = {each.fault for each in faults_of(single_faults(traffic, nodes=2))}
    assert {"node-down", "out-of-memory"} <= with_nodes


def test_a_program_that_does_nothing_has_no_trials():
    assert single_faults(ObservedTraffic()).schedules == []


@pytest.mark.parametrize("nth", range(0, 500, 50))
def test_each_fault_of_a_trial_happens(nth):
    """A trial begins as the run without faults, so its place is reached."""
    scenario, expected, found = prepared(Sites)
    result = run_trial(scenario, expected, found.schedules[nth], 0)
    assert set(result.fired) == set(found.schedules[nth])
    assert result.violations == ()


@pytest.mark.thorough
def test_a_list_lacks_one_change_of_several_at_one_instant():
    """The second bug of the example: a settled site whose status is not listed yet."""
    scenario = replace(load(EXAMPLE), allowed=["restart", "stale-list"])
    expected = expected_end(scenario)
    found = systematic_schedules(scenario, expected)
    result = search(scenario, expected, range(found.unlike), systematic=found)
    texts = [failure.result.violations[0].text for failure in result.explained]
    assert any(text.startswith("configmaps default/shop-*") for text in texts)
    assert {len(failure.schedule) for failure in result.explained} == {2}


def test_what_is_made_for_an_old_list_is_not_taken_for_destroyed_and_made_anew():
    """The operator without bugs: the object that it makes for a site that is gone is collected."""
    scenario = load(EXAMPLE.with_name("fixed.yaml"))
    faults = [
        PlannedFault(fault="restart", program="fixed", at=26 * SECOND, duration=SECOND),
        PlannedFault(
            fault="stale-list", program="fixed", verb="list", resource="sites.example.com",
            nth=2, behind=3, duration=40 * SECOND,
        ),
    ]  # fmt: skip
    result = run_trial(scenario, expected_end(scenario), faults, 0)
    made = [e for e in result.history.of("write") if e.text == CREATED]
    assert len(made) > 1
    assert result.violations == ()


def test_a_search_goes_on_where_another_one_stopped():
    found = prepared(Sites)[2]
    assert trial_numbers(0, None, found) == range(found.unlike)
    assert trial_numbers(10, 5, found) == range(10, 15)
    assert trial_numbers(10, 10_000, found) == range(10, len(found.schedules))
    assert not trial_numbers(10_000, None, found)
    assert trial_numbers(10, None) == range(10, 110)


def test_a_failure_of_a_systematic_search_is_told_by_its_trial():
    scenario = sitescenarios.scenario(LeavesOrphans, allowed=["kill"])

    @dralab.simulation_test(scenario, systematic=True, seeds=20)
    def check():
        raise RuntimeError("not reached")

    with pytest.raises(AssertionError) as failure:
        check()
    lines = str(failure.value).splitlines()
    assert lines[0].endswith("of 20 trials fail")
    assert lines[2].startswith("trials ")
    assert "the shortest schedule: 1 of 1 faults" in lines


@pytest.mark.conformance
def test_the_correct_operator_raises_no_false_alarm():
    scenario, expected, found = prepared(Sites)
    assert search(scenario, expected, range(found.unlike), systematic=found).failures == {}


def test_an_outage_is_one_of_the_server():
    found = [each for each in faults_of(prepared(Sites)[2]) if each.fault == "outage"]
    assert found
    assert {each.program for each in found} == {""}
    assert all(each.duration > SECOND for each in found)
