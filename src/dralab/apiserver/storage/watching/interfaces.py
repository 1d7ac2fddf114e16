"""What the hub needs to know about a watch: its selection, and the encoding of its events."""

from collections.abc import Callable, Sequence
from typing import Literal, Protocol, TypeVar

from dralab.apiserver.storage import Change, Stored
from dralab.values.json_types import JsonDict

EventType = Literal["ADDED", "MODIFIED", "DELETED"]
Item_co = TypeVar("Item_co", covariant=True)


class WatchScope(Protocol):
    """The collection of a watch, the objects it selects, and its start."""

    @property
    def resource(self) -> str:
        """The collection, as keys name it."""
        ...

    @property
    def version(self) -> str:
        """The version of the API in which the objects are sent, for metrics."""
        ...

    @property
    def namespace(self) -> str:
        """The namespace, or all of them where it is empty."""
        ...

    @property
    def name(self) -> str:
        """The only name to watch; empty for any."""
        ...

    @property
    def accepts(self) -> Callable[[Stored], bool] | None:
        """The rest of the selection; watches with equal `accepts` share work."""
        ...

    @property
    def exact(self) -> tuple[str, Callable[[JsonDict], str], str] | None:
        """A field, its reader, and the one value that `accepts` accepts; None if it has no such.

        Of the same collection, equal fields are read alike.
        """
        ...

    @property
    def initial(self) -> Sequence[Stored]:
        """Objects to send as ADDED, as of `since`."""
        ...

    @property
    def initial_end(self) -> bool:
        """Whether a bookmark ends them."""
        ...

    @property
    def since(self) -> int:
        """Changes after this revision are sent."""
        ...

    @property
    def bookmarks(self) -> bool:
        """Whether to send bookmarks now and then."""
        ...

    def seen(self, change: Change) -> tuple[EventType, Stored] | None:
        """Return what a change means to the watch, and the state to show; None for nothing."""
        ...


class Spelling(Protocol[Item_co]):
    """The encoding of events: lines of JSON, Table rows, or objects of this process."""

    @property
    def shared(self) -> bool:
        """Whether watches with an equal spelling get equal items, which are made once."""
        ...

    def event(self, type: EventType, stored: Stored) -> Item_co:
        """Return one change."""
        ...

    def bookmark(self, revision: int, *, initial_end: bool = False) -> Item_co:
        """Return a bookmark; `initial_end` marks that all initial events have been sent."""
        ...
