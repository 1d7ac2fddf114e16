"""The events of a pod and its claims, the newest last."""

from collections.abc import Iterable, Iterator
from typing import Any, Final

from dralab.objects.metadata import metadata_of
from dralab.values.json_types import JsonObject

MOST_EVENTS: Final = 100
MOST_OBJECTS: Final = 8
"""A pod and its first claims; each costs a request."""
KINDS: Final = {"pod": "Pod", "claim": "ResourceClaim"}


def owners_of_events(story: JsonObject) -> Iterator[tuple[str, str]]:
    """Yield the kind and name of the objects whose events belong to a story."""
    yield KINDS[story["kind"]], story["name"]
    if story["kind"] == "pod":
        for claim in story["claims"][: MOST_OBJECTS - 1]:
            yield KINDS["claim"], claim["name"]


def event_list(events: Iterable[JsonObject]) -> dict[str, Any]:
    """Return the newest MOST_EVENTS events, oldest first; `total` counts all."""
    found = sorted((_event(each) for each in events), key=lambda item: str(item["last"]))
    return {"total": len(found), "items": found[-MOST_EVENTS:]}


def is_about(event: JsonObject, kind: str, namespace: str, name: str) -> bool:
    """Return whether an event of core/v1 or events.k8s.io is about an object."""
    about = event.get("involvedObject") or event.get("regarding") or {}
    where = about.get("namespace") or metadata_of(event).get("namespace")
    return (about.get("kind"), where, about.get("name")) == (kind, namespace, name)


def _event(event: JsonObject) -> dict[str, Any]:
    about = event.get("involvedObject") or event.get("regarding") or {}
    series = event.get("series") or {}
    source = event.get("source") or {}
    last = (
        series.get("lastObservedTime")
        or event.get("lastTimestamp")
        or event.get("eventTime")
        or metadata_of(event).get("creationTimestamp")
    )
    return {
        "last": str(last or ""),
        "type": str(event.get("type") or ""),
        "reason": str(event.get("reason") or ""),
        "message": str(event.get("message") or event.get("note") or ""),
        "count": int(series.get("count") or event.get("count") or 1),
        "from": str(source.get("component") or event.get("reportingComponent") or ""),
        "about": f"{about.get('kind')} {about.get('name')}",
    }
