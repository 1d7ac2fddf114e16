"""Commands and pages follow the rules of the release of a cluster, as its kubelets tell it."""

import pytest

from builders import claim, device, device_class, pod, pool, request, worker
from dralab.api.snapshots.kept_fields import kept
from dralab.scheduling.model import ClusterModel
from dralab.scheduling.snapshot import Snapshot
from dralab.scheduling.state import Refusal

ASKED = {"capacity": {"requests": {"memory": "4Gi"}}}


def cluster(*versions):
    """Return nodes of which the first has two devices, one of them full; a pod wants them all."""
    nodes = [
        kept(worker(f"n{number}", cpu="4" if number == 0 else "0")
             | {"apiVersion": "v1", "kind": "Node"})
        for number in range(len(versions))
    ]  # fmt: skip
    for each, version in zip(nodes, versions, strict=True):
        each["status"]["nodeInfo"] = {"kubeletVersion": version} if version else {}
    shared = [device(f"d{n}", capacity={"memory": {"value": "4Gi"}}, shared=True) for n in (0, 1)]
    result = {"request": "r", "driver": "gpu.example.com", "pool": "n0", "device": "d0"}
    result |= {
        "consumedCapacity": {"memory": "4Gi"},
        "shareID": "0f3d9c1e-0000-4000-8000-000000000001",
    }
    used = claim("one", request("r", "gpu", **ASKED), namespace="default")
    used["status"] = {"allocation": {"devices": {"results": [result]}}}
    everything = {"deviceClassName": "gpu", "allocationMode": "All", **ASKED}
    wanted = claim("all", {"name": "r", "exactly": everything}, namespace="default")
    return [
        *nodes, device_class("gpu"), *pool("n0", *shared, node="n0"), used, wanted,
        pod("p", claims={"x": "all"}),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("versions", "placed"),
    [
        (["v1.36.2", ""], True),
        (["", ""], True),
        (["v1.37.2"], False),
        (["v1.36.2", "v1.37.0-gke.12"], False),
        (["1.37.2", "v1.x"], True),
    ],
)
def test_all_devices_include_full_ones_where_a_kubelet_is_of_1_37(versions, placed):
    model = ClusterModel(cluster(*versions))
    (pending,) = model.waiting
    assert isinstance(model.try_pod(pending), Refusal) is not placed
    snapshot = Snapshot(cluster(*versions))
    assert snapshot.features.all_counts_full is not placed


def test_a_snapshot_keeps_the_release_of_its_nodes():
    node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n"}}
    info = {"kubeletVersion": "v1.37.2", "machineID": "secret"}
    found = kept(node | {"status": {"nodeInfo": info}})
    assert found["status"]["nodeInfo"] == {"kubeletVersion": "v1.37.2"}
