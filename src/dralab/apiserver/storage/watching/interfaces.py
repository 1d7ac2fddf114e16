"""What the hub needs to know about a watch: its selection, and the encoding of its events."""

from collections.abc import Callable, Sequence
from typing import Literal, Protocol, TypeVar

from dralab.apiserver.storage import Change, Stored
from dralab.values.json_types import JsonDict
from dralab.values.records import dataclass

EventType = Literal["ADDED", "MODIFIED", "DELETED"]
Item_co = TypeVar("Item_co", covariant=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class Watching:
    """The scope of a watch of one collection, for the hub that carries it out.

    First `initial` as ADDED (as of `since`), then a bookmark that ends them if `initial_end`,
    then every change after `since`. `timeout` is in seconds, None if the client gave none.
    `version` is the one that is asked for. `bookmarks` tells whether the client wants them now and
    then. `accepts` is None if every object of the collection (and namespace, and name) is wanted;
    watches with equal ones share work. `exact` is a condition of it: a field, its reader, and its
    one value. Of the same collection, equal fields are read alike.
    """

    resource: str
    version: str = ""
    namespace: str = ""
    name: str = ""
    accepts: Callable[[Stored], bool] | None = None
    exact: tuple[str, Callable[[JsonDict], str], str] | None = None
    initial: Sequence[Stored] = ()
    initial_end: bool = False
    since: int = 0
    bookmarks: bool = False
    timeout: float | None = None

    def seen(self, change: Change) -> tuple[EventType, Stored] | None:
        """Return the event that a change causes in this watch, or None.

        An object that enters the selection is ADDED, one that leaves it DELETED: the state
        before, as of the revision of the change.
        """
        if self.namespace and change.key.namespace != self.namespace:
            return None
        if self.name and change.key.name != self.name:
            return None
        before, after, accepts = change.before, change.after, self.accepts
        if accepts is not None:
            if before is not None and not accepts(before):
                before = None
            if after is not None and not accepts(after):
                after = None
        if after is None:
            return None if before is None else ("DELETED", change.departed)
        return ("ADDED" if before is None else "MODIFIED", after)


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
