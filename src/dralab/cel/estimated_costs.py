"""The price of a call at compile time, from the sizes that its arguments may have.

Each function gets the receiver, if there is one, and the arguments, and returns the range of the
cost and the size of the result where it is known. Source: see `estimate`.
"""

from collections.abc import Callable, Sequence
from math import ceil
from typing import Any, Final, NamedTuple

from dralab.cel.ranges import LARGEST, NOTHING, ONE, CostRange, fixed
from dralab.cel.runtime_costs import CALL, LIST_BASE, PATTERN, TRAVERSAL
from dralab.cel.types import CIDR, FORMAT, IP, QUANTITY, SEMVER, URL, CelType


class PricedArgument(NamedTuple):
    """What a price may depend on; `constant` is the value of a literal."""

    type: CelType
    size: CostRange
    element: "PricedArgument | None"
    constant: Any
    known: bool = True


Price = tuple[CostRange, CostRange | None]
Rule = Callable[[str, PricedArgument | None, Sequence[PricedArgument]], Price | None]

# The longest pattern of a named format (MaxNameFormatRegexSize).
MAX_FORMAT_PATTERN: Final = 128
MAX_FORMAT: Final = 64
ADDRESS: Final = CostRange(4, 16)


def price(
    function: str, overload: str, target: PricedArgument | None, args: Sequence[PricedArgument]
) -> Price:
    """Return the cost of a call without that of its arguments, and the size of its result."""
    rule = BY_OVERLOAD.get(overload)
    if rule is not None:
        found = rule(overload, target, args)
        if found is not None:
            return found
    rule = BY_FUNCTION.get(function)
    if rule is not None:
        found = rule(overload, target, args)
        if found is not None:
            return found
    return ONE, None


def _unit(_overload: str, _target: PricedArgument | None, _args: Sequence[PricedArgument]) -> Price:
    return ONE, None


def _traversal(
    _overload: str, target: PricedArgument | None, _args: Sequence[PricedArgument]
) -> Price | None:
    if target is None:
        return None
    element = target.element
    if element is not None:
        each = ONE
        if element.type.kind in {"string", "bytes"}:
            each = each + element.size.scaled(TRAVERSAL)
        return target.size * each, None
    return target.size.scaled(TRAVERSAL), None


def _includes(
    _overload: str, target: PricedArgument | None, _args: Sequence[PricedArgument]
) -> Price | None:
    # The largest list that it takes; see lists.MAX_INCLUDES.
    return None if target is None else (CostRange(0, 48), None)


def _same_size(
    _overload: str, target: PricedArgument | None, args: Sequence[PricedArgument]
) -> Price | None:
    size = (target or args[0]).size
    return size.scaled(TRAVERSAL), size


def _parsed(
    _overload: str, _target: PricedArgument | None, args: Sequence[PricedArgument]
) -> Price | None:
    return (args[0].size.scaled(TRAVERSAL), None) if args else None


def _parsed_twice(
    _overload: str, _target: PricedArgument | None, args: Sequence[PricedArgument]
) -> Price | None:
    return (args[0].size.scaled(2 * TRAVERSAL), None) if args else None


def _ip(
    overload: str, target: PricedArgument | None, args: Sequence[PricedArgument]
) -> Price | None:
    return (ONE, None) if overload == "cidr_ip" else _parsed(overload, target, args)


def _replace(
    _overload: str, target: PricedArgument | None, args: Sequence[PricedArgument]
) -> Price | None:
    if target is None or len(args) < 2:
        return None
    size, old, new = target.size, args[0].size, args[1].size
    # An empty text is found between all characters; what is longest is the most replacements
    # of the shortest old text by the longest new one.
    if old.low == 0:
        most, kept_most = min(size.high + 1, LARGEST), size.high
    elif new.high <= old.low:
        most, kept_most = 0, size.high
    else:
        most, kept_most = ceil(float(size.high) / old.low), 0
    if old.high == 0:
        least, kept_least = min(size.low + 1, LARGEST), size.low
    elif old.high <= new.low:
        least, kept_least = 0, size.low
    else:
        least, kept_least = ceil(float(size.low) / old.high), 0
    result = CostRange(least, most) * new + CostRange(kept_least, kept_most)
    return size.scaled(2 * TRAVERSAL), result


