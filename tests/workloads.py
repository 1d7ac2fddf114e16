"""Nodes, pods and what is around them in a few words; `builders` has the devices."""

import re

from dralab.allocation.problem import DeviceSelectorError


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
        # What a node offers beyond its own resources cannot be promised twice.
        if limits := {name: amount for name, amount in requests.items() if "/" in name}:
            container["resources"]["limits"] = limits
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
