"""A simulated cluster with nodes and drivers, for tests: create, settle, read logs."""

import re
from pathlib import Path

import yaml

from dralab.components.nodes import install
from dralab.components.simulated import SimulatedCluster
from dralab.drivers.catalog import device_class
from dralab.drivers.publishing import SlicePublisher
from dralab.node.kubelets import Kubelets
from dralab.node.node_spec import NodeSpec
from dralab.node.simulated_runtime import SimulatedRuntime
from dralab.runtime.client import Resource
from dralab.runtime.resources import CLASSES, PODS

SHARED = Path(__file__).parents[1] / ".." / "shared" / "testdata"


class DeviceLab(SimulatedCluster):
    """Server, scheduler, controllers, nodes, drivers; all in simulated time."""

    def __init__(self, *drivers, nodes=("n1",), extended="", **options):
        super().__init__(**options)
        self.kubelets = Kubelets(self.manager, SimulatedRuntime(self.engine))
        self.publisher = SlicePublisher(self.manager, mend_after=0)
        self.drivers = [make(node) for node in nodes for make in drivers]

        def on_node(kubelet):
            for driver in self.drivers:
                if driver.node == kubelet.name:
                    install(kubelet, driver, self.publisher)

        self.kubelets.on_node = on_node
        for name in sorted({driver.name for driver in self.drivers}):
            self.client.create(CLASSES, device_class(name, extended=extended))
        for node in nodes:
            self.kubelets.add_node(NodeSpec(name=node))
        self.wait(1)

    def create(self, *documents):
        """Create objects, given as mappings or as YAML text."""
        made = []
        for document in documents:
            made += create_all(self.client, self.server.resources.kinds, document)
        self.wait(10)
        return made

    def pods(self, namespace):
        """Return the pods of a namespace by name."""
        return {pod["metadata"]["name"]: pod for pod in self.client.list(PODS, namespace).items}

    def log(self, namespace, pod, container="ctr0"):
        """Return what a container wrote."""
        run = self.kubelets.find_container(self.client.get(PODS, pod, namespace), container)
        return "".join(f"{line}\n" for _, line in run.log.read()[0])

    def delete(self, namespace, *names):
        """Delete pods and let them end."""
        for name in names:
            self.client.delete(PODS, name, namespace)
        self.wait(60)


def create_all(client, kinds, document):
    """Create the objects of a mapping or of a YAML text; return them as they are stored."""
    made = []
    for obj in yaml.safe_load_all(document) if isinstance(document, str) else [document]:
        if obj is not None:
            namespace = obj["metadata"].get("namespace", "")
            made.append(client.create(resource_of(obj, kinds), obj, namespace))
    return made


def resource_of(obj, kinds):
    group, _, version = obj["apiVersion"].rpartition("/")
    for kind in kinds:
        if (kind.group, kind.version, kind.kind) == (group, version, obj["kind"]):
            return Resource(kind.group, kind.version, kind.plural, kind.namespaced)
    raise AssertionError(f"no kind {obj['apiVersion']} {obj['kind']}")


def gpus(log):
    """Return the GPUs that a log names, as the end-to-end suite of the example driver finds them."""
    return re.findall(r'^declare -x GPU_DEVICE_[A-Z0-9_]+="(gpu-.+)"$', log, re.MULTILINE)


def variable(log, name):
    """Return the value of an exported variable."""
    found = re.findall(rf'^declare -x {name}="(.+)"$', log, re.MULTILINE)
    assert len(found) == 1, (name, log)
    return found[0]


def of_gpu(log, gpu, name):
    """Return a property of a GPU in a log."""
    own = gpu.removeprefix("gpu-").upper().replace("-", "_")
    return variable(log, f"GPU_DEVICE_{own}_{name}")
