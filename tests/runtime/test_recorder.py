"""Recordings of clusters: what is written, continued after an end of any kind, and bounded."""

import errno
import stat

import orjson
import pytest

from builders import claim, device, device_class, pod, pool, request, worker
from dralab.api.snapshots.anonymous import keyed
from dralab.api.snapshots.errors import SnapshotError
from dralab.api.snapshots.recordings import Recording, head
from dralab.components.simulated import SimulatedCluster
from dralab.kernel.clock import rfc3339_micro
from dralab.runtime.recorder import ClusterRecorder, RecordingFile, role
from dralab.runtime.resources import CLAIMS, CLASSES, CLUSTER_ROLES, NODES, PODS, SLICES, Resource
from guardedlab import Guarded

RBAC = "rbac.authorization.k8s.io"
CLUSTER_ROLE_BINDINGS = Resource(RBAC, "v1", "clusterrolebindings", namespaced=False)
ABOUT = {"anonymized": False, "of": "https://a.example"}


@pytest.fixture
def cluster():
    made = SimulatedCluster()
    made.client.create(NODES, worker("node-1"))
    made.client.create(CLASSES, device_class("gpu"))
    for each in pool("gpus", device("d0"), node="node-1"):
        made.client.create(SLICES, each)
    made.settle()
    return made


@pytest.fixture
def record(cluster, tmp_path):
    """Record a cluster into a file until it is stopped, or no longer."""
    path = tmp_path / "week.dralab"
    made = []

    def begin(**options):
        file = RecordingFile(path, options.pop("about", ABOUT), options.pop("rename", lambda x: x))
        bounds = {"rate": 1000, "most": 1 << 30, "full": lambda: None} | options
        made.append(ClusterRecorder(cluster.engine, cluster.client, file, **bounds))
        made[-1].start()
        cluster.settle()
        return made[-1]

    begin.path = path
    return begin


def stop(recorder):
    recorder.stop()
    recorder.file.close()


def run_one(cluster, name="train"):
    cluster.client.create(CLAIMS, claim("c", request("r0", "gpu")), "default")
    cluster.client.create(PODS, pod(name, claims={"gpu": "c"}), "default")
    cluster.wait(5)


def lines(path):
    return [orjson.loads(line) for line in path.read_bytes().splitlines()]


def final(path):
    recording = Recording.open(path)
    changes = list(recording)
    return recording.state.objects, changes


def test_what_there_is_is_listed_and_what_happens_is_seen(cluster, record):
    recorder = record()
    run_one(cluster)
    stop(recorder)
    first, *rest = lines(record.path)
    assert first == {"apiVersion": "dralab.dev/v1", "kind": "ClusterRecording", "metadata": ABOUT}
    listed = [each["object"]["kind"] for each in rest if each.get("listed")]
    assert listed[:3] == ["Node", "ResourceSlice", "DeviceClass"]
    assert set(listed[3:]) == {"PriorityClass"}
    (bound,) = [
        each for each in rest if each.get("patch", {}).get("spec", {}).get("nodeName") == "node-1"
    ]
    assert bound["of"] == ["Pod", "default", "train"]
    assert stat.S_IMODE(record.path.stat().st_mode) == 0o600
    objects, changes = final(record.path)
    assert objects["Pod", "default", "train"]["spec"]["nodeName"] == "node-1"
    assert [each.when for each in changes] == sorted(each.when for each in changes)


def test_a_heartbeat_alone_is_no_change(cluster, record):
    recorder = record()
    cluster.wait(1)
    before = recorder.file.changes
    node = cluster.client.get(NODES, "node-1")
    beat = [{"type": "Ready", "status": "True", "lastHeartbeatTime": "2026-01-01T00:00:00Z"}]
    conditions = [{**each, "lastHeartbeatTime": "2026-02-01T00:00:00Z"}
                  for each in node["status"].get("conditions") or beat]  # fmt: skip
    cluster.client.update(NODES, {**node, "status": {**node["status"], "conditions": conditions}},
                          subresource="status")  # fmt: skip
    cluster.settle()
    first = recorder.file.changes
    again = cluster.client.get(NODES, "node-1")
    later = [{**each, "lastHeartbeatTime": "2026-03-01T00:00:00Z"} for each in conditions]
    cluster.client.update(NODES, {**again, "status": {**again["status"], "conditions": later}},
                          subresource="status")  # fmt: skip
    cluster.settle()
    assert before <= first == recorder.file.changes


def test_a_killed_recorder_is_continued(cluster, record):
    recorder = record()
    run_one(cluster)
    recorder.file.flush()
    # Killed: nothing is closed, and its last line is cut.
    for each in recorder.collections:
        each.cache.stop()
    recorder.is_full = True
    with record.path.open("ab") as file:
        file.write(b'{"at":"2026-01-01T00:00:0')
    recorder.file.close()
    cluster.client.delete(PODS, "train", "default", options={"gracePeriodSeconds": 0})
    run_one_more = pod("later")
    cluster.client.create(PODS, run_one_more, "default")
    cluster.wait(5)
    recorder = record()
    assert recorder.file.is_continued
    stop(recorder)
    objects, changes = final(record.path)
    assert ("Pod", "default", "train") not in objects
    assert objects["Pod", "default", "later"]["spec"]["nodeName"] == "node-1"
    gone = [each for each in changes if each.object is None]
    assert [(each.of.name, each.listed) for each in gone] == [("train", True)]
    assert all(each.listed for each in changes if each.of.name == "later")


