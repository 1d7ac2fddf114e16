"""Documents of any stage in the form of the last one, with findings.

Nothing is guessed silently: what is renamed, moved or dropped says so, with its field path.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from dralab.api.core.addresses import address_problems
from dralab.objects.metadata import metadata_of, spec_of
from dralab.prototypes.findings import (
    Finding,
    NormalizedDocument,
    identity,
    invalid,
    legacy,
    warning,
)
from dralab.prototypes.k8srm import expressions
from dralab.prototypes.k8srm.claim_forms import (
    MAX_CONFIGS,
    configs,
    match,
    normalized_claim_spec,
)
from dralab.prototypes.k8srm.kinds import (
    API_VERSION,
    CAPACITY,
    CONTAINER_DEVICES,
    EARLY_POD_CLAIMS,
    GROUP,
    KINDS,
    POD_CLAIMS_STRUCT,
)
from dralab.prototypes.schema_words import Schema
from dralab.prototypes.shape import Shape, misshapen, standard
from dralab.prototypes.spelling import respell
from dralab.prototypes.written import Written, unique
from dralab.values.json_types import JsonDict
from dralab.values.names import subdomain_problems
from dralab.values.patches import copied
from dralab.values.quantity import parse_any
from dralab.values.version import is_version

SCHEMAS: Final[Mapping[str, JsonDict]] = {kind["kind"]: kind["schema"] for kind in KINDS}
SHAPES: Final = {kind: Shape(schema, whole=True) for kind, schema in SCHEMAS.items()}
CAPACITIES: Final = Shape({"type": "array", "items": CAPACITY})
POD_STRUCT: Final = Shape(POD_CLAIMS_STRUCT)
EARLY_CLAIMS: Final = Shape(EARLY_POD_CLAIMS)
POD_FIELDS: Final[Mapping[str, Schema]] = {
    "spec.deviceClaims": {"x-kubernetes-preserve-unknown-fields": True},  # of two shapes
    "spec.containers[].devices": CONTAINER_DEVICES,
}
WAYS: Final = frozenset({"devices", "claimName", "template"})
EARLY_WAYS: Final = frozenset({"claim", "claimName", "claimTemplateName", "template"})
VALUES: Final = ("stringValue", "intValue", "quantityValue", "semVerValue")


def normalize(item: Mapping[str, Any]) -> NormalizedDocument:
    """Return a document of the group, or of Kubernetes itself, in the last stage's form.

    Kinds that neither knows pass as they are.
    """
    normalized: JsonDict = copied(dict(item))
    api_version, kind, _, name = identity(item)
    found: list[Finding] = []
    if kind in SCHEMAS and api_version == API_VERSION:
        found += respell(SCHEMAS[kind], normalized)
        name = identity(normalized)[3]
        found += SHAPES[kind].findings(normalized)
        if not misshapen(found):
            NORMALIZERS.get(kind, _as_it_is)(normalized, found)
    elif api_version == API_VERSION:
        found.append(invalid("kind", f'"{kind}" is not one of {", ".join(sorted(SCHEMAS))}'))
    elif api_version.partition("/")[0] == GROUP:
        found.append(invalid("apiVersion", f'"{api_version}" must be {API_VERSION}'))
    else:
        if (api_version, kind) == ("v1", "ConfigMap"):
            _normalize_config_map(normalized, found)
        found += standard(normalized, POD_FIELDS)
        if (api_version, kind) == ("v1", "Pod") and not misshapen(found):
            _normalize_pod(normalized, found)
    found += named(name)
    return NormalizedDocument(document=normalized, findings=tuple(found))


def with_types(reports: Sequence[NormalizedDocument]) -> list[NormalizedDocument]:
    """Return documents that belong together, with what their DeviceDrivers say of device types."""
    listed = {
        name
        for report in reports
        if report.document.get("kind") == "DeviceDriver" and report.state != "invalid"
        for name in report.document.get("deviceTypes") or ()
    }
    found = []
    for report in reports:
        findings: list[Finding] = []
        for each in report.findings:
            if (each.level, each.field) != ("warning", "spec.deviceType"):
                findings.append(each)
            elif (wanted := spec_of(report.document).get("deviceType")) not in listed:
                text = f'no DeviceDriver here lists "{wanted}": the class matches nothing'
                findings.append(warning(each.field, text))
        found.append(replace(report, findings=tuple(findings)))
    return found


def named(name: str) -> list[Finding]:
    """Return the errors of a name; the prototypes' own files use upper case."""
    problems = subdomain_problems(name) if name else []
    if problems and not subdomain_problems(name.lower()):
        return [warning("metadata.name", f'"{name}": a server requires lower case; kept here')]
    return [invalid("metadata.name", problem) for problem in problems]


