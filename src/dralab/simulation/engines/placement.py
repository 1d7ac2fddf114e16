"""FGD's experiment: GPU pods placed one by one, in an order without time; measured after each.

Source of the rules: Weng et al., "Beware of Fragmentation: Scheduling GPU-Sharing Workloads with
Fragmentation Gradient Descent", USENIX ATC 2023, and the simulator published with it.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

from dralab.kernel.clock import SECOND
from dralab.kernel.randomness import Randomness
from dralab.runtime.garbage import rare_collections
from dralab.scenarios.errors import InputError
from dralab.scheduling.cycle import placement
from dralab.scheduling.pods import PodInfo, changed
from dralab.simulation import checkpoints
from dralab.simulation.engines.fast.admitted import sharing_pod
from dralab.simulation.engines.fast.choices import choice_named
from dralab.simulation.engines.fast.inventory import Inventory, empty_state
from dralab.simulation.engines.fragmentation import FragmentationLedger
from dralab.simulation.engines.scenario_run import Progress, Stop
from dralab.simulation.lifecycle.model import RunConditions
from dralab.simulation.results.result import Result, StateSample, Task
from dralab.simulation.scenario.scenario import Scenario, digest
from dralab.simulation.scenario.schedulers import PODS
from dralab.simulation.workloads.openb import WHOLE_GPU, GpuNode, GpuPod, PodRequest

OF_IDLE = (50, 75, 90, 95, 100)
OF_TOTAL = (100, 130)


class PlacementMeasure(NamedTuple):
    """The cluster after one pod: GPU milli arrived, allocated, fragmented; was the pod placed."""

    arrived: int
    allocated: int
    fragmented: float
    placed: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacementOutcome:
    """One run: its measures in order, and the nodes as they were left."""

    workload: str
    policy: str
    seed: int
    capacity: int
    measures: Sequence[PlacementMeasure]
    ledger: FragmentationLedger

    def table(self) -> dict[str, str | int | float | None]:
        """Return a row of the published table."""
        return {
            "workload": self.workload,
            "policy": self.policy,
            "seed": self.seed,
            **self.numbers(),
        }

    def numbers(self) -> dict[str, float | None]:
        """Return the numbers as the published table has them; None if no pod falls there."""
        row: dict[str, float | None] = {}
        for percent in OF_TOTAL:
            row[f"alloc_pct@{percent}"] = self._mean(
                percent, lambda m: round(100 * m.allocated / self.capacity, 2)
            )
        for percent in OF_IDLE:
            row[f"frag_pct_of_idle@{percent}"] = self._mean(percent, self._of_idle)
        for percent in OF_TOTAL:
            row[f"frag_pct_of_total@{percent}"] = self._mean(
                percent, lambda m: 100 * m.fragmented / self.capacity
            )
        return row

    def _of_idle(self, measure: PlacementMeasure) -> float:
        idle = self.capacity - measure.allocated
        return 100 * measure.fragmented / idle if idle else 0.0

    def _mean(self, percent: int, value: Callable[[PlacementMeasure], float]) -> float | None:
        """Mean over the measures whose arrived demand rounds to `percent` of the capacity."""
        by_distance: dict[int, list[float]] = {0: [], 1: []}
        for measure in self.measures:
            distance = abs(round(100 * measure.arrived / self.capacity) - percent)
            if distance in by_distance:
                by_distance[distance].append(value(measure))
        values = by_distance[0] or by_distance[1]
        return round(sum(values) / len(values), 4) if values else None


def evenly_shuffled(nodes: Sequence[GpuNode], randomness: Randomness) -> list[GpuNode]:
    """Return the nodes in random order, with each kind spread evenly.

    The authors draw any order. Packing and clustering then differ by more than one point between
    seeds, for nothing but which kind of node happens to come first; drawn evenly the mean is the
    same and the spread half as wide, so fewer seeds say more.
    """
    chance = randomness.stream("nodes")
    kinds: dict[tuple[int, int, int, str], list[GpuNode]] = {}
    for node in nodes:
        kinds.setdefault((node.cpu, node.memory, node.gpus, node.model), []).append(node)
    placed: list[tuple[float, str, GpuNode]] = []
    for _, members in sorted(kinds.items()):
        chance.shuffle(members)
        placed += [
            ((index + chance.random()) / len(members), node.name, node)
            for index, node in enumerate(members)
        ]
    return [node for _, _, node in sorted(placed, key=lambda item: item[:2])]


def inflated(
    pods: Sequence[GpuPod], capacity: int, ratio: float, randomness: Randomness
) -> list[GpuPod]:
    """Return the pods in random order, with clones until they ask for `ratio` times the capacity.

    Clones are drawn from the whole trace with replacement. The check is made with the milli of one
    GPU of the draw, not of all its GPUs: so do the authors. A trace that asks for more than that
    loses pods at random.
    """
    ordered = sorted(pods, key=lambda pod: pod.name)
    chosen = list(ordered)
    randomness.stream("shuffle").shuffle(chosen)
    chance, target = randomness.stream("inflate"), ratio * capacity
    demand = sum(pod.request.demand for pod in chosen)
    while demand > target and chosen:
        demand -= chosen.pop(chance.randrange(len(chosen))).request.demand
    if demand < target and len(chosen) == len(ordered) and any(p.request.gpus for p in ordered):
        while True:
            drawn = ordered[chance.randrange(len(ordered))]
            if demand + drawn.request.milli > target:
                break
            demand += drawn.request.demand
            chosen.append(drawn)
    return chosen


class PlacementExperiment:
    """One run: the pods of a trace, one after the other; the same seed gives the same outcome."""

    def __init__(
        self,
        nodes: Sequence[GpuNode],
        pods: Sequence[GpuPod],
        *,
        policy: str,
        seed: int,
        ratio: float = 1.3,
        workload: str = "",
    ) -> None:
        self.workload, self.policy, self.seed = workload, policy, seed
        randomness = Randomness(seed)
        # Among equal scores the node that comes first wins: so the order is drawn, too.
        ranked = list(nodes) if policy == "firstfit" else evenly_shuffled(nodes, randomness)
        self.state = empty_state(lambda _: None)
        Inventory(ranked, "shares").load(self.state, lambda _: None)
        table = self.state.table
        self.ledger = FragmentationLedger(table, (pod.request for pod in pods))
        self.state.choice = choice_named(policy, table, self.ledger, randomness.stream("policy"))
        self.capacity = sum(WHOLE_GPU * node.gpus for node in ranked)
        self.queue = inflated(pods, self.capacity, ratio, randomness)
        self.measures: list[PlacementMeasure] = []
        self._kinds: dict[tuple[PodRequest, int], PodInfo] = {}
        self._arrived = self._allocated = 0

    def go(
        self,
        progress: Callable[[int, int, int], None] | None = None,
        stop: Callable[[], bool] | None = None,
        most: int | None = None,
    ) -> bool:
        """Place pods, `most` of them; return whether all are.

        `progress` gets 0 for the time: there is none.
        """
        queue, measures = self.queue[:most], self.measures
        with rare_collections():
            for number in range(len(measures), len(queue)):
                measures.append(self._place(queue[number]))
                if number % 100 == 0:
                    if progress is not None:
                        progress(0, number, len(queue))
                    if stop is not None and stop():
                        return False
        return True

    def _place(self, pod: GpuPod) -> PlacementMeasure:
        self._arrived += pod.request.demand
        info = changed(self.kind(pod), uid=str(len(self.measures)))
        found = placement(self.state, info)
        if found is not None:
            self.state.assume_placement(found)
            self._allocated += pod.request.demand
        lost = self.ledger.catch_up()
        return PlacementMeasure(self._arrived, self._allocated, lost, found is not None)

    def kind(self, pod: GpuPod) -> PodInfo:
        """Return the pod that represents a kind."""
        key = pod.request, pod.memory
        found = self._kinds.get(key)
        if found is None:
            found = sharing_pod(pod.name, pod.request, pod.memory)
            self._kinds[key] = found
        return found

    def outcome(self) -> PlacementOutcome:
        """Return the result so far."""
        return PlacementOutcome(
            workload=self.workload,
            policy=self.policy,
            seed=self.seed,
            capacity=self.capacity,
            measures=self.measures,
            ledger=self.ledger,
        )


def run(
    nodes: Sequence[GpuNode],
    pods: Sequence[GpuPod],
    *,
    policy: str,
    seed: int,
    ratio: float = 1.3,
    workload: str = "",
) -> PlacementOutcome:
    """Place the pods of a trace by a policy, all of them."""
    placing = PlacementExperiment(
        nodes, pods, policy=policy, seed=seed, ratio=ratio, workload=workload
    )
    placing.go()
    return placing.outcome()


def write_curve(outcome: PlacementOutcome, path: Path) -> None:
    """Write one row per pod: what the paper's figures 7 and 9 are drawn from."""
    lines = ["arrived_pct,allocated_pct,unallocated_pct,frag_gpus,frag_pct_of_idle,placed"]
    for measure in outcome.measures:
        allocated = 100 * measure.allocated / outcome.capacity
        idle = outcome.capacity - measure.allocated
        lines.append(
            f"{100 * measure.arrived / outcome.capacity:.4f},{allocated:.4f},{100 - allocated:.4f},"
            f"{measure.fragmented / WHOLE_GPU:.4f},"
            f"{100 * measure.fragmented / idle if idle else 0:.4f},{int(measure.placed)}"
        )
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")


