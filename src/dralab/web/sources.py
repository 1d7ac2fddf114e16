"""Where the objects on the page come from: files, this process's server, or any cluster.

A source only reads. What the objects mean is left to the views.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from dralab.api.status import ApiError
from dralab.runtime.reading import Lister, ReadingError, read_cluster
from dralab.values.json_types import JsonDict


class UnreadableClusterError(Exception):
    """The objects cannot be read; `code` is the HTTP status that says why."""

    def __init__(self, message: str, code: int) -> None:
        super().__init__(message)
        self.message = message
        self.code = code


class ObjectSource(Protocol):
    """Reads the objects of a cluster as they are now."""

    def revision(self) -> str | None:
        """Return a text that changes with the objects; None where only reading them tells."""
        ...

    def read(self) -> Sequence[JsonDict]:
        """Return the objects, in the hub's versions. UnreadableClusterError."""
        ...


@dataclass(frozen=True, slots=True)
class FixedSource:
    """Objects that never change, such as those of a file."""

    objects: Sequence[JsonDict]

    def revision(self) -> str | None:
        """Return the one revision that there is."""
        return "1"

    def read(self) -> Sequence[JsonDict]:
        """Return the objects."""
        return self.objects


@dataclass(frozen=True, slots=True)
class ListedSource:
    """The objects that a client may list; `changed` tells the revision of a server that is near."""

    client: Lister
    changed: Callable[[], int] | None = None

    def revision(self) -> str | None:
        """Return the revision of the server's store, where it is known."""
        return None if self.changed is None else str(self.changed())

    def read(self) -> Sequence[JsonDict]:
        """Return the objects.

        UnreadableClusterError: 403 where some may not be listed, 502 without an answer.
        """
        try:
            return list(read_cluster(self.client))
        except ReadingError as error:
            cause = error.__cause__
            code = cause.code if isinstance(cause, ApiError) else 502
            raise UnreadableClusterError(str(error), code if code in {401, 403} else 502) from error
