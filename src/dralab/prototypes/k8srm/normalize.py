"""Documents of any stage in the form of the last one, with a finding for every field read again.

Nothing is guessed silently: what is renamed, moved or dropped says so, with its field path.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from dralab.api import structural
from dralab.objects.metadata import spec_of
from dralab.prototypes.findings import (
    Finding,
    NormalizedDocument,
    copied,
    identity,
    invalid,
    legacy,
    warning,
)
from dralab.prototypes.k8srm import expressions
from dralab.prototypes.k8srm.kinds import API_VERSION, CLAIM_SPEC, KINDS
from dralab.prototypes.spelling import respell
from dralab.values.json_types import JsonDict
from dralab.values.names import subdomain_problems
from dralab.values.quantity import is_quantity, parse_any
from dralab.values.version import Version

SCHEMAS: Final[Mapping[str, JsonDict]] = {kind["kind"]: kind["schema"] for kind in KINDS}
MAX_CONFIGS: Final = 32
VALUES: Final = ("stringValue", "intValue", "quantityValue", "semVerValue")


def normalize(item: Mapping[str, Any]) -> NormalizedDocument:
    """Return a document of the group, a Pod or a ConfigMap in the last stage's form.

    Kinds that this generation does not know pass as they are.
    """
    normalized: JsonDict = copied(dict(item))
    api_version, kind, _, name = identity(item)
    found: list[Finding] = []
    if kind in SCHEMAS and api_version == API_VERSION:
        found += respell(SCHEMAS[kind], normalized)
        name = identity(normalized)[3]
        errors = structural.errors(SCHEMAS[kind], normalized)
        found += [invalid(error.field, error.body) for error in errors]
        found += [
            invalid(path, f"unknown field of a {kind}")
            for path in structural.unknown_fields(SCHEMAS[kind], normalized)
        ]
        if not errors:
            NORMALIZERS.get(kind, _as_it_is)(normalized, found)
    elif api_version == API_VERSION:
        known = ", ".join(sorted(SCHEMAS))
        found.append(invalid("kind", f'"{kind}" is not one of {known}'))
    elif (api_version, kind) == ("v1", "Pod"):
        _normalize_pod(normalized, found)
    elif (api_version, kind) == ("v1", "ConfigMap"):
        _normalize_config_map(normalized, found)
    found += named(name)
    return NormalizedDocument(document=normalized, findings=tuple(found))


def with_types(reports: Sequence[NormalizedDocument]) -> list[NormalizedDocument]:
    """Return documents that belong together, with what their DeviceDrivers say of device types."""
    listed = {
        name
        for report in reports
        if report.document.get("kind") == "DeviceDriver"
        for name in report.document.get("deviceTypes") or ()
    }
    found = []
    for report in reports:
        findings: list[Finding] = []
        for each in report.findings:
            wanted = spec_of(report.document).get("deviceType")
            if (each.level, each.field) != ("warning", "spec.deviceType"):
                findings.append(each)
            elif wanted not in listed:
                text = f'no DeviceDriver here lists "{wanted}": the class matches nothing'
                findings.append(warning(each.field, text))
        found.append(replace(report, findings=tuple(findings)))
    return found


def named(name: str) -> list[Finding]:
    """Return what is wrong with a name; the prototypes' own files use upper case."""
    if not name:
        return [invalid("metadata.name", "an object needs a name")]
    problems = subdomain_problems(name)
    if problems and not subdomain_problems(name.lower()):
        return [warning("metadata.name", f'"{name}": a server requires lower case; kept here')]
    return [invalid("metadata.name", problem) for problem in problems]


def _as_it_is(item: JsonDict, found: list[Finding]) -> None:
    """Leave a document alone."""


def _renamed(part: JsonDict, old: str, new: str, path: str, found: list[Finding]) -> None:
    if old not in part:
        return
    if new in part:
        found.append(invalid(f"{path}.{old}", f"means the same as {new}: set one of them"))
        return
    part[new] = part.pop(old)
    found.append(legacy(f"{path}.{old}", f"read as {new}"))


def _warn_of_privileged(_: JsonDict, found: list[Finding]) -> None:
    text = "stored, but nothing allocates it: use a DeviceClaim with adminAccess"
    found.append(warning("kind", text))


