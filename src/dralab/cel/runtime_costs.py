"""What an evaluated call costs: the run-time half of the cost model.

Source of the numbers: cel-go's cost tracker and the API server's estimator for its libraries.
Sizes are those of the actual values; an error counts like a scalar.
"""

from collections.abc import Callable, Sequence
from math import ceil
from typing import Any, Final

from dralab.cel.types import Overload
from dralab.cel.values import (
    MAPS,
    Address,
    Cidr,
    Format,
    Optional,
    Quantity,
    Url,
    items,
)
from dralab.values.version import Version

TRAVERSAL: Final = 0.1
PATTERN: Final = 0.25
CALL: Final = 1
ACCESS: Final = 350_000  # asking an authorizer, which may call a webhook
LIST_BASE: Final = 10
COMPARABLE: Final = (
    "int", "uint", "double", "bool", "duration", "timestamp", "string", "bytes",
)  # fmt: skip
MAP_BASE: Final = 30
STRUCT_BASE: Final = 40

Charge = Callable[[Sequence[Any], Any, str], int]

# Their equality has a fixed price.
UNIT_EQUALITY: Final = frozenset({Quantity, Address, Cidr, Format, Url, Version})


def size(value: Any) -> int:
    """Return the size of a value as far as costs go."""
    kind = type(value)
    if kind is str or kind is bytes or kind is list or kind in MAPS:
        return len(value)
    if kind is Optional and value.present:
        return size(value.value)
    if kind is Address:
        return len(value.value.packed)
    if kind is Cidr:
        return ceil(int(value.value.network.prefixlen) / 8)
    return 1


def traversed(value: Any, factor: float = TRAVERSAL) -> int:
    """Return the price of walking through a value once."""
    return ceil(size(value) * factor)


def tree(value: Any) -> int:
    """Return the price of walking through a value and all its parts."""
    total, waiting = 0, [value]
    while waiting:
        value = waiting.pop()
        kind = type(value)
        if kind is str:
            total += int(len(value.encode("utf-8", "replace")) * TRAVERSAL)
        elif kind is bytes:
            total += int(len(value) * TRAVERSAL)
        elif kind is list:
            waiting.extend(value)
        elif kind in MAPS:
            for entry in items(value):
                waiting.extend(entry)
        else:
            total += 1
    return total


def _pattern(args: Sequence[Any], _result: Any, _overload: str) -> int:
    return ceil((1 + size(args[0])) * TRAVERSAL) * ceil(size(args[1]) * PATTERN)


def _contains_ip(args: Sequence[Any], _result: Any, overload: str) -> int:
    cost = ceil(2 * size(args[0]) * TRAVERSAL)
    return cost + (traversed(args[1]) if overload == "cidr_contains_ip_string" else 0)


def _contains_cidr(args: Sequence[Any], _result: Any, overload: str) -> int:
    cost = ceil(2 * size(args[0]) * TRAVERSAL) + traversed(args[0]) + 1
    return cost + (traversed(args[1]) if overload == "cidr_contains_cidr_string" else 0)


def _validate(args: Sequence[Any], _result: Any, _overload: str) -> int:
    if type(args[0]) is not Format:
        return 1
    return ceil((1 + size(args[1])) * TRAVERSAL) * ceil(args[0].pattern_size * PATTERN)


def _access(_args: Sequence[Any], _result: Any, _overload: str) -> int:
    return ACCESS


def _first(args: Sequence[Any], _result: Any, _overload: str) -> int:
    return traversed(args[0])


def _first_twice(args: Sequence[Any], _result: Any, _overload: str) -> int:
    return traversed(args[0], 2 * TRAVERSAL)


def _joined(_args: Sequence[Any], result: Any, _overload: str) -> int:
    return traversed(result, 2 * TRAVERSAL)


def _tree(args: Sequence[Any], _result: Any, _overload: str) -> int:
    return tree(args[0])


def _ip(args: Sequence[Any], _result: Any, overload: str) -> int:
    return 1 if overload == "cidr_ip" else traversed(args[0])


def _equality(args: Sequence[Any], _result: Any, _overload: str) -> int:
    if type(args[0]) in UNIT_EQUALITY:
        return 1
    return _smaller(args)


