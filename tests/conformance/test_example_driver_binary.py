"""The real dra-example-driver, unmodified, on a node of ours: the end-to-end checks again."""

import os
import shutil
import subprocess
import tempfile
import time
from pathlib import Path

import pytest

from devicelab import SHARED, create_all, gpus, of_gpu
from dralab.cluster import Cluster
from dralab.drivers.catalog import device_class
from dralab.parts.nodes import Nodes, Wanted
from dralab.parts.running import Running
from dralab.runtime.objects import is_ready
from dralab.runtime.resources import CLAIMS, CLASSES, PODS, SLICES

PACKAGE = "sigs.k8s.io/dra-example-driver/cmd/dra-example-kubeletplugin"
GO_MOD = """module conformance

go 1.26

require sigs.k8s.io/dra-example-driver v0.4.0
"""
EXAMPLES = SHARED / "dra-example-driver" / "examples"

pytestmark = [
    pytest.mark.conformance,
    pytest.mark.skipif(
        not EXAMPLES.is_dir(), reason="the example driver's demos are not beside this checkout"
    ),
]


@pytest.fixture(scope="session")
def binary(tmp_path_factory):
    given = os.environ.get("DRALAB_EXAMPLE_DRIVER")
    if given:
        return Path(given)
    if shutil.which("go") is None:
        pytest.skip("no Go toolchain, and DRALAB_EXAMPLE_DRIVER names no binary")
    place = tmp_path_factory.mktemp("driver")
    (place / "go.mod").write_text(GO_MOD)
    built = subprocess.run(
        ["go", "build", "-mod=mod", "-o", "dra-example-kubeletplugin", PACKAGE],
        cwd=place,
        capture_output=True,
        text=True,
        check=False,
        timeout=900,
    )
    if built.returncode:
        pytest.skip(f"the example driver does not build here: {built.stderr[-300:]}")
    return place / "dra-example-kubeletplugin"


class Bench:
    """A cluster with one node, and the real driver on it."""

    def __init__(self, cluster, nodes, root, binary, *options):
        self.cluster, self.nodes, self.root = cluster, nodes, root
        self.node = root / "node-0"
        self.command = [
            str(binary),
            "--node-name=node-0",
            f"--kubeconfig={cluster.kubeconfig}",
            f"--cdi-root={self.node / 'cdi'}",
            f"--kubelet-registrar-directory-path={self.node / 'plugins_registry'}",
            f"--kubelet-plugins-directory-path={self.node / 'plugins'}",
            *options,
        ]
        self.node.mkdir(parents=True, exist_ok=True)
        self.driver = None

    def start(self):
        (self.node / "plugins" / "x").mkdir(parents=True, exist_ok=True)
        with (self.root / "driver.log").open("a") as log:
            self.driver = subprocess.Popen(self.command, stdout=log, stderr=log)
        self.until(
            lambda: any(o["spec"].get("devices") for o in self.cluster.client.list(SLICES).items)
        )

    def stop(self):
        self.driver.terminate()
        return self.driver.wait(20)

    def until(self, done, seconds=40):
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            if done():
                return
            time.sleep(0.2)
        raise AssertionError((self.root / "driver.log").read_text()[-2000:])

    def run(self, name):
        create_all(
            self.cluster.client,
            self.cluster.server.resources.kinds,
            (EXAMPLES / name / f"{name}.yaml").read_text(),
        )
        client = self.cluster.client
        self.until(
            lambda: (
                client.list(PODS, name).items and all(map(is_ready, client.list(PODS, name).items))
            )
        )

    def log(self, namespace, pod, container="ctr0"):
        found = self.nodes.kubelets.find(self.cluster.client.get(PODS, pod, namespace), container)
        return "".join(f"{line}\n" for _, line in found.log.read()[0])

    def results(self, namespace):
        claims = self.cluster.client.list(CLAIMS, namespace).items
        return [r for claim in claims for r in claim["status"]["allocation"]["devices"]["results"]]


@pytest.fixture
def bench(binary):
    started = []

    def make(profile, *options):
        root = Path(tempfile.mkdtemp(prefix="b"))
        nodes = Nodes(Wanted(nodes=1, root=root))
        cluster = Cluster(parts=[Running(), nodes])
        cluster.__enter__()
        started.append((cluster, root))
        cluster.client.create(CLASSES, device_class(f"{profile}.example.com"))
        found = Bench(cluster, nodes, root, binary, f"--device-profile={profile}", *options)
        started[-1] = (cluster, root, found)
        found.start()
        return found

    yield make
    for cluster, root, *found in started:
        for each in found:
            if each.driver is not None and each.driver.poll() is None:
                each.driver.kill()
                each.driver.wait()
        cluster.__exit__()
        shutil.rmtree(root, ignore_errors=True)


