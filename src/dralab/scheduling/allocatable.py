"""CPU and memory of the node that devices consume (KEP-5517).

A device may represent some of its node's CPU, memory or huge pages (`mapping`), or consume some
when it is used (`overhead`). What a pod's devices consume counts as requested by the pod, and is
written to `status.nodeAllocatableResourceClaimStatuses`: a mapping once per claim, an overhead per
pod and per container that uses the claim. Devices declare it as in 1.37
(`nodeAllocatableResources`) or as in 1.36 (`nodeAllocatableResourceMappings`); the status has the
fields of both.

Texts: kube-scheduler's DynamicResources.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from dralab.allocation.problem import DeviceId
from dralab.objects.claims import consumers_of, results_of, uses_of
from dralab.objects.pods import containers_of
from dralab.objects.requests import requests_of_containers, requests_of_pod
from dralab.scheduling.claims import ClaimPlan
from dralab.scheduling.pods import PodInfo, with_claimed
from dralab.scheduling.reasons import MAPPED_DEVICE_SHARED, POD_BUDGET, Reason
from dralab.values.json_types import JsonObject
from dralab.values.quantity import Format, Number, form_of, parse_any, render
from dralab.values.records import dataclass


class InsufficientResource(NamedTuple):
    """A node has too little of a resource for a pod with its devices, in base units."""

    resource: str
    own: int
    devices: int
    free: int


class NodeShortage(NamedTuple):
    """A pod has its devices on a node but cannot run there: the reasons and the numbers."""

    reasons: tuple[Reason, ...]
    lacks: tuple[InsufficientResource, ...] = ()


class FormattedAmount(NamedTuple):
    """A number and its format."""

    number: Number
    form: Format

    def __str__(self) -> str:
        return render(self.number, self.form)


@dataclass(frozen=True, slots=True)
class ResourceRate:
    """How much an allocated device consumes of one resource of its node.

    With `key` it is `times` what is consumed of that capacity (of all of it, `whole`, where the
    device has one user only), else `times` for the device.
    """

    resource: str
    key: str = ""
    whole: str = "0"
    times: FormattedAmount | None = None
    per_pod: FormattedAmount | None = None
    per_container: FormattedAmount | None = None


class NodeAllocatableDevices:
    """The devices that consume node resources, kept up to date with the slices."""

    def __init__(self) -> None:
        self._rates: dict[DeviceId, tuple[ResourceRate, ...]] = {}
        self._devices: dict[str, list[DeviceId]] = {}

    def put_slice(self, name: str, wire: JsonObject | None) -> None:
        """Handle a new, changed or deleted (None) ResourceSlice."""
        for device in self._devices.pop(name, ()):
            self._rates.pop(device, None)
        if wire is None:
            return
        spec = wire["spec"]
        for item in spec.get("devices") or ():
            rates = tuple(_rates(item))
            if rates:
                device = DeviceId(spec["driver"], spec["pool"]["name"], item["name"])
                self._rates[device] = rates
                self._devices.setdefault(name, []).append(device)

    @property
    def are_any(self) -> bool:
        """Whether some device consumes resources of its node."""
        return bool(self._rates)

    def charged(self, pod: PodInfo, plans: Iterable[ClaimPlan]) -> PodInfo | NodeShortage:
        """Return the pod with its devices' consumption added, or why it cannot have them."""
        claimed: list[JsonObject] = []
        for plan in plans:
            mapping, overhead = self._taken(plan.allocation)
            if not mapping and not overhead:
                continue
            if mapping and _is_used_by_others(plan):
                return shared(plan.name)
            containers = _containers(pod, plan)
            claimed.append(_status(plan.name, containers, mapping, overhead))
        if not claimed:
            return with_claimed(pod, ()) if pod.claimed else pod
        claimed.sort(key=lambda status: str(status["resourceClaimName"]))
        return _beyond_budget(pod, claimed) or with_claimed(pod, claimed)

    def is_mapped(self, allocation: JsonObject) -> bool:
        """Return whether devices of a claim stand for some of their node's own resources."""
        return bool(self._taken(allocation)[0])

    def _taken(
        self, allocation: JsonObject
    ) -> tuple[
        dict[str, FormattedAmount], dict[str, tuple[FormattedAmount | None, FormattedAmount | None]]
    ]:
        mapping: dict[str, FormattedAmount] = {}
        overhead: dict[str, tuple[FormattedAmount | None, FormattedAmount | None]] = {}
        for result in results_of(allocation):
            device = DeviceId(result["driver"], result["pool"], result["device"])
            for rate in self._rates.get(device, ()):
                if rate.times is not None:
                    taken = _mapped(rate, rate.times, result)
                    mapping[rate.resource] = _sum(mapping.get(rate.resource), taken)
                if rate.per_pod is not None or rate.per_container is not None:
                    once, each = overhead.get(rate.resource, (None, None))
                    overhead[rate.resource] = (
                        _sum(once, rate.per_pod) if rate.per_pod else once,
                        _sum(each, rate.per_container) if rate.per_container else each,
                    )
        return mapping, overhead


