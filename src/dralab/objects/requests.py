"""What pods request of a node: containers, sidecars, init containers, overhead, the pod itself.

Source: k8s.io/component-helpers `resource.PodRequests` and `PodLimits`. The scheduler and the
filters of nodes count in base units (millicores, bytes, pieces); quotas count exactly.
"""

import math
from collections.abc import Iterable, Mapping
from fractions import Fraction
from types import MappingProxyType
from typing import Any, Final

from dralab.values import quantity
from dralab.values.container_sums import add, at_peak
from dralab.values.json_types import JsonDict, JsonObject
from dralab.values.quantity import Number

_NONE: Final[JsonObject] = {}
MOST: Final = 1 << 56


def requested(resources: JsonObject | None) -> JsonDict:
    """Return the requests in `resources` of a container or pod; limits are the default.

    A server fills requests in from limits; files may not have been there.

    >>> requested({"limits": {"cpu": "2", "example.com/gpu": "1"}, "requests": {"cpu": "1"}})
    {'cpu': '1', 'example.com/gpu': '1'}
    """
    resources = resources or _NONE
    return {**(resources.get("limits") or {}), **(resources.get("requests") or {})}


def pod_requests(
    spec: JsonObject,
    claimed: Iterable[JsonObject] = (),
    *,
    unsaid: Mapping[str, int] = MappingProxyType({}),
    status: JsonObject = _NONE,
) -> dict[str, int]:
    """Return what a pod asks of a node, in base units.

    Containers add up; an init container counts where it alone is larger than all that run
    after it; sidecars (init containers that restart) count for everything after them. What
    devices take (`claimed`, as in the pod's status) is added: a claim's mapping and the overhead
    per pod once, the overhead per container where a container uses the claim.
    Requests of the pod itself replace the sum of all that. A container counts for `unsaid` of the
    resources that it does not name. With the status of a pod that is being resized, what it has
    been given counts where that is more.

    >>> pod_requests({"containers": [{"resources": {"requests": {"cpu": "250m"}}}]})
    {'cpu': 250}
    """
    total = requests_of_containers(spec, claimed, unsaid=unsaid, status=status)
    total.update(requests_of_pod(spec))
    if spec.get("overhead"):
        add(total, _in_base_units(spec["overhead"]))
    return total


def requests_of_pod(spec: JsonObject) -> Mapping[str, int]:
    """Return what the pod itself requests, whatever its containers do."""
    resources = spec.get("resources")
    return _in_base_units(requested(resources)) if resources else {}


def requests_of_containers(
    spec: JsonObject,
    claimed: Iterable[JsonObject] = (),
    *,
    unsaid: Mapping[str, int] = MappingProxyType({}),
    status: JsonObject = _NONE,
) -> dict[str, int]:
    """Return what the containers of a pod and its devices ask for together, in base units."""
    once, each = _of_claims(claimed)
    given = _given(spec, status) if status else {}
    infeasible = bool(given) and _is_infeasible(status)

    def of(container: JsonObject) -> dict[str, int]:
        resources = container.get("resources")
        found = dict(unsaid)
        asked = _in_base_units(requested(resources)) if resources else {}
        if given and (amounts := given.get(container["name"])) is not None:
            both = amounts if infeasible else [*amounts, asked]
            names = dict.fromkeys(name for part in both for name in part)
            asked = {name: max(part.get(name, 0) for part in both) for name in names}
        found |= asked
        if each:
            add(found, each.get(container["name"], {}))
        return found

    total = at_peak(spec, of)
    add(total, once)
    return total


def exact_requests(spec: JsonObject) -> dict[str, Number]:
    """Return what a pod requests, exactly; devices of claims apart."""
    total = at_peak(spec, lambda container: _exact(requested(container.get("resources"))))
    total.update(_exact(requested(spec.get("resources"))))
    add(total, _exact(spec.get("overhead") or _NONE))
    return total


def exact_limits(spec: JsonObject) -> dict[str, Number]:
    """Return what a pod may use at most, exactly; resources without a limit are left out."""

    def of(holder: JsonObject) -> dict[str, Number]:
        return _exact((holder.get("resources") or _NONE).get("limits") or _NONE)

    total = at_peak(spec, of)
    total.update(of(spec))
    overhead = _exact(spec.get("overhead") or _NONE)
    add(total, {name: amount for name, amount in overhead.items() if total.get(name)})
    return total


def base_units(resource: str, text: Any) -> int:
    """Return an amount of a resource as an integer: millicores of cpu, else whole units.

    It is capped, as a Kubernetes quantity is at 2^63-1; lower, so that sums fit into 64 bits too.
    """
    value = quantity.parse_any(text)
    return min(math.ceil(value * 1000) if resource == "cpu" else math.ceil(value), MOST)


def amount_of(resource: str, units: int) -> str:
    """Return base units as a quantity.

    >>> amount_of("cpu", 1500), amount_of("memory", 2**30)
    ('1500m', '1Gi')
    """
    if resource == "cpu":
        return quantity.render(Fraction(units, 1000))
    return quantity.render(units, "BinarySI")


def _given(spec: JsonObject, status: JsonObject) -> dict[str, list[dict[str, int]]]:
    """Return the actual and the allocated resources of resizable containers, by name."""
    sidecars = [
        each for each in spec.get("initContainers") or () if each.get("restartPolicy") == "Always"
    ]
    names = {each["name"] for each in (*sidecars, *(spec.get("containers") or ()))}
    return {
        each["name"]: [
            _in_base_units(each["resources"].get("requests") or _NONE),
            _in_base_units(each.get("allocatedResources") or _NONE),
        ]
        for kind in ("containerStatuses", "initContainerStatuses")
        for each in status.get(kind) or ()
        if each.get("resources") is not None and each.get("name") in names
    }


def _is_infeasible(status: JsonObject) -> bool:
    """Return whether a node can never give a pod what its spec asks for now."""
    return any(
        each.get("type") == "PodResizePending" and each.get("reason") == "Infeasible"
        for each in status.get("conditions") or ()
    )


def _of_claims(
    claimed: Iterable[JsonObject],
) -> tuple[dict[str, int], dict[str, dict[str, int]]]:
    """Return the node resources that claims take once, and for each container by name."""
    once: dict[str, int] = {}
    each: dict[str, dict[str, int]] = {}
    for status in claimed:
        mapping, overhead = status.get("mapping"), status.get("overhead")
        if not mapping and not overhead:
            # As 1.36 writes it: one sum for each resource.
            add(once, _in_base_units(status.get("resources") or _NONE))
            continue
        for item in mapping or ():
            add(once, {item["name"]: base_units(item["name"], item["quantity"])})
        for item in overhead or ():
            name = item["name"]
            if item.get("perPod") is not None:
                add(once, {name: base_units(name, item["perPod"])})
            if item.get("perContainer") is not None:
                for container in status.get("containers") or ():
                    amount = {name: base_units(name, item["perContainer"])}
                    add(each.setdefault(container, {}), amount)
    return once, each


def _in_base_units(amounts: JsonObject) -> dict[str, int]:
    return {name: base_units(name, text) for name, text in amounts.items()}


def _exact(amounts: JsonObject) -> dict[str, Number]:
    return {name: quantity.parse_any(text) for name, text in amounts.items()}
