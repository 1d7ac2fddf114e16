"""The run: pods arrive, are placed, start, end, fail; nodes go down and come back.

At one instant, what ends comes before what arrives, and one scheduling round comes after both.
The same fleet, pods and seed give the same run: chance comes from named streams, and order from
the event loop.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial

from dralab.kernel.events import BEGINNING, DECIDING, ENDING, Event, Events
from dralab.kernel.randomness import Randomness
from dralab.simulation.engines.gpu.allocating import FleetChooser
from dralab.simulation.engines.gpu.cluster import GpuCluster, model_names
from dralab.simulation.engines.gpu.fragmentation import Fragmentation, typical_pods
from dralab.simulation.engines.gpu.policies import Chooser, Policy
from dralab.simulation.engines.gpu.waiting import Class, Waiting
from dralab.simulation.lifecycle.model import (
    Circumstances,
    Fault,
    Pod,
    PodState,
    RandomFaults,
    Stage,
)
from dralab.simulation.lifecycle.outages import Outages
from dralab.simulation.results.result import Sample
from dralab.simulation.scenario.schedulers import ALLOCATION_PREFIX
from dralab.simulation.workloads.openb import GpuNode, GpuPod


@dataclass(slots=True)
class PodRun:
    """What became of a pod; `reason` says why it is not over, or why it failed."""

    pod: Pod
    number: int
    state: PodState = "Pending"
    bound: int | None = None
    started: int | None = None
    ended: int | None = None
    node: int = -1
    gpus: tuple[int, ...] = ()
    attempts: int = 0
    evictions: int = 0
    reason: str = ""
    next_event: Event | None = None


class PodSimulation:
    """One run. `run()` may be called again where it was stopped."""

    def __init__(
        self,
        nodes: Sequence[GpuNode],
        pods: Sequence[Pod],
        policy: str,
        circumstances: Circumstances | None = None,
        custom: Policy | None = None,
    ) -> None:
        self.how = Circumstances() if circumstances is None else circumstances
        self.policy = policy
        self.nodes = nodes
        self.events = Events()
        self.chance = Randomness(self.how.seed)
        typical = typical_pods(GpuPod(pod.name, pod.shape, 0) for pod in pods)
        fragmentation = Fragmentation(typical, model_names(nodes)) if typical else None
        self.cluster = GpuCluster(nodes, fragmentation or Fragmentation({}, model_names(nodes)))
        self.chooser: Chooser | FleetChooser = (
            FleetChooser(self.cluster, policy, shared=any(p.shape.milli % 1000 for p in pods))
            if policy.startswith(ALLOCATION_PREFIX)
            else Chooser(self.cluster, policy, self.chance.stream("policy"), custom)
        )
        self.runs = [PodRun(pod, number) for number, pod in enumerate(pods)]
        self.by_key = {run.pod.key: run for run in self.runs}
        self.waiting = Waiting()
        self.gang_sizes = Counter(pod.gang for pod in pods if pod.gang)
        self.held: dict[str, Counter[str]] = {queue: Counter() for queue in self.how.quotas}
        self.samples: list[Sample] = []
        self.outages = Outages()
        self.refusals: Counter[str] = Counter()
        self.over = 0
        self.running: set[int] = set()
        self.used_cpu = self.used_memory = self.asked = self.evictions = self.refused = 0
        # Types of devices, in the order in which results name them.
        models = [model for model in model_names(nodes) if model]
        self.used_types = [0] * len(models)
        self._type = {model: index for index, model in enumerate(models)}
        self.fragmented = float(self.cluster.lost.sum())
        self._fresh: set[Class] = set()
        self._freed: set[int] = set()
        self._deciding: Event | None = None
        self._gangs_here: Counter[str] = Counter()
        self._number = {node.name: index for index, node in enumerate(nodes)}
        for run in sorted(self.runs, key=lambda run: run.pod.arrives):
            self.events.at(run.pod.arrives, partial(self._arrive, run), priority=BEGINNING)
        for fault in self.how.faults:
            self.events.at(fault.at, partial(self._fail_node, fault), priority=ENDING)
        if self.how.random_faults is not None:
            for index in range(len(nodes)):
                self._plan_fault(index, self.how.random_faults)

    def run(
        self,
        progress: Callable[[int, int], None] | None = None,
        stop: Callable[[], bool] | None = None,
    ) -> bool:
        """Run to the end; False where `stop` asked to leave off earlier."""
        step = 0
        while (when := self.events.next_time()) is not None:
            if self.how.until is not None and when > self.how.until:
                self.events.run(self.how.until)
                break
            # Nodes break for ever; once every pod is over, nothing of interest follows.
            if self.over == len(self.runs) and not self.running:
                break
            if self.how.ended is not None and self.over >= self.how.ended:
                break
            self.events.step()
            step += 1
            if step % 256 == 0:
                if progress is not None:
                    progress(self.events.now(), self.over)
                if stop is not None and stop():
                    return False
        self._sample()
        return True

    # --- arrival and decision -----------------------------------------------------------------

    def _arrive(self, run: PodRun) -> None:
        self._wait(run)
        if run.pod.gang:
            self._gangs_here[run.pod.gang] += 1
        self._decide_soon()

    def _decide_soon(self) -> None:
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
        """Place one pod, or all of a gang; leave nothing behind where that cannot be."""
        first = pods[0]
        if first.gang and self._gangs_here[first.gang] < self.gang_sizes[first.gang]:
            return self._refuse(pods, "the gang is not complete")
        if not self._within_quota(pods):
            return self._refuse(pods, f"the quota of queue {first.queue!r} is used up")
        placed: list[tuple[PodRun, int, list[int]]] = []
        for pod in pods:
            choice = self.chooser.choose(pod.shape, pod.memory)
            if choice is None:
                lacking = self.cluster.lacking(pod.shape, pod.memory)
                for run, node, gpus in reversed(placed):
                    self._hold(run, node, gpus, -1)
                counts = ", ".join(f"{count} {reason}" for reason, count in lacking.items())
                message = f"0/{len(self.nodes)} nodes are available: {counts}"
                return self._refuse(pods, message, lacking)
            run = self.by_key[pod.key]
            node, gpus = choice
            self._hold(run, node, gpus, 1)
            placed.append((run, node, gpus))
        for run, node, gpus in placed:
            self._bind(run, node, gpus)
        return True

    def _refuse(self, pods: list[Pod], message: str, reasons: Iterable[str] = ()) -> bool:
        self.refusals.update(dict.fromkeys(reasons or (message,), 1))
        self.refused += 1
        for pod in pods:
            self.by_key[pod.key].reason = message
        return False

    def _within_quota(self, pods: list[Pod]) -> bool:
        quota = self.how.quotas.get(pods[0].queue)
        if quota is None:
            return True
        held = self.held[pods[0].queue]
        wanted = {
            "cpu": (quota.cpu, sum(pod.shape.cpu for pod in pods)),
            "gpu": (quota.gpu_milli, sum(pod.shape.demand for pod in pods)),
            "pods": (quota.pods, len(pods)),
        }
        return all(
            limit is None or held[name] + more <= limit for name, (limit, more) in wanted.items()
        )

    def _hold(self, run: PodRun, node: int, gpus: Sequence[int], sign: int) -> None:
        pod, cluster = run.pod, self.cluster
        self.fragmented -= float(cluster.lost[node])
        if sign > 0:
            cluster.place(node, pod.shape, pod.memory, gpus)
        else:
            cluster.release(node, pod.shape, pod.memory, gpus)
            self.chooser.released(node, pod.shape, gpus)
        self.fragmented += float(cluster.lost[node])
        self.used_cpu += sign * pod.shape.cpu
        self.used_memory += sign * pod.memory
        if pod.shape.gpus:
            self.used_types[self._type[self.nodes[node].model]] += sign * pod.shape.demand
        if pod.queue in self.held:
            self.held[pod.queue].update(
                cpu=sign * pod.shape.cpu, gpu=sign * pod.shape.demand, pods=sign
            )

    # --- a pod's life -------------------------------------------------------------------------

    def _bind(self, run: PodRun, node: int, gpus: list[int]) -> None:
        now, life = self.events.now(), self.how.life
        run.state, run.node, run.gpus, run.reason = "Bound", node, tuple(gpus), ""
        run.bound, run.attempts = now, run.attempts + 1
        self.asked -= run.pod.shape.cpu
        self.running.add(run.number)
        delay = self._drawn(life.start, "start")
        if delay:
            run.next_event = self.events.after(delay, partial(self._start, run), priority=BEGINNING)
        else:
            self._start(run)

    def _start(self, run: PodRun) -> None:
        run.state, run.started = "Running", self.events.now()
        run.next_event = None
        if run.pod.duration is None:
            return
        life, length, fails = self.how.life, run.pod.duration, False
        if life.failure:
            chance = self.chance.stream("failure")
            fails = chance.random() < life.failure
            length = int(length * chance.random()) if fails else length
        run.next_event = self.events.after(
            length, partial(self._end, run, fails=fails), priority=ENDING
        )

    def _end(self, run: PodRun, *, fails: bool) -> None:
        run.ended, run.next_event = self.events.now(), None
        run.state = "Failed" if fails else "Succeeded"
        if fails:
            run.reason = "failed while running"
        delay = self._drawn(self.how.life.release, "release")
        if delay:
            self.events.after(delay, partial(self._free, run, again=fails), priority=ENDING)
        else:
            self._free(run, again=fails)

    def _free(self, run: PodRun, *, again: bool) -> None:
        self._hold(run, run.node, run.gpus, -1)
        self._freed.add(run.node)
        self.running.discard(run.number)
        if again and run.attempts <= self.how.life.retries:
            self._wait_again(run)
        else:
            self.over += 1
        self._decide_soon()

    def _wait_again(self, run: PodRun) -> None:
        run.state, run.ended, run.started, run.bound = "Pending", None, None, None
        run.gpus, run.node = (), -1
        self._wait(run)

    def _wait(self, run: PodRun) -> None:
        self._fresh.add(self.waiting.add(run.number, run.pod))
        self.asked += run.pod.shape.cpu

    def _drawn(self, stage: Stage, name: str) -> int:
        if not stage.jitter:
            return stage.delay
        return stage.delay + int(self.chance.stream(name).random() * stage.jitter)

    # --- nodes --------------------------------------------------------------------------------

    def _plan_fault(self, index: int, faults: RandomFaults) -> None:
        chance = self.chance.stream("faults")
        after = int(chance.expovariate(1 / faults.between)) if faults.between else 0
        length = int(chance.expovariate(1 / faults.repair)) if faults.repair else 1
        fault = Fault(node=self.nodes[index].name, at=self.events.now() + after, duration=length)
        self.events.at(fault.at, partial(self._fail_node, fault, plan=True), priority=ENDING)

    def _fail_node(self, fault: Fault, *, plan: bool = False) -> None:
        index = self._number[fault.node]
        if self.outages.begin(fault.node, self.events.now()):
            self.cluster.set_down(index, down=True)
        for number in sorted(self.running):
            run = self.runs[number]
            if run.node == index and run.state in {"Bound", "Running"}:
                self._evict(run)
        if fault.duration is not None:
            self.events.after(
                fault.duration, partial(self._repair, index, plan=plan), priority=ENDING
            )
        self._decide_soon()

    def _evict(self, run: PodRun) -> None:
        if run.next_event is not None:
            run.next_event.cancel()
        self._hold(run, run.node, run.gpus, -1)
        self.running.discard(run.number)
        run.evictions += 1
        self.evictions += 1
        self._wait_again(run)
        run.reason = "evicted: its node went down"

    def _repair(self, index: int, *, plan: bool) -> None:
        if self.outages.end(self.nodes[index].name, self.events.now()):
            self.cluster.set_down(index, down=False)
            self._freed.add(index)
            self._decide_soon()
        if plan and self.how.random_faults is not None:
            self._plan_fault(index, self.how.random_faults)

    def _sample(self) -> None:
        sample = Sample(
            when=self.events.now(),
            waiting=len(self.waiting),
            running=len(self.running),
            cpu=self.used_cpu,
            gpu=self.cluster.used,
            fragmented=self.fragmented,
            memory=self.used_memory,
            asked=self.asked,
            ended=self.over,
            evicted=self.evictions,
            refused=self.refused,
            types=tuple(self.used_types),
        )
        if self.samples and self.samples[-1].when == sample.when:
            self.samples[-1] = sample
        else:
            self.samples.append(sample)
