"""Claims of any stage of k8srm in the form of the last one, with findings.

Three forms were written: one detail as the whole spec (K1, K2), `claims` (K3) and `devices` (K4).
Shapes were checked before.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from dralab.prototypes.findings import Finding
from dralab.prototypes.k8srm import expressions
from dralab.prototypes.written import Written, unique
from dralab.values.json_types import JsonDict
from dralab.values.patches import copied
from dralab.values.quantity import parse_any

MAX_CONFIGS: Final = 32
NO_MAXIMUM: Final = (1 << 31) - 1
"""The `maxDevices` of a claim that states no maximum, where its totals may need more devices."""
SHARED: Final = frozenset({"matchAttributes", "attributeMatches", "distinctAttributes"})
EARLY: Final = ("topologies", "requests", "accessMode")
INSTANCE: Final = frozenset({"name", "allOf", "oneOf"})
NEEDED: Final = "is required: the devices that the claim is for"


class NormalizedClaimSpec(dict[str, Any]):
    """A claim's spec in the last stage's form; `places` has what its author wrote, by detail.

    Keys are "" (the detail), count, most, constraints, match, distinct and requests.
    """

    __slots__ = ("places",)

    def __init__(self, spec: JsonDict, places: Sequence[Mapping[str, str]]) -> None:
        super().__init__(spec)
        self.places = places


def normalized_claim_spec(
    written: Mapping[str, Any], name: str, path: str, found: list[Finding]
) -> NormalizedClaimSpec:
    """Return a claim's spec in the last stage's form; `name` is for the instance of K1, K2."""
    spec = Written(copied(dict(written)), path, found)
    places: list[Mapping[str, str]] = []
    return NormalizedClaimSpec(_of_any_stage(spec, name, places), places)


def _of_any_stage(spec: Written, name: str, places: list[Mapping[str, str]]) -> JsonDict:
    form = next((each for each in ("devices", "claims") if each in spec.fields), "")
    if not form:
        return _of_stage_1(spec, name, places)
    for field in sorted(spec.fields.keys() - SHARED - {form}):
        spec.invalid(field, f"has no place beside {form}: write it into an entry of {form}")
    if not spec.fields[form]:
        spec.invalid(form, NEEDED)
    match(spec)
    return _of_stage_3(spec, name, places) if form == "claims" else _of_stage_4(spec, places)


def match(part: Written) -> None:
    """Read the lists of attributes that must be equal, or differ."""
    part.rename("attributeMatches", "matchAttributes")
    for field in ("matchAttributes", "distinctAttributes"):
        names = part.fields.get(field) or []
        for index, name in enumerate(names):
            if name.startswith("device."):
                names[index] = name.removeprefix("device.")
                part.legacy(f"{part.name(field)}[{index}]", f'"{name}" read as "{names[index]}"')


def configs(part: Written) -> None:
    """Check the configs of a claim: they are looked up in the claim's own namespace."""
    items = part.each("configs")
    if len(items) > MAX_CONFIGS:
        part.invalid("configs", f"{len(items)} are more than the {MAX_CONFIGS} allowed")
    for config in items:
        if "namespace" in config.fields:
            config.invalid(
                "namespace",
                f'"{config.fields["namespace"]}": a claim\'s config is looked up in the namespace '
                "of the claim: remove the field",
            )


def whole_number(amount: Any) -> int | None:
    """Return a quantity that counts devices, None if it is not a whole number from 1.

    >>> whole_number("2k"), whole_number("1500m"), whole_number(0)
    (2000, None, None)
    """
    number = parse_any(amount)
    return int(number) if number >= 1 and number == int(number) else None


def _of_stage_1(spec: Written, name: str, places: list[Mapping[str, str]]) -> JsonDict:
    """Stages K1 and K2: the whole spec is one detail."""
    if not spec.fields.keys() & {"deviceClass", "driver"}:
        spec.invalid("devices", NEEDED)
        return {"devices": []}
    if "distinctAttributes" in spec.fields:
        spec.invalid("distinctAttributes", "has no place in a claim without devices")
    spec.legacy("", "a claim of stages K1 and K2, read as one instance of one detail")
    for field in EARLY:
        if spec.fields.pop(field, None):
            spec.invalid(field, f"{field} of stage K1 is scheduled from node files only")
    requests = spec.below("requests")
    if "minDeviceCount" in spec.fields:
        requests.take("devices", spec, "minDeviceCount", "read as requests.devices")
    spec.rename("maxDeviceCount", "maxDevices")
    places.append(_detail(spec, requests, "deviceClass"))
    return {"devices": [{"name": name, "allOf": [spec.fields]}]}


