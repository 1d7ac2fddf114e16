"""The scheduler's reports: conditions of pods and pod groups, the nominated node, events."""

from typing import Any, Final

from dralab.objects.conditions import condition_of, with_condition
from dralab.objects.metadata import key_of, status_of, uid_of
from dralab.runtime import resources
from dralab.runtime.manager import Manager
from dralab.values.json_types import JsonDict

# The condition of a PodGroup that says so, where it has another name.
STARTED: Final = {"v1alpha2": "PodGroupScheduled"}


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

    def unscheduled(
        self, pod: JsonDict, reason: str, message: str, nominated: str | None = None
    ) -> None:
        """Write the reason why a pod has no node, unless its condition says so already.

        It is `nominated` for a node, for none any more (""), or that stays as it was (None).
        """
        known = condition_of(pod, "PodScheduled") or {}
        same = (known.get("status"), known.get("reason"), known.get("message")) == (
            "False",
            reason,
            message,
        )
        known_node = str(status_of(pod).get("nominatedNodeName") or "")
        moves = nominated is not None and nominated != known_node
        if same and not moves:
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
        if moves:
            status["nominatedNodeName"] = nominated or None
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

    def group(self, group: JsonDict, message: str | None) -> None:
        """Write whether a PodGroup has started (None), or why not; once it has, that stays so."""
        resource = self._manager.cache(resources.POD_GROUPS).resource
        kind = STARTED.get(resource.version, "PodGroupInitiallyScheduled")
        known = condition_of(group, kind) or {}
        status, reason = ("True", "Scheduled") if message is None else ("False", "Unschedulable")
        if known.get("status") == "True" or (known and known.get("message") == message):
            return
        new = {
            "type": kind,
            "status": status,
            "reason": reason,
            "message": message or "",
            "observedGeneration": group["metadata"].get("generation", 1),
        }
        conditions = with_condition([known] if known else [], new, now=self._manager.now())
        key = key_of(group)
        patch: JsonDict = {"metadata": {"uid": uid_of(group)}, "status": {"conditions": conditions}}
        self._manager.engine.offload(
            lambda: self._manager.client.patch(
                resource, key.name, patch, key.namespace, type="strategic", subresource="status"
            ),
            lambda _: None,
        )
