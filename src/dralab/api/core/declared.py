"""Kinds whose rules are tags beside their Go types, such as `+k8s:minimum=1` (KEP-5073).

Which field of which type has which tags is data (`data/declared.json`, written by
`tools/generate_declared.py`). What has not changed is not judged again. Source: the generated
`zz_generated.validations.go` and k8s.io/apimachinery `pkg/api/validate`.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache, partial
from typing import Any, Final

import orjson

from dralab.api import fields
from dralab.api.fields import FieldError
from dralab.api.releases import DATA
from dralab.api.resource.features import DEFAULT_1_36, WORKLOAD_PREEMPTION, Features
from dralab.api.strategy import Strategy
from dralab.values import names
from dralab.values.json_types import JsonDict, JsonObject
from dralab.values.records import dataclass

EMPTY: Final[Sequence[Any]] = (None, "", [])
UUID: Final = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
MOST_LEVELS: Final = 4
"""The levels of templates in a Workload, of which the last has pod groups alone."""


# Fields of other kinds whose rules are tags in 1.37, and told without a reason since.
BARE: Final = frozenset(
    {
        ("ClusterRole", "rules[*].verbs"),
        ("EndpointSlice", "endpoints[*].addresses"),
        ("HorizontalPodAutoscaler", "spec.maxReplicas"),
        ("PriorityLevelConfiguration", "spec.exempt"),
        ("PriorityLevelConfiguration", "spec.limited"),
        ("PriorityLevelConfiguration", "spec.limited.limitResponse.type"),
        ("PriorityLevelConfiguration", "spec.type"),
        ("Role", "rules[*].verbs"),
        ("ValidatingAdmissionPolicyBinding", "spec.validationActions"),
    }
)
_NUMBER: Final = re.compile(r"\[\d+\]")


def as_tags_say(kind: str, error: FieldError) -> FieldError:
    """Return an error in the words of a server whose rules are tags.

    >>> str(as_tags_say("HorizontalPodAutoscaler", fields.required("spec.maxReplicas", "is it?")))
    'spec.maxReplicas: Required value'
    """
    if (kind, _NUMBER.sub("[*]", error.field)) not in BARE:
        return error
    if error.reason == "FieldValueNotSupported" and not error.value:
        return fields.required(error.field)
    plain = error.reason in {"FieldValueRequired", "FieldValueForbidden"}
    return replace(error, detail="") if plain else error


def _uuid_problems(text: str) -> list[str]:
    return [] if UUID.fullmatch(text) else ["must be a lowercase UUID in 8-4-4-4-12 format"]


def _prefixed_problems(text: str) -> list[str]:
    problems = names.qualified_problems(text)
    return problems if problems or "/" in text else ["must be a domain-prefixed key"]


def _segment_problems(text: str) -> list[str]:
    if text in {".", ".."}:
        return [f"may not be '{text}'"]
    return [f"may not contain '{each}'" for each in "/%" if each in text]


FORMATS: Final[Mapping[str, Callable[[str], list[str]]]] = {
    "k8s-label-key": names.qualified_problems,
    "k8s-long-name": partial(names.subdomain_problems, unit="bytes"),
    "k8s-path-segment-name": _segment_problems,
    "k8s-prefixed-label-key": _prefixed_problems,
    "k8s-short-name": partial(names.label_problems, unit="bytes"),
    "k8s-uuid": _uuid_problems,
}


@cache
def _table() -> Mapping[str, Any]:
    found: Mapping[str, Any] = orjson.loads((DATA / "declared.json").read_bytes())
    return found


@dataclass(frozen=True, slots=True)
class _FieldTags:
    """The tags of a field that hold with some gates."""

    plain: frozenset[str]
    valued: Sequence[tuple[str, str]]

    def values(self, name: str) -> list[str]:
        return [value for key, value in self.valued if key == name]


@dataclass(frozen=True, slots=True)
class _FieldChange:
    """A value, and the value before the change, which a new object does not have."""

    new: Any
    old: Any
    updated: bool

    @property
    def given(self) -> bool:
        """Whether there is a value."""
        return self.new not in EMPTY

    @property
    def was_given(self) -> bool:
        """Whether there was a value."""
        return self.old not in EMPTY


def declared_problems(
    type_: str, new: JsonObject, old: JsonObject | None, path: str
) -> list[FieldError]:
    """Return the errors of a part of an object of which only this part has tags."""
    return list(DeclaredStrategy()._struct(type_, new, old, path))  # noqa: SLF001


def _in_force(tags: Sequence[str], features: Features) -> _FieldTags:
    plain, valued = set(), []
    for tag in tags:
        rule, _, gate = tag.partition(" ")
        if gate and (gate.removeprefix("!") in features) is gate.startswith("!"):
            continue
        name, equal, value = rule.partition("=")
        if equal:
            valued.append((name, value))
        else:
            plain.add(name)
    return _FieldTags(frozenset(plain), valued)


class DeclaredStrategy(Strategy):
    """A kind that is validated by its tags: its spec and its status, each when it is written."""

    def __init__(self, features: Features = DEFAULT_1_36) -> None:
        self.features = features

    def validate(self, value: JsonDict) -> list[FieldError]:
        """Return the errors of the spec of a new object."""
        return list(self._part("spec", value, None))

    def validate_update(self, new: JsonDict, old: JsonDict) -> list[FieldError]:
        """Return the errors of the change of the spec."""
        return list(self._part("spec", new, old))

    def validate_status(self, new: JsonDict, old: JsonDict) -> list[FieldError]:
        """Return the errors of the change of the status."""
        return list(self._part("status", new, old))

    def _part(self, part: str, new: JsonObject, old: JsonObject | None) -> Iterator[FieldError]:
        kind = _table()["kinds"].get(f"{new['apiVersion']} {new['kind']}")
        if kind is None:
            return  # of a release whose rules are not known
        type_ = next(each["type"] for each in _table()["types"][kind] if each["name"] == part)
        before = None if old is None else old.get(part) or {}
        yield from self._struct(type_, new.get(part) or {}, before, part)

    def _struct(
        self, type_: str, new: JsonObject, old: JsonObject | None, path: str
    ) -> Iterator[FieldError]:
        declared: Sequence[Mapping[str, Any]] = _table()["types"][type_]
        rules = {each["name"]: _in_force(each["rules"], self.features) for each in declared}
        yield from _union(rules, new, old, path)
        for field in declared:
            name = field["name"]
            for needed in field["rules"]:
                other = re.fullmatch(r'dependentRequired\("(\w+)"\)', needed)
                if other and new.get(name) is not None and new.get(other[1]) is None:
                    text = f"must be set when {name} is set"
                    yield fields.required(f"{path}.{other[1]}", text)
            value = new.get(name)
            if "there" in field and value == 0 and not isinstance(value, bool):
                value = None  # a number that is no pointer: zero is as good as none
            change = _FieldChange(value, (old or {}).get(name), updated=old is not None)
            yield from self._field(field, rules[name], change, f"{path}.{name}")

    def _field(
        self, field: Mapping[str, Any], rules: _FieldTags, change: "_FieldChange", path: str
    ) -> Iterator[FieldError]:
        if change.updated and change.new == change.old:
            return
        stops = list(_stops(rules, change, path))
        yield from stops
        if stops or not (change.given or "there" in field):
            return
        new, old = change.new, change.old
        if "list" in field:
            yield from self._items(field, rules, change, path)
        elif "type" in field and not isinstance(new, str | int):
            yield from self._struct(field["type"], new or {}, old, path)
        elif change.given:
            yield from _value(rules, new, old, path)

    def _items(
        self, field: Mapping[str, Any], rules: _FieldTags, change: "_FieldChange", path: str
    ) -> Iterator[FieldError]:
        key = next(iter(rules.values("listMapKey")), "")
        known = {item.get(key): item for item in change.old or ()} if key else {}
        updates = rules.values("update") if change.updated else []
        new: Sequence[Any] = change.new
        for index in sorted(fields.repeated([item.get(key) for item in new]) if key else ()):
            yield fields.duplicate(f"{path}[{index}]", new[index])
        for index, item in enumerate(new):
            before = known.pop(item.get(key), None) if key else None
            if before is None and "NoAddItem" in updates:
                yield fields.forbidden(f"{path}[{index}]", "item may not be added")
            if "type" in field and item != before:
                yield from self._struct(field["type"], item, before, f"{path}[{index}]")
        if known and "NoRemoveItem" in updates:
            yield fields.forbidden(path, "item may not be removed")


def _union(
    rules: Mapping[str, _FieldTags], new: JsonObject, old: JsonObject | None, path: str
) -> Iterator[FieldError]:
    members = [name for name, each in rules.items() if "unionMember" in each.plain]
    given = [name for name in members if new.get(name) not in (None, [])]
    if not members or (old is not None and given == [m for m in members if old.get(m)]):
        return
    known = ", ".join(f"`{name}`" for name in members)
    if not given:
        yield fields.invalid_value(path, "", f"must specify one of: {known}")
    elif len(given) > 1:
        shown = "{" + ", ".join(given) + "}"
        yield fields.invalid_value(path, shown, f"must specify exactly one of: {known}")


def _stops(rules: _FieldTags, change: _FieldChange, path: str) -> Iterator[FieldError]:
    """Yield the errors after which no other rule of a field is checked."""
    if change.given and "forbidden" in rules.plain:
        yield fields.forbidden(path, "")
    if not change.given and "required" in rules.plain:
        yield fields.required(path)
    if change.updated and "immutable" in rules.plain:
        yield fields.invalid_value(path, None, "field is immutable")
    updates = rules.values("update") if change.updated else []
    if change.given and not change.was_given and "NoSet" in updates:
        yield fields.invalid_value(path, None, "field cannot be set once created")
    if not change.given and change.was_given and "NoUnset" in updates:
        yield fields.invalid_value(path, None, "field cannot be cleared once set")
    for most in rules.values("maxItems"):
        if change.given and len(change.new) > int(most):
            yield fields.too_many(path, len(change.new), int(most))


def _value(rules: _FieldTags, new: Any, old: Any, path: str) -> Iterator[FieldError]:
    for name, bound in rules.valued:
        match name:
            case "minimum" if new < int(bound):
                text = f"must be greater than or equal to {bound}"
                yield fields.invalid_value(path, new, text)
            case "maximum" if new > int(bound):
                yield fields.invalid_value(path, new, f"must be less than or equal to {bound}")
            case "maxLength" if len(new) > int(bound):
                yield fields.too_long(path, int(bound))
            case "enum" if new not in (known := bound.split(",")):
                yield fields.not_supported(path, new, known)
            case "format":
                for text in FORMATS[bound](new):
                    yield fields.invalid_value(path, new, text)
            case _:
                pass
    if "monotonic" in rules.plain and old is not None and new < old:
        yield fields.invalid_value(path, new, f"may not be decreased from {old}")


class GroupStrategy(DeclaredStrategy):
    """PodGroups and CompositePodGroups."""

    def default(self, value: JsonDict) -> None:
        """Fill in how the group may be disrupted, and whom it may preempt."""
        spec = value.setdefault("spec", {})
        if value["apiVersion"].endswith("v1alpha2"):
            if WORKLOAD_PREEMPTION in self.features:
                spec.setdefault("disruptionMode", "Pod")
            return
        spec.setdefault("disruptionMode", {"single": {}})
        if "PodGroupPreemptionPolicy" in self.features:
            spec.setdefault("preemptionPolicy", "PreemptLowerPriority")


class WorkloadStrategy(DeclaredStrategy):
    """Workloads: names of templates differ, priorities do not, and levels are few."""

    def validate(self, value: JsonDict) -> list[FieldError]:
        """Return the errors of a new workload."""
        return super().validate(value) + _template_problems(value.get("spec") or {})

    def validate_update(self, new: JsonDict, old: JsonDict) -> list[FieldError]:
        """Return the errors of the change."""
        return super().validate_update(new, old) + _template_problems(new.get("spec") or {})


def _template_problems(spec: JsonObject) -> list[FieldError]:
    errors: list[FieldError] = []
    seen = {item.get("name") for item in spec.get("podGroupTemplates") or ()}
    priorities = [_priority(item) for item in spec.get("podGroupTemplates") or ()]
    level = [("spec", spec)]
    for depth in range(1, MOST_LEVELS + 1):
        below = []
        for path, holder in level:
            for index, item in enumerate(holder.get("compositePodGroupTemplates") or ()):
                below.append((f"{path}.compositePodGroupTemplates[{index}]", item))
        for path, item in below:
            leaves = item.get("podGroupTemplates") or ()
            named = [(path, item)]
            named += [(f"{path}.podGroupTemplates[{i}]", leaf) for i, leaf in enumerate(leaves)]
            for where, each in named:
                if each.get("name") in seen:
                    errors.append(fields.duplicate(f"{where}.name", each.get("name")))
                seen.add(each.get("name"))
                priorities.append(_priority(each))
            if not leaves and not item.get("compositePodGroupTemplates"):
                why = "must have at least one child PodGroupTemplate or CompositePodGroupTemplate"
                errors.append(fields.invalid_value(path, item.get("name"), why))
        if depth == MOST_LEVELS and below:
            why = f"maximum template hierarchy depth is {MOST_LEVELS}"
            errors.append(fields.invalid_value("spec.compositePodGroupTemplates", None, why))
        level = below
    if any(each != priorities[0] for each in priorities):
        why = (
            "all priority and priorityClassName values must be identical, detected multiple values"
            if spec.get("compositePodGroupTemplates")
            else "detected multiple priority configurations"
        )
        errors.append(fields.invalid_value("spec", None, why))
    return errors


def _priority(template: JsonObject) -> tuple[str, int | None]:
    return template.get("priorityClassName") or "", template.get("priority")
