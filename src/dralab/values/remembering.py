"""Caches by texts that clients send: what is long is not kept.

A plain cache of 10,000 entries keeps 10,000 texts, each as long as a request may be.
"""

from collections.abc import Callable
from functools import lru_cache, wraps
from inspect import signature
from typing import ParamSpec, TypeVar, cast

P = ParamSpec("P")
R = TypeVar("R")


def remembered(most: int, *, longest: int = 512) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Remember the last `most` results of a function, but those for a text of over `longest`.

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
        cached = lru_cache(maxsize=most)(function)
        names = signature(function).parameters.values()
        if [each.annotation for each in names] == [str]:
            # Nearly all of them, and often called: this takes half the time of what follows.
            def of_text(text: str) -> object:
                return cached(text) if len(text) <= longest else function(text)  # type: ignore[call-arg,arg-type]

            return cast("Callable[P, R]", wraps(function)(of_text))

        @wraps(function)
        def call(*arguments: object, **options: object) -> object:
            for each in arguments:
                if type(each) is str and len(each) > longest:
                    return function(*arguments, **options)  # type: ignore[arg-type]
            return cached(*arguments, **options)

        return cast("Callable[P, R]", call)

    return decorate
