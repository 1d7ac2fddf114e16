"""The NRI hooks of a node's pods: notifications and adjustments.

Plugins take their time; the node's events do not wait for them. A thread makes the calls in order,
and the pod is looked at again when the answer is there.
"""

import contextlib
import hashlib
import logging
import threading
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import field
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any, Final, TypeVar

from dralab.contracts import wire
from dralab.kernel.clock import SECOND
from dralab.node.container_runs import RunningContainer
from dralab.node.containers import ContainerStart, ContainerStartError, ImageNotReady
from dralab.node.cpu_lists import cpus_of
from dralab.node.nri.adjustments import adjusted, resources_of
from dralab.node.nri.plugins import NriError, NriPlugins
from dralab.objects.metadata import key_of, labels_of, status_of, uid_of
from dralab.values import quantity
from dralab.values.json_types import JsonDict
from dralab.values.records import dataclass

if TYPE_CHECKING:
    from pathlib import Path

    from dralab.node.kubelet import Kubelet

T = TypeVar("T")
logger = logging.getLogger(__name__)
# The answer wakes the pod; this is for answers that are lost.
AGAIN: Final = 5 * SECOND
# How long a plugin waits for an answer of the node's events, in seconds.
PATIENCE: Final = 10.0
CREATED, RUNNING, STOPPED = 1, 3, 4
SHARES_OF_A_CPU: Final = 1024
PERIOD: Final = 100_000


@dataclass(slots=True)
class _Asked:
    """A container that plugins are asked about; `answer` once all have answered."""

    answer: list[tuple[str, Any]] | NriError | None = None


@dataclass(slots=True)
class _Sandbox:
    """A pod that plugins know of: its containers' last messages, by name."""

    pod: Any
    containers: dict[str, Any] = field(default_factory=dict)
    # None: it runs; False: it is being stopped; True: it is.
    stopped: bool | None = None


