"""ResourcePoolStatusRequests: reports existing, allocated and available devices once.

Source: KEP-5677 and the resourcepoolstatus controller. A device that several claims hold counts
once; admin access does not count; available is total less allocated less tainted.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from dralab.kernel.clock import SECOND, from_rfc3339
from dralab.objects.claims import Holding, allocation_of, holds
from dralab.objects.conditions import condition_of, with_condition
from dralab.objects.device_taints import rule_selects
from dralab.objects.metadata import NamespacedName, key_of, uid_of
from dralab.objects.slices import PoolName, by_pool, newest_of
from dralab.runtime.client import delete_only
from dralab.runtime.manager import Manager
from dralab.runtime.resources import CLAIMS, POOL_STATUS_REQUESTS, SLICES, TAINT_RULES
from dralab.values import quantity
from dralab.values.json_types import JsonDict, JsonObject
from dralab.values.quantity import Number

RETRIES: Final = 5
COMPLETED_TTL: Final = 3600 * SECOND
PENDING_TTL: Final = 24 * 3600 * SECOND
LONGEST_ERROR: Final = 256
REPELS: Final = frozenset({"NoSchedule", "NoExecute"})


class PoolStatus:
    """Answers each request once, and deletes it when it is old."""

    def __init__(self, manager: Manager) -> None:
        self.manager = manager
        self.client = manager.client
        self.requests = manager.cache(POOL_STATUS_REQUESTS)
        self.slices = manager.cache(SLICES)
        self.claims = manager.cache(CLAIMS)
        self.rules = manager.cache(TAINT_RULES)
        self.queue = manager.queue("resourcepoolstatus", self.reconcile)
        self._tries: dict[str, int] = {}
        self.requests.subscribe(self._request)

    def _request(self, old: JsonDict | None, new: JsonDict | None) -> None:
        if new is not None:
            self.queue.add(key_of(new))
        elif old is not None:
            self._tries.pop(uid_of(old), None)

    def reconcile(self, key: NamespacedName) -> int | None:
        """Answer a request, or delete it."""
        request = self.requests.get(key)
        if request is None:
            return None
        now = self.manager.engine.clock.now()
        done = condition_of(request, "Complete") or condition_of(request, "Failed")
        if done is not None:
            return self._expire(request, from_rfc3339(done["lastTransitionTime"]) + COMPLETED_TTL)
        created = from_rfc3339(request["metadata"]["creationTimestamp"])
        if now >= created + PENDING_TTL:
            return self._expire(request, created + PENDING_TTL)
        status = pool_status(
            request["spec"], list(self.slices), list(self.claims), list(self.rules)
        )
        uid = uid_of(request)
        unfinished = any(
            "incomplete" in pool.get("validationError", "") for pool in status["pools"]
        )
        tries = self._tries[uid] = self._tries.get(uid, 0) + 1
        if unfinished and tries <= RETRIES:
            return SECOND << (tries - 1)
        condition = {
            "type": "Complete",
            "status": "True",
            "reason": "CalculationComplete",
            "message": f"Calculated status for {len(status['pools'])} pools",
        }
        status["conditions"] = with_condition((), condition, now=self.manager.now())
        self.requests.learn(
            self.client.update(
                POOL_STATUS_REQUESTS, {**request, "status": status}, subresource="status"
            )
        )
        return COMPLETED_TTL

    def _expire(self, request: JsonDict, when: int) -> int | None:
        left = when - self.manager.engine.clock.now()
        if left > 0:
            return left
        delete_only(self.client, POOL_STATUS_REQUESTS, request)
        return None


def pool_status(
    spec: JsonObject,
    slices: Iterable[JsonDict],
    claims: Iterable[JsonDict],
    rules: Iterable[JsonDict],
) -> dict[str, Any]:
    """Return `poolCount` and `pools` for a request's spec."""
    pools = {
        name: found
        for name, found in by_pool(slices).items()
        if name.driver == spec["driver"] and spec.get("poolName") in {None, name.pool}
    }
    held: dict[tuple[str, str], dict[str, list[Holding]]] = defaultdict(lambda: defaultdict(list))
    for claim in claims:
        for part in holds(allocation_of(claim)):
            held[part.driver, part.pool][part.device].append(part)
    all_rules = list(rules)
    limit = spec.get("limit") or 100
    attribute = spec.get("defaultPartitionTypeAttribute")
    return {
        "poolCount": len(pools),
        "pools": [
            _pool(key, newest_of(pools[key]), held[key], all_rules, attribute)
            for key in sorted(pools)[:limit]
        ],
    }


