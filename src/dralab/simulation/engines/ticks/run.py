"""A scenario's pods on nodes, tick by tick, as k8s-cluster-simulator runs them.

Pods with phases of use (the annotation `simSpec`) use what these say, others what they request. A
checkpoint is the simulator itself.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from dralab.kernel.clock import SECOND
from dralab.objects.metadata import annotations_of, spec_of, status_of
from dralab.simulation import checkpoints
from dralab.simulation.engines import unsupported
from dralab.simulation.engines.scenario_run import Progress, Stop
from dralab.simulation.engines.ticks.model import (
    Amounts,
    BoundPod,
    Submit,
    Terminate,
    TickNode,
    TickPod,
)
from dralab.simulation.engines.ticks.schedulers import GenericScheduler
from dralab.simulation.engines.ticks.simulator import Metrics, TickSimulator
from dralab.simulation.errors import InputError
from dralab.simulation.lifecycle.model import Pod
from dralab.simulation.lifecycle.tasks import pod_task
from dralab.simulation.results.result import Result, Task
from dralab.simulation.scenario.digest import digest
from dralab.simulation.scenario.scenario import Scenario
from dralab.simulation.scenario.schedulers import TICKS_PREEMPTION
from dralab.simulation.workloads import phases
from dralab.simulation.workloads.openb import WHOLE_GPU, GpuNode
from dralab.values.json_types import JsonObject
from dralab.values.quantity import Number, parse_any

GPU: Final = "nvidia.com/gpu"


class TickRun:
    """One run. `start` is the time at which it begins, in seconds since the epoch.

    `write` gets the simulator's own metrics every `metrics_tick` seconds. InputError: a pod never
    ends, or the scenario has what no tick knows.
    """

    def __init__(
        self,
        scenario: Scenario,
        resume: Path | None = None,
        *,
        start: int = 0,
        metrics_tick: int | None = None,
        write: Callable[[Metrics], None] | None = None,
    ) -> None:
        self.scenario = scenario
        self.complete = False
        self._write = write
        unsupported.refuse(
            scenario.file, scenario.fleet, scenario.conditions, no_lives=unsupported.NOT_IN_TICKS
        )
        unsupported.refuse_rules(scenario)
        self.simulator = (
            TickSimulator(
                [*_nodes(scenario)],
                GenericScheduler(preemption=scenario.scheduler == TICKS_PREEMPTION),
                [PodSubmitter(_pods(scenario), start)],
                start=start,
                tick=scenario.tick // SECOND,
                metrics_tick=metrics_tick,
            )
            if resume is None
            else checkpoints.read(resume, digest(scenario), TickSimulator)
        )

    def go(self, progress: Progress | None = None, stop: Stop | None = None) -> Result:
        """Continue the run."""
        simulator, how = self.simulator, self.scenario.conditions
        until = None if how.until is None else simulator.start + how.until // SECOND
        simulator.write = self._write
        self.complete = simulator.run(until, progress, stop, how.ended)
        simulator.write = None
        return self.result()

    def result(self) -> Result:
        """Return the result so far."""
        scenario, simulator = self.scenario, self.simulator
        lanes = list(simulator.nodes)
        bound = {one.pod.key: one for one in simulator.placed}
        return Result(
            name=scenario.name,
            scheduler=scenario.scheduler,
            seed=scenario.seed,
            tasks=[self._task(pod, bound.get(pod.key), lanes) for pod in scenario.pods()],
            samples=simulator.samples,
            lanes=lanes,
            capacity=_capacity(list(simulator.nodes.values())),
            end=self._since(simulator.clock),
            notes=list(unsupported.notes_of_ticks(scenario)),
            complete=self.complete,
        )

    def counts(self) -> dict[str, int]:
        """Return how long it took, and what became of pods, in the simulator's own words."""
        simulator = self.simulator
        bound, now = simulator.placed, simulator.clock
        return {
            "seconds": now - simulator.start,
            "pods": len(bound) + len(simulator.queue),
            "succeeded": sum(one.status == "Ok" and not one.running(now) for one in bound),
            "deleted": sum(one.status == "Deleted" for one in bound),
            "over_capacity": sum(one.status == "OverCapacity" for one in bound),
            "pending": len(simulator.queue),
        }

    def save(self, path: Path) -> None:
        """Write a checkpoint."""
        checkpoints.write(path, digest(self.scenario), self.simulator)

    def _since(self, clock: int) -> int:
        return (clock - self.simulator.start) * SECOND

    def _task(self, pod: Pod, bound: BoundPod | None, lanes: Sequence[str]) -> Task:
        state, reason, at, ended = "Pending", "", None, None
        if bound is not None:
            at = self._since(bound.bound_at)
            if bound.status == "OverCapacity":
                state, reason, ended = "Failed", "CapacityExceeded", at
            elif bound.deleted_at is not None:
                state, reason, ended = "Failed", "Deleted", self._since(bound.deleted_at)
            elif bound.running(self.simulator.clock):
                state = "Running"
            else:
                state, ended = "Succeeded", at + phases.total(bound.pod.phases) * SECOND
        return pod_task(
            pod,
            state=state,
            bound=at,
            started=at,
            ended=ended,
            lanes=[] if bound is None else [lanes.index(bound.node)],
            reason=reason,
            evictions=int(reason == "Deleted"),
        )


