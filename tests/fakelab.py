"""One or more nodes with the fake driver of the demonstrations, in its three forms."""

import re
from pathlib import Path

from dralab import SimulatedCluster as LabCluster
from dralab.components.nodes import FAKE_NODE, NodeOptions, assemble
from dralab.components.simulated import SimulatedCluster
from dralab.drivers.catalog import device_class
from dralab.drivers.fake.demo import DRIVER, FakeDevices
from dralab.runtime.resources import (
    ALLOCATION_STATES,
    CLASSES,
    CLASSIC_CLASSES,
    NAMESPACES,
)

EXAMPLES = Path(__file__).parents[1] / "examples"
CLASS = "fake.3-shake.com"


class ClassicLab(LabCluster):
    """Classic DRA: the driver's controller gives devices."""

    folder = EXAMPLES / "50-fake-driver"

    def __init__(self, *nodes):
        SimulatedCluster.__init__(self, profiles=("v1", "classic"))
        wanted = NodeOptions(drivers=("fake",), classic=True, named=nodes)
        self.kubelets = assemble(self.manager, wanted)
        self.wait(1)

    def apply(self, *numbers):
        """Create the objects of demonstrations, and let their pods start."""
        for number in numbers:
            self.create((self.folder / f"fake-test{number}.yaml").read_text())
        self.wait(40)

    def devices(self, namespace, pod, container="ctr0"):
        """Return the names in a container's variables FAKE_DEVICE_<i>, by i."""
        log = self.log(namespace, pod, container)
        found = re.findall(r"^export FAKE_DEVICE_(\d+)='(.+)'$", log, re.MULTILINE)
        assert sorted(int(number) for number, _ in found) == list(range(len(found)))
        return [name for _, name in sorted(found, key=lambda each: int(each[0]))]

    def remove(self, *namespaces):
        """Delete namespaces with all that is in them."""
        for namespace in namespaces:
            self.client.delete(NAMESPACES, namespace)
        self.wait(60)

    def state(self, node=FAKE_NODE):
        """Return a node's NodeAllocationState."""
        return self.client.get(ALLOCATION_STATES, node, "fake-system")


class StructuredLab(ClassicLab):
    """The same class with structured parameters: the scheduler gives devices."""

    def __init__(self, *nodes):
        super().__init__(*nodes)
        self.client.patch(CLASSIC_CLASSES, CLASS, {"structuredParameters": True})


class TodayLab(ClassicLab):
    """The same node and devices by today's API."""

    folder = EXAMPLES / "51-fake-driver-today"

    def __init__(self):
        LabCluster.__init__(self, drivers=[FakeDevices], nodes=[FAKE_NODE])
        self.client.create(CLASSES, device_class(DRIVER, name=CLASS))
