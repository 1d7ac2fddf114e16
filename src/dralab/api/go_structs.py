"""Go's names of the types of fields and of the structs embedded in a struct."""

from collections.abc import Mapping
from functools import lru_cache

from dralab.api.messages import Messages
from dralab.api.releases import unpacked


@lru_cache(maxsize=1)
def _go_types() -> Mapping[str, Mapping[str, str]]:
    """Return Go's names of the types of plain fields, by message and field."""
    found: dict[str, dict[str, str]] = unpacked("go_types.json.gz")
    return found


@lru_cache(maxsize=512)
def embedded_in(message: str) -> Mapping[str, tuple[str, ...]]:
    """Return the Go structs embedded in a struct that hold a field of it, by the field."""
    messages = Messages.standard()
    found: dict[str, tuple[str, ...]] = {}
    for part in messages.fields(message).values() if message in messages else ():
        if part.inline and part.type in messages:
            name, inner = part.type.rpartition(".")[2], embedded_in(part.type)
            for field_ in messages.fields(part.type).values():
                found[field_.name] = (name,)
            found |= {below: (name, *where) for below, where in inner.items()}
    return found


@lru_cache(maxsize=512)
def types_of(message: str) -> Mapping[str, str]:
    """Return Go's names of the types of a struct's plain fields and of those embedded in it."""
    messages = Messages.standard()
    found = dict(_go_types().get(message, {}))
    for part in messages.fields(message).values() if message in messages else ():
        if part.inline:
            found |= types_of(part.type)
    return found


@lru_cache(maxsize=1)
def _names_of_structs() -> frozenset[str]:
    return frozenset(".".join(name.split(".")[-2:]) for name in Messages.standard().names())


def is_struct(name: str) -> bool:
    """Return whether Go's name of a type, such as `v1.PodSpec`, is that of a struct.

    >>> is_struct("v1.PodSpec"), is_struct("v1.PullPolicy")
    (True, False)
    """
    return name in _names_of_structs()
