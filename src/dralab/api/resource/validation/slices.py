"""ResourceSlice: pools, devices, attributes, counters."""

from collections.abc import Sequence
from typing import Any, Final

from dralab.api.fields import (
    FieldError,
    forbidden,
    invalid_value,
    not_found,
    not_supported,
    required,
    too_long,
    too_many,
)
from dralab.api.node_selectors import node_selector_errors
from dralab.api.resource.features import Features
from dralab.api.resource.structure import go_form
from dralab.api.resource.validation.binding import binding_errors
from dralab.api.resource.validation.capacity import capacity_errors
from dralab.api.resource.validation.lists import list_errors, set_errors
from dralab.api.resource.validation.names import (
    driver_errors,
    fully_qualified_errors,
    label_errors,
    pool_errors,
    qualified_errors,
    shortened,
    subdomain_errors,
)
from dralab.api.resource.validation.taints import taint_errors
from dralab.values import quantity
from dralab.values.json_types import JsonObject
from dralab.values.version import Version

MAX_DEVICES: Final = 128
MAX_ADVANCED_DEVICES: Final = 64
"""Where any device has taints, counters or list attributes."""
MAX_COUNTER_SETS: Final = 8
MAX_COUNTERS: Final = 32
MAX_CONSUMED_SETS: Final = 2
MAX_GROUPS: Final = 2
MAX_ENTRIES: Final = 32
MAX_VALUES: Final = 48
MAX_VALUE_BYTES: Final = 64
MAX_TAINTS: Final = 16
LISTS: Final = ("bools", "ints", "strings", "versions")
ATTRIBUTE_FIELDS: Final = (
    "int",
    "bool",
    "string",
    "version",
    "ints",
    "bools",
    "strings",
    "versions",
)
SHORT: Final = frozenset({"int", "bool", "string"})
SKIPPABLE: Final = ("*", "NodePrepareResources", "NodeUnprepareResources")
ONE_SELECTION: Final = (
    "exactly one of `nodeName`, `nodeSelector`, `allNodes`, `perDeviceNodeSelection` is required"
)
ONE_DEVICE_SELECTION: Final = (
    "exactly one of `nodeName`, `nodeSelector`, or `allNodes` is required when "
    "`perDeviceNodeSelection` is set to true in the ResourceSlice spec"
)
NO_DEVICE_SELECTION: Final = (
    "`nodeName`, `nodeSelector` and `allNodes` can only be set if `perDeviceNodeSelection` is set "
    "to true in the ResourceSlice spec"
)


def slice_errors(
    spec: JsonObject, path: str, features: Features, old: JsonObject | None = None
) -> list[FieldError]:
    """Return the errors of the spec of a slice, which may replace `old`."""
    found = driver_errors(spec.get("driver") or "", f"{path}.driver")
    found += _pool_errors(spec.get("pool") or {}, f"{path}.pool")
    if old is not None:
        found += _immutable(spec, old, path)
    found += _selection_errors(spec, path)
    devices, sets = spec.get("devices"), spec.get("sharedCounters")
    if devices is not None and sets is not None:
        text = "only one of `sharedCounters` or `devices` is allowed"
        found.append(invalid_value(path, "", text))
    before = {} if old is None else {item.get("name"): item for item in old.get("devices") or ()}
    per_device = spec.get("perDeviceNodeSelection") is True
    found += set_errors(
        devices,
        MAX_ADVANCED_DEVICES if any(map(_is_advanced, devices or ())) else MAX_DEVICES,
        f"{path}.devices",
        lambda device, here: device_errors(
            device, here, features, old=before.get(device.get("name")), per_device=per_device
        ),
        lambda device: device.get("name") or "",
    )
    found += set_errors(
        sets,
        MAX_COUNTER_SETS,
        f"{path}.sharedCounters",
        _counter_set_errors,
        lambda item: item.get("name") or "",
    )
    if spec.get("partitionTypeAttribute") is not None:
        found += _partition_type_errors(spec, path, features)
    return found + skip_errors(spec.get("skipNodeOperations"), f"{path}.skipNodeOperations")


