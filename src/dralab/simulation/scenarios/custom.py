"""Schedulers and drivers that users write: `file.py:Class`, in the folder of the scenario.

For rigid jobs: a class with `begin`, `decide` and `end` (`batch.messages.Scheduler`). For pods: a
class with `prefer(pod, node)`, which returns a number (higher is better) or None (cannot go
there); it is asked for every node that has enough left.
"""

import importlib.util
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from dralab.simulation.batch.messages import Scheduler
from dralab.simulation.errors import InputError, inside
from dralab.simulation.openb.cluster import GpuCluster
from dralab.simulation.openb.fragmentation import Ints
from dralab.simulation.openb.policies import Policy
from dralab.simulation.workloads.openb import WHOLE_GPU, Shape

SCALE = 1_000_000
# Scores are whole and not negative; what a user says may be neither.
MIDDLE = 1 << 60


class PodView(NamedTuple):
    """What a pod asks for: CPU in milli, memory in bytes, GPUs, milli of each."""

    cpu: int
    memory: int
    gpus: int
    gpu_milli: int
    models: str


class NodeView(NamedTuple):
    """What is left on a node: CPU in milli, memory in bytes, milli of each GPU."""

    name: str
    cpu: int
    memory: int
    gpus: tuple[int, ...]
    model: str
    cpu_in_all: int
    memory_in_all: int

    @property
    def idle_gpus(self) -> int:
        """GPUs of which nobody has a part."""
        return sum(left == WHOLE_GPU for left in self.gpus)


class PreferencePolicy:
    """Makes a policy of a user's `prefer`."""

    uses_memory = True

    def __init__(self, user: Any) -> None:
        self.user = user

    def score(
        self, cluster: GpuCluster, shape: Shape, memory: int, nodes: Ints
    ) -> tuple[Ints, Ints | None]:
        """Ask for each node."""
        pod = PodView(shape.cpu, memory, shape.gpus, shape.milli, shape.models)
        scores = np.full(len(nodes), -1, dtype=np.int64)
        for position, index in enumerate(nodes.tolist()):
            wish = self.user.prefer(pod, _view(cluster, index))
            if wish is not None:
                scores[position] = MIDDLE + self._scaled(wish)
        return scores, None

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


def _view(cluster: GpuCluster, index: int) -> NodeView:
    node = cluster.nodes[index]
    return NodeView(
        node.name,
        int(cluster.cpu[index]),
        int(cluster.memory[index]),
        tuple(cluster.gpus[index, : node.gpus].tolist()),
        node.model,
        node.cpu,
        node.memory,
    )


def is_file(scheduler: str) -> bool:
    """Return whether a scheduler is named as `file.py:Class`."""
    file, colon, name = scheduler.rpartition(":")
    return bool(colon) and file.endswith(".py") and name.isidentifier()


def check(scheduler: str, scenario: Path) -> None:
    """Load the class, and refuse one that is neither kind of scheduler."""
    made = load_class(scheduler, scenario)
    if not hasattr(made, "prefer") and not hasattr(made, "decide"):
        raise InputError(
            scenario, f"{scheduler} has neither prefer (pods) nor decide (jobs)", where="scheduler"
        )


def policy(scheduler: str, scenario: Path) -> Policy | None:
    """Return the user's policy for pods; None for a built-in name."""
    if not is_file(scheduler):
        return None
    return PreferencePolicy(load_class(scheduler, scenario)())


def batch_scheduler(scheduler: str, scenario: Path) -> Scheduler:
    """Return the user's scheduler of rigid jobs."""
    made: Scheduler = load_class(scheduler, scenario)()
    return made


def load_class(named: str, scenario: Path, where: str = "scheduler") -> Callable[..., Any]:
    """Return the class of `file.py:Class`; InputError: no such file or class."""
    file, _, name = named.rpartition(":")
    path = inside(scenario.parent, file, file=scenario, where=where)
    module_name = f"dralab_{where}_{path.stem}"
    spec = importlib.util.spec_from_file_location(module_name, path)
    if spec is None or spec.loader is None:
        raise InputError(scenario, f"{file!r} is no Python file", where=where)
    module = importlib.util.module_from_spec(spec)
    sys.modules[module_name] = module
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        raise InputError(path, f"cannot be loaded: {error!r}") from error
    made: Callable[..., Any] | None = getattr(module, name, None)
    if made is None:
        raise InputError(path, f"there is no class {name!r}")
    return made
