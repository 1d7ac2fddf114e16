"""resource.k8s.io/v1 mappings ⇄ the allocation problem.

Objects come from a server or a validated file; a malformed value raises ValueError with the field's
name. `api.resource` checks which fields may be set together; the `SelectorCompiler` that is passed
in evaluates expressions.
"""

from collections.abc import Iterable
from functools import lru_cache
from hashlib import blake2b
from typing import Any, Final, Protocol, cast

import orjson

from dralab.allocation.outcome import Chosen, ClaimAllocation
from dralab.allocation.problem import (
    NO_NODE_SCOPE,
    NOTHING,
    Attribute,
    AttributeType,
    Capacity,
    Claim,
    Constraint,
    CounterConsumption,
    CounterSet,
    Derivation,
    Device,
    DeviceClass,
    DeviceConfig,
    DeviceId,
    DeviceSelector,
    InUse,
    Node,
    NodeScope,
    Request,
    RequestPolicy,
    Scalar,
    ShareId,
    Slice,
    SubRequest,
)
from dralab.objects.claims import holds
from dralab.objects.device_taints import DeviceTaint, DeviceToleration, rule_selects
from dralab.objects.metadata import status_of
from dralab.values.json_types import JsonObject
from dralab.values.quantity import Number, form_of, parse_any, render
from dralab.values.version import Version

# The feature that a node declares which leaves out operations.
OPTIONAL: Final = "DRAOptionalNodeOperations"

UNUSABLE: Final = Attribute("", ())


class SelectorCompiler(Protocol):
    """Turns expressions into selectors; those that do not compile fail when they are asked."""

    def selector(self, text: str) -> DeviceSelector:
        """Return the selector of an expression."""
        ...

    def derivation(self, text: str) -> Derivation:
        """Return the attribute that an expression computes."""
        ...