def _smaller(args: Sequence[Any], _result: Any = None, _overload: str = "") -> int:
    return ceil(min(size(args[0]), size(args[1])) * TRAVERSAL)


def _sum(args: Sequence[Any], _result: Any, _overload: str) -> int:
    return ceil((size(args[0]) + size(args[1])) * TRAVERSAL)


def _second(args: Sequence[Any], _result: Any, _overload: str) -> int:
    return traversed(args[1])


def _contains(args: Sequence[Any], _result: Any, _overload: str) -> int:
    return traversed(args[0]) * traversed(args[1])


def _in_list(args: Sequence[Any], _result: Any, _overload: str) -> int:
    return size(args[1])


def _nested_loops(factor: int) -> Charge:
    def charge(args: Sequence[Any], _result: Any, _overload: str) -> int:
        return 1 + factor * size(args[0]) * size(args[1])

    return charge


def _built(_args: Sequence[Any], result: Any, _overload: str) -> int:
    return CALL + LIST_BASE + size(result)


def _flattened(args: Sequence[Any], _result: Any, _overload: str) -> int:
    depth = args[1] if len(args) > 1 and type(args[1]) is int else 1
    # A negative depth is an error and costs like 1.
    return CALL + LIST_BASE + size(args[0]) * (depth if depth >= 0 else 1)


def _compared(position: int) -> Charge:
    def charge(args: Sequence[Any], _result: Any, _overload: str) -> int:
        keys = args[position]
        factor = 2.0
        if type(keys) is list and keys and type(keys[0]) in {str, bytes}:
            factor += TRAVERSAL
        return CALL + LIST_BASE + int(size(keys) ** 2 * factor)

    return charge


BY_FUNCTION: Final[dict[str, Charge]] = {
    **dict.fromkeys(("isSorted", "sum", "max", "min", "indexOf", "lastIndexOf"), _tree),
    **dict.fromkeys(
        ("url", "lowerAscii", "upperAscii", "substring", "trim", "cidr", "isIP", "isCIDR",
         "quantity", "isQuantity", "semver", "isSemver"),
        _first,
    ),
    **dict.fromkeys(("replace", "split", "ip.isCanonical"), _first_twice),
    "check": _access,
    "join": _joined,
    "find": _pattern,
    "findAll": _pattern,
    "ip": _ip,
    "containsIP": _contains_ip,
    "containsCIDR": _contains_cidr,
    "validate": _validate,
    "_==_": _equality,
    "_!=_": _smaller,
}  # fmt: skip

BY_OVERLOAD: Final[dict[str, Charge]] = {
    **dict.fromkeys(("starts_with_string", "ends_with_string"), _second),
    **dict.fromkeys(
        ("string_to_bytes", "bytes_to_string", "strings_quote", "string_format"), _first
    ),
    "in_list": _in_list,
    **{
        f"{order}_{kind}": _smaller
        for order in ("less", "less_equals", "greater", "greater_equals")
        for kind in ("string", "bytes")
    },
    **dict.fromkeys(("list_slice", "list_reverse", "lists_range"), _built),
    **dict.fromkeys(("list_flatten", "list_flatten_int"), _flattened),
    "list_distinct": _compared(0),
    **{f"list_{name}_sort": _compared(0) for name in COMPARABLE},
    **{f"list_{name}_sortByAssociatedKeys": _compared(1) for name in COMPARABLE},
    "add_string": _sum,
    "add_bytes": _sum,
    "matches": _pattern,
    "matches_string": _pattern,
    "contains_string": _contains,
    "list_sets_contains_list": _nested_loops(1),
    "list_sets_intersects_list": _nested_loops(1),
    "list_sets_equivalent_list": _nested_loops(2),
}


def charge(function: str, overloads: tuple[Overload, ...], args: Sequence[Any], result: Any) -> int:
    """Return the price of a call; where its overload is open until run time, often just 1."""
    overload = overloads[0].id if len(overloads) == 1 else ""
    by_function = BY_FUNCTION.get(function)
    if by_function is not None:
        return by_function(args, result, overload)
    by_overload = BY_OVERLOAD.get(overload)
    return 1 if by_overload is None else by_overload(args, result, overload)
