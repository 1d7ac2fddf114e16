"""The three patches of the API that need no owners: JSON patch, merge patch, strategic merge.

Pure functions: what goes in is never changed, and what comes out shares with it only what
nothing here changes. Server-side apply knows owners: see `apiserver.managed_fields`.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, Protocol

import orjson

Document = Any

# As in k8s.io/apiserver `endpoints/handlers/patch.go`.
MAX_OPERATIONS: Final = 10_000
# A few `copy` operations double a document each: bytes copied (JSONPatchMaxCopyBytes).
MAX_COPIED: Final = 3 * 1024 * 1024


class PatchError(ValueError):
    """A patch that cannot be read, or does not fit the document."""


class MalformedPatch(PatchError):  # noqa: N818 - a fact about the patch
    """A strategic merge patch whose directives have the wrong form: a bad request."""


class UnsupportedPatch(PatchError):  # noqa: N818 - a fact about the patch
    """A strategic merge patch that asks for what cannot be merged."""


class TooManyOperations(PatchError):  # noqa: N818 - a fact about the patch, as upstream's 413
    """A JSON patch longer than the limit."""

    def __init__(self, count: int, limit: int) -> None:
        super().__init__(f"The allowed maximum operations in a JSON patch is {limit}, got {count}")


class MergeSchema(Protocol):
    """What strategic merge asks of a schema."""

    @property
    def patch_strategy(self) -> Sequence[str]:
        """Return the field's strategies: of merge, replace, retainKeys."""
        ...

    @property
    def patch_merge_key(self) -> str:
        """Return the key by which a list's maps are told apart, or nothing."""
        ...

    @property
    def item(self) -> "MergeSchema | None":
        """Return the schema of a list's elements."""
        ...

    def field(self, name: str) -> "MergeSchema | None":
        """Return the schema of a map's value; None if nothing is known of it."""
        ...


def copied(value: Document) -> Document:
    """Return a JSON value that shares no mapping and no list with `value`."""
    if isinstance(value, dict):
        return {key: copied(item) for key, item in value.items()}
    if isinstance(value, list):
        return [copied(item) for item in value]
    return value


def same(left: Document, right: Document) -> bool:
    """Return whether two JSON values are equal; true is not 1, but 1 is 1.0.

    >>> same({"a": [1]}, {"a": [1.0]}), same(True, 1)
    (True, False)
    """
    if isinstance(left, dict):
        return (
            isinstance(right, dict)
            and left.keys() == right.keys()
            and all(same(value, right[key]) for key, value in left.items())
        )
    if isinstance(left, list):
        return isinstance(right, list) and len(left) == len(right) and all(map(same, left, right))
    if isinstance(left, bool) or isinstance(right, bool):
        return left is right
    return bool(left == right)


# --- RFC 7386 -------------------------------------------------------------------------


def merge_patch(document: Document, patch: Document) -> Document:
    """Return the document after a merge patch (RFC 7386).

    >>> merge_patch({"a": 1, "b": {"c": 2}}, {"a": None, "b": {"d": 3}})
    {'b': {'c': 2, 'd': 3}}
    """
    if not isinstance(patch, dict):
        return copied(patch)
    merged = dict(document) if isinstance(document, dict) else {}
    for key, value in patch.items():
        if value is None:
            merged.pop(key, None)
        else:
            merged[key] = merge_patch(merged.get(key), value)
    return merged


# --- RFC 6902 -------------------------------------------------------------------------


def json_patch(
    document: Document, operations: Document, *, limit: int = MAX_OPERATIONS
) -> Document:
    """Return the document after a JSON patch (RFC 6902); PatchError if an operation fails.

    >>> json_patch({"a": [1]}, [{"op": "add", "path": "/a/-", "value": 2}])
    {'a': [1, 2]}
    """
    if not isinstance(operations, list):
        raise PatchError("a JSON patch is a list of operations")
    if len(operations) > limit:
        raise TooManyOperations(len(operations), limit)
    state = _Patched(copied(document))
    for number, operation in enumerate(operations):
        if not isinstance(operation, dict):
            raise PatchError(f"operation {number} is not an object")
        act = OPERATIONS.get(str(operation.get("op")))
        if act is None:
            raise PatchError(f"operation {number}: unexpected kind: {operation.get('op')}")
        try:
            act(state, operation)
        except PatchError as error:
            where = operation.get("path")
            raise PatchError(f"operation {number} ({operation['op']} {where!r}): {error}") from None
    return state.document