class V1Reader:
    """Reads v1 mappings; equal parts of what it reads share one object.

    Fleets repeat themselves: ten thousand nodes publish the same two hundred devices. A reader
    keeps one tuple of devices per distinct content, so memory grows with kinds, not with nodes.
    One that `keeps` the lists it has read, which must not change, knows them again at once: for
    objects that are all there anyway, many of which may share their devices.
    """

    def __init__(self, environment: SelectorCompiler, *, keeps: bool = False) -> None:
        self.environment = environment
        self._keeps = keeps
        # By identity of a list that is kept: what reads it and what was read.
        self._read: dict[tuple[str, int], tuple[list[JsonObject], tuple[Device, ...]]] = {}
        self._one_by_one: dict[tuple[str, int], tuple[JsonObject, Device]] = {}
        self._devices: dict[bytes, tuple[Device, ...]] = {}
        self._counter_sets: dict[bytes, tuple[CounterSet, ...]] = {}
        self._attributes: dict[str, dict[object, Attribute]] = {}
        self._capacities: dict[str, Capacity] = {}
        self._names: dict[tuple[str, str], str] = {}
        self._consumptions: dict[tuple[object, ...], tuple[CounterConsumption, ...]] = {}
        # By identity: every attribute is kept above, and hashing each would cost more than it is.
        self._flaws: dict[int, str] = {id(UNUSABLE): "unsupported attribute value"}

    # --- what is there

    def slice(self, wire: JsonObject, taints: Iterable[JsonObject] = ()) -> Slice:
        """Return a ResourceSlice; `taints` are DeviceTaintRules to merge into it."""
        spec = wire["spec"]
        driver, pool = spec["driver"], spec["pool"]
        devices = self._devices_of(driver, spec.get("devices") or [])
        for rule in taints:
            devices = _tainted(devices, rule, driver, pool["name"])
        return Slice(
            name=wire.get("metadata", NOTHING).get("name", ""),
            driver=driver,
            pool=pool["name"],
            generation=pool.get("generation", 0),
            slice_count=pool.get("resourceSliceCount", 1),
            node_scope=_node_scope(spec),
            per_device_scope=bool(spec.get("perDeviceNodeSelection")),
            devices=devices,
            counter_sets=self._counter_sets_of(spec.get("sharedCounters") or []),
            skip_node_operations=tuple(spec.get("skipNodeOperations") or ()),
        )

    def device_class(self, wire: JsonObject) -> DeviceClass:
        """Return a DeviceClass."""
        spec = wire.get("spec") or NOTHING
        return DeviceClass(
            name=wire["metadata"]["name"],
            selectors=self._selectors(spec),
            configs=tuple(
                {"opaque": item["opaque"]} for item in spec.get("config") or () if "opaque" in item
            ),
        )

    def _counter_sets_of(self, wires: list[JsonObject]) -> tuple[CounterSet, ...]:
        if not wires:
            return ()
        key = blake2b(orjson.dumps(wires), digest_size=16, person=b"counters").digest()
        found = self._counter_sets.get(key)
        if found is None:
            found = tuple(CounterSet(item["name"], _counters(item)) for item in wires)
            self._counter_sets[key] = found
        return found

    def _devices_of(self, driver: str, wires: list[JsonObject]) -> tuple[Device, ...]:
        if not wires:
            return ()
        if self._keeps:
            known = self._read.get((driver, id(wires)))
            if known is None:
                known = self._read[driver, id(wires)] = (wires, self._kept(driver, wires))
            return known[1]
        return self._parsed(driver, wires)

    def _kept(self, driver: str, wires: list[JsonObject]) -> tuple[Device, ...]:
        """Read a list that is kept; most of its devices may be in other lists too."""
        one_by_one = self._one_by_one
        if any((driver, id(wire)) in one_by_one for wire in wires):
            for wire in wires:
                if (driver, id(wire)) not in one_by_one:
                    one_by_one[driver, id(wire)] = (wire, self.device(driver, wire))
            return tuple([one_by_one[driver, id(wire)][1] for wire in wires])
        found = self._parsed(driver, wires)
        for wire, device in zip(wires, found, strict=True):
            one_by_one[driver, id(wire)] = (wire, device)
        return found

    def _parsed(self, driver: str, wires: list[JsonObject]) -> tuple[Device, ...]:
        content = orjson.dumps(wires, option=orjson.OPT_NON_STR_KEYS)
        key = blake2b(content, digest_size=16, person=b"devices", key=driver.encode()[:64]).digest()
        found = self._devices.get(key)
        if found is None:
            found = tuple(self.device(driver, wire) for wire in wires)
            self._devices[key] = found
        return found

    def device(self, driver: str, wire: JsonObject) -> Device:
        """Return one device of a ResourceSlice of a driver."""
        names, flaws = self._names, self._flaws
        attributes: dict[str, Attribute] = {}
        problem = ""
        for name, value in (wire.get("attributes") or NOTHING).items():
            full = names.get((driver, name)) or self._qualified(driver, name)
            if full not in attributes or full == name:
                found = attributes[full] = self._attribute(value)
                if id(found) in flaws:
                    problem = problem or f"attribute {name}: {flaws[id(found)]}"
        capacity: dict[str, Capacity] = {}
        written: dict[str, str] = {}
        for name, value in (wire.get("capacity") or NOTHING).items():
            full = names.get((driver, name)) or self._qualified(driver, name)
            if full not in capacity or full == name:
                capacity[full] = self._capacity(value)
                if full != name:
                    written[full] = name
        return Device(
            name=wire["name"],
            driver=driver,
            attributes=attributes,
            capacity=capacity or NOTHING,
            capacity_names=written or NOTHING,
            consumes=self._consumed(wire["consumesCounters"])
            if wire.get("consumesCounters")
            else (),
            taints=tuple(DeviceTaint.read(item) for item in wire.get("taints") or ()),
            shareable=bool(wire.get("allowMultipleAllocations")),
            node_scope=_node_scope(wire),
            binds_to_node=bool(wire.get("bindsToNode")),
            binding_conditions=tuple(wire.get("bindingConditions") or ()),
            binding_failure_conditions=tuple(wire.get("bindingFailureConditions") or ()),
            problem=problem,
        )

    def _qualified(self, driver: str, name: str) -> str:
        full = name if "/" in name else f"{driver}/{name}"
        return self._names.setdefault((driver, name), full)

    def _attribute(self, wire: JsonObject) -> Attribute:
        for type_, value in wire.items():
            # One dictionary per type: 1 and True would be one key.
            known = self._attributes.get(type_)
            if known is None:
                known = self._attributes[type_] = {}
            if value.__class__ is list:
                found = known.get(tuple(value))
            elif value is None:
                continue
            else:
                found = known.get(value)
            return self._new_attribute(type_, value) if found is None else found
        return UNUSABLE

    def _new_attribute(self, type_: str, value: Any) -> Attribute:
        listed = isinstance(value, list)
        found = _attribute(type_, value, listed=listed)
        self._attributes[type_][tuple(value) if listed else value] = found
        if flaw := _flaw(found):
            self._flaws[id(found)] = flaw
        return found

    def _capacity(self, wire: JsonObject) -> Capacity:
        text = str(wire["value"])
        if wire.get("requestPolicy"):
            return Capacity(parse_any(wire["value"]), text, _policy(wire["requestPolicy"]))
        found = self._capacities.get(text)
        if found is None:
            found = self._capacities[text] = Capacity(parse_any(wire["value"]), text)
        return found

    def _consumed(self, wires: list[JsonObject]) -> tuple[CounterConsumption, ...]:
        found = tuple(
            CounterConsumption(
                item["counterSet"],
                _counters(item),
                frozenset(item.get("compatibilityGroups") or ()),
            )
            for item in wires
        )
        key = tuple((item.counter_set, tuple(item.counters.items()), item.groups) for item in found)
        return self._consumptions.setdefault(key, found)

    # --- what is asked

    def claim(self, wire: JsonObject) -> Claim:
        """Return a ResourceClaim."""
        meta, devices = wire["metadata"], (wire.get("spec") or NOTHING).get("devices") or NOTHING
        return Claim(
            name=meta.get("name", ""),
            namespace=meta.get("namespace") or "",
            uid=meta.get("uid") or "",
            requests=tuple(self._request(item) for item in devices.get("requests") or ()),
            constraints=tuple(_constraint(item) for item in devices.get("constraints") or ()),
            configs=tuple(
                DeviceConfig(tuple(item.get("requests") or ()), {"opaque": item["opaque"]})
                for item in devices.get("config") or ()
                if "opaque" in item
            ),
        )

    def _request(self, wire: JsonObject) -> Request:
        name = wire["name"]
        if wire.get("firstAvailable"):
            subrequests = tuple(
                self._alternative(f"{name}/{item['name']}", item) for item in wire["firstAvailable"]
            )
            return Request(name=name, subrequests=subrequests, prioritized=True)
        return Request(
            name=name, subrequests=(self._alternative(name, wire.get("exactly") or NOTHING),)
        )

    def _alternative(self, name: str, wire: JsonObject) -> SubRequest:
        mode = wire.get("allocationMode") or "ExactCount"
        return SubRequest(
            name=name,
            class_name=wire.get("deviceClassName") or "",
            selectors=self._selectors(wire),
            mode=mode,
            count=(wire.get("count") or 1) if mode == "ExactCount" else 0,
            admin=wire.get("adminAccess"),
            tolerations=tuple(
                DeviceToleration.read(item) for item in wire.get("tolerations") or ()
            ),
            capacity={
                key: parse_any(value)
                for key, value in ((wire.get("capacity") or NOTHING).get("requests") or {}).items()
            },
            derived={
                item["name"]: self.environment.derivation(item["expression"])
                for item in wire.get("derivedAttributes") or ()
            },
        )

    def _selectors(self, wire: JsonObject) -> tuple[DeviceSelector | None, ...]:
        return tuple(
            self.environment.selector(item["cel"]["expression"]) if item.get("cel") else None
            for item in wire.get("selectors") or ()
        )


