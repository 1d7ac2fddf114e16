"""The scheduler's reports about pods: the condition PodScheduled, the nominated node, events."""

from typing import Any

from dralab.objects.conditions import condition_of
from dralab.objects.metadata import key_of, uid_of
from dralab.runtime import resources
from dralab.runtime.manager import Manager
from dralab.values.json_types import JsonDict


class PodReports:
    """Writes conditions and events of pods, in the name of a scheduler."""

    def __init__(self, manager: Manager, name: str) -> None:
        self._manager = manager
        self._recorder = manager.recorder(name)

    def event(
        self,
        pod: JsonDict,
        reason: str,
        message: str,
        *,
        warning: bool = False,
        at: int | None = None,
    ) -> None:
        """Write an event of a pod."""
        self._recorder.event(
            pod, "Pod", reason, message, type="Warning" if warning else "Normal", at=at
        )

    def unscheduled(self, pod: JsonDict, reason: str, message: str, nominated: str = "") -> None:
        """Write the reason why a pod has no node, unless its condition says so already."""
        known = condition_of(pod, "PodScheduled") or {}
        same = (known.get("status"), known.get("reason"), known.get("message")) == (
            "False",
            reason,
            message,
        )
        if same and not nominated:
            return
        now = self._manager.now()
        since = known.get("lastTransitionTime", now) if known.get("status") == "False" else now
        condition = {
            "type": "PodScheduled",
            "status": "False",
            "reason": reason,
            "message": message,
            "lastTransitionTime": since,
        }
        status: dict[str, Any] = {"conditions": [condition]}
        if nominated:
            status["nominatedNodeName"] = nominated
        key = key_of(pod)
        patch: JsonDict = {"metadata": {"uid": uid_of(pod)}, "status": status}
        self._manager.engine.offload(
            lambda: self._manager.client.patch(
                resources.PODS,
                key.name,
                patch,
                key.namespace,
                type="strategic",
                subresource="status",
            ),
            lambda _: None,
        )
