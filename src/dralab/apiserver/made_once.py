"""Parts of a server that are made when they are first needed, whichever thread needs them first.

`functools.cached_property` has no lock since Python 3.12: two threads may each get a part of their
own, and what one is told afterwards the other never hears.
"""

from collections.abc import Callable
from threading import RLock
from typing import Any, Generic, TypeVar, overload

Owner = TypeVar("Owner")
Part = TypeVar("Part")


class made_once(Generic[Owner, Part]):  # noqa: N801 - a decorator, named as one
    """A property that is computed once for each object; other threads wait for it.

    >>> class Server:
    ...     @made_once
    ...     def plugins(self) -> list[str]:
    ...         return ["webhooks"]
    >>> server = Server()
    >>> server.plugins is server.plugins
    True
    """

    def __init__(self, make: Callable[[Owner], Part]) -> None:
        self._make = make
        self.__doc__ = make.__doc__

    def __set_name__(self, owner: type[Owner], name: str) -> None:
        self._name, self._lock = name, f"{name} lock"

    @overload
    def __get__(self, instance: None, owner: type[Owner]) -> "made_once[Owner, Part]": ...
    @overload
    def __get__(self, instance: Owner, owner: type[Owner]) -> Part: ...
    def __get__(
        self, instance: Owner | None, owner: type[Owner]
    ) -> "made_once[Owner, Part] | Part":
        if instance is None:
            return self
        # As there is no `__set__`, Python looks here first, and comes here only until it is made.
        kept: dict[str, Any] = vars(instance)
        with kept.setdefault(self._lock, RLock()):
            if self._name not in kept:
                kept[self._name] = self._make(instance)
            found: Part = kept[self._name]
            return found
