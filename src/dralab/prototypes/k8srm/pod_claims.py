"""The claims of a pod by name, and whether the pod may start: a node asks the same as a reader."""

from collections.abc import Callable

from dralab.objects.metadata import owner_uids, status_of, uid_of
from dralab.prototypes.claim_names import suffix
from dralab.prototypes.k8srm import reading
from dralab.prototypes.k8srm.model import PodEntry
from dralab.values.json_types import JsonObject


def claim_name(entry: PodEntry, pod: str, namespace: str) -> str:
    """Return the name of the claim that an entry of a pod stands for.

    >>> claim_name(PodEntry(name="gpu", how="existing", source="shared"), "p", "default")
    'shared'
    """
    if entry.how == "existing":
        return entry.source
    return "-".join(part for part in (pod, entry.name, suffix(namespace, pod)) if part)


def claim_names(pod: JsonObject) -> list[str]:
    """Return the names of all claims of a pod."""
    read = reading.read_pod(pod)
    return [claim_name(entry, read.name, read.namespace) for entry in read.entries]


def unready(pod: JsonObject, find: Callable[[str, str], JsonObject | None]) -> str:
    """Return why a pod must not start yet; empty if all its claims have their devices.

    `find` returns the DeviceClaim of a namespace and name, None if there is none.
    """
    read = reading.read_pod(pod)
    for entry in read.entries:
        name = claim_name(entry, read.name, read.namespace)
        claim = find(read.namespace, name)
        if claim is None:
            return f"DeviceClaim {name} does not exist"
        if entry.how != "existing" and uid_of(pod) not in owner_uids(claim):
            return (
                f"DeviceClaim {name} was not created for pod {read.name} (the pod is not its owner)"
            )
        status = status_of(claim)
        if not status.get("allocations"):
            return f"DeviceClaim {name} is not allocated"
        if read.name not in (status.get("podNames") or ()):
            return f"DeviceClaim {name} does not list pod {read.name} in status.podNames"
    return ""
