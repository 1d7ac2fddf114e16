"""Validation of the files of stages K0 and K1: schemas first, then other rules."""

from collections.abc import Iterable
from typing import Any, Final

from dralab.prototypes.findings import Finding
from dralab.prototypes.k8srm.early.kinds import NODES, POD
from dralab.prototypes.k8srm.normalize import check_attributes
from dralab.prototypes.shape import Shape
from dralab.prototypes.written import Written
from dralab.values.quantity import parse_any

NODE_FILE: Final = Shape(NODES)
POD_FILE: Final = Shape(POD)
CAPACITIES: Final = ("counter", "quantity", "block", "accessMode")
REQUESTS: Final = ("counter", "quantity", "accessMode")


def nodes_problems(value: Any) -> list[Finding]:
    """Return the errors of a file of nodes; nulls count as absent and are dropped."""
    found = NODE_FILE.findings(value)
    if found:
        return found
    for index, node in enumerate(value):
        for pool in Written(node, f"[{index}]", found).each("pools"):
            check_attributes(pool)
            for device in _either(pool, "devices", "resources"):
                check_attributes(device)
                for capacity in device.each("capacities"):
                    _one_of(capacity, CAPACITIES)
                    _grouped(capacity)
                    for kind in ("quantity", "block"):
                        _amounts(capacity.below(kind))
    return [each for each in found if each.level == "invalid"]


def pod_problems(value: Any) -> list[Finding]:
    """Return the errors of the file of a pod's claim."""
    found = POD_FILE.findings(value)
    if found:
        return found
    pod = Written(value, "", found)
    parts = [pod.below("podClaim"), *pod.each("containerClaims")]
    for part in (pod, *parts):
        if part.fields.get("topologies"):
            part.invalid("topologies", "is not evaluated here: write it into each of the claims")
    for part in parts:
        for claim in part.each("claims"):
            if not claim.fields.get("name") and not claim.below("metadata").fields.get("name"):
                claim.invalid("name", "a claim needs a name")
            spec = claim.below("spec") if "spec" in claim.fields else claim
            for request in _either(spec, "requests", "capacities"):
                _one_of(request, REQUESTS)
                _amounts(request.below("quantity"))
    return found


def _either(part: Written, new: str, old: str) -> Iterable[Written]:
    if new in part.fields and old in part.fields:
        part.invalid(old, f"means the same as {new}: set one of them")
    return part.each(new if new in part.fields else old)


def _one_of(part: Written, kinds: tuple[str, ...]) -> None:
    given = [kind for kind in kinds if kind in part.fields]
    if len(given) != 1:
        has = ", ".join(given) or "none"
        part.invalid("", f"must have exactly one of {', '.join(kinds)}; it has {has}")


def _grouped(capacity: Written) -> None:
    for topology in capacity.each("topologies"):
        for field in ("groupInResource", "groupInDevice"):
            if topology.fields.get(field) is False:
                text = "false is not evaluated: a claim may be met from all topologies of a device"
                topology.invalid(field, text)


def _amounts(part: Written) -> None:
    for field, amount in part.fields.items():
        if parse_any(amount) < 0:
            part.invalid(field, f'"{amount}" must not be negative')
        elif field == "size" and parse_any(amount) == 0:
            part.invalid(field, f'"{amount}" must be greater than zero')
