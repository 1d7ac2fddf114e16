"""Events are forgotten an hour after they were last seen (kube-apiserver --event-ttl)."""

from typing import Final

from dralab.api.status import ApiError
from dralab.kernel.clock import SECOND, from_rfc3339
from dralab.runtime.client import Object
from dralab.runtime.manager import Manager
from dralab.runtime.objects import key_of, uid_of
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
        """Delete what is too old."""
        oldest = self.manager.engine.clock.now() - self.ttl
        try:
            for event in self.client.list(EVENTS).items:
                if _last_seen(event) < oldest:
                    key = key_of(event)
                    options = {"preconditions": {"uid": uid_of(event)}}
                    self.client.delete(EVENTS, key.name, key.namespace, options=options)
        except ApiError:
            return  # the next minute will do


def _last_seen(event: Object) -> int:
    series = event.get("series") or {}
    text = (
        series.get("lastObservedTime")
        or event.get("lastTimestamp")
        or event.get("eventTime")
        or event["metadata"].get("creationTimestamp")
    )
    return from_rfc3339(text) if text else 0
