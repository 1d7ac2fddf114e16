"""The run: pods arrive, are placed, start, end, fail; nodes go down and come back.

At one instant, what ends comes before what arrives, and one scheduling round comes after both.
The same fleet, pods and seed give the same run: chance comes from named streams, and order from
the event loop.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from dralab.kernel.events import DECIDING, Event, Events
from dralab.kernel.randomness import Randomness
from dralab.simulation.engines.gpu.cluster import GpuCluster, model_names
from dralab.simulation.engines.gpu.fleet_chooser import FleetChooser
from dralab.simulation.engines.gpu.fragmentation import Fragmentation, typical_pods
from dralab.simulation.engines.gpu.policies import Chooser, GpuPolicy
from dralab.simulation.engines.gpu.waiting_pods import PodClass, WaitingPodClasses
from dralab.simulation.lifecycle.agenda import Agenda
from dralab.simulation.lifecycle.model import Pod, RunConditions
from dralab.simulation.lifecycle.pod_lives import PodLives
from dralab.simulation.lifecycle.quotas import Quotas
from dralab.simulation.lifecycle.tasks import TaskRecord
from dralab.simulation.results.result import StateSample
from dralab.simulation.scenario.schedulers import ALLOCATION_PREFIX
from dralab.simulation.workloads.openb import GpuNode, GpuPod


@dataclass(slots=True)
class GpuTask(TaskRecord):
    """A pod, and which GPUs of its node it has."""

    gpus: tuple[int, ...] = ()


class PodSimulation:
    """One run. `run()` may be called again where it was stopped."""

    def __init__(
        self,
        nodes: Sequence[GpuNode],
        pods: Sequence[Pod],
        policy: str,
        conditions: RunConditions | None = None,
        custom: GpuPolicy | None = None,
    ) -> None:
        self.how = RunConditions() if conditions is None else conditions
        self.policy = policy
        self.nodes = nodes
        self.events = Events()
        self.chance = Randomness(self.how.seed)
        typical = typical_pods(GpuPod(pod.name, pod.request, 0) for pod in pods)
        fragmentation = Fragmentation(typical, model_names(nodes)) if typical else None
        self.cluster = GpuCluster(nodes, fragmentation or Fragmentation({}, model_names(nodes)))
        self.chooser: Chooser | FleetChooser = (
            FleetChooser(self.cluster, policy, shared=any(p.request.milli % 1000 for p in pods))
            if policy.startswith(ALLOCATION_PREFIX)
            else Chooser(self.cluster, policy, self.chance.stream("policy"), custom)
        )
        self.tasks = {pod.key: GpuTask(pod, number) for number, pod in enumerate(pods)}
        self.waiting = WaitingPodClasses()
        self.gang_sizes = Counter(pod.gang for pod in pods if pod.gang)
        self.quotas = Quotas(self.how.quotas)
        self.samples: list[StateSample] = []
        self.refusals: Counter[str] = Counter()
        self.used_cpu = self.used_memory = self.asked = self.refused = 0
        # Types of devices, in the order in which results name them.
        models = [model for model in model_names(nodes) if model]
        self.used_types = [0] * len(models)
        self._type = {model: index for index, model in enumerate(models)}
        self.fragmented = float(self.cluster.lost.sum())
        self._fresh: set[PodClass] = set()
        self._freed: set[int] = set()
        self._deciding: Event | None = None
        self._gangs_here: Counter[str] = Counter()
        self._number = {node.name: index for index, node in enumerate(nodes)}
        self.lives = PodLives(self, Agenda(self.events), self.tasks, self.how, self.chance.stream)
        self.lives.plan(self._number)

    def run(
        self,
        progress: Callable[[int, int], None] | None = None,
        stop: Callable[[], bool] | None = None,
    ) -> bool:
        """Run to the end; False if `stop` asked to leave off earlier."""
        step = 0
        while (when := self.events.next_time()) is not None:
            if self.how.until is not None and when > self.how.until:
                self.events.run(self.how.until)
                break
            # Nodes go on failing for ever; once every pod is over, nothing of interest follows.
            if self.lives.finished:
                break
            if self.how.ended is not None and self.lives.over >= self.how.ended:
                break
            self.events.step()
            step += 1
            if step % 256 == 0:
                if progress is not None:
                    progress(self.events.now(), self.lives.over)
                if stop is not None and stop():
                    return False
        self._sample()
        return True

    # --- arrival and decision -----------------------------------------------------------------

    def submit(self, task: GpuTask) -> None:
        """Add a pod to the queue."""
        pod = task.pod
        if pod.gang and not task.attempts:
            self._gangs_here[pod.gang] += 1
        self._fresh.add(self.waiting.add_pod(task.number, pod))
        self.asked += pod.request.cpu

    def changed(self) -> None:
        """Run the scheduler, once everything of this instant has happened."""
        if self._deciding is None:
            self._deciding = self.events.after(0, self._decide, priority=DECIDING)

    def _decide(self) -> None:
        self._deciding = None
        kinds = set(self._fresh)
        if self._freed:
            kinds.update(self.waiting.worth_trying(self.cluster, self._freed))
        self._fresh, self._freed = set(), set()
        self.waiting.round(kinds, self._attempt, blocking=self.how.blocking)
        self._sample()

    def _attempt(self, pods: list[Pod]) -> bool:
        """Place one pod, or all of a gang; leave nothing behind if that is impossible."""
        first = pods[0]
        if first.gang and self._gangs_here[first.gang] < self.gang_sizes[first.gang]:
            return self._refuse(pods, "the gang is not complete")
        if not self.quotas.allows(pods):
            return self._refuse(pods, self.quotas.refusal(first.queue))
        placed: list[tuple[GpuTask, int, list[int]]] = []
        for pod in pods:
            choice = self.chooser.choose(pod.request, pod.memory)
            if choice is None:
                lacking = self.cluster.lacking(pod.request, pod.memory)
                for task, node, gpus in reversed(placed):
                    self._hold(task.pod, node, gpus, -1)
                counts = ", ".join(f"{count} {reason}" for reason, count in lacking.items())
                message = f"0/{len(self.nodes)} nodes are available: {counts}"
                return self._refuse(pods, message, lacking)
            node, gpus = choice
            self._hold(pod, node, gpus, 1)
            placed.append((self.tasks[pod.key], node, gpus))
        for task, node, gpus in placed:
            self.asked -= task.pod.request.cpu
            task.gpus = tuple(gpus)
            self.lives.bind(task, self.nodes[node].name)
        return True

    def _refuse(self, pods: list[Pod], message: str, reasons: Iterable[str] = ()) -> bool:
        self.refusals.update(dict.fromkeys(reasons or (message,), 1))
        self.refused += 1
        for pod in pods:
            self.tasks[pod.key].reason = message
        return False

    def _hold(self, pod: Pod, node: int, gpus: Sequence[int], sign: int) -> None:
        cluster = self.cluster
        self.fragmented -= float(cluster.lost[node])
        if sign > 0:
            cluster.place(node, pod.request, pod.memory, gpus)
        else:
            cluster.release(node, pod.request, pod.memory, gpus)
            self.chooser.released(node, pod.request, gpus)
        self.fragmented += float(cluster.lost[node])
        self.used_cpu += sign * pod.request.cpu
        self.used_memory += sign * pod.memory
        if pod.request.gpus:
            self.used_types[self._type[self.nodes[node].model]] += sign * pod.request.demand
        self.quotas.count_held(pod, sign)

    # --- what a life does to nodes ------------------------------------------------------------

    def start(self, task: GpuTask) -> None:
        """Do nothing: only the record changes when a pod starts."""

    def release(self, task: GpuTask) -> None:
        """Free what a pod holds on its node."""
        node = self._number[task.node]
        self._hold(task.pod, node, task.gpus, -1)
        self._freed.add(node)

    def comes_again(self, task: GpuTask) -> bool:  # noqa: ARG002 - every pod does
        """Whether a pod that is evicted, or fails, is submitted once more."""
        return True

    def withdraw(self, task: GpuTask) -> None:
        """Forget the GPUs of a pod that is retried."""
        task.gpus = ()

    def finish(self, task: GpuTask) -> None:
        """Do nothing: only the record changes when a pod is over."""

    def lose(self, node: str) -> None:
        """A node goes down."""
        self.cluster.set_down(self._number[node], down=True)

    def restore(self, node: str) -> None:
        """A node is up again."""
        self.cluster.set_down(self._number[node], down=False)
        self._freed.add(self._number[node])

    def _sample(self) -> None:
        sample = StateSample(
            when=self.events.now(),
            waiting=len(self.waiting),
            running=len(self.lives.running),
            cpu=self.used_cpu,
            gpu=self.cluster.used,
            fragmented=self.fragmented,
            memory=self.used_memory,
            asked=self.asked,
            ended=self.lives.over,
            evicted=self.lives.evictions,
            refused=self.refused,
            types=tuple(self.used_types),
        )
        if self.samples and self.samples[-1].when == sample.when:
            self.samples[-1] = sample
        else:
            self.samples.append(sample)
