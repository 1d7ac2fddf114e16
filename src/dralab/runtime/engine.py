"""The engine that components run on: `kernel.events`, in real or simulated time.

A component is single-threaded: everything it does is an event of its engine, one after the other.
`live` waits for the wall clock between two events; `simulated` advances its clock to the next one.
A component cannot tell which of the two it runs on.
"""

from collections.abc import Callable
from typing import Protocol, TypeVar

from dralab.kernel.clock import Clock
from dralab.kernel.events import NORMAL

Action = Callable[[], None]
T = TypeVar("T")


class TimerHandle(Protocol):
    """An event that will happen."""

    @property
    def when(self) -> int:
        """When it will, in nanoseconds since the epoch."""
        ...

    def cancel(self) -> None:
        """Make sure that it does not happen; does nothing where it did already."""
        ...


class Engine(Protocol):
    """Something that makes events happen at their time."""

    @property
    def clock(self) -> Clock:
        """The time in which the events happen."""
        ...

    def at(self, when: int, action: Action, *, priority: int = NORMAL) -> TimerHandle:
        """Run `action` at `when` (ns since the epoch), or next where that has passed."""
        ...

    def after(self, delay: int, action: Action, *, priority: int = NORMAL) -> TimerHandle:
        """Run `action` in `delay` nanoseconds."""
        ...

    def soon(self, action: Action) -> None:
        """Run `action` after what is due already. The one method that any thread may call."""
        ...

    def offload(
        self, work: Callable[[], T], done: Callable[[T | Exception], None], *, lane: str = ""
    ) -> None:
        """Run blocking work beside the events, then `done` as an event.

        Work of a `lane` delays only the work of that lane, however long it takes.
        """
        ...
