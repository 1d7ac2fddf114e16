"""Every explanation is proved: by an oracle that knows nothing of how it was found."""

import json
from collections import Counter
from dataclasses import dataclass

import pytest
from hypothesis import HealthCheck, Phase, assume, given, seed, settings
from hypothesis import strategies as st

from builders import SHARED, node
from dralab.allocation import v1
from dralab.allocation.allocator import allocate
from dralab.allocation.outcome import Allocated
from dralab.allocation.pools import SliceCatalog
from dralab.allocation.selectors import CelSelectorCompiler
from dralab.explanation import questions
from dralab.explanation.codes import CODES
from dralab.explanation.conditions import Condition, conditions_of, remedies, without
from dralab.explanation.diagnose import diagnose
from dralab.explanation.questions import FleetQuestions, NodeGroup, node_groups
from dralab.explanation.text import Why
from problems import Case, TooBigError, by_cel, cases, matches, tried
from relaxing import helped, relaxed

FUZZ = SHARED / "cases" / "fuzz-cases.json"


HELPED: Counter[str] = Counter()
"""How many helps of each kind were confirmed."""


@dataclass(frozen=True, kw_only=True)
class Explanation:
    """All that is known of why claims cannot be allocated.

    `conflict` are conditions that alone are infeasible on every node, and without any one of
    which they are feasible on some node. Each of `remedies` is a set of conditions without which
    all of the claims are feasible, and which cannot be smaller. Both are empty where they could
    not be settled within the number of questions (`settled` is False then). What is in use or
    tainted is a condition on the nodes `weighed`; on the others it is taken as given.
    """

    groups: tuple[NodeGroup, ...]
    conflict: tuple[Condition, ...] = ()
    weighed: tuple[str, ...] = ()
    remedies: tuple[tuple[Condition, ...], ...] = ()
    error: str = ""
    settled: bool = True


def explain(problem, nodes):
    """Explain why no node can serve the claims of a problem; None if one can."""
    asking = FleetQuestions(problem, nodes)
    places = asking.places[: questions.MOST_GROUPS]
    first = asking.everywhere()
    if first is True:
        return None
    groups = node_groups(asking)
    if first is None:
        return Explanation(groups=groups, settled=False)
    core, weighed = asking.conflict()
    conditions = conditions_of(problem, [place.view for place in places])
    found = remedies(conditions, lambda dropped: asking.among(dropped, places))
    return Explanation(
        groups=groups,
        conflict=core or (),
        weighed=tuple(place.view.node.name for place in weighed),
        remedies=found,
        error=asking.error,
        settled=bool(core) and bool(found) and not asking.unsettled,
    )


def feasible(case, dropped=(), matches_=matches, limit=20_000):
    return tried(relaxed(case, dropped), limit=limit, matches_=matches_).solution is not None


def prove(case, problem, matches_=matches):
    """Check the whole explanation of an infeasible case; returns it."""
    here = v1.node(case.node)
    found = explain(problem, [here])
    assert found is not None
    assert found.settled
    view = SliceCatalog(problem.slices).view(here, problem.features)
    everything = conditions_of(problem, [view])

    def without_(*dropped):
        return feasible(case, dropped, matches_)

    # (a) the conflict alone is infeasible, and no part of it can be left out
    core = set(found.conflict)
    assert core
    assert not without_(*(item for item in everything if item not in core))
    for part in core:
        assert without_(*(item for item in everything if item not in core or item == part)), part
    # (b) each remedy makes the whole feasible, and no part of it alone does
    assert found.remedies
    for remedy in found.remedies:
        assert without_(*remedy)
        for part in remedy:
            assert not without_(*(item for item in remedy if item != part))
    every_help_works(case, told(problem, here), matches_)
    return found


def every_help_works(case, cause, matches_):
    """Change the objects as each help says, and let the oracle look for devices."""
    for found in cause.helps:
        if found.now:
            for changed in helped(case, found):
                assert feasible(changed, matches_=matches_), found
            HELPED[found.kind] += 1


def told(problem, here):
    """Check that there is a cause, and that it is told in full and in short; returns it."""
    cause = diagnose(problem, [here])
    assert cause is not None
    assert cause.code in CODES
    assert len(Why(diagnosis=cause).brief().encode()) <= 1024
    assert cause.code in Why(diagnosis=cause).page().splitlines()[0]
    return cause


@pytest.mark.thorough
@pytest.mark.parametrize("examples", [45, pytest.param(180, marks=pytest.mark.conformance)])
def test_every_no_of_the_generator_is_proved(examples):
    seen: Counter[str] = Counter()

    @seed(7)
    @settings(
        max_examples=examples, deadline=None, database=None, phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )  # fmt: skip
    @given(cases())
    def look(case):
        try:
            if tried(case, limit=3000).solution is not None:
                assert explain(case.problem(), [v1.node(case.node)]) is None
                return
            found = prove(case, case.problem())
        except TooBigError:
            assume(False)
        seen["no"] += 1
        seen.update({item.kind for item in found.conflict})
        seen.update({f"drop {item.kind}" for remedy in found.remedies for item in remedy})

    look()
    assert seen["no"] > examples / 3
    if examples < 180:
        return  # too few for every kind to be among them
    for kind in ("wait", "count", "value", "drop", "several", "add"):
        assert HELPED[kind], (kind, HELPED)
    for kind in ("held", "taint", "count", "capacity", "constraint", "selector", "request"):
        assert seen[kind], (kind, seen)
        assert seen[f"drop {kind}"], (kind, seen)