class PlacementRun:
    """One run. InputError: the scenario has more than nodes, pods and a policy."""

    def __init__(self, scenario: Scenario, resume: Path | None = None) -> None:
        self.scenario = scenario
        self.complete = False
        self.experiment = _experiment(scenario)
        if resume is not None:
            self.experiment.go(most=checkpoints.read(resume, digest(scenario)))

    def go(self, progress: Progress | None = None, stop: Stop | None = None) -> Result:
        """Continue placing pods."""
        self.complete = self.experiment.go(progress, stop)
        return self.result()

    def result(self) -> Result:
        """Return the result so far."""
        scenario, measures = self.scenario, self.experiment.measures
        pods = self.experiment.queue[: len(measures)]
        return Result(
            name=scenario.name,
            scheduler=scenario.scheduler,
            seed=scenario.seed,
            tasks=[
                _task(number, pod, measure)
                for number, (pod, measure) in enumerate(zip(pods, measures, strict=True), 1)
            ],
            samples=list(_samples(measures)),
            lanes=[node.name for node in scenario.fleet.nodes],
            capacity={"gpu": self.experiment.capacity},
            end=len(measures) * SECOND,
            notes=["pods are placed once, one a second, and never end"],
            complete=self.complete,
            own_numbers=self.outcome().numbers(),
        )

    def outcome(self) -> PlacementOutcome:
        """Return the measures so far."""
        return self.experiment.outcome()

    def save(self, path: Path) -> None:
        """Write a checkpoint of the progress. Resuming replays the placements up to there."""
        checkpoints.write(path, digest(self.scenario), len(self.experiment.measures))


