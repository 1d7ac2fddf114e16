"""Classes of policies on their way to other processes: their code, and what it depends on.

A class of a notebook has no file, so its code travels (extra: workers). Runs that are kept name a
fingerprint of the code, which stays the same in another session.
"""

import hashlib
import pickle
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from importlib import import_module
from types import CodeType, FunctionType, ModuleType
from typing import Any, Final

from dralab.kernel.extras import require

PLAIN: Final = (bool, int, float, str, bytes, tuple, list, dict, set, frozenset, type(None))


_SENT: dict[str, Callable[[], Any]] = {}


@dataclass(frozen=True, slots=True)
class ShippedPolicy:
    """A class as bytes; equal ones decide alike."""

    fingerprint: str
    content: bytes = field(compare=False, repr=False)

    def load(self) -> Callable[[], Any]:
        """Return the class, in whatever process this is."""
        # Where it came from it is there already, and reading it would replace its methods.
        found: Callable[[], Any] = _SENT.get(self.fingerprint) or pickle.loads(  # noqa: S301
            self.content
        )
        return found


def shipped(policy: type) -> ShippedPolicy:
    """Return a class so that workers can run it. MissingExtraError."""
    require("workers", f"{policy.__name__}, a class of yours in a campaign,")
    cloudpickle: Any = import_module("cloudpickle")
    module = sys.modules[policy.__module__]
    # Workers may not have the module, or an older one: its code goes with the class.
    by_value = policy.__module__ != "__main__"
    if by_value:
        cloudpickle.register_pickle_by_value(module)
    try:
        content: bytes = cloudpickle.dumps(policy)
    finally:
        if by_value:
            cloudpickle.unregister_pickle_by_value(module)
    name = fingerprint(policy)
    _SENT[name] = policy
    return ShippedPolicy(name, content)


def fingerprint(policy: type) -> str:
    """Return what the code of a class and of what it names amounts to, as a short text."""
    summed = hashlib.sha256()
    for part in _of_class(policy, set()):
        summed.update(repr(part).encode())
    return summed.hexdigest()[:32]


def _of_class(made: type, seen: set[object]) -> Iterator[Any]:
    for each in made.__mro__[:-1]:
        if each in seen or each.__module__.partition(".")[0] == "dralab":
            continue
        seen.add(each)
        yield each.__qualname__
        for name, value in sorted(vars(each).items()):
            if name in {"__module__", "__dict__", "__weakref__", "__doc__", "__firstlineno__"}:
                continue
            function = getattr(value, "__func__", getattr(value, "fget", value))
            yield name
            yield from _of_value(function, seen)


def _of_value(value: Any, seen: set[object]) -> Iterator[Any]:
    if isinstance(value, FunctionType):
        if value.__code__ not in seen:
            seen.add(value.__code__)
            yield from (value.__defaults__, value.__kwdefaults__)
            cells = dict(zip(value.__code__.co_freevars, value.__closure__ or (), strict=False))
            yield from _of_code(value.__code__, {**value.__globals__}, cells, seen)
    elif isinstance(value, ModuleType):
        yield value.__name__
    elif isinstance(value, type):
        yield from (value.__module__, value.__qualname__)
        if value.__module__ not in sys.stdlib_module_names:
            yield from _of_class(value, seen)
    elif isinstance(value, (set, frozenset)):
        yield sorted(map(repr, value))
    elif isinstance(value, PLAIN):
        yield value
    else:
        yield from (type(value).__qualname__, getattr(value, "__name__", ""))
        try:
            yield pickle.dumps(value)
        except Exception:  # noqa: BLE001 - of what cannot be written its type has to do
            return


def _of_code(
    code: CodeType, names: dict[str, Any], cells: dict[str, Any], seen: set[object]
) -> Iterator[Any]:
    yield from (code.co_code, code.co_names, code.co_varnames)
    for value in code.co_consts:
        if isinstance(value, CodeType):
            yield from _of_code(value, names, cells, seen)
        else:
            yield from _of_value(value, seen)
    for name in code.co_names:
        if name in names:
            yield from _of_value(names[name], seen)
    for name in code.co_freevars:
        if name in cells:
            try:
                yield from _of_value(cells[name].cell_contents, seen)
            except ValueError:  # not filled yet
                continue