def _of_stage_3(spec: Written, name: str, places: list[Mapping[str, str]]) -> JsonDict:
    """Stage K3: instances are called claims, each inline or oneOf."""
    spec.legacy("claims", "instances of stage K3, read as devices")
    instances = []
    for index, entry in enumerate(spec.each("claims")):
        label = entry.fields.pop("name", f"{name}-{index}")
        beside = sorted(entry.fields.keys() - {"oneOf"})
        if "oneOf" not in entry.fields:
            places.append(_open_detail(entry))
            instances.append({"name": label, "allOf": [entry.fields]})
            continue
        if beside:
            entry.invalid("", f"{', '.join(beside)} beside oneOf: write them into each alternative")
        if not entry.fields["oneOf"]:
            entry.invalid("oneOf", "has no alternative: at least one is required")
        places += map(_open_detail, entry.each("oneOf"))
        instances.append({"name": label, "oneOf": entry.fields["oneOf"]})
    names = [each["name"] for each in instances]
    for index, entry in enumerate(spec.each("claims")):
        if names[index] in names[:index]:
            entry.invalid("name", f'"{names[index]}" appears twice')
    return {**{k: v for k, v in spec.fields.items() if k != "claims"}, "devices": instances}


def _of_stage_4(spec: Written, places: list[Mapping[str, str]]) -> JsonDict:
    """Stage K4: instances with allOf and oneOf."""
    instances = spec.each("devices")
    unique(instances, "name")
    for instance in instances:
        inline = {k: instance.fields.pop(k) for k in sorted(instance.fields.keys() - INSTANCE)}
        both = instance.fields.get("allOf") or instance.fields.get("oneOf")
        if inline and both:
            instance.invalid("", f"{', '.join(inline)} beside allOf or oneOf: move them into one")
        elif inline:
            detail = Written(inline, instance.path, spec.found)
            instance.legacy("", "a detail instead of allOf, read as its only entry")
            places.append(_detail(detail, detail.below("requests"), "class"))
            instance.fields["allOf"] = [inline]
            continue
        elif not both:
            instance.invalid("", "one of allOf and oneOf is required")
        for field in ("allOf", "oneOf"):
            places += [
                _detail(detail, detail.below("requests"), "class")
                for detail in instance.each(field)
            ]
    return spec.fields


def _open_detail(detail: Written) -> dict[str, str]:
    """Read a detail of stage K3: it has a maximum only where its limits say so."""
    requests = detail.below("requests")
    places = _detail(detail, requests, "deviceClass")
    if requests.fields.keys() - {"devices"} and "maxDevices" not in detail.fields:
        detail.fields["maxDevices"] = NO_MAXIMUM
        detail.legacy("", "no limits.count: as many devices as its requests need")
    requests.fields.setdefault("devices", 1)
    detail.fields["requests"] = requests.fields
    return places


def _detail(detail: Written, requests: Written, class_field: str) -> dict[str, str]:
    """Read one detail, and return it with its original fields; `class_field` names its class."""
    detail.rename("config", "configs")
    detail.rename("deviceClass", "class")
    match(detail)
    configs(detail)
    fields = detail.fields
    if fields.get("constraints"):
        detail.found += expressions.findings(fields["constraints"], detail.at("constraints"))
    _amounts(detail, requests)
    if "allowShared" in fields:
        del fields["allowShared"]
        detail.legacy("allowShared", "not in the model: it has no effect")
    if not (fields.get("class") or fields.get("deviceType") or fields.get("driver")):
        detail.invalid(class_field, f"a {class_field} is required")
    if fields.get("class") and fields.get("deviceType"):
        detail.invalid("deviceType", "is an alternative to a class: set only one")
    if fields.get("adminAccess"):
        for field in ("requests", "maxDevices"):
            if field in fields:
                detail.warn(field, "has no effect: adminAccess gives all devices that match")
    names = {"constraints": "constraints", "match": "matchAttributes"}
    names |= {"distinct": "distinctAttributes", "requests": "requests"}
    if "maxDevices" in fields or class_field == "class":
        names["most"] = "maxDevices"
    places = {"": detail.path} | {part: detail.at(field) for part, field in names.items()}
    return places | ({"count": requests.at("devices")} if "devices" in requests.fields else {})


def _amounts(detail: Written, requests: Written) -> None:
    """Read the number of devices and the totals."""
    requests.rename("count", "devices")
    for field in ("devices", "count"):
        if field in detail.fields:
            requests.take("devices", detail, field, "read as requests.devices")
    limits = detail.below("limits")
    detail.fields.pop("limits", None)
    for name in sorted(limits.fields.keys() - {"count"}):
        limits.warn(name, "the model enforces only the limit count")
    if "count" in limits.fields:
        most = whole_number(limits.fields["count"])
        if most is None:
            limits.invalid("count", _not_a_count(limits.fields["count"]))
        else:
            limits.fields["count"] = most
            detail.take("maxDevices", limits, "count", "read as maxDevices")
    for name, amount in requests.fields.items():
        if name == "devices" and whole_number(amount) is None:
            requests.invalid(name, _not_a_count(amount))
        elif parse_any(amount) < 0:
            requests.invalid(name, f'"{amount}" must not be negative')
    if requests.fields:
        detail.fields["requests"] = requests.fields
    least, most = whole_number(requests.fields.get("devices", 1)), detail.fields.get("maxDevices")
    if most is not None and least is not None and most < least:
        detail.invalid("maxDevices", f"{most} is less than the {least} requested")


def _not_a_count(amount: Any) -> str:
    return f'"{amount}" is not a number of devices: it must be a positive integer'
