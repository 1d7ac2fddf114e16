"""The environment of `dralab.gym`: an agent places tasks, or chooses the queue's next.

Where a task fits is what dralab's scheduler says; time passes from event to event.
"""

import heapq
from collections.abc import Mapping, Sequence
from os import PathLike
from typing import Any, Final, Literal

import gymnasium
import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from dralab.lab.runs import load
from dralab.scenarios.errors import InputError
from dralab.scheduling.demands import NOTHING_WANTED
from dralab.scheduling.kinds import KindScores
from dralab.scheduling.node_columns import MOST_AMOUNTS, NodeAmounts
from dralab.scheduling.pods import PodInfo, changed
from dralab.scheduling.scores import KeptScores
from dralab.scheduling.shares import WHOLE, having
from dralab.scheduling.state import PodPlacement
from dralab.simulation.engines.fast.admitted import sharing_pod
from dralab.simulation.engines.fast.choices import First
from dralab.simulation.engines.fast.inventory import Inventory, empty_state
from dralab.simulation.lifecycle.model import Pod
from dralab.simulation.scenario.scenario import Scenario
from dralab.simulation.workloads.openb import GpuNode, PodRequest

# What is used without a scenario: about 90 % of the GPUs are asked for.
BUSY: Final[Mapping[str, Any]] = {
    "name": "busy",
    "fleet": {"nodes": [{"name": "node", "count": 100, "cpu": 96, "gpus": 8}]},
    "workload": {
        "generate": {
            "count": 5600,
            "arrivals": {"process": "poisson", "over": "12h"},
            "duration": {"distribution": "exponential", "mean": "1h"},
            "pods": [
                {"cpu": 4, "gpus": 1, "gpu_milli": 500, "weight": 4},
                {"cpu": 8, "gpus": 1, "weight": 3},
                {"cpu": 16, "gpus": 2},
                {"cpu": 64, "gpus": 8},
            ],
        }
    },
}
TASK_FEATURES: Final = ("cpu", "memory", "gpus", "gpu_milli", "duration", "waited")
Floats = NDArray[np.float32]
Mask = NDArray[np.int8]