def _split(
    _overload: str, target: PricedArgument | None, args: Sequence[PricedArgument]
) -> Price | None:
    if target is None:
        return None
    most = target.size.high
    if len(args) > 1 and type(args[1].constant) is int:
        most = args[1].constant % 2**64
    return target.size.scaled(2 * TRAVERSAL), CostRange(0, most)


def _join(
    _overload: str, target: PricedArgument | None, args: Sequence[PricedArgument]
) -> Price | None:
    if target is None:
        return None
    count = target.size
    size = count * target.element.size if target.element is not None else NOTHING
    if args:
        separators = CostRange(max(count.low - 1, 0), max(count.high - 1, 0))
        size = size + args[0].size * separators
    return size.scaled(TRAVERSAL), size


def _pattern_cost(text: CostRange, pattern: CostRange) -> CostRange:
    return (text + ONE).scaled(TRAVERSAL) * pattern.scaled(PATTERN)


def _find(
    _overload: str, target: PricedArgument | None, args: Sequence[PricedArgument]
) -> Price | None:
    if target is None or not args:
        return None
    return _pattern_cost(target.size, args[0].size), CostRange(0, target.size.high)


def _matches(
    _overload: str, target: PricedArgument | None, args: Sequence[PricedArgument]
) -> Price | None:
    text, pattern = args if target is None else (target, args[0])
    return _pattern_cost(text.size, pattern.size), None


def _contains_address(
    overload: str, _target: PricedArgument | None, args: Sequence[PricedArgument]
) -> Price | None:
    cost = (ADDRESS + ADDRESS).scaled(TRAVERSAL)
    if overload.startswith("cidr_contains_cidr"):
        cost = cost + ADDRESS.scaled(TRAVERSAL) + ONE
    if overload.endswith("_string"):
        cost = cost + args[0].size.scaled(TRAVERSAL)
    return cost, None


def _validate(
    _overload: str, _target: PricedArgument | None, args: Sequence[PricedArgument]
) -> Price | None:
    traversed = args[0].size.scaled(TRAVERSAL)
    return traversed.scaled(MAX_FORMAT_PATTERN * PATTERN), None


def _equality(
    overload: str, target: PricedArgument | None, args: Sequence[PricedArgument]
) -> Price | None:
    left, right = args
    if left.type == right.type:
        if left.type in {IP, CIDR, QUANTITY, SEMVER}:
            return ONE, None
        if left.type == FORMAT:
            return CostRange(1, MAX_FORMAT).scaled(TRAVERSAL), None
        if left.type == URL:
            return CostRange(1, right.size.high if right.known else 1).scaled(TRAVERSAL), None
    return _comparison(overload, target, args)


def _comparison(
    _overload: str, _target: PricedArgument | None, args: Sequence[PricedArgument]
) -> Price | None:
    smaller = min(args[0].size.high, args[1].size.high)
    return CostRange(min(1, smaller), smaller).scaled(TRAVERSAL), None


def _sum(
    overload: str, _target: PricedArgument | None, args: Sequence[PricedArgument]
) -> Price | None:
    size = args[0].size + args[1].size
    return (ONE if overload == "add_list" else size.scaled(TRAVERSAL)), size


def _affix(
    _overload: str, _target: PricedArgument | None, args: Sequence[PricedArgument]
) -> Price | None:
    return args[0].size.scaled(TRAVERSAL), None


def _contains(
    _overload: str, target: PricedArgument | None, args: Sequence[PricedArgument]
) -> Price | None:
    if target is None:
        return None
    return target.size.scaled(TRAVERSAL) * args[0].size.scaled(TRAVERSAL), None


def _in_list(
    _overload: str, _target: PricedArgument | None, args: Sequence[PricedArgument]
) -> Price | None:
    return args[1].size, None


