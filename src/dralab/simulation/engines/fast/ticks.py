"""A scenario tick by tick, as k8s-cluster-simulator runs it: decisions at ticks, and its metrics.

Source: pfnet-research/k8s-cluster-simulator. The order is strict: the first pod that fits nowhere
ends a tick's decisions. With `ticks-preemption` pods of lower priority are deleted for others, and
hold what they have for their grace. Differences on purpose: which pods are deleted is
kube-scheduler's choice, metrics come every `metricsTick` and not one tick later, names are sorted.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from functools import partial
from pathlib import Path
from typing import Any, Final

from dralab.kernel.clock import SECOND
from dralab.kernel.events import DECIDING, ENDING
from dralab.objects.metadata import annotations_of, spec_of, status_of
from dralab.scenarios.errors import InputError
from dralab.scheduling.pods import PodInfo
from dralab.simulation.engines.cluster.tasks import ClusterTask
from dralab.simulation.engines.fast.engine import BEGIN, FastSimulation
from dralab.simulation.engines.fast.run import FastRun
from dralab.simulation.engines.fast.tick_metrics import Amounts, Metrics
from dralab.simulation.engines.objects import GPU
from dralab.simulation.scenario.scenario import Scenario
from dralab.simulation.scenario.schedulers import TICKS_PREEMPTION
from dralab.simulation.workloads import phases
from dralab.values.json_types import JsonObject
from dralab.values.quantity import Number, parse_any

DELETED: Final = "Deleted"


class TickSimulation(FastSimulation):
    """Pods arrive and end at any time; decisions are made at ticks."""

    tick: int
    on_tick: Callable[[], None] | None = None
    _at_its_end = False

    def begin(self, tick: int) -> None:
        """Tick from now on."""
        self.tick = tick
        self.agenda.methods["deleted"] = self._grace_over
        self.events.at(BEGIN, self._tick, priority=DECIDING)

    @property
    def finished(self) -> bool:
        """Whether every pod has ended, and a tick has seen it."""
        return self._at_its_end

    def wake(self) -> None:
        """Do nothing: pods are tried at the next tick."""

    def _tick(self) -> None:
        while self.attempts.next():
            pass
        if self.on_tick is not None:
            self.on_tick()
        self._at_its_end = self.lives.finished
        # Where nothing else will happen, what waits now waits for ever.
        if not self._at_its_end and self.events.next_time() is not None:
            self.events.after(self.tick, self._tick, priority=DECIDING)

    # --- pods that are deleted for others

    def evict(self, victim: PodInfo, winner: PodInfo, node: str) -> None:
        """Delete a pod: it holds its resources until its grace period ends."""
        del winner, node
        self.events.after(0, partial(self._delete, victim.uid))

    def _delete(self, uid: str) -> None:
        task, placement = self.tasks.by_uid.get(uid), self.placed.get(uid)
        if task is None or placement is None or task.gone:
            return
        self.agenda.cancel(task.next)
        task.next, task.ended = None, self.events.now()
        task.state, task.reason, task.gone = "Failed", DELETED, True
        task.evictions += 1
        self.lives.evictions += 1
        self.placed[uid] = self._marked(placement)
        grace = int(spec_of(placement.pod.obj).get("terminationGracePeriodSeconds") or 30)
        self.agenda.schedule(self.events.now() + grace * SECOND, ENDING, "deleted", task.key)

    def _grace_over(self, key: str) -> None:
        self.lives.leave(self.lives.tasks[key])

    def comes_again(self, task: ClusterTask) -> bool:
        """Whether a failed pod is submitted again: not if it was deleted."""
        return not task.gone

    # --- metrics

    @property
    def on_nodes(self) -> dict[str, tuple[ClusterTask, PodInfo]]:
        """The pods that run or still hold resources, by key, with their tasks."""
        return {
            task.key: (task, placement.pod)
            for uid, placement in self.placed.items()
            if (task := self.tasks.by_uid.get(uid)) is not None
        }


class TickRun(FastRun):
    """One run. `start` is the time at which it begins, in seconds since the epoch.

    `write` gets the simulator's own metrics every `metrics_tick` seconds. InputError: a pod never
    ends, or the scenario has what only a whole cluster acts out.
    """

    acts = TickSimulation
    simulation: TickSimulation

    def __init__(
        self,
        scenario: Scenario,
        resume: Path | None = None,
        *,
        start: int = 0,
        metrics_tick: int | None = None,
        write: Callable[[Metrics], None] | None = None,
    ) -> None:
        conditions = replace(scenario.conditions, blocking=True)
        self._start = self._written = start
        self._every = scenario.tick // SECOND if metrics_tick is None else metrics_tick
        self._lengths = {pod.key: list(_phases(scenario, pod.body)) for pod in scenario.pods()}
        for pod in scenario.pods():
            if pod.duration is None and scenario.conditions.until is None:
                problem = f"never ends: give it the annotation {phases.ANNOTATION}, or `stop.at`"
                raise InputError(scenario.file, problem, where=f"Pod {pod.key}")
        super().__init__(replace(scenario, conditions=conditions), resume)
        self._write = write

    _write: Callable[[Metrics], None] | None = None

    def _begin(self) -> None:
        if not self.scenario.is_own:
            preempts = self.scenario.scheduler == TICKS_PREEMPTION
            self.simulation.state.choice.preempts = preempts
        self.simulation.on_tick = self._tell
        self.simulation.begin(self.scenario.tick)
        self._offers = dict(_offers(self.scenario))

    def counts(self) -> dict[str, int]:
        """Return the run time and the counts of pods, by the simulator's names."""
        records = self.tasks.records
        return {
            "seconds": self._clock - self._start,
            "pods": sum(task.created is not None for task in records),
            "succeeded": sum(task.state == "Succeeded" for task in records),
            "deleted": sum(task.gone for task in records),
            "over_capacity": 0,
            "pending": self.tasks.waiting,
        }

    @property
    def _clock(self) -> int:
        return self._start + (self.simulation.now() - BEGIN) // SECOND

    def _tell(self) -> None:
        if self._clock - self._written >= self._every:
            self._written = self._clock
            if self._write is not None:
                self._write(self.metrics())

    def metrics(self) -> Metrics:
        """Return the metrics of now; amounts are numbers, `Clock` is in seconds."""
        pods = {key: self._pod(*one) for key, one in sorted(self.simulation.on_nodes.items())}
        return {
            "Clock": self._clock,
            "Nodes": {name: self._node(name, pods) for name in sorted(self._offers)},
            "Pods": pods,
            "Queue": {"PendingPodsNum": self.tasks.waiting},
        }

    def _node(self, name: str, pods: Mapping[str, Mapping[str, Any]]) -> Mapping[str, Any]:
        here = [pod for pod in pods.values() if pod["Node"] == name]
        deleted = sum(pod["Status"] == DELETED for pod in here)
        return {
            "Allocatable": dict(self._offers[name]),
            "RunningPodsNum": len(here) - deleted,
            "TerminatingPodsNum": deleted,
            "FailedPodsNum": 0,
            "TotalResourceRequest": _sum(pod["ResourceRequest"] for pod in here),
            "TotalResourceUsage": _sum(pod["ResourceUsage"] for pod in here),
        }

    def _pod(self, task: ClusterTask, pod: PodInfo) -> Mapping[str, Any]:
        bound = self._start + ((task.bound or BEGIN) - BEGIN) // SECOND
        elapsed, lengths = self._clock - bound, self._lengths[task.key]
        requests = _requests(pod)
        return {
            "ResourceRequest": requests,
            "ResourceLimit": _limits(spec_of(task.pod.body or {})),
            "ResourceUsage": phases.usage_at(lengths, elapsed) if lengths else requests,
            "BoundAt": bound,
            "Node": task.node,
            "ExecutedSeconds": min(elapsed, phases.total(lengths)) if lengths else elapsed,
            "Priority": pod.priority,
            "Status": DELETED if task.gone else "Ok",
        }


