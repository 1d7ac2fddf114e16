"""What a pod says about its classic claims: entries with a `source`, and their claims' names."""

from collections.abc import Mapping
from typing import Any

Object = Mapping[str, Any]


def sources(pod: Object) -> dict[str, dict[str, str]]:
    """Return where a pod's classic entries come from, by their names."""
    return {
        entry["name"]: entry["source"]
        for entry in pod["spec"].get("resourceClaims") or ()
        if entry.get("source")
    }


def claims_by_entry(pod: Object) -> dict[str, str]:
    """Return the names of a pod's classic claims, by the names of its entries."""
    statuses = {
        status["name"]: status.get("resourceClaimName")
        for status in (pod.get("status") or {}).get("resourceClaimStatuses") or ()
    }
    found = {
        entry: source.get("resourceClaimName") or statuses.get(entry)
        for entry, source in sources(pod).items()
    }
    return {entry: name for entry, name in found.items() if name}