def _mend_class(item: JsonDict, found: list[Finding]) -> None:
    spec = item.get("spec") or {}
    if spec.get("accessMode"):
        found.append(
            warning("spec.accessMode", "of stage K1, has no effect: devices are exclusive")
        )
    _renamed(spec, "contstraints", "constraints", "spec", found)
    _renamed(spec, "deviceMaxCount", "maxDeviceCount", "spec", found)
    _renamed(spec, "deviceTypes", "deviceType", "spec", found)
    _mend_match(spec, "spec", found)
    inner = {"driver", "constraints", "configs"} & spec.keys()
    if "selector" in spec and "definition" in spec:
        found.append(invalid("spec", "set either selector or definition, not both"))
    elif "selector" in spec and inner:
        names = ", ".join(sorted(inner))
        found.append(invalid("spec.selector", f"a group of classes cannot also have {names}"))
    elif inner and "definition" in spec:
        names = ", ".join(sorted(inner))
        found.append(invalid("spec.definition", f"{names} are set beside it: move them into it"))
    elif inner:
        spec["definition"] = {name: spec.pop(name) for name in sorted(inner)}
        found += [
            legacy(f"spec.{name}", f"read as spec.definition.{name}") for name in sorted(inner)
        ]
    elif "selector" not in spec and spec.get("deviceType"):
        spec.setdefault("definition", {})
    elif "selector" not in spec and "definition" not in spec:
        found.append(invalid("spec", "one of selector and definition is required"))
    definition = spec.get("definition", {})
    if definition.get("constraints"):
        found += expressions.findings(definition["constraints"], "spec.definition.constraints")
    if "definition" in spec and not definition.get("driver") and not spec.get("deviceType"):
        found.append(invalid("spec.definition.driver", "a driver is required"))
    if spec.get("deviceType") and not definition.get("driver"):
        found.append(
            warning(
                "spec.deviceType",
                f'matches devices of the drivers whose DeviceDriver lists "{spec["deviceType"]}": '
                "none while there is no such driver",
            )
        )
    _config_namespaces(definition, "spec.definition", found)


def _config_namespaces(part: JsonDict, path: str, found: list[Finding]) -> None:
    configs = part.get("configs") or []
    if len(configs) > MAX_CONFIGS:
        found.append(
            invalid(f"{path}.configs", f"{len(configs)} are more than the {MAX_CONFIGS} allowed")
        )
    for index, config in enumerate(configs):
        if not config.get("namespace"):
            found.append(
                invalid(f"{path}.configs[{index}].namespace", "a class's config needs a namespace")
            )


def _mend_match(part: JsonDict, path: str, found: list[Finding]) -> None:
    _renamed(part, "attributeMatches", "matchAttributes", path, found)
    for field in ("matchAttributes", "distinctAttributes"):
        names = part.get(field) or []
        for index, name in enumerate(names):
            if name.startswith("device."):
                names[index] = name.removeprefix("device.")
                found.append(
                    legacy(f"{path}.{field}[{index}]", f'"{name}" read as "{names[index]}"')
                )


def _mend_claim(item: JsonDict, found: list[Finding]) -> None:
    item["spec"] = normalized_claim_spec(
        item.get("spec") or {}, item["metadata"]["name"], "spec", found
    )


def normalized_claim_spec(spec: JsonDict, name: str, path: str, found: list[Finding]) -> JsonDict:
    """Return a claim's spec in the last stage's form; `name` is for the one instance of K1, K2."""
    spec = copied(spec)
    if "claims" in spec:
        return _of_stage_3(spec, name, path, found)
    if "devices" not in spec or "deviceClass" in spec:
        return _of_stage_1(spec, name, path, found)
    _mend_match(spec, path, found)
    seen: set[str] = set()
    for index, instance in enumerate(spec["devices"]):
        where = f"{path}.devices[{index}]"
        if instance["name"] in seen:
            found.append(invalid(f"{where}.name", f'"{instance["name"]}" appears twice'))
        seen.add(instance["name"])
        inline = {key: instance.pop(key) for key in list(instance) if key not in INSTANCE_FIELDS}
        if inline and (instance.get("allOf") or instance.get("oneOf")):
            names = ", ".join(sorted(inline))
            found.append(invalid(where, f"{names} beside allOf or oneOf: move them into one"))
        elif inline:
            instance["allOf"] = [inline]
            found.append(legacy(where, "a detail instead of allOf, read as its only entry"))
        if not instance.get("allOf") and not instance.get("oneOf"):
            found.append(invalid(where, "one of allOf and oneOf is required"))
        for field in ("allOf", "oneOf"):
            for number, detail in enumerate(instance.get(field) or []):
                _mend_detail(detail, f"{where}.{field}[{number}]", found)
    return spec


INSTANCE_FIELDS: Final = frozenset({"name", "allOf", "oneOf"})


