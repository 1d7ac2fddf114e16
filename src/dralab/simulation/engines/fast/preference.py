"""A user's policy for pods: a class with `prefer(pod, node)`, asked for every node with room."""

import traceback
from collections.abc import Callable, Mapping
from typing import Any, Final

import numpy as np

from dralab.scenarios.errors import InputError
from dralab.scheduling.nodes import Mask, NodeTable, Numbers
from dralab.scheduling.pods import PodInfo
from dralab.scheduling.scores import NodeChoice, ScoredNodes, ScorePlugin
from dralab.scheduling.shares import WHOLE, Shares
from dralab.simulation.engines.cluster.tasks import ClusterTask
from dralab.simulation.lifecycle.model import Pod

SCALE: Final = 1_000_000
# Scores are whole numbers that are not negative; a user's may be neither.
MIDDLE: Final = 1 << 51


def mistake(user: Any, method: str, error: Exception) -> InputError:
    """Return what went wrong in a user's method, with the file and the line."""
    frames = traceback.extract_tb(error.__traceback__)
    own = [each for each in frames if each.name == method] or list(frames)
    first, last = own[0], frames[-1]
    at = last if last.filename == first.filename else first
    where = f"{type(user).__name__}.{method}"
    return InputError(at.filename, f"{type(error).__name__}: {error}", line=at.lineno, where=where)


class PodView:
    """A pod: CPU in milli, memory in bytes, GPUs, milli of each; and all of the scenario's task."""

    def __init__(self, pod: PodInfo, look_up: Callable[[str], Pod]) -> None:
        shares = pod.shares or Shares(0, 0)
        self.namespace, self.labels, self.priority = pod.key.namespace, pod.labels, pod.priority
        self.requests: Mapping[str, int] = pod.requests
        self.cpu = pod.requests.get("cpu", 0)
        self.memory = pod.requests.get("memory", 0)
        self.gpus, self.gpu_milli, self.models = shares.gpus, shares.milli, shares.models
        self._uid = pod.uid
        self._look_up = look_up

    @property
    def task(self) -> Pod:
        """Its name, times, user, queue, gang, and its object as it was written (`body`).

        From now on pods that ask alike are told apart, which takes time.
        """
        return self._look_up(self._uid)


class NodeView:
    """What is left on a node: CPU in milli, memory in bytes, milli of each GPU."""

    def __init__(self, table: NodeTable, row: int) -> None:
        columns = table.shared_gpus()
        self.name, self.labels = table.names[row], table.labels[row]
        self.cpu, self.memory = int(table.free("cpu")[row]), int(table.free("memory")[row])
        self.gpus = tuple(columns.left[row, : columns.number[row]].tolist())
        self.model = columns.models[columns.model[row]]
        self.cpu_in_all = int(table.allocatable("cpu")[row])
        self.memory_in_all = int(table.allocatable("memory")[row])

    @property
    def idle_gpus(self) -> int:
        """GPUs that are free as a whole."""
        return sum(left == WHOLE for left in self.gpus)


class Preference(NodeChoice):
    """Makes a choice of a user's `prefer`."""

    kept = np.float64
    refuses_nodes = True
    preempts = False
    by_node = True

    def __init__(
        self, name: str, user: Any, table: NodeTable, tasks: Mapping[str, ClusterTask]
    ) -> None:
        self.name = name
        self.user = user
        self.table = table
        self.tasks = tasks
        self.plugins = (ScorePlugin(name, 1, self._points),)

    def _points(self, state: ScoredNodes, pod: PodInfo, fitting: Mask) -> Numbers:
        """Ask for each node."""
        found = np.full(state.table.size, -1, dtype=np.int64)
        nodes, rows = np.flatnonzero(fitting), state.table.rows
        numbers = nodes if isinstance(rows, slice) else rows[nodes]
        view = PodView(pod, self._look_up)
        for node, row in zip(nodes.tolist(), numbers.tolist(), strict=True):
            try:
                wish = self.user.prefer(view, NodeView(self.table, row))
            except InputError:
                raise
            except Exception as error:
                raise mistake(self.user, "prefer", error) from error
            if wish is not None:
                found[node] = MIDDLE + self._scaled(wish)
        return found

    def _look_up(self, uid: str) -> Pod:
        self.by_object = True
        return self.tasks[uid].pod

    def _scaled(self, wish: Any) -> int:
        try:
            scaled = round(float(wish) * SCALE)
        except (TypeError, ValueError, OverflowError):
            scaled = MIDDLE
        if abs(scaled) >= MIDDLE:
            most = MIDDLE // SCALE
            raise InputError(
                f"{type(self.user).__name__}.prefer",
                f"must return a number between {-most} and {most}, or None, and returned {wish!r}",
            )
        return scaled
