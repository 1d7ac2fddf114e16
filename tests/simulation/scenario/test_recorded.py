"""Recordings replayed: the same pods at the same times on the same nodes, or the reason why not."""

from dataclasses import replace

import orjson
import pytest

import dralab
from builders import pod as pod_object
from builders import worker
from dralab.api.snapshots.anonymous import keyed
from dralab.api.snapshots.recordings import RecordedState, head, name_of, seen
from dralab.scenarios.errors import InputError
from dralab.simulation import dispatch
from dralab.simulation.fidelity import CAUSES, result_of, with_nodes
from dralab.simulation.scenario import scenario as scenarios
from dralab.simulation.scenario.recorded import history_of
from recordedruns import ABOUT, S, recorded, replayed
from scenarios_in_both import scenario_of

ENGINES = ("dralab", "dralab-fast")
# Without preemption: there, what a controller makes anew within one instant comes first.
CALM = (1, 9, 24)
CALM_TOO = [pytest.param(seed, marks=pytest.mark.conformance) for seed in (2, 5, 13, 16)]
PREEMPTING = (3, 12)
PREEMPTING_TOO = [pytest.param(seed, marks=pytest.mark.conformance) for seed in (4, 7, 14)]


def small(**more):
    return {
        "fleet": {"nodes": [{"name": "n", "count": 2, "cpu": 4, "gpus": 2, "model": "a"}]},
        "workload": {
            "pods": [{"name": "p", "count": 6, "cpu": 2, "duration": "100s", "every": "10s"}]
        },
        "stop": {"at": "400s"},
    } | more


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("late", [0, 35])
def test_a_recorded_run_is_replayed_exactly(tmp_path, engine, late):
    result, week = recorded(tmp_path, small(lifecycle={"start": "3s"}), late=late)
    again, found = replayed(week, engine)
    assert found.differences == []
    assert found.pods == found.placed == found.same_node == 6
    ends = {task.id: task.ended - late * S for task in result.tasks}
    assert {task.id: task.ended for task in again.tasks} == pytest.approx(ends, abs=S)


@pytest.mark.thorough
@pytest.mark.parametrize("seed", [*CALM, *CALM_TOO])
@pytest.mark.parametrize("late", [0, 100])
def test_random_scenarios_are_replayed_exactly_by_both_engines(tmp_path, seed, late):
    text, fleet, pods = scenario_of(seed)
    _, week = recorded(tmp_path, text, late=late, fleet=fleet, pods=pods)
    for engine in ENGINES:
        _, found = replayed(week, engine)
        assert found.differences == [], engine
        assert found.placed > 10


@pytest.mark.thorough
@pytest.mark.parametrize("seed", [*PREEMPTING, *PREEMPTING_TOO])
def test_where_pods_preempt_every_difference_has_a_cause(tmp_path, seed):
    text, fleet, pods = scenario_of(seed)
    _, week = recorded(tmp_path, text, late=100, fleet=fleet, pods=pods)
    for engine in ENGINES:
        _, found = replayed(week, engine)
        assert {each.cause for each in found.differences} <= set(CAUSES)
        assert found.same_node > found.placed / 3


# --- histories written by hand ------------------------------------------------------------------


class Written:
    """A recording, line by line; times are seconds."""

    def __init__(self, path):
        self.path, self.state, self.lines = path, RecordedState(), [head(ABOUT)]
        self.begin = 1_800_000_000 * S

    def put(self, when, obj, *, gone=False, listed=False):
        line = self.state.line(
            self.begin + int(when * S), name_of(obj), None if gone else obj, listed=listed
        )
        self.lines.append(line)

    def done(self, when):
        self.path.write_bytes(b"".join([*self.lines, seen(self.begin + int(when * S))]))
        return self.path


@pytest.fixture
def week(tmp_path):
    made = Written(tmp_path / "week.dralab")
    made.put(0, node("a"), listed=True)
    return made


def node(name, cpu="4", **spec):
    found = {"apiVersion": "v1", **worker(name)}
    amounts = {"cpu": cpu, "memory": "8Gi", "pods": "10"}
    return found | {"spec": spec, "status": {"allocatable": amounts, "capacity": amounts}}


def pod(name, *, cpu="2", uid=None, node="", phase="Pending", gates=(), conditions=(), **more):
    found = {"apiVersion": "v1", **pod_object(name)}
    found["metadata"] |= {"namespace": "default", "uid": uid or f"uid-{name}",
                          "creationTimestamp": "2027-01-15T08:00:00Z"}  # fmt: skip
    resources = {"requests": {"cpu": cpu}}
    found["spec"] = {"containers": [{"name": "c", "resources": resources}], "priority": 0, **more}
    if node:
        found["spec"]["nodeName"] = node
        conditions = (*conditions, {"type": "PodScheduled", "status": "True"})
    if gates:
        found["spec"]["schedulingGates"] = [{"name": each} for each in gates]
    found["status"] = {"phase": phase, "conditions": list(conditions)}
    return found