def test_what_was_made_anew_meanwhile_is_gone_first(cluster, record):
    recorder = record()
    run_one(cluster)
    stop(recorder)
    cluster.client.delete(PODS, "train", "default", options={"gracePeriodSeconds": 0})
    cluster.wait(1)
    cluster.client.create(PODS, pod("train"), "default")
    stop(record())
    uids = [each.object and each.object["metadata"]["uid"]
            for each in final(record.path)[1] if each.of.name == "train"]  # fmt: skip
    assert None in uids
    assert len({*uids}) == 3


def test_a_recording_of_another_cluster_is_not_continued(record):
    stop(record())
    with pytest.raises(SnapshotError, match=r"its of is .https://a\.example., not .https://b"):
        record(about={**ABOUT, "of": "https://b.example"})


def test_two_recorders_do_not_write_into_one_file(record):
    recorder = record()
    with pytest.raises(SnapshotError, match="another process records into it"):
        record()
    stop(recorder)


def test_a_recording_stops_at_its_size(cluster, record):
    told = []
    recorder = record(most=4000, full=lambda: told.append(True))
    for number in range(20):
        cluster.client.create(PODS, pod(f"p{number}"), "default")
    cluster.wait(3)
    assert told == [True]
    assert 4000 <= record.path.stat().st_size < 6000
    stop(recorder)
    final(record.path)


def test_a_full_disk_ends_a_recording(cluster, record, monkeypatch):
    told = []
    recorder = record(full=lambda: told.append(True))

    def full(handle, content):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("dralab.runtime.recorder.os.write", full)
    cluster.client.create(PODS, pod("p"), "default")
    cluster.wait(5)
    assert told == [True]
    assert recorder.failed.errno == errno.ENOSPC


def test_beyond_the_rate_changes_of_an_object_become_one(cluster, record):
    recorder = record(rate=3)
    cluster.wait(2)
    before = recorder.file.changes
    for number in range(10):
        cluster.client.create(PODS, pod(f"p{number}"), "default")
    cluster.settle()
    assert recorder.file.changes - before <= 3
    cluster.wait(30)
    stop(recorder)
    objects, _ = final(record.path)
    pods = [each for of, each in objects.items() if of.kind == "Pod"]
    assert len(pods) == 10
    assert all(each["spec"].get("nodeName") for each in pods)


def test_under_other_names_a_recording_is_continued_with_the_same_ones(cluster, record):
    rename = keyed(b"k" * 32)
    stop(record(rename=rename))
    run_one(cluster)
    stop(record(rename=keyed(b"k" * 32)))
    objects, changes = final(record.path)
    names = [of.name for of in objects if of.kind == "Node"]
    assert len(names) == 1
    assert names[0] != "node-1"
    assert b"train" not in record.path.read_bytes()
    assert not [each for each in changes if each.object is None]
    (bound,) = [each for of, each in objects.items() if of.kind == "Pod"]
    assert bound["spec"]["nodeName"] == names[0]


@pytest.mark.parametrize("missing", [None, "policy"])
def test_a_recorder_needs_its_role_and_nothing_more(tmp_path, missing):
    lab = Guarded(("v1",), without=("controllers",))
    found = role("recorder")
    assert {verb for each in found["rules"] for verb in each["verbs"]} == {"list", "watch"}
    found["rules"] = [each for each in found["rules"] if each["apiGroups"] != [missing]]
    lab.client.create(CLUSTER_ROLES, found)
    lab.client.create(CLUSTER_ROLE_BINDINGS, {
        "metadata": {"name": "recorder"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "recorder"},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "recorder"}],
    })  # fmt: skip
    lab.refused.clear()
    file = RecordingFile(tmp_path / "x", ABOUT)
    recorder = ClusterRecorder(
        lab.engine, lab.of("recorder"), file, rate=1000, most=1 << 30, full=lambda: None
    )
    recorder.start()
    lab.wait(5)
    stop(recorder)
    assert recorder.unread == (["PodDisruptionBudget"] if missing else [])
    # That its server refuses what is missing shows that the others were asked for as well.
    assert bool(missing) == any("poddisruptionbudgets" in each for each in lab.refused)


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ({"at": "today", "object": worker("a")}, 'parsing time "today"'),
        (
            {"at": rfc3339_micro(0), "of": ["Pod", "", "a"], "patch": {}},
            "it patches Pod/a, which does not exist at that time",
        ),
        ({"at": rfc3339_micro(0), "listed": True}, "it has no field 'of'"),
        ([], "a field is of the wrong kind"),
    ],
)
def test_a_damaged_line_is_named(tmp_path, line, problem):
    path = tmp_path / "x.dralab"
    path.write_bytes(head(ABOUT) + orjson.dumps(line) + b"\n")
    with pytest.raises(SnapshotError, match=f"x.dralab: line 2: {problem}"):
        list(Recording.open(path))


def test_another_file_is_no_recording(tmp_path):
    path = tmp_path / "x.dralab"
    path.write_bytes(b"kind: Pod\n")
    with pytest.raises(SnapshotError, match="is not a recording: make one with dralab record"):
        Recording.open(path)
