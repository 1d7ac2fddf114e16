"""Converts objects of a user's own generation to resource.k8s.io/v1.

What an author's claims ask for is in the problem's words already, and its expressions are today's:
so every own generation can be converted, without its author's help.
"""

from collections.abc import Iterable, Sequence

from dralab.allocation import problem as core
from dralab.objects.metadata import spec_of
from dralab.prototypes.conversion import reading
from dralab.prototypes.conversion.expressions import literal
from dralab.prototypes.conversion.neutral import Note, Scene
from dralab.prototypes.conversion.writing import V1, amount_text, label
from dralab.prototypes.own import ANY, OwnCluster, OwnGeneration
from dralab.values.json_types import JsonDict
from dralab.values.patches import copied
from dralab.values.quantity import render

EVERY_DEVICE = "every-device"


def read(generation: OwnGeneration, objects: Sequence[JsonDict]) -> Scene:
    """Return what normalized objects of an own generation mean, with notes of what is lost."""
    cluster, notes = generation.cluster(objects), list[Note]()
    made: dict[tuple[str, str, str], JsonDict] = {}
    for item in (*_slices(cluster), *_classes(cluster), *_pods(cluster, notes)):
        metadata = item["metadata"]
        made[item["kind"], metadata.get("namespace", ""), metadata["name"]] = item
    scene = reading.read(made.values(), "v1")
    scene.others += [
        item
        for item in objects
        if item.get("apiVersion") != generation.api_version and item.get("kind") != "Pod"
    ]
    scene.notes += notes
    return scene


def _slices(cluster: OwnCluster) -> list[JsonDict]:
    return [
        {
            "apiVersion": V1,
            "kind": "ResourceSlice",
            "metadata": {"name": each.name},
            "spec": {
                "driver": each.driver,
                "pool": {"name": each.pool, "generation": 1, "resourceSliceCount": 1},
                **(
                    {"nodeName": each.node_scope.node}
                    if each.node_scope.node
                    else {"allNodes": True}
                ),
                "devices": [_device(device) for device in each.devices],
            },
        }
        for each in cluster.slices
    ]


def _device(device: core.Device) -> JsonDict:
    prefix = f"{device.driver}/"
    return {
        "name": device.name,
        "attributes": {
            name.removeprefix(prefix): {value.type: value.values[0]}
            for name, value in device.attributes.items()
        },
        "capacity": {
            name.removeprefix(prefix): {"value": value.text or render(value.value)}
            for name, value in device.capacity.items()
        },
    }


def _classes(cluster: OwnCluster) -> list[JsonDict]:
    names = sorted({each.driver for each in cluster.slices})
    text = " || ".join(f"device.driver == {literal(name)}" for name in names) or "false"
    drivers = [{"cel": {"expression": text}}]
    return [
        {
            "apiVersion": V1,
            "kind": "DeviceClass",
            "metadata": {"name": EVERY_DEVICE if name == ANY else name},
            "spec": {"selectors": _selectors(each.selectors) or drivers},
        }
        for name, each in cluster.classes.items()
    ]


def _selectors(selectors: Sequence[core.DeviceSelector | None]) -> list[JsonDict]:
    return [{"cel": {"expression": each.text}} for each in selectors if each is not None]


def _pods(cluster: OwnCluster, notes: list[Note]) -> list[JsonDict]:
    found: list[JsonDict] = []
    for pod in cluster.pods():
        asked = list(cluster.generation.claims(pod, cluster.view))
        found += [_claim(wanted, notes) for _, wanted in asked]
        item = copied(pod) | {"apiVersion": "v1"}
        item["spec"]["resourceClaims"] = [
            {"name": label(wanted.name), "resourceClaimName": wanted.name} for _, wanted in asked
        ]
        _drop(item["spec"], cluster.generation.pod_fields)
        for container in spec_of(item).get("containers") or ():
            uses = [{"name": label(name)} for name in cluster.generation.uses(container)]
            if uses:
                container.setdefault("resources", {})["claims"] = uses
            _drop(container, cluster.generation.container_fields)
        found.append(item)
    return found


def _drop(part: JsonDict, fields: Iterable[str]) -> None:
    for name in fields:
        part.pop(name, None)


def _claim(wanted: core.Claim, notes: list[Note]) -> JsonDict:
    where = f"claim {wanted.namespace}/{wanted.name}"
    constraints = []
    for rule in wanted.constraints:
        if rule.kind == "total":
            amount = f"{rule.name}: {amount_text(rule.amount)}"
            message = "a total over several devices: v1 asks for a number of devices"
            if (note := Note("lost", where, amount, message)) not in notes:
                notes.append(note)
            continue
        field = "matchAttribute" if rule.kind == "match" else "distinctAttribute"
        names = sorted({name.partition("/")[0] for name in rule.requests})
        constraints.append({field: rule.name} | ({"requests": names} if names else {}))
    devices: JsonDict = {"requests": [_request(each) for each in wanted.requests]}
    return {
        "apiVersion": V1,
        "kind": "ResourceClaim",
        "metadata": {"name": wanted.name, "namespace": wanted.namespace},
        "spec": {"devices": devices | ({"constraints": constraints} if constraints else {})},
    }


def _request(request: core.Request) -> JsonDict:
    if not request.prioritized:
        return {"name": request.name, "exactly": _exactly(request.subrequests[0])}
    ways = [
        {"name": f"option-{number}", **_exactly(way)}
        for number, way in enumerate(request.subrequests)
    ]
    return {"name": request.name, "firstAvailable": ways}


def _exactly(way: core.SubRequest) -> JsonDict:
    found: JsonDict = {
        "deviceClassName": EVERY_DEVICE if way.class_name == ANY else way.class_name,
        "allocationMode": way.mode,
    }
    if way.mode == "ExactCount":
        found["count"] = way.count
    if way.selectors:
        found["selectors"] = _selectors(way.selectors)
    return found | ({"adminAccess": True} if way.admin else {})
