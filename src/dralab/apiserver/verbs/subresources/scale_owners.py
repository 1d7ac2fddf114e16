"""The owners of the number of replicas, in an object and in its Scale.

A write to `/scale` is a write to the Scale: its field owners are those of the object that own the
number. Who owns it afterwards owns it in the object, too, by an entry of its own.

Source: k8s.io/apimachinery `pkg/util/managedfields/scalehandler.go`.
"""

from collections.abc import Iterable, Mapping
from typing import Any, Final

from dralab.values.json_types import JsonDict

Entry = Mapping[str, Any]
SCALE: Final = "autoscaling/v1"
IN_SCALE: Final = ("spec", "replicas")
SELF: Final = "."


def owners_in_scale(entries: Iterable[Entry], path: tuple[str, ...]) -> list[JsonDict]:
    """Return the entries of a Scale; `path` is where the object has the number of replicas."""
    fields = _only(IN_SCALE)
    return [
        {**entry, "apiVersion": SCALE, "fieldsV1": fields}
        for entry in _distinct(entries)
        if _has(entry.get("fieldsV1"), path)
    ]


def owners_in_object(
    entries: Iterable[Entry], scale: Iterable[Entry], path: tuple[str, ...], api_version: str
) -> list[JsonDict]:
    """Return the entries of an object after a write to its Scale, whose entries are `scale`.

    An entry of an apply stays as it is; of all others the number is taken.
    """
    left = {_identity(entry): entry for entry in scale if _has(entry.get("fieldsV1"), IN_SCALE)}
    found: list[JsonDict] = []
    for entry in _distinct(entries):
        if not _has(entry.get("fieldsV1"), path):
            found.append(dict(entry))
        elif entry.get("operation") == "Apply" and _identity(entry) in left:
            found.append(dict(entry))
            del left[_identity(entry)]
        elif fields := _without(entry["fieldsV1"], path):
            found.append({**entry, "fieldsV1": fields})
    # A new entry has no time: upstream looks it up by a name that the object does not have.
    found += [
        {name: item for name, item in entry.items() if name != "time"}
        | {"apiVersion": api_version, "fieldsV1": _only(path)}
        for entry in left.values()
    ]
    return sorted(found, key=lambda entry: (entry.get("operation", ""), entry.get("time", "")))


def _distinct(entries: Iterable[Entry]) -> Iterable[Entry]:
    """Return the entries by their names, ignoring times: the last of a name counts."""
    return {(*_identity(entry), entry.get("apiVersion")): entry for entry in entries}.values()


def _identity(entry: Entry) -> tuple[Any, ...]:
    return entry.get("manager"), entry.get("operation"), entry.get("subresource", "")


def _only(path: tuple[str, ...]) -> JsonDict:
    found: JsonDict = {}
    for name in reversed(path):
        found = {f"f:{name}": found}
    return found


def _has(fields: Any, path: tuple[str, ...]) -> bool:
    for name in path:
        if not isinstance(fields, Mapping) or f"f:{name}" not in fields:
            return False
        fields = fields[f"f:{name}"]
    return True


def _without(fields: JsonDict, path: tuple[str, ...]) -> JsonDict:
    """Return a set of fields without one of them."""
    step = f"f:{path[0]}"
    rest = {name: item for name, item in fields.items() if name != step}
    if len(path) == 1:
        return rest
    below = _without(fields[step], path[1:])
    if not below:
        return rest
    return rest | {step: {} if [*below] == [SELF] else below}
