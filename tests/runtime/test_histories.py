"""Recordings made of audit logs and of snapshots."""

import json

import orjson
import pytest
from click.testing import CliRunner

from builders import pod, worker
from dralab.api.snapshots.files import written
from dralab.api.snapshots.kept_fields import kept
from dralab.api.snapshots.recordings import Recording
from dralab.cli.main import main
from dralab.lab.runs import simulate
from dralab.runtime.histories import AuditLog
from dralab.runtime.resources import NODES, PODS
from dralab.simulation.fidelity import result_of
from dralab.simulation.scenario.recorded import history_of
from processes import Processes
from waiting import until

S = 10**9
POLICY = """
apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules: [{level: RequestResponse}]
"""


def run(*arguments):
    return CliRunner().invoke(main, list(map(str, arguments)))


def event(second, verb, obj, *, part="", level="RequestResponse", code=200, **more):
    kind, metadata = obj["kind"], obj["metadata"]
    about = {"resource": f"{kind.lower()}s", "name": metadata["name"], "apiVersion": "v1",
             "namespace": metadata.get("namespace", ""), "subresource": part}  # fmt: skip
    found = {
        "apiVersion": "audit.k8s.io/v1", "kind": "Event", "level": level, "verb": verb,
        "stage": "ResponseComplete", "objectRef": about, "responseStatus": {"code": code},
        "stageTimestamp": f"2026-11-02T08:00:{second:09.6f}Z",
    }  # fmt: skip
    if level == "RequestResponse":
        found["responseObject"] = obj
    return orjson.dumps(found | more)


def a_pod(**status):
    found = {"apiVersion": "v1", **pod("p")}
    found["metadata"] |= {"namespace": "default", "uid": "u"}
    return found | {"status": status or {"phase": "Pending"}}


def a_node():
    return {"apiVersion": "v1", **worker("a")}


def placed(**status):
    found = a_pod(**status)
    return found | {"spec": {**found["spec"], "nodeName": "a"}}


LOG = [
    event(1, "patch", a_node(), part="status"),
    event(2, "create", a_pod()),
    event(3, "create", a_pod(), part="binding", level="Request",
          requestObject={"target": {"kind": "Node", "name": "a"}}),
    event(5, "patch", placed(phase="Running"), part="status"),
    event(9, "patch", placed(phase="Succeeded"), part="status"),
    event(10, "delete", a_pod() | {"metadata": {**a_pod()["metadata"], "deletionTimestamp": "x",
                                                "deletionGracePeriodSeconds": 0}}),
]  # fmt: skip


@pytest.fixture
def log(tmp_path):
    def write(events):
        path = tmp_path / "audit.log"
        path.write_bytes(b"\n".join(events) + b"\n")
        return path

    return write


def test_the_writes_of_an_audit_log_are_a_recording(log, tmp_path):
    week = tmp_path / "week.dralab"
    result = run("record", "-f", log(LOG), "--write", week)
    assert result.exit_code == 0, result.output
    (task,) = result_of(history_of(week)).tasks
    times = (task.submitted, task.bound, task.started, task.ended)
    assert [each / S for each in times] == [1, 2, 4, 8]
    first = next(iter(Recording.open(week)))
    assert (first.of.name, first.listed) == ("a", True)
    assert run("replay", week).exit_code == 0


@pytest.mark.parametrize(
    ("odd", "told"),
    [
        (event(4, "patch", a_pod(), level="Metadata"), "patch of pods at level Metadata"),
        (event(4, "deletecollection", a_pod()), "deletecollection of pods"),
    ],
)
def test_what_a_log_does_not_have_is_counted(odd, told):
    assert dict(AuditLog([*LOG, odd]).missing) == {told: 1}


@pytest.mark.parametrize(
    "odd",
    [
        event(4, "create", a_pod(), code=409),
        event(4, "get", a_pod()),
        event(4, "create", a_pod(), part="eviction"),
        event(4, "create", {"kind": "Secret", "metadata": {"name": "s"}}),
    ],
)
def test_what_changes_nothing_is_not_counted(odd):
    log = AuditLog([odd, *LOG])
    assert not log.missing