def _rates(device: JsonObject) -> Iterator[ResourceRate]:
    capacity = device.get("capacity") or {}

    def whole(key: str) -> str:
        return str((capacity.get(key) or {}).get("value", "0"))

    for resource, item in sorted((device.get("nodeAllocatableResources") or {}).items()):
        mapping, overhead = item.get("mapping") or {}, item.get("overhead") or {}
        key = mapping.get("capacityKey") or ""
        yield ResourceRate(
            resource,
            key,
            whole(key),
            _amount(mapping.get("capacityMultiplier" if key else "deviceMultiplier")),
            _amount(overhead.get("perPod")),
            _amount(overhead.get("perContainer")),
        )
    for resource, item in sorted((device.get("nodeAllocatableResourceMappings") or {}).items()):
        key = item.get("capacityKey") or ""
        yield ResourceRate(
            resource, key, whole(key), _amount(item.get("allocationMultiplier", "1"))
        )


def _mapped(rate: ResourceRate, times: FormattedAmount, result: JsonObject) -> FormattedAmount:
    if not rate.key:
        return times
    consumed = result.get("consumedCapacity")
    if consumed is None:
        text = rate.whole
    else:
        short = rate.key.removeprefix(f"{result['driver']}/")
        names = (rate.key, short, f"{result['driver']}/{rate.key}")
        text = next((str(consumed[name]) for name in names if name in consumed), "0")
    return FormattedAmount(parse_any(text) * times.number, form_of(text))


def _amount(text: Any) -> FormattedAmount | None:
    return None if text is None else FormattedAmount(parse_any(text), form_of(str(text)))


def _sum(one: FormattedAmount | None, other: FormattedAmount) -> FormattedAmount:
    return other if one is None else FormattedAmount(one.number + other.number, one.form)


def _is_used_by_others(plan: ClaimPlan) -> bool:
    reserved = consumers_of(plan.claim)
    return bool(reserved) and all(user.get("uid") != plan.consumer["uid"] for user in reserved)


def shared(name: str) -> NodeShortage:
    """Return the shortage for a second pod that wants to share a claim."""
    return NodeShortage((Reason(MAPPED_DEVICE_SHARED, (name,)),))


def _containers(pod: PodInfo, plan: ClaimPlan) -> list[str]:
    """Return the containers that refer to a claim, in the order in which they start."""
    entries = {item.entry for item in pod.claims if item.name == plan.name}
    mapped = {mapping["containerName"] for mapping in plan.mappings}
    return [
        container["name"]
        for container in containers_of(pod.obj)
        if container["name"] in mapped or any(entry in entries for entry, _ in uses_of(container))
    ]


def _status(
    name: str,
    containers: list[str],
    mapping: Mapping[str, FormattedAmount],
    overhead: Mapping[str, tuple[FormattedAmount | None, FormattedAmount | None]],
) -> JsonObject:
    totals = dict(mapping)
    extra: list[dict[str, str]] = []
    for resource, (once, each) in sorted(overhead.items()):
        extra.append({"name": resource})
        if once is not None:
            extra[-1]["perPod"] = str(once)
            totals[resource] = _sum(totals.get(resource), once)
        if each is not None:
            extra[-1]["perContainer"] = str(each)
            all_of_them = FormattedAmount(each.number * len(containers), each.form)
            totals[resource] = _sum(totals.get(resource), all_of_them)
    found: dict[str, Any] = {"resourceClaimName": name}
    if containers:
        found["containers"] = containers
    found["resources"] = {resource: str(totals[resource]) for resource in sorted(totals)}
    if mapping:
        found["mapping"] = [
            {"name": resource, "quantity": str(mapping[resource])} for resource in sorted(mapping)
        ]
    if extra:
        found["overhead"] = extra
    return found


def _beyond_budget(pod: PodInfo, claimed: list[JsonObject]) -> NodeShortage | None:
    """Return the resource of which the pod-level request is too small for containers and claims."""
    spec = pod.obj["spec"]
    budget = requests_of_pod(spec)
    if not budget:
        return None
    needed = requests_of_containers(spec, claimed)
    reasons = tuple(
        Reason(POD_BUDGET, (resource,))
        for resource, most in sorted(budget.items())
        if needed.get(resource, 0) > most
    )
    return NodeShortage(reasons) if reasons else None
