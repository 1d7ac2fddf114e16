"""Nodes, pods and what is around them in a few words; `builders` has the devices."""

import re

from dralab.allocation.problem import DeviceSelectorError
from dralab.api.status import ApiError
from dralab.apiserver.server import ApiServer
from dralab.apiserver.storage import MemoryStore
from dralab.kernel.randomness import Randomness
from dralab.runtime.local import LocalClient
from dralab.runtime.manager import Manager
from dralab.runtime.resources import NODES, PODS
from dralab.runtime.simulated import SimulatedEngine
from fakes import FakeServer


class SmallExpressions:
    """Conditions of the form `device.driver == "x"` and `device.attributes["d"].name == value`."""

    FORM = re.compile(
        r'device\.(driver|attributes\["(?P<domain>[^"]+)"\]\.(?P<name>\w+)) == (?P<value>.+)'
    )

    def __init__(self, text):
        self.text = text
        self.found = self.FORM.fullmatch(text)
        domain, name = (self.found["domain"], self.found["name"]) if self.found else ("", "")
        self.path = ("attributes", domain, name) if domain else ("driver",)
        self.reads = frozenset({self.path})

    def matches(self, device):
        if self.found is None:
            raise DeviceSelectorError(f"cannot read {self.text}", compiling=True)
        value = self.found["value"].strip('"')
        if self.path == ("driver",):
            return device.driver == value
        attribute = device.attributes.get(f"{self.path[1]}/{self.path[2]}")
        if attribute is None:
            raise DeviceSelectorError(f"no such key: {self.path[2]}")
        return str(attribute.values[0]) == value


class SmallEnvironment:
    def selector(self, text):
        return SmallExpressions(text)

    def derivation(self, text):
        raise NotImplementedError(text)


def worker(name, *, cpu="4", memory="8Gi", pods="110", labels=None, taints=None, **more):
    """A node; `more` are extended resources, dots and slashes written as in the API."""
    spec = {"taints": taints} if taints else {}
    offer = {"cpu": cpu, "memory": memory, "pods": pods, **more.pop("extra", {})}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name, **(labels or {})}},
        "spec": spec | more,
        "status": {
            "capacity": offer,
            "allocatable": offer,
            "conditions": [{"type": "Ready", "status": "True"}],
        },
    }


def pod(name, *, claims=None, requests=None, labels=None, namespace="default", status=None, **spec):
    """A pod of one container; `claims` maps entries to names of claims."""
    container = {"name": "main", "image": "busybox"}
    if requests:
        container["resources"] = {"requests": requests}
    if claims:
        spec["resourceClaims"] = [
            {"name": entry, "resourceClaimName": claim} for entry, claim in claims.items()
        ]
    made = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": namespace, "labels": labels or {}},
        "spec": {"containers": [container], **spec},
    }
    return made | ({"status": status} if status else {})


class Lab:
    """A fake server, a manager on a simulated engine, and time to spend."""

    def __init__(self):
        self.engine = SimulatedEngine()
        self.server = FakeServer(self.engine.clock)
        self.manager = Manager(self.engine, self.server, Randomness(7))

    def start(self):
        self.manager.start()
        self.engine.settle()

    def add(self, resource, *objects):
        added = self.server.add(resource, *objects)
        self.engine.settle()
        return added

    def wait(self, seconds):
        self.engine.run(self.engine.clock.now() + int(seconds * 10**9))

    def get(self, resource, name, namespace="default"):
        return self.server.get(resource, name, namespace if resource.namespaced else "")

    def names(self, resource):
        return [obj["metadata"]["name"] for obj in self.server.all(resource)]


class RealLab:
    """The real server in this process, on a simulated clock; nodes and kubelets are played."""

    START = 1_800_000_000 * 10**9

    def __init__(self):
        self.engine = SimulatedEngine()
        self.engine.clock.advance_to(self.START)
        self.api = ApiServer(MemoryStore(), clock=self.engine.clock, randomness=Randomness(1))
        self.client = LocalClient(self.api.resources, self.api.hub)
        self.manager = Manager(self.engine, self.client, Randomness(7))

    def start(self):
        self.manager.start()
        self.settle()

    def settle(self):
        """Let everything happen that needs no more than a moment: retries included."""
        self.wait(0.2)

    def wait(self, seconds):
        self.engine.run(self.engine.clock.now() + int(seconds * 10**9))

    def add(self, resource, *objects):
        return [
            self.client.create(resource, obj, obj["metadata"].get("namespace", ""))
            for obj in objects
        ]

    def add_node(self, name, **more):
        """A node whose status is there from the start, as a kubelet's would be soon after."""
        obj = worker(name, **more)
        made = self.client.create(NODES, obj)
        if made.get("status") != obj["status"]:
            self.client.update(NODES, {**made, "status": obj["status"]}, subresource="status")

    def get(self, resource, name, namespace="default"):
        return self.client.get(resource, name, namespace if resource.namespaced else "")

    def find(self, resource, name, namespace="default"):
        try:
            return self.get(resource, name, namespace)
        except ApiError as error:
            if error.reason != "NotFound":
                raise
            return None

    def all(self, resource, namespace="", **selectors):
        return list(self.client.list(resource, namespace, **selectors).items)

    def names(self, resource, namespace="default"):
        return sorted(obj["metadata"]["name"] for obj in self.all(resource, namespace))

    def patch(self, resource, name, patch, namespace="default", **options):
        space = namespace if resource.namespaced else ""
        return self.client.patch(resource, name, patch, space, **options)

    def delete(self, resource, name, namespace="default", **options):
        space = namespace if resource.namespaced else ""
        self.client.delete(resource, name, space, options=options or None)

    def set_status(self, resource, name, namespace="default", **status):
        obj = self.get(resource, name, namespace)
        body = {**obj, "status": {**(obj.get("status") or {}), **status}}
        return self.client.update(resource, body, subresource="status")

    # --- what a kubelet would do

    def run_pods(self):
        """Let every pod with a node run and be ready, and every deleted one end."""
        for obj in self.all(PODS):
            name, namespace = obj["metadata"]["name"], obj["metadata"]["namespace"]
            if "deletionTimestamp" in obj["metadata"]:
                self.delete(PODS, name, namespace, gracePeriodSeconds=0)
            elif obj["spec"].get("nodeName") and obj["status"]["phase"] == "Pending":
                ready = {
                    "type": "Ready",
                    "status": "True",
                    "lastTransitionTime": self.manager.now(),
                }
                others = [c for c in obj["status"].get("conditions", ()) if c["type"] != "Ready"]
                self.set_status(PODS, name, namespace, phase="Running", conditions=[*others, ready])

    def rounds(self, count):
        """Let controllers and kubelets take turns."""
        for _ in range(count):
            self.run_pods()
            self.wait(1)

    def end_pod(self, name, phase="Succeeded", namespace="default"):
        obj = self.get(PODS, name, namespace)
        others = [c for c in obj["status"].get("conditions", ()) if c["type"] != "Ready"]
        ready = {"type": "Ready", "status": "False", "lastTransitionTime": self.manager.now()}
        self.set_status(PODS, name, namespace, phase=phase, conditions=[*others, ready])

    def bind(self, name, node, namespace="default"):
        body = {"metadata": {"name": name}, "target": {"kind": "Node", "name": node}}
        self.client.post(PODS, name, "binding", body, namespace)