class _Patched:
    """The document while operations are done to it."""

    def __init__(self, document: Document) -> None:
        self.document = document
        self.copied = 0

    def parent(self, path: Sequence[str]) -> Document:
        found = self.document
        for step in path[:-1]:
            found = _child(found, step)
        return found

    def get(self, path: Sequence[str]) -> Document:
        found = self.document
        for step in path:
            found = _child(found, step)
        return found

    def add(self, path: Sequence[str], value: Document) -> None:
        if not path:
            raise PatchError("the whole document cannot be added")
        parent, last = self.parent(path), path[-1]
        if isinstance(parent, dict):
            parent[last] = value
        elif isinstance(parent, list):
            parent.insert(len(parent) if last == "-" else _index(last, len(parent) + 1), value)
        else:
            raise PatchError("its parent is neither an object nor a list")

    def remove(self, path: Sequence[str]) -> Document:
        if not path:
            raise PatchError("the whole document cannot be removed")
        parent, last = self.parent(path), path[-1]
        removed = _child(parent, last)
        del parent[last if isinstance(parent, dict) else _index(last, len(parent))]
        return removed

    def replace(self, path: Sequence[str], value: Document) -> None:
        if not path:
            self.document = value
            return
        parent, last = self.parent(path), path[-1]
        # The library of kube-apiserver replaces a member that is not there.
        if not isinstance(parent, dict):
            _child(parent, last)
        parent[last if isinstance(parent, dict) else _index(last, len(parent))] = value

    def copy(self, source: Sequence[str], path: Sequence[str]) -> None:
        try:
            encoded = orjson.dumps(self.get(source))
        except orjson.JSONEncodeError as error:
            raise PatchError(f"unable to copy: {error}") from error
        self.copied += len(encoded)
        if self.copied > MAX_COPIED:
            raise PatchError(
                "unable to complete the copy, the accumulated size increase of copy is "
                f"{self.copied}, exceeding the limit {MAX_COPIED}"
            )
        self.add(path, orjson.loads(encoded))

    def move(self, source: Sequence[str], path: Sequence[str]) -> None:
        if len(path) > len(source) and path[: len(source)] == source:
            raise PatchError("a value cannot be moved into itself")
        self.add(path, self.remove(source))

    def test(self, path: Sequence[str], value: Document) -> None:
        try:
            found = self.get(path)
        except PatchError:
            # As the library of kube-apiserver has it: nothing there passes as null.
            found = None if isinstance(self.parent(path), dict) else _MISSING
        if not same(found, value):
            raise PatchError("testing value failed")


_MISSING: Final = object()


def _pointer(operation: Mapping[str, Any], member: str = "path") -> list[str]:
    text = operation.get(member)
    if not isinstance(text, str):
        raise PatchError(f'"{member}" must be a string')
    if text and not text.startswith("/"):
        raise PatchError(f'"{member}" {text!r} does not start with "/"')
    return [step.replace("~1", "/").replace("~0", "~") for step in text.split("/")[1:]]


def _value(operation: Mapping[str, Any]) -> Document:
    return copied(operation.get("value"))  # nothing there is null, as in that library


def _child(parent: Document, step: str) -> Document:
    if isinstance(parent, dict):
        if step not in parent:
            raise PatchError(f"there is no {step!r}")
        return parent[step]
    if isinstance(parent, list):
        return parent[_index(step, len(parent))]
    raise PatchError(f"there is no {step!r} in a value that is neither an object nor a list")


def _index(step: str, size: int) -> int:
    if not step.isascii() or not step.isdigit() or (len(step) > 1 and step[0] == "0"):
        raise PatchError(f"{step!r} is not an index of a list")
    if len(step) > 9 or int(step) >= size:
        raise PatchError(f"the list has no index {step}")
    return int(step)


OPERATIONS: Final[Mapping[str, Callable[[_Patched, Mapping[str, Any]], object]]] = {
    "add": lambda state, op: state.add(_pointer(op), _value(op)),
    "remove": lambda state, op: state.remove(_pointer(op)),
    "replace": lambda state, op: state.replace(_pointer(op), _value(op)),
    "copy": lambda state, op: state.copy(_pointer(op, "from"), _pointer(op)),
    "move": lambda state, op: state.move(_pointer(op, "from"), _pointer(op)),
    "test": lambda state, op: state.test(_pointer(op), _value(op)),
}