def node(wire: JsonObject) -> Node:
    """Return a core/v1 Node."""
    meta = wire["metadata"]
    return Node(meta["name"], meta.get("labels") or NOTHING, skips_operations(wire))


def skips_operations(node: JsonObject | None) -> bool:
    """Return whether a node declares that it leaves out operations."""
    return OPTIONAL in (status_of(node or {}).get("declaredFeatures") or ())


def in_use(claims: Iterable[JsonObject]) -> InUse:
    """Return what allocated ResourceClaims hold; claims without an allocation hold nothing."""
    exclusive: set[DeviceId] = set()
    shares: set[ShareId] = set()
    consumed: dict[DeviceId, dict[str, Number]] = {}
    holders: dict[DeviceId, list[str]] = {}
    for wire in claims:
        allocation = (wire.get("status") or NOTHING).get("allocation") or NOTHING
        meta = wire["metadata"]
        name = f"{meta['namespace']}/{meta['name']}" if meta.get("namespace") else meta["name"]
        for item in holds(allocation):
            device = DeviceId(item.driver, item.pool, item.device)
            holders.setdefault(device, []).append(name)
            if item.share:
                shares.add(ShareId(device, item.share))
                add_amounts(consumed.setdefault(device, {}), item.consumed)
            else:
                exclusive.add(device)
    return InUse(
        exclusive=frozenset(exclusive),
        shares=frozenset(shares),
        consumed=consumed,
        holders={device: tuple(names) for device, names in holders.items()},
    )


def add_amounts(total: dict[str, Number], wire: JsonObject | None) -> None:
    """Add the quantities of a mapping of names to `total`."""
    for name, value in (wire or NOTHING).items():
        total[name] = total.get(name, 0) + parse_any(value)


