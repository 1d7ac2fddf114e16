"""Objects checked against the table of types, and normalized as a server stores them.

`problems` tells unknown fields, wrong types and texts that are no quantity or time.
`normalised` drops what the Go types drop (nulls, empty optional fields, unknown fields), writes
what they always write, orders fields as they do and makes quantities canonical.
`go_form` is the value as upstream's messages print it.
"""

import difflib
import re
from collections.abc import Mapping
from functools import lru_cache
from types import MappingProxyType
from typing import Any, Final

from dralab.api.fields import FieldError
from dralab.api.internal_forms import META, versioned_form
from dralab.api.resource.types import (
    SCALARS,
    FieldType,
    StructField,
    StructFields,
    Structs,
    structs,
)
from dralab.values import quantity

RFC3339: Final = re.compile(
    r"\d{4}-\d{2}-\d{2}[Tt]\d{2}:\d{2}:\d{2}(\.\d+)?([Zz]|[+-]\d{2}:\d{2})", re.ASCII
)
MEANT: Final = {
    "str": "a string",
    "int": "an integer",
    "bool": "true or false",
    "quantity": "a quantity, such as 4, 500m or 40Gi",
    "time": "a time, such as 2026-01-31T08:00:00Z",
}
ZEROS: Final[Mapping[str, Any]] = {"str": "", "int": 0, "bool": False, "quantity": "0"}
INITIALISMS: Final = {"cel": "CEL", "uid": "UID", "ips": "IPs", "shareID": "ShareID"}
VALUES_IN_GO: Final = {
    "int": "IntValue", "bool": "BoolValue", "string": "StringValue", "version": "VersionValue",
    "ints": "IntValues", "bools": "BoolValues", "strings": "StringValues",
    "versions": "VersionValues",
}  # fmt: skip
"""The fields of DeviceAttribute as the internal Go type names them."""
OBJECT_META: Final = META + "ObjectMeta"
NEWER: Final = frozenset({"derivedAttributes", "skipNodeOperations", "compatibilityGroups"})
"""Fields that 1.36 does not print: they show only where they are set."""
NOTHING: Final[Mapping[str, Any]] = MappingProxyType({})


def problems(version: str, kind: str, obj: Mapping[str, Any]) -> list[FieldError]:
    """Return where an object does not match its kind: unknown fields and wrong types.

    >>> [str(found) for found in problems("v1", "DeviceClass", {"spec": {"selector": []}})]
    ['spec.selector: Forbidden: unknown field, did you mean "selectors"?']
    """
    table = structs(version)
    found: list[FieldError] = []
    for name, value in obj.items():
        if name not in {"apiVersion", "kind"}:
            _check_field(table, kind, value, name, found)
    return found


def normalised(
    version: str, kind: str, obj: Mapping[str, Any], known: Mapping[str, Any] = NOTHING
) -> dict[str, Any]:
    """Return the object as a server of that version encodes it; `metadata` is kept as it is.

    `known` holds parts of it, such as `spec`, that have this form already.
    """
    result = {name: obj[name] for name in ("kind", "apiVersion", "metadata") if name in obj}
    found = _struct(structs(version), _parts(version, kind, frozenset(known)), obj)
    if not known:
        return result | found
    for name in structs(version)[kind]:
        if name in known:
            result[name] = known[name]
        elif name in found:
            result[name] = found[name]
    return result


@lru_cache(256)
def _parts(version: str, kind: str, known: frozenset[str]) -> StructFields:
    """Return the fields of a kind that are to be normalised."""
    fields = structs(version)[kind].items()
    return StructFields(
        {name: field for name, field in fields if name != "metadata" and name not in known}
    )


def go_form(struct: str, value: Mapping[str, Any]) -> dict[str, Any]:
    """Return a struct with the field names of upstream's internal Go type, as its messages do.

    >>> go_form("CELDeviceSelector", {"expression": "true"})
    {'Expression': 'true'}
    """
    found: dict[str, Any] = _go(structs("v1"), FieldType(struct), value)
    return found


def _check_field(
    table: Structs, struct: str, value: Any, path: str, found: list[FieldError]
) -> None:
    fields = table[struct]
    name = path.rpartition(".")[2]
    field = fields.get(name)
    if field is None:
        close = difflib.get_close_matches(name, fields, n=1)
        hint = f'did you mean "{close[0]}"?' if close else f"known here: {', '.join(fields)}"
        found.append(FieldError("FieldValueForbidden", path, "", f"unknown field, {hint}"))
    else:
        _check(table, field.type, value, path, found)


