"""A simulated cluster with nodes and drivers, for tests: create, settle, read logs."""

import re
from pathlib import Path

import yaml

from dralab import SimulatedCluster
from dralab.runtime.client import Resource
from dralab.runtime.resources import PODS

SHARED = Path(__file__).parents[1] / ".." / "shared" / "testdata"


class DeviceLab(SimulatedCluster):
    """The simulated cluster of users, with what only tests want: creation, waits, short logs."""

    def __init__(self, *drivers, nodes=("n1",), **options):
        super().__init__(drivers=drivers, nodes=nodes, **options)

    def create(self, *documents):
        """Create objects, given as mappings or as YAML text."""
        made = []
        for document in documents:
            made += create_all(self.client, self.server.resources.kinds, document)
        self.wait(10)
        return made

    def log(self, namespace, pod, container="ctr0"):
        """Return what a container wrote."""
        return super().log(namespace, pod, container)

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
