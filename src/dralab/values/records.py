"""`dataclass` as in `dataclasses`, whose methods are compiled when they are first called.

The standard one compiles up to seven functions for each class where it is defined. With a hundred
classes that was a quarter of the server's start; most of them are never made an instance of.
"""

import dataclasses
from collections.abc import Callable, Mapping
from functools import partial
from reprlib import recursive_repr
from typing import TYPE_CHECKING, Any, Final, TypeVar

Record = TypeVar("Record")
Source = Callable[[type, dict[str, Any]], str]


def _written_init(cls: type, names: dict[str, Any]) -> str:
    frozen, slots = names["_frozen"], "__slots__" in vars(cls)
    first, last, body = ["self"], list[str](), list[str]()
    for each in dataclasses.fields(cls):
        name, default, factory = each.name, f"_default_{each.name}", f"_factory_{each.name}"
        names[default], names[factory] = each.default, each.default_factory
        made, has_default = each.default_factory is not MISSING, each.default is not MISSING
        value = name
        if not each.init:
            if not made and not (has_default and slots):
                continue
            value = f"{factory}()" if made else default
        else:
            given = f"{name}={'_MISSING' if made else default}" if made or has_default else name
            (last if each.kw_only else first).append(given)
            if made:
                value = f"{factory}() if {name} is _MISSING else {name}"
        body.append(f"_set(self, {name!r}, {value})" if frozen else f"self.{name} = {value}")
    if hasattr(cls, "__post_init__"):
        body.append("self.__post_init__()")
    arguments = ", ".join([*first, *(["*", *last] if last else [])])
    return f"def __init__({arguments}):\n " + "\n ".join(body or ["pass"])


def _written_repr(cls: type, _names: dict[str, Any]) -> str:
    shown = ", ".join(f"{each.name}={{self.{each.name}!r}}" for each in _fields(cls, "repr"))
    return f"def __repr__(self):\n return f'{{type(self).__qualname__}}({shown})'"


def _written_eq(cls: type, _names: dict[str, Any]) -> str:
    mine, theirs = (
        "".join(f"{who}.{each.name}," for each in _fields(cls, "compare"))
        for who in ("self", "other")
    )
    return (
        "def __eq__(self, other):\n"
        " if other.__class__ is not self.__class__: return NotImplemented\n"
        f" return ({mine}) == ({theirs})"
    )


def _written_hash(cls: type, _names: dict[str, Any]) -> str:
    hashed = [
        each.name
        for each in dataclasses.fields(cls)
        if (each.compare if each.hash is None else each.hash)
    ]
    return f"def __hash__(self):\n return hash(({''.join(f'self.{name},' for name in hashed)}))"


def _fields(cls: type, wanted: str) -> list[Any]:
    return [each for each in dataclasses.fields(cls) if getattr(each, wanted)]


MISSING: Final = dataclasses.MISSING
WRITTEN: Final[dict[str, Source]] = {
    "__init__": _written_init, "__repr__": _written_repr, "__eq__": _written_eq,
    "__hash__": _written_hash,
}  # fmt: skip


def _record(
    cls: type,
    *,
    init: bool = True,
    repr: bool = True,
    eq: bool = True,
    frozen: bool = False,
    **options: Any,
) -> type:
    own = {name for name in WRITTEN if vars(cls).get(name) is not None}
    made: Any = dataclasses.dataclass(init=False, repr=False, eq=False, **options)(cls)
    for name, wanted in (("__init__", init), ("__repr__", repr), ("__eq__", eq)):
        if wanted and name not in own:
            _compile_later(made, name, frozen=frozen)
    if eq and "__hash__" not in own:
        if frozen:
            _compile_later(made, "__hash__", frozen=frozen)
        else:
            made.__hash__ = None
    if frozen:
        _freeze(made)
    found: type = made
    return found


