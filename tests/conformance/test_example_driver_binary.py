"""The real dra-example-driver, unmodified, on a node of ours: the end-to-end checks again."""

import base64
import json
import os
import shutil
import socket
import subprocess
import tempfile
import time
from pathlib import Path

import pytest

import stockparts
from dralab.api.resource.features import with_gates
from dralab.api.status import ApiError
from dralab.cluster import Cluster, Options
from dralab.components.control_plane import ControlPlane
from dralab.components.nodes import NodeOptions, Nodes
from dralab.drivers.catalog import device_class
from dralab.objects.pods import is_ready
from dralab.runtime.client import Resource
from dralab.runtime.resources import CLAIMS, CLASSES, PODS, SLICES
from exampledriver import SHARED, gpus, of_gpu, variable
from labs import create_all
from webhookserver import authority, server_pem

HOOKS = Resource(
    "admissionregistration.k8s.io", "v1", "validatingwebhookconfigurations", namespaced=False
)
COMMANDS = "sigs.k8s.io/dra-example-driver/cmd"
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
    return program("dra-example-kubeletplugin", "DRALAB_EXAMPLE_DRIVER", tmp_path_factory)


@pytest.fixture(scope="session")
def controller(tmp_path_factory):
    return program("dra-example-controller", "DRALAB_EXAMPLE_CONTROLLER", tmp_path_factory)


def program(name, variable, folders):
    """Return a program of the original's: the one that a variable names, or one built here."""
    given = os.environ.get(variable)
    if given:
        return Path(given)
    if shutil.which("go") is None:
        pytest.skip(f"no Go toolchain, and {variable} names no binary")
    place = folders.mktemp(name)
    (place / "go.mod").write_text(GO_MOD)
    built = subprocess.run(
        ["go", "build", "-mod=mod", "-o", name, f"{COMMANDS}/{name}"],
        cwd=place,
        capture_output=True,
        text=True,
        check=False,
        timeout=900,
    )
    if built.returncode:
        pytest.skip(f"{name} does not build here: {built.stderr[-300:]}")
    return place / name


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
        self.others = []

    def start(self):
        (self.node / "plugins" / "x").mkdir(parents=True, exist_ok=True)
        with (self.root / "driver.log").open("a") as log:
            self.driver = subprocess.Popen(self.command, stdout=log, stderr=log)
        self.until(
            lambda: any(o["spec"].get("devices") for o in self.cluster.client.list(SLICES).items)
        )

    def beside(self, command):
        """Run another program of the driver's until the test is over."""
        log = (self.root / "driver.log").open("a")
        command = [*command, f"--kubeconfig={self.cluster.kubeconfig}"]
        self.others.append(subprocess.Popen(command, stdout=log, stderr=log))
        log.close()

    def stop(self):
        self.driver.terminate()
        return self.driver.wait(20)

    def until(self, done, seconds=40):
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            if done():
                return
            time.sleep(0.2)
        log = self.root / "driver.log"
        raise AssertionError(log.read_text()[-2000:] if log.exists() else "nothing has started")

    def devices(self):
        slices = self.cluster.client.list(SLICES).items
        found = [device for o in slices for device in o["spec"].get("devices", ())]
        assert found
        return found

    def run(self, name, count=1):
        create_all(
            self.cluster.client,
            self.cluster.server.resources.kinds,
            (EXAMPLES / name / f"{name}.yaml").read_text(),
        )
        client = self.cluster.client
        self.until(
            lambda: (
                len(client.list(PODS, name).items) >= count
                and all(map(is_ready, client.list(PODS, name).items))
            )
        )

    def log(self, namespace, pod, container="ctr0"):
        found = self.nodes.kubelets.find_container(
            self.cluster.client.get(PODS, pod, namespace), container
        )
        return "".join(f"{line}\n" for _, line in found.log.read()[0])

    def results(self, namespace):
        claims = self.cluster.client.list(CLAIMS, namespace).items
        return [r for claim in claims for r in claim["status"]["allocation"]["devices"]["results"]]


@pytest.fixture
def bench(binary):
    started = []

    def make(profile, *options, extended="", gates="", without=()):
        root = Path(tempfile.mkdtemp(prefix="b"))
        nodes = Nodes(NodeOptions(nodes=1, root=root))
        features = Options(features=with_gates(gates))
        cluster = Cluster(features, components=[ControlPlane(without=without), nodes])
        cluster.__enter__()
        started.append((cluster, root))
        cluster.client.create(CLASSES, device_class(f"{profile}.example.com", extended=extended))
        found = Bench(cluster, nodes, root, binary, f"--device-profile={profile}", *options)
        started[-1] = (cluster, root, found)
        found.start()
        return found

    yield make
    for cluster, root, *found in started:
        for each in found:
            for running in (each.driver, *each.others):
                if running is not None and running.poll() is None:
                    running.kill()
                    running.wait()
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


