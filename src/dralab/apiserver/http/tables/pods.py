"""The row of a pod, with its STATUS."""

from collections.abc import Mapping, Sequence
from typing import Any

from dralab.apiserver.http.tables.ages import NONE, Elapsed, age, since
from dralab.apiserver.http.tables.printers import Printer, columns_of, name_of
from dralab.objects.conditions import condition_of, is_true
from dralab.objects.metadata import is_deleting, spec_of, status_of
from dralab.objects.pods import is_finished
from dralab.values.json_types import JsonObject

Container = Mapping[str, Any]


def _cells(pod: JsonObject) -> Sequence[Any]:
    spec, status = spec_of(pod), status_of(pod)
    found = _Pod(pod)
    restarts: Elapsed | str = str(found.restarts)
    if found.restarts and found.last_restart:
        restarts = since(found.last_restart, f"{found.restarts} (", " ago)")
    gates = spec.get("readinessGates") or ()
    held = sum(is_true(pod, gate.get("conditionType", "")) for gate in gates)
    addresses = status.get("podIPs") or [{}]
    return [
        name_of(pod),
        f"{found.ready}/{found.total}",
        found.word(),
        restarts,
        age(pod),
        addresses[0].get("ip") or NONE,
        spec.get("nodeName") or NONE,
        status.get("nominatedNodeName") or NONE,
        f"{held}/{len(gates)}" if gates else NONE,
    ]


PODS = Printer(
    columns_of("Name, Ready, Status, Restarts, Age, IP*, Node*, Nominated Node*, Readiness Gates*"),
    _cells,
)


class _Pod:
    """Counts containers and restarts, and determines STATUS. Source: `printPod` upstream."""

    def __init__(self, pod: JsonObject) -> None:
        self.pod = pod
        spec, status = spec_of(pod), status_of(pod)
        self.reason: str = status.get("reason") or status.get("phase") or ""
        scheduled = condition_of(pod, "PodScheduled")
        if scheduled is not None and scheduled.get("reason") == "SchedulingGated":
            self.reason = "SchedulingGated"
        inits = {item.get("name"): item for item in spec.get("initContainers") or ()}
        sidecars = {name for name, item in inits.items() if item.get("restartPolicy") == "Always"}
        self.total = len(spec.get("containers") or ()) + len(sidecars)
        self.ready = 0
        self.restarts = 0
        self.last_restart = ""
        initializing = self._initialize(
            status.get("initContainerStatuses") or (), len(inits), sidecars
        )
        if not initializing or is_true(pod, "Initialized"):
            self.restarts, self.last_restart = self._sidecar_restarts(
                status.get("initContainerStatuses") or (), sidecars
            )
            self._run(status.get("containerStatuses") or ())

    def word(self) -> str:
        """Return what STATUS shows."""
        if is_deleting(self.pod):
            status = status_of(self.pod)
            if status.get("reason") == "NodeLost":
                return "Unknown"
            if not is_finished(self.pod):
                return "Terminating"
        return self.reason

    def _initialize(self, statuses: Sequence[Container], count: int, sidecars: set[Any]) -> bool:
        for number, container in enumerate(statuses):
            self._count_restarts(container)
            state = container.get("state") or {}
            ended, waiting = state.get("terminated"), state.get("waiting") or {}
            if ended is not None and not ended.get("exitCode"):
                continue
            if container.get("name") in sidecars and container.get("started"):
                self.ready += bool(container.get("ready"))
                continue
            if ended is not None:
                self.reason = "Init:" + _ending(ended)
            elif waiting.get("reason") not in {None, "", "PodInitializing"}:
                self.reason = f"Init:{waiting['reason']}"
            else:
                self.reason = f"Init:{number}/{count}"
            return True
        return False

    def _sidecar_restarts(
        self, statuses: Sequence[Container], sidecars: set[Any]
    ) -> tuple[int, str]:
        ours = [item for item in statuses if item.get("name") in sidecars]
        restarts = sum(item.get("restartCount") or 0 for item in ours)
        return restarts, max(map(_finished, ours), default="")

    def _run(self, statuses: Sequence[Container]) -> None:
        running = False
        for container in reversed(statuses):
            self._count_restarts(container)
            state = container.get("state") or {}
            ended, waiting = state.get("terminated"), state.get("waiting") or {}
            if waiting.get("reason"):
                self.reason = waiting["reason"]
            elif ended is not None:
                self.reason = _ending(ended)
            elif container.get("ready") and state.get("running") is not None:
                running = True
                self.ready += 1
        if self.reason == "Completed" and running:
            self.reason = "Running" if is_true(self.pod, "Ready") else "NotReady"

    def _count_restarts(self, container: Container) -> None:
        self.restarts += container.get("restartCount") or 0
        self.last_restart = max(self.last_restart, _finished(container))


def _finished(container: Container) -> str:
    ended = (container.get("lastState") or {}).get("terminated") or {}
    return ended.get("finishedAt") or ""


def _ending(ended: Mapping[str, Any]) -> str:
    if ended.get("reason"):
        return str(ended["reason"])
    if ended.get("signal"):
        return f"Signal:{ended['signal']}"
    return f"ExitCode:{ended.get('exitCode', 0)}"
