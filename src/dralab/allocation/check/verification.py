"""Checks an allocation against the objects, sharing no code with the search.

It reads resource.k8s.io/v1 mappings, checks finished allocations against the rules of the API and
returns a sentence for each violation. It is simple and slow on purpose: tests check every answer of
the search with it, and check it with the results of Kubernetes' own allocator tests.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import field
from fractions import Fraction
from math import ceil
from typing import Any, Final, NamedTuple

from dralab.values import quantity
from dralab.values.json_types import JsonObject
from dralab.values.labels import node_selector_accepts
from dralab.values.records import dataclass

Matches = Callable[[str, str, JsonObject], bool]
"""(expression, driver, device) → whether the selector accepts the device."""

LIMIT: Final = 32
REPELLING: Final = ("NoSchedule", "NoExecute")
LISTS: Final = ("ints", "bools", "strings", "versions")


class DeviceKey(NamedTuple):
    """A device of the cluster."""

    driver: str
    pool: str
    device: str

    def __str__(self) -> str:
        return "/".join(self)


@dataclass(frozen=True, slots=True)
class HeldDevice:
    """A device that some allocated claim holds: whole, or an amount of it (`share`)."""

    key: DeviceKey
    share: bool = False
    consumed: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class DeviceChoice:
    """One device for one request of one claim: `request` is as results write it."""

    claim: int
    request: str
    key: DeviceKey


@dataclass(frozen=True, slots=True, eq=False)
class _OfferedDevice:
    device: JsonObject
    slice: JsonObject
    here: bool


class Verifier:
    """Judges choices of devices for the claims of one pod on one node.

    All inputs are v1 mappings; `gates` are the features that are on, None stands for all.
    """

    def __init__(
        self,
        *,
        claims: Sequence[JsonObject],
        classes: Sequence[JsonObject],
        slices: Sequence[JsonObject],
        node: JsonObject,
        matches: Matches,
        held: Sequence[HeldDevice] = (),
        gates: frozenset[str] | None = None,
    ) -> None:
        self.claims = claims
        self.classes = {item["metadata"]["name"]: item for item in classes}
        self.node = node
        self.matches = matches
        self.held = held
        self.gates = gates
        self.offers: dict[DeviceKey, _OfferedDevice] = {}
        self.counters: dict[tuple[str, str], dict[tuple[str, str], Fraction]] = {}
        self.drawing: dict[tuple[str, str], list[JsonObject]] = {}
        self.unusable: set[tuple[str, str]] = set()
        self._accepted: dict[tuple[int, str, DeviceKey], bool] = {}
        self._read(slices)

    def on(self, gate: str) -> bool:
        """Return whether a feature is on."""
        return self.gates is None or any(gate in item.split("+") for item in self.gates)

    def violations(self, allocations: Sequence[JsonObject]) -> list[str]:
        """Return everything that finished allocations, one per claim, break."""
        if len(allocations) != len(self.claims):
            return [f"{len(self.claims)} claims have {len(allocations)} allocations"]
        found: list[str] = []
        choices: list[DeviceChoice] = []
        for index, allocation in enumerate(allocations):
            results = (allocation.get("devices") or {}).get("results") or []
            for result in results:
                key = DeviceKey(result["driver"], result["pool"], result["device"])
                choices.append(DeviceChoice(index, result["request"], key))
                found += self._copied(index, result, key)
            selector = allocation.get("nodeSelector")
            metadata = self.node["metadata"]
            if selector is not None and not node_selector_accepts(
                selector, metadata.get("labels") or {}, metadata["name"]
            ):
                found.append(f"claim {index}: its node selector does not accept the node")
        return found + list(self.problems(choices))

    def problems(self, choices: Sequence[DeviceChoice], *, complete: bool = True) -> Iterator[str]:
        """Yield what a set of choices breaks; unless `complete`, requests may lack devices."""
        for choice in choices:
            yield from self._suits(choice)
        yield from self._counts(choices, complete=complete)
        yield from self._exclusive(choices)
        yield from self._counter_sums(choices)
        yield from self._capacity_sums(choices)
        for index, claim in enumerate(self.claims):
            mine = [choice for choice in choices if choice.claim == index]
            if len(mine) > LIMIT:
                yield f"claim {index}: {len(mine)} devices are more than {LIMIT}"
            for constraint in _devices(claim).get("constraints") or ():
                yield from self._constraint(constraint, mine)

    def candidates(self, claim: int, request: str) -> list[DeviceKey]:
        """Return the devices that could serve a request if nothing else were chosen or in use."""
        return [
            key for key in self.offers if not any(self._suits(DeviceChoice(claim, request, key)))
        ]

    def everything(self, claim: int, request: str) -> list[DeviceKey] | None:
        """Return the devices of a request for all of them; None if some pool is unusable."""
        if self.unusable:
            return None
        asked = self.asked(claim, request)
        return [
            key
            for key, offer in self.offers.items()
            if offer.here
            and self._selected(claim, request, key)
            and (not self.on("DRAConsumableCapacity") or self._amounts(asked, key) is not None)
            and self._has_room(asked, key)
        ]

    def asked(self, claim: int, request: str) -> JsonObject:
        """Return what a request, or an alternative, of a claim asks for."""
        name, _, alternative = request.partition("/")
        for item in _devices(self.claims[claim]).get("requests") or ():
            if item["name"] == name:
                if not alternative:
                    exactly: JsonObject = item["exactly"]
                    return exactly
                for sub in item["firstAvailable"]:
                    if sub["name"] == alternative:
                        found: JsonObject = sub
                        return found
        raise KeyError(f"claim {claim} has no request {request}")

    # --- what is there

    def _read(self, slices: Sequence[JsonObject]) -> None:
        pools: dict[tuple[str, str], list[JsonObject]] = {}
        for item in slices:
            spec = item["spec"]
            pools.setdefault((spec["driver"], spec["pool"]["name"]), []).append(item)
        for pool, parts in sorted(pools.items()):
            reaching = [item for item in parts if self._is_seen(item["spec"])]
            if not reaching:
                continue
            newest = max(_generation(item) for item in reaching)
            here = [item for item in reaching if _generation(item) == newest]
            current = [item for item in parts if _generation(item) == newest]
            wanted = here[0]["spec"]["pool"]["resourceSliceCount"]
            if len(here) != wanted:
                # Only a pool that is not whole on this node is looked for elsewhere.
                if any(_generation(item) > newest for item in parts):
                    continue
                if len(current) != wanted:
                    self.unusable.add(pool)
                    continue
            else:
                current = here
            self._read_pool(pool, sorted(here, key=lambda item: item["metadata"]["name"]), current)

    def _read_pool(
        self, pool: tuple[str, str], here: Sequence[JsonObject], current: Sequence[JsonObject]
    ) -> None:
        offers: dict[DeviceKey, _OfferedDevice] = {}
        counters: dict[tuple[str, str], Fraction] = {}
        valid = True
        for item in current:
            for counter_set in item["spec"].get("sharedCounters") or ():
                for name, counter in counter_set["counters"].items():
                    valid = valid and (counter_set["name"], name) not in counters
                    counters[counter_set["name"], name] = _number(counter["value"])
        drawing = [device for item in current for device in item["spec"].get("devices") or ()]
        if self.on("DRAPartitionableDevices"):
            valid = valid and all(
                (used["counterSet"], name) in counters
                for device in drawing
                for used in device.get("consumesCounters") or ()
                for name in used["counters"]
            )
        for item in here:
            for device in item["spec"].get("devices") or ():
                key = DeviceKey(*pool, device["name"])
                valid = valid and key not in offers
                offers[key] = _OfferedDevice(device, item, self._is_here(item["spec"], device))
        if not valid:
            self.unusable.add(pool)
            return
        self.offers |= offers
        self.counters[pool] = counters
        self.drawing[pool] = drawing

    def _is_seen(self, spec: JsonObject) -> bool:
        special = spec.get("perDeviceNodeSelection") or spec.get("sharedCounters")
        if special and not self.on("DRAPartitionableDevices"):
            return False
        if spec.get("perDeviceNodeSelection"):
            return any(self._reaches(device) for device in spec.get("devices") or ())
        return self._reaches(spec)

    def _is_here(self, spec: JsonObject, device: JsonObject) -> bool:
        declared = (self.node.get("status") or {}).get("declaredFeatures") or ()
        if spec.get("skipNodeOperations") and "DRAOptionalNodeOperations" not in declared:
            return False
        return self._reaches(device if spec.get("perDeviceNodeSelection") else spec)

    def _reaches(self, where: JsonObject) -> bool:
        metadata = self.node["metadata"]
        if where.get("nodeName"):
            return bool(where["nodeName"] == metadata["name"])
        if where.get("nodeSelector"):
            return node_selector_accepts(
                where["nodeSelector"], metadata.get("labels") or {}, metadata["name"]
            )
        return bool(where.get("allNodes"))

    # --- one device for one request

    def _suits(self, choice: DeviceChoice) -> Iterator[str]:
        said = f"claim {choice.claim}, request {choice.request}, device {choice.key}"
        offer = self.offers.get(choice.key)
        if offer is None or not offer.here:
            yield f"{said}: the node has no such device"
            return
        asked = self.asked(choice.claim, choice.request)
        if not self._selected(choice.claim, choice.request, choice.key):
            yield f"{said}: a selector does not accept it"
        if offer.device.get("consumesCounters") and not self.on("DRAPartitionableDevices"):
            yield f"{said}: partitions are disabled"
        if self.on("DRAConsumableCapacity") and self._amounts(asked, choice.key) is None:
            yield f"{said}: it lacks the capacity"
        if self.on("DRADeviceTaints"):
            for taint in offer.device.get("taints") or ():
                if taint.get("effect") in REPELLING and not any(
                    _tolerates(item, taint) for item in asked.get("tolerations") or ()
                ):
                    yield f"{said}: taint {taint['key']} is not tolerated"

    def _selected(self, claim: int, request: str, key: DeviceKey) -> bool:
        memo = (claim, request, key)
        if memo not in self._accepted:
            self._accepted[memo] = self._select(self.asked(claim, request), key)
        return self._accepted[memo]

    def _select(self, asked: JsonObject, key: DeviceKey) -> bool:
        device = self.offers[key].device
        if device.get("bindingConditions") and not self.on("DRADeviceBindingConditions"):
            return False
        class_spec = self.classes[asked["deviceClassName"]].get("spec") or {}
        selectors = [*(class_spec.get("selectors") or ()), *(asked.get("selectors") or ())]
        return all(
            self.matches(item["cel"]["expression"], key.driver, device) for item in selectors
        )

    # --- all choices together

    def _counts(self, choices: Sequence[DeviceChoice], *, complete: bool) -> Iterator[str]:
        for index, claim in enumerate(self.claims):
            for request in _devices(claim).get("requests") or ():
                name = request["name"]
                used = {
                    choice.request
                    for choice in choices
                    if choice.claim == index and choice.request.partition("/")[0] == name
                }
                if len(used) > 1 or (complete and not used):
                    yield f"claim {index}, request {name}: {len(used)} alternatives are used"
                for alternative in used:
                    yield from self._count(index, alternative, choices, complete=complete)

    def _count(
        self, claim: int, request: str, choices: Sequence[DeviceChoice], *, complete: bool
    ) -> Iterator[str]:
        asked = self.asked(claim, request)
        said = f"claim {claim}, request {request}"
        chosen = [
            choice.key for choice in choices if (choice.claim, choice.request) == (claim, request)
        ]
        if len(set(chosen)) < len(chosen):
            yield f"{said}: a device is used twice"
        if asked.get("allocationMode") == "All":
            wanted = self.everything(claim, request)
            if (
                wanted is None
                or not set(chosen) <= set(wanted)
                or (complete and len(chosen) != len(wanted))
            ):
                yield f"{said}: these are not all devices"
            return
        count = asked.get("count") or 1
        if len(chosen) > count or (complete and len(chosen) < count):
            yield f"{said}: {len(chosen)} devices instead of {count}"

    def _exclusive(self, choices: Sequence[DeviceChoice]) -> Iterator[str]:
        held = {item.key for item in self.held if not item.share}
        taken: dict[DeviceKey, DeviceChoice] = {}
        mine: set[tuple[int, DeviceKey]] = set()
        for choice in choices:
            admin = self._admin(choice)
            if admin and (choice.claim, choice.key) in mine:
                yield f"device {choice.key} is used for admin access by a claim that holds it"
            mine.add((choice.claim, choice.key))
            if self._shared(choice.key):
                continue
            earlier = taken.get(choice.key)
            if earlier is not None and (earlier.claim == choice.claim or not admin):
                yield f"device {choice.key} is used twice"
            if choice.key in held and not admin:
                yield f"device {choice.key} is in use already"
            taken[choice.key] = choice
        for choice in choices:
            if self._shared(choice.key) and choice.key in held and not self._admin(choice):
                yield f"device {choice.key} is held whole"

    def _counter_sums(self, choices: Sequence[DeviceChoice]) -> Iterator[str]:
        if not self.on("DRAPartitionableDevices"):
            return  # Devices that draw on counters are refused one by one.
        drawing = {choice.key for choice in choices if not self._admin(choice)}
        held = {item.key for item in self.held}
        for pool in sorted({(key.driver, key.pool) for key in drawing}):
            left = dict(self.counters.get(pool, {}))
            touched: set[tuple[str, str]] = set()
            groups: dict[str, list[frozenset[str]]] = {}
            for device in self.drawing.get(pool, ()):
                key = DeviceKey(*pool, device["name"])
                if key not in drawing and key not in held:
                    continue
                for used in device.get("consumesCounters") or ():
                    groups.setdefault(used["counterSet"], []).append(
                        frozenset(used.get("compatibilityGroups") or ())
                    )
                    for name, counter in used["counters"].items():
                        left[used["counterSet"], name] -= _number(counter["value"])
                        if key in drawing and key not in held:
                            touched.add((used["counterSet"], name))
            for counter_set, name in sorted(touched):
                if left[counter_set, name] < 0:
                    yield f"pool {'/'.join(pool)}: counter {counter_set}/{name} is overdrawn"
                together = groups[counter_set]
                if any(together) and not frozenset.intersection(*together):
                    yield f"pool {'/'.join(pool)}: {counter_set} has incompatible devices"

    def _capacity_sums(self, choices: Sequence[DeviceChoice]) -> Iterator[str]:
        if not self.on("DRAConsumableCapacity"):
            return
        used = {
            choice.key for choice in choices if self._shared(choice.key) and not self._admin(choice)
        }
        for key in sorted(used):
            total: dict[str, Fraction] = self._held_amounts(key)
            for choice in choices:
                if choice.key == key and not self._admin(choice):
                    amounts = self._amounts(self.asked(choice.claim, choice.request), key) or {}
                    for name, amount in amounts.items():
                        total[name] = total.get(name, Fraction(0)) + amount
            for name, item in (self.offers[key].device.get("capacity") or {}).items():
                if total.get(name, 0) > _number(item["value"]):
                    yield f"device {key}: capacity {name} is overdrawn"

    def _constraint(self, constraint: JsonObject, choices: Sequence[DeviceChoice]) -> Iterator[str]:
        named = constraint.get("requests") or ()
        bound = [
            choice
            for choice in choices
            if not named or choice.request in named or choice.request.partition("/")[0] in named
        ]
        name = constraint.get("matchAttribute") or constraint["distinctAttribute"]
        values = [self._values(choice.key, name) for choice in bound]
        if not all(values):
            yield f"a device lacks attribute {name}"
        elif constraint.get("matchAttribute"):
            if values and not frozenset.intersection(*values):
                yield f"devices do not agree on {name}"
        elif sum(map(len, values)) != len(frozenset().union(*values)):
            yield f"devices share a value of {name}"

    # --- parts

    def _shared(self, key: DeviceKey) -> bool:
        offer = self.offers.get(key)
        return (
            offer is not None
            and bool(offer.device.get("allowMultipleAllocations"))
            and self.on("DRAConsumableCapacity")
        )

    def _admin(self, choice: DeviceChoice) -> bool:
        return bool(self.asked(choice.claim, choice.request).get("adminAccess"))

    def _values(self, key: DeviceKey, name: str) -> frozenset[tuple[str, Any]]:
        attributes = self.offers[key].device.get("attributes") or {}
        value = attributes.get(name)
        domain, _, bare = name.partition("/")
        if value is None and domain == key.driver:
            value = attributes.get(bare)
        for kind, item in (value or {}).items():
            if kind in LISTS:
                if not self.on("DRAListTypeAttributes"):
                    return frozenset()
                return frozenset((kind[:-1], one) for one in item)
            return frozenset({(kind, item)})
        return frozenset()

    def _amounts(self, asked: JsonObject, key: DeviceKey) -> dict[str, Fraction] | None:
        """Return the consumed amount of each capacity; None if the device does not have enough."""
        if asked.get("adminAccess"):
            return {}
        wanted = (asked.get("capacity") or {}).get("requests") or {}
        capacity = self.offers[key].device.get("capacity") or {}
        if set(wanted) - set(capacity):
            return None
        amounts: dict[str, Fraction] = {}
        for name, item in capacity.items():
            if name not in wanted and not self._shared(key):
                continue
            amount = self._amount(item, wanted.get(name))
            if amount is None or amount > _number(item["value"]):
                return None
            amounts[name] = amount
        return amounts

    def _amount(self, item: JsonObject, asked: Any) -> Fraction | None:
        policy = item.get("requestPolicy") or {}
        if asked is None:
            default = policy.get("default")
            return _number(item["value"] if default is None else default)
        amount = _number(asked)
        values = [_number(value) for value in policy.get("validValues") or ()]
        if values:
            large_enough = [value for value in values if value >= amount]
            return min(large_enough, default=None)
        bounds = policy.get("validRange")
        if not bounds:
            return amount
        least = _number(bounds["min"])
        if amount < least:
            return least
        if bounds.get("step"):
            step = _number(bounds["step"])
            if not self.on("DRAFractionalCapacityRange"):
                least, step, amount = (Fraction(ceil(each)) for each in (least, step, amount))
            amount = least + step * ceil((amount - least) / step)
        if bounds.get("max") is not None and amount > _number(bounds["max"]):
            return None
        return amount

    def _held_amounts(self, key: DeviceKey) -> dict[str, Fraction]:
        total: dict[str, Fraction] = {}
        for item in self.held:
            if item.key == key:
                for name, amount in item.consumed.items():
                    total[name] = total.get(name, Fraction(0)) + _number(amount)
        return total

    def _has_room(self, asked: JsonObject, key: DeviceKey) -> bool:
        """Return whether a shared device has enough left; requests for all devices may skip it."""
        if not self._shared(key):
            return True
        amounts = self._amounts(asked, key) or {}
        held = self._held_amounts(key)
        if not any(item.key == key and item.consumed for item in self.held):
            return True
        capacity = self.offers[key].device.get("capacity") or {}
        return all(
            held.get(name, 0) + amount <= _number(capacity[name]["value"])
            for name, amount in amounts.items()
        )

    def _copied(self, claim: int, result: JsonObject, key: DeviceKey) -> Iterator[str]:
        """Yield what a result should have copied from its request and its device, but did not."""
        said = f"claim {claim}, request {result['request']}, device {key}"
        offer = self.offers.get(key)
        if offer is None:
            return
        asked = self.asked(claim, result["request"])
        if bool(result.get("adminAccess")) != bool(asked.get("adminAccess")):
            yield f"{said}: admin access differs from the request"
        if list(result.get("tolerations") or ()) != list(asked.get("tolerations") or ()):
            yield f"{said}: tolerations are not copied"
        if self.on("DRADeviceBindingConditions"):
            for name in ("bindingConditions", "bindingFailureConditions"):
                if list(result.get(name) or ()) != list(offer.device.get(name) or ()):
                    yield f"{said}: {name} are not copied"
        if bool(result.get("shareID")) != self._shared(key):
            yield f"{said}: only shared devices have a share ID"
        if self._shared(key):
            given = result.get("consumedCapacity") or {}
            consumed = {name: _number(value) for name, value in given.items()}
            if consumed != (self._amounts(asked, key) or {}):
                yield f"{said}: consumed capacity differs from the request"


def _tolerates(toleration: JsonObject, taint: JsonObject) -> bool:
    if toleration.get("effect") and toleration["effect"] != taint["effect"]:
        return False
    if toleration.get("key") and toleration["key"] != taint["key"]:
        return False
    operator = toleration.get("operator") or "Equal"
    if operator == "Equal":
        return (toleration.get("value") or "") == (taint.get("value") or "")
    return bool(operator == "Exists")


def _devices(claim: JsonObject) -> JsonObject:
    found: JsonObject = (claim.get("spec") or {}).get("devices") or {}
    return found


def _generation(item: JsonObject) -> int:
    return int(item["spec"]["pool"].get("generation") or 0)


def _number(value: Any) -> Fraction:
    return Fraction(quantity.parse_any(value))
