"""The record of every pod: updated during the run, and converted to results at the end."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache

from dralab.scheduling.shares import Shares
from dralab.simulation.engines.fragmentation import FragmentationLedger, NodeRoom
from dralab.simulation.engines.objects import GPU_PREFIX
from dralab.simulation.lifecycle.model import Pod
from dralab.simulation.lifecycle.tasks import TaskRecord
from dralab.simulation.results.result import Result, SampleColumns
from dralab.simulation.scenario.scenario import Scenario
from dralab.simulation.workloads.openb import GpuNode, PodRequest


@dataclass(slots=True)
class ClusterTask(TaskRecord):
    """A task. `name` is that of its current pod; a restarted task gets a new pod.

    `devices` are their names on its node. `gone`: its pod was deleted. `failed`: one of its
    containers failed.
    """

    name: str = field(kw_only=True)
    uid: str = ""
    devices: tuple[str, ...] = ()
    failed: bool = False
    gone: bool = False
    runs: int = 0

    @property
    def is_over(self) -> bool:
        """Whether it has ended for good."""
        return self.state in {"Succeeded", "Failed"}

    def begin_anew(self, reason: str) -> None:
        """Start over, with another pod."""
        self.runs += 1
        self.name = f"{self.pod.name}-again-{self.runs}"
        self.uid = ""
        self.devices, self.failed, self.gone = (), False, False
        self.wait_again(reason)


@dataclass(slots=True)
class ClusterTasks:
    """All tasks, the numbers of waiting and running ones, and their resources."""

    records: list[ClusterTask] = field(default_factory=list)
    by_uid: dict[str, ClusterTask] = field(default_factory=dict)
    refusals: Counter[str] = field(default_factory=Counter)
    refusals_total: int = 0
    over: int = 0
    waiting: int = 0
    running: int = 0
    cpu: int = 0
    gpu: int = 0
    memory: int = 0
    asked: int = 0
    evicted: int = 0
    types: Sequence[str] = ()
    gpus: "GpuUsage | None" = None
    samples: SampleColumns = field(init=False)

    def __post_init__(self) -> None:
        self.samples = SampleColumns(len(self.types) if self.gpus is not None else 0)

    def follow_gpus(self, gpus: "GpuUsage") -> None:
        """Start tracking the use of GPUs, before the first sample."""
        self.gpus = gpus
        self.samples = SampleColumns(len(self.types))

    def wait(self, task: ClusterTask, sign: int) -> None:
        """Count a task as waiting, or no longer."""
        self.waiting += sign
        self.asked += sign * task.pod.request.cpu

    def count_held(self, task: ClusterTask, sign: int) -> None:
        """Count the resources that a task takes when bound, or releases."""
        pod = task.pod
        gpu = sign * pod.request.demand
        self.running += sign
        self.cpu += sign * pod.request.cpu
        self.memory += sign * pod.memory
        self.gpu += gpu
        if self.gpus is not None:
            self.gpus.count_held(task, sign, gpu)

    def evict(self, task: ClusterTask) -> None:
        """Count a run that was lost."""
        task.evictions += 1
        self.evicted += 1

    def refused(self, task: ClusterTask, message: str, titles: Iterable[str]) -> None:
        """Record that a pod cannot be placed, and why; refusals are counted by their titles."""
        if task.reason != message:
            task.reason = message
            for title in dict.fromkeys(titles):
                self.refusals[title] += 1
                self.refusals_total += 1

    def sample(self, now: int) -> None:
        """Take a sample of the present state."""
        gpus = self.gpus
        fragmented, types = (0.0, ()) if gpus is None else (gpus.lost, gpus.in_use(self.types))
        # The fields of `StateSample`, in their order; one for each instant of a run.
        self.samples.add_row(
            (now, self.waiting, self.running, self.cpu, self.gpu, fragmented, self.memory,
             self.asked, self.over, self.evicted, self.refusals_total, 0.0, *types)
        )  # fmt: skip

    def result(
        self,
        scenario: Scenario,
        devices: Mapping[str, Sequence[str]],
        span: tuple[int, int],
        outages: Iterable[tuple[str, int, int]],
    ) -> Result:
        """Return the result of a run that began and ended at the times of `span`.

        What the run had is left to be said. A task is on the lanes of its devices, or of its node.
        """
        begin, end = span
        lanes = lanes_of(devices)
        place = {lane: index for index, lane in enumerate(lanes)}
        life, tasks = scenario.conditions.life, []
        for task in self.records:
            names = [f"{task.node}/{device}" for device in task.devices]
            used = [place[name] for name in names if name in place]
            if not used and task.node in place:
                used = [place[task.node]]
            tasks.append(task.task(sorted(used), end, life, begin=begin))
        return Result(
            name=scenario.name,
            scheduler=scenario.scheduler,
            seed=scenario.seed,
            tasks=tasks,
            samples=self.samples,
            lanes=lanes,
            capacity={},
            end=end - begin,
            outages=[(place[name], since - begin, until - begin) for name, since, until in outages],
            refusals=dict(self.refusals),
        )


class GpuUsage:
    """The free resources of every node and GPU, for fragmentation and the use of each model.

    Where the scheduler's own state has the GPUs, `ledger` follows it.
    """

    def __init__(
        self,
        nodes: Sequence[GpuNode],
        pods: Iterable[Pod],
        ledger: FragmentationLedger | None = None,
    ) -> None:
        self._nodes = nodes
        self._number = {node.name: index for index, node in enumerate(nodes)}
        self._models = {node.name: node.model for node in nodes}
        self._room: NodeRoom | None = None
        if ledger is None:
            self._room = NodeRoom(nodes)
            ledger = FragmentationLedger(self._room, (pod.request for pod in pods))
        self._ledger = ledger
        self.types: Counter[str] = Counter()

    @property
    def lost(self) -> float:
        """The fragmentation of all nodes."""
        return self._ledger.catch_up()

    def in_use(self, types: Sequence[str]) -> tuple[int, ...]:
        """Return what is in use of these models, in milli."""
        return tuple(map(self.types.__getitem__, types))

    def left_of(self, node: str) -> tuple[tuple[int, ...], str]:
        """Return what is left of each GPU of a node, and their model."""
        number = self._number.get(node)
        if number is None or self._room is None:
            return (), ""
        columns = self._room.shared_gpus()
        left = columns.left[number, : columns.number[number]].tolist()
        return tuple(left), columns.models[columns.model[number]]

    def count_held(self, task: ClusterTask, sign: int, gpu: int) -> None:
        """Count the resources that a task takes or releases; `gpu` is what changes, in milli."""
        if self._room is None:
            model = self._models.get(task.node)
            if model is not None:
                self.types[model] += gpu
            return
        request = task.pod.request
        number = self._number.get(task.node)
        if number is None:
            return
        node = self._nodes[number]
        shares = _shares_of(request, task.devices, node.gpus)
        self._room.take(number, request.cpu, shares, sign)
        if shares.taken:
            self.types[node.model] += gpu


@lru_cache(maxsize=1 << 16)
def _shares_of(request: PodRequest, devices: tuple[str, ...], gpus: int) -> Shares:
    """Return the GPUs of a node with so many that a request has by the names of its devices."""
    taken = [
        int(name.removeprefix(GPU_PREFIX))
        for name in devices
        if name.startswith(GPU_PREFIX) and name.removeprefix(GPU_PREFIX).isdecimal()
    ]
    if len(taken) != request.gpus or max(taken, default=0) >= max(1, gpus):
        taken = []  # devices of another user's driver
    return Shares(request.gpus, request.milli, request.models, tuple(taken))


def all_devices(*kinds: Mapping[str, Sequence[str]]) -> dict[str, list[str]]:
    """Return the devices of each node, of several kinds.

    >>> all_devices({"n0": ["gpu-0"]}, {"n1": ["nic"], "n0": ["nic"]})
    {'n0': ['gpu-0', 'nic'], 'n1': ['nic']}
    """
    found: dict[str, list[str]] = {}
    for devices in kinds:
        for node, names in devices.items():
            found.setdefault(node, []).extend(names)
    return found


def lanes_of(devices: Mapping[str, Sequence[str]]) -> list[str]:
    """Return the lanes of a chart: each node, and after it its devices."""
    found: list[str] = []
    for node, names in devices.items():
        found += [node, *(f"{node}/{name}" for name in names)]
    return found
