"""Strategic merge patch: lists merge by key where the schema says so, with directives.

Rules: k8s.io/apimachinery `util/strategicpatch`. The orders are `$patch` (delete, replace),
`$setElementOrder/LIST`, `$deleteFromPrimitiveList/LIST` and `$retainKeys`.
"""

from collections.abc import Sequence
from typing import Any, Final

from dralab.values.go_text import go_value
from dralab.values.patches import (
    Document,
    MalformedPatch,
    MergeSchema,
    PatchError,
    UnsupportedPatch,
    without_nulls,
)

PATCH: Final = "$patch"
RETAIN: Final = "$retainKeys"
ORDER: Final = "$setElementOrder/"
DELETE: Final = "$deleteFromPrimitiveList/"


def strategic_merge(original: Document, patch: Document, schema: MergeSchema | None) -> Document:
    """Return the object after a strategic merge patch; PatchError if it cannot be read.

    Without a schema maps merge and lists are replaced. What replaces something is taken as it is:
    nulls and orders in it are left to who decodes the result.

    >>> strategic_merge({"a": {"b": 1}, "l": [1]}, {"a": {"c": 2}, "l": [2]}, None)
    {'a': {'b': 1, 'c': 2}, 'l': [2]}
    """
    if not isinstance(original, dict) or not isinstance(patch, dict):
        raise PatchError("a strategic merge patch and its target must be objects")
    return _merge_maps(original, patch, schema)


def _merge_maps(
    original: dict[str, Any], patch: dict[str, Any], schema: MergeSchema | None
) -> dict[str, Any]:
    if PATCH in patch:
        return _ordered_by_marker(patch)
    merged = _retained(original, patch)
    done = {RETAIN}
    for key, order in patch.items():
        if key.startswith(ORDER):
            done |= {key, key[len(ORDER) :]}
            _merge_in_order(merged, patch, key[len(ORDER) :], order, schema)
    for key, value in patch.items():
        if key in done:
            continue
        if key.startswith(DELETE):
            _delete_primitives(merged, key[len(DELETE) :], value, schema)
        elif value is None:
            merged.pop(key, None)
        else:
            _merge_field(merged, key, value, schema)
    return merged


def _ordered_by_marker(patch: dict[str, Any]) -> dict[str, Any]:
    match patch[PATCH]:
        case "replace":
            return {key: value for key, value in patch.items() if key != PATCH}
        case "delete":
            return {}
        case other:
            raise PatchError(f"unknown patch type: {other} in map: {go_value(patch)}")


def _merge_field(
    merged: dict[str, Any], key: str, value: Document, schema: MergeSchema | None
) -> None:
    known = merged.get(key)
    field = schema.field(key) if schema is not None else None
    strategies = field.patch_strategy if field is not None else ()
    if isinstance(known, dict) and isinstance(value, dict):
        merged[key] = value if "replace" in strategies else _merge_maps(known, value, field)
    elif isinstance(known, list) and isinstance(value, list):
        merged[key] = _merge_lists(known, value, field) if "merge" in strategies else value
    else:
        _take(merged, key, value)


def _take(merged: dict[str, Any], key: str, value: Document) -> None:
    """Set a field without a value to merge with; a map with a directive counts as no value."""
    if isinstance(value, dict) and PATCH in value:
        merged.pop(key, None)
    else:
        merged[key] = _taken(without_nulls(value))


def _taken(value: Document) -> Document:
    """Return a patch's value without maps that carry a directive."""
    if isinstance(value, dict):
        return {
            key: _taken(item)
            for key, item in value.items()
            if not (isinstance(item, dict) and PATCH in item)
        }
    if isinstance(value, list):
        return [_taken(item) for item in value if not (isinstance(item, dict) and PATCH in item)]
    return value


def _retained(original: dict[str, Any], patch: dict[str, Any]) -> dict[str, Any]:
    if RETAIN not in patch:
        return dict(original)
    listed = patch[RETAIN]
    if not isinstance(listed, list):
        raise MalformedPatch("invalid patch format of retainKeys")
    kept = frozenset(key for key in listed if isinstance(key, str))
    if any(
        key not in kept
        for key, value in patch.items()
        if value is not None and key != RETAIN and not key.startswith((ORDER, DELETE))
    ):
        raise MalformedPatch("invalid patch format of retainKeys")
    return {key: value for key, value in original.items() if key in kept}


def _delete_primitives(
    merged: dict[str, Any], key: str, values: Document, schema: MergeSchema | None
) -> None:
    if not isinstance(values, list):
        raise MalformedPatch("invalid patch format of primitive list")
    known = merged.get(key)
    if isinstance(known, list) and any(isinstance(item, dict) for item in (*known, *values)):
        # As upstream: such elements are merged, where they have a key.
        merged[key] = _merge_lists(known, values, schema.field(key) if schema else None)
    elif isinstance(known, list):
        gone = {_identity(item, "") for item in values}
        merged[key] = [item for item in known if _identity(item, "") not in gone]


def _merge_in_order(
    merged: dict[str, Any],
    patch: dict[str, Any],
    key: str,
    order: Document,
    schema: MergeSchema | None,
) -> None:
    known, change = merged.get(key), patch.get(key)
    given = [value[key] for value in (merged, patch) if key in value]
    if not all(isinstance(value, list) for value in [*given, order]):
        raise MalformedPatch("invalid patch format of setElementOrder list")
    field = schema.field(key) if schema is not None else None
    merge_key = field.patch_merge_key if field is not None else ""
    if change:
        _check_order(change, order, merge_key)
    if known is None and change is None:
        return
    if known is None:
        result = _taken(change)
    elif change is None:
        result = list(known)
    elif field is not None and "merge" in field.patch_strategy:
        result = _merge_lists(known, change, field)
    else:
        result = change
    merged[key] = _in_order(result, order, _server_order(known, change, merge_key), merge_key)


