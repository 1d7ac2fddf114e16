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


def test_a_trace_of_simkube_is_refused_with_a_reason(tmp_path):
    trace = tmp_path / "week.sktrace"
    trace.write_bytes(b"\x85\xa7version\x02\xa6config\x80")
    result = run("record", "-f", trace, "--write", tmp_path / "w")
    assert result.exit_code == 2
    assert "neither nodes nor which pod ran where" in result.stderr


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
