"""Faults as data, and how a seed chooses them."""

from collections import Counter
from pathlib import Path

import pytest

from dralab.kernel.clock import SECOND
from dralab.testing.faults import DURATIONS, FAULTS, PlannedFault, draw
from dralab.testing.places import ObservedTraffic
from dralab.testing.plan import FaultPlan
from dralab.testing.scenario import schema
from dralab.testing.search import Shrinker

TRAFFIC = ObservedTraffic(
    requests=Counter(
        {
            ("op", "create", "pods"): 3,
            ("op", "update/status", "sites.example.com"): 2,
            ("op", "list", "pods"): 1,
        }
    ),
    events=Counter({("op", "pods"): 5}),
    lists=Counter({("op", "pods"): 1}),
    duration=20 * SECOND,
)


def test_a_seed_always_draws_the_same_faults():
    assert draw(7, TRAFFIC, cached_lists=["op"]) == draw(7, TRAFFIC, cached_lists=["op"])
    drawn = {tuple(draw(seed, TRAFFIC, cached_lists=["op"])) for seed in range(50)}
    assert len(drawn) > 40


def test_every_fault_is_drawn_by_some_seed_and_can_be_told():
    drawn = [each for seed in range(300) for each in draw(seed, TRAFFIC, cached_lists=["op"])]
    assert {each.fault for each in drawn} == set(FAULTS)
    assert all(str(each) for each in drawn)


def test_only_allowed_faults_are_drawn():
    drawn = [each for seed in range(50) for each in draw(seed, TRAFFIC, allowed=["kill"], most=2)]
    assert {each.fault for each in drawn} == {"kill"}


def test_a_program_that_does_nothing_has_no_faults():
    assert draw(1, ObservedTraffic()) == []


def test_lists_are_old_only_where_a_program_asks_for_cached_ones():
    drawn = [each for seed in range(200) for each in draw(seed, TRAFFIC)]
    assert "stale-list" not in {each.fault for each in drawn}


def test_only_what_exists_is_written_to_by_others():
    drawn = [e for seed in range(300) for e in draw(seed, TRAFFIC) if e.fault == "conflict"]
    assert {each.verb for each in drawn} == {"update/status"}


def test_a_fault_survives_its_json():
    for seed in range(30):
        for fault in draw(seed, TRAFFIC, cached_lists=["op"]):
            assert PlannedFault.of(fault.as_json()) == fault


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"fault": "explode"}, "fault 'explode' is unknown"),
        ({"fault": "kill", "color": "red"}, "field 'color' is unknown"),
        ({"fault": "kill", "nth": "3"}, "field 'nth' must be of type int"),
        ({}, "fault None is unknown"),
    ],
)
def test_a_fault_that_is_not_one_is_refused(given, told):
    with pytest.raises((ValueError, TypeError), match=told):
        PlannedFault.of(given)


def test_the_schema_names_the_same_faults():
    assert schema()["$defs"]["fault"]["enum"] == list(FAULTS)


def test_every_fault_has_a_drawing_and_a_section_of_the_guide():
    docs = Path(__file__).parents[2] / "docs"
    assert {path.stem for path in docs.glob("images/faults/*.svg")} == set(FAULTS)
    text = (docs / "guides/faults.md").read_text()
    assert {name for name in FAULTS if f"### {name}\n" in text} == set(FAULTS)


def test_a_plan_counts_and_fires_once():
    fault = PlannedFault(fault="refuse", program="op", verb="get", resource="pods", nth=2, code=500)
    plan = FaultPlan([fault])
    asked = [plan.at_request("op", "get", "pods") for _ in range(4)]
    assert asked == [None, fault, None, None]
    assert plan.fired == [fault]


def test_what_lasts_refuses_until_it_is_over():
    deny = PlannedFault(
        fault="deny", program="op", verb="create", resource="pods", nth=1, duration=10, code=403
    )
    plan = FaultPlan([deny])
    assert plan.refusal("op", "create", "pods", 0) is None
    plan.begin(deny, 5)
    assert plan.refusal("op", "create", "pods", 14) == deny
    assert plan.refusal("op", "update", "pods", 14) is None
    assert plan.refusal("other", "create", "pods", 14) is None
    assert plan.refusal("op", "create", "pods", 15) is None


def test_a_plan_that_has_ended_does_nothing():
    fault = PlannedFault(fault="refuse", program="op", verb="get", resource="pods", nth=1, code=500)
    plan = FaultPlan([fault])
    plan.end()
    assert plan.at_request("op", "get", "pods") is None


def numbered(*numbers, duration=0):
    return [
        PlannedFault(fault="pause", program="op", at=number, duration=duration)
        for number in numbers
    ]


@pytest.mark.parametrize("needed", [{3}, {1, 8}, {2, 5, 7}, set()])
def test_the_shortest_schedule_has_only_what_is_needed(needed):
    def fails(faults):
        return needed <= {fault.at for fault in faults}

    found = Shrinker(fails).shortest(numbered(*range(1, 10)))
    assert {fault.at for fault in found} == needed


def test_durations_become_as_short_as_the_failure_allows():
    def fails(faults):
        return bool(faults) and faults[0].duration >= 2 * SECOND

    found = Shrinker(fails).shortest(numbered(1, duration=DURATIONS[-1]))
    assert found[0].duration == 2 * SECOND


def test_the_budget_ends_the_search_for_a_shorter_schedule():
    asked = []

    def fails(faults):
        asked.append(faults)
        return len(faults) == 9

    Shrinker(fails, budget=5).shortest(numbered(*range(9)))
    assert len(asked) == 5
