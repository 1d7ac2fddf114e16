"""The state of a run as JSON, and back: objects of known classes, and who refers to whom.

Nothing in it is run when it is read: an object is made empty and gets its attributes, and only
classes of the simulation and of the user's own scheduler can be named. What holds files, sockets or
processes is no state.
"""

import base64
import importlib
import random
import sys
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from enum import Enum
from functools import partial
from types import FunctionType, MethodType
from typing import Any, Final, TypeVar

import numpy as np

# Of which packages classes are state, and which modules in them are programs.
STATE: Final = (
    "dralab.kernel.",
    "dralab.values.",
    "dralab.objects.",
    "dralab.allocation.",
    "dralab.scheduling.",
    "dralab.simulation.engines.batch.",
    "dralab.simulation.lifecycle.",
    "dralab.simulation.platforms.",
    "dralab.simulation.reproductions.",
    "dralab.simulation.results.result",
    "dralab.simulation.workloads.",
    "dralab_scheduler_",  # `scenario.custom` has loaded it
)
PROGRAMS: Final = (
    "dralab.simulation.engines.batch.batprotocol",
    "dralab.simulation.engines.batch.decision_process",
    "dralab.simulation.engines.batch.outputs",
    "dralab.simulation.engines.batch.remote",
)
FACTORIES: Final[Mapping[str, type]] = {
    each.__name__: each for each in (int, float, str, list, dict, set, deque, Counter)
}
MAPPINGS: Final = frozenset({"dict", "Counter", "OrderedDict", "defaultdict"})
# What is made empty and filled later.
SHELLS: Final[Mapping[str, type]] = {
    "list": list, "set": set, "dict": dict, "Counter": Counter, "OrderedDict": OrderedDict,
}  # fmt: skip
PLAIN: Final = frozenset({type(None), bool, str})
# In JSON, and exactly as they were.
SMALLEST, LARGEST = -(1 << 63), (1 << 64) - 1


Named = TypeVar("Named", type, FunctionType)


class NoStateError(TypeError):
    """Something that cannot be written: it is code, or a part of this process."""


def encoded(state: object) -> dict[str, Any]:
    """Return a state as values of JSON. NoStateError."""
    return _GraphWriter().document(state)


def decoded(document: Any) -> Any:
    """Return the state of a document. ValueError, TypeError and their like: it is none."""
    return _GraphReader(document["objects"]).state(document["state"])


# --- writing ------------------------------------------------------------------------------------


class _GraphWriter:
    """Numbers objects in the order in which they are met; a reference is `[number]`."""

    def __init__(self) -> None:
        self._numbers: dict[int, int] = {}
        self._met: list[object] = []

    def document(self, state: object) -> dict[str, Any]:
        root = self._value(state)
        # The list grows while it is read: no recursion, however long a chain of objects is.
        return {"state": root, "objects": [self._object(each) for each in self._met]}

    def _value(self, value: Any) -> Any:
        kind = type(value)
        if kind in PLAIN:
            return value
        if kind is int:
            return value if SMALLEST <= value <= LARGEST else ["int", hex(value)]
        if kind is float:
            return value if value - value == 0 else ["float", repr(value)]
        # Bound methods are made anew whenever they are asked for: `_met` keeps them.
        number = self._numbers.get(id(value))
        if number is None:
            number = self._numbers[id(value)] = len(self._met)
            self._met.append(value)
        return [number]

    def _values(self, values: Iterable[Any]) -> list[Any]:
        return [self._value(each) for each in values]

    def _pairs(self, values: Mapping[Any, Any]) -> list[Any]:
        return [self._value(part) for pair in values.items() for part in pair]

    def _object(self, value: Any) -> list[Any]:
        match value:
            case Enum():
                return ["enum", _named(type(value)), value.name]
            case type():
                return ["class", _named(value)]
            case FunctionType():
                return ["function", _named(value)]
            case MethodType():
                return ["method", self._value(value.__self__), value.__name__]
            case partial():
                return [
                    "partial", self._value(value.func), self._values(value.args),
                    self._pairs(value.keywords),
                ]  # fmt: skip
            case np.ndarray() | np.generic():
                return _array(value)
            case random.Random() if type(value) is random.Random:
                version, numbers, gauss = value.getstate()
                return ["random", version, list(numbers), gauss]
            case bytes():
                return ["bytes", base64.b64encode(value).decode()]
            case _:
                return self._container(value)

    def _container(self, value: Any) -> list[Any]:
        kind = type(value)
        if kind in {list, tuple, set, frozenset}:
            return [kind.__name__, *self._values(value)]
        if kind in {dict, Counter, OrderedDict}:
            return [kind.__name__, *self._pairs(value)]
        if kind is deque:
            return ["deque", value.maxlen, *self._values(value)]
        if kind is defaultdict:
            factory = getattr(value.default_factory, "__name__", None)
            if value.default_factory is not FACTORIES.get(factory or "", None):
                raise NoStateError(f"a defaultdict with {value.default_factory!r}")
            return ["defaultdict", factory, *self._pairs(value)]
        if isinstance(value, tuple):
            return ["named", _named(kind), *self._values(value)]
        return ["object", _named(kind), *self._pairs(dict(_attributes(value)))]