def life(week, name, made, bound, started, ended, *, at="a", **more):
    week.put(made, pod(name, **more))
    week.put(bound, pod(name, node=at, **more))
    week.put(started, pod(name, node=at, phase="Running", **more))
    week.put(ended, pod(name, node=at, phase="Succeeded", **more))


def times(task):
    return tuple(None if each is None else each / S for each in (
        task.submitted, task.bound, task.started, task.ended))  # fmt: skip


@pytest.mark.parametrize("engine", ENGINES)
def test_a_pod_starts_and_ends_as_long_after_its_binding_as_it_did(week, engine):
    life(week, "p", 1, 1.5, 7, 27)
    result, found = replayed(week.done(60), engine)
    (task,) = result.tasks
    assert times(task) == (1, 1, 6.5, 26.5)
    assert times(result_of(history_of(week.path)).tasks[0]) == (1, 1.5, 7, 27)
    assert (found.near, found.delays) == (1, [-S // 2])


@pytest.mark.parametrize("engine", ENGINES)
def test_a_gated_pod_waits_for_its_gates(week, engine):
    week.put(1, pod("p", gates=["x/y"]))
    week.put(20, pod("p"))
    week.put(20.1, pod("p", node="a"))
    week.put(1, pod("never", gates=["x/y"]))
    result, found = replayed(week.done(60), engine)
    assert {task.id: task.bound for task in result.tasks} == {"p": 20 * S, "never": None}
    assert (found.near, found.waited) == (1, 1)


@pytest.mark.parametrize("engine", ENGINES)
def test_a_pod_deleted_while_it_waited_is_deleted_again(week, engine):
    week.put(1, pod("big", cpu="64"))
    week.put(30, pod("big", cpu="64"), gone=True)
    life(week, "p", 31, 31, 31, 40)
    result, _ = replayed(week.done(60), engine)
    (big,) = [task for task in result.tasks if task.id == "big"]
    assert (big.state, big.ended, big.reason) == ("Failed", 30 * S, "deleted while it waited")


@pytest.mark.parametrize("engine", ENGINES)
def test_a_pod_that_was_made_anew_is_another_one(week, engine):
    for number, start in enumerate((1, 20)):
        week.put(start, pod("web-0", uid=f"u{number}"))
        week.put(start, pod("web-0", uid=f"u{number}", node="a"))
        week.put(start + 9, pod("web-0", uid=f"u{number}", node="a"), gone=True)
    result, found = replayed(week.done(60), engine)
    assert {task.id: task.ended for task in result.tasks} == {"web-0": 10 * S, "web-0-2": 29 * S}
    assert found.near == 2


@pytest.mark.parametrize("engine", ENGINES)
def test_what_there_was_at_first_may_be_in_any_namespace(week, engine):
    spec = {"spec": {"devices": {"requests": []}}}
    week.put(0, {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaimTemplate", "spec": spec,
                 "metadata": {"name": "t", "namespace": "ml", "uid": "t"}}, listed=True)  # fmt: skip
    life(week, "p", 10, 10, 20, 50)
    result, _ = replayed(week.done(60), engine)
    assert [task.state for task in result.tasks] == ["Succeeded"]


@pytest.mark.parametrize("engine", ENGINES)
def test_nodes_come_change_and_go(week, engine):
    week.put(1, pod("first", cpu="3"))
    week.put(1, pod("first", cpu="3", node="a"))
    week.put(2, pod("second", cpu="3"))
    week.put(10, node("b"))
    week.put(10.2, pod("second", cpu="3", node="b"))
    week.put(15, node("b", unschedulable=True))
    week.put(16, pod("third", cpu="1"))
    week.put(16.1, pod("third", cpu="1", node="a"))
    week.put(
        20, node("b", taints=[{"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"}])
    )
    week.put(21, pod("fourth", cpu="1"))
    week.put(30, pod("second", cpu="3", node="b"), gone=True)
    week.put(30, node("b"), gone=True)
    result, found = replayed(week.done(60), engine)
    nodes = {task.id: [result.lanes[lane] for lane in task.lanes] for task in result.tasks}
    assert nodes == {"first": ["a"], "second": ["b"], "third": ["a"], "fourth": []}
    assert {task.id: task.bound and task.bound / S for task in result.tasks} == {
        "first": 1, "second": 10, "third": 16, "fourth": None,
    }  # fmt: skip
    assert found.waited == 1
    assert found.differences == []


@pytest.mark.parametrize("engine", ENGINES)
def test_what_ran_at_first_keeps_its_node_for_as_long_as_it_did(week, engine):
    week.put(0, pod("old", cpu="3", node="a", phase="Running"), listed=True)
    week.put(0, pod("waits", cpu="3"), listed=True)
    week.put(25, pod("old", cpu="3", node="a", phase="Succeeded"))
    week.put(25.5, pod("waits", cpu="3", node="a"))
    result, found = replayed(week.done(60), engine)
    assert {task.id: (task.bound, task.ended) for task in result.tasks} == {
        "old": (0, 25 * S),
        "waits": (25 * S, None),
    }
    assert found.near == 2


@pytest.mark.parametrize("engine", ENGINES)
def test_a_pod_whose_node_was_gone_at_first_is_placed_anew(week, engine):
    week.put(0, pod("old", node="lost", phase="Running"), listed=True)
    result, _ = replayed(week.done(60), engine)
    assert [(task.id, task.bound, task.lanes) for task in result.tasks] == [("old", 0, (0,))]


def test_what_was_found_after_a_gap_has_the_times_of_its_conditions(week):
    week.put(1, pod("p"))
    told = {"type": "PodScheduled", "status": "True", "lastTransitionTime": "2027-01-15T08:00:40Z"}
    week.put(100, pod("p", conditions=[told]) | {"spec": pod("p")["spec"] | {"nodeName": "a"}},
             listed=True)  # fmt: skip
    (task,) = result_of(history_of(week.done(120))).tasks
    assert times(task)[:2] == (1, 40)


@pytest.mark.parametrize(
    ("change", "cause"),
    [
        ({"schedulerName": "volcano"}, "another scheduler"),
        ({"conditions": [{"type": "DisruptionTarget", "status": "True", "reason": "PreemptionByScheduler"}]},
         "disrupted"),
        ({}, "unknown"),
    ],
)  # fmt: skip
def test_a_difference_has_its_reason(week, change, cause):
    week.put(0, node("b", cpu="64"), listed=True)
    life(week, "p", 1, 1, 1, 20, cpu="4", **change)
    _, found = replayed(week.done(60))
    (one,) = found.differences
    assert (one.recorded_node, one.replayed_node, one.cause) == ("a", "b", cause)


def test_a_difference_follows_from_an_earlier_one(week):
    week.put(0, node("b", cpu="5"), listed=True)
    for when, name, place in ((1, "p", "a"), (2, "q", "b")):
        week.put(when, pod(name, cpu="4"))
        week.put(when, pod(name, cpu="4", node=place, phase="Running"))
    _, found = replayed(week.done(60))
    assert [(each.name, each.cause, each.detail) for each in found.differences] == [
        ("p", "unknown", ""),
        ("q", "follows", "p"),
    ]


def test_more_nodes_take_what_waited(week):
    week.put(1, pod("big", cpu="4"))
    week.put(1, pod("big", cpu="4", node="a"))
    week.put(2, pod("waits", cpu="4"))
    path = week.done(60)
    _, found = replayed(path)
    assert found.waited == 1
    same = scenarios.load(path, scheduler="dralab-fast")
    more = replace(same, fleet=with_nodes(same.fleet, [("a", 1)]))
    result = dispatch.begin(more).go()
    assert {task.id: task.bound for task in result.tasks} == {"big": S, "waits": 2 * S}


def test_the_workload_of_a_recording_runs_on_another_fleet(week, tmp_path):
    week.put(0, pod("old", cpu="3", node="a", phase="Running"), listed=True)
    life(week, "p", 1, 1, 1, 20, cpu="3")
    week.done(60)
    path = tmp_path / "s.yaml"
    path.write_text(
        "fleet: {nodes: [{name: x, cpu: 16}]}\nworkload: {recording: week.dralab}\n"
        "scheduler: dralab-fast\n"
    )
    result = dispatch.begin(scenarios.load(path)).go()
    assert {task.id: task.bound for task in result.tasks} == {"old": 0, "p": S}


def test_a_file_that_is_damaged_is_named(week):
    week.lines.append(orjson.dumps({"at": "never", "object": {}}) + b"\n")
    week.done(1)
    with pytest.raises(InputError, match=r"week\.dralab: line 3"):
        history_of(week.path)


@pytest.mark.parametrize(
    "odd",
    [
        {"spec": {"containers": 3}},
        {"spec": {"containers": [{"resources": {"requests": {"cpu": "much"}}}]}},
        {"status": {"conditions": "none"}},
        {"metadata": {"name": "p", "namespace": "default", "creationTimestamp": "then"}},
    ],
)
def test_a_field_of_the_wrong_kind_is_told(week, odd):
    week.put(0, pod("p") | odd, listed=True)
    week.put(1, pod("q"))
    with pytest.raises(InputError, match=r"week\.dralab"):
        scenarios.load(week.done(2))


def test_what_is_asked_about_a_recording_names_its_wrong_fields(week):
    week.put(0, pod("p", phase={}), listed=True)
    with pytest.raises(dralab.BadInput, match=r"week.*Pod default/p: status.phase: .* a string"):
        dralab.open(week.done(2))


@pytest.mark.parametrize("scheduler", ["external", "ticks", "easy"])
def test_who_cannot_replay_a_recording_says_so(week, scheduler):
    life(week, "p", 1, 1, 1, 20)
    with pytest.raises(InputError, match=f"{scheduler} replays no recording"):
        scenarios.load(week.done(60), scheduler=scheduler)


def test_an_anonymous_recording_is_replayed_too(tmp_path):
    _, week = recorded(tmp_path, small(), rename=keyed(b"k" * 32))
    _, found = replayed(week)
    assert found.pods == found.placed == 6
    assert b'"n-0"' not in week.read_bytes()