def _as_it_is(item: JsonDict, found: list[Finding]) -> None:
    """Leave a document alone."""


def _mend_class(item: JsonDict, found: list[Finding]) -> None:
    spec = Written(item.get("spec") or {}, "spec", found)
    fields = spec.fields
    if fields.get("accessMode"):
        spec.warn("accessMode", "of stage K1, has no effect: devices are exclusive")
    spec.rename("contstraints", "constraints")
    spec.rename("deviceMaxCount", "maxDeviceCount")
    spec.rename("deviceTypes", "deviceType")
    match(spec)
    inner = sorted({"driver", "constraints", "configs"} & fields.keys())
    names = ", ".join(map(spec.name, inner))
    definition = spec.below("definition")
    if "selector" in fields and "definition" in fields:
        spec.invalid("", "set either selector or definition, not both")
    elif "selector" in fields and inner:
        spec.invalid("selector", f"a group of classes cannot also have {names}")
    elif inner and "definition" in fields:
        spec.invalid("definition", f"{names} are set beside it: move them into it")
    elif inner:
        for name in inner:
            definition.take(name, spec, name, f"read as spec.definition.{name}")
        fields["definition"] = definition.fields
    elif "selector" not in fields and fields.get("deviceType"):
        fields.setdefault("definition", {})
    elif "selector" not in fields and "definition" not in fields:
        spec.invalid("", "one of selector and definition is required")
    if definition.fields.get("constraints"):
        where = definition.at("constraints")
        found += expressions.findings(definition.fields["constraints"], where)
    if "definition" in fields and not definition.fields.get("driver"):
        if not fields.get("deviceType"):
            definition.invalid("driver", "a driver is required")
        else:
            spec.warn(
                "deviceType",
                f'matches devices of the drivers whose DeviceDriver lists "{fields["deviceType"]}"'
                ": none while there is no such driver",
            )
    _class_configs(definition)


def _class_configs(definition: Written) -> None:
    items = definition.each("configs")
    if len(items) > MAX_CONFIGS:
        definition.invalid("configs", f"{len(items)} are more than the {MAX_CONFIGS} allowed")
    for config in items:
        if not config.fields.get("namespace"):
            config.invalid("namespace", "a class's config needs a namespace")


def _mend_claim(item: JsonDict, found: list[Finding]) -> None:
    item["spec"] = normalized_claim_spec(
        item.get("spec") or {}, str(metadata_of(item).get("name")), "spec", found
    )
    _device_statuses(item, found)


def _device_statuses(item: JsonDict, found: list[Finding]) -> None:
    """Check what drivers report: a device has one address first in both fields."""
    for entry in Written(item.get("status") or {}, "status", found).each("deviceStatuses"):
        first, others = entry.fields.get("deviceIP"), entry.each("deviceIPs")
        written = [(entry, "deviceIP", first)] if first else []
        for part, field, text in [*written, *((each, "ip", each.fields["ip"]) for each in others)]:
            for problem in address_problems(text):
                part.invalid(field, f'"{text}" {problem}')
        if first and others and others[0].fields["ip"] != first:
            text = f'"{others[0].fields["ip"]}" must be deviceIP, which is "{first}"'
            others[0].invalid("ip", text)


def _mend_privileged(item: JsonDict, found: list[Finding]) -> None:
    text = "stored, but nothing allocates it: use a DeviceClaim with adminAccess"
    found.append(warning("kind", text))
    spec = Written(item.get("spec") or {}, "spec", found)
    configs(spec)
    if spec.fields.get("constraints"):
        found += expressions.findings(spec.fields["constraints"], "spec.constraints")


