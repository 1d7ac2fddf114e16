"""Events are forgotten an hour after they were last seen (kube-apiserver --event-ttl)."""

from contextlib import suppress
from typing import Final

from dralab.api.status import ApiError
from dralab.kernel.clock import SECOND, from_rfc3339
from dralab.objects.metadata import key_of, uid_of
from dralab.runtime.client import Object
from dralab.runtime.manager import Manager
from dralab.runtime.resources import EVENTS

TTL: Final = 3600 * SECOND
PERIOD: Final = 60 * SECOND


class EventTtl:
    """Looks once a minute; it keeps no events in memory."""

    def __init__(self, manager: Manager, *, ttl: int = TTL) -> None:
        self.manager = manager
        self.client = manager.client
        self.ttl = ttl
        manager.every(PERIOD, self.expire)

    def expire(self) -> None:
        """Delete what is too old. An event that cannot be deleted does not keep the others."""
        now = self.manager.engine.clock.now()
        try:
            events = self.client.list(EVENTS).items
        except ApiError:
            return  # the next minute will do
        for event in events:
            if _last_seen(event, now) < now - self.ttl:
                key = key_of(event)
                options = {"preconditions": {"uid": uid_of(event)}}
                with suppress(ApiError):
                    self.client.delete(EVENTS, key.name, key.namespace, options=options)


def _last_seen(event: Object, now: int) -> int:
    """Return when an event was seen last: between its creation and now, whatever its times say.

    In Kubernetes the lease of an event begins when it is written; no recorder's clock ends it early
    or keeps it for ever.
    """
    series = event.get("series") or {}
    text = series.get("lastObservedTime") or event.get("lastTimestamp") or event.get("eventTime")
    created = event["metadata"].get("creationTimestamp")
    since = from_rfc3339(created) if created else 0
    seen = from_rfc3339(text) if text else since
    return since if seen > now else max(since, seen)