def device_errors(
    device: JsonObject, path: str, features: Features, *, old: JsonObject | None, per_device: bool
) -> list[FieldError]:
    """Return the errors of one device; what `old` had already is not looked at again."""
    found = label_errors(device.get("name") or "", f"{path}.name")
    attributes: JsonObject = device.get("attributes") or {}
    capacity: JsonObject = device.get("capacity") or {}
    entries = len(attributes) + len(capacity)
    if entries > MAX_ENTRIES:
        text = f"the total number of attributes and capacities must not exceed {MAX_ENTRIES}"
        found.append(invalid_value(path, entries, text))
    values = sum(map(_values_in, attributes.values()))
    if values > MAX_VALUES:
        text = f"the total number of attribute values must not exceed {MAX_VALUES}"
        found.append(invalid_value(path, values, text))
    for name in sorted(attributes):
        found += qualified_errors(name, f"{path}.attributes")
        found += attribute_errors(attributes[name] or {}, path, name)
    if old is None or old.get("capacity") != device.get("capacity"):
        shared = device.get("allowMultipleAllocations") is True
        for name in sorted(capacity):
            found += qualified_errors(name, f"{path}.capacity")
            if capacity[name].get("requestPolicy") is not None:
                here = f"{path}.capacity[{shortened(name)}]"
                found += capacity_errors(capacity[name], here, shared=shared, features=features)
    if old is None or old.get("taints") != device.get("taints"):
        found += list_errors(device.get("taints"), MAX_TAINTS, f"{path}.taints", taint_errors)
    found += set_errors(
        device.get("consumesCounters"),
        MAX_CONSUMED_SETS,
        f"{path}.consumesCounters",
        _consumption_errors,
        lambda item: item.get("counterSet") or "",
    )
    found += _device_selection_errors(device, path, per_device=per_device)
    found += binding_errors(device, path)
    for name, item in sorted((device.get("nodeAllocatableResources") or {}).items()):
        here = f"{path}.nodeAllocatableResources[{name}]"
        found += _node_allocatable_errors(name, item or {}, capacity, here)
    for name, item in sorted((device.get("nodeAllocatableResourceMappings") or {}).items()):
        here = f"{path}.nodeAllocatableResourceMappings[{name}]"
        found += _old_mapping_errors(name, item or {}, capacity, here)
    return found


def attribute_errors(attribute: JsonObject, device_path: str, name: str) -> list[FieldError]:
    """Return the errors of the value of an attribute."""
    if len(attribute) == 1:
        # Nearly all attributes are one short text, number or truth: no need to look further.
        ((field, value),) = attribute.items()
        if field in SHORT and (field != "string" or len(value) * 4 <= MAX_VALUE_BYTES):
            return []
    given = [field for field in ATTRIBUTE_FIELDS if attribute.get(field) is not None]
    path = f"{device_path}.attributes[{shortened(name)}]"
    found: list[FieldError] = []
    for field in given:
        value = attribute[field]
        here = f"{path}.{field}"
        if field == "string":
            found += _string_errors(value, here)
        elif field == "version":
            found += _version_errors(value, here)
        elif field in LISTS:
            if not value:
                found.append(invalid_value(here, [], "must not be empty if specified"))
            check = {"strings": _string_errors, "versions": _version_errors}.get(field)
            if check is not None:
                for index, item in enumerate(value):
                    found += check(item, f"{here}[{index}]")
    if len(given) != 1:
        shown = go_form("DeviceAttribute", attribute) if given else ""
        found.append(invalid_value(path, shown, "exactly one value must be specified"))
    return found


def skip_errors(operations: Sequence[str] | None, path: str) -> list[FieldError]:
    """Return the errors of the node operations to leave out."""
    found = set_errors(
        operations,
        None,
        path,
        lambda item, here: [] if item in SKIPPABLE else [not_supported(here, item, SKIPPABLE)],
    )
    given = set(operations or ())
    if "NodePrepareResources" in given and not given & {"NodeUnprepareResources", "*"}:
        text = (
            "NodePrepareResources cannot be skipped unless NodeUnprepareResources is also skipped"
        )
        found.append(invalid_value(path, list(operations or ()), text))
    return found


def _immutable(spec: JsonObject, old: JsonObject, path: str) -> list[FieldError]:
    def pool(of: JsonObject) -> Any:
        return (of.get("pool") or {}).get("name")

    compared = (
        ("pool.name", pool(spec), pool(old)),
        ("driver", spec.get("driver"), old.get("driver")),
        ("nodeName", spec.get("nodeName"), old.get("nodeName")),
    )
    return [
        invalid_value(f"{path}.{name}", new, "field is immutable")
        for name, new, before in compared
        if new != before
    ]


def _pool_errors(pool: JsonObject, path: str) -> list[FieldError]:
    found = pool_errors(pool.get("name") or "", f"{path}.name")
    slices, generation = pool.get("resourceSliceCount") or 0, pool.get("generation") or 0
    if slices <= 0:
        found.append(
            invalid_value(f"{path}.resourceSliceCount", slices, "must be greater than zero")
        )
    if generation < 0:
        text = "must be greater than or equal to zero"
        found.append(invalid_value(f"{path}.generation", generation, text))
    return found