def _check(table: Structs, kind: FieldType, value: Any, path: str, found: list[FieldError]) -> None:
    if value is None:
        return
    if kind.container == "list":
        if not isinstance(value, list):
            found.append(_wrong(path, value, "a list"))
            return
        item_type = FieldType(kind.name)
        for index, item in enumerate(value):
            _check(table, item_type, item, f"{path}[{index}]", found)
    elif kind.container == "map":
        if not isinstance(value, dict):
            found.append(_wrong(path, value, "a mapping"))
            return
        item_type = FieldType(kind.name)
        for key, item in value.items():
            if not isinstance(key, str):
                found.append(_wrong(path, key, "a string as key"))
                continue
            _check(table, item_type, item, f"{path}[{key}]", found)
    elif kind.is_struct:
        if not isinstance(value, dict):
            found.append(_wrong(path, value, "a mapping"))
            return
        for name, item in value.items():
            _check_field(table, kind.name, item, f"{path}.{name}", found)
    elif not _fits(kind.name, value):
        found.append(_wrong(path, value, MEANT[kind.name]))


def _fits(scalar: str, value: Any) -> bool:
    match scalar:
        case "str":
            return isinstance(value, str)
        case "int":
            return isinstance(value, int) and not isinstance(value, bool) and abs(value) < 1 << 63
        case "bool":
            return isinstance(value, bool)
        case "quantity":
            return (
                isinstance(value, (str, int, float))
                and not isinstance(value, bool)
                and quantity.is_quantity(str(value))
            )
        case "time":
            return isinstance(value, str) and RFC3339.fullmatch(value) is not None
        case _:
            return True


def _wrong(path: str, value: Any, meant: str) -> FieldError:
    return FieldError("FieldValueTypeInvalid", path, value, f"must be {meant}")


def _struct(table: Structs, fields: StructFields, value: Mapping[str, Any]) -> dict[str, Any]:
    # Nearly all structs have few of their fields, all that are always written, and these in order.
    places = fields.places
    result: dict[str, Any] = {}
    last, missing = -1, fields.written
    for name, item in value.items():
        found = places.get(name)
        if found is None or item is None:
            continue
        place, field = found
        if place < last:
            return _struct_in_order(table, fields, value)
        last = place
        if field.always:
            missing -= 1
        _take(table, field, item, result)
    return _struct_in_order(table, fields, value) if missing else result


def _struct_in_order(
    table: Structs, fields: StructFields, value: Mapping[str, Any]
) -> dict[str, Any]:
    result: dict[str, Any] = {}
    for name, field in fields.items():
        item = value.get(name)
        if item is not None:
            _take(table, field, item, result)
        elif field.always:
            result[name] = _zero(table, field.type)
    return result


def _take(table: Structs, field: StructField, item: Any, result: dict[str, Any]) -> None:
    """Put the value of a field into a struct, unless it is dropped."""
    kind = field.type
    if kind.container:
        if item or field.always:
            result[field.name] = _contained(table, kind, item)
    elif kind.name in SCALARS:
        if kind.name == "quantity":
            result[field.name] = _quantity(item)
        elif field.always or kind.pointer or kind.name == "raw" or item not in ("", 0, False):
            result[field.name] = item
    else:
        result[field.name] = _struct(table, table[kind.name], item)


def _contained(table: Structs, kind: FieldType, items: Any) -> Any:
    if kind.name == "quantity":
        if kind.container == "list":
            return [_quantity(item) for item in items]
        return {key: _quantity(item) for key, item in sorted(items.items())}
    if kind.name in ZEROS or kind.name == "raw":
        # A null among values is the zero of their type, as for Go's decoder.
        zero = ZEROS.get(kind.name)
        if kind.container == "list":
            return [zero if item is None else item for item in items]
        return {key: zero if item is None else item for key, item in sorted(items.items())}
    fields = table[kind.name]
    if kind.container == "list":
        return [_struct(table, fields, item or {}) for item in items]
    return {key: _struct(table, fields, item or {}) for key, item in sorted(items.items())}


def _quantity(value: Any) -> Any:
    if value is None:
        return "0"
    try:
        return quantity.canonical(str(value))
    except quantity.QuantityError:
        return value


def _zero(table: Structs, kind: FieldType) -> Any:
    if kind.is_struct and not kind.pointer:
        return _struct(table, table[kind.name], {})
    return None if kind.container or kind.pointer else ZEROS.get(kind.name)


def _go(table: Structs, kind: FieldType, value: Any) -> Any:
    if kind.container and value is None:
        return None
    if kind.container == "list":
        return [_go(table, FieldType(kind.name), item) for item in value]
    if kind.container == "map":
        items = sorted(value.items())
        return {key: _go(table, FieldType(kind.name), item) for key, item in items}
    if value is None:
        if kind.pointer:
            return None
        value = {} if kind.is_struct else ZEROS.get(kind.name)
    if not kind.is_struct:
        return _quantity(value) if kind.name == "quantity" else value
    names = VALUES_IN_GO if kind.name == "DeviceAttribute" else {}
    if kind.name == "ResourceClaimTemplateSpec":
        # Go's metadata is embedded there: its fields stand beside the others, as JSON has them.
        return versioned_form(OBJECT_META, value.get("metadata") or {}) | {
            "Spec": _go(table, table[kind.name]["spec"].type, value.get("spec"))
        }
    return {
        names.get(name) or INITIALISMS.get(name) or name[:1].upper() + name[1:]: _go(
            table, field.type, value.get(name)
        )
        for name, field in table[kind.name].items()
        if name not in NEWER or value.get(name) is not None
    }
