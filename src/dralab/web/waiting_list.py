"""What waits for devices, as the page lists it; why is left to `explain`."""

from collections.abc import Sequence
from typing import Any, Final

from dralab.objects.claims import requests_of
from dralab.objects.metadata import metadata_of, spec_of, status_of
from dralab.scheduling.backlog import Pending
from dralab.scheduling.snapshot import Snapshot
from dralab.values.json_types import JsonDict

MOST_LISTED: Final = 2_000


def waiting_list(cluster: Snapshot) -> dict[str, Any]:
    """Return the pods and claims that wait, oldest first, the first MOST_LISTED of them.

    `message` is what the cluster's scheduler said last. Those without a time come last.
    """
    found = sorted(
        (_item(each) for each in cluster.pending()),
        key=lambda item: (not item["since"], item["since"]),
    )
    return {"total": len(found), "items": found[:MOST_LISTED]}


def named(pending: Sequence[Pending], kind: str, namespace: str, name: str) -> list[Pending]:
    """Return what waits under a name: one, or nothing."""
    return [
        each
        for each in pending
        if (each.kind, each.namespace, each.name) == (kind, namespace, name)
    ]


def _item(each: Pending) -> dict[str, Any]:
    owner: Any = each.pod if each.kind == "pod" else each.claims[0]
    return {
        "kind": each.kind,
        "namespace": each.namespace,
        "name": each.name,
        "since": str(metadata_of(owner).get("creationTimestamp") or ""),
        "priority": int(spec_of(owner).get("priority") or 0),
        "claims": [
            {"name": claim["metadata"]["name"], "requests": _requests(claim)}
            for claim in each.claims
        ],
        "allocated": [claim["metadata"]["name"] for claim in each.allocated],
        "missing": str(each.missing or ""),
        "message": _message(owner) if each.kind == "pod" else "",
    }


def _requests(claim: JsonDict) -> list[str]:
    return [str(request.get("name")) for request in requests_of(spec_of(claim))]


def _message(pod: JsonDict) -> str:
    for each in status_of(pod).get("conditions") or ():
        if each.get("type") == "PodScheduled" and each.get("status") == "False":
            return str(each.get("message") or each.get("reason") or "")
    return ""
