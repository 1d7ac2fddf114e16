"""Events are deleted an hour after their last write (kube-apiserver --event-ttl).

The lease of an event begins with each write of it, as an etcd lease does. For events that a
server finds when it starts, it is derived from the event's own times.
"""

from collections import OrderedDict
from typing import Final

from dralab.apiserver.guarded import guarded_by
from dralab.apiserver.storage import Key
from dralab.apiserver.verbs import deleting
from dralab.apiserver.verbs.state.context import Context
from dralab.kernel.clock import SECOND, from_rfc3339
from dralab.values.json_types import JsonDict

HUB: Final = "events"
TTL: Final = 3600 * SECOND
# A write deletes a few old ones as well, so `expire` need not be called where no client waits: in a
# simulation. A look at the clock takes more.
AT_A_WRITE: Final = 8
AT_A_TIME: Final = 500
NEVER: Final = 1 << 63


class EventLeases:
    """The time of each event's last write, oldest first; the store's lock guards it."""

    def __init__(self, context: Context, *, ttl: int = TTL) -> None:
        self.context = context
        self.ttl = ttl
        # One entry an event, however often it is written: when, and at which revision.
        self._written: OrderedDict[Key, tuple[int, int]] = OrderedDict()
        self._busy = False
        if context.store.shared:
            return  # where servers share a store, its own leases end events
        context.derive(self._begin, {HUB: self._follow})

    def __len__(self) -> int:
        """Return how many events have a lease."""
        return len(self._written)

    def expire(self, most: int = AT_A_TIME) -> None:
        """Delete expired events, but no more than `most`."""
        store, oldest = self.context.store, self.context.clock.now() - self.ttl
        with store.lock:
            if self._busy or self._first() >= oldest:
                return
            self._busy = True
            try:
                with store.batch():
                    while most and self._first() < oldest:
                        key, (_, revision) = self._written.popitem(last=False)
                        self._end(key, revision)
                        most -= 1
            finally:
                self._busy = False

    def _first(self) -> int:
        """Return the time of the oldest last write."""
        return self._written[next(iter(self._written))][0] if self._written else NEVER

    def _end(self, key: Key, revision: int) -> None:
        if key in self.context.store.damaged(HUB):
            return
        found = self.context.store.get(key)
        if found is not None and found.revision == revision:
            kind = self.context.kinds.find("", "v1", "events")
            deleting.remove(self.context.own, kind, found)

    @guarded_by("context.store.lock")
    def _follow(self, before: JsonDict | None, after: JsonDict | None) -> None:
        metadata = (after or before or {})["metadata"]
        key = Key(HUB, metadata["namespace"], metadata["name"])
        self._written.pop(key, None)
        if after is not None:
            self._written[key] = (self.context.clock.now(), int(metadata["resourceVersion"]))
            self.expire(AT_A_WRITE)

    def _begin(self) -> None:
        now = self.context.clock.now()
        found = self.context.store.list(HUB).items
        seen = sorted((last_seen(event.value, now), event.revision, event.key) for event in found)
        self._written = OrderedDict((key, (when, revision)) for when, revision, key in seen)


def last_seen(event: JsonDict, now: int) -> int:
    """Return when an event was seen last: between its creation and now, whatever its times say.

    So a recorder with a wrong clock cannot end it early or keep it for ever.
    """
    series = event.get("series") or {}
    text = series.get("lastObservedTime") or event.get("lastTimestamp") or event.get("eventTime")
    created = event["metadata"].get("creationTimestamp")
    since = from_rfc3339(created) if created else 0
    seen = from_rfc3339(text) if text else since
    return since if seen > now else max(since, seen)
