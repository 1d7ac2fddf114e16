"""`dralab plan moves` on a cluster that runs: the script with the real kubectl, and --apply."""

import os
import shutil
import subprocess
import sys

import orjson
import pytest

from dralab.cluster import Cluster, Options
from dralab.components.control_plane import ControlPlane
from dralab.components.nodes import NodeOptions, Nodes

pytestmark = [
    pytest.mark.conformance,
    pytest.mark.skipif(shutil.which("kubectl") is None, reason="needs kubectl"),
]


def template(name, count):
    request = {"name": "gpus", "exactly": {"deviceClassName": "gpu.example.com", "count": count}}
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaimTemplate",
        "metadata": {"name": name},
        "spec": {"spec": {"devices": {"requests": [request]}}},
    }


def pod_spec(name):
    return {
        "terminationGracePeriodSeconds": 0,
        "resourceClaims": [{"name": "gpus", "resourceClaimTemplateName": name}],
        "containers": [
            {"name": "c", "image": "pause", "resources": {"claims": [{"name": "gpus"}]}}
        ],
    }


def deployment(name):
    labels = {"app": name}
    spec = {
        "replicas": 1,
        "selector": {"matchLabels": labels},
        "template": {"metadata": {"labels": labels}, "spec": pod_spec(name)},
    }
    return {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name}, "spec": spec}


def bare(name):
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "labels": {"app": name}},
        "spec": pod_spec(name),
    }


def budget(name):
    spec = {"minAvailable": 1, "selector": {"matchLabels": {"app": name}}}
    return {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": name},
        "spec": spec,
    }


class Lab:
    """Two nodes of eight GPUs, kubectl and dralab as programs."""

    def __init__(self, cluster, folder):
        self.folder = folder
        self.environment = os.environ | {"KUBECONFIG": str(cluster.kubeconfig)}

    def run(self, *words, given=None):
        return subprocess.run(
            words,
            input=given,
            cwd=self.folder,
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )

    def kubectl(self, *words, given=None):
        done = self.run("kubectl", *words, given=given)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def create(self, *objects):
        items = {"apiVersion": "v1", "kind": "List", "items": objects}
        self.kubectl("create", "-f", "-", given=orjson.dumps(items).decode())

    def defragment(self, *words):
        config = self.environment["KUBECONFIG"]
        program = [sys.executable, "-m", "dralab", "plan", "moves", "--kubeconfig", config]
        return self.run(*program, "--for", "default/train", *words)

    def nodes_of(self, app):
        return self.kubectl(
            "get", "pods", "-l", f"app={app}", "-o", "jsonpath={.items[*].spec.nodeName}"
        ).split()

    def cordoned(self):
        return self.kubectl(
            "get", "nodes", "-o", "jsonpath={.items[?(@.spec.unschedulable==true)].metadata.name}"
        )

    def wait_ready(self, app):
        self.kubectl("wait", "--for=condition=Ready", "pod", "-l", f"app={app}", "--timeout=60s")


@pytest.fixture
def lab(tmp_path):
    """`one` has 4 GPUs of node-0, `two` 4 of node-1; `train` waits for 8."""
    components = [ControlPlane(), Nodes(NodeOptions(nodes=2, drivers=("gpu",)))]
    with Cluster(Options(tls=True), components=components) as cluster:
        lab = Lab(cluster, tmp_path)
        lab.kubectl("wait", "--for=condition=Ready", "node", "--all", "--timeout=60s")
        for _ in range(60):
            if len(lab.kubectl("get", "resourceslices", "-o", "name").splitlines()) == 2:
                break
        lab.create(template("one", 4), template("two", 4), template("train", 8))
        yield lab


def place(lab, make):
    """Run `one` on node-0 and `two` on node-1, and let `train` wait."""
    lab.kubectl("cordon", "node-1")
    lab.create(make("one"))
    wait_for(lab, "one")
    lab.kubectl("uncordon", "node-1")
    lab.kubectl("cordon", "node-0")
    lab.create(make("two"))
    wait_for(lab, "two")
    lab.kubectl("uncordon", "node-0")
    lab.create(bare("train"))
    assert lab.nodes_of("one") == ["node-0"]
    assert lab.nodes_of("two") == ["node-1"]


def wait_for(lab, app):
    for _ in range(100):
        if lab.nodes_of(app):
            break
    lab.wait_ready(app)


def by_apply(lab, *options):
    return lab.defragment("--apply", "--timeout", "60", *options)


def by_script(lab, *_):
    planned = lab.defragment("-o", "commands")
    assert planned.returncode == 0, planned.stderr
    return lab.run("sh", "-c", planned.stdout)


@pytest.mark.parametrize("way", [by_apply, by_script])
@pytest.mark.parametrize("make", [deployment, bare])
def test_a_pod_moves_and_the_waiting_one_runs(lab, make, way):
    place(lab, make)
    done = way(lab, *(["--force"] if make is bare else []))
    assert done.returncode == 0, done.stdout + done.stderr
    wait_for(lab, "train")
    assert lab.nodes_of("one") == lab.nodes_of("two")
    assert lab.nodes_of("train") != lab.nodes_of("one")
    lab.wait_ready("one")
    lab.wait_ready("two")
    assert not lab.cordoned()
    assert not list(lab.folder.glob("*.json*"))


@pytest.mark.parametrize("way", [by_apply, by_script])
def test_a_budget_made_after_the_plan_stops_it(lab, way):
    place(lab, deployment)
    planned = lab.defragment("-o", "commands").stdout
    lab.create(budget("one"), budget("two"))
    for name in ("one", "two"):
        lab.kubectl("wait", "--for=jsonpath={.status.currentHealthy}=1", "pdb", name)
    done = lab.run("sh", "-c", planned) if way is by_script else by_apply(lab)
    assert done.returncode == 1, done.stdout
    told = "was not evicted" if way is by_script else "default/train: no"
    assert told in done.stdout + done.stderr
    assert lab.nodes_of("one") == ["node-0"]
    assert not lab.cordoned()


def test_a_pod_without_a_controller_is_asked_for(lab):
    place(lab, bare)
    done = by_apply(lab)
    assert done.returncode == 2
    assert "has no controller that makes it again" in done.stderr
    assert lab.nodes_of("one") == ["node-0"]
    assert not lab.cordoned()