def test_04_and_07_a_claim_of_two_pods_and_admin_access(bench):
    lab = bench("gpu", "--num-devices=2")
    name = "basic-shared-claim-across-pods"
    lab.run(name)
    logs = [lab.log(name, pod) for pod in ("pod0", "pod1")]
    assert gpus(logs[0]) == gpus(logs[1])
    for log in logs:
        assert of_gpu(log, gpus(log)[0], "SHARING_STRATEGY") == "TimeSlicing"
        assert of_gpu(log, gpus(log)[0], "TIMESLICE_INTERVAL") == "Default"
    lab.run("admin-access")
    assert variable(lab.log("admin-access", "pod0"), "DRA_ADMIN_ACCESS") == "true"


def test_05_06_a_claims_parameters_and_init_containers(bench):
    lab = bench("gpu", "--num-devices=3")
    name = "basic-resourceclaim-opaque-config"
    lab.run(name)
    log = lab.log(name, "pod0", "sp-ctr0")
    assert of_gpu(log, gpus(log)[0], "PARTITION_COUNT") == "10"
    name = "initcontainer-shared-gpu"
    lab.run(name)
    assert gpus(lab.log(name, "pod0", "init0")) == gpus(lab.log(name, "pod0", "ctr0"))


def test_08_extended_resources_become_claims(bench):
    lab = bench("gpu", "--num-devices=2", extended="example.com/gpu")
    name = "extended-resource-request"
    lab.run(name)
    assert gpus(lab.log(name, "pod0")) != gpus(lab.log(name, "pod1"))
    wanted = {
        "pod0": "deviceclass.resource.kubernetes.io/gpu.example.com",
        "pod1": "example.com/gpu",
    }
    for pod, resource in wanted.items():
        assert len(gpus(lab.log(name, pod))) == 1
        status = lab.cluster.client.get(PODS, pod, name)["status"]["extendedResourceClaimStatus"]
        assert status["resourceClaimName"]
        (mapping,) = status["requestMappings"]
        assert (mapping["containerName"], mapping["resourceName"]) == ("ctr0", resource)
        assert mapping["requestName"]


def test_09_10_selectors_and_alternatives(bench):
    lab = bench("gpu", "--num-devices=3")
    lab.run("cel-selector")
    lab.run("prioritized-alternatives")
    chosen = {result["request"] for result in lab.results("prioritized-alternatives")}
    assert chosen == {"gpu/older-gpu", "gpu/latest-gpu"}


def test_11_a_pod_group_shares_a_claim(bench):
    lab = bench("gpu", "--num-devices=2")
    name = "podgroup-resourceclaimtemplate"
    lab.run(name, 4)
    groups = {}
    for pod in lab.cluster.client.list(PODS, name).items:
        found = gpus(lab.log(name, pod["metadata"]["name"]))
        group = pod["spec"]["schedulingGroup"]["podGroupName"]
        groups.setdefault(group, []).append(tuple(found))
    assert sorted(map(len, groups.values())) == [2, 2]
    assert all(len(set(found)) == 1 for found in groups.values())
    assert len({found[0] for found in groups.values()}) == 2


def test_12_network_cards_are_shared_by_bandwidth(bench):
    lab = bench("net", "--num-devices=4")
    lab.run("net-consumable-capacity")
    assert "GRESS_RATE=" in lab.log("net-consumable-capacity", "pod0")


@pytest.mark.parametrize("partitions", [0, 4], ids=["13_14_whole", "15_16_partitioned"])
def test_13_to_16_devices_are_shared_by_capacity(bench, partitions):
    shared = "--gpu-allow-multiple-allocations"
    lab = bench("gpu", "--num-devices=2", f"--gpu-partitions={partitions}", shared)
    for device in lab.devices():
        assert device["allowMultipleAllocations"]
        for key in ("memory", "compute"):
            policy = device["capacity"][key]["requestPolicy"]["validRange"]
            assert {"min", "step", "max"} <= policy.keys()
    name = "gpu-allow-multiple-allocations" + ("-partitionable" if partitions else "")
    lab.run(name)
    results = lab.results(name)
    assert len({result["shareID"] for result in results}) == len(results) > 1
    assert all(
        result["consumedCapacity"][key] not in {"", "0"}
        for result in results
        for key in ("memory", "compute")
    )
    for pod in lab.cluster.client.list(PODS, name).items:
        log = lab.log(name, pod["metadata"]["name"])
        for gpu in gpus(log):
            assert of_gpu(log, gpu, "MEMORY")
            assert of_gpu(log, gpu, "COMPUTE")


def test_17_partitions_are_devices(bench):
    lab = bench("gpu", "--num-devices=2", "--gpu-partitions=4")
    lab.run("partitionable-devices")
    assert len(set(gpus(lab.log("partitionable-devices", "pod0")))) == 2