def _experiment(scenario: Scenario) -> PlacementExperiment:
    file, policy, work = scenario.file, scenario.scheduler, scenario.work
    if policy not in PODS:
        known = ", ".join(PODS)
        problem = f"is for built-in policies, {known}; not for {policy!r}"
        raise InputError(file, problem, where="workload.inflate")
    conditions = replace(scenario.conditions, faults=tuple(scenario.conditions.faults))
    if conditions != RunConditions(seed=scenario.seed):
        problem = "places pods once, without time: no faults, queues, lifecycle, order or stop"
        raise InputError(file, problem, where="workload.inflate")
    if not any(node.gpus for node in scenario.fleet.nodes):
        raise InputError(file, "no node has a GPU", where="fleet")
    if not work.pods:
        raise InputError(file, "there are no pods", where="workload")
    return PlacementExperiment(
        scenario.fleet.nodes,
        [GpuPod(pod.name, pod.request, pod.memory) for pod in work.pods],
        policy=policy,
        seed=scenario.seed,
        ratio=work.inflate or 1.0,
        workload=scenario.name,
    )


def _task(number: int, pod: GpuPod, measure: PlacementMeasure) -> Task:
    when = number * SECOND if measure.placed else None
    return Task(
        id=f"{number}-{pod.name}",  # clones have the name of the pod that they are made of
        user="",
        state="Running" if measure.placed else "REJECTED",
        submitted=number * SECOND,
        bound=when,
        started=when,
        ended=None,
        width=max(1, -(-pod.request.cpu // 1000)),
        lanes=(),
        gpu_milli=pod.request.demand,
        reason="" if measure.placed else "fits on no node",
    )


def _samples(measures: Sequence[PlacementMeasure]) -> Iterator[StateSample]:
    placed = 0
    for number, measure in enumerate(measures, 1):
        placed += measure.placed
        yield StateSample(
            number * SECOND, 0, placed, 0, measure.allocated, measure.fragmented,
            refused=number - placed,
        )  # fmt: skip
