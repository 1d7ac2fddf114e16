"""One request: whose it is, what it may do and until when, and what it notes beside its answer.

A request begins in the loop, where it may neither wait for other servers nor compute for long. If
it has to, `MustWait` or `MustCompute` ends it, and it begins again in a thread that may. Who may is
decided once, before the work begins.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import field
from typing import Final

from dralab.api.status import ApiError
from dralab.apiserver.access.users import ADMIN, User
from dralab.apiserver.long_work import LongWork, WaitedTooLong
from dralab.apiserver.storage import Damaged, Key, Stored, StoreView
from dralab.kernel.clock import SECOND, WallClock
from dralab.values.records import dataclass

LONGEST: Final = 34 * SECOND  # of a request (k8s.io/apiserver `endpoints/handlers`)


class MustWait(Exception):  # noqa: N818 - a condition, which no client sees
    """Another server has to be asked, and this request may not wait: begin again where it may."""


class MustCompute(MustWait):
    """It takes long, and other requests wait for this thread: begin again in another one."""


def unnoted(_key: str, _value: str) -> None:
    """Drop an annotation, because the server keeps no audit log."""


def deadline(asked: int | None = None) -> int:
    """Return until when a request that begins now may wait, in nanoseconds of the wall clock.

    `asked` is the time that its client gives it, in nanoseconds.
    """
    return WallClock().now() + min(LONGEST, asked or LONGEST)


@dataclass(slots=True, kw_only=True)
class RequestScope:
    """One request of a user, over its view of the store.

    Until `until`, in nanoseconds of the wall clock, it may ask other servers if it `waits`, and
    compute for long if there is `work`, in its turn. `warnings` are for its client; `annotate` adds
    an annotation to the audit log's record. One that is `internal` is the server's own: no webhook
    or policy is asked about its writes.
    """

    store: StoreView
    user: User = ADMIN
    until: int = 0
    waits: bool = False
    work: LongWork | None = None
    warnings: list[str] = field(default_factory=list)
    annotate: Callable[[str, str], None] = unnoted
    internal: bool = False

    def check_waits(self) -> None:
        """Raise MustWait if the request may not wait for others."""
        if not self.waits:
            raise MustWait

    def time_left(self, most: float) -> float:
        """Return how many seconds it may wait, `most` at the most; 0: no time is left. MustWait."""
        self.check_waits()
        return min(most, self._left)

    @contextmanager
    def long_work(self) -> Iterator[None]:
        """Compute for long inside, in the user's turn. MustCompute, ApiError Timeout."""
        if self.work is None:
            raise MustCompute
        try:
            with self.work.turn(self.user.name, self._left):
                yield
        except WaitedTooLong:
            raise ApiError(
                "Timeout",
                "request did not complete within requested timeout - context deadline exceeded",
                details={},
            ) from None

    @property
    def _left(self) -> float:
        return max(0.0, (self.until - WallClock().now()) / SECOND)

    def find(self, key: Key) -> Stored | None:
        """Return an object as it is stored, or None; ApiError StorageReadError."""
        try:
            return self.store.get(key)
        except Damaged as error:
            raise unreadable(error) from error

    def all_of(self, hub: str, namespace: str) -> Sequence[Stored]:
        """Return the objects of a collection in a namespace."""
        return self.store.list(hub, namespace).items


def unreadable(error: Damaged) -> ApiError:
    """Return the error for an object whose stored state is damaged.

    Source of the reason: k8s.io/apimachinery `meta/v1` (StatusReasonStoreReadError).
    """
    key = error.key
    group, _, plural = key.resource.rpartition("/")
    return ApiError(
        "StorageReadError",
        f"{shown(key)} cannot be read: its stored data is damaged (it was last written at revision "
        f"{error.revision}); delete it, or restore a backup",
        details={"name": key.name, **({"group": group} if group else {}), "kind": plural},
    )


def shown(key: Key) -> str:
    """Return an object as messages name it: `pods "web" in namespace "default"`."""
    group, _, plural = key.resource.rpartition("/")
    where = f' in namespace "{key.namespace}"' if key.namespace else ""
    return f'{plural}.{group} "{key.name}"{where}' if group else f'{plural} "{key.name}"{where}'
