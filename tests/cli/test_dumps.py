"""`-f` with what clusters leave behind: `kubectl get -o yaml`, must-gathers, archives."""

import io
import tarfile

import pytest
import yaml
from click.testing import CliRunner

from builders import claim, device, device_class, pod, pool, request, worker
from dralab.cli.main import main

CREATED = "2026-01-01T00:00:00Z"


def stored(item, revision=1):
    kind, name = item["kind"], item["metadata"]["name"]
    own = {"uid": f"{kind}-{name}", "creationTimestamp": CREATED, "resourceVersion": str(revision)}
    return item | {"metadata": item["metadata"] | own}


def allocated(name, device_name):
    result = {"request": "r0", "driver": "gpu.example.com", "pool": "gpus", "device": device_name}
    status = {"allocation": {"devices": {"results": [result]}}}
    return claim(name, request("r0", "gpu"), namespace="ml", status=status)


SLICE = pool("gpus", device("d0"), device("d1"), node="node-1")[0]
CLAIMS = [allocated("held", "d0"), claim("wanted", request("r0", "gpu"), namespace="ml")]
PODS = [
    pod("runs", claims={"gpu": "held"}, namespace="ml", nodeName="node-1"),
    pod("waits", claims={"gpu": "wanted"}, namespace="ml"),
]
SECRET = {
    "apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s", "namespace": "ml"}, "data": {},
}  # fmt: skip
ROUTE = {"apiVersion": "route.openshift.io/v1", "kind": "Route", "metadata": {"name": "r"}}


def listed(kind, items):
    """A typed list, as `oc adm inspect` writes it: its items have no kind."""
    bare = [
        {k: v for k, v in stored(item).items() if k not in {"kind", "apiVersion"}} for item in items
    ]
    return {"apiVersion": items[0]["apiVersion"], "kind": f"{kind}List", "items": bare}


GATHERED = {
    "quay-io-image/cluster-scoped-resources/core/nodes/node-1.yaml": stored(worker("node-1")),
    "quay-io-image/cluster-scoped-resources/resource.k8s.io/resourceslices/a.yaml": stored(SLICE),
    "quay-io-image/cluster-scoped-resources/resource.k8s.io/deviceclasses/gpu.yaml": stored(
        device_class("gpu")
    ),
    "quay-io-image/namespaces/ml/core/pods.yaml": listed("Pod", PODS),
    "quay-io-image/namespaces/ml/core/secrets.yaml": listed("Secret", [SECRET]),
    "quay-io-image/namespaces/ml/route.openshift.io/routes.yaml": listed("Route", [ROUTE]),
    "quay-io-image/namespaces/ml/resource.k8s.io/resourceclaims.yaml": listed("ResourceClaim", CLAIMS),
    "quay-io-image/namespaces/ml/pods/waits/waits.yaml": stored(PODS[1]),
    "quay-io-image/monitoring/alerts.json": {"status": "success", "data": []},
    "quay-io-image/namespaces/ml/pods/runs/main/logs/current.log": "no yaml: [",
    "quay-io-image/version": "4.21",
}  # fmt: skip


def write(directory, files):
    for name, content in files.items():
        path = directory / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content if isinstance(content, str) else yaml.safe_dump(content))
    return directory


def packed(directory, path):
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as out:
        out.add(directory, arcname="must-gather.local")
    path.write_bytes(buffer.getvalue())
    return path


def run(*arguments):
    return CliRunner().invoke(main, list(arguments))


@pytest.fixture
def must_gather(tmp_path):
    return write(tmp_path / "must-gather", GATHERED)


@pytest.mark.parametrize("form", ["directory", "archive"])
def test_a_must_gather_answers_what_its_cluster_would(must_gather, tmp_path, form):
    if form == "archive":
        must_gather = packed(must_gather, tmp_path / "must-gather.tar.gz")
    result = run("allocate", "-f", str(must_gather))
    assert result.exit_code == 0, result.output
    rows = [line.split() for line in result.stdout.splitlines()]
    assert [row[:6] for row in rows[1:]] == [["ml", "waits", "wanted", "node-1", "r0", "d1"]]
    assert "skipped 3 files without objects that matter for devices" in result.stderr