def status_allocation(found: ClaimAllocation) -> dict[str, Any]:
    """Return an allocation as the mapping that goes into `status.allocation`."""
    results = [status_result(each, each.device, each.share) for each in found.chosen]
    devices: dict[str, Any] = {}
    if results:
        devices["results"] = results
    if found.configs:
        devices["config"] = [
            {"source": item.source}
            | ({"requests": list(item.requests)} if item.requests else {})
            | dict(item.body)
            for item in found.configs
        ]
    allocation: dict[str, Any] = {"devices": devices}
    if found.node_selector is not None:
        allocation["nodeSelector"] = found.node_selector
    return allocation


def status_result(chosen: Chosen, device: DeviceId, share: str | None) -> dict[str, Any]:
    """Return one of the `results` of an allocation."""
    item: dict[str, Any] = {
        "request": chosen.request,
        "driver": device.driver,
        "pool": device.pool,
        "device": device.device,
    }
    if chosen.admin:
        item["adminAccess"] = True
    if chosen.tolerations:
        item["tolerations"] = [dict(each.written) for each in chosen.tolerations]
    if chosen.binding_conditions:
        item["bindingConditions"] = list(chosen.binding_conditions)
    if chosen.binding_failure_conditions:
        item["bindingFailureConditions"] = list(chosen.binding_failure_conditions)
    if share is not None:
        item["shareID"] = share
        if chosen.consumed:
            item["consumedCapacity"] = _consumed(tuple(chosen.consumed))
    if chosen.skip_node_operations:
        item["skipNodeOperations"] = list(chosen.skip_node_operations)
    return item


@lru_cache(maxsize=4096)
def _consumed(amounts: tuple[tuple[str, Number, str], ...]) -> dict[str, str]:
    """Return what a share takes, as one mapping for all that take the same."""
    return {
        name: render(amount, form_of(text) if text else "DecimalSI")
        for name, amount, text in amounts
    }


# --- parts -------------------------------------------------------------------------------------


def _node_scope(wire: JsonObject) -> NodeScope:
    if "nodeName" not in wire and "nodeSelector" not in wire and "allNodes" not in wire:
        return NO_NODE_SCOPE
    return NodeScope(
        node=wire.get("nodeName") or "",
        selector=wire.get("nodeSelector"),
        everywhere=bool(wire.get("allNodes")),
    )


def _counters(wire: JsonObject) -> dict[str, Number]:
    return {
        name: parse_any(item["value"]) for name, item in (wire.get("counters") or NOTHING).items()
    }


def _tainted(
    devices: tuple[Device, ...], rule: JsonObject, driver: str, pool: str
) -> tuple[Device, ...]:
    """Merge one DeviceTaintRule."""
    if not rule_selects(rule, driver, pool):
        return devices
    taint = DeviceTaint.read(rule["spec"]["taint"])
    return tuple(
        _with_taint(device, taint) if rule_selects(rule, driver, pool, device.name) else device
        for device in devices
    )


def _with_taint(device: Device, taint: DeviceTaint) -> Device:
    values = {name: getattr(device, name) for name in Device.__slots__}
    return Device(**values | {"taints": (*device.taints, taint)})


def _attribute(type_: str, value: Any, *, listed: bool) -> Attribute:
    known = {"int", "bool", "string", "version"}
    plain = type_.removesuffix("s") if listed else type_
    if plain not in known:
        return UNUSABLE
    values = cast("tuple[Scalar, ...]", tuple(value) if listed else (value,))
    return Attribute(cast("AttributeType", plain), values, listed)


def _flaw(attribute: Attribute) -> str:
    if attribute.type == "version":
        for value in attribute.values:
            try:
                Version.parse(str(value))
            except ValueError as error:
                return f"parse semantic version: {error}"
    return "" if attribute.type else "unsupported attribute value"


def _policy(wire: JsonObject) -> RequestPolicy:
    bounds = wire.get("validRange") or NOTHING

    def number(item: JsonObject, key: str) -> Number | None:
        return parse_any(item[key]) if item.get(key) is not None else None

    return RequestPolicy(
        default=number(wire, "default"),
        valid_values=tuple(parse_any(value) for value in wire.get("validValues") or ()),
        least=number(bounds, "min"),
        most=number(bounds, "max"),
        step=number(bounds, "step"),
    )


def _constraint(wire: JsonObject) -> Constraint:
    requests = tuple(wire.get("requests") or ())
    if wire.get("matchAttribute"):
        return Constraint("match", wire["matchAttribute"], requests)
    if wire.get("distinctAttribute"):
        return Constraint("distinct", wire["distinctAttribute"], requests)
    return Constraint("", "", requests)
