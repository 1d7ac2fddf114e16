"""Functions of lists: Kubernetes' list library, ext.Lists and ext.Sets of cel-go, `includes`."""

from collections.abc import Callable
from functools import cmp_to_key
from itertools import pairwise
from typing import Any, Final

from dralab.cel.errors import CelError, no_such_overload
from dralab.cel.functions.arithmetic import add, less
from dralab.cel.functions.strings import string_index, string_last_index
from dralab.cel.values import Optional, equals
from dralab.cel.values import contains as is_in

MAX_INCLUDES: Final = 48
MAX_RANGE: Final = 1_000_000


def _lists(*values: Any) -> None:
    for value in values:
        if type(value) is not list:
            raise no_such_overload()


def is_sorted(items: Any) -> bool:
    """Return whether the elements ascend."""
    _lists(items)
    return not any(less(right, left) for left, right in pairwise(items))


def total(items: Any) -> Any:
    """Return the sum of the elements; of none it is 0."""
    _lists(items)
    if not items:
        return 0
    result = items[0]
    if type(result) in {str, bytes, list, bool}:
        raise no_such_overload()
    for item in items[1:]:
        result = add(result, item)
    return result


def _extreme(items: Any, *, largest: bool) -> Any:
    _lists(items)
    if not items:
        raise CelError(f"{'max' if largest else 'min'} called on empty list")
    result = items[0]
    for item in items[1:]:
        if less(result, item) if largest else less(item, result):
            result = item
    return result


def smallest(items: Any) -> Any:
    """Return the smallest element."""
    return _extreme(items, largest=False)


def largest(items: Any) -> Any:
    """Return the largest element."""
    return _extreme(items, largest=True)


def index_of(collection: Any, part: Any, *start: Any) -> int:
    """Return the first position of an element or of a part of a text, or -1."""
    if type(collection) is str:
        return string_index(collection, part, *start)
    _lists(collection)
    return next((at for at, item in enumerate(collection) if equals(item, part)), -1)


def last_index_of(collection: Any, part: Any, *start: Any) -> int:
    """Return the last position of an element or of a part of a text, or -1."""
    if type(collection) is str:
        return string_last_index(collection, part, *start)
    _lists(collection)
    found = -1
    for position, item in enumerate(collection):
        if equals(item, part):
            found = position
    return found


def includes(value: Any, wanted: Any) -> bool:
    """Return whether a list attribute has a value; of a scalar, whether it is that value."""
    if type(value) is not list:
        return equals(value, wanted)
    if len(value) > MAX_INCLUDES:
        raise CelError(
            f"'includes' function cannot be applied to lists longer than {MAX_INCLUDES} values"
        )
    return is_in(wanted, value)


def sliced(items: Any, start: Any, end: Any) -> list[Any]:
    """Return the elements from a position up to another."""
    _lists(items)
    if type(start) is not int or type(end) is not int:
        raise no_such_overload()
    if start < 0 or end < 0:
        raise CelError(f"cannot slice({start}, {end}), negative indexes not supported")
    if start > end:
        raise CelError(
            f"cannot slice({start}, {end}), start index must be less than or equal to end index"
        )
    if end > len(items):
        raise CelError(f"cannot slice({start}, {end}), list is length {len(items)}")
    return list(items[start:end])


def flatten(items: Any, depth: Any = 1) -> list[Any]:
    """Return the elements of inner lists in place of those lists, to a depth."""
    _lists(items)
    if type(depth) is not int:
        raise no_such_overload()
    if depth < 0:
        raise CelError("level must be non-negative")
    for _ in range(depth):
        if not any(type(item) is list for item in items):
            break
        items = [inner for item in items for inner in (item if type(item) is list else (item,))]
    return list(items)


def _order(left: Any, right: Any) -> int:
    if type(left) is not type(right):
        raise CelError("list elements must have the same type")
    try:
        return -1 if less(left, right) else int(less(right, left))
    except CelError:
        raise CelError("list elements must be comparable") from None


def ordered(items: Any) -> list[Any]:
    """Return the elements in ascending order."""
    return sorted_by_keys(items, items)


def sorted_by_keys(items: Any, keys: Any) -> list[Any]:
    """Return the elements in the ascending order of keys that belong to them."""
    _lists(items, keys)
    if keys:
        _order(keys[0], keys[0])
    by_key = cmp_to_key(_order)
    pairs = sorted(zip(keys, items, strict=True), key=lambda pair: by_key(pair[0]))
    return [item for _, item in pairs]


