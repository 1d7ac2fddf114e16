"""Resources of running containers: desired, allocated, and actual ones.

The specification of a `RunningContainer` has what is allocated to it. Source: kubelet 1.36
(`pkg/kubelet/allocation`, `kuberuntime_manager.go` and `events/resize.go`).
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, Literal, NamedTuple

import orjson

from dralab.kernel.clock import SECOND
from dralab.node.container_runs import RunningContainer
from dralab.node.node_context import NodeContext
from dralab.objects.requests import base_units, pod_requests
from dralab.values import quantity
from dralab.values.json_types import JsonDict, JsonObject

RESIZABLE: Final = ("cpu", "memory")
PENDING: Final = "PodResizePending"
IN_PROGRESS: Final = "PodResizeInProgress"
CONDITIONS: Final = frozenset({PENDING, IN_PROGRESS})
# How long until it is tried again; a kubelet waits for three minutes.
AGAIN: Final = 10 * SECOND


class Resize(NamedTuple):
    """The state of a resize: the pod's generation that asked for it, and what delays it."""

    generation: int
    reason: str = ""
    message: str = ""


class PodResizes:
    """Applies the desired resources to the containers of one pod."""

    def __init__(self, node: NodeContext) -> None:
        self.node = node
        self.pending: Resize | None = None
        self.progress: Resize | None = None

    def look(
        self, pod: JsonDict, containers: Sequence[RunningContainer], restart: Callable[..., None]
    ) -> list[int]:
        """Apply what is possible now; return in how many nanoseconds to retry.

        `restart` stops a container that is started again with its new resources.
        """
        spec = pod["spec"]
        wanted = {
            each["name"]: each.get("resources") or {}
            for each in (*(spec.get("initContainers") or ()), *spec["containers"])
        }
        changed = [each for each in containers if differ(each.resources, wanted[each.name])]
        if not changed:
            self.pending = None
        elif why := shortage(self.node.amounts(), spec, self.node.beside(pod)):
            self._defer(pod, why)
        else:
            self._allocate(pod, changed, wanted)
        self._actuate(pod, containers, restart)
        return [AGAIN] if self.pending or self.progress else []

    def conditions(self) -> list[dict[str, Any]]:
        """Return the pod's conditions about a resize."""
        found = []
        for type_, resize in ((PENDING, self.pending), (IN_PROGRESS, self.progress)):
            if resize is not None:
                told: dict[str, Any] = {"type": type_, "status": "True"}
                told["observedGeneration"] = resize.generation
                if resize.reason:
                    told |= {"reason": resize.reason, "message": resize.message}
                found.append(told)
        return found

    def _defer(self, pod: JsonDict, why: str) -> None:
        generation, before = pod["metadata"].get("generation", 1), self.pending
        self.pending = Resize(generation, "Deferred", why)
        if before is None or before.generation != generation:
            text = summary("Pod resize Deferred", pod["spec"], generation, why)
            self._tell(pod, "ResizeDeferred", text, "Warning")

    def _allocate(
        self, pod: JsonDict, changed: Iterable[RunningContainer], wanted: JsonDict
    ) -> None:
        generation = pod["metadata"].get("generation", 1)
        for each in changed:
            each.spec = {**each.spec, "resources": wanted[each.name]}
        self.pending, self.progress = None, Resize(generation)
        text = summary("Pod resize started", pod["spec"], generation)
        self._tell(pod, "ResizeStarted", text)

    def _actuate(
        self, pod: JsonDict, containers: Iterable[RunningContainer], restart: Callable[..., None]
    ) -> None:
        """Apply the allocated resources to the running containers."""
        if self.progress is None:
            return
        done = True
        for each in containers:
            held, container = each.held, each.container
            if container is None or held is None or not differ(held, each.resources):
                continue
            if restarts_for(each.spec, held):
                done = False
                if not each.stopping:
                    restart(each, f"Container {each.name} resize requires restart")
                continue
            if problem := container.resize(each.resources):
                done = False
                self._fail(pod, problem)
            else:
                each.held = each.resources
        if done:
            generation, self.progress = self.progress.generation, None
            allocated = with_allocated(pod["spec"], containers)
            text = summary("Pod resize completed", allocated, generation)
            self._tell(pod, "ResizeCompleted", text)

    def _fail(self, pod: JsonDict, problem: str) -> None:
        before = self.progress or Resize(pod["metadata"].get("generation", 1))
        self.progress = before._replace(reason="Error", message=problem)
        if before.message != problem:
            text = summary("Pod resize error", pod["spec"], before.generation, problem)
            self._tell(pod, "ResizeError", text, "Warning")

    def _tell(
        self, pod: JsonDict, reason: str, text: str, type: Literal["Normal", "Warning"] = "Normal"
    ) -> None:
        self.node.recorder.event(pod, "Pod", reason, text, type=type)


def differ(first: JsonObject, second: JsonObject) -> bool:
    """Return whether resizable resources differ."""
    return any(
        _amount(first, part, name) != _amount(second, part, name)
        for part in ("requests", "limits")
        for name in RESIZABLE
    )


def restarts_for(container: JsonObject, held: JsonObject) -> bool:
    """Return whether a container has to be restarted for its allocated resources."""
    wanted = container.get("resources") or {}
    policies = {
        each["resourceName"]: each["restartPolicy"] for each in container.get("resizePolicy") or ()
    }
    return any(
        policies.get(name) == "RestartContainer"
        and _amount(wanted, part, name) != _amount(held, part, name)
        for part in ("requests", "limits")
        for name in RESIZABLE
    )


def shortage(amounts: JsonObject, spec: JsonObject, others: Iterable[JsonObject]) -> str:
    """Return which resource a node lacks for a pod beside others; "" if it has enough."""
    wanted, used = pod_requests(spec), [pod_requests(other) for other in others]
    for name in RESIZABLE:
        capacity = base_units(name, amounts.get(name) or 0)
        taken = sum(each.get(name, 0) for each in used)
        if wanted.get(name, 0) + taken > capacity:
            return (
                f"Node didn't have enough resource: {name}, requested: {wanted[name]}, "
                f"used: {taken}, capacity: {capacity}"
            )
    return ""


def with_allocated(spec: JsonObject, containers: Iterable[RunningContainer]) -> JsonDict:
    """Return a pod's specification with what its containers are allocated."""
    resources = {each.name: each.resources for each in containers}
    return {
        **spec,
        **{
            part: [
                {**each, "resources": resources.get(each["name"], each.get("resources") or {})}
                for each in spec[part]
            ]
            for part in ("initContainers", "containers")
            if spec.get(part)
        },
    }


def summary(begins: str, spec: JsonObject, generation: int, error: str = "") -> str:
    """Return the text of an event of a resize."""
    found: dict[str, Any] = {}
    for part in ("initContainers", "containers"):
        if spec.get(part):
            found[part] = [
                {
                    "name": each["name"],
                    "resources": {
                        kind: each["resources"][kind]
                        for kind in ("limits", "requests", "claims")
                        if kind in (each.get("resources") or {})
                    },
                }
                for each in spec[part]
            ]
    found["generation"] = generation
    if error:
        found["error"] = error
    return f"{begins}: {orjson.dumps(found).decode()}"


def _amount(resources: JsonObject, part: str, name: str) -> quantity.Number | None:
    text = (resources.get(part) or {}).get(name)
    return None if text is None else quantity.parse_any(text)