class NodeHooks:
    """Notifies the plugins of one node; methods other than `NriHost`'s are for its events."""

    def __init__(self, kubelet: "Kubelet", path: "Path") -> None:
        self.kubelet = kubelet
        runtime = kubelet.runtime
        self.plugins = NriPlugins(path, self, (runtime.name, runtime.version))
        self._jobs: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._asked: dict[tuple[str, str, int], _Asked] = {}
        self._sandboxes: dict[str, _Sandbox] = {}

    def start(self) -> None:
        """Begin to serve the socket. SocketError."""
        self.plugins.start()
        threading.Thread(target=self._work, name="nri-calls", daemon=True).start()

    def stop(self) -> None:
        """Close the connection."""
        self._jobs.put(None)
        self.plugins.stop()

    # --- the life of a pod --------------------------------------------------------------------

    def create(
        self, pod: JsonDict, each: RunningContainer, start: ContainerStart
    ) -> ContainerStart:
        """Return a container as the plugins want it. ImageNotReady: they are still being asked.

        ContainerStartError: one of them refused. CdiError: a device that one wanted is missing.
        """
        if not self.plugins.names:
            self._know(pod, each, start)
            return start
        key = uid_of(pod), each.name, each.number + 1
        asked = self._asked.get(key)
        if asked is None:
            asked = self._asked[key] = _Asked()
            self._ask(pod, each, start, asked)
        if asked.answer is None:
            raise ImageNotReady(AGAIN)
        del self._asked[key]
        if isinstance(asked.answer, NriError):
            raise ContainerStartError(str(asked.answer))
        try:
            start, told = adjusted(start, asked.answer, self.kubelet.cdi.inject)
        except NriError as error:
            raise ContainerStartError(str(error)) from error
        for text in told:
            self._event(pod, each.name, text)
        return start

    def started(self, pod: JsonDict, each: RunningContainer) -> None:
        """Note that a container runs."""
        if (about := self._about(pod, each.name)) is None:
            return
        about.container.state = RUNNING
        about.container.started_at = self.kubelet.clock.now()
        self._sandboxes[uid_of(pod)].containers[each.name] = about.container
        for method in ("PostCreateContainer", "StartContainer", "PostStartContainer"):
            self._tell(method, about)

    def ended(self, pod: JsonDict, each: RunningContainer) -> None:
        """Note that a container has ended."""
        if (about := self._about(pod, each.name)) is None:
            return
        about.container.state = STOPPED
        about.container.finished_at = self.kubelet.clock.now()
        about.container.exit_code = each.exit.code if each.exit is not None else 0
        self._sandboxes[uid_of(pod)].containers.pop(each.name, None)
        if self.plugins.names:
            self._submit(lambda: self.plugins.stopped(about))
        self._tell("RemoveContainer", about)

    def pod_stopped(self, pod: JsonDict) -> bool:
        """Notify plugins that all containers of a pod have ended; return whether that worked."""
        sandbox = self._sandboxes.get(uid_of(pod))
        if sandbox is None or sandbox.stopped or not self.plugins.names:
            return True
        if sandbox.stopped is None:
            sandbox.stopped = False
            about = wire.nri().About(pod=sandbox.pod)

            def stopped() -> None:
                sandbox.stopped = True
                self.kubelet.wake(pod)

            def work() -> None:
                try:
                    self.plugins.tell("StopPodSandbox", about)
                finally:
                    self._soon(stopped)

            self._submit(work)
        return False

    def removed(self, pod_uid: str) -> None:
        """Note that a pod is gone."""
        sandbox = self._sandboxes.pop(pod_uid, None)
        for key in [key for key in self._asked if key[0] == pod_uid]:
            del self._asked[key]
        if sandbox is not None:
            self._tell("RemovePodSandbox", wire.nri().About(pod=sandbox.pod))

    # --- what plugins ask for (NriHost): from any thread ---------------------------------------

    def state(self) -> tuple[list[Any], list[Any]]:
        """Return the pods and the containers that run, as messages."""

        def found() -> tuple[list[Any], list[Any]]:
            known = list(self._sandboxes.values())
            return [each.pod for each in known], [
                container for each in known for container in each.containers.values()
            ]

        return self._as_event(found, ([], []))

    def update(self, plugin: str, updates: Any) -> list[Any]:
        """Change the resources of containers; return the updates that could not be made."""
        wanted = list(updates)
        if not wanted:
            return []
        return self._as_event(
            lambda: [
                each
                for each in wanted
                if not self._updated(plugin, each) and not each.ignore_failure
            ],
            wanted,
        )

    def evict(self, plugin: str, evictions: Any) -> None:
        """Stop containers."""
        wanted = list(evictions)

        def stop() -> None:
            for each in wanted:
                self._evicted(plugin, each)

        if wanted:
            self._soon(stop)

    def _updated(self, plugin: str, update: Any) -> bool:
        found = self._find(update.container_id)
        if found is None:
            return False
        pod, each = found
        words = resources_of(update.linux.resources)
        if (cpus := update.linux.resources.cpu.cpus) and each.container is not None:
            take = getattr(each.container, "set_cpus", None)
            try:
                wanted = cpus_of(cpus)
            except ValueError:
                return False
            if take is not None and (problem := take(wanted)):
                words.append(f"({problem})")
        if words:
            self._event(pod, each.name, f"NRI plugin {plugin} changed {'; '.join(words)}")
        return True

    def _evicted(self, plugin: str, eviction: Any) -> None:
        found = self._find(eviction.container_id)
        if found is not None and (container := found[1].container) is not None:
            pod, each = found
            text = f"NRI plugin {plugin} evicts container {each.name}: {eviction.reason[:512]}"
            self.kubelet.recorder.event(pod, "Pod", "NRIEvicted", text, type="Warning")
            container.stop(0)

    def _find(self, container_id: str) -> tuple[JsonDict, RunningContainer] | None:
        for uid, sandbox in self._sandboxes.items():
            for name, message in sandbox.containers.items():
                life = self.kubelet.pods.get(uid)
                each = life.container(name) if life is not None else None
                if message.id == container_id and life is not None and each is not None:
                    return life.pod, each
        return None

    # --- calls --------------------------------------------------------------------------------

    def _ask(
        self, pod: JsonDict, each: RunningContainer, start: ContainerStart, asked: _Asked
    ) -> None:
        is_new = uid_of(pod) not in self._sandboxes
        self._know(pod, each, start)
        about = self._about(pod, each.name)

        def work() -> None:
            answer: list[tuple[str, Any]] | NriError
            try:
                if is_new:
                    self.plugins.tell("RunPodSandbox", wire.nri().About(pod=about.pod))
                answer = self.plugins.create(about)
            except NriError as error:
                answer = error

            def done() -> None:
                asked.answer = answer
                if is_new and isinstance(answer, NriError):
                    self._sandboxes.pop(uid_of(pod), None)  # its start is tried again
                each.not_before = 0
                self.kubelet.wake(pod)

            self._soon(done)

        self._submit(work)

    def _know(self, pod: JsonDict, each: RunningContainer, start: ContainerStart) -> None:
        sandbox = self._sandboxes.setdefault(uid_of(pod), _Sandbox(pod_message(pod)))
        sandbox.containers[each.name] = container_message(
            start, each, sandbox.pod.id, self.kubelet.clock.now()
        )

    def _about(self, pod: JsonDict, name: str) -> Any:
        sandbox = self._sandboxes.get(uid_of(pod))
        container = sandbox.containers.get(name) if sandbox is not None else None
        if sandbox is None or container is None:
            return None
        return wire.nri().About(pod=sandbox.pod, container=container)

    def _tell(self, method: str, about: Any) -> None:
        if self.plugins.names:
            self._submit(lambda: self.plugins.tell(method, about))

    def _submit(self, work: Callable[[], None]) -> None:
        self._jobs.put(work)

    def _work(self) -> None:
        while (work := self._jobs.get()) is not None:
            try:
                work()
            except NriError as error:
                logger.warning("%s", error)  # about what has happened already: nothing to undo
            except Exception:
                logger.exception("an NRI call failed")

    def _soon(self, action: Callable[[], None]) -> None:
        self.kubelet.kubelets.manager.engine.soon(action)

    def _as_event(self, work: Callable[[], T], otherwise: T) -> T:
        """Call a function among the node's events; return its result.

        A node that is about to end has no events any more: then `otherwise`.
        """
        result: Future[T] = Future()

        def run() -> None:
            try:
                result.set_result(work())
            except Exception as error:  # noqa: BLE001 - handed to the caller that waits
                result.set_exception(error)

        self._soon(run)
        try:
            return result.result(PATIENCE)
        except TimeoutError:
            return otherwise

    def _event(self, pod: JsonDict, container: str, text: str) -> None:
        message = f"Container {container}: {text}"
        self.kubelet.recorder.event(pod, "Pod", "NRIAdjusted", message)


