"""Shared by the patches of the API, and the merge patch.

Pure functions: what goes in is never changed, and what comes out shares with it only what
nothing here changes. `json_patches` and `strategic` have the other two; server-side apply knows
owners: see `apiserver.managed_fields`.
"""

from collections.abc import Sequence
from typing import Any, Protocol

Document = Any


class PatchError(ValueError):
    """A patch that cannot be read, or does not fit the document."""


class FailedTest(PatchError):  # noqa: N818 - a fact about the document
    """An operation `test` of a JSON patch finds another value."""


class MalformedPatch(PatchError):  # noqa: N818 - a fact about the patch
    """A strategic merge patch whose directives have the wrong form: a bad request."""


class UnsupportedPatch(PatchError):  # noqa: N818 - a fact about the patch
    """A strategic merge patch that asks for what cannot be merged."""


class TooManyOperations(PatchError):  # noqa: N818 - a fact about the patch, as upstream's 413
    """A JSON patch longer than the limit."""

    def __init__(self, count: int, limit: int) -> None:
        super().__init__(f"The allowed maximum operations in a JSON patch is {limit}, got {count}")


class MergeSchema(Protocol):
    """The part of a schema that strategic merge needs."""

    @property
    def patch_strategy(self) -> Sequence[str]:
        """Return the field's strategies: of merge, replace, retainKeys."""
        ...

    @property
    def patch_merge_key(self) -> str:
        """Return the merge key of a list, or nothing."""
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


def in_order(value: Document) -> Document:
    """Return a JSON value with the keys of its maps sorted, as Go encodes them."""
    if isinstance(value, dict):
        return {key: in_order(value[key]) for key in sorted(value)}
    if isinstance(value, list):
        return [in_order(item) for item in value]
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


def server_merge_patch(document: Document, patch: Document) -> Document:
    """Return the document after a merge patch as API servers apply it.

    They also drop the nulls of objects in a list, which the standard keeps (evanphx/json-patch,
    pruneAryNils).

    >>> server_merge_patch({}, {"a": [{"b": None, "c": 1}, None]})
    {'a': [{'c': 1}, None]}
    """
    return merge_patch(document, _without_listed_nulls(document, patch))


def _without_listed_nulls(document: Document, patch: Document) -> Document:
    if isinstance(patch, dict):
        there = document if isinstance(document, dict) else {}
        return {key: _without_listed_nulls(there.get(key), item) for key, item in patch.items()}
    # A list in the place of an object is taken as it is.
    return patch if isinstance(document, dict) else without_nulls(patch)


def without_nulls(value: Document) -> Document:
    """Return a value without the nulls of its objects."""
    if isinstance(value, dict):
        return {key: without_nulls(item) for key, item in value.items() if item is not None}
    return [without_nulls(item) for item in value] if isinstance(value, list) else value


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


def merge_difference(before: Document, after: Document) -> Document:
    """Return a merge patch (RFC 7386) that makes one document another.

    What it cannot say is that something becomes null.

    >>> merge_difference({"a": 1, "b": {"c": 2, "d": 3}}, {"b": {"c": 2, "d": 4}})
    {'a': None, 'b': {'d': 4}}
    """
    if not isinstance(before, dict) or not isinstance(after, dict):
        return after
    patch = {key: None for key in before if key not in after}
    return patch | {
        key: merge_difference(before[key], value) if key in before else value
        for key, value in after.items()
        if key not in before or before[key] != value
    }
