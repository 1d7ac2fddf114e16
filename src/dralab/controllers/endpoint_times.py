"""The annotation for the last change of an Endpoints object's or slice's contents.

Source: k8s.io/endpointslice `trigger_time_tracker.go`. Programs measure with it how long a change
takes to reach them.
"""

from collections.abc import Iterable
from typing import Final

from dralab.objects.conditions import condition_of
from dralab.objects.metadata import NamespacedName, key_of
from dralab.values.json_types import JsonDict

CHANGED: Final = "endpoints.kubernetes.io/last-change-trigger-time"


class ChangeTimes:
    """Records the times of each Service and its pods, and finds the earliest new one."""

    def __init__(self) -> None:
        self._seen: dict[NamespacedName, tuple[str, dict[str, str]]] = {}

    def changed(self, service: JsonDict, pods: Iterable[JsonDict]) -> dict[str, str]:
        """Return the annotation for what changed since the last call; none if nothing did."""
        key = key_of(service)
        made = service["metadata"].get("creationTimestamp", "")
        now = {key_of(pod).name: _time_of(pod) for pod in pods}
        seen = self._seen.get(key)
        self._seen[key] = made, now
        before = {} if seen is None else seen[1]
        times = [time for name, time in now.items() if time and before.get(name) != time]
        if seen is None or seen[0] != made:
            times.append(made)
        return {CHANGED: min(times)} if times else {}

    def forget(self, key: NamespacedName) -> None:
        """Forget a Service that is gone."""
        self._seen.pop(key, None)


def _time_of(pod: JsonDict) -> str:
    """Return when a pod's readiness last changed; empty before its kubelet has reported."""
    found: str = (condition_of(pod, "Ready") or {}).get("lastTransitionTime") or ""
    return found