def _phases(scenario: Scenario, body: JsonObject | None) -> Sequence[phases.Phase]:
    """Return the usage phases of a pod; none if it uses its requests."""
    text = annotations_of(body or {"metadata": {}}).get(phases.ANNOTATION)
    try:
        return () if text is None else phases.parse(text)
    except ValueError as error:
        raise InputError(scenario.file, str(error), where="workload") from None


def _offers(scenario: Scenario) -> Iterator[tuple[str, Amounts]]:
    """Yield the allocatable amounts of each node, of its object or the fleet."""
    written = {
        item["metadata"]["name"]: status_of(item)
        for item in scenario.fleet.objects
        if item.get("kind") == "Node"
    }
    for node in scenario.fleet.as_nodes():
        status = written.get(node.name, {})
        amounts = status.get("allocatable") or status.get("capacity")
        if amounts is None:
            amounts = {"cpu": f"{node.cpu}m", "memory": node.memory, "pods": node.pods}
            amounts |= {GPU: node.gpus} if node.gpus else {}
        yield node.name, {str(name): parse_any(amount) for name, amount in amounts.items()}


def _requests(pod: PodInfo) -> dict[str, Number]:
    found: dict[str, Number] = {
        name: Fraction(amount, 1000) if name == "cpu" else amount
        for name, amount in pod.requests.items()
    }
    return found if pod.shares is None else found | {GPU: pod.shares.gpus}


def _limits(spec: JsonObject) -> dict[str, Number]:
    return _sum(
        {str(name): parse_any(amount) for name, amount in (limits or {}).items()}
        for container in spec.get("containers") or ()
        for limits in [(container.get("resources") or {}).get("limits")]
    )


def _sum(parts: Any) -> dict[str, Number]:
    found: dict[str, Number] = {}
    for part in parts:
        for name, amount in part.items():
            found[name] = found.get(name, 0) + amount
    return found