def _selection_errors(spec: JsonObject, path: str) -> list[FieldError]:
    found: list[FieldError] = []
    given: list[str] = []
    node, selector = spec.get("nodeName"), spec.get("nodeSelector")
    if node:
        given.append("`nodeName`")
        found += subdomain_errors(node, f"{path}.nodeName")
    elif node is not None:
        text = "must be either unset or set to a non-empty string"
        found.append(invalid_value(f"{path}.nodeName", node, text))
    if selector is not None:
        given.append("`nodeSelector`")
        found += node_selector_errors(selector, f"{path}.nodeSelector")
        terms = selector.get("nodeSelectorTerms")
        if len(terms or ()) != 1:
            shown = terms and [go_form("NodeSelectorTerm", term) for term in terms]
            text = "must have exactly one node selector term"
            found.append(invalid_value(f"{path}.nodeSelector.nodeSelectorTerms", shown, text))
    for name in ("allNodes", "perDeviceNodeSelection"):
        if spec.get(name):
            given.append(f"`{name}`")
        elif spec.get(name) is not None:
            text = "must be either unset or set to true"
            found.append(invalid_value(f"{path}.{name}", value=False, detail=text))
    if not given:
        found.append(required(path, ONE_SELECTION))
    elif len(given) > 1:
        shown_fields = "{" + ", ".join(given) + "}"
        text = f"{ONE_SELECTION}, but multiple fields are set"
        found.append(invalid_value(path, shown_fields, text))
    return found


def _device_selection_errors(
    device: JsonObject, path: str, *, per_device: bool
) -> list[FieldError]:
    node, selector, everywhere = (
        device.get(name) for name in ("nodeName", "nodeSelector", "allNodes")
    )
    if not per_device:
        if node is None and selector is None and everywhere is None:
            return []
        return [invalid_value(path, None, NO_DEVICE_SELECTION)]
    found: list[FieldError] = []
    given: list[str] = []
    if node:
        given.append("`nodeName`")
        found += subdomain_errors(node, f"{path}.nodeName")
    elif node is not None:
        found.append(invalid_value(f"{path}.nodeName", node, "must not be empty"))
    if selector is not None:
        given.append("`nodeSelector`")
        found += node_selector_errors(selector, f"{path}.nodeSelector")
    if everywhere:
        given.append("`allNodes`")
    elif everywhere is not None:
        text = "must be either unset or set to true"
        found.append(invalid_value(f"{path}.allNodes", value=False, detail=text))
    if not given:
        found.append(required(path, ONE_DEVICE_SELECTION))
    elif len(given) > 1:
        shown = "{" + ", ".join(given) + "}"
        found.append(invalid_value(path, shown, ONE_DEVICE_SELECTION))
    return found


def _counter_set_errors(item: JsonObject, path: str) -> list[FieldError]:
    name = item.get("name")
    found = label_errors(name, f"{path}.name") if name else [required(f"{path}.name")]
    return found + _counters_errors(item.get("counters") or {}, f"{path}.counters")


def _consumption_errors(item: JsonObject, path: str) -> list[FieldError]:
    name = item.get("counterSet")
    found = label_errors(name, f"{path}.counterSet") if name else [required(f"{path}.counterSet")]
    found += _counters_errors(item.get("counters") or {}, f"{path}.counters")
    return found + set_errors(
        item.get("compatibilityGroups"),
        MAX_GROUPS,
        f"{path}.compatibilityGroups",
        label_errors,
    )


def _counters_errors(counters: JsonObject, path: str) -> list[FieldError]:
    if not counters:
        return [required(path)]
    if len(counters) > MAX_COUNTERS:
        return [too_many(path, len(counters), MAX_COUNTERS)]
    return [error for name in sorted(counters) for error in label_errors(name, path)]


def _partition_type_errors(spec: JsonObject, path: str, features: Features) -> list[FieldError]:
    name = spec["partitionTypeAttribute"]
    here = f"{path}.partitionTypeAttribute"
    if "DRAPartitionableDevicesType" not in features:
        return [forbidden(here, "")]
    consumers = [
        (index, device)
        for index, device in enumerate(spec.get("devices") or ())
        if device.get("consumesCounters")
    ]
    if not consumers:
        text = "may only be set on a slice which declares devices that consume counters"
        return [invalid_value(here, name, text)]
    found = fully_qualified_errors(name, here)
    if found:
        return found
    bare = name.removeprefix(f"{spec.get('driver')}/")
    costs: dict[str, Any] = {}
    for index, device in consumers:
        device_path = f"{path}.devices[{index}]"
        attributes = device.get("attributes") or {}
        attribute = attributes.get(name) or attributes.get(bare)
        if attribute is None:
            text = (
                "device consumes counters and `partitionTypeAttribute` names this attribute, "
                "so it must be set"
            )
            found.append(required(f"{device_path}.attributes[{name}]", text))
        elif attribute.get("string") is None:
            text = "must be a string value because `partitionTypeAttribute` names this attribute"
            shown = go_form("DeviceAttribute", attribute)
            found.append(invalid_value(f"{device_path}.attributes[{name}]", shown, text))
        else:
            kind, cost = attribute["string"], _cost(device)
            if costs.setdefault(kind, cost) != cost:
                text = f"devices of partition type {kind!r} must consume the same counters"
                found.append(invalid_value(f"{device_path}.consumesCounters", kind, text))
    return found


