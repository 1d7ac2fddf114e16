"""The life cycle of one pod on its node: claims, init containers, containers, termination.

`PodLife.sync` checks the state and does the next step; it is called again after every event. Source
of phases, conditions and their reasons: kubelet 1.36.
"""

from functools import partial
from typing import Any, Final

from dralab.contracts.cdi import CdiError
from dralab.kernel.clock import SECOND, from_rfc3339, rfc3339
from dralab.node.container_environment import ConfigError, args_of, argv_of, config_of
from dralab.node.container_runs import ProbeRecord, RunningContainer
from dralab.node.containers import ContainerExit, ContainerStart, ContainerStartError, ImageNotReady
from dralab.node.node_context import NodeContext
from dralab.node.probing import probe, with_port
from dralab.node.statuses import PodEnd, conditions
from dralab.node.termination import end, next_to_end
from dralab.node.volume_files import files_of
from dralab.objects.claims import has_device_claims, uses_claims
from dralab.objects.metadata import controller_of, is_deleting, key_of, status_of, uid_of
from dralab.values.json_types import JsonDict, JsonObject

TRY_AGAIN: Final = SECOND  # kubelet: a pod that could not be set up is retried soon
LONGEST_TRY: Final = 60 * SECOND
BUSY: Final = SECOND // 10
# The node waits for drivers that answer at once before the pod's first status is written: one write
# less of the two that most pods with claims cost.
SETTLING: Final = SECOND // 10
REFUSED_FOR: Final = 10 * SECOND
PROBES: Final = ("startupProbe", "readinessProbe", "livenessProbe")


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
        self._remember(status)

    @property
    def containers(self) -> list[RunningContainer]:
        """All containers, init containers first."""
        return [*self.inits, *self.mains]

    def at_rest(self) -> bool:
        """Whether nothing of it runs or is held any more."""
        return self.released and not any(each.alive for each in self.containers)

    def container(self, name: str) -> RunningContainer | None:
        """Return a container by its name."""
        return next((each for each in self.containers if each.name == name), None)

    # --- what is next -----------------------------------------------------------------------

    def sync(self, pod: JsonDict) -> int | None:
        """Do the next step; return in how many nanoseconds to look again."""
        self.pod = pod
        if is_deleting(pod):
            return self.end(self._grace())
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
        delays += self._init()
        if self._initialized():
            delays += self._main()
        delays += self._probe()
        if self._judge():
            return self._release()
        return min(delays, default=None)

    def settling(self) -> int:
        """Return for how many nanoseconds its status may still wait: its first answers come."""
        if not self.preparing or self.tries or is_deleting(self.pod):
            return 0
        return max(0, self.begun + SETTLING - self.node.clock.now())

    def end(self, grace: float) -> int | None:
        """Stop all containers, then give everything back."""
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
        self.node.wake(self.pod)

    # --- containers ---------------------------------------------------------------------------

    def _init(self) -> list[int]:
        """Start the init container that is next, and sidecars that ended; return the delays."""
        delays: list[int] = []
        begun = self._begun()
        for each in self.inits:
            if each.alive or (begun and not each.sidecar):
                again = None
            elif each.exit is None:
                again = self._start(each)
            elif each.sidecar or (each.exit.code and self._restarts(each.exit)):
                again = self._again(each)
            else:
                again = None
            if again is not None:
                delays.append(again)
            if not begun and not _initialized(each):
                break
        return delays

    def _begun(self) -> bool:
        """Whether a container proper has run: what sidecars do does not matter to others then."""
        return any(each.number for each in self.mains)

    def _initialized(self) -> bool:
        return self._begun() or all(map(_initialized, self.inits))

    def _restarts(self, exit: ContainerExit) -> bool:
        policy = self.pod["spec"].get("restartPolicy", "Always")
        return policy == "Always" or (policy == "OnFailure" and exit.code != 0)

    def _main(self) -> list[int]:
        delays = []
        for each in self.mains:
            again = None
            if each.alive:
                continue
            if each.exit is None:
                again = self._start(each)
            elif self._restarts(each.exit):
                again = self._again(each)
            if again is not None:
                delays.append(again)
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
        if not self.ip:
            self.ip = node.new_ip()
        if each.not_before > now:
            return each.not_before - now
        metadata = self.pod["metadata"]
        owner = controller_of(self.pod)
        try:
            config = config_of(node.client, self._with_ip(), each.spec)
            node.cdi.inject(config, node.claims.of_containers.cdi_ids(self.pod, each.spec))
            start = ContainerStart(
                namespace=metadata.get("namespace", ""),
                pod=metadata["name"],
                pod_uid=self.uid,
                node=node.name,
                name=each.name,
                image=each.spec.get("image", ""),
                argv=argv_of(each.spec, config.env),
                args=args_of(each.spec, config.env),
                files=partial(files_of, node.client, self.pod),
                working_dir=each.spec.get("workingDir", ""),
                config=config,
                annotations=metadata.get("annotations") or {},
                ends=(each.init and not each.sidecar)
                or (owner is not None and owner["kind"] == "Job"),
                log=each.log,
                limits=(each.spec.get("resources") or {}).get("limits") or {},
            )
            if node.hooks is not None:
                start = node.hooks.create(self._with_ip(), each, start)
            number = each.number + 1
            each.container = node.runtime.start(start, lambda over: self._ended(each, number, over))
        except ImageNotReady as later:
            each.not_before = now + later.delay
            return later.delay
        except ConfigError as error:
            return self._refused(each, "CreateContainerConfigError", f"{error}")
        except (CdiError, ContainerStartError) as error:
            return self._refused(
                each,
                "CreateContainerError",
                f"CDI device injection failed: {error}"
                if isinstance(error, CdiError)
                else f"{error}",
            )
        each.number, each.started = number, now
        each.waiting, each.message = "", ""
        each.probes = {
            kind: ProbeRecord(
                with_port(each.spec, kind),
                now + each.spec[kind].get("initialDelaySeconds", 0) * SECOND,
            )
            for kind in PROBES
            if each.spec.get(kind)
        }
        node.recorder.event(self.pod, "Pod", "Started", f"Container started: {each.name}")
        if node.hooks is not None:
            node.hooks.started(self.pod, each)
        return None

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
            each.ended(exit, self.node.clock.now())
            if self.node.hooks is not None:
                self.node.hooks.ended(self.pod, each)
            self.node.wake(self.pod)

    def _probe(self) -> list[int]:
        """Run the probes that are due; return when the next ones are."""
        delays, now = [], self.node.clock.now()
        for each in self.containers:
            for kind, probing in list(each.probes.items()):
                if each.container is None or each.stopping:
                    break
                if kind != "startupProbe" and not each.has_started:
                    continue
                if kind == "startupProbe" and probing.good:
                    continue
                if probing.next <= now and getattr(each.container, "real", False):
                    self._ask(each, kind, probing)
                    continue
                if probing.next <= now:
                    problem = probe(each.container, probing.spec)
                    if self._answered(each, kind, probing, problem):
                        break
                delays.append(max(0, probing.next - now))
        return delays

    def _ask(self, each: RunningContainer, kind: str, probing: ProbeRecord) -> None:
        """Run a probe that takes real time, in a thread."""
        container = each.container
        if probing.asked or container is None:
            return
        probing.asked = True

        def answered(found: str | Exception | None) -> None:
            probing.asked = False
            if each.container is not container or each.stopping:
                return
            problem = str(found) if isinstance(found, Exception) else found
            self._answered(each, kind, probing, problem)
            self.node.wake(self.pod)

        self.node.offload(lambda: probe(container, probing.spec), answered)

    def _answered(
        self, each: RunningContainer, kind: str, probing: ProbeRecord, problem: str | None
    ) -> bool:
        """Take a probe's answer; return whether the container is ended for it."""
        failed = probing.take_answer(success=problem is None, now=self.node.clock.now())
        if problem is not None and probing.failures <= probing.spec.get("failureThreshold", 3):
            word = kind.removesuffix("Probe").capitalize()
            self._warn("Unhealthy", f"{word} probe failed: {problem}")
        if failed and kind != "readinessProbe":
            self._kill(each, kind)
            return True
        return False

    def _kill(self, each: RunningContainer, kind: str) -> None:
        word = "startup" if kind == "startupProbe" else "liveness"
        self.node.recorder.event(
            self.pod,
            "Pod",
            "Killing",
            f"Container {each.name} failed {word} probe, will be restarted",
        )
        end(self.node, self.pod, each, self._grace())

    # --- the whole ------------------------------------------------------------------------------

    def _judge(self) -> bool:
        """Decide whether the pod is over, and how; return whether it is."""
        if self.verdict is not None:
            return True
        for each in self.inits:
            failed = each.exit is not None and each.exit.code != 0 and not each.sidecar
            if each.exit is not None and failed and not self._restarts(each.exit):
                self.verdict = PodEnd("Failed")
        if any(each.alive for each in self.mains) or self.verdict is not None:
            self._stop_sidecars()
            return self.verdict is not None
        over = all(each.exit is not None for each in self.mains)
        restarting = any(each.exit and self._restarts(each.exit) for each in self.mains)
        if not self.stopped and (not over or restarting):
            return False
        failed = not over or any(each.exit is not None and each.exit.code for each in self.mains)
        self.verdict = PodEnd("Failed" if failed else "Succeeded")
        self._stop_sidecars()
        return True

    def _stop_sidecars(self) -> None:
        if self.verdict is not None:
            for each in next_to_end(self.inits):
                self._stop(each, self._grace())

    def status(self) -> dict[str, Any]:
        """Return the fields of the pod's status that are the kubelet's."""
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
        for key, runs in (("initContainerStatuses", self.inits), ("containerStatuses", self.mains)):
            entries = []
            for each in runs:
                entry = each.status(runtime, self.uid)
                # Of containers alone, as the kubelet does: not of init containers.
                if (
                    self.prepared
                    and not each.init
                    and (health := self.node.claims.of_containers.health_of(self.pod, each.spec))
                ):
                    entry["allocatedResourcesStatus"] = health
                if self.inits and not each.init and not each.number:
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
        return found

    def _phase(self) -> str:
        # The end is told when the claims are released, not before (kubelet).
        if self.verdict is not None and self.released:
            return self.verdict.phase
        return "Running" if all(each.number for each in self.mains) else "Pending"

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

    def _remember(self, status: JsonObject) -> None:
        """Go on from what an earlier kubelet wrote: what ended stays so, what ran runs again."""
        for runs, key in (
            (self.inits, "initContainerStatuses"), (self.mains, "containerStatuses"),
        ):  # fmt: skip
            by_name = {entry["name"]: entry for entry in status.get(key) or ()}
            for each in runs:
                each.remember(by_name.get(each.name) or {})


def _initialized(each: RunningContainer) -> bool:
    """Return whether an init container lets the next one start."""
    return each.has_started if each.sidecar else each.exit is not None and each.exit.code == 0