class PodSubmitter:
    """Submits pods when their time has come; `pods` are times since the start, with pods."""

    def __init__(self, pods: Sequence[tuple[int, TickPod]], start: int) -> None:
        self._waiting = sorted(
            ((start + arrives, index, pod) for index, (arrives, pod) in enumerate(pods)),
            key=lambda item: item[:2],
        )

    def submit(
        self, clock: int, nodes: Sequence[TickNode], metrics: Metrics
    ) -> Sequence[Submit | Terminate]:
        """Return the pods whose time has come."""
        del nodes, metrics
        now = [pod for when, _, pod in self._waiting if when <= clock]
        self._waiting = [item for item in self._waiting if item[0] > clock]
        events: list[Submit | Terminate] = [Submit(pod) for pod in now]
        return events if self._waiting else [*events, Terminate()]


def _nodes(scenario: Scenario) -> Iterator[TickNode]:
    written = {
        item["metadata"]["name"]: item
        for item in scenario.fleet.objects
        if item.get("kind") == "Node"
    }
    for node in scenario.fleet.as_nodes():
        labels = dict(label.split("=", 1) for label in sorted(node.labels))
        status = status_of(written.get(node.name, {}))
        amounts = status.get("allocatable") or status.get("capacity")
        yield TickNode(node.name, _amounts(node) if amounts is None else _read(amounts), labels)


def _amounts(node: GpuNode) -> Amounts:
    found: dict[str, Number] = {"memory": node.memory, "pods": node.pods}
    found["cpu"] = parse_any(f"{node.cpu}m")
    return found | ({GPU: node.gpus} if node.gpus else {})


def _pods(scenario: Scenario) -> list[tuple[int, TickPod]]:
    return [(pod.arrives // SECOND, _pod(pod, scenario)) for pod in scenario.pods()]


def _pod(pod: Pod, scenario: Scenario) -> TickPod:
    body = {"metadata": {}} | dict(pod.body or {})
    spec = spec_of(body)
    try:
        if pod.body is None:
            requests, limits = _asked(pod), {}
        else:
            requests, limits = _total(spec, "requests"), _total(spec, "limits")
        return TickPod(
            name=pod.name,
            namespace=pod.namespace,
            requests=requests,
            limits=limits,
            phases=_phases(pod, annotations_of(body), requests, scenario),
            priority=pod.priority,
            grace=int(spec.get("terminationGracePeriodSeconds") or 30),
        )
    except (AttributeError, TypeError, ValueError) as error:
        raise InputError(scenario.file, str(error), where=f"Pod {pod.key}") from None


def _phases(
    pod: Pod, annotations: Mapping[str, str], requests: Amounts, scenario: Scenario
) -> tuple[phases.Phase, ...]:
    if phases.ANNOTATION in annotations:
        return phases.parse(annotations[phases.ANNOTATION])
    if pod.duration is not None:
        return (phases.Phase(-(-pod.duration // SECOND), requests),)
    until = scenario.conditions.until
    if until is None:
        raise ValueError(f"never ends: give it the annotation {phases.ANNOTATION}, or `stop.at`")
    return (phases.Phase(until // SECOND + scenario.tick // SECOND + 1, requests),)


def _asked(pod: Pod) -> dict[str, Number]:
    """Return the requests of a pod without an object; a part of a GPU counts as one."""
    found = {"cpu": parse_any(f"{pod.request.cpu}m"), "memory": pod.memory, GPU: pod.request.gpus}
    return {name: amount for name, amount in found.items() if amount}


def _total(spec: JsonObject, part: str) -> dict[str, Number]:
    """Return the sum of containers; as in the original, a limit is not a request."""
    found: dict[str, Number] = {}
    for container in spec.get("containers") or ():
        for key, value in _read((container.get("resources") or {}).get(part) or {}).items():
            found[key] = found.get(key, 0) + value
    return found


def _read(amounts: Mapping[str, Any]) -> dict[str, Number]:
    return {str(name): parse_any(amount) for name, amount in amounts.items()}


def _capacity(nodes: Sequence[TickNode]) -> dict[str, int]:
    """Return the capacity in the units of results: milli of CPU and GPU, bytes."""
    found = {
        "cpu": sum(int(1000 * node.allocatable.get("cpu", 0)) for node in nodes),
        "memory": sum(int(node.allocatable.get("memory", 0)) for node in nodes),
    }
    gpus = sum(int(node.allocatable.get(GPU, 0)) for node in nodes)
    return found | ({"gpu": WHOLE_GPU * gpus} if gpus else {})