def _attributes(value: object) -> Iterator[tuple[str, Any]]:
    for name in _slots(type(value)):
        try:
            yield name, getattr(value, name)
        except AttributeError:
            continue
    yield from getattr(value, "__dict__", {}).items()


def _slots(kind: type) -> Iterator[str]:
    for each in kind.__mro__:
        slots = each.__dict__.get("__slots__", ())
        for name in (slots,) if isinstance(slots, str) else slots:
            if name not in {"__dict__", "__weakref__"}:
                yield name


def _array(value: "np.ndarray[Any, Any] | np.generic") -> list[Any]:
    array = np.asarray(value)
    if array.dtype.hasobject:
        raise NoStateError(f"an array of {array.dtype}")
    content = base64.b64encode(np.ascontiguousarray(array).tobytes()).decode()
    kind = "array" if isinstance(value, np.ndarray) else "number"
    return [kind, array.dtype.str, list(array.shape), content]


def _named(item: type | FunctionType) -> str:
    """Return the name of a class or function that may be in a state. NoStateError."""
    name = f"{item.__module__}:{item.__qualname__}"
    if not _is_state(item.__module__) or "<" in name:
        raise NoStateError(f"{item.__module__}.{item.__qualname__} cannot be saved")
    return name


def _is_state(module: str) -> bool:
    return module.startswith(STATE) and not module.startswith(PROGRAMS)


# --- reading ------------------------------------------------------------------------------------