def _of_stage_1(spec: JsonDict, name: str, path: str, found: list[Finding]) -> JsonDict:
    """Stages K1 and K2: the whole spec is one detail."""
    detail: JsonDict = {
        key: spec[key]
        for key in ("class", "driver", "constraints", "configs", "matchAttributes")
        if key in spec
    }
    if "attributeMatches" in spec:
        detail["attributeMatches"] = spec["attributeMatches"]
    if "deviceClass" in spec:
        detail["class"] = spec["deviceClass"]
    if "minDeviceCount" in spec:
        detail["requests"] = {"devices": spec["minDeviceCount"]}
    if "maxDeviceCount" in spec:
        detail["maxDevices"] = spec["maxDeviceCount"]
    found.append(legacy(path, "a claim of stages K1 and K2, read as one instance of one detail"))
    found += [
        invalid(f"{path}.{field}", f"{field} of stage K1 is scheduled from node files only")
        for field in ("topologies", "requests", "accessMode")
        if spec.get(field)
    ]
    _mend_detail(detail, path, found)
    return {"devices": [{"name": name, "allOf": [detail]}]}


def _of_stage_3(spec: JsonDict, name: str, path: str, found: list[Finding]) -> JsonDict:
    """Stage K3: instances are called claims, each inline or oneOf."""
    found.append(legacy(f"{path}.claims", "instances of stage K3, read as devices"))
    _mend_match(spec, path, found)
    instances = []
    for index, entry in enumerate(spec.pop("claims")):
        where = f"{path}.claims[{index}]"
        instance: JsonDict = {"name": entry.pop("name", f"{name}-{index}")}
        field = "oneOf" if "oneOf" in entry else "allOf"
        instance[field] = entry.pop("oneOf") if field == "oneOf" else [entry]
        if field == "oneOf" and entry:
            names = ", ".join(sorted(entry))
            found.append(invalid(where, f"{names} beside oneOf: use only one of them"))
        for number, detail in enumerate(instance[field]):
            _mend_detail(detail, f"{where}.{field}[{number}]", found)
        instances.append(instance)
    return {**spec, "devices": instances}


def _mend_detail(detail: JsonDict, path: str, found: list[Finding]) -> None:
    _renamed(detail, "config", "configs", path, found)
    _renamed(detail, "deviceClass", "class", path, found)
    _mend_match(detail, path, found)
    if detail.get("constraints"):
        found += expressions.findings(detail["constraints"], f"{path}.constraints")
    requests = detail.get("requests") or {}
    for field in ("devices", "count"):
        if field in detail:
            requests["devices"] = detail.pop(field)
            found.append(legacy(f"{path}.{field}", "read as requests.devices"))
    if "count" in requests:
        requests["devices"] = requests.pop("count")
        found.append(legacy(f"{path}.requests.count", "read as requests.devices"))
    limits = detail.pop("limits", None) or {}
    if limits:
        if "count" in limits:
            _mend_limit(detail, limits.pop("count"), path, found)
        found += [
            warning(f"{path}.limits.{name}", "the model enforces only the limit count")
            for name in sorted(limits)
        ]
    if "allowShared" in detail:
        del detail["allowShared"]
        found.append(legacy(f"{path}.allowShared", "not in the model: it has no effect"))
    if requests:
        detail["requests"] = requests
    found += _wrong_amounts(requests, f"{path}.requests")
    if not detail.get("class") and not detail.get("deviceType") and not detail.get("driver"):
        found.append(invalid(f"{path}.class", "a class is required"))
    if detail.get("class") and detail.get("deviceType"):
        found.append(invalid(f"{path}.deviceType", "is an alternative to a class: set only one"))
    if detail.get("adminAccess"):
        found += [
            warning(f"{path}.{field}", "has no effect: adminAccess gives all devices that match")
            for field in ("requests", "maxDevices")
            if field in detail
        ]
    least, most = whole_number(requests.get("devices", 1)), detail.get("maxDevices")
    if most is not None and least is not None and most < least:
        found.append(invalid(f"{path}.maxDevices", f"{most} is less than the {least} requested"))
    if len(detail.get("configs") or ()) > MAX_CONFIGS:
        found.append(invalid(f"{path}.configs", f"more than the {MAX_CONFIGS} allowed"))


def _mend_limit(detail: JsonDict, limit: Any, path: str, found: list[Finding]) -> None:
    """Stage K3 wrote the most devices as a quantity among others."""
    where = f"{path}.limits.count"
    most = whole_number(limit)
    if most is None:
        found.append(invalid(where, _not_a_count(limit)))
    elif "maxDevices" in detail:
        found.append(invalid(where, "means the same as maxDevices: set one of them"))
    else:
        detail["maxDevices"] = most
        found.append(legacy(where, "read as maxDevices"))


