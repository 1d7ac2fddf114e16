"""Functions of optional values; `or` and `orValue` are evaluated lazily elsewhere."""

from collections.abc import Callable
from typing import Any, Final

from dralab.cel.errors import CelError, no_such_overload
from dralab.cel.values import (
    MAPS,
    NOTHING,
    BoolMap,
    Duration,
    Map,
    Optional,
    Uint,
    contains,
    items,
    key_of,
    new_map,
    shown_key,
)


def of(value: Any) -> Optional:
    """Return a present value."""
    return Optional(present=True, value=value)


def none() -> Optional:
    """Return an absent value."""
    return NOTHING


def of_non_zero(value: Any) -> Optional:
    """Return a value that is present unless it is the zero of its type."""
    return NOTHING if is_zero(value) else Optional(present=True, value=value)


def is_zero(value: Any) -> bool:
    """Return whether a value is the zero of its type: null, false, 0, empty."""
    kind = type(value)
    if value is None:
        return True
    if kind in {bool, int, Uint, float, str, bytes, list, Duration} or kind in MAPS:
        return not value
    if kind is Optional:
        return not value.present
    return False


def _optional(value: Any) -> Optional:
    if type(value) is not Optional:
        raise no_such_overload()
    return value


def value(holder: Any) -> Any:
    """Return the contained value."""
    if not _optional(holder).present:
        raise CelError("optional.none() dereference")
    return holder.value


def has_value(holder: Any) -> bool:
    """Return whether there is a value."""
    return _optional(holder).present


def unwrap(holders: Any) -> list[Any]:
    """Return the values of those that have one."""
    if type(holders) is not list:
        raise no_such_overload()
    return [holder.value for holder in holders if _optional(holder).present]


def insert(accumulated: Any, *entry: Any) -> Map:
    """Return a map with one entry more, or with those of a map; a repeated key is an error."""
    if type(accumulated) not in MAPS:
        raise no_such_overload()
    if len(entry) == 1:
        if type(entry[0]) not in MAPS:
            raise no_such_overload()
        added = list(items(entry[0]))
    else:
        added = [(entry[0], entry[1])]
    merged = dict(accumulated)
    for key, element in added:
        if contains(key, accumulated):
            raise CelError(f"insert failed: key {shown_key(key)} already exists")
        merged[key_of(key)] = element
    return BoolMap(merged) if type(accumulated) is BoolMap else new_map(merged)


FUNCTIONS: Final[dict[str, Callable[..., Any]]] = {
    "optional.of": of, "optional.none": none, "optional.ofNonZeroValue": of_non_zero,
    "value": value, "hasValue": has_value, "optional.unwrap": unwrap, "unwrapOpt": unwrap,
    "cel.@mapInsert": insert,
}  # fmt: skip

SIGNATURES: Final = """
optional_of optional.of(V) -> optional(V)
optional_ofNonZeroValue optional.ofNonZeroValue(V) -> optional(V)
optional_none optional.none() -> optional(V)
optional_value optional(V).value() -> V
optional_hasValue optional(V).hasValue() -> bool
optional_or_optional optional(V).or(optional(V)) -> optional(V)
optional_orValue_value optional(V).orValue(V) -> V
select_optional_field _?._(dyn, string) -> optional(V)
list_optindex_optional_int _[?_](list(V), int) -> optional(V)
optional_list_optindex_optional_int _[?_](optional(list(V)), int) -> optional(V)
map_optindex_optional_value _[?_](map(K, V), K) -> optional(V)
optional_map_optindex_optional_value _[?_](optional(map(K, V)), K) -> optional(V)
optional_list_index_int _[_](optional(list(V)), int) -> optional(V)
optional_map_index_value _[_](optional(map(K, V)), K) -> optional(V)
"""
# Of the later versions of cel-go's optional library, which cel-go turns on by itself.
EXTRA_SIGNATURES: Final = """
list_last list(V).last() -> optional(V)
list_first list(V).first() -> optional(V)
optional_unwrap optional.unwrap(list(optional(V))) -> list(V)
optional_unwrapOpt list(optional(V)).unwrapOpt() -> list(V)
"""
INSERT_SIGNATURES: Final = """
@mapInsert_map_key_value cel.@mapInsert(map(K, V), K, V) -> map(K, V)
@mapInsert_map_map cel.@mapInsert(map(K, V), map(K, V)) -> map(K, V)
"""
