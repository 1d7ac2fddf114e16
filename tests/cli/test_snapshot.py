"""`dralab snapshot`, and what reads its files: questions, `up`, `Cluster` and `simulate`."""

import json
import stat
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner

from builders import claim, device, device_class, pod, pool, request, worker
from crowded import flat, gpu_node, holder, waiter
from dralab.api.snapshots.errors import SnapshotError
from dralab.api.snapshots.files import read_file, written
from dralab.api.snapshots.kept_fields import kept
from dralab.cli.main import main
from dralab.cluster import Cluster, Options
from dralab.components.control_plane import ControlPlane
from dralab.runtime.resources import CLAIMS, NODES, PODS, SLICES
from realdump import dump, stored


def run(*arguments):
    return CliRunner().invoke(main, list(map(str, arguments)))


def small():
    """A node with two devices: one is held by a running pod, and one pod wants two."""
    result = {"request": "r0", "driver": "gpu.example.com", "pool": "gpus", "device": "d0"}
    allocation = {"allocation": {"devices": {"results": [result]}}}
    user = stored(pod("runs", claims={"gpu": "held"}, nodeName="node-1"), 1)
    user["status"] = {"phase": "Running"}
    user["metadata"]["ownerReferences"] = [
        {
            "apiVersion": "apps/v1",
            "kind": "ReplicaSet",
            "name": "r",
            "uid": "gone",
            "controller": True,
        }
    ]
    held = claim("held", request("r0", "gpu"), namespace="default", status=allocation)
    held["status"]["reservedFor"] = [
        {"resource": "pods", "name": "runs", "uid": user["metadata"]["uid"]}
    ]
    objects = [
        worker("node-1"),
        *pool("gpus", device("d0"), device("d1"), node="node-1"),
        device_class("gpu"),
        held,
        claim("two", request("r0", "gpu", count=2), namespace="default"),
        pod("waits", claims={"gpu": "two"}, status={"phase": "Pending"}),
    ]
    return [user, *(stored(item, 10 + number) for number, item in enumerate(objects))]


@pytest.fixture
def snapshot(tmp_path):
    file = tmp_path / "small.snapshot"
    file.write_bytes(written([kept(item) for item in small()]))
    return file


def test_a_snapshot_of_a_snapshot_is_the_same_file(snapshot, tmp_path):
    again = tmp_path / "again.snapshot"
    result = run("snapshot", "-f", snapshot, again)
    assert result.exit_code == 0, result.output
    assert again.read_bytes() == snapshot.read_bytes()
    assert "saved 1 DeviceClass, 1 Node, 2 Pod, 2 ResourceClaim, 1 ResourceSlice (" in result.stderr
    assert stat.S_IMODE(again.stat().st_mode) == 0o600


def test_a_file_that_exists_is_not_overwritten(snapshot):
    before = snapshot.read_bytes()
    result = run("snapshot", "-f", snapshot, snapshot)
    assert result.exit_code == 2
    assert f"Error: {snapshot} already exists; choose another file" in result.stderr
    assert snapshot.read_bytes() == before


def test_standard_output_takes_the_file(snapshot):
    result = run("snapshot", "-f", snapshot, "-")
    assert result.stdout_bytes == snapshot.read_bytes()


def test_without_options_the_cluster_is_kubectls(snapshot, monkeypatch, tmp_path):
    with Cluster(snapshot=snapshot) as cluster:
        monkeypatch.setenv("KUBECONFIG", str(cluster.kubeconfig))
        monkeypatch.chdir(tmp_path)
        assert run("snapshot").exit_code == 0
    assert {item["metadata"]["name"] for item in read_file(tmp_path / "cluster.snapshot")} >= {
        "runs", "waits", "held", "node-1",
    }  # fmt: skip
    monkeypatch.setenv("KUBECONFIG", "a:b")
    result = run("snapshot", "other")
    assert result.exit_code == 2
    assert "$KUBECONFIG names several files: choose one with --kubeconfig" in result.stderr