def test_01_each_pod_has_a_gpu_of_its_own_and_the_driver_stops_cleanly(bench):
    lab = bench("gpu", "--num-devices=2", "--gpu-device-status")
    name = "basic-resourceclaimtemplate"
    lab.run(name)
    assert {len(gpus(lab.log(name, pod))) for pod in ("pod0", "pod1")} == {1}
    assert gpus(lab.log(name, "pod0")) != gpus(lab.log(name, "pod1"))
    for claim in lab.cluster.client.list(CLAIMS, name).items:
        (device,) = claim["status"]["devices"]
        assert device["data"]["uuid"]["string"]
    for pod in ("pod0", "pod1"):
        lab.cluster.client.delete(PODS, pod, name)
    lab.until(lambda: not lab.cluster.client.list(CLAIMS, name).items)
    assert [path.name for path in (lab.node / "cdi").iterdir()] == [
        "k8s.gpu.example.com-gpu_common.yaml"
    ]
    assert lab.stop() == 0
    assert not list((lab.node / "plugins_registry").iterdir())


def test_02_and_03_devices_in_one_container_and_one_in_two(bench):
    lab = bench("gpu", "--num-devices=3")
    lab.run("basic-multiple-requests")
    assert len(set(gpus(lab.log("basic-multiple-requests", "pod0")))) == 2
    name = "basic-shared-claim-across-containers"
    lab.run(name)
    first, second = (lab.log(name, "pod0", each) for each in ("ctr0", "ctr1"))
    assert gpus(first) == gpus(second)
    assert of_gpu(first, gpus(first)[0], "SHARING_STRATEGY") == "TimeSlicing"


def test_05_06_a_claims_parameters_and_init_containers(bench):
    lab = bench("gpu", "--num-devices=3")
    name = "basic-resourceclaim-opaque-config"
    lab.run(name)
    log = lab.log(name, "pod0", "sp-ctr0")
    assert of_gpu(log, gpus(log)[0], "PARTITION_COUNT") == "10"
    name = "initcontainer-shared-gpu"
    lab.run(name)
    assert gpus(lab.log(name, "pod0", "init0")) == gpus(lab.log(name, "pod0", "ctr0"))


def test_09_10_selectors_and_alternatives(bench):
    lab = bench("gpu", "--num-devices=3")
    lab.run("cel-selector")
    lab.run("prioritized-alternatives")
    chosen = {result["request"] for result in lab.results("prioritized-alternatives")}
    assert chosen == {"gpu/older-gpu", "gpu/latest-gpu"}


def test_12_network_cards_are_shared_by_bandwidth(bench):
    lab = bench("net", "--num-devices=4")
    lab.run("net-consumable-capacity")
    assert "GRESS_RATE=" in lab.log("net-consumable-capacity", "pod0")


def test_14_and_17_shares_and_partitions(bench):
    lab = bench("gpu", "--num-devices=2", "--gpu-allow-multiple-allocations")
    name = "gpu-allow-multiple-allocations"
    lab.run(name)
    results = lab.results(name)
    assert len({result["shareID"] for result in results}) == len(results) > 1
    lab = bench("gpu", "--num-devices=2", "--gpu-partitions=4")
    lab.run("partitionable-devices")
    assert len(set(gpus(lab.log("partitionable-devices", "pod0")))) == 2


def test_a_driver_that_starts_again_finds_its_slices_and_claims(bench):
    lab = bench("gpu", "--num-devices=2")
    name = "basic-shared-claim-across-pods"
    lab.run(name)
    before = [o["metadata"]["resourceVersion"] for o in lab.cluster.client.list(SLICES).items]
    lab.driver.kill()
    lab.driver.wait()
    lab.start()
    time.sleep(3)
    assert [
        o["metadata"]["resourceVersion"] for o in lab.cluster.client.list(SLICES).items
    ] == before
    for pod in ("pod0", "pod1"):
        lab.cluster.client.delete(PODS, pod, name)
    lab.until(
        lambda: (
            not [
                c
                for c in lab.cluster.client.list(CLAIMS, name).items
                if c.get("status", {}).get("allocation")
            ]
        )
    )