def _mend_pool(item: JsonDict, found: list[Finding]) -> None:
    spec = Written(item["spec"], "spec", found)
    spec.rename("resources", "sharedResources")
    _mend_capacities(spec, "sharedResources")
    check_attributes(spec)
    if "count" in spec.fields and not spec.fields.get("devices"):
        count = spec.fields.pop("count")
        spec.fields["devices"] = [{"name": f"device-{index}"} for index in range(count)]
        spec.legacy("count", f"a pool of stage K2, read as {count} equal devices")
    elif "count" in spec.fields:
        spec.invalid("count", "has no place beside devices: remove it")
    names = [part["name"] for part in spec.fields.get("sharedResources") or ()]
    unique(spec.each("devices"), "name")
    for device in spec.each("devices"):
        device.rename("requests", "sharedResourcesConsumed")
        device.rename("resources", "claimResourcesProvided")
        _mend_capacities(device, "claimResourcesProvided")
        check_attributes(device)
        _mend_consumed(device.below("sharedResourcesConsumed"), names)


def _mend_capacities(part: Written, field: str) -> None:
    value = part.fields.get(field)
    if isinstance(value, dict):
        part.fields[field] = [{"name": name, "capacity": value[name]} for name in value]
        part.legacy(field, "a map, read as a list of name and capacity")
    wrong = CAPACITIES.findings(part.fields.get(field) or [], part.at(field))
    part.found += wrong
    if wrong:
        part.fields[field] = []
        return
    unique(part.each(field), "name")
    for entry in part.each(field):
        part.found += _wrong_capacity(entry.fields, entry.path)


def _wrong_capacity(entry: JsonDict, path: str) -> Iterator[Finding]:
    """Yield the errors of one capacity and its block."""
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


def check_attributes(part: Written) -> None:
    """Check the attributes of a pool or device."""
    unique(part.each("attributes"), "name")
    for each in part.each("attributes"):
        item = each.fields
        if sum(name in item for name in VALUES) != 1:
            each.invalid("", f"exactly one of {', '.join(VALUES)} is required")
        if "semVerValue" in item and not is_version(item["semVerValue"]):
            text = f'"{item["semVerValue"]}" is not a semantic version: only == and != compare it'
            each.warn("semVerValue", text)


def _mend_consumed(consumed: Written, names: list[str]) -> None:
    """Match consumers' names with the pool's: the A100 data has memory-slices-00 for -0."""
    for name in list(consumed.fields):
        amount = consumed.fields[name]
        if parse_any(amount) < 0:
            consumed.invalid(name, f'"{amount}" must not be negative')
        prefix, dash, number = name.rpartition("-")
        plain = f"{prefix}{dash}{int(number)}" if number.isdecimal() else name
        if name in names:
            continue
        if plain in names and plain not in consumed.fields:
            consumed.fields[plain] = consumed.fields.pop(name)
            consumed.legacy(name, f'read as "{plain}", which the pool has')
        elif plain in names:
            consumed.invalid(name, f'means the same as "{plain}": set one of them')
        else:
            known = ", ".join(names) or "none"
            consumed.invalid(name, f"the pool has no such shared resource; it has {known}")


def _normalize_pod(item: JsonDict, found: list[Finding]) -> None:
    claims = spec_of(item).get("deviceClaims")
    if claims is None:
        return
    early = isinstance(claims, list)
    wrong = (EARLY_CLAIMS if early else POD_STRUCT).findings(claims, "spec.deviceClaims")
    found += wrong
    if wrong:
        return
    if early:
        found.append(legacy("spec.deviceClaims", "a list of stages K1 to K3, read entry by entry"))
        for entry in Written(item["spec"], "spec", found).each("deviceClaims"):
            how = sorted(EARLY_WAYS & entry.fields.keys())
            if len(how) != 1:
                entry.invalid("", f"one of {', '.join(sorted(EARLY_WAYS))} is required")
            for field in {"claim", "template"} & set(how):
                normalized_claim_spec(entry.fields[field], "claim", entry.at(field), found)
        for field in ("name", "claimName"):
            unique(Written(item["spec"], "spec", found).each("deviceClaims"), field)
        return
    struct = Written(claims, "spec.deviceClaims", found)
    if len(WAYS & claims.keys()) != 1:
        struct.invalid("", "one of devices, claimName and template is required")
    for index, entry in enumerate(struct.each("devices")):
        if not entry.fields.get("class"):
            entry.invalid("class", "is required")
        if not entry.fields.get("name"):
            entry.fields["name"] = f"device-{index}"
            entry.legacy("name", "absent: a name was generated")
    unique(struct.each("devices"), "name")


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
    "DevicePrivilegedClaim": _mend_privileged,
}