def _compile_later(cls: type, name: str, *, frozen: bool) -> None:
    def compiled() -> Any:
        names = {"_MISSING": MISSING, "_set": object.__setattr__, "_frozen": frozen}
        exec(WRITTEN[name](cls, names), names)  # noqa: S102 - of the names of fields
        made: Any = names[name]
        made.__qualname__, made.__module__ = method.__qualname__, cls.__module__
        if name == "__repr__":
            made = recursive_repr("...")(made)
        setattr(cls, name, made)
        return made

    def method(self: Any, *arguments: Any, **options: Any) -> Any:
        return compiled()(self, *arguments, **options)

    method.__name__, method.__qualname__ = name, f"{cls.__qualname__}.{name}"
    setattr(cls, name, method)
    if name == "__init__":
        setattr(cls, "__signature__", _Signature(compiled))  # noqa: B010 - no type has it


class _Signature:
    """Has `inspect.signature` find the `__init__` with its arguments."""

    def __init__(self, compiled: Callable[[], Any]) -> None:
        self.compiled = compiled

    def __get__(self, instance: Any, owner: type) -> None:
        self.compiled()


def _freeze(cls: Any) -> None:
    names = frozenset(each.name for each in dataclasses.fields(cls))

    def __setattr__(self: Any, name: str, value: Any) -> None:  # noqa: N807
        if type(self) is cls or name in names:
            raise dataclasses.FrozenInstanceError(f"cannot assign to field {name!r}")
        super(cls, self).__setattr__(name, value)

    def __delattr__(self: Any, name: str) -> None:  # noqa: N807
        if type(self) is cls or name in names:
            raise dataclasses.FrozenInstanceError(f"cannot delete field {name!r}")
        super(cls, self).__delattr__(name)

    cls.__setattr__, cls.__delattr__ = __setattr__, __delattr__
    if "__slots__" in vars(cls):
        # Copies and pickles are made without `__setattr__`.
        cls.__getstate__, cls.__setstate__ = _state_of, _set_state


def _state_of(self: Any) -> list[Any]:
    return [getattr(self, each.name) for each in dataclasses.fields(self)]


def _set_state(self: Any, state: list[Any]) -> None:
    for each, value in zip(dataclasses.fields(self), state, strict=True):
        object.__setattr__(self, each.name, value)


_COPIERS: Final[dict[type, Callable[[Any, Mapping[str, Any]], Any]]] = {}


def copied(record: Record, changes: Mapping[str, Any]) -> Record:
    """Return a copy of a record with some fields replaced; its class has slots and no base.

    As `dataclasses.replace`, but `__init__` is not called, so that it takes a tenth of the time:
    simulations make millions of pods.
    """
    copier = _COPIERS.get(type(record)) or _compile_copier(type(record))
    copy: Record = copier(record, changes)
    return copy


def _compile_copier(cls: type) -> Callable[[Any, Mapping[str, Any]], Any]:
    # A class of the same slots whose fields may be set; a copy is one of it until it is filled.
    bare = type(f"Bare{cls.__name__}", (), {"__slots__": vars(cls)["__slots__"]})
    names: dict[str, Any] = {"_new": object.__new__, "_bare": bare, "_cls": cls}
    kept = "".join(f" made.{each.name} = record.{each.name}\n" for each in dataclasses.fields(cls))
    source = (
        f"def copier(record, changes):\n made = _new(_bare)\n{kept}"
        " for name, value in changes.items():\n  setattr(made, name, value)\n"
        " made.__class__ = _cls\n return made"
    )
    exec(source, names)  # noqa: S102 - of the names of fields
    copier: Callable[[Any, Mapping[str, Any]], Any] = names["copier"]
    _COPIERS[cls] = copier
    return copier


if TYPE_CHECKING:
    from dataclasses import dataclass as dataclass  # noqa: PLC0414 - checked as the standard one
else:

    def dataclass(cls=None, /, **options):
        """Make a class a dataclass: `dataclasses.dataclass`, without `order` and `unsafe_hash`.

        >>> @dataclass(frozen=True, slots=True)
        ... class Point:
        ...     x: int
        ...     y: int = 0
        >>> Point(1), Point(1) == Point(1, 0), hash(Point(1)) == hash(Point(1))
        (Point(x=1, y=0), True, True)
        """
        return partial(_record, **options) if cls is None else _record(cls, **options)
