"""When the pods that hold devices will end, as far as their objects say so."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from dralab.kernel.clock import SECOND, from_rfc3339, rfc3339
from dralab.objects.metadata import controller_of, is_deleting, spec_of, status_of
from dralab.values.json_types import JsonObject

LAST: Final = 9


@dataclass(frozen=True, slots=True, order=True)
class HolderEnd:
    """When a pod ends: the smaller, the sooner. `text` says how that is known; empty: it is not.

    A pod that is being deleted comes first, then one with a deadline, then one that runs to its
    end; those that are started again for ever come last.
    """

    rank: int = LAST
    when: str = ""
    text: str = ""


UNKNOWN: Final = HolderEnd()


def end_of(pod: JsonObject) -> HolderEnd:
    """Return when a pod that runs will end.

    >>> spec, status = {"activeDeadlineSeconds": 3600}, {"startTime": "2026-11-01T08:00:00Z"}
    >>> end_of({"metadata": {}, "spec": spec, "status": status}).text
    'by 2026-11-01T09:00:00Z'
    """
    spec, status = spec_of(pod), status_of(pod)
    if is_deleting(pod):
        return HolderEnd(0, "", "it is being deleted")
    deadline, start = spec.get("activeDeadlineSeconds"), status.get("startTime")
    if deadline and start:
        when = rfc3339(from_rfc3339(start) + int(deadline) * SECOND)
        return HolderEnd(1, when, f"by {when}")
    owner: Mapping[str, object] = controller_of(pod) or {}
    if owner.get("kind") == "Job":
        return HolderEnd(2, "", f"it belongs to Job {owner.get('name')}")
    if spec.get("restartPolicy") in {"Never", "OnFailure"}:
        return HolderEnd(2, "", "it runs once")
    return UNKNOWN
