"""Options and arguments of commands, written as the defaults of the parameters that get them.

    @click.command()
    @options
    def run(*, file: Path = arg(FILE), seeds: int = opt("Number of trials.", least=1, default=100)):

A parameter gives its option the name and the type. `X | None` may be missing, a `tuple` may be
given several times, a `bool` is a flag, and a `str` is empty if it is not given; the others are
required unless they have a default, which help shows. A parameter that is a data class of options
gets one made of them.
"""

import functools
import inspect
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import fields, is_dataclass
from pathlib import Path
from types import NoneType
from typing import Any, Final, TypeVar, get_args, get_origin

import click

from dralab.values.near_names import did_you_mean
from dralab.values.records import dataclass

FILE: Final = click.Path(path_type=Path, dir_okay=False)
FOLDER: Final = click.Path(path_type=Path, file_okay=False)
EXISTING: Final = click.Path(exists=True, dir_okay=False, path_type=Path)
ANY_PATH: Final = click.Path(path_type=Path)
Command = TypeVar("Command", bound=Callable[..., Any])
Decorator = Callable[[Callable[..., Any]], Callable[..., Any]]
Kind = click.ParamType[Any] | Sequence[str] | None


@dataclass(frozen=True, slots=True)
class DeclaredOption:
    """What makes an option or an argument of a parameter, from its name and its type."""

    make: Callable[[str, Any], Decorator]


def opt(
    help: str,
    kind: Kind = None,
    *,
    flags: str = "",
    least: float | None = None,
    most: float | None = None,
    **more: Any,
) -> Any:
    """Declare an option; `kind` is a type of click, or the texts to choose from.

    `least` and `most` bound a number. What is more goes to `click.option`.
    """

    def make(name: str, of: Any) -> Decorator:
        given: dict[str, Any] = {"help": help}
        types = [each for each in get_args(of) if each is not NoneType]
        may_be_missing = NoneType in get_args(of)
        of = types[0] if may_be_missing else of
        if of is bool and kind is None:
            given |= {"default": None} if may_be_missing else {"is_flag": True}
        elif get_origin(of) is tuple:
            given["multiple"] = True
        elif not (may_be_missing or more.keys() & {"default", "required"}):
            given |= {"default": ""} if of is str and kind is None else {"required": True}
        if least is not None or most is not None:
            ranged: Any = FiniteRange if of is float else click.IntRange
            given["type"] = ranged(least, most)
        elif kind is not None or of in {int, float}:
            given["type"] = _type_of(of if kind is None else kind)
        if more.get("default", "") not in {"", None}:
            given["show_default"] = True
        names = flags.split() or [f"--{name.replace('_', '-')}"]
        return click.option(*names, name, **given | more)

    return DeclaredOption(make)


def arg(kind: Kind = None, **more: Any) -> Any:
    """Declare an argument, as `opt` an option."""

    def make(name: str, of: Any) -> Decorator:
        given: dict[str, Any] = {"type": _type_of(kind)} if kind is not None else {}
        if get_origin(of) is tuple:
            given["nargs"] = -1
        if NoneType in get_args(of):
            given["required"] = False
        return click.argument(name, **given | more)

    return DeclaredOption(make)


class NameChoice(click.Choice[str]):
    """One of some names; the error about another asks which one is meant."""

    def get_invalid_choice_message(self, value: Any, ctx: click.Context | None) -> str:
        """Return the error."""
        told = super().get_invalid_choice_message(value, ctx).removesuffix(".")
        return told + (did_you_mean(str(value), self.choices) or ".")


class FiniteRange(click.FloatRange):
    """A range of numbers, to which nan and inf do not belong."""

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        """Return the number. BadParameter."""
        number = super().convert(value, param, ctx)
        if not math.isfinite(number):
            self.fail(f"{value!r} is not a finite number.", param, ctx)
        return number


def _type_of(kind: Any) -> Any:
    return NameChoice(kind) if isinstance(kind, Sequence) else kind


def options(command: Command) -> Command:
    """Add the options that a command's parameters declare, in their order."""
    return options_of(command)(command)


def options_of(declaring: Callable[..., Any]) -> Callable[[Command], Command]:
    """Return a decorator that adds the options of another function."""
    found = inspect.signature(declaring).parameters.values()
    groups = {each.name: each.annotation for each in found if _is_group(each.annotation)}

    def add(command: Command) -> Command:
        made: Any = _grouped(command, groups) if groups else command
        for decorator in reversed(list(_made(found))):
            made = decorator(made)
        return made  # type: ignore[no-any-return]  # the command, with its options

    return add


def _made(parameters: Iterable[inspect.Parameter]) -> Iterator[Decorator]:
    for each in parameters:
        yield from _made_of(each.name, each.annotation, each.default)


def _made_of(name: str, of: Any, default: Any) -> Iterator[Decorator]:
    if isinstance(default, DeclaredOption):
        yield default.make(name, of)
    elif _is_group(of):
        for part in fields(of):
            yield from _made_of(part.name, part.type, part.default)


def _is_group(of: Any) -> bool:
    return is_dataclass(of) and all(
        isinstance(f.default, DeclaredOption) or _is_group(f.type) for f in fields(of)
    )


def _grouped(command: Command, groups: dict[str, Any]) -> Command:
    @functools.wraps(command)
    def call(*arguments: Any, **given: Any) -> Any:
        made = {name: _filled(kind, given) for name, kind in groups.items()}
        return command(*arguments, **given, **made)

    return call  # type: ignore[return-value]  # the command, but for its parameters


def _filled(kind: Any, given: dict[str, Any]) -> Any:
    """Return a data class of options with the values of them, which are taken out of `given`."""
    values = {
        each.name: _filled(each.type, given) if _is_group(each.type) else given.pop(each.name)
        for each in fields(kind)
    }
    return kind(**values)
