"""JSON patches (RFC 6902), with the rules and the words of the library of kube-apiserver.

It is laxer than the RFC in places: what stands before the first slash of a pointer is not looked
at, a member that is not there may be replaced, tested for null and copied as null, and a negative
index counts from the end. Source: gopkg.in/evanphx/json-patch.v4 `patch.go`.
"""

import re
from collections.abc import Callable, Mapping
from typing import Any, Final

import orjson

from dralab.values.patches import Document, FailedTest, PatchError, TooManyOperations, copied, same

# As in k8s.io/apiserver `endpoints/handlers/patch.go`.
MAX_OPERATIONS: Final = 10_000
# A few `copy` operations double a document each: bytes copied (JSONPatchMaxCopyBytes).
MAX_COPIED: Final = 3 * 1024 * 1024
MISSING: Final = "missing value"
NUMBER: Final = re.compile(r"[+-]?[0-9]{1,18}")


class UndecodablePatch(PatchError):  # noqa: N818 - a fact about the patch
    """A patch that is not a list of operations."""


def json_patch(
    document: Document, operations: Document, *, limit: int = MAX_OPERATIONS
) -> Document:
    """Return the document after a JSON patch; PatchError if an operation fails.

    >>> json_patch({"a": [1]}, [{"op": "add", "path": "/a/-", "value": 2}])
    {'a': [1, 2]}
    """
    if not isinstance(operations, list):
        raise _undecodable(operations, "Patch")
    if len(operations) > limit:
        raise TooManyOperations(len(operations), limit)
    for operation in operations:
        if not isinstance(operation, dict):
            raise _undecodable(operation, "Operation")
    state = _Patched(copied(document))
    for operation in operations:
        name = operation.get("op")
        act = OPERATIONS.get(name) if isinstance(name, str) else None
        if act is None:
            raise PatchError(f"Unexpected kind: {name if isinstance(name, str) else 'unknown'}")
        act(state, operation)
    return state.document


def go_json_kind(value: Document) -> str:
    """Return the name that Go's decoder has for a JSON value's type.

    >>> go_json_kind([]), go_json_kind(True), go_json_kind(1.5)
    ('array', 'bool', 'number')
    """
    for kind, name in ((dict, "object"), (list, "array"), (str, "string"), (bool, "bool")):
        if isinstance(value, kind):
            return name
    return "number"


def _undecodable(value: Document, wanted: str) -> UndecodablePatch:
    why = f"json: cannot unmarshal {go_json_kind(value)} into Go value of type jsonpatch.{wanted}"
    return UndecodablePatch(why)


