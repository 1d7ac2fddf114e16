"""Standard kinds in files: unknown fields and values of a wrong type.

What the fields mean is left to a server; resource.k8s.io is checked in full by `resource.files`.
"""

import difflib
from collections.abc import Mapping
from typing import Any, Final

from dralab.api.fields import FieldError, invalid_value, required
from dralab.api.manifests import UNKNOWN, CheckedObject, as_stored, is_stored
from dralab.api.schemas import Schema, Schemas
from dralab.values.json_types import JsonDict
from dralab.values.quantity import is_quantity

MEANT: Final = {
    "object": "a mapping", "array": "a list", "string": "a string", "integer": "an integer",
    "number": "a number", "boolean": "true or false",
}  # fmt: skip
LISTED: Final = 20  # fields of a struct that a message may list
TYPES: Final[Mapping[str, tuple[type, ...]]] = {
    "object": (dict,), "array": (list,), "string": (str,), "integer": (int,),
    "number": (int, float), "boolean": (bool,),
}  # fmt: skip


def standard_check(given: JsonDict) -> CheckedObject | None:
    """Check an object of a standard kind; None for groups that are not Kubernetes' own."""
    group = str(given["apiVersion"]).rpartition("/")[0]
    schema = Schemas.standard().schema_of(given["apiVersion"], given["kind"])
    if schema is not None:
        return CheckedObject(given, *as_stored(given, shape_errors(schema, given)))
    if is_stored(given):
        return None
    if "." in group and not group.endswith(".k8s.io"):
        return None
    text = f"{given['apiVersion']} has no such kind"
    return CheckedObject(given, [invalid_value("kind", given["kind"], text)])


def shape_errors(schema: Schema, value: Any, path: str = "") -> list[FieldError]:
    """Return the unknown fields and wrong types of a value.

    >>> pod = {"metadata": {"name": "p"}, "spec": {"container": []}}
    >>> [str(e) for e in shape_errors(Schemas.standard().schema_of("v1", "Pod"), pod)]
    ['spec.container: Forbidden: unknown field, did you mean "containers"?']
    """
    found: list[FieldError] = []
    _check(schema, value, path, found)
    return found


def _check(schema: Schema, value: Any, path: str, found: list[FieldError]) -> None:
    if value is None:
        return
    if schema.format in {"quantity", "int-or-string"} or not schema.type:
        _check_loose(schema, value, path, found)
        return
    kinds: tuple[type, ...] = TYPES[schema.type]
    wrong = not isinstance(value, kinds) or (isinstance(value, bool) and schema.type != "boolean")
    if wrong:
        text = f"must be {MEANT[schema.type]}"
        found.append(FieldError("FieldValueTypeInvalid", path, value, text))
    elif schema.type == "array":
        if schema.item is not None:
            for index, item in enumerate(value):
                _check_item(schema, schema.item, item, f"{path}[{index}]", found)
    elif schema.type == "object" and not schema.free:
        for name, item in value.items():
            below = schema.field(str(name))
            here = f"{path}.{name}" if path else str(name)
            if below is not None:
                _check(below, item, here, found)
            elif schema.is_struct:
                text = f"{UNKNOWN}{_hint(str(name), schema)}"
                found.append(FieldError("FieldValueForbidden", here, "", text))


def _hint(name: str, schema: Schema) -> str:
    close = difflib.get_close_matches(name, schema.properties, n=1)
    if close:
        return f', did you mean "{close[0]}"?'
    known = ", ".join(schema.properties)
    return f", known here: {known}" if 0 < len(schema.properties) <= LISTED else ""


def _check_item(
    array: Schema, schema: Schema, item: Any, path: str, found: list[FieldError]
) -> None:
    if item is None and schema.type and not schema.nullable:
        text = f"must be {MEANT[schema.type]}"
        found.append(FieldError("FieldValueTypeInvalid", path, item, text))
    _check(schema, item, path, found)
    if isinstance(item, dict):
        keys = [key for key in array.list_map_keys if key in schema.required]
        found += [required(f"{path}.{key}") for key in keys if item.get(key) is None]


def _check_loose(schema: Schema, value: Any, path: str, found: list[FieldError]) -> None:
    if schema.format == "quantity" and not (
        isinstance(value, (str, int, float))
        and not isinstance(value, bool)
        and is_quantity(str(value))
    ):
        text = "must be a quantity, such as 4, 500m or 40Gi"
        found.append(FieldError("FieldValueTypeInvalid", path, value, text))
    elif schema.format == "int-or-string" and (
        not isinstance(value, (str, int)) or isinstance(value, bool)
    ):
        text = "must be an integer or a string"
        found.append(FieldError("FieldValueTypeInvalid", path, value, text))
