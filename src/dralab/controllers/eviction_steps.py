"""The progress of an Eviction of lifecycle.k8s.io: requesters, and the active responder.

Source: the field descriptions of lifecycle.k8s.io/v1alpha1 in Kubernetes 1.37 (KEP-4563), which
has no controller for it yet. Responders act one after the other, by priority; one that does not
say for 20 minutes that it goes on is passed over.
"""

from collections.abc import Iterable
from typing import Any, Final

from dralab.kernel.clock import SECOND, from_rfc3339
from dralab.objects.conditions import with_condition
from dralab.objects.metadata import spec_of, status_of
from dralab.objects.pods import is_finished
from dralab.values.json_types import JsonDict, JsonObject
from dralab.values.records import dataclass

EVICTOR: Final = "imperative-eviction.k8s.io/evictor"
EVICTOR_PRIORITY: Final = 100
SILENCE: Final = 20 * 60 * SECOND
EVICTED: Final = "TargetEvicted"
FAILED: Final = "Failed"
MOST_REQUESTERS: Final = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class EvictionFacts:
    """What an eviction depends on: its pod (None if deleted), and its requesters."""

    pod: JsonObject | None
    intents: Iterable[tuple[str, str]]
    now: int
    time: str


def is_over(status: JsonObject) -> bool:
    """Return whether an eviction has ended, one way or the other."""
    return any(
        each.get("status") == "True" and each.get("type") in {EVICTED, FAILED}
        for each in status.get("conditions") or ()
    )


def active_responder(status: JsonObject) -> str:
    """Return the name of the active responder; empty if there is none."""
    active = [each for each in status.get("targetResponders") or () if each["state"] == "Active"]
    return str(active[0]["name"]) if active else ""


def advanced(eviction: JsonObject, facts: EvictionFacts) -> JsonDict:
    """Return the next status of an eviction; the same if nothing has changed."""
    status: JsonDict = {**status_of(eviction)}
    status["requesters"] = _requesters(status.get("requesters") or (), facts.intents)
    if not status.get("targetResponders"):
        named = [] if facts.pod is None else spec_of(facts.pod).get("evictionResponders") or []
        every = [*named, {"name": EVICTOR, "priority": EVICTOR_PRIORITY}]
        ordered = sorted(every, key=_rank)
        status["targetResponders"] = [{**each, "state": "Inactive"} for each in ordered]
        status["responders"] = [{"name": each["name"]} for each in ordered]
    status["observedGeneration"] = eviction["metadata"].get("generation", 1)
    if is_over(status):
        return status
    gone = facts.pod is None or is_finished(facts.pod)
    asked = any(each["intent"] == "Eviction" for each in status["requesters"])
    if gone or not asked:
        _stop_active(status, facts, gone=gone)
    else:
        _pass_on(status, facts)
    if gone:
        reason = "PodDeleted" if facts.pod is None else "PodTerminal"
        _conclude(status, facts, EVICTED, reason)
    elif not asked:
        _conclude(status, facts, FAILED, "CanceledDueToNoRequesters")
    elif not active_responder(status):
        _conclude(status, facts, FAILED, "NoFurtherResponder")
    else:
        _conclude(status, facts, "", "AwaitingEviction")
    return status


def silent_at(status: JsonObject) -> int | None:
    """Return when the active responder is skipped unless it sends a heartbeat."""
    name = active_responder(status)
    told = _told(status, name)
    last = told.get("heartbeatTime") or told.get("startTime")
    return None if not name or last is None else from_rfc3339(last) + SILENCE


def _requesters(known: Iterable[JsonObject], intents: Iterable[tuple[str, str]]) -> list[JsonDict]:
    asked: dict[str, str] = {}
    for name, intent in intents:
        asked[name] = "Eviction" if "Eviction" in {intent, asked.get(name)} else intent
    every = {each["name"]: "Withdrawn" for each in known} | asked
    # Beyond the limit those go first that have withdrawn.
    kept = sorted(every, key=lambda name: every[name] == "Withdrawn")[:MOST_REQUESTERS]
    return [{"name": name, "intent": every[name]} for name in sorted(kept)]


def _rank(responder: JsonObject) -> tuple[Any, ...]:
    domain, _, key = responder["name"].partition("/")
    return -(responder.get("priority") or 0), domain.split(".")[::-1], key


def _stop_active(status: JsonDict, facts: EvictionFacts, *, gone: bool) -> None:
    name = active_responder(status)
    if gone and name == EVICTOR:
        _tell(status, name, completionTime=facts.time)
    done = _told(status, name).get("completionTime")
    _set_state(status, name, "Completed" if done else "Interrupted" if gone else "Canceled")


def _pass_on(status: JsonDict, facts: EvictionFacts) -> None:
    """Activate the next responder once the active one has completed or is silent for too long."""
    name, silent = active_responder(status), silent_at(status)
    if _told(status, name).get("completionTime"):
        _set_state(status, name, "Completed")
    elif silent is not None and facts.now >= silent:
        _set_state(status, name, "Interrupted")
    elif name:
        return
    after = next(
        (each["name"] for each in status["targetResponders"] if each["state"] == "Inactive"), ""
    )
    _set_state(status, after, "Active")
    if after:
        _tell(status, after, startTime=facts.time)


def _conclude(status: JsonDict, facts: EvictionFacts, holds: str, reason: str) -> None:
    conditions = status.get("conditions") or ()
    for kind in (EVICTED, FAILED):
        new = {
            "type": kind,
            "status": "True" if kind == holds else "False",
            "reason": reason,
            "message": "",
        }
        conditions = with_condition(conditions, new, now=facts.time)
    status["conditions"] = conditions


def _told(status: JsonObject, name: str) -> JsonObject:
    return next((each for each in status.get("responders") or () if each["name"] == name), {})


def _tell(status: JsonDict, name: str, **more: str) -> None:
    status["responders"] = [
        {**each, **more} if each["name"] == name else each for each in status["responders"]
    ]


def _set_state(status: JsonDict, name: str, state: str) -> None:
    status["targetResponders"] = [
        {**each, "state": state} if each["name"] == name else each
        for each in status["targetResponders"]
    ]
