"""The driver: delivers what happens, waits for the answer and for silence, moves the clock.

A bind is *late* where the scheduler could have made it in an earlier step: the pod was there, and
its node had room before the present step began. Late binds mean that the silence was taken for an
answer too soon; the time to wait is doubled then, and their number is reported.
"""

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial

from dralab.apiserver.storage import Key
from dralab.cluster import Cluster
from dralab.kernel.clock import ManualClock
from dralab.kernel.events import BEGINNING, ENDING, Events
from dralab.runtime.client import Object
from dralab.runtime.resources import NODES, PODS
from dralab.simulation.errors import DecisionError
from dralab.simulation.outside import objects
from dralab.simulation.outside.activity import Activity
from dralab.simulation.pods.model import Pod, PodState
from dralab.simulation.results import Result, Sample, Task
from dralab.simulation.workloads.openb import GpuNode


@dataclass(frozen=True, slots=True, kw_only=True)
class Manners:
    """How to get along with a scheduler. Seconds are real ones.

    `settle`: silence that counts as an answer. `patience`: how long to wait for pods that get no
    answer. `hope`: how long to wait for a pod that has room but is not bound. `polls`: it lists
    instead of watching, and a whole round without a write is its silence. `overcommit`: pods may be
    bound where there is no room (otherwise the kubelet refuses them). `strict`: a late bind ends
    the run.
    """

    settle: float = 0.05
    patience: float = 10.0
    hope: float = 2.0
    start_patience: float = 60.0
    start_settle: float = 1.5
    scheduler_name: str = "default-scheduler"
    polls: bool = False
    overcommit: bool = False
    strict: bool = False


@dataclass(slots=True)
class _Held:
    cpu: int = 0
    memory: int = 0
    gpus: int = 0
    pods: int = 0

    def plus(self, pod: Pod, sign: int = 1) -> "_Held":
        return _Held(
            self.cpu + sign * pod.shape.cpu,
            self.memory + sign * pod.memory,
            self.gpus + sign * objects.whole_gpus(pod),
            self.pods + sign,
        )

    def fits(self, node: GpuNode) -> bool:
        return (
            self.cpu <= node.cpu
            and self.memory <= node.memory
            and self.gpus <= node.gpus
            and self.pods <= node.pods
        )


@dataclass(slots=True)
class _Outside:
    pod: Pod
    created: int | None = None
    started: int | None = None
    ended: int | None = None
    state: PodState = "Pending"
    node: str = ""
    reason: str = ""


@dataclass(slots=True)
class Report:
    """What happened besides the tasks."""

    steps: int = 0
    requests: int = 0
    event_writes: int = 0
    late_binds: int = 0
    unanswered: list[str] = field(default_factory=list)
    over_capacity: list[str] = field(default_factory=list)
    settle: float = 0.0