class _Patched:
    """The document while operations are applied."""

    def __init__(self, document: Document) -> None:
        self.document = document
        self.copied = 0

    def add(self, operation: Mapping[str, Any]) -> None:
        path = _text(operation, "add")
        holder, key = self.find(path)
        if holder is None:
            raise _no_path(f'add operation does not apply: doc is missing path: "{path}"')
        _with_place(lambda: _add(holder, key, _value(operation)), f"add for path: '{path}'")

    def remove(self, operation: Mapping[str, Any]) -> None:
        path = _text(operation, "remove")
        holder, key = self.find(path)
        if holder is None:
            raise _no_path(f'remove operation does not apply: doc is missing path: "{path}"')
        _with_place(lambda: _remove(holder, key), f"remove for path: '{path}'")

    def replace(self, operation: Mapping[str, Any]) -> None:
        path, value = _text(operation, "replace"), _value(operation)
        if not path:
            if not isinstance(value, dict | list):
                # The error that upstream means to show is none.
                raise PatchError("replace operation value must be object or array: %!w(<nil>)")
            self.document = value
            return
        holder, key = self.find(path)
        if holder is None:
            raise _no_path(f"replace operation does not apply: doc is missing path: {path}")
        try:
            _get(holder, key)
        except PatchError as error:
            why = f"replace operation does not apply: doc is missing key: {path}"
            raise _no_path(why) from error
        if isinstance(holder, dict):
            holder[key] = value
        else:
            holder[_number(key)] = value

    def _source(self, verb: str, operation: Mapping[str, Any]) -> tuple[str, Any, str]:
        """Return the place of `from`: its text, its container, and its key there."""
        source = _text(operation, verb, "from")
        holder, key = self.find(source)
        if holder is None:
            raise _no_path(f"{verb} operation does not apply: doc is missing from path: {source}")
        return source, holder, key

    def move(self, operation: Mapping[str, Any]) -> None:
        _, holder, key = self._source("move", operation)
        value = _with_place(lambda: _get(holder, key), f"move for path: '{key}'")
        _with_place(lambda: _remove(holder, key), f"move for path: '{key}'")
        self.place("move", _text(operation, "move"), value, "error in move for path: '{}'")

    def copy(self, operation: Mapping[str, Any]) -> None:
        source, holder, key = self._source("copy", operation)
        value = _with_place(lambda: _get(holder, key), f"copy for from: '{source}'")
        try:
            encoded = orjson.dumps(value)
        except orjson.JSONEncodeError as error:
            raise PatchError(f"error while performing deep copy: {error}") from error
        self.copied += len(encoded)
        if self.copied > MAX_COPIED:
            raise PatchError(
                "Unable to complete the copy, the accumulated size increase of copy is "
                f"{self.copied}, exceeding the limit {MAX_COPIED}"
            )
        path = _text(operation, "copy")
        self.place("copy", path, orjson.loads(encoded), "error while adding value during copy")

    def test(self, operation: Mapping[str, Any]) -> None:
        path, value = _text(operation, "test"), _value(operation)
        if not path:
            found = self.document
        else:
            holder, key = self.find(path)
            if holder is None:
                raise _no_path(f"test operation does not apply: is missing path: {path}")
            found = _with_place(lambda: _get(holder, key), f"test for path: '{path}'")
        if not same(found, value):
            raise FailedTest(f"testing value {path} failed: test failed")

    def place(self, verb: str, path: str, value: Document, why: str) -> None:
        """Put a value at the target of `move` or `copy`."""
        holder, key = self.find(path)
        if holder is None:
            where = f"{verb} operation does not apply: doc is missing destination path: {path}"
            raise _no_path(where)
        try:
            _add(holder, key, value)
        except PatchError as error:
            raise PatchError(f"{why.format(path)}: {error}") from error

    def find(self, path: str) -> tuple[Document, str]:
        """Return the container of a pointer's last step, or None, and the step."""
        steps = [step.replace("~1", "/").replace("~0", "~") for step in path.split("/")[1:]]
        if not steps:
            return None, ""
        found = self.document
        for step in steps[:-1]:
            try:
                found = _get(found, step)
            except PatchError:
                return None, ""
            if not isinstance(found, dict | list):
                return None, ""
        return found if isinstance(found, dict | list) else None, steps[-1]


def _with_place(act: Callable[[], Document], place: str) -> Document:
    """Return the result of an operation; its error gets the place."""
    try:
        return act()
    except PatchError as error:
        raise PatchError(f"error in {place}: {error}") from error


def _no_path(where: str) -> PatchError:
    return PatchError(f"{where}: {MISSING}")


def _text(operation: Mapping[str, Any], verb: str, member: str = "path") -> str:
    text = operation.get(member)
    if isinstance(text, str):
        return text
    why = MISSING
    if text is not None and verb not in {"add", "remove"}:
        why = f"json: cannot unmarshal {go_json_kind(text)} into Go value of type string"
    raise PatchError(f"{verb} operation failed to decode {member}: {why}")


def _value(operation: Mapping[str, Any]) -> Document:
    return copied(operation.get("value"))  # nothing there is null, as in that library


def _get(holder: Document, key: str) -> Document:
    if isinstance(holder, dict):
        return holder.get(key)
    return holder[_place(_number(key), len(holder))]


def _add(holder: Document, key: str, value: Document) -> None:
    if isinstance(holder, dict):
        holder[key] = value
        return
    if key == "-":
        holder.append(value)
        return
    try:
        index = _number(key)
    except PatchError as error:
        raise PatchError(f"value was not a proper array index: '{key}': {error}") from error
    holder.insert(_place(index, len(holder) + 1), value)


def _remove(holder: Document, key: str) -> None:
    if isinstance(holder, list):
        del holder[_place(_number(key), len(holder))]
    elif key in holder:
        del holder[key]
    else:
        raise PatchError(f"Unable to remove nonexistent key: {key}: {MISSING}")


def _number(key: str) -> int:
    if not NUMBER.fullmatch(key):
        shown = orjson.dumps(key).decode()
        raise PatchError(f"strconv.Atoi: parsing {shown}: invalid syntax")
    return int(key)


def _place(index: int, size: int) -> int:
    if not -size <= index < size:
        raise PatchError(f"Unable to access invalid index: {index}: invalid index referenced")
    return index + size if index < 0 else index


OPERATIONS: Final[Mapping[str, Callable[[_Patched, Mapping[str, Any]], None]]] = {
    "add": _Patched.add,
    "remove": _Patched.remove,
    "replace": _Patched.replace,
    "copy": _Patched.copy,
    "move": _Patched.move,
    "test": _Patched.test,
}