def test_a_pod_that_ends_in_peace_is_there_until_it_is_gone(log, tmp_path):
    leaving = placed(phase="Running")
    leaving["metadata"] |= {"deletionTimestamp": "x", "deletionGracePeriodSeconds": 30}
    week = tmp_path / "week.dralab"
    run("record", "-f", log([*LOG[:4], event(6, "delete", leaving), event(8, "delete", LOG and
        a_pod(), responseObject={"kind": "Status"})]), "--write", week)  # fmt: skip
    (task,) = result_of(history_of(week)).tasks
    assert task.ended == 7 * S


def test_a_damaged_log_names_its_line(log, tmp_path):
    result = run("record", "-f", log([*LOG, b"{"]), "--write", tmp_path / "w")
    assert result.exit_code == 2
    assert "line 7" in result.stderr
    assert not (tmp_path / "w").exists()


def test_a_series_of_snapshots_is_a_recording(tmp_path):
    def snapshot(name, *objects):
        path = tmp_path / name
        path.write_bytes(written([kept(each) for each in objects]))
        return path

    def at(obj, made, phase="", since=""):
        found = obj | {"metadata": {**obj["metadata"], "creationTimestamp": made}}
        told = [{"type": "PodScheduled", "status": "True", "lastTransitionTime": since}]
        return found | ({"status": {"phase": phase, "conditions": told}} if phase else {})

    node = at(a_node(), "2026-11-02T07:00:00Z")
    early = at(placed(), "2026-11-02T08:00:00Z", "Running", "2026-11-02T08:00:00Z")
    late = at(placed(), "2026-11-02T09:00:00Z", "Running", "2026-11-02T09:10:00Z")
    late["metadata"] |= {"name": "q", "uid": "uq"}
    week = tmp_path / "week.dralab"
    files = snapshot("b", node, late), snapshot("a", node, early)
    result = run("record", "-f", files[0], "-f", files[1], "--write", week)
    assert result.exit_code == 0, result.output
    tasks = {task.id: task for task in result_of(history_of(week)).tasks}
    assert tasks["q"].submitted == 3600 * S
    assert tasks["q"].bound == 4200 * S
    assert tasks["p"].ended == 4200 * S


# --- traces of SimKube --------------------------------------------------------------------------


def owner(kind, name, version="apps/v1", **spec):
    container = {"name": "c", "resources": {"requests": {"cpu": "2"}}}
    template = {"metadata": {"labels": {"app": name}}, "spec": {"containers": [container]}}
    if kind == "CronJob":
        spec["jobTemplate"] = {"spec": {"template": template}}
    elif kind == "Pod":
        spec = template["spec"]
    else:
        spec["template"] = template
    metadata = {"name": name, "namespace": "ml"}
    return {"apiVersion": version, "kind": kind, "metadata": metadata, "spec": spec}


def applied(when, *objects, deleted=()):
    return {
        "ts": 1_800_000_000 + when,
        "applied_objs": list(objects),
        "deleted_objs": list(deleted),
    }


@pytest.fixture
def replay_of(tmp_path):
    """Record a trace, and replay it on a node of 4 CPUs; return the pods, and what was told."""
    msgpack = pytest.importorskip("msgpack", reason="the extra simkube is not installed")
    nodes, week = tmp_path / "nodes.yaml", tmp_path / "week.dralab"
    amounts = {"cpu": "4", "memory": "8Gi", "pods": "10"}
    nodes.write_text(json.dumps(a_node() | {"status": {"allocatable": amounts}}))

    def replay(*events, lives=None, version=2):
        trace = tmp_path / "week.sktrace"
        tracked = {"apps/v1.Deployment": {}, "batch/v1.CronJob": {"trackLifecycle": True}}
        content = {"version": version, "config": {"trackedObjects": tracked}, "events": events,
                   "index": {}, "pod_lifecycles": lives or {}}  # fmt: skip
        trace.write_bytes(msgpack.packb(content))
        made = run("record", "-f", trace, "-f", nodes, "--write", week)
        if made.exit_code:
            return [], made.stderr
        result = run("replay", week, "--write", tmp_path / "out")
        assert result.exit_code == 0, result.output
        tasks = simulate(week).tasks.rows
        return tasks, made.stderr + result.stdout

    return replay