# --- messages -------------------------------------------------------------------------------------


def pod_message(pod: JsonDict) -> Any:
    """Return a pod as plugins see it."""
    uid, key = uid_of(pod), key_of(pod)
    found = wire.nri().PodSandbox(
        id=_digest(uid),
        name=key.name,
        uid=uid,
        namespace=key.namespace,
        labels=labels_of(pod),
        annotations=pod["metadata"].get("annotations") or {},
        ips=[each["ip"] for each in status_of(pod).get("podIPs") or ()],
    )
    found.linux.cgroup_parent = f"/kubepods/pod{uid}"
    return found


def container_message(start: ContainerStart, each: RunningContainer, sandbox: str, now: int) -> Any:
    """Return a new container as plugins see it."""
    found = wire.nri().Container(
        id=_digest(f"{start.pod_uid}/{each.name}/{each.number + 1}"),
        pod_sandbox_id=sandbox,
        name=each.name,
        state=CREATED,
        labels={
            "io.kubernetes.container.name": each.name,
            "io.kubernetes.pod.name": start.pod,
            "io.kubernetes.pod.namespace": start.namespace,
            "io.kubernetes.pod.uid": start.pod_uid,
        },
        annotations=start.annotations,
        args=start.argv,
        env=[f"{name}={value}" for name, value in start.config.env.items()],
        created_at=now,
    )
    found.image.name = start.image
    for mount in start.config.mounts:
        found.mounts.add(
            destination=mount["containerPath"],
            type=mount.get("type") or "bind",
            source=str(mount["hostPath"]),
            options=mount.get("options") or [],
        )
    resources = each.spec.get("resources") or {}
    cpu = found.linux.resources.cpu
    for name, kind in (("requests", "shares"), ("limits", "quota")):
        # A quantity that cannot be read was refused by the server.
        with contextlib.suppress(KeyError, ValueError):
            amount = float(quantity.parse(str(resources[name]["cpu"])))
            if kind == "shares":
                cpu.shares.value = max(2, int(amount * SHARES_OF_A_CPU))
            else:
                cpu.quota.value, cpu.period.value = int(amount * PERIOD), PERIOD
    with contextlib.suppress(KeyError, ValueError):
        limit = int(quantity.parse(str(resources["limits"]["memory"])))
        found.linux.resources.memory.limit.value = limit
    return found


def _digest(text: str) -> str:
    """Return an id as runtimes make them: 64 hexadecimal digits."""
    return hashlib.sha256(text.encode()).hexdigest()