def _server_order(
    known: Sequence[Any] | None, change: Sequence[Any] | None, merge_key: str
) -> Sequence[Any]:
    """Return the order in which the server has the elements.

    Where elements are deleted, upstream lets new ones take their places at the end of this
    order, and so after what the patch leaves alone; users see that in every apply that
    exchanges an element for another.
    """
    deleted = {
        _identity(item, merge_key)
        for item in change or ()
        if isinstance(item, dict) and item.get(PATCH) == "delete"
    }
    if not known or not deleted:
        return known or ()
    left = [item for item in known if _identity(item, merge_key) not in deleted]
    places = _places(left, merge_key)
    new = [
        item
        for item in change or ()
        if PATCH not in item and _identity(item, merge_key) not in places
    ]
    return [*left, *new][: len(known)]


def _check_order(change: Sequence[Any], order: Sequence[Any], merge_key: str) -> None:
    """Refuse an order that omits or contradicts the patch's own elements."""
    ahead = iter(_identity(item, merge_key) for item in order)
    for item in change:
        if isinstance(item, dict) and PATCH in item:
            continue
        if order and _identity(item, merge_key) not in ahead:
            raise PatchError(
                f"The order in patch list:\n{go_value(list(change))}\n doesn't match "
                f"{ORDER.removesuffix('/')} list:\n{go_value(list(order))}\n"
            )


def _merge_lists(
    original: Sequence[Any], patch: Sequence[Any], field: MergeSchema | None
) -> list[Any]:
    items = [*original, *patch]
    if any(isinstance(item, list) for item in items):
        raise UnsupportedPatch("lists of lists are not supported")
    maps = [isinstance(item, dict) for item in items]
    if any(maps) and not all(maps):
        shown = go_value([list(original), list(patch)])
        raise PatchError(f"list element types are not identical: {shown}")
    merge_key = field.patch_merge_key if field is not None else ""
    if not any(maps):
        return _in_order(list(dict.fromkeys(items)), patch, original, "")
    if not merge_key:
        raise PatchError("cannot merge lists without merge key for struct")
    left, changes, replaced = _after_markers(original, patch, merge_key)
    if replaced:
        return changes
    server_order = list(left)
    schema = field.item if field is not None else None
    where = {_identity(item, merge_key): at for at, item in reversed(list(enumerate(left)))}
    for change in changes:
        identity = _identity(change, merge_key)
        at = where.get(identity)
        if at is None:
            # As upstream: a new element is taken whole, orders further down say nothing.
            where[identity] = len(left)
            left.append(change)
        else:
            left[at] = _merge_maps(left[at], change, schema)
    return _in_order(left, changes, server_order, merge_key)


def _after_markers(
    original: Sequence[Any], patch: Sequence[Any], merge_key: str
) -> tuple[list[Any], list[Any], bool]:
    """Return the list without what the patch deletes, the rest of the patch, and its "replace"."""
    deleted: set[Any] = set()
    changes, replaced = [], False
    for item in patch:
        match item.get(PATCH):
            case None:
                changes.append(item)
            case "delete":
                deleted.add(_identity(item, merge_key))
            case "replace":
                replaced = True
            case "merge":
                raise PatchError("merging lists cannot yet be specified in the patch")
            case other:
                raise PatchError(f"unknown patch type: {other} in map: {go_value(item)}")
    left = [item for item in original if _identity(item, merge_key) not in deleted]
    return left, changes, replaced


def _in_order(
    items: Sequence[Any], order: Sequence[Any], server_order: Sequence[Any], merge_key: str
) -> list[Any]:
    """Return items: the patch's in its order, merged into the server's in theirs.

    An element of the patch goes before an element of the server's, except where the server
    knows both and had them the other way round.
    """
    ordered = _places(order, merge_key)
    server = _places(server_order, merge_key)

    def place(item: Any, places: dict[Any, int]) -> int:
        return places.get(_identity(item, merge_key), len(places))

    ours = [item for item in items if _identity(item, merge_key) in ordered]
    ours.sort(key=lambda item: place(item, ordered))
    theirs = [item for item in items if _identity(item, merge_key) not in ordered]
    theirs.sort(key=lambda item: place(item, server))
    result: list[Any] = []
    at = 0
    for item in ours:
        mine = server.get(_identity(item, merge_key))
        if mine is not None:
            while at < len(theirs) and place(theirs[at], server) < mine:
                result.append(theirs[at])
                at += 1
        result.append(item)
    return result + theirs[at:]


def _places(items: Sequence[Any], merge_key: str) -> dict[Any, int]:
    places: dict[Any, int] = {}
    for at, item in enumerate(items):
        places.setdefault(_identity(item, merge_key), at)
    return places


def _identity(item: Any, merge_key: str) -> Any:
    if isinstance(item, dict):
        if merge_key not in item:
            raise PatchError(
                f"map: {go_value(item)} does not contain declared merge key: {merge_key}"
            )
        item = item[merge_key]
    if isinstance(item, (dict, list)):
        raise PatchError(f"a merge key must be a plain value: {go_value(item)}")
    return (isinstance(item, bool), item)
