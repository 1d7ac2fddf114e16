"""The request and the interface of admission plugins.

A write is admitted in two steps: plugins with `admit` may change the object, before it is
validated; those with `validate` look at what would be stored. Webhooks and policies, which users
configure, come last in both (`dynamic`).
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol, runtime_checkable

from dralab.api.kinds import Kind
from dralab.apiserver.storage import Key, Stored
from dralab.apiserver.users import User
from dralab.values.json_types import JsonDict

Operation = Literal["CREATE", "UPDATE", "DELETE", "CONNECT"]


def unnoted(_key: str, _value: str) -> None:
    """Drop an annotation: there is no audit log."""


def no_options() -> JsonDict:
    """Return the options of a request that has none."""
    return {}


def not_put(_stored: Stored, _value: JsonDict) -> None:
    """Leave other objects as they are."""


@dataclass(slots=True, kw_only=True)
class Review:
    """One write about to happen.

    `value` is the object to be stored (None for DELETE); a mutating admission changes it in
    place. `old` is the object that is there (None for CREATE, and for the
    DELETE of one that cannot be read); it may not be changed. `find`
    reads any object of the store, `all_of` those of a collection in a namespace, `count_of` tells
    how many they are. `annotate` adds an annotation
    to the audit log's record.

    `put` replaces another object, together with the write. `options` returns the request's
    options as it has them. `form` is group, version and kind of
    the object where they are not those of `kind`, as for an eviction. `may_wait` says that this
    thread may wait for others, until `deadline` (nanoseconds of the wall clock; 0: for ever). An
    `internal` write is the server's own: no webhook or policy is asked about it.
    What asks for a second round of the mutating plugins sets `again`; `round` counts them, and
    `changed` says that a webhook or policy changed the object. `memory` is theirs.
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
    options: Callable[[], JsonDict] = no_options
    put: Callable[[Stored, JsonDict], None] = not_put
    form: tuple[str, str, str] | None = None
    may_wait: bool = False
    deadline: int = 0
    internal: bool = False
    again: bool = False
    round: int = 0
    changed: bool = False
    memory: dict[str, Any] = field(default_factory=dict)

    @property
    def given_name(self) -> str:
        """The name as far as a new object has one yet: perhaps the beginning of it."""
        metadata = (self.value or {}).get("metadata") or {}
        return self.name or metadata.get("name") or metadata.get("generateName") or ""


@runtime_checkable
class Admission(Protocol):
    """One admission plugin; `admit` returns, changes `review.value`, or raises ApiError."""

    name: str

    def admit(self, review: Review) -> None:
        """Check or change a write before it is validated."""
        ...


@runtime_checkable
class ValidatingAdmission(Protocol):
    """One admission plugin that changes nothing; `validate` returns or raises ApiError."""

    name: str

    def validate(self, review: Review) -> None:
        """Check a write that is valid, before it happens."""
        ...