def _pool(
    key: PoolName,
    slices: Sequence[JsonObject],
    held: Mapping[str, list[Holding]],
    rules: Sequence[JsonObject],
    attribute: str | None,
) -> dict[str, Any]:
    newest = [item["spec"] for item in slices]
    wanted = newest[0]["pool"]["resourceSliceCount"]
    found: dict[str, Any] = {
        "driver": key.driver,
        "poolName": key.pool,
        "generation": newest[0]["pool"]["generation"],
    }
    error = ""
    if len(newest) != wanted:
        error = f"pool is incomplete: {len(newest)} of {wanted} slices are published"
    devices = [device for item in newest for device in item.get("devices") or ()]
    names = [device["name"] for device in devices]
    twice = next((each for each in names if names.count(each) > 1), None) if not error else None
    if twice is not None:
        error = f"pool is invalid: device {twice} is published twice"
    if error:
        return {**found, "validationError": error[:LONGEST_ERROR]}
    nodes = {item.get("nodeName") for item in newest}
    if len(nodes) == 1 and None not in nodes:
        found["nodeName"] = newest[0]["nodeName"]
    allocated = sum(device["name"] in held for device in devices)
    tainted = sum(
        device["name"] not in held and _is_tainted(device, key, rules) for device in devices
    )
    found |= {
        "resourceSliceCount": len(newest),
        "totalDevices": len(devices),
        "allocatedDevices": allocated,
        "unavailableDevices": tainted,
        "availableDevices": len(devices) - allocated - tainted,
    }
    partitions = _partitions(newest, held, attribute)
    if partitions:
        found["partitionSummary"] = partitions
    shared = [device for device in devices if device.get("allowMultipleAllocations")]
    if shared:
        found["shareableSummary"] = _shareable(shared, held)
    return found


def _is_tainted(device: JsonObject, key: PoolName, rules: Sequence[JsonObject]) -> bool:
    taints = list(device.get("taints") or ())
    taints += [rule["spec"]["taint"] for rule in rules if rule_selects(rule, *key, device["name"])]
    return any(taint.get("effect") in REPELS for taint in taints)


def _partitions(
    slices: list[JsonObject], held: Mapping[str, list[Holding]], default: str | None
) -> list[dict[str, Any]]:
    """Return the total and available numbers of each type of partition."""
    left: dict[tuple[str, str], Number] = {}
    for item in slices:
        for counters in item.get("sharedCounters") or ():
            for name, counter in counters["counters"].items():
                left[counters["name"], name] = quantity.parse_any(counter["value"])
    groups: dict[tuple[str, str], list[JsonObject]] = defaultdict(list)
    for item in slices:
        attribute = item.get("partitionTypeAttribute") or default
        for device in item.get("devices") or ():
            if device["name"] in held:
                _draw(left, device)
            value = _attribute(device, attribute, item["driver"]) if attribute else None
            if attribute and value is not None:
                groups[attribute, value].append(device)
    found = []
    for (attribute, value), devices in sorted(groups.items()):
        rest = dict(left)
        count = 0
        for device in devices:
            if device["name"] not in held and _fits(rest, device):
                _draw(rest, device)
                count += 1
        found.append(
            {"attribute": attribute, "type": value, "total": len(devices), "allocatable": count}
        )
    return found


def _draws(device: JsonObject) -> Iterable[tuple[tuple[str, str], Number]]:
    for item in device.get("consumesCounters") or ():
        for name, counter in item["counters"].items():
            yield (item["counterSet"], name), quantity.parse_any(counter["value"])


def _draw(left: dict[tuple[str, str], Number], device: JsonObject) -> None:
    for key, amount in _draws(device):
        left[key] = left.get(key, 0) - amount


def _fits(left: Mapping[tuple[str, str], Number], device: JsonObject) -> bool:
    return all(left.get(key, 0) >= amount for key, amount in _draws(device))


def _attribute(device: JsonObject, name: str, driver: str) -> str | None:
    attributes = device.get("attributes") or {}
    domain, _, bare = name.rpartition("/")
    value = attributes.get(name) or (attributes.get(bare) if domain == driver else None)
    text: str | None = (value or {}).get("string")
    return text


def _shareable(devices: list[JsonObject], held: Mapping[str, list[Holding]]) -> dict[str, Any]:
    total: dict[str, Number] = defaultdict(int)
    consumed: dict[str, Number] = defaultdict(int)
    for device in devices:
        for name, capacity in (device.get("capacity") or {}).items():
            total[name] += quantity.parse_any(capacity["value"])
        for part in held.get(device["name"], ()):
            for name, amount in part.consumed.items():
                consumed[name] += quantity.parse_any(amount)
    used = sum(device["name"] in held for device in devices)

    def text(value: Number) -> str:
        return quantity.render(
            max(value, 0), "BinarySI" if value and value % 1024 == 0 else "DecimalSI"
        )

    return {
        "fullyAvailableDevices": len(devices) - used,
        "partiallyAvailableDevices": used,
        "capacity": [
            {
                "name": name,
                "total": text(total[name]),
                "consumed": text(consumed[name]),
                "available": text(total[name] - consumed[name]),
            }
            for name in sorted(total)
        ],
    }