def _cost(device: JsonObject) -> list[Any]:
    """Return what a device costs, whichever of several equal sets it draws from."""
    return sorted(
        sorted(
            (name, quantity.parse_any(counter.get("value", "0")))
            for name, counter in (item.get("counters") or {}).items()
        )
        for item in device["consumesCounters"]
    )


def _node_allocatable_errors(
    name: str, item: JsonObject, capacity: JsonObject, path: str
) -> list[FieldError]:
    found = _node_resource_errors(name, path)
    mapping, overhead = item.get("mapping"), item.get("overhead")
    if mapping is None and overhead is None:
        found.append(required(path, "at least one of mapping or overhead must be set"))
    if mapping is not None:
        found += _mapping_errors(mapping, capacity, f"{path}.mapping")
    if overhead is not None:
        here = f"{path}.overhead"
        amounts = {key: overhead.get(key) for key in ("perPod", "perContainer")}
        if all(amount is None for amount in amounts.values()):
            text = "at least one of perPod or perContainer must be set"
            found.append(invalid_value(here, "", text))
        found += [
            invalid_value(f"{here}.{key}", quantity.canonical(str(value)), "must be non-negative")
            for key, value in amounts.items()
            if value is not None and quantity.parse_any(value) < 0
        ]
    return found


def _node_resource_errors(name: str, path: str) -> list[FieldError]:
    if name in {"cpu", "memory", "ephemeral-storage"} or name.startswith("hugepages-"):
        return []
    return [invalid_value(path, name, "must be a node allocatable resource name")]


def _old_mapping_errors(
    name: str, mapping: JsonObject, capacity: JsonObject, path: str
) -> list[FieldError]:
    """Return the errors of a mapping as 1.36 has it: one multiplier, 1 where it is absent."""
    found = _node_resource_errors(name, path)
    key, times = mapping.get("capacityKey"), mapping.get("allocationMultiplier")
    if key is not None and key not in capacity:
        found.append(not_found(f"{path}.capacityKey", key))
    if times is not None and quantity.parse_any(times) <= 0:
        shown = quantity.canonical(str(times))
        found.append(invalid_value(f"{path}.allocationMultiplier", shown, "must be positive"))
    return found


def _mapping_errors(mapping: JsonObject, capacity: JsonObject, path: str) -> list[FieldError]:
    found: list[FieldError] = []
    key, times = mapping.get("capacityKey"), mapping.get("capacityMultiplier")
    if key is not None:
        if not key:
            text = "capacityKey must not be an empty string"
            found.append(invalid_value(f"{path}.capacityKey", "", text))
        elif key not in capacity:
            found.append(not_found(f"{path}.capacityKey", key))
        if times is None:
            text = "capacityMultiplier is required when capacityKey is set"
            found.append(required(f"{path}.capacityMultiplier", text))
        elif quantity.parse_any(times) <= 0:
            shown = quantity.canonical(str(times))
            found.append(invalid_value(f"{path}.capacityMultiplier", shown, "must be positive"))
    per_device = mapping.get("deviceMultiplier")
    if per_device is not None and quantity.parse_any(per_device) <= 0:
        shown = quantity.canonical(str(per_device))
        found.append(invalid_value(f"{path}.deviceMultiplier", shown, "must be positive"))
    if times is not None and key is None:
        text = "capacityKey is required when capacityMultiplier is set"
        found.append(required(f"{path}.capacityKey", text))
    return found


def _string_errors(value: str, path: str) -> list[FieldError]:
    if len(value) * 4 > MAX_VALUE_BYTES and len(value.encode()) > MAX_VALUE_BYTES:
        return [too_long(path, MAX_VALUE_BYTES)]
    return []


def _version_errors(value: str, path: str) -> list[FieldError]:
    found: list[FieldError] = []
    try:
        Version.parse(value)
    except ValueError:
        text = "must be a string compatible with semver.org spec 2.0.0"
        found.append(invalid_value(path, value, text))
    return found + _string_errors(value, path)


def _values_in(attribute: JsonObject | None) -> int:
    """Return how many values an attribute counts for: each item of a list, else one."""
    if not attribute or SHORT.issuperset(attribute):
        return 1
    return sum(len(attribute.get(name) or ()) for name in LISTS) or 1


def _is_advanced(device: JsonObject) -> bool:
    if device.get("taints") or device.get("consumesCounters"):
        return True
    return any(
        attribute is not None
        and not SHORT.issuperset(attribute)
        and any(attribute.get(name) is not None for name in LISTS)
        for attribute in (device.get("attributes") or {}).values()
    )
