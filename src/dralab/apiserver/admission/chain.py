"""The request and the interface of admission plugins."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

from dralab.api.kinds import Kind
from dralab.apiserver.storage import Key, Stored
from dralab.apiserver.users import User

Operation = Literal["CREATE", "UPDATE", "DELETE", "CONNECT"]


def unnoted(_key: str, _value: str) -> None:
    """Drop an annotation: there is no audit log."""


@dataclass(slots=True, kw_only=True)
class Review:
    """One write about to happen.

    `value` is the object to be stored (None for DELETE); a mutating admission changes it in
    place. `old` is the object that is there (None for CREATE, and for the
    DELETE of one that cannot be read); it may not be changed. `find`
    reads any object of the store, `all_of` those of a collection in a namespace, `count_of` tells
    how many they are. `annotate` adds an annotation
    to the audit log's record.
    """

    operation: Operation
    kind: Kind
    namespace: str
    name: str
    subresource: str
    value: dict[str, Any] | None
    old: dict[str, Any] | None
    user: User
    dry_run: bool
    find: Callable[[Key], Stored | None]
    all_of: Callable[[str, str], Sequence[Stored]]
    count_of: Callable[[str, str], int]
    warnings: list[str] = field(default_factory=list)
    annotate: Callable[[str, str], None] = unnoted

    @property
    def given_name(self) -> str:
        """The name as far as a new object has one yet: perhaps the beginning of it."""
        metadata = (self.value or {}).get("metadata") or {}
        return self.name or metadata.get("name") or metadata.get("generateName") or ""


class Admission(Protocol):
    """One admission plugin; `admit` returns, changes `review.value`, or raises ApiError."""

    name: str

    def admit(self, review: Review) -> None:
        """Check or change a write before it happens."""
        ...
