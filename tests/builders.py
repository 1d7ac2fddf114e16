"""The small language of cases: devices, claims, nodes and pods in a few words.

`claim("c0", request("r0", "gpu", count=2))`, `pool("gpus", device("d0", model="a"))`.
Everything returned is a plain mapping that a test may change.
"""

import re
from pathlib import Path
from typing import Any

from dralab.values.json_types import JsonDict

API = "resource.k8s.io/v1"
DRIVER = "gpu.example.com"
NODE = "node-1"
SHARED = Path(__file__).parents[1] / ".." / "shared"
SEMVER = re.compile(r"\d+\.\d+\.\d+", re.ASCII)


def value(of: Any) -> JsonDict:
    """An attribute: whole numbers, truths, versions and texts are told apart by their form."""
    if isinstance(of, dict):
        return of
    if isinstance(of, bool):
        return {"bool": of}
    if isinstance(of, int):
        return {"int": of}
    if isinstance(of, list):
        (kind,) = {next(iter(value(item))) for item in of}
        return {f"{kind}s": list(of)}
    return {"version" if SEMVER.fullmatch(of) else "string": of}


def device(
    name: str,
    *,
    consumes: JsonDict | None = None,
    capacity: JsonDict | None = None,
    taints: list[JsonDict] | None = None,
    shared: bool = False,
    more: JsonDict | None = None,
    **attributes: Any,
) -> JsonDict:
    """A device; `consumes` maps a counter set to its counters, `capacity` names to amounts."""
    made: JsonDict = {"name": name}
    if attributes:
        made["attributes"] = {key: value(item) for key, item in attributes.items()}
    if capacity:
        made["capacity"] = {
            key: item if isinstance(item, dict) else {"value": item}
            for key, item in capacity.items()
        }
    if consumes:
        made["consumesCounters"] = [
            {"counterSet": key, "counters": counters(item)} for key, item in consumes.items()
        ]
    if taints:
        made["taints"] = taints
    if shared:
        made["allowMultipleAllocations"] = True
    return made | (more or {})


def counters(amounts: JsonDict) -> JsonDict:
    return {name: {"value": str(amount)} for name, amount in amounts.items()}


def counter_set(name: str, **amounts: Any) -> JsonDict:
    return {"name": name, "counters": counters(amounts)}


def taint(key: str, effect: str = "NoSchedule", value: str = "") -> JsonDict:
    return {"key": key, "effect": effect} | ({"value": value} if value else {})


def pool(
    name: str,
    *devices: JsonDict,
    driver: str = DRIVER,
    node: str | None = NODE,
    counters: list[JsonDict] | None = None,
    generation: int = 1,
    **more: Any,
) -> list[JsonDict]:
    """The slices of a pool: one of devices, and one of counter sets where there are any."""
    where: JsonDict = {"nodeName": node} if node else {"allNodes": True}
    count = 2 if counters else 1

    def part(suffix: str, **contents: Any) -> JsonDict:
        spec = {
            "driver": driver,
            "pool": {"name": name, "generation": generation, "resourceSliceCount": count},
            **where,
            **contents,
        }
        return obj("ResourceSlice", f"{name}{suffix}", spec=spec)

    slices = [part("", devices=list(devices), **more)]
    return slices + ([part("-counters", sharedCounters=counters)] if counters else [])


def obj(kind: str, name: str, *, namespace: str = "", api: str = API, **parts: Any) -> JsonDict:
    metadata = {"name": name} | ({"namespace": namespace} if namespace else {})
    return {"apiVersion": api, "kind": kind, "metadata": metadata, **parts}


def device_class(name: str, *selectors: str, **spec: Any) -> JsonDict:
    made = dict(spec) | ({"selectors": cel(*selectors)} if selectors else {})
    return obj("DeviceClass", name, spec=made)


def cel(*expressions: str) -> list[JsonDict]:
    return [{"cel": {"expression": expression}} for expression in expressions]


def ask(class_name: str = "gpu", *selectors: str, count: int | str = 1, **more: Any) -> JsonDict:
    """What `exactly` and alternatives say; `count="All"` asks for all devices."""
    made: JsonDict = {"deviceClassName": class_name}
    if selectors:
        made["selectors"] = cel(*selectors)
    made |= (
        {"allocationMode": "All"}
        if count == "All"
        else {"allocationMode": "ExactCount", "count": count}
    )
    return made | more


def request(
    name: str, class_name: str = "gpu", *selectors: str, count: int | str = 1, **more: Any
) -> JsonDict:
    return {"name": name, "exactly": ask(class_name, *selectors, count=count, **more)}


def first_of(name: str, **alternatives: JsonDict) -> JsonDict:
    """`first_of("r", big=ask("gpu", count=2), small=ask("gpu"))`."""
    subs = [{"name": key} | item for key, item in alternatives.items()]
    return {"name": name, "firstAvailable": subs}


def claim(
    name: str,
    *requests: JsonDict,
    match: str | None = None,
    distinct: str | None = None,
    constraints: list[JsonDict] | None = None,
    config: list[JsonDict] | None = None,
    namespace: str = "",
    **more: Any,
) -> JsonDict:
    rules = list(constraints or ())
    rules += [{"matchAttribute": match}] if match else []
    rules += [{"distinctAttribute": distinct}] if distinct else []
    devices: JsonDict = {"requests": list(requests)}
    devices |= {"constraints": rules} if rules else {}
    devices |= {"config": config} if config else {}
    return obj("ResourceClaim", name, namespace=namespace, spec={"devices": devices}, **more)


def node(name: str = NODE, **labels: str) -> JsonDict:
    return obj("Node", name, api="v1") | {"metadata": {"name": name, "labels": labels}}


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


def definition(group, version, kind, scope="Namespaced"):
    """A CustomResourceDefinition that accepts any field, with a status."""
    plural = f"{kind.lower()}es" if kind.endswith("s") else f"{kind.lower()}s"
    schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    return {
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.{group}"},
        "spec": {
            "group": group,
            "scope": scope,
            "names": {
                "kind": kind, "listKind": f"{kind}List", "plural": plural, "singular": kind.lower(),
            },
            "versions": [
                {
                    "name": version, "served": True, "storage": True,
                    "schema": {"openAPIV3Schema": schema}, "subresources": {"status": {}},
                }
            ],
        },
    }  # fmt: skip