def test_what_kubectl_prints_is_read(tmp_path):
    file = tmp_path / "all.yaml"
    objects = [worker("node-1"), SLICE, device_class("gpu"), *CLAIMS, *PODS, SECRET]
    file.write_text(
        yaml.safe_dump({"apiVersion": "v1", "kind": "List", "items": [stored(o) for o in objects]})
    )
    result = run("explain", "waits", "-f", str(file))
    assert result.exit_code == 0, result.output
    assert result.stderr == ""


def test_half_a_must_gather_is_one_line(must_gather):
    for path in must_gather.glob("**/resourceclaims.yaml"):
        path.unlink()
    result = run("explain", "-f", str(must_gather))
    assert result.exit_code == 2
    assert result.stdout == ""
    assert (
        "Error: half a dump: pod ml/runs runs with claim held, but the input has no ResourceClaim"
    ) in result.stderr


def test_an_archive_that_breaks_off_is_one_line(must_gather, tmp_path):
    path = packed(must_gather, tmp_path / "half.tar.gz")
    path.write_bytes(path.read_bytes()[:-30])
    result = run("allocate", "-f", str(path))
    assert result.exit_code == 2
    assert result.stdout == ""
    assert f"{path}: cannot be read: the archive is damaged or breaks off" in result.stderr


def test_fields_of_a_newer_kubernetes_are_noted_in_objects_of_a_cluster_alone(tmp_path):
    newer = SLICE | {"spec": SLICE["spec"] | {"teleports": True}}
    (tmp_path / "nodes.yaml").write_text(yaml.safe_dump(stored(worker("node-1"))))
    (tmp_path / "slice.yaml").write_text(yaml.safe_dump(stored(newer)))
    (tmp_path / "rest.yaml").write_text(
        yaml.safe_dump_all([device_class("gpu"), claim("c", request("r0", "gpu"))])
    )
    result = run("allocate", "-f", str(tmp_path))
    assert result.exit_code == 0, result.output
    assert (
        "ResourceSlice: unknown field spec.teleports (once) is ignored: a newer Kubernetes wrote it"
    ) in result.stderr
    (tmp_path / "slice.yaml").write_text(yaml.safe_dump(newer))
    result = run("allocate", "-f", str(tmp_path))
    assert result.exit_code == 2
    assert "spec.teleports: Forbidden: unknown field" in result.stderr


def test_of_an_object_that_was_gathered_twice_the_newer_copy_counts(tmp_path):
    objects = [worker("node-1"), SLICE, device_class("gpu"), CLAIMS[1], PODS[1]]
    write(tmp_path, {f"{n}.yaml": stored(item) for n, item in enumerate(objects)})
    older = allocated("wanted", "d1") | {"spec": CLAIMS[1]["spec"]}
    write(tmp_path, {"before/claim.yaml": stored(older, 0)})
    assert run("allocate", "-f", str(tmp_path)).stdout.count("wanted") == 1
    write(tmp_path, {"before/claim.yaml": stored(older, 2)})
    assert "(allocated)" in run("allocate", "-f", str(tmp_path)).stdout
    # Two objects of one name are a mistake all the same.
    other = stored(older, 2)
    other["metadata"] = other["metadata"] | {"uid": "another"}
    write(tmp_path, {"before/claim.yaml": other})
    result = run("allocate", "-f", str(tmp_path))
    assert result.exit_code == 2
    assert 'Duplicate value: "wanted"' in result.stderr


def test_a_typo_in_a_subdirectory_is_not_passed_over(must_gather):
    write(must_gather, {"mine/claim.yaml": CLAIMS[1] | {"kind": "ResorceClaim"}})
    result = run("allocate", "-f", str(must_gather))
    assert result.exit_code == 2
    assert "ResorceClaim" in result.stderr


def test_input_of_mixed_generations_is_refused(must_gather):
    older = {"apiVersion": "devmgmtproto.k8s.io/v1alpha1", "kind": "DevicePool", "spec": {}}
    write(must_gather, {"mine/pool.yaml": older | {"metadata": {"name": "p"}}})
    result = run("explain", "-f", str(must_gather))
    assert result.exit_code == 2
    assert result.stdout == ""
    assert "Error: the input mixes k8srm, v1: choose one with --api" in result.stderr
