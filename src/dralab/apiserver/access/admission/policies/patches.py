"""Applies mutations to an object: JSON patches and apply configurations from expressions.

Source: k8s.io/apiserver `admission/plugin/policy/mutating/patch`, `pkg/cel/mutation`.
"""

from typing import Any

from dralab import cel
from dralab.cel.json_values import to_json
from dralab.cel.values import Message
from dralab.values.json_patches import json_patch
from dralab.values.json_types import JsonDict
from dralab.values.patches import FailedTest, PatchError, TooManyOperations


class MutationError(Exception):
    """A mutation cannot be made; `str` says why."""


def patched(obj: JsonDict, operations: Any) -> JsonDict:
    """Return an object after the JSON patch that an expression returned. MutationError.

    A `test` that fails leaves the object as it is.
    """
    found = []
    for each in operations:
        if not isinstance(each, Message):
            raise MutationError(
                "type mismatch: JSONPatchType.expression should evaluate to array of JSONPatch"
            )
        operation = {name: _plain(value) for name, value in each.items()}
        if operation.get("from") == "":
            del operation["from"]
        if operation.get("op") in {"add", "replace", "test"}:
            operation.setdefault("value", None)
        found.append(operation)
    try:
        result = json_patch(obj, found)
    except TooManyOperations as error:
        raise MutationError(f"JSON Patch: {error}") from error
    except FailedTest:
        return obj
    except PatchError as error:
        raise MutationError(f"JSON Patch: {error}") from error
    if not isinstance(result, dict):
        raise MutationError("JSON Patch: the result is not an object")
    return result


def configuration(found: Any) -> JsonDict:
    """Return the apply configuration that an expression returned. MutationError."""
    if not isinstance(found, Message):
        raise MutationError("unsupported return type from ApplyConfiguration expression")
    _check_names(found, "Object")
    value = _plain(found)
    return value if isinstance(value, dict) else {}


def _plain(value: Any) -> Any:
    try:
        return to_json(value)
    except cel.CelError as error:
        raise MutationError(str(error)) from error


def _check_names(message: Message, path: str) -> None:
    """Check that the type of each message matches the field that holds it. MutationError."""
    if message.name != path:
        raise MutationError(
            f'type mismatch: unexpected type name "{message.name}", expected "{path}", which '
            "matches field name path from root Object type"
        )
    for name, value in message.items():
        for each in value if isinstance(value, list) else [value]:
            if isinstance(each, Message):
                _check_names(each, f"{path}.{name}")
