"""Caches keyed by texts of clients: long ones are not kept.

A plain cache of 10,000 entries keeps 10,000 texts, each as long as a request may be.
"""

from collections.abc import Callable, Hashable
from functools import wraps
from inspect import signature
from typing import Any, Final, Generic, ParamSpec, TypeVar, cast

import orjson

P = ParamSpec("P")
R = TypeVar("R")
K = TypeVar("K", bound=Hashable)
LONGEST: Final = 8192  # bytes of a key
NAMED: Final = object()  # parts the arguments given by position from those given by name


def remembered(most: int, *, longest: int = 512) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Remember up to `most` results of a function, but those for a text of over `longest`.

    Where one comes that is too many, all others are forgotten.

    The arguments that count are texts given by position; others have to be few.

    >>> @remembered(100, longest=5)
    ... def asked(text: str) -> str:
    ...     print("asked for", text)
    ...     return text
    >>> _ = asked("short"), asked("short"), asked("longer"), asked("longer")
    asked for short
    asked for longer
    asked for longer
    """

    def decorate(function: Callable[P, R]) -> Callable[P, R]:
        known: dict[Hashable, object] = {}

        def keep(key: Hashable, result: object) -> object:
            if len(known) >= most:
                known.clear()  # simpler than to find the oldest, and right in any thread
            known[key] = result
            return result

        names = signature(function).parameters.values()
        if [each.annotation for each in names] == [str]:
            # Nearly all of them, and often called: this takes half the time of what follows.
            def of_text(text: str) -> object:
                try:
                    return known[text]
                except KeyError:
                    found = function(text)  # type: ignore[call-arg,arg-type]
                return keep(text, found) if len(text) <= longest else found

            return cast("Callable[P, R]", wraps(function)(of_text))

        @wraps(function)
        def call(*arguments: object, **options: object) -> object:
            key = (arguments, NAMED, *options.items()) if options else arguments
            try:
                return known[key]
            except KeyError:
                found = function(*arguments, **options)  # type: ignore[arg-type]
            if any(type(each) is str and len(each) > longest for each in arguments):
                return found
            return keep(key, found)

        return cast("Callable[P, R]", call)

    return decorate


class KnownValues(Generic[K, R]):
    """Results by the JSON of what they were made from: most pods are copies of a few.

    Where one comes that is too many, all others are forgotten.

    >>> known = KnownValues[bytes, str]()
    >>> known.keep(json_key({"a": 1}), "one")
    >>> known.get(json_key({"a": 1}))
    'one'
    """

    __slots__ = ("_found", "_most")

    def __init__(self, most: int = 1024) -> None:
        self._found: dict[K, R] = {}
        self._most = most

    def get(self, key: K | None) -> R | None:
        """Return what is known; None if that is nothing."""
        return None if key is None else self._found.get(key)

    def keep(self, key: K | None, result: R) -> None:
        """Remember a result."""
        if key is None:
            return
        if len(self._found) >= self._most:
            self._found.clear()
        self._found[key] = result


def json_key(value: Any) -> bytes | None:
    """Return the JSON of a value; None where it is long, or has a number of over 64 bits."""
    try:
        text = orjson.dumps(value)
    except TypeError:
        return None
    return text if len(text) <= LONGEST else None
