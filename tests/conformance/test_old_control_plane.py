"""Kubernetes 1.30's own scheduler and controllers, unmodified, give our fake driver's devices.

In both flavours: the other half of the contract that `test_old_driver` holds ours to.
"""

import os
import shutil

import pytest
import yaml

from dralab.components.profiles import kinds_of
from dralab.drivers.fake.demo import children, parents
from dralab.runtime.resources import ALLOCATION_STATES, CLASSIC_CLAIMS, NAMESPACES, PODS
from fakelab import EXAMPLES
from labs import create_all
from processes import Processes

pytestmark = pytest.mark.conformance
SCHEDULER = os.environ.get("DRALAB_OLD_SCHEDULER") or shutil.which("kube-scheduler-1.30")
MANAGER = os.environ.get("DRALAB_OLD_CONTROLLER_MANAGER") or shutil.which(
    "kube-controller-manager-1.30"
)
NODE = "fake-dra-driver-cluster-worker"
GATES = "--feature-gates=DynamicResourceAllocation=true"
# Our server has no protobuf for what only 1.30 knew.
JSON = "application/json"
BUILD = "tools/build_clients.py FOLDER"
CLASSIC = EXAMPLES / "50-fake-driver"
MANIFESTS = {
    **{f"test{number}": CLASSIC / f"fake-test{number}.yaml" for number in range(1, 7)},
    "test7": EXAMPLES / "53-fake-driver-structured/fake-test7.yaml",
}


def scheduler(lab):
    if not SCHEDULER:
        pytest.skip(f"DRALAB_OLD_SCHEDULER names no program; {BUILD} kube-scheduler-1.30")
    config = {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "leaderElection": {"leaderElect": False},
        "clientConnection": {
            "kubeconfig": str(lab.kubeconfig), "contentType": JSON, "acceptContentTypes": JSON,
        },
    }  # fmt: skip
    path = lab.root / "scheduler.yaml"
    path.write_text(yaml.safe_dump(config))
    lab.run("scheduler", [SCHEDULER, "--config", path, GATES, "--secure-port=0"])


def controllers(lab):
    if not MANAGER:
        pytest.skip(
            f"DRALAB_OLD_CONTROLLER_MANAGER names no program; {BUILD} kube-controller-manager-1.30"
        )
    access = ["--kubeconfig", lab.kubeconfig, f"--kube-api-content-type={JSON}"]
    command = [MANAGER, *access, GATES, "--secure-port=0", "--leader-elect=false"]
    lab.run("controllers", command)


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


def test_the_demonstrations_run_with_its_scheduler():
    with Processes("--api", "v1,classic", "--without", "scheduler", "--driver", "fake") as lab:
        scheduler(lab)
        runs_the_demonstrations(lab)


def test_the_demonstrations_run_with_its_scheduler_and_its_controllers():
    # Without today's version, whose objects its controllers would take for those of the group.
    with Processes("--api", "classic", "--driver", "fake") as lab:
        scheduler(lab)
        controllers(lab)
        runs_the_demonstrations(lab)


def runs_the_demonstrations(lab):
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