@st.composite
def clusters(draw):
    """Claims that two or three different nodes could serve: one case for each node."""
    first = draw(cases())
    made = [first]
    for number in range(draw(st.integers(1, 2))):
        other = draw(cases())
        made.append(Case(claims=first.claims, slices=other.slices, others=other.others))
        made[-1].node = node(f"node-{number + 2}")
    for number, case in enumerate(made):
        _moved(case, f"node-{number + 1}", f"p{number}")
    return made


def _moved(case, node_name, pool_name):
    """Give a case a node and pools of its own."""
    for item in case.slices:
        spec = item["spec"]
        for name in ("allNodes", "perDeviceNodeSelection"):
            spec.pop(name, None)
        for made in spec.get("devices", ()):
            for name in ("nodeName", "allNodes"):
                made.pop(name, None)
        spec["nodeName"] = node_name
        spec["pool"] = spec["pool"] | {"name": pool_name}
    for other in case.others:
        for result in other["status"]["allocation"]["devices"]["results"]:
            result["pool"] = pool_name


@pytest.mark.thorough
@pytest.mark.parametrize("examples", [24, pytest.param(80, marks=pytest.mark.conformance)])
def test_a_no_of_several_nodes_is_proved_for_all_of_them(monkeypatch, examples):
    # One node at a time is looked at, so that every other has to join when it matters.
    monkeypatch.setattr("dralab.explanation.questions.MOST_GROUPS", 1)
    seen: Counter[str] = Counter()

    @seed(11)
    @settings(
        max_examples=examples, deadline=None, database=None, phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )  # fmt: skip
    @given(clusters())
    def look(several):
        whole = Case(
            claims=several[0].claims,
            slices=[item for case in several for item in case.slices],
            others=[item for case in several for item in case.others],
        )
        problem = whole.problem()
        nodes = [v1.node(case.node) for case in several]
        try:
            if any(tried(case, limit=2000).solution is not None for case in several):
                assert explain(problem, nodes) is None
                return
            found = explain(problem, nodes)
            assert found is not None
            assert found.conflict
            catalog = SliceCatalog(problem.slices)
            views = [
                catalog.view(item, problem.features) for item in nodes if item.name in found.weighed
            ]
            everything = conditions_of(problem, views)

            def somewhere(dropped):
                return any(feasible(case, dropped, limit=2000) for case in several)

            core = set(found.conflict)
            rest = [item for item in everything if item not in core]
            assert not somewhere(rest)
            for part in core:
                assert somewhere([*rest, part])
            for remedy in found.remedies:
                assert somewhere(remedy)
        except TooBigError:
            assume(False)
        seen["no"] += 1
        seen["several"] += len(found.groups) > 1

    look()
    assert seen["no"] > examples / 4
    assert seen["several"] > examples / 8


@pytest.mark.thorough
@pytest.mark.skipif(not FUZZ.exists(), reason="the case files are not beside the project")
@pytest.mark.parametrize("every", [5, pytest.param(1, marks=pytest.mark.conformance)])
def test_every_no_of_the_fuzz_cases_is_proved(every):
    proved = 0
    for item in json.loads(FUZZ.read_text())[::every]:
        if item["expectFeasible"]:
            continue
        case = Case(
            claims=item["claims"],
            slices=item["slices"],
            classes=item["classes"],
            node=item["node"],
            others=_holding(item["allocatedDevices"]),
            gates=frozenset(item["features"]),
        )
        try:
            prove(case, case.problem(CelSelectorCompiler()), by_cel)
        except TooBigError:
            continue
        proved += 1
    assert proved > 50 // every


def _holding(devices):
    results = [{"request": "r"} | item for item in devices]
    status = {"allocation": {"devices": {"results": results}}}
    return [{"metadata": {"name": "other"}, "status": status}] if results else []


BROKEN = 'device.attributes[device.driver].kind == "x"'
"""Has no answer for a device without the attribute, which aborts the whole allocation."""


@pytest.mark.thorough
@pytest.mark.parametrize("examples", [50, pytest.param(150, marks=pytest.mark.conformance)])
def test_conflicts_and_remedies_hold_where_selectors_fail(examples):
    """Errors depend on what the search looks at: the allocator itself is asked again."""
    seen: Counter[str] = Counter()

    @seed(5)
    @settings(
        max_examples=examples, deadline=None, database=None, phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )  # fmt: skip
    @given(cases(), st.integers(0, 2))
    def look(case, at):
        requests = case.claims[0]["spec"]["devices"]["requests"]
        request = requests[at % len(requests)]
        asked = request.get("exactly") or request["firstAvailable"][0]
        asked.setdefault("selectors", []).insert(0, {"cel": {"expression": BROKEN}})
        problem, here = case.problem(CelSelectorCompiler()), v1.node(case.node)
        found = explain(problem, [here])
        if found is None:
            return
        assert found.settled
        everything = conditions_of(
            problem, [SliceCatalog(problem.slices).view(here, problem.features)]
        )

        def fits(dropped):
            return isinstance(allocate(without(problem, dropped), here), Allocated)

        core = set(found.conflict)
        rest = [item for item in everything if item not in core]
        assert not fits(rest)
        assert all(fits([*rest, part]) for part in core)
        for remedy in found.remedies:
            assert fits(remedy)
            assert not any(fits([item for item in remedy if item != part]) for part in remedy)
        seen["no"] += 1
        seen["error"] += "CEL runtime error" in found.error
        told(problem, here)

    look()
    assert seen["no"] > 30
    assert seen["error"] > 10
