"""`--api`: the generation of the device API that a command reads, one that the user wrote too.

Such a file is Python and runs with the user's rights, so nothing but this option, or `--to`, names
one: never an input file, and never the directory that a command runs in.
"""

import inspect
import sys
import traceback
from collections.abc import Iterable, Sequence
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any, Final

import click

from dralab.cli._options import opt
from dralab.cli.errors import UnusableInput
from dralab.files.reading import read
from dralab.prototypes.generations import GENERATIONS, detected
from dralab.prototypes.placement import Generation

GROUP: Final = "dralab.generations"
KEPT: Final = "dralab.generation"
OWN: Final = f"your own: a Python FILE, which is run, or the NAME of an installed one ({GROUP})"


def api_option(names: Sequence[str]) -> Any:
    """Declare `--api`: one of `names`, or the user's own generation.

    Their own one is for `named`, `found` and `own`; the parameter gets None, so that the input
    decides which of its documents are of which generation.
    """
    return opt(
        f"The API generation of the input: {', '.join(names)}, or {OWN}.  [default: detected]",
        flags="--api",
        metavar="API",
        callback=partial(_chosen, names),
    )


def own() -> Generation | None:
    """Return the user's own generation, if an option of the command names one."""
    context = click.get_current_context(silent=True)
    found: Generation | None = context.meta.get(KEPT) if context else None
    return found


def named(api: str) -> Generation:
    """Return a generation by the name that `found` gives it."""
    mine = own()
    return mine if mine is not None and mine.name == api else GENERATIONS[api]


def found(items: Iterable[Any]) -> set[str]:
    """Return the generations whose objects are among some documents, the user's own too."""
    items = list(items)
    mine = own()
    names = detected(items)
    if mine is not None and any(
        isinstance(item, dict) and item.get("apiVersion") == mine.api_version for item in items
    ):
        names.add(mine.name)
    return names


def _chosen(
    names: Sequence[str], context: click.Context, option: click.Parameter, value: str | None
) -> str | None:
    if value is None or value in names:
        return value
    if value in GENERATIONS:
        raise click.BadParameter(f"{value!r} is not one of {', '.join(names)}", context, option)
    load(context, value)
    return None


def load(context: click.Context, value: str) -> Generation:
    """Return the generation of a file, or of an installed package, and keep it as `own`."""
    kind = _from_file(Path(value)) if value.endswith(".py") else _from_package(value)
    try:
        made: Any = kind()
    except Exception as error:
        raise UnusableInput(f"{value}: {kind.__name__}() fails: {_told(error)}") from error
    for field in ("name", "api_version"):
        if not isinstance(getattr(made, field, None), str):
            raise UnusableInput(f"{value}: {kind.__name__} needs a {field}, which is a string")
    if made.name in GENERATIONS:
        raise UnusableInput(
            f'{value}: "{made.name}" is the name of a built-in generation: choose another'
        )
    other = context.meta.get(KEPT)
    if other is not None and other.name != made.name:
        raise click.UsageError(f"{value}: use one generation of your own, not {other.name} too")
    generation: Generation = made
    context.meta[KEPT] = generation
    return generation


def _from_file(path: Path) -> type[Any]:
    from dralab.prototypes.own import OwnGeneration

    module = ModuleType(f"own_{path.stem}")
    module.__file__ = str(path)
    try:
        code = compile(read(path), str(path), "exec")
        # Data classes look up their module.
        sys.modules[module.__name__] = module
        exec(code, module.__dict__)  # noqa: S102 - what the user asked for, with this option
    except OSError as error:
        raise UnusableInput(f"{path}: cannot be read: {error.strerror}") from None
    except SyntaxError as error:
        raise UnusableInput(f"{path}:{error.lineno}: {error.msg}") from None
    except Exception as error:
        raise UnusableInput(f"{path}:{_line(error, path)}: {_told(error)}") from error
    kinds = [
        each
        for each in vars(module).values()
        if isinstance(each, type)
        and issubclass(each, OwnGeneration)
        and each.__module__ == module.__name__
    ]
    if len(kinds) != 1:
        has = ", ".join(each.__name__ for each in kinds) or "none"
        raise UnusableInput(f"{path}: expected one class derived from OwnGeneration, found {has}")
    if inspect.isabstract(kinds[0]):
        missing = ", ".join(sorted(kinds[0].__abstractmethods__))
        raise UnusableInput(f"{path}: {kinds[0].__name__} does not define {missing}")
    return kinds[0]


def _from_package(name: str) -> type[Any]:
    from importlib.metadata import entry_points

    points = {point.name: point for point in entry_points(group=GROUP)}
    if name not in points:
        known = ", ".join([*GENERATIONS, *sorted(points)])
        raise UnusableInput(
            f"no installed package offers a generation {name!r}; known: {known}. "
            "A file must end in .py"
        )
    try:
        kind: type[Any] = points[name].load()
    except Exception as error:
        raise UnusableInput(f"{points[name].value}: {_told(error)}") from error
    return kind


def failure(error: Exception) -> str:
    """Return where in the user's own file something failed; empty if it failed elsewhere."""
    mine = own()
    if mine is None:
        return ""
    file = type(mine).pools.__code__.co_filename  # type: ignore[attr-defined]
    line = _line(error, Path(file))
    return f"{file}:{line}: {_told(error)}" if line else ""


def _line(error: Exception, path: Path) -> int:
    frames = traceback.extract_tb(error.__traceback__)
    lines = [frame.lineno or 0 for frame in frames if Path(frame.filename) == path]
    return lines[-1] if lines else 0


def _told(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"
