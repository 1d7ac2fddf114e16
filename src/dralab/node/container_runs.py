"""One container of a pod over all its runs: started, probed, ended, restarted."""

from dataclasses import field
from typing import Any, Final

from dralab.kernel.clock import SECOND, from_rfc3339, rfc3339
from dralab.node.containers import Container, ContainerExit
from dralab.node.logs import ContainerLog
from dralab.values.json_types import JsonObject
from dralab.values.records import dataclass

FIRST_BACK_OFF: Final = 10 * SECOND  # kubelet: MaxContainerBackOff 300 s, doubled from 10 s
LONGEST_BACK_OFF: Final = 300 * SECOND
LONG_ENOUGH: Final = 600 * SECOND
CREATING: Final = "ContainerCreating"
MOST_TOLD: Final = 4096  # kubelet: MaxContainerTerminationMessageLength


@dataclass(slots=True)
class RunningContainer:
    """The state of one container of one pod."""

    spec: JsonObject
    init: bool = False
    ephemeral: bool = False
    restarts: int = 0
    back_off: int = 0
    not_before: int = 0
    number: int = 0
    container: Container | None = None
    started: int = 0
    exit: ContainerExit | None = None
    finished: int = 0
    waiting: str = CREATING
    message: str = ""
    last: dict[str, Any] | None = None
    log: ContainerLog = field(default_factory=ContainerLog)
    previous: ContainerLog | None = None
    probes: dict[str, "ProbeRecord"] = field(default_factory=dict)
    # Whether its postStart hook still runs.
    starting: bool = False
    stopping: bool = False
    # When it has to be over, once it is stopping.
    ends_by: int = 0
    # The resources with which it runs.
    held: JsonObject | None = None
    # Whether it ends to be started with another specification, whatever the restart policy.
    renewed: bool = False

    @property
    def name(self) -> str:
        """The container's name."""
        name: str = self.spec["name"]
        return name

    @property
    def resources(self) -> JsonObject:
        """Its allocated resources."""
        found: JsonObject = self.spec.get("resources") or {}
        return found

    @property
    def sidecar(self) -> bool:
        """Whether it is an init container that continues running."""
        return self.init and self.spec.get("restartPolicy") == "Always"

    @property
    def alive(self) -> bool:
        """Whether it runs at this moment."""
        return self.container is not None

    @property
    def new(self) -> bool:
        """Whether it was not started yet, or has not failed so far."""
        return not self.number and self.waiting == CREATING

    @property
    def has_started(self) -> bool:
        """Whether its startup probe, if any, has succeeded."""
        probe = self.probes.get("startupProbe")
        return self.alive and not self.starting and (probe is None or probe.good)

    @property
    def ready(self) -> bool:
        """Whether it counts as ready; an ephemeral container never does."""
        if self.ephemeral:
            return False
        if self.init and not self.sidecar:
            return self.exit is not None and self.exit.code == 0
        probe = self.probes.get("readinessProbe")
        return self.has_started and (probe is None or probe.good)

    def ended(self, exit: ContainerExit, now: int) -> None:
        """Note that the run is over."""
        self.container = None
        self.exit = exit
        self.finished = now
        self.probes = {}
        self.starting = self.stopping = False

    def due(self, now: int) -> int:
        """Return in how many nanoseconds it may be restarted."""
        if self.not_before == 0:
            if now - self.started > LONG_ENOUGH:
                self.back_off = 0
            self.not_before = self.finished + self.back_off
            self.back_off = min(max(self.back_off * 2, FIRST_BACK_OFF), LONGEST_BACK_OFF)
        return max(0, self.not_before - now)

    def again(self) -> None:
        """Prepare for another run."""
        self.last = {"terminated": self._terminated(MOST_TOLD)}
        self.restarts += 1
        self.exit = None
        self.previous, self.log = self.log, ContainerLog()
        self.not_before = 0

    def take_image(self, image: str) -> bool:
        """Change the image, without a back-off; return whether it runs with the old one."""
        if image == self.spec.get("image", ""):
            return False
        self.spec = {**self.spec, "image": image}
        self.back_off = self.not_before = 0
        return self.alive

    def remember(self, entry: JsonObject) -> None:
        """Restore its state from the status that an earlier kubelet wrote; may be empty."""
        if not entry.get("containerID"):
            return
        self.restarts = entry.get("restartCount", 0)
        self.number = self.restarts + 1
        terminated = (entry.get("state") or {}).get("terminated")
        if terminated is None:
            self.restarts += 1
            return
        self.started = from_rfc3339(terminated["startedAt"])
        self.finished = from_rfc3339(terminated["finishedAt"])
        self.exit = ContainerExit(terminated["exitCode"], terminated.get("reason", ""))
        self.log.end()

    def status(self, runtime: str, uid: str, most: int = MOST_TOLD) -> dict[str, Any]:
        """Return the entry of containerStatuses; `most` characters of a termination message."""
        identity = f"{runtime}://{uid}/{self.name}/{self.number}"
        if self.alive and not self.starting:
            state: dict[str, Any] = {"running": {"startedAt": rfc3339(self.started)}}
        elif self.exit is not None and self.waiting != "CrashLoopBackOff":
            state = {"terminated": self._terminated(most) | {"containerID": identity}}
        else:
            state = {"waiting": {"reason": self.waiting}}
            if self.message:
                state["waiting"]["message"] = self.message
        last = self.last or {}
        if self.exit is not None and self.waiting == "CrashLoopBackOff":
            last = {"terminated": self._terminated(most) | {"containerID": identity}}
        found: dict[str, Any] = {
            "name": self.name,
            "state": state,
            "lastState": last,
            "ready": self.ready,
            "restartCount": self.restarts,
            "image": self.spec.get("image", ""),
            "imageID": f"{runtime}://{self.spec.get('image', '')}" if self.number else "",
            "started": self.has_started,
        }
        if self.ephemeral:
            del found["started"]
        if self.number:
            found["containerID"] = identity
        if self.number and not self.ephemeral:
            held = self.held if self.alive else None
            found["resources"] = self.resources if held is None else held
            if requests := self.resources.get("requests"):
                found["allocatedResources"] = requests
        return found

    def _terminated(self, most: int) -> dict[str, Any]:
        over = self.exit or ContainerExit(0)
        found = {
            "exitCode": over.code,
            "reason": over.reason or ("Completed" if over.code == 0 else "Error"),
            "startedAt": rfc3339(self.started),
            "finishedAt": rfc3339(self.finished),
        }
        if over.message:
            found["message"] = over.message[:most]
        return found


@dataclass(slots=True)
class ProbeRecord:
    """One probe of a running container: its next time, and its results so far."""

    spec: JsonObject
    next: int
    good: bool = False
    successes: int = 0
    failures: int = 0
    asked: bool = False
    kind: str = ""

    def take_answer(self, *, success: bool, now: int) -> bool:
        """Record one answer; return whether the probe has now failed for good."""
        self.next = now + max(1, self.spec.get("periodSeconds", 10)) * SECOND
        if success:
            self.successes, self.failures = self.successes + 1, 0
            if self.successes >= self.spec.get("successThreshold", 1):
                self.good = True
            return False
        self.successes, self.failures = 0, self.failures + 1
        if self.failures >= self.spec.get("failureThreshold", 3):
            self.good = False
            return True
        return False
