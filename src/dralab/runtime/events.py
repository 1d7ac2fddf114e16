"""Events about objects, as shown by `kubectl describe`."""

import hashlib
from collections import OrderedDict
from collections.abc import Mapping
from typing import Any, Final, Literal

from dralab.api.status import ApiError
from dralab.kernel.clock import rfc3339
from dralab.objects.event_texts import shortened
from dralab.runtime.client import Client
from dralab.runtime.engine import Engine
from dralab.runtime.resources import EVENTS
from dralab.values.records import dataclass

REMEMBERED: Final = 4096


@dataclass(slots=True)
class _Series:
    name: str
    namespace: str
    count: int


class EventRecorder:
    """Writes events, and counts one up where the same happens to the same object again.

    An event that cannot be written is dropped: no component depends on it.
    """

    def __init__(self, engine: Engine, client: Client, component: str) -> None:
        self.component = component
        self._engine = engine
        self._client = client
        self._number = 0
        self._series: OrderedDict[tuple[str, ...], _Series] = OrderedDict()

    def event(
        self,
        about: Mapping[str, Any],
        kind: str,
        reason: str,
        message: str,
        *,
        type: Literal["Normal", "Warning"] = "Normal",
        api_version: str = "v1",
        at: int | None = None,
    ) -> None:
        """Record that something happened to an object of that kind; `at`: when, if not now."""
        message = shortened(message)
        metadata = about["metadata"]
        namespace = metadata.get("namespace") or "default"
        moment = self._engine.clock.now() if at is None else at
        now = rfc3339(moment)
        key = (kind, namespace, metadata["name"], metadata.get("uid", ""), reason, message)
        known = self._series.get(key)
        if known is not None:
            known.count += 1
            self._series.move_to_end(key)
            body = {"count": known.count, "lastTimestamp": now}
            self._engine.offload(lambda: self._count(key, known, body), _nothing)
            return
        self._number += 1
        digest = hashlib.sha256(f"{self.component}{now}{self._number}{key}".encode()).hexdigest()
        # Names that sort by time: kubectl shows events of one second in the order of their names.
        series = _Series(f"{metadata['name'][:230]}.{moment:016x}{digest[:5]}", namespace, 1)
        self._series[key] = series
        if len(self._series) > REMEMBERED:
            self._series.popitem(last=False)
        reference = {
            "kind": kind,
            "namespace": metadata.get("namespace", ""),
            "name": metadata["name"],
            "uid": metadata.get("uid", ""),
            "apiVersion": api_version,
            "resourceVersion": metadata.get("resourceVersion", ""),
        }
        event = {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {"name": series.name, "namespace": namespace},
            "involvedObject": {name: value for name, value in reference.items() if value},
            "reason": reason,
            "message": message,
            "type": type,
            "count": 1,
            "firstTimestamp": now,
            "lastTimestamp": now,
            "source": {"component": self.component},
            "reportingComponent": self.component,
            "reportingInstance": "",
        }
        self._engine.offload(lambda: self._create(key, event), _nothing)

    def _create(self, key: tuple[str, ...], event: dict[str, Any]) -> None:
        try:
            self._client.create(EVENTS, event, event["metadata"]["namespace"])
        except ApiError:
            self._series.pop(key, None)

    def _count(self, key: tuple[str, ...], series: _Series, body: dict[str, Any]) -> None:
        try:
            self._client.patch(EVENTS, series.name, body, series.namespace)
        except ApiError:
            self._series.pop(key, None)


def _nothing(_: object) -> None:
    """No caller waits for an event."""
