"""What callers of the laboratory give: an argument of the wrong type is named with its value."""

from collections.abc import Iterable
from os import PathLike
from reprlib import repr as shown
from typing import Any


def text(argument: str, value: Any) -> str:
    """Return a text. TypeError."""
    if not isinstance(value, str):
        raise TypeError(f"{argument}: {shown(value)} is not a text")
    return value


def texts(argument: str, value: Any) -> list[str]:
    """Return names; one may come alone. TypeError."""
    given = several(argument, [value] if isinstance(value, str) else value)
    return [text(argument, each) for each in given]


def several(argument: str, value: Any) -> list[Any]:
    """Return the items of a list or another iterable. TypeError."""
    if not isinstance(value, Iterable) or isinstance(value, (str, bytes)):
        raise TypeError(f"{argument}: {shown(value)} is neither one nor a list of them")
    return list(value)


def folder(argument: str, value: Any) -> str | PathLike[str]:
    """Return the path of a folder. TypeError, ValueError."""
    if not isinstance(value, (str, PathLike)):
        raise TypeError(f"{argument}: {shown(value)} is not a path")
    if not str(value):
        raise ValueError(f"{argument}: the path is empty; '.' is the current directory")
    return value


def whole(argument: str, value: Any, least: int = 0) -> int:
    """Return a whole number that is not less than another. TypeError, ValueError."""
    if not isinstance(value, int) or isinstance(value, bool):
        raise TypeError(f"{argument}: {shown(value)} is not a whole number")
    if value < least:
        raise ValueError(f"{argument}: {value} is less than {least}")
    return value