class DevicesEnv(gymnasium.Env[dict[str, Floats], np.int64]):
    """Tasks arrive, wait, run on nodes with GPUs, and end; an agent decides what starts where.

    `scenario` is a file or the mapping of one, with pods that ask for CPU, memory and (parts of)
    GPUs; `reset(seed=...)` draws its arrivals anew. With `decide="place"` an action is the node of
    the next task that fits anywhere, or, the last one, to let it wait for now. With `"queue"` it is
    which of the first `window` waiting tasks starts, on the first node with room, or to wait.
    `info["action_mask"]` says which are possible; any other one waits.

    `nodes` of an observation has a row a node: the part left of CPU and memory, and of each GPU.
    `tasks` has a row for the task (or each of the window): CPU, memory, GPUs, of each of them, how
    long it runs and has waited; times are t / (t + the mean duration), all are from 0 to 1. The sum
    of the rewards is minus the mean wait, in mean durations. InputError.
    """

    metadata: dict[str, Any] = {"render_modes": ["ansi"], "render_fps": 1}  # noqa: RUF012 - as gymnasium has it

    def __init__(
        self,
        scenario: str | PathLike[str] | Mapping[str, Any] = BUSY,
        *,
        decide: Literal["place", "queue"] = "place",
        window: int = 16,
        render_mode: str | None = None,
    ) -> None:
        if decide not in {"place", "queue"}:
            raise ValueError(f'decide: {decide!r} is not one of "place", "queue"')
        self.render_mode = render_mode
        self._scenario = scenario
        self._places = decide == "place"
        self._window = 1 if self._places else window
        self._fleet: Sequence[GpuNode] | None = None
        self._made = 0
        self._begin(0)
        count = len(self._names)
        self.observation_space = spaces.Dict(
            {
                "nodes": spaces.Box(0, 1, (count, 2 + self._gpus), np.float32),
                "tasks": spaces.Box(0, 1, (self._window, len(TASK_FEATURES)), np.float32),
            }
        )
        self.action_space = spaces.Discrete((count if self._places else window) + 1)

    # --- gymnasium

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[dict[str, Floats], dict[str, Any]]:
        """Begin anew, with other arrivals."""
        super().reset(seed=seed, options=options)
        self._begin(int(self.np_random.integers(1 << 31)))
        self._proceed()
        return self._observation(), self._info()

    def step(
        self, action: np.int64 | int
    ) -> tuple[dict[str, Floats], float, bool, bool, dict[str, Any]]:
        """Start a task, or let time pass; return how it is at the next decision."""
        chosen = int(action)
        if chosen != action or not 0 <= chosen < len(self._mask):
            raise ValueError(f"action: {action!r} is not a number from 0 to {len(self._mask) - 1}")
        before = self._waited
        if chosen == len(self._mask) - 1 or not self._mask[chosen]:
            self._declined.update(self._shown)
        elif self._places:
            self._start(self._shown[0], chosen)
        else:
            self._start(self._shown[chosen], self._first[chosen])
        over = self._proceed()
        reward = (before - self._waited) / self._scale
        return self._observation(), reward, over, False, self._info()

    def render(self) -> str:
        """Return the state in a line."""
        return f"{self._now / 1e9:,.0f} s: {len(self._waiting)} wait, {len(self._ends)} run"

    # --- the run

    def _begin(self, seed: int) -> None:
        found = load(self._scenario, scheduler="firstfit", seed=seed)
        self._tasks = sorted(_plain(found), key=lambda pod: pod.arrives)
        self._empty_nodes(found.fleet.nodes)
        kinds = self._kinds
        for pod in self._tasks:
            if (pod.request, pod.memory) not in kinds:
                kinds[pod.request, pod.memory] = sharing_pod(pod.name, pod.request, pod.memory)
        self._infos = [kinds[pod.request, pod.memory] for pod in self._tasks]
        self._mean = sum(pod.duration or 0 for pod in self._tasks) / len(self._tasks)
        self._scale = self._mean * len(self._tasks)
        self._features = self._features_of_tasks()
        self._now = self._waited = self._next = 0
        self._waiting: dict[int, None] = {}
        self._waiting_of: dict[int, dict[int, None]] = {
            kind: {} for kind in dict.fromkeys(map(id, self._infos))
        }
        self._declined: set[int] = set()
        # The kinds that fit nowhere: a start only takes room, so they wait for an end.
        self._without_room: set[int] = set()
        self._shown: list[int] = []
        self._first: list[int] = []
        self._mask: Mask = np.zeros(0, dtype=np.int8)

    def _empty_nodes(self, nodes: Sequence[GpuNode]) -> None:
        """Begin with empty nodes; what is known of equal ones stays for the next episodes."""
        if nodes == self._fleet:
            for _, task, placed in self._ends:
                self._remove(task, placed)
            self._ends.clear()
            return
        self._fleet = nodes
        self._state = empty_state(lambda _: None)
        Inventory(nodes, "shares").load(self._state, lambda _: None)
        self._state.choice = First()
        self._scores = KindScores(self._state)
        self._ends: list[tuple[int, int, PodPlacement]] = []
        table = self._state.table
        self._names = list(table.names)
        self._cpu, self._memory = (
            np.maximum(table.allocatable(name), 1) for name in ("cpu", "memory")
        )
        self._gpus = table.shared_gpus().left.shape[1]
        self._nodes = np.zeros((len(self._names), 2 + self._gpus), dtype=np.float32)
        self._rows: dict[NodeAmounts, Floats] = {}
        self._seen = -1
        self._kinds: dict[tuple[PodRequest, int], PodInfo] = {}
        self._spare: dict[tuple[int, tuple[int, ...]], list[PodInfo]] = {}

    def _features_of_tasks(self) -> Floats:
        cpu, memory = float(self._cpu.max()), float(self._memory.max())
        gpus = max(1, self._gpus)
        rows = [
            (
                pod.request.cpu / cpu, pod.memory / memory, pod.request.gpus / gpus,
                pod.request.milli / WHOLE, _part(pod.duration or 0, self._mean), 0.0,
            )
            for pod in self._tasks
        ]  # fmt: skip
        return np.clip(np.array(rows, dtype=np.float32), 0, 1)

    def _proceed(self) -> bool:
        """Let time pass until there is something to decide; return whether all have started."""
        while not self._look():
            to_come = self._next < len(self._tasks)
            if to_come and (not self._ends or self._tasks[self._next].arrives < self._ends[0][0]):
                when = self._tasks[self._next].arrives
            elif self._ends:
                when = self._ends[0][0]
            else:
                return True
            self._waited += len(self._waiting) * (when - self._now)
            self._now = when
            while self._ends and self._ends[0][0] <= when:
                _, task, placed = heapq.heappop(self._ends)
                self._remove(task, placed)
                self._declined.clear()
                self._without_room.clear()
            while self._next < len(self._tasks) and self._tasks[self._next].arrives <= when:
                self._waiting[self._next] = None
                self._waiting_of[id(self._infos[self._next])][self._next] = None
                self._next += 1
                if not self._places:
                    self._declined.clear()
        return False

    def _look(self) -> bool:
        """Find out what may be decided now; return whether there is anything."""
        return self._look_for_place() if self._places else self._look_at_queue()

    def _look_for_place(self) -> bool:
        if not self._waiting:
            return False
        declined, heads = self._declined, []
        for kind, tasks in self._waiting_of.items():
            if kind not in self._without_room:
                for task in tasks:
                    if task not in declined:
                        heads.append(task)
                        break
        heads.sort()  # tasks are numbered in the order in which they arrive
        for task in heads:
            room = self._room(self._infos[task])
            if room is not None:
                self._shown = [task]
                fits = np.empty(len(room) + 1, dtype=bool)
                np.greater_equal(room, 0, out=fits[:-1])
                fits[-1] = True
                self._mask = fits.view(np.int8)
                return True
        return False

    def _look_at_queue(self) -> bool:
        self._mask = np.zeros(self._window + 1, dtype=np.int8)
        self._shown = []
        firsts: dict[int, int] = {}
        for task in self._waiting:
            if len(self._shown) == self._window:
                break
            self._shown.append(task)
            info = self._infos[task]
            if id(info) not in firsts:
                room = self._room(info)
                firsts[id(info)] = -1 if room is None else int(room.argmax())
        self._first = [firsts[id(self._infos[task])] for task in self._shown]
        for at, task in enumerate(self._shown):
            self._mask[at] = self._first[at] >= 0 and task not in self._declined
        self._mask[-1] = self._mask.any()
        return bool(self._mask[-1])

    def _room(self, info: PodInfo) -> KeptScores | None:
        """Return the score of each node, negative where a pod does not fit; None: it fits nowhere.

        What there is left changes on a few nodes at a time, which is all that is looked at.
        """
        if id(info) in self._without_room:
            return None
        found = self._scores.scores_of(id(info), info, NOTHING_WANTED)
        if found is None:
            raise RuntimeError(f"pods of plain amounts are kept, and {info.key} is not")
        if found[found.argmax()] >= 0:
            return found
        self._without_room.add(id(info))
        return None

    def _start(self, task: int, row: int) -> None:
        info, shares = self._infos[task], self._infos[task].shares
        taken = () if shares is None else self._state.table.chosen_gpus(row, shares)
        # Pods that are over come again: to make one takes as long as all the rest of a step.
        spare = self._spare.setdefault((id(info), taken), [])
        if spare:
            pod = spare.pop()
        else:
            self._made += 1
            shares = None if shares is None else having(shares, taken)
            pod = changed(info, uid=str(self._made), shares=shares)
        placed = PodPlacement(pod, self._names[row])
        self._state.assume_placement(placed)
        del self._waiting[task]
        del self._waiting_of[id(info)][task]
        heapq.heappush(self._ends, (self._now + (self._tasks[task].duration or 0), task, placed))

    def _remove(self, task: int, placed: PodPlacement) -> None:
        self._state.forget_placement(placed)
        taken = () if placed.pod.shares is None else placed.pod.shares.taken
        self._spare[id(self._infos[task]), taken].append(placed.pod)

    # --- what an agent sees

    def _observation(self) -> dict[str, Floats]:
        self._look_at_nodes()
        tasks = np.zeros((self._window, len(TASK_FEATURES)), dtype=np.float32)
        if self._shown:
            count = len(self._shown)
            tasks[:count] = self._features[self._shown]
            tasks[:count, -1] = [
                _part(self._now - self._tasks[task].arrives, self._mean) for task in self._shown
            ]
        return {"nodes": self._nodes.copy(), "tasks": tasks}

    def _look_at_nodes(self) -> None:
        """Take over what has changed on nodes since the last look."""
        table, nodes, known = self._state.table, self._nodes, self._rows
        rows, self._seen = table.touched.since(self._seen), table.touched.position
        for row in range(len(self._names)) if rows is None else rows:
            amounts = table.amounts(row)
            seen = known.get(amounts)
            if seen is None:
                if len(known) >= MOST_AMOUNTS:
                    known.clear()
                seen = known[amounts] = self._row_of(row)
            nodes[row] = seen

    def _row_of(self, row: int) -> Floats:
        """Return the parts of a node that are left."""
        table = self._state.table
        left = table.gpus.left[row, : self._gpus] * (1 / WHOLE)
        cpu, memory = table.free("cpu")[row], table.free("memory")[row]
        parts = [cpu / self._cpu[row], memory / self._memory[row], *left]
        return np.array(parts, dtype=np.float32)

    def _info(self) -> dict[str, Any]:
        return {"action_mask": self._mask, "time": self._now / 1e9, "waiting": len(self._waiting)}


def _plain(scenario: Scenario) -> tuple[Pod, ...]:
    """Return pods that end and ask for nothing but amounts. InputError."""
    pods, conditions = scenario.pods(), scenario.conditions
    if not pods or scenario.work.objects or scenario.work.inflate is not None:
        raise InputError(scenario.file, "an environment needs pods that arrive", where="workload")
    for pod in pods:
        if pod.body is not None or pod.gang or not pod.duration:
            problem = "an environment takes pods of plain amounts with a duration, without gangs"
            raise InputError(scenario.file, problem, where=f"Pod {pod.key}")
    if conditions.faults or conditions.random_faults or conditions.quotas:
        raise InputError(scenario.file, "an environment has neither faults nor queues")
    return pods


def _part(time: float, mean: float) -> float:
    return time / (time + mean) if time else 0.0