def _encoded(
    overload: str, target: PricedArgument | None, args: Sequence[PricedArgument]
) -> Price | None:
    size = (target or args[0]).size
    result = None
    if overload == "string_to_bytes":
        result = CostRange(size.low, min(size.high * 4, LARGEST))
    elif overload == "bytes_to_string":
        result = CostRange(size.low // 4, size.high)
    elif overload == "strings_quote":
        result = CostRange(min(size.low + 2, LARGEST), min(size.high * 2 + 2, LARGEST))
    return size.scaled(TRAVERSAL), result


def _allocating(size: CostRange, factor: float) -> Price:
    return size.scaled(factor) + fixed(CALL + LIST_BASE), size


def _constant(argument: PricedArgument, otherwise: int) -> int:
    value = argument.constant
    return max(value, 0) if type(value) is int else otherwise


def _slice(
    _overload: str, target: PricedArgument | None, args: Sequence[PricedArgument]
) -> Price | None:
    if target is None:
        return None
    start, end = _constant(args[0], 0), _constant(args[1], target.size.high)
    return _allocating(fixed((end - start) % 2**64), 1)


def _range(
    _overload: str, _target: PricedArgument | None, args: Sequence[PricedArgument]
) -> Price | None:
    return _allocating(fixed(_constant(args[0], LARGEST)), 1)


def _reverse(
    _overload: str, target: PricedArgument | None, _args: Sequence[PricedArgument]
) -> Price | None:
    return None if target is None else _allocating(target.size, 1)


def _flatten(
    _overload: str, target: PricedArgument | None, args: Sequence[PricedArgument]
) -> Price | None:
    if target is None:
        return None
    return _allocating(target.size, float(_constant(args[0], LARGEST) if args else 1))


def _quadratic(
    overload: str, target: PricedArgument | None, args: Sequence[PricedArgument]
) -> Price | None:
    keys = args[0] if overload.endswith("_sortByAssociatedKeys") else target
    if keys is None:
        return None
    factor = 2.0
    if overload.startswith(("list_string_", "list_bytes_")):
        factor += TRAVERSAL
    return _allocating(keys.size * keys.size, factor)


def _set(
    overload: str, _target: PricedArgument | None, args: Sequence[PricedArgument]
) -> Price | None:
    factor = 2.0 if "equivalent" in overload else 1.0
    return (args[0].size * args[1].size).scaled(factor) + ONE, None


BY_FUNCTION: Final[dict[str, Rule]] = {
    **dict.fromkeys(("isSorted", "sum", "max", "min", "indexOf", "lastIndexOf"), _traversal),
    "includes": _includes,
    **dict.fromkeys(("url", "lowerAscii", "upperAscii", "substring", "trim"), _same_size),
    **dict.fromkeys(
        ("cidr", "isIP", "isCIDR", "quantity", "isQuantity", "semver", "isSemver"), _parsed
    ),
    "ip": _ip,
    "ip.isCanonical": _parsed_twice,
    "replace": _replace,
    "split": _split,
    "join": _join,
    **dict.fromkeys(("find", "findAll"), _find),
    **dict.fromkeys(("containsIP", "containsCIDR"), _contains_address),
    "validate": _validate,
    "_==_": _equality,
    "_!=_": _comparison,
    "format.named": _unit,
}

BY_OVERLOAD: Final[dict[str, Rule]] = {
    **dict.fromkeys(("matches", "matches_string"), _matches),
    **dict.fromkeys(("starts_with_string", "ends_with_string"), _affix),
    **{
        f"{order}_{kind}": _comparison
        for order in ("less", "less_equals", "greater", "greater_equals")
        for kind in ("string", "bytes")
    },
    **dict.fromkeys(("add_string", "add_bytes", "add_list"), _sum),
    "contains_string": _contains,
    "in_list": _in_list,
    **dict.fromkeys(
        ("string_to_bytes", "bytes_to_string", "strings_quote", "string_format"), _encoded
    ),
    "list_slice": _slice,
    "lists_range": _range,
    "list_reverse": _reverse,
    **dict.fromkeys(("list_flatten", "list_flatten_int"), _flatten),
    "list_distinct": _quadratic,
    **{
        f"list_{name}_{suffix}": _quadratic
        for name in (
            "int", "uint", "double", "duration", "timestamp", "bool", "string", "bytes"
        )
        for suffix in ("sort", "sortByAssociatedKeys")
    },
    **dict.fromkeys(
        ("list_sets_contains_list", "list_sets_intersects_list", "list_sets_equivalent_list"),
        _set,
    ),
}  # fmt: skip
