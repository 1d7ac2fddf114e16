"""The unmodified kube-scheduler of Kubernetes 1.30 gives our fake driver's devices, in both flavours.

It is the other half of the contract that `test_old_driver` holds our scheduler to.
"""

import os
import shutil

import pytest
import yaml

from devicelab import create_all
from dralab.drivers.fake.mission import children, parents
from dralab.parts.profiles import kinds_of
from dralab.runtime.resources import ALLOCATION_STATES, CLASSIC_CLAIMS, NAMESPACES, PODS
from fakelab import EXAMPLES
from processes import Processes

BINARY = os.environ.get("DRALAB_OLD_SCHEDULER") or shutil.which("kube-scheduler-1.30")
NODE = "fake-dra-driver-cluster-worker"
pytestmark = [
    pytest.mark.conformance,
    pytest.mark.skipif(
        not BINARY,
        reason="DRALAB_OLD_SCHEDULER names no kube-scheduler of 1.30; "
        "tools/build_clients.py FOLDER kube-scheduler-1.30",
    ),
]
CLASSIC = EXAMPLES / "50-fake-driver"
MANIFESTS = {
    **{f"test{number}": CLASSIC / f"fake-test{number}.yaml" for number in range(1, 7)},
    "test7": EXAMPLES / "53-fake-driver-structured/fake-test7.yaml",
}


@pytest.fixture
def lab():
    options = ["--profile", "v1,classic", "--without", "scheduler", "--driver", "fake"]
    with Processes(*options) as running:
        config = {
            "apiVersion": "kubescheduler.config.k8s.io/v1",
            "kind": "KubeSchedulerConfiguration",
            "leaderElection": {"leaderElect": False},
            "clientConnection": {
                "kubeconfig": str(running.kubeconfig),
                # Our server has no protobuf for what only 1.30 knew.
                "contentType": "application/json",
                "acceptContentTypes": "application/json",
            },
        }
        path = running.root / "scheduler.yaml"
        path.write_text(yaml.safe_dump(config))
        gates = "--feature-gates=DynamicResourceAllocation=true"
        running.run("scheduler", [BINARY, "--config", path, gates, "--secure-port=0", "-v=2"])
        yield running


def apply(lab, namespace):
    for obj in yaml.safe_load_all(MANIFESTS[namespace].read_text()):
        if obj:
            create_all(lab.client, kinds_of(("v1", "classic")), obj)


def running(lab, namespace, count):
    found = lab.client.list(PODS, namespace).items
    phases = [(pod.get("status") or {}).get("phase") for pod in found]
    return found if phases == ["Running"] * count else None


def prepared(lab):
    spec = lab.client.get(ALLOCATION_STATES, NODE, "fake-system")["spec"]
    held = (spec.get("preparedDevices") or {}).values()
    return [device["uuid"] for claim in held for device in claim["fake"]["devices"]]


def ends(lab, *namespaces):
    for namespace in namespaces:
        lab.client.delete(NAMESPACES, namespace)
    lab.until(lambda: not prepared(lab), "scheduler")
    lab.until(lambda: not lab.client.list(CLASSIC_CLAIMS).items, "scheduler")


def test_the_demonstrations_run(lab):
    counts = {"test1": 2, "test2": 1, "test3": 2, "test4": 1}
    for namespace in counts:
        apply(lab, namespace)
    for namespace, count in counts.items():
        lab.until(lambda at=namespace, n=count: running(lab, at, n), "scheduler")
    assert sorted(prepared(lab)) == sorted(parents(NODE))
    ends(lab, *counts)
    parts = {"test5": (1, 2), "test6": (2, 5), "test7": (1, 2)}
    for namespace, (count, split) in parts.items():
        apply(lab, namespace)
        lab.until(lambda at=namespace, n=count: running(lab, at, n), "scheduler")
        used = parents(NODE)[: 4 * count]
        assert sorted(prepared(lab)) == sorted(
            child for parent in used for child in children(parent, split)
        )
        ends(lab, namespace)