class Driver:
    """One run against a cluster whose clock is ours."""

    def __init__(
        self,
        cluster: Cluster,
        clock: ManualClock,
        nodes: Sequence[GpuNode],
        pods: Sequence[Pod],
        manners: Manners,
    ) -> None:
        self.cluster = cluster
        self.events = Events(clock)
        self.begin = clock.now()
        self.nodes = {node.name: node for node in nodes}
        self.pods = {pod.key: _Outside(pod) for pod in pods}
        self.manners = manners
        self.activity = Activity(polls=manners.polls)
        self.report = Report(settle=manners.settle)
        self.samples: list[Sample] = []
        self._held = {name: _Held() for name in self.nodes}
        self._held_before = dict(self._held)
        self._fresh: set[str] = set()
        self._given_up: set[str] = set()
        self._hope = manners.hope
        # Whether the scheduler still runs, where we started it.
        self.alive: Callable[[], bool] = lambda: True
        cluster.server.observers.append(self.activity.observe)

    def prepare(self) -> None:
        """Create the nodes."""
        with self._together():
            for node in self.nodes.values():
                self.cluster.client.create(NODES, objects.node(node, self.begin))
                # The server taints new nodes as not ready; the node controller takes that back.
                self.cluster.client.patch(NODES, node.name, {"spec": {"taints": None}})

    def meet(self) -> None:
        """Wait until the scheduler looks at pods and nodes and has gone silent; DecisionError."""
        manners, activity = self.manners, self.activity
        wanted = {"pods"} if manners.polls else {"pods", "nodes"}

        def looks() -> bool:
            return wanted <= activity.seen

        if not activity.wait(looks, manners.start_settle, manners.start_patience):
            missing = " and ".join(sorted(wanted - activity.seen))
            raise DecisionError(f"did not ask for {missing} in {manners.start_patience:g} s")

    def run(
        self,
        progress: Callable[[int, int], None] | None = None,
        stop: Callable[[], bool] | None = None,
    ) -> bool:
        """Run to the end; False where `stop` asked to leave off earlier."""
        for item in sorted(self.pods.values(), key=lambda item: item.pod.arrives):
            arrives = self.begin + item.pod.arrives
            self.events.at(arrives, partial(self._arrive, item), priority=BEGINNING)
        while (when := self.events.next_time()) is not None:
            if stop is not None and stop():
                return False
            if not self.alive():
                raise DecisionError("ended in the middle of the run")
            self._step(when)
            if progress is not None:
                over = sum(item.ended is not None for item in self.pods.values())
                progress(when - self.begin, over)
            if self.events.next_time() is None and self._could_still_bind():
                # Nothing will happen by itself; a scheduler that backs off gets its time.
                self.activity.wait(self._has_bound, 0.0, self.manners.patience)
                self._bind_all()
        if not self.alive():
            raise DecisionError("ended in the middle of the run")
        self.report.requests = self.activity.requests
        self.report.event_writes = self.activity.event_writes
        return True

    def _step(self, when: int) -> None:
        """Deliver all of one instant, wait for the answer, and let the bound pods start."""
        self.report.steps += 1
        self._held_before = dict(self._held)
        self._fresh.clear()
        rounds = self.activity.rounds
        with self._together():
            self.events.run(when)
        self.activity.touch()

        def answered() -> bool:
            if self.manners.polls:
                return self.activity.rounds > rounds
            return self._fresh <= self.activity.answered

        if not self.activity.wait(answered, self.report.settle, self.manners.patience):
            silent = self._fresh - self.activity.answered
            self.report.unanswered += sorted(silent - set(self.report.unanswered))
        self._bind_all()
        # Where there is room for a pod that waits, the scheduler may just be slow: more silence is
        # asked for, once a pod.
        while hopeful := self._could_still_bind() - self._given_up:
            if not self.activity.wait(self._has_bound, 0.0, self._hope):
                self._given_up |= hopeful
                break
            self.activity.wait(lambda: True, self.report.settle, self.manners.patience)
            self._bind_all()
        self._sample()

    def _has_bound(self) -> bool:
        return bool(self.activity.bound)

    def _together(self) -> ExitStack:
        """Hold the server's lock: the clock and all that happens at an instant move as one."""
        store, stack = self.cluster.server.store, ExitStack()
        stack.enter_context(store.lock)
        stack.enter_context(store.batch())
        return stack

    # --- what happens -------------------------------------------------------------------------

    def _arrive(self, item: _Outside) -> None:
        item.created = self.events.now()
        self._fresh.add(item.pod.key)
        self.cluster.client.create(PODS, objects.pod(item.pod, self.manners.scheduler_name))

    def _end(self, item: _Outside) -> None:
        item.ended, item.state = self.events.now(), "Succeeded"
        self._held[item.node] = self._held[item.node].plus(item.pod, -1)
        self._status(item, "Succeeded")

    def _status(self, item: _Outside, phase: str, reason: str = "", message: str = "") -> None:
        """Report a pod's state as its kubelet would, straight into the store.

        Half of all writes of a run are these; nobody but us owns what they set.
        """
        store, key = self.cluster.server.store, Key("pods", item.pod.namespace, item.pod.name)
        stored = store.get(key)
        if stored is None:
            return  # someone deleted it: there is nothing to report on
        old: Object = dict(stored.value.get("status") or {})
        new = objects.status(phase, self.events.now(), reason, message)
        metadata = {k: v for k, v in stored.value["metadata"].items() if k != "resourceVersion"}
        store.update(key, {**stored.value, "metadata": metadata, "status": old | dict(new)})

    def _bind_all(self) -> None:
        bound = self.activity.take_bound()
        if not bound:
            return
        late = 0
        with self._together():
            for key, target in bound:
                item = self.pods.get(key)
                if item is not None and item.created is not None:
                    late += self._bind(item, target)
        self.activity.touch()
        if late:
            self.report.late_binds += late
            self.report.settle *= 2
            self._hope *= 2
            self._given_up.clear()
            if self.manners.strict:
                raise DecisionError(
                    f"{late} binds came too late for their step: repeat with a longer settle "
                    f"(now {self.report.settle:g} s)"
                )

    def _bind(self, item: _Outside, target: str) -> bool:
        """Start a bound pod; return whether it could have been bound in an earlier step."""
        if not target:
            found = self.cluster.client.get(PODS, item.pod.name, item.pod.namespace)
            target = str((found.get("spec") or {}).get("nodeName", ""))
        node = self.nodes.get(target)
        if node is None:
            item.state, item.reason = "Failed", f"bound to {target!r}, which is no node"
            return False
        late = item.pod.key not in self._fresh and self._had_room(target, item.pod)
        held = self._held[target].plus(item.pod)
        if not held.fits(node) and not self.manners.overcommit:
            self.report.over_capacity.append(item.pod.key)
            item.state, item.reason, item.node = "Failed", "bound where there was no room", target
            item.ended = self.events.now()
            self._status(
                item, "Failed", "OutOfcpu", "Node didn't have enough resource: cpu, requested"
            )
            return False
        self._held[target] = held
        item.node, item.started, item.state = target, self.events.now(), "Running"
        self._status(item, "Running")
        if item.pod.duration is not None:
            self.events.after(item.pod.duration, partial(self._end, item), priority=ENDING)
        return late

    def _had_room(self, target: str, pod: Pod) -> bool:
        """Whether the node had room for the pod before this step (binds since then included)."""
        before = self._held_before[target].plus(pod)
        fits = before.fits(self.nodes[target])
        self._held_before[target] = before
        return fits

    def _could_still_bind(self) -> set[str]:
        """Return the pods that wait though some node has room for them."""
        found: set[str] = set()
        known: dict[tuple[int, int, int], bool] = {}
        for item in self.pods.values():
            if item.created is None or item.state != "Pending":
                continue
            pod = item.pod
            size = (pod.shape.cpu, pod.memory, objects.whole_gpus(pod))
            if size not in known:
                known[size] = any(
                    self._held[name].plus(pod).fits(node) for name, node in self.nodes.items()
                )
            if known[size]:
                found.add(pod.key)
        return found

    def _sample(self) -> None:
        states = [item.state for item in self.pods.values() if item.created is not None]
        self.samples.append(
            Sample(
                when=self.events.now() - self.begin,
                waiting=states.count("Pending"),
                running=states.count("Running"),
                cpu=sum(held.cpu for held in self._held.values()),
                gpu=1000 * sum(held.gpus for held in self._held.values()),
                fragmented=0.0,
            )
        )

    # --- results ------------------------------------------------------------------------------

    def result(self, *, name: str, seed: int, complete: bool) -> Result:
        """Return what became of the pods; times count from the beginning of the run."""
        lanes = list(self.nodes)
        place = {lane: index for index, lane in enumerate(lanes)}
        report = self.report
        capacity = {"cpu": sum(node.cpu for node in self.nodes.values())}
        gpus = sum(node.gpus for node in self.nodes.values())
        if gpus:
            capacity["gpu"] = 1000 * gpus
        pending = sorted(
            item.pod.key for item in self.pods.values() if item.state == "Pending" and item.created
        )
        notes = [
            f"late binds: {report.late_binds}",
            f"{report.steps} steps, {report.requests} requests "
            f"({report.event_writes} of them writes of events), settle {report.settle:g} s",
            "an outside scheduler breaks ties at random and in real time: totals repeat, "
            "the times of single pods may not",
        ]
        for text, keys in (
            ("never bound", pending),
            ("got no answer in time", report.unanswered),
            ("bound where there was no room", report.over_capacity),
        ):
            if keys:
                shown = ", ".join(keys[:5]) + (", …" if len(keys) > 5 else "")
                notes.append(f"{len(keys)} pods {text}: {shown}")
        return Result(
            name=name,
            scheduler="external",
            seed=seed,
            tasks=[self._task(item, place) for item in self.pods.values()],
            samples=self.samples,
            lanes=lanes,
            capacity=capacity,
            end=self.events.now() - self.begin,
            notes=notes,
            complete=complete,
        )

    def _task(self, item: _Outside, place: dict[str, int]) -> Task:
        def since(when: int | None) -> int | None:
            return None if when is None else when - self.begin

        pod = item.pod
        return Task(
            id=pod.name if pod.namespace == "default" else pod.key,
            user=pod.user,
            state=item.state,
            submitted=pod.arrives,
            bound=since(item.started),
            started=since(item.started),
            ended=since(item.ended),
            width=max(1, -(-pod.shape.cpu // 1000)),
            lanes=(place[item.node],) if item.node in place else (),
            gpu_milli=pod.shape.demand,
            reason=item.reason,
        )
