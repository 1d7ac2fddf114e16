"""What makes runs of a policy differ though the seed is the same, found by reading its code.

Nothing is called: names are followed from the bytecode of its methods, and of the functions of its
own file that they name. What a library does inside is not seen.
"""

import builtins
import dis
import random
import sys
from collections.abc import Callable, Iterator
from importlib import import_module
from inspect import getsourcefile, getsourcelines
from types import CodeType, FunctionType, ModuleType
from typing import Any, Final, NamedTuple

# By module and name; methods of classes have no module.
CLOCKS: Final = frozenset(
    {(None, name) for name in ("datetime.now", "datetime.today", "datetime.utcnow", "date.today")}
    | {
        ("time", name + unit)
        for name in ("time", "monotonic", "perf_counter", "process_time", "thread_time")
        for unit in ("", "_ns")
    }
)
LOTS: Final = frozenset(
    {
        ("posix", "urandom"), ("nt", "urandom"), ("posix", "getrandom"), ("uuid", "uuid1"),
        ("uuid", "uuid4"), ("random", "SystemRandom"), ("posix", "getpid"), ("nt", "getpid"),
        # The hash of a text is another in each process.
        ("builtins", "hash"), ("builtins", "id"),
    }
)  # fmt: skip
# Modules of chance and clocks, which a method may be the first to import.
SOURCES: Final = frozenset({"datetime", "os", "random", "secrets", "time", "uuid"})
# Newer versions of Python have more kinds of LOAD_FAST.
FETCHES: Final = ("LOAD_GLOBAL", "LOAD_NAME", "LOAD_DEREF", "LOAD_FAST")
FOLLOWS: Final = frozenset({"LOAD_ATTR", "LOAD_METHOD", "IMPORT_FROM"})
BETWEEN: Final = frozenset({"CACHE", "PUSH_NULL", "PRECALL", "NOP"})
NOTHING: Final = object()


class UnseededUse(NamedTuple):
    """A place in a policy that no seed decides about."""

    file: str
    line: int
    name: str

    def __str__(self) -> str:
        return (
            f"{self.file}:{self.line}: {self.name} is not decided by the seed: runs differ; take "
            "chance from self.rng, and the time from self.state.now"
        )


def unseeded(policy: Callable[..., Any]) -> list[UnseededUse]:
    """Return the places in a class, by line; in what makes a policy otherwise, none are known."""
    found: set[UnseededUse] = set()
    seen: set[CodeType] = set()
    for made in policy.__mro__[:-1] if isinstance(policy, type) else ():
        for name, value in vars(made).items():
            function = getattr(value, "__func__", getattr(value, "fget", value))
            if isinstance(function, FunctionType):
                found.update(_of_function(function, seen))
            elif _is_unseeded(function, calls_empty=False):
                found.add(_of_attribute(made, name))
    return sorted(found)


def _of_attribute(made: type, name: str) -> UnseededUse:
    """Return where a class names chance itself: the line of the class, if its code is there."""
    try:
        file, line = getsourcefile(made) or "policy", getsourcelines(made)[1]
    except (OSError, TypeError):
        file, line = "policy", 0
    return UnseededUse(file, line, f"{made.__name__}.{name}")


def _of_function(function: FunctionType, seen: set[CodeType]) -> Iterator[UnseededUse]:
    cells = dict(zip(function.__code__.co_freevars, function.__closure__ or (), strict=False))
    code = function.__code__
    names = {**vars(builtins), **function.__globals__, **(function.__kwdefaults__ or {})}
    given = code.co_varnames[: code.co_argcount]
    names |= zip(reversed(given), reversed(function.__defaults__ or ()), strict=False)
    for name, cell in cells.items():
        try:
            names[name] = cell.cell_contents
        except ValueError:  # not filled yet
            continue
    yield from _of_code(code, names, seen)


def _of_code(code: CodeType, names: dict[str, Any], seen: set[CodeType]) -> Iterator[UnseededUse]:
    if code in seen:
        return
    seen.add(code)
    known = dict(names)
    value: Any = NOTHING
    shown, line = "", code.co_firstlineno
    steps = [each for each in dis.get_instructions(code) if each.opname not in BETWEEN]
    for at, step in enumerate(steps):
        line = step.positions.lineno if step.positions and step.positions.lineno else line
        if step.opname.startswith(FETCHES):
            value, shown = known.get(step.argval, NOTHING), str(step.argval)
        elif step.opname == "IMPORT_NAME":
            name = str(step.argval)
            found = import_module(name) if name in SOURCES else sys.modules.get(name, NOTHING)
            value, shown = found, name
        elif step.opname in FOLLOWS and value is not NOTHING:
            value, shown = getattr(value, step.argval, NOTHING), f"{shown}.{step.argval}"
            if step.opname == "IMPORT_FROM":
                continue
        elif step.opname.startswith("STORE_") and value is not NOTHING:
            known[step.argval], value = value, NOTHING
            continue
        else:
            value = NOTHING
            continue
        calls_empty = at + 1 < len(steps) and _calls_with_nothing(steps[at + 1])
        if _is_unseeded(value, calls_empty=calls_empty):
            yield UnseededUse(code.co_filename, line, shown)
        if isinstance(value, FunctionType) and value.__code__.co_filename == code.co_filename:
            yield from _of_function(value, seen)
    for inner in code.co_consts:
        if isinstance(inner, CodeType):
            yield from _of_code(inner, known, seen)


def _calls_with_nothing(step: dis.Instruction) -> bool:
    return step.opname == "CALL" and step.arg == 0


def _is_unseeded(value: Any, *, calls_empty: bool) -> bool:
    if value is NOTHING or isinstance(value, ModuleType):
        return False
    module, owner = getattr(value, "__module__", None), getattr(value, "__self__", None)
    name = getattr(value, "__qualname__", "")
    if (
        isinstance(owner, random.SystemRandom)
        or module == "secrets"
        or (module, name) in CLOCKS | LOTS
    ):
        return True
    if owner is not None and owner is getattr(random, "_inst", None):
        return getattr(value, "__name__", "") != "seed" or calls_empty
    numpy_random = sys.modules.get("numpy.random.mtrand")
    if owner is not None and owner is getattr(numpy_random, "_rand", NOTHING):
        return getattr(value, "__name__", "") != "seed" or calls_empty
    # A generator that is made without a seed.
    makes = (module == "random" and name == "Random") or (
        str(module).startswith("numpy.random") and name in {"default_rng", "RandomState"}
    )
    return makes and calls_empty
