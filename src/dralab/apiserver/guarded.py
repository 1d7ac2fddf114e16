"""What a lock guards: declared at the methods, and asserted in test runs.

The store's lock guards the objects of a store, and everything that is derived from them: indexes,
roles, quotas, addresses, policies, definitions (`docs/concepts/concurrency.md`).
"""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from operator import attrgetter
from typing import Any, Concatenate, Final, ParamSpec, TypeVar

# As SQLite asserts its mutexes: tests set it, and the processes that they start inherit it.
ASSERTED: Final = bool(os.environ.get("DRALAB_ASSERT_LOCKS"))
Owner = TypeVar("Owner")
P = ParamSpec("P")
R = TypeVar("R")
Method = Callable[Concatenate[Owner, P], R]


def is_held(lock: Any) -> bool:
    """Whether this thread holds a lock; assumed for locks that cannot tell."""
    held: Callable[[], bool] | None = getattr(lock, "_is_owned", None)
    return held is None or held()


@contextmanager
def released(lock: Any) -> Iterator[None]:
    """Let other threads have a lock inside, however often this one holds it."""
    held = lock._release_save() if is_held(lock) else None  # noqa: SLF001 - as Condition does
    try:
        yield
    finally:
        if held is not None:
            lock._acquire_restore(held)  # noqa: SLF001 - the same


class NotHeldError(AssertionError):
    """A method was called without the lock that guards what it uses."""


def guarded_by(lock: str) -> Callable[[Method[Owner, P, R]], Method[Owner, P, R]]:
    """Declare that a method must be called with a lock held, named as an attribute of `self`.

    >>> class Counts:
    ...     def __init__(self, store):
    ...         self.store, self.found = store, {}
    ...
    ...     @guarded_by("store.lock")
    ...     def add(self, name):
    ...         self.found[name] = self.found.get(name, 0) + 1
    """
    find = attrgetter(lock)

    def decorate(method: Method[Owner, P, R]) -> Method[Owner, P, R]:
        if not ASSERTED:
            return method

        @wraps(method)
        def checked(self: Owner, /, *arguments: P.args, **options: P.kwargs) -> R:
            if not is_held(find(self)):
                raise NotHeldError(f"{type(self).__name__}.{method.__name__} needs {lock}")
            return method(self, *arguments, **options)

        return checked

    return decorate