def distinct(items: Any) -> list[Any]:
    """Return the elements without repetitions."""
    _lists(items)
    found: list[Any] = []
    for item in items:
        if not is_in(item, found):
            found.append(item)
    return found


def reversed_(items: Any) -> Any:
    """Return the elements, or the characters of a text, from the last to the first."""
    if type(items) is str:
        return items[::-1]
    _lists(items)
    return items[::-1]


def numbers(count: Any) -> list[int]:
    """Return the numbers from 0 up to a bound."""
    if type(count) is not int:
        raise no_such_overload()
    if count > MAX_RANGE:
        raise CelError(f"lists.range: {count} exceeds the largest size, {MAX_RANGE}")
    return list(range(count))


def first(items: Any) -> Optional:
    """Return the first element, if there is one."""
    _lists(items)
    return Optional(present=True, value=items[0]) if items else Optional(present=False)


def last(items: Any) -> Optional:
    """Return the last element, if there is one."""
    _lists(items)
    return Optional(present=True, value=items[-1]) if items else Optional(present=False)


def set_contains(outer: Any, inner: Any) -> bool:
    """Return whether every element of one list is in the other."""
    _lists(outer, inner)
    return all(is_in(item, outer) for item in inner)


def set_equivalent(left: Any, right: Any) -> bool:
    """Return whether two lists have the same elements, however often."""
    return set_contains(left, right) and set_contains(right, left)


def set_intersects(left: Any, right: Any) -> bool:
    """Return whether two lists share an element."""
    _lists(left, right)
    return any(is_in(item, right) for item in left)


FUNCTIONS: Final[dict[str, Callable[..., Any]]] = {
    "isSorted": is_sorted, "sum": total, "min": smallest, "max": largest,
    "indexOf": index_of, "lastIndexOf": last_index_of, "includes": includes, "slice": sliced,
    "flatten": flatten, "sort": ordered, "@sortByAssociatedKeys": sorted_by_keys,
    "distinct": distinct, "reverse": reversed_, "lists.range": numbers,
    "first": first, "last": last, "sets.contains": set_contains,
    "sets.equivalent": set_equivalent, "sets.intersects": set_intersects,
}  # fmt: skip

_SUMMED: Final = ("int", "uint", "double", "duration")
_COMPARED: Final = (*_SUMMED, "timestamp", "bool", "string", "bytes")

KUBERNETES_SIGNATURES: Final = "\n".join(
    [
        *(f"list_{name}_is_sorted_bool list({name}).isSorted() -> bool" for name in _COMPARED),
        *(f"list_{name}_sum_{name} list({name}).sum() -> {name}" for name in _SUMMED),
        *(f"list_{name}_max_{name} list({name}).max() -> {name}" for name in _COMPARED),
        *(f"list_{name}_min_{name} list({name}).min() -> {name}" for name in _COMPARED),
        "list_a_index_of_int list(A).indexOf(A) -> int",
        "list_a_last_index_of_int list(A).lastIndexOf(A) -> int",
    ]
)
SIGNATURES: Final = "\n".join(
    [
        "list_slice list(A).slice(int, int) -> list(A)",
        "list_flatten list(list(A)).flatten() -> list(A)",
        "list_flatten_int list(dyn).flatten(int) -> list(dyn)",
        *(f"list_{name}_sort list({name}).sort() -> list({name})" for name in _COMPARED),
        *(
            f"list_{name}_sortByAssociatedKeys "
            f"list(A).@sortByAssociatedKeys(list({name})) -> list(A)"
            for name in _COMPARED
        ),
        "list_distinct list(A).distinct() -> list(A)",
        "list_reverse list(A).reverse() -> list(A)",
        "lists_range lists.range(int) -> list(int)",
    ]
)
SET_SIGNATURES: Final = """
list_sets_contains_list sets.contains(list(A), list(A)) -> bool
list_sets_equivalent_list sets.equivalent(list(A), list(A)) -> bool
list_sets_intersects_list sets.intersects(list(A), list(A)) -> bool
"""
INCLUDES_SIGNATURES: Final = "list_includes_dyn_dyn dyn.includes(dyn) -> bool"