@pytest.mark.thorough
def test_questions_are_answered_from_the_file_under_other_names_too(tmp_path):
    whole = tmp_path / "whole.snapshot"
    whole.write_bytes(written([part for item in dump() if (part := kept(item)) is not None]))
    file = tmp_path / "again.snapshot"
    assert run("snapshot", "-f", whole, file, "--anonymize").exit_code == 0
    result = run("allocate", "-f", file)
    expected = run("allocate", "-f", whole)
    assert (result.exit_code, result.stderr) == (1, "")

    def columns(found):
        rows = [line.split() for line in found.stdout.splitlines()]
        return [(row[5], row[7]) for row in rows if len(row) == 8]

    assert columns(result) == columns(expected)
    assert len(columns(result)) > 5
    assert "payroll" in expected.stdout
    assert "payroll" not in result.stdout


@pytest.mark.parametrize(("options", "name"), [((), "team"), (("--anonymize",), "quota-1")])
def test_explain_names_the_quota_of_a_snapshot(tmp_path, options, name):
    scenes, path = Path(__file__).parent / "scenes", tmp_path / "a.snapshot"
    files = ("-f", scenes / "fleet.yaml", "-f", scenes / "quota.yaml")
    assert run("snapshot", *files, path, *options).exit_code == 0
    assert f"waits: quota {name} allows 2 of gpu" in run("explain", "-f", path).stdout


def test_a_page_from_a_snapshot_names_object_and_field(tmp_path):
    source, path = tmp_path / "all.yaml", tmp_path / "a.snapshot"
    objects = flat(gpu_node("a", 2), holder("serve", "a", 0), waiter("train", 2))
    source.write_text(yaml.safe_dump_all(objects))
    assert run("snapshot", "-f", str(source), str(path)).exit_code == 0
    page = run("explain", "-f", str(path), "train")
    assert page.exit_code == 1, page.output
    assert "ResourceClaim default/train-gpus: spec.devices.requests[0].exactly.count" in page.stdout
    told = run("explain", "-f", str(path), "train", "-o", "json")
    assert "ResourceClaim default/train-gpus" in told.stdout


def test_a_cluster_starts_from_a_snapshot_and_keeps_it_as_it_was(snapshot):
    with Cluster(components=[ControlPlane()], snapshot=snapshot) as cluster:
        client = cluster.client
        given = {(item["kind"], item["metadata"]["name"]): item for item in small()}
        for resource, kind in ((PODS, "Pod"), (CLAIMS, "ResourceClaim"), (NODES, "Node")):
            found = client.list(resource).items
            assert len(found) == sum(item["kind"] == kind for item in small())
            for item in found:
                expected = given[kind, item["metadata"]["name"]]["metadata"]
                assert item["metadata"]["uid"] == expected["uid"]
                assert item["metadata"]["creationTimestamp"] == expected["creationTimestamp"]
        runs = client.get(PODS, "runs", "default")
        assert (runs["spec"]["nodeName"], runs["status"]["phase"]) == ("node-1", "Running")
        assert "ownerReferences" not in runs["metadata"]
        held = client.get(CLAIMS, "held", "default")
        assert held["status"]["reservedFor"][0]["uid"] == runs["metadata"]["uid"]
        assert client.list(SLICES).items[0]["spec"]["devices"][1]["name"] == "d1"
        result = run("explain", "waits", "--kubeconfig", cluster.kubeconfig)
        assert result.exit_code == 1, result.output
        # It is a cluster like any other: what frees a device is acted on.
        client.delete(PODS, "runs", "default", options={"gracePeriodSeconds": 0})


def test_a_cluster_that_has_something_takes_no_snapshot(snapshot, tmp_path):
    options = Options(data=tmp_path / "data")
    with Cluster(options, snapshot=snapshot):
        pass
    with pytest.raises(
        SnapshotError, match=r"needs an empty cluster, and .*data has one with nodes"
    ):
        Cluster(options, snapshot=snapshot).__enter__()
    with Cluster(options) as cluster:
        assert len(cluster.client.list(PODS).items) == 2


NEWER = b'{"apiVersion":"dralab.dev/v9","kind":"ClusterSnapshot"}'