def times(tasks):
    """The times of pods in seconds, by name: arrival, start, end."""
    return {
        task[0].removeprefix("ml/"): tuple(task[at] and float(task[at]) for at in (3, 5, 6))
        for task in tasks
    }


def test_replicas_of_simkube_are_there_from_their_change_to_the_next(replay_of):
    tasks, told = replay_of(
        applied(0, owner("Deployment", "web", replicas=1)),
        applied(50, owner("Deployment", "web", replicas=2)),
        applied(80, owner("Deployment", "web", replicas=1)),
        applied(100, deleted=[owner("Deployment", "web")]),
    )
    assert times(tasks) == {"web-0": (0, 0, 100), "web-1": (50, 50, 80)}
    assert "2 pods ran on nodes that the recording does not tell" in told


def test_pods_whose_lives_simkube_knows_run_as_long_as_they_ran(replay_of):
    begin = 1_800_000_000
    lives = {("batch/v1.CronJob", "ml/each"): {7: [
        {"Finished": [begin + 10, begin + 40]},
        {"Finished": [begin + 10, begin + 40]},
        {"Finished": [begin + 20, begin + 40]},
        {"Running": begin + 60},
        "Empty",
    ]}}  # fmt: skip
    tasks, _ = replay_of(applied(0, owner("CronJob", "each", "batch/v1")), applied(90), lives=lives)
    # The third finds no room: a replay knows no end but as long as it ran.
    assert times(tasks) == {
        "each-0": (10, 10, 40), "each-1": (10, 10, 40), "each-2": (20, 40, 60),
        "each-3": (60, 60, None),
    }  # fmt: skip


def test_what_a_trace_of_simkube_does_not_know_is_told(replay_of):
    _, told = replay_of(applied(0, owner("CronJob", "each", "batch/v1"), owner("Pod", "p", "v1")))
    assert "not in the trace: the pods of 1 times a batch/v1.CronJob" in told


@pytest.mark.parametrize(
    ("events", "version", "problem"),
    [
        ([], 2, "is not a trace of SimKube"),
        ([{"ts": 1}], 2, "is not a trace of SimKube"),
        ([applied(0)], 1, "version 1 is not known, only 2"),
        ([applied(0, owner("Deployment", "web", replicas=10**9))], 2, "has 1000000000 replicas"),
    ],
)
def test_a_trace_of_simkube_that_cannot_be_read_is_refused(replay_of, events, version, problem):
    tasks, told = replay_of(*events, version=version)
    assert tasks == []
    assert problem in told


@pytest.mark.thorough
def test_the_log_of_a_server_is_a_recording(tmp_path):
    policy, path, week = (tmp_path / name for name in ("policy.yaml", "audit.log", "week.dralab"))
    policy.write_text(POLICY)
    lab = Processes("--audit-policy-file", policy, "--audit-log-path", path, "--nodes", "1",
                    "--without", "scheduler,controllers")  # fmt: skip
    try:
        lab.client.create(NODES, worker("a"))
        lab.client.create(PODS, {"metadata": {"name": "p"}, "spec": {"containers": [
            {"name": "c", "image": "x"}]}}, "default")  # fmt: skip
        body = {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": "p"},
                "target": {"kind": "Node", "name": "a"}}  # fmt: skip
        lab.client.post(PODS, "p", "binding", body, "default")
        for phase in ("Running", "Succeeded"):
            lab.client.patch(PODS, "p", {"status": {"phase": phase}}, "default",
                             subresource="status")  # fmt: skip
        until(lambda: b"Succeeded" in path.read_bytes() or None)
    finally:
        lab.kill("up")
        lab.place.cleanup()
    result = run("record", "-f", path, "--write", week)
    assert result.exit_code == 0, result.output
    (task,) = result_of(history_of(week)).tasks
    assert (task.id, task.state) == ("p", "Succeeded")
    found = json.loads(run("replay", week, "-o", "json").stdout)["fidelity"]
    # Nobody took the taint away that new nodes have, and this test is no scheduler.
    assert found["causes"] == {"its node was tainted": 1}