def cpus_of_the_node(lab):
    """Run check 18; return what the pod's status says of it."""
    for device in lab.devices():
        mapping = device["nodeAllocatableResourceMappings"]["cpu"]
        assert mapping["capacityKey"] == "cpu.example.com/cpu"
    name = "native-resource-request"
    lab.run(name)
    client = lab.cluster.client
    (claim,) = client.list(CLAIMS, name).items
    pod = client.get(PODS, "pod0", name)
    (status,) = pod["status"]["nodeAllocatableResourceClaimStatuses"]
    assert status["resourceClaimName"] == claim["metadata"]["name"]
    assert status["containers"] == ["ctr0"]
    assert status["resources"] == {"cpu": "2"}
    first, second = lab.results(name)
    assert first["device"] == second["device"]
    assert first["shareID"]
    assert second["shareID"]
    assert first["shareID"] != second["shareID"]
    return status


NUMA = ("cpu", "--cpu-numa-nodes=1", "--cpus-per-numa-node=2")
COUNTED = "DRANodeAllocatableResources"


def test_18_cpus_of_a_device_are_cpus_of_the_node(bench):
    status = cpus_of_the_node(bench(*NUMA, gates=f"{COUNTED}=true"))
    assert status["mapping"] == [{"name": "cpu", "quantity": "2"}]


@stockparts.needs(stockparts.SCHEDULER)
def test_18_the_unmodified_scheduler_counts_the_same(bench, tmp_path):
    lab = bench(*NUMA, gates=f"{COUNTED}=true", without=["scheduler"])
    with stockparts.scheduler(lab.cluster.kubeconfig, tmp_path, gates=(COUNTED,)):
        cpus_of_the_node(lab)


def test_22_and_23_a_pod_waits_until_its_device_is_ready(bench, controller):
    lab = bench("gpu", "--num-devices=2", "--binding-conditions")
    assert all(device["bindingConditions"] for device in lab.devices())
    lab.beside(
        [controller, "--driver-name=gpu.example.com", "--enable-plugin=BindingConditions"],
    )
    lab.run("binding-conditions")
    assert len(gpus(lab.log("binding-conditions", "pod0"))) == 1


INVALID = {
    "sharing": {"strategy": "TimeSlicing", "timeSlicingConfig": {"interval": "InvalidInterval"}}
}
REQUEST = {"deviceClassName": "gpu.example.com"}
OPAQUE = {
    "driver": "gpu.example.com",
    "parameters": {
        "apiVersion": "gpu.resource.example.com/v1alpha1", "kind": "GpuConfig", **INVALID,
    },
}  # fmt: skip
CONFIG = [{"opaque": OPAQUE}]


@pytest.mark.parametrize(
    ("kind", "version", "spec"),
    [
        ("ResourceClaim", "v1", {"requests": [{"name": "gpu", "exactly": REQUEST}]}),
        ("ResourceClaim", "v1beta1", {"requests": [{"name": "gpu", **REQUEST}]}),
        ("ResourceClaimTemplate", "v1", {"requests": [{"name": "gpu", "exactly": REQUEST}]}),
    ],
)
def test_19_to_21_the_webhook_refuses_wrong_parameters(webhook, kind, version, spec):
    devices = {"devices": {**spec, "config": CONFIG}}
    body = {"apiVersion": f"resource.k8s.io/{version}", "kind": kind, "metadata": {"name": version}}
    body["spec"] = {"spec": devices} if kind.endswith("Template") else devices
    resource = Resource("resource.k8s.io", version, f"{kind.lower()}s", namespaced=True)
    with pytest.raises(ApiError, match="unknown time-slice interval: InvalidInterval"):
        webhook.create(resource, body, "default")
    good = json.loads(json.dumps(body).replace("InvalidInterval", "Long"))
    assert webhook.create(resource, good, "default")["metadata"]["name"] == version


@pytest.fixture(scope="module")
def webhook(tmp_path_factory):
    """A client of a server that asks the driver's webhook about claims and templates."""
    hook = program("dra-example-webhook", "DRALAB_EXAMPLE_WEBHOOK", tmp_path_factory)
    place = tmp_path_factory.mktemp("webhook")
    (place / "pem").write_bytes(server_pem())
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    files = [f"--tls-cert-file={place / 'pem'}", f"--tls-private-key-file={place / 'pem'}"]
    with (
        Cluster() as cluster,
        (place / "log").open("w") as log,
        subprocess.Popen([hook, *files, f"--port={port}"], stderr=log) as running,
    ):
        url = f"https://127.0.0.1:{port}/validate-resource-claim-parameters"
        authority_ = base64.b64encode(authority().pem).decode()
        rule = {
            "apiGroups": ["resource.k8s.io"],
            "apiVersions": ["v1beta1", "v1beta2", "v1"],
            "operations": ["CREATE", "UPDATE"],
            "resources": ["resourceclaims", "resourceclaimtemplates"],
        }
        configured = {
            "name": "dra.example.com",
            "rules": [rule],
            "clientConfig": {"url": url, "caBundle": authority_},
            "admissionReviewVersions": ["v1"],
            "sideEffects": "None",
        }
        body = {"metadata": {"name": "webhook"}, "webhooks": [configured]}
        try:
            until_open(port)
            cluster.client.create(HOOKS, body)
            yield cluster.client
        finally:
            running.kill()


def until_open(port):
    for _ in range(400):
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.05)
    raise AssertionError("the webhook does not listen")


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
