"""Documents normalized so that the generation's own limits and types accept them.

What tolerant reading renamed is written out. Pools of dra-evolution that break its limits are split
by whole cards, and their names become identifiers; what cannot be normalized is returned.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

from dralab.prototypes.evolution import normalize as evolution
from dralab.prototypes.evolution.kinds import API_VERSION, MAX_DEVICES
from dralab.prototypes.findings import Finding, NormalizedDocument, of_level
from dralab.values.json_types import JsonDict
from dralab.values.patches import copied

CARD: Final = re.compile(r"^([a-z]+-\d+)(-|$)")


def repaired(
    item: Any, report: NormalizedDocument, api: str
) -> tuple[list[JsonDict], list[Finding]]:
    """Return the normalized objects of a document, and their remaining errors."""
    if report.state != "invalid":
        return [copied(report.document)], []
    if api != "evolution":
        return [], of_level(report.findings, "invalid")
    parts = item if isinstance(item, list) else [item]
    objects = [new for part in parts if isinstance(part, dict) for new in _pools(part)]
    left = [
        finding
        for each in objects
        for finding in of_level(evolution.normalize(each).findings, "invalid")
    ]
    return objects, left


def _pools(written: Mapping[str, Any]) -> list[JsonDict]:
    item: JsonDict = copied(dict(written))
    if item.get("kind") != "ResourcePool":
        return [item]
    item["apiVersion"] = API_VERSION
    spec = item["spec"]
    spec["driverName"] = spec["driverName"].split("/")[0]
    for capacity in spec.get("sharedCapacity") or ():
        capacity["name"] = identifier(capacity["name"])
    cards: dict[str, list[JsonDict]] = {}
    for device in spec.get("devices") or ():
        found = CARD.match(device["name"])
        cards.setdefault(found[1] if found else device["name"], []).append(device)
        device["name"] = device["name"].replace(".", "-")
        for attribute in device.get("attributes") or ():
            domain, slash, name = attribute["name"].rpartition("/")
            attribute["name"] = f"{domain}{slash}{identifier(name)}"
        for capacity in device.get("sharedCapacityConsumed") or ():
            capacity["name"] = identifier(capacity["name"])
    groups = _groups(list(cards.values()))
    name = item["metadata"]["name"]
    metadata = {k: v for k, v in item["metadata"].items() if v is not None}
    return [
        {
            **item,
            "metadata": metadata | ({"name": f"{name}-{n}"} if len(groups) > 1 else {}),
            "spec": {**spec, "sharedCapacity": _used(spec, devices), "devices": devices},
        }
        for n, devices in enumerate(groups)
    ]


def _groups(cards: Sequence[list[JsonDict]]) -> list[list[JsonDict]]:
    """Return devices in groups of at most so many, whole cards together, as even as can be."""
    total = sum(map(len, cards))
    parts = -(-total // MAX_DEVICES)
    per_part = -(-len(cards) // max(parts, 1))
    found = [
        [device for card in cards[at : at + per_part] for device in card]
        for at in range(0, len(cards), max(per_part, 1))
    ]
    return found or [[]]


def _used(spec: Mapping[str, Any], devices: Sequence[JsonDict]) -> list[JsonDict]:
    names = {
        capacity["name"]
        for device in devices
        for capacity in device.get("sharedCapacityConsumed") or ()
    }
    return [part for part in spec.get("sharedCapacity") or () if part["name"] in names]


def identifier(name: str) -> str:
    """Return a name as a C identifier: `gpu-0-memory` becomes `gpu_0_memory`."""
    return re.sub(r"[^A-Za-z0-9_]", "_", name)
