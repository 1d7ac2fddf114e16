"""The life cycle of one pod on its node: claims, init containers, containers, termination.

`PodLife.sync` checks the state and does the next step; it is called again after every event. Source
of phases, conditions and their reasons: kubelet 1.36.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Final

from dralab.contracts.cdi import CdiError
from dralab.contracts.plugin import readable
from dralab.kernel.clock import SECOND, from_rfc3339, rfc3339
from dralab.node.admission import PodRejection
from dralab.node.container_environment import ConfigError
from dralab.node.container_runs import RunningContainer
from dralab.node.container_starts import start_of
from dralab.node.containers import (
    START_ERROR,
    ContainerExit,
    ContainerStartError,
    ImageNotReady,
    ProgramNotFound,
)
from dralab.node.etc_files import etc_warnings
from dralab.node.lifecycle_hooks import run_hook
from dralab.node.network.sandbox import Sandbox, SandboxError
from dralab.node.network.sysctls import FORBIDDEN, refusal
from dralab.node.node_context import NodeContext
from dralab.node.pod_files import PodFiles
from dralab.node.pod_probes import PodProbes, records
from dralab.node.resizing import PodResizes, with_allocated
from dralab.node.statuses import PodEnd, conditions
from dralab.node.termination import end, next_to_end
from dralab.node.termination_messages import MOST_OF_POD, with_message
from dralab.objects.claims import has_device_claims, uses_claims
from dralab.objects.metadata import is_deleting, key_of, status_of, uid_of
from dralab.values.json_types import JsonDict, JsonObject

TRY_AGAIN: Final = SECOND  # kubelet: a pod that could not be set up is retried soon
LONGEST_TRY: Final = 60 * SECOND
BUSY: Final = SECOND // 10
# The node waits for drivers that answer at once before the pod's first status is written: one write
# less of the two that most pods with claims cost.
SETTLING: Final = SECOND // 10
REFUSED_FOR: Final = 10 * SECOND


class PodLife:
    """One pod, by its UID."""

    def __init__(self, node: NodeContext, pod: JsonDict) -> None:
        self.node = node
        self.pod = pod
        self.uid = uid_of(pod)
        status = status_of(pod)
        spec = pod["spec"]
        self.inits = [
            RunningContainer(item, init=True) for item in spec.get("initContainers") or ()
        ]
        self.mains = [RunningContainer(item) for item in spec.get("containers") or ()]
        self.ephemerals: list[RunningContainer] = []
        self.probing = PodProbes(node)
        self.files = PodFiles(node)
        self.resizes = PodResizes(node)
        self.begun = node.clock.now()
        self.started = status.get("startTime") or rfc3339(self.begun)
        self.ip = status.get("podIP") or (node.ip if spec.get("hostNetwork") else "")
        self.prepared = not (uses_claims(pod) or has_device_claims(pod))
        self.preparing = False
        self.released = False
        self.releasing = False
        self.tries = 0
        self.not_before = 0
        self.verdict: PodEnd | None = None
        self.stopped = False
        self.ends_by: int | None = None
        self.sandbox: Sandbox | None = None
        self._remember(status)
        rejection = node.admission.admit(pod)
        if rejection is None and node.network is not None and (why := refusal(pod)):
            rejection = PodRejection(FORBIDDEN, why)
        self.rejected = rejection is not None
        if rejection is not None:
            text = f"Pod was rejected: {rejection.message}"
            self.verdict = PodEnd("Failed", rejection.reason, text)
            self._warn(*rejection)

    @property
    def containers(self) -> list[RunningContainer]:
        """All containers: init containers first, ephemeral containers last."""
        return [*self.inits, *self.mains, *self.ephemerals]

    def at_rest(self) -> bool:
        """Whether nothing of it runs, and it holds no resources."""
        return self.released and not any(each.alive for each in self.containers)

    def container(self, name: str) -> RunningContainer | None:
        """Return a container by its name."""
        return next((each for each in self.containers if each.name == name), None)

    # --- what is next -----------------------------------------------------------------------

    def sync(self, pod: JsonDict) -> int | None:
        """Do the next step; return in how many nanoseconds to look again."""
        self.pod = pod
        if is_deleting(pod):
            again, grace = self.end(self._grace()), self._grace()
            later = self.probing.look(pod, self.containers, grace)
            return min(later if again is None else [again, *later], default=None)
        if self.verdict is not None:
            self._stop_sidecars()
            return self._release()
        deadline = self._deadline()
        if deadline is not None and deadline <= 0:
            self.verdict = PodEnd(
                "Failed",
                "DeadlineExceeded",
                "Pod was active on the node longer than the specified deadline",
            )
            return self.end(self._grace())
        if not self.prepared:
            again = self._prepare()
            return again if again is not None else deadline
        delays = [deadline] if deadline is not None else []
        delays += self.resizes.look(pod, [*self.inits, *self.mains], self._restart)
        self._follow_images()
        delays += self._ephemeral()
        delays += self._init()
        if self._initialized():
            delays += self._main()
        delays += self.probing.look(pod, self.containers, self._grace())
        delays += self.files.refresh(pod, self.containers)
        if self._judge():
            return self._release()
        return min(delays, default=None)

    def settling(self) -> int:
        """Return how many nanoseconds its status may wait for the first probe results."""
        if not self.preparing or self.tries or is_deleting(self.pod):
            return 0
        return max(0, self.begun + SETTLING - self.node.clock.now())

    def end(self, grace: float) -> int | None:
        """Stop all containers, then release everything."""
        self.stopped = True
        until = self.node.clock.now() + int(grace * SECOND)
        self.ends_by = until if self.ends_by is None else min(until, self.ends_by)
        left = max(0.0, (self.ends_by - self.node.clock.now()) / SECOND)
        for each in next_to_end(self.containers):
            self._stop(each, left)
        if any(each.alive for each in self.containers):
            return None
        self._judge()
        return self._release()

    def _stop(self, each: RunningContainer, grace: float) -> None:
        if end(self.node, self.pod, each, grace):
            self.node.recorder.event(self.pod, "Pod", "Killing", f"Stopping container {each.name}")

    def _restart(self, each: RunningContainer, why: str) -> None:
        """Restart a container, regardless of the restart policy."""
        each.renewed = True
        if end(self.node, self.pod, each, self._grace()):
            self.node.recorder.event(self.pod, "Pod", "Killing", why)

    def _follow_images(self) -> None:
        """Restart what runs with an image that the pod no longer names."""
        spec = self.pod["spec"]
        wanted: dict[str, str] = {
            each["name"]: each.get("image", "")
            for each in (*(spec.get("initContainers") or ()), *spec["containers"])
        }
        for each in (*self.inits, *self.mains):
            if each.take_image(wanted.get(each.name, "")):
                self._restart(each, f"Container {each.name} definition changed, will be restarted")

    def allocated(self) -> JsonDict:
        """Return the pod's spec with its allocated resources; no containers once it has ended."""
        if self.verdict is not None:
            return {"containers": []}
        return with_allocated(self.pod["spec"], [*self.inits, *self.mains])

    # --- claims -----------------------------------------------------------------------------

    def _prepare(self) -> int | None:
        if self.preparing:
            return None
        if (left := self.not_before - self.node.clock.now()) > 0:
            return left
        self.preparing = True
        if not self.node.claims.prepare(self.pod, self._prepared):
            self.preparing = False
            return BUSY
        return None

    def _prepared(self, problem: str) -> None:
        self.preparing = False
        self.prepared = not problem
        if problem:
            self._failed(
                "FailedPrepareDynamicResources",
                f"Failed to prepare dynamic resources: prepare dynamic resources: {problem}",
            )
        else:
            self.tries = 0
            self.node.wake(self.pod)

    def _failed(self, reason: str, message: str) -> None:
        self.node.recorder.event(self.pod, "Pod", reason, message, type="Warning")
        delay = min(TRY_AGAIN << min(self.tries, 10), LONGEST_TRY)
        self.tries += 1
        # Not earlier, even if the pod changes meanwhile.
        self.not_before = self.node.clock.now() + delay
        self.node.wake_after(self.pod, delay)

    def _release(self) -> int | None:
        if any(each.alive for each in self.containers) or self.releasing or self.released:
            return None
        if self.preparing:
            return BUSY
        if (left := self.not_before - self.node.clock.now()) > 0:
            return left
        if self.node.hooks is not None and not self.node.hooks.pod_stopped(self.pod):
            return BUSY
        self.releasing = True
        if not self.node.claims.unprepare(self.uid, self._unprepared):
            self.releasing = False
            return BUSY
        return None

    def _unprepared(self, problem: str) -> None:
        self.releasing = False
        if problem:
            self._failed(
                "FailedUnprepareDynamicResources",
                f"Failed to unprepare dynamic resources: unprepare dynamic resources: {problem}",
            )
            return
        self.released = True
        self.node.forget_sandbox(self.uid)
        self.node.wake(self.pod)

    # --- containers ---------------------------------------------------------------------------

    def _ephemeral(self) -> list[int]:
        """Start new ephemeral containers; they are never restarted."""
        known = {each.name for each in self.ephemerals}
        for item in self.pod["spec"].get("ephemeralContainers") or ():
            if item["name"] not in known:
                self.ephemerals.append(RunningContainer(item, ephemeral=True))
                self._remember(status_of(self.pod), self.ephemerals[-1:])
        waiting = [each for each in self.ephemerals if not each.number]
        return [again for each in waiting if (again := self._start(each)) is not None]

    def _init(self) -> list[int]:
        """Start the next init container, and restart sidecars; return the delays."""
        delays: list[int] = []
        begun = self._begun()
        for each in self.inits:
            if each.alive or (begun and not each.sidecar):
                again = None
            elif each.exit is None:
                again = self._start(each)
            elif each.sidecar or (each.exit.code and self._restarts(each)):
                again = self._again(each)
            else:
                again = None
            if again is not None:
                delays.append(again)
            if not begun and not _initialized(each):
                break
        return delays

    def _begun(self) -> bool:
        """Whether a main container has run: then sidecars no longer block others."""
        return any(each.number for each in self.mains)

    def _initialized(self) -> bool:
        return self._begun() or all(map(_initialized, self.inits))

    def _restarts(self, each: RunningContainer) -> bool:
        """Whether a container that has ended is started again."""
        policy = self.pod["spec"].get("restartPolicy", "Always")
        failed = each.exit is not None and each.exit.code != 0
        return each.renewed or policy == "Always" or (policy == "OnFailure" and failed)

    def _main(self) -> list[int]:
        delays = []
        for each in self.mains:
            again = None
            if not each.alive and each.exit is None:
                again = self._start(each)
            elif each.exit is not None and self._restarts(each):
                again = self._again(each)
            if again is not None:
                delays.append(again)
            if each.starting:
                break  # kubelet: containers start one after the other, with their hooks
        return delays

    def _again(self, each: RunningContainer) -> int | None:
        left = each.due(self.node.clock.now())
        if left > 0:
            if each.waiting != "CrashLoopBackOff":
                self._warn(
                    "BackOff",
                    f"Back-off restarting failed container {each.name} in pod "
                    f"{key_of(self.pod).name}_{key_of(self.pod).namespace}({self.uid})",
                )
            each.waiting = "CrashLoopBackOff"
            each.message = (
                f"back-off {each.back_off // 2 // SECOND or 10}s restarting failed "
                f"container={each.name} pod={key_of(self.pod).name}"
            )
            return left
        each.waiting, each.message = "ContainerCreating", ""
        each.again()
        return self._start(each)

    def _start(self, each: RunningContainer) -> int | None:
        node, now = self.node, self.node.clock.now()
        if each.not_before > now:
            return each.not_before - now
        if self.sandbox is None:
            try:
                self.sandbox = node.sandbox_of(self.pod, self.ip)
            except SandboxError as error:
                self._warn("FailedCreatePodSandBox", f"Failed to create pod sandbox: {error}")
                each.not_before = now + TRY_AGAIN
                return TRY_AGAIN
            self.ip = self.sandbox.ip
            for text in etc_warnings(self.pod, node.dns):
                self._warn("DNSConfigForming", text)
        pod, number = self._with_ip(), each.number + 1
        try:
            start = start_of(node, pod, each, self.files, self.sandbox)
            if node.hooks is not None:
                start = node.hooks.create(pod, each, start)
            each.container = node.runtime.start(start, lambda over: self._ended(each, number, over))
        except ImageNotReady as later:
            each.not_before = now + later.delay
            return later.delay
        except ConfigError as error:
            return self._refused(each, "CreateContainerConfigError", f"{error}")
        except ProgramNotFound as error:
            each.number, each.started = number, now
            self._ended(each, number, replace(START_ERROR, message=f"{error}"))
            return None
        except (CdiError, ContainerStartError) as error:
            return self._refused(
                each,
                "CreateContainerError",
                f"CDI device injection failed: {readable(str(error))}"
                if isinstance(error, CdiError)
                else f"{error}",
            )
        each.number, each.started = number, now
        each.held, each.renewed = each.resources, False
        each.waiting, each.message = "", ""
        each.probes = records(each.spec, now)
        node.recorder.event(self.pod, "Pod", "Started", f"Container started: {each.name}")
        if hook := (each.spec.get("lifecycle") or {}).get("postStart"):
            self._post_start(each, hook)
        if node.hooks is not None:
            node.hooks.started(self.pod, each)
        return None

    def _post_start(self, each: RunningContainer, hook: JsonObject) -> None:
        """Run the postStart hook; until it is done the container does not count as running."""
        container = each.container
        each.starting = True

        def answered(*, good: bool) -> None:
            if each.container is not container:
                return
            each.starting = False
            if not good:
                self._warn("FailedPostStartHook", "PostStartHook failed")
                end(self.node, self.pod, each, self._grace())
            self.node.wake(self.pod)

        run_hook(self.node, each, hook, None, answered)

    def _warn(self, reason: str, message: str) -> None:
        self.node.recorder.event(self.pod, "Pod", reason, message, type="Warning")

    def _refused(self, each: RunningContainer, reason: str, message: str) -> int:
        if each.message != message:
            self.node.recorder.event(self.pod, "Pod", "Failed", f"Error: {message}", type="Warning")
        each.waiting, each.message = reason, message
        each.not_before = self.node.clock.now() + REFUSED_FOR
        return REFUSED_FOR

    def _ended(self, each: RunningContainer, number: int, exit: ContainerExit) -> None:
        if each.number == number:
            if exit.reason == START_ERROR.reason:
                self._warn("Failed", f"Error: {exit.message}")
            each.ended(with_message(exit, each), self.node.clock.now())
            if self.node.hooks is not None:
                self.node.hooks.ended(self.pod, each)
            self.node.wake(self.pod)

    # --- the whole ------------------------------------------------------------------------------

    def _judge(self) -> bool:
        """Decide whether and how the pod has finished; return whether it has."""
        if self.verdict is not None:
            return True
        for each in self.inits:
            failed = each.exit is not None and each.exit.code != 0 and not each.sidecar
            if each.exit is not None and failed and not self._restarts(each):
                self.verdict = PodEnd("Failed")
        if any(each.alive for each in self.mains) or self.verdict is not None:
            self._stop_sidecars()
            return self.verdict is not None
        over = all(each.exit is not None for each in self.mains)
        restarting = any(each.exit is not None and self._restarts(each) for each in self.mains)
        if not self.stopped and (not over or restarting):
            return False
        failed = not over or any(each.exit is not None and each.exit.code for each in self.mains)
        self.verdict = PodEnd("Failed" if failed else "Succeeded")
        self._stop_sidecars()
        return True

    def _stop_sidecars(self) -> None:
        if self.verdict is not None:
            for each in next_to_end([*self.inits, *self.ephemerals]):
                self._stop(each, self._grace())

    def status(self) -> dict[str, Any]:
        """Return the fields of the pod's status that are the kubelet's."""
        if self.rejected and self.verdict is not None:
            return {
                "phase": self.verdict.phase,
                "reason": self.verdict.reason,
                "message": self.verdict.message,
                "startTime": self.started,
                "observedGeneration": self.pod["metadata"].get("generation", 1),
                "conditions": [],
            }
        runtime = self.node.runtime.name
        found: dict[str, Any] = {
            "phase": self._phase(),
            "hostIP": self.node.ip,
            "hostIPs": [{"ip": self.node.ip}],
            "startTime": self.started,
            "observedGeneration": self.pod["metadata"].get("generation", 1),
        }
        if self.ip:
            found |= {"podIP": self.ip, "podIPs": [{"ip": self.ip}]}
        if self.verdict is not None and self.verdict.reason:
            found |= {"reason": self.verdict.reason, "message": self.verdict.message}
        most = MOST_OF_POD // max(1, len(self.containers))
        for key, runs in self._by_status().items():
            entries = []
            for each in runs:
                entry = each.status(runtime, self.uid, most)
                # Of containers alone, as the kubelet does: not of init containers.
                if (
                    self.prepared
                    and not (each.init or each.ephemeral)
                    and (health := self.node.claims.of_containers.health_of(self.pod, each.spec))
                ):
                    entry["allocatedResourcesStatus"] = health
                if self.inits and each.new and not each.ephemeral:
                    entry["state"] = {"waiting": {"reason": "PodInitializing"}}
                entries.append(entry)
            if entries:
                found[key] = entries
        found["conditions"] = conditions(
            self.pod,
            self.inits,
            self.mains,
            over=self.verdict,
            initialized=self._initialized(),
            started=self.prepared and bool(self.ip),
        )
        # A kubelet does so since 1.34 (PodObservedGenerationTracking).
        generation = found["observedGeneration"]
        found["conditions"] = [
            {**each, "observedGeneration": generation} for each in found["conditions"]
        ]
        if self.verdict is None:
            found["conditions"] += self.resizes.conditions()
        return found

    def _phase(self) -> str:
        # The end is told when the claims are released, not before (kubelet).
        if self.verdict is not None and self.released:
            return self.verdict.phase
        began = all(each.restarts or (each.number and not each.starting) for each in self.mains)
        return "Running" if began else "Pending"

    def _grace(self) -> float:
        given = self.pod["metadata"].get("deletionGracePeriodSeconds")
        if given is None:
            given = self.pod["spec"].get("terminationGracePeriodSeconds", 30)
        return float(given)

    def _deadline(self) -> int | None:
        seconds = self.pod["spec"].get("activeDeadlineSeconds")
        if seconds is None:
            return None
        left: int = from_rfc3339(self.started) + seconds * SECOND - self.node.clock.now()
        return left

    def _with_ip(self) -> JsonDict:
        status = {
            **status_of(self.pod),
            "podIP": self.ip,
            "hostIP": self.node.ip,
        }
        return {**self.pod, "status": status}

    def _by_status(self) -> dict[str, list[RunningContainer]]:
        return {
            "initContainerStatuses": self.inits,
            "containerStatuses": self.mains,
            "ephemeralContainerStatuses": self.ephemerals,
        }

    def _remember(self, status: JsonObject, found: Sequence[RunningContainer] = ()) -> None:
        """Restore the state that an earlier kubelet wrote: running containers are started again."""
        for key, runs in self._by_status().items():
            by_name = {entry["name"]: entry for entry in status.get(key) or ()}
            for each in runs:
                if not found or each in found:
                    each.remember(by_name.get(each.name) or {})


def _initialized(each: RunningContainer) -> bool:
    """Return whether an init container lets the next one start."""
    return each.has_started if each.sidecar else each.exit is not None and each.exit.code == 0
