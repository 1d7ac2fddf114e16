"""Projections of devices: what of a device a selector can tell apart, as a hashable key.

Devices with equal keys get equal answers, so a selector need be evaluated only once per key.
"""

from collections.abc import Callable, Hashable, Iterable
from functools import partial
from typing import Any, Final

from dralab.cel.values import MAPS, Map, Quantity

Path = tuple[str, ...]


class _Absent:
    """What a device has where it has nothing."""

    def __repr__(self) -> str:
        return "absent"


ABSENT: Final = _Absent()


def projection(paths: Iterable[Path]) -> Callable[[Map], Hashable]:
    """Return a function from a device to the key of its values at some paths."""
    return partial(_key, tuple(paths))


def _key(paths: tuple[Path, ...], device: Map) -> Hashable:
    return tuple([value_key(at(device, path)) for path in paths])


def at(device: Any, path: Path) -> Any:
    """Return the value at a path, or ABSENT."""
    value = device
    for name in path:
        # Not `value[name]`: a map with a default would answer for what it does not contain.
        if type(value) not in MAPS or name not in value:
            return ABSENT
        value = value[name]
    return value


def value_key(value: Any) -> Hashable:
    """Return a key under which only values lie that no expression can tell apart."""
    kind = type(value)
    if kind is str:
        return str(value)
    if kind is list:
        return (list, *map(value_key, value))
    if kind in MAPS:
        # Not sorted: an expression may see the order of a map.
        return (Map, *[(value_key(name), value_key(inner)) for name, inner in value.items()])
    if kind is Quantity:
        return (Quantity, value.number, value.scale)
    hashable: Hashable = value
    return (kind, hashable)