class _GraphReader:
    """Makes what can be filled later, then the rest, then fills it: objects before their hashes."""

    def __init__(self, objects: Sequence[Sequence[Any]]) -> None:
        self._objects = objects
        self._made: dict[int, Any] = {}
        self._filled: set[int] = set()
        self._open: set[int] = set()
        self._classes: dict[str, type] = {}

    def state(self, root: Any) -> Any:
        """Return the state that a value of the document stands for."""
        kinds = [each[0] for each in self._objects]
        for number, kind in enumerate(kinds):
            if kind in SHELLS or kind in {"object", "deque", "defaultdict"}:
                self._made[number] = self._shell(*self._objects[number])
        for number, kind in enumerate(kinds):
            if kind in {"object", "list", "deque"}:
                self._fill(number)
        for number, kind in enumerate(kinds):
            if kind == "set":
                self._made[number].update(self._values(self._objects[number][1:]))
            elif kind in MAPPINGS:
                start = 2 if kind == "defaultdict" else 1
                for key, value in self._pairs(self._objects[number][start:]):
                    self._made[number][key] = value
        return self._value(root)

    def _shell(self, kind: str, *rest: Any) -> Any:
        if kind == "object":
            return object.__new__(self._class(rest[0]))
        if kind == "deque":
            return deque(maxlen=rest[0])
        if kind == "defaultdict":
            return defaultdict(None if rest[0] is None else FACTORIES[rest[0]])
        return SHELLS[kind]()

    def _fill(self, number: int) -> None:
        if number in self._filled:
            return
        self._filled.add(number)
        made, (kind, *rest) = self._made[number], self._objects[number]
        if kind == "object":
            _set_all(made, self._pairs(rest[1:]))
        else:
            made.extend(self._values(rest if kind == "list" else rest[1:]))

    def _value(self, given: Any) -> Any:
        if not isinstance(given, list):
            return given
        if len(given) == 2:
            kind, text = given
            return float(text) if kind == "float" else int(text, 16)
        (number,) = given
        if number not in self._made:
            if number in self._open:
                raise ValueError(f"object {number} is a part of itself")
            self._open.add(number)
            self._made[number] = self._complete(*self._objects[number])
        return self._made[number]

    def _values(self, given: Iterable[Any]) -> list[Any]:
        return [self._value(each) for each in given]

    def _pairs(self, given: Sequence[Any]) -> list[tuple[Any, Any]]:
        values = self._values(given)
        return list(zip(values[::2], values[1::2], strict=True))

    def _complete(self, kind: str, *rest: Any) -> Any:  # noqa: PLR0911 - one line for each kind
        """Return what is made with all its parts at once."""
        match kind:
            case "tuple":
                return tuple(self._values(rest))
            case "frozenset":
                for each in rest:
                    self._settle(each)
                return frozenset(self._values(rest))
            case "named":
                return tuple.__new__(self._class(rest[0]), self._values(rest[1:]))
            case "enum":
                return self._class(rest[0])[rest[1]]  # type: ignore[index]  # an error otherwise
            case "class":
                return self._class(rest[0])
            case "function":
                return self._named(rest[0], FunctionType)
            case "method":
                return self._method(self._value(rest[0]), rest[1])
            case "partial":
                function, arguments, named = rest
                return partial(
                    _callable(self._value(function)),
                    *self._values(arguments),
                    **dict(self._pairs(named)),
                )
            case "array" | "number":
                text, shape, content = rest
                array = np.frombuffer(base64.b64decode(content), np.dtype(text)).reshape(shape)
                return array.copy() if kind == "array" else array[()]
            case "random":
                made = random.Random()  # noqa: S311 - its state is set
                made.setstate((rest[0], tuple(rest[1]), rest[2]))
                return made
            case "bytes":
                return base64.b64decode(rest[0])
            case _:
                raise ValueError(f"unknown kind {kind!r}")

    def _settle(self, given: Any) -> None:
        """Give an element its attributes, before it is hashed."""
        if isinstance(given, list) and len(given) == 1:
            kind, *rest = self._objects[given[0]]
            if kind == "object" and given[0] not in self._filled:
                self._fill(given[0])
                for each in rest[1:]:
                    self._settle(each)
            elif kind in {"tuple", "named"}:
                for each in rest:
                    self._settle(each)

    def _method(self, owner: Any, name: str) -> Any:
        for each in type(owner).__mro__:
            function = each.__dict__.get(name)
            if isinstance(function, FunctionType) and _is_state(each.__module__):
                return MethodType(function, owner)
        raise ValueError(f"no method {name!r}")

    def _class(self, name: str) -> type:
        if name not in self._classes:
            self._classes[name] = self._named(name, type)
        return self._classes[name]

    def _named(self, name: str, kind: type[Named]) -> Named:
        module, _, path = name.partition(":")
        if _is_state(module):
            found: Any = sys.modules.get(module) or importlib.import_module(module)
            for part in path.split("."):
                found = found.__dict__[part]
            # Not one that it has only imported.
            if isinstance(found, kind) and found.__module__ == module:
                return found
        raise ValueError(f"{name} is not a {kind.__name__} of a state")


def _set_all(made: object, pairs: Iterable[tuple[Any, Any]]) -> None:
    slots = frozenset(_slots(type(made)))
    for name, value in pairs:
        if name in slots:
            object.__setattr__(made, name, value)  # also where it is frozen
        elif isinstance(name, str) and not name.startswith("__"):
            made.__dict__[name] = value
        else:
            raise ValueError(f"{name!r} is not an attribute")


def _callable(value: Any) -> Callable[..., Any]:
    if not isinstance(value, MethodType | FunctionType | partial):
        raise TypeError(f"{type(value).__name__} is not a function")
    return value