def _wrong_amounts(requests: Mapping[str, Any], path: str) -> Iterator[Finding]:
    """Yield what is wrong with the number of devices and the totals of a detail."""
    for name, amount in requests.items():
        if not is_quantity(str(amount)):
            yield invalid(f"{path}.{name}", f'"{amount}" is not a quantity')
        elif name == "devices":
            if whole_number(amount) is None:
                yield invalid(f"{path}.{name}", _not_a_count(amount))
        elif parse_any(amount) < 0:
            yield invalid(f"{path}.{name}", f'"{amount}" must not be negative')


def whole_number(amount: Any) -> int | None:
    """Return a quantity that counts devices, None if it is not a whole number from 1.

    >>> whole_number("2k"), whole_number("1500m"), whole_number(0)
    (2000, None, None)
    """
    if not is_quantity(str(amount)):
        return None
    number = parse_any(amount)
    return int(number) if number >= 1 and number == int(number) else None


def _not_a_count(amount: Any) -> str:
    return f'"{amount}" is not a number of devices: it must be a positive integer'


def _mend_pool(item: JsonDict, found: list[Finding]) -> None:
    spec = item["spec"]
    _renamed(spec, "resources", "sharedResources", "spec", found)
    _mend_capacities(spec, "sharedResources", "spec", found)
    _check_attributes(spec.get("attributes") or [], "spec.attributes", found)
    if "count" in spec and not spec.get("devices"):
        count = spec.pop("count")
        spec["devices"] = [{"name": f"device-{index}"} for index in range(count)]
        found.append(legacy("spec.count", f"a pool of stage K2, read as {count} equal devices"))
    names = [part["name"] for part in spec.get("sharedResources") or []]
    seen: set[str] = set()
    for index, device in enumerate(spec.get("devices") or []):
        path = f"spec.devices[{index}]"
        _renamed(device, "requests", "sharedResourcesConsumed", path, found)
        _renamed(device, "resources", "claimResourcesProvided", path, found)
        _mend_capacities(device, "claimResourcesProvided", path, found)
        _check_attributes(device.get("attributes") or [], f"{path}.attributes", found)
        _mend_consumed(device, names, path, found)
        if device["name"] in seen:
            found.append(invalid(f"{path}.name", f'"{device["name"]}" appears twice'))
        seen.add(device["name"])


def _mend_capacities(part: JsonDict, field: str, path: str, found: list[Finding]) -> None:
    value = part.get(field)
    if isinstance(value, dict):
        part[field] = [{"name": name, "capacity": amount} for name, amount in value.items()]
        found.append(legacy(f"{path}.{field}", "a map, read as a list of name and capacity"))
    elif value is not None and not isinstance(value, list):
        found.append(invalid(f"{path}.{field}", "must be a list of name and capacity"))
        return
    for index, entry in enumerate(part.get(field) or []):
        where = f"{path}.{field}[{index}]"
        if not isinstance(entry, dict) or "name" not in entry or "capacity" not in entry:
            found.append(invalid(where, "name and capacity are required"))
            continue
        found += _wrong_capacity(entry, where)


def _wrong_capacity(entry: JsonDict, path: str) -> Iterator[Finding]:
    """Yield what is wrong with one capacity and its block."""
    wrong = [key for key in ("capacity", "blockSize") if not is_quantity(str(entry.get(key, 1)))]
    for key in wrong:
        yield invalid(f"{path}.{key}", f'"{entry[key]}" is not a quantity')
    if wrong:
        return
    capacity, block = parse_any(entry["capacity"]), parse_any(entry.get("blockSize", 1))
    if capacity < 0:
        yield invalid(f"{path}.capacity", f'"{entry["capacity"]}" must not be negative')
    if block <= 0:
        yield invalid(f"{path}.blockSize", f'"{entry["blockSize"]}" must be greater than zero')
    elif capacity % block:
        said = f"blockSize {entry['blockSize']}" if "blockSize" in entry else "the default block 1"
        yield warning(
            f"{path}.capacity",
            f'"{entry["capacity"]}" is not a multiple of {said}: the rest cannot be allocated',
        )


def _check_attributes(items: list[JsonDict], path: str, found: list[Finding]) -> None:
    seen: set[str] = set()
    for index, item in enumerate(items):
        given = [name for name in VALUES if name in item]
        if len(given) != 1:
            found.append(
                invalid(f"{path}[{index}]", f"exactly one of {', '.join(VALUES)} is required")
            )
        if "quantityValue" in item and not is_quantity(str(item["quantityValue"])):
            value = item["quantityValue"]
            found.append(invalid(f"{path}[{index}].quantityValue", f'"{value}" is not a quantity'))
        if "semVerValue" in item:
            try:
                Version.parse(str(item["semVerValue"]))
            except ValueError as error:
                found.append(invalid(f"{path}[{index}].semVerValue", str(error)))
        if item["name"] in seen:
            found.append(invalid(f"{path}[{index}].name", f'"{item["name"]}" appears twice'))
        seen.add(item["name"])