@pytest.mark.parametrize(
    "command",
    [
        ["explain", "-f"],
        ["allocate", "-f"],
        ["snapshot", "-f"],
        ["up", "--snapshot"],
        ["simulate", "run"],
    ],
    ids=" ".join,
)
@pytest.mark.parametrize(
    ("content", "message"),
    [
        (NEWER, "is a snapshot of version 9, which a newer dralab has written; this one reads"),
        (NEWER.replace(b"v9", b"v1"), "is damaged: KeyError: 'devices'"),
    ],
    ids=["newer", "damaged"],
)
def test_a_snapshot_that_cannot_be_read_is_one_line(tmp_path, command, content, message):
    file = tmp_path / "a.snapshot"
    file.write_bytes(content)
    if command[0] == "simulate":
        scenario = tmp_path / "scenario.yaml"
        scenario.write_text(
            "fleet: {snapshot: a.snapshot}\nworkload: {pods: [{name: p, cpu: 1}]}\n"
        )
        result = run(*command, scenario)
    else:
        result = run(*command, file)
    assert result.exit_code == 2
    assert result.stdout == ""
    (line,) = [line for line in result.stderr.splitlines() if "Error" in line]
    assert message in line
    assert "a.snapshot" in line


def test_a_simulation_starts_from_a_snapshot(snapshot, tmp_path):
    scenario = tmp_path / "scenario.yaml"
    scenario.write_text(
        "fleet: {snapshot: small.snapshot}\n"
        "workload: {pods: [{name: extra, cpu: 1, duration: 5m}]}\n"
        "scheduler: dralab\n"
    )
    result = run("simulate", "run", scenario)
    assert result.exit_code == 0, result.output
    assert "1 task was never started, waits the first of them" in result.output
    # Only a whole cluster takes over pods that run already.
    result = run("simulate", "run", scenario, "--scheduler", "fgd")
    assert result.exit_code == 2
    assert "Pod runs runs already, which the fast engine cannot take over" in result.output


SCENES = Path(__file__).parent / "scenes"


@pytest.mark.parametrize("anonymize", [False, True])
@pytest.mark.parametrize("scene", ["volume", "volume-unbound"])
def test_volumes_are_judged_from_a_snapshot(scene, anonymize, tmp_path):
    files = ["-f", SCENES / "fleet.yaml", "-f", SCENES / f"{scene}.yaml"]
    file = tmp_path / "volumes.snapshot"
    made = run("snapshot", *files, file, *["--anonymize"] * anonymize)
    assert made.exit_code == 0, made.output
    assert "PersistentVolumeClaim" in made.stderr
    (told,) = json.loads(run("explain", "-f", file, "-o", "json").stdout)
    (before,) = json.loads(run("explain", *files, "-o", "json").stdout)
    assert (told["code"], told["unfit"]) == (before["code"], before["unfit"])
    assert "notJudged" not in told
    assert '"data"' not in json.dumps(read_file(file)) or not anonymize


def test_a_snapshot_keeps_what_decides_about_volumes_and_not_what_they_are_made_of():
    volume = {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": "pv"},
        "spec": {
            "capacity": {"storage": "1Gi"},
            "accessModes": ["ReadWriteOnce"],
            "nfs": {"server": "10.0.0.1", "path": "/secret"},
        },
    }
    assert kept(volume)["spec"] == {
        "capacity": {"storage": "1Gi"},
        "accessModes": ["ReadWriteOnce"],
    }


def test_a_snapshot_without_the_claims_of_volumes_says_that_they_are_not_judged(tmp_path):
    waits = pod("waits", claims={"gpu": "two"}, status={"phase": "Pending"})
    waits["spec"]["volumes"] = [{"name": "v", "persistentVolumeClaim": {"claimName": "data"}}]
    file = tmp_path / "pods.yaml"
    file.write_text(yaml.safe_dump_all([*small()[:-1], waits]))
    made = run("snapshot", "-f", file, tmp_path / "s.snapshot")
    assert "no volumes in the input: not judged for 1 waiting pods" in made.stderr
    (told,) = json.loads(run("explain", "-f", tmp_path / "s.snapshot", "-o", "json").stdout)
    assert told["notJudged"] == ["volumes"]