def _mend_consumed(device: JsonDict, names: list[str], path: str, found: list[Finding]) -> None:
    """Match consumers' names with the pool's: the A100 data write memory-slices-00 for -0."""
    consumed = device.get("sharedResourcesConsumed") or {}
    for name in list(consumed):
        if name in names:
            continue
        prefix, dash, number = name.rpartition("-")
        plain = f"{prefix}{dash}{int(number)}" if number.isdigit() else name
        field = f"{path}.sharedResourcesConsumed.{name}"
        if plain in names:
            consumed[plain] = consumed.pop(name)
            found.append(legacy(field, f'read as "{plain}", which the pool has'))
        else:
            found.append(invalid(field, "the pool has no such shared resource"))
    found += [
        invalid(
            f"{path}.sharedResourcesConsumed.{name}",
            f'"{amount}" is not a non-negative quantity',
        )
        for name, amount in consumed.items()
        if not is_quantity(str(amount)) or parse_any(amount) < 0
    ]


def _normalize_pod(item: JsonDict, found: list[Finding]) -> None:
    claims = spec_of(item).get("deviceClaims")
    if isinstance(claims, list):
        found.append(legacy("spec.deviceClaims", "a list of stages K1 to K3, read entry by entry"))
        for index, entry in enumerate(claims):
            path = f"spec.deviceClaims[{index}]"
            how = {"claim", "claimName", "claimTemplateName", "template"} & set(entry)
            if len(how) != 1:
                found.append(
                    invalid(
                        path, "one of claim, claimName, claimTemplateName and template is required"
                    )
                )
            for field in {"claim", "template"} & how:
                _check_embedded(entry[field], f"{path}.{field}", found)
    elif isinstance(claims, dict):
        how = {"devices", "claimName", "template"} & claims.keys()
        if len(how) != 1:
            found.append(
                invalid("spec.deviceClaims", "one of devices, claimName and template is required")
            )
        for index, entry in enumerate(claims.get("devices") or []):
            if not entry.get("class"):
                found.append(invalid(f"spec.deviceClaims.devices[{index}].class", "is required"))
            if not entry.get("name"):
                entry["name"] = f"device-{index}"
                found.append(
                    legacy(
                        f"spec.deviceClaims.devices[{index}].name", "absent: a name was generated"
                    )
                )
    elif claims is not None:
        found.append(invalid("spec.deviceClaims", "a struct is required"))


def _check_embedded(spec: Any, path: str, found: list[Finding]) -> None:
    """Report what is wrong with a claim inside a pod; it is read again when the pod is placed."""
    if not isinstance(spec, dict):
        found.append(invalid(path, "the spec of a claim is required"))
        return
    errors = structural.errors(CLAIM_SPEC, spec)
    found += [invalid(f"{path}.{error.field}", error.body) for error in errors]
    found += [
        invalid(f"{path}.{field}", "unknown field of a claim")
        for field in structural.unknown_fields(CLAIM_SPEC, spec)
    ]
    if not errors:
        normalized_claim_spec(spec, "claim", path, found)


def _normalize_config_map(item: JsonDict, found: list[Finding]) -> None:
    if isinstance(item.get("data"), dict):
        item["data"], findings = config_map_data(item["data"])
        found += findings


def config_map_data(data: Mapping[str, Any]) -> tuple[JsonDict, list[Finding]]:
    """Return a ConfigMap's data with numbers as text: the prototype's files have `vlanID: 2000`.

    >>> config_map_data({"vlanID": 2000})[0]
    {'vlanID': '2000'}
    """
    texts, found = dict(data), []
    for key, value in data.items():
        if isinstance(value, bool | int | float):
            texts[key] = str(value).lower() if isinstance(value, bool) else str(value)
            found.append(
                legacy(f"data.{key}", f'a number or bool, read as the string "{texts[key]}"')
            )
        elif not isinstance(value, str):
            found.append(invalid(f"data.{key}", "a string is required"))
    return texts, found


NORMALIZERS: Final[Mapping[str, Callable[[JsonDict, list[Finding]], None]]] = {
    "DeviceClass": _mend_class,
    "DeviceClaim": _mend_claim,
    "DevicePool": _mend_pool,
    "DevicePrivilegedClaim": _warn_of_privileged,
}
