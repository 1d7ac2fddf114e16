"""Waiting pods, grouped into classes that are equal for a scheduler.

Where one pod of a class fits nowhere, none of its class does, so a round tries each class at most
until its first failure. After something was freed on some nodes, only classes that would fit one
of those nodes are retried: nothing else has changed for the rest.
"""

import heapq
from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

import numpy as np

from dralab.simulation.engines.gpu.cluster import GpuCluster
from dralab.simulation.lifecycle.model import Pod
from dralab.simulation.workloads.openb import PodRequest


class PodClass(NamedTuple):
    """What makes pods alike; `gang` is set for each gang alone."""

    priority: int
    queue: str
    request: PodRequest
    memory: int
    gang: str


class WaitingPodClasses:
    """The queue: by priority, then by arrival."""

    def __init__(self) -> None:
        self._classes: dict[PodClass, list[tuple[int, Pod]]] = {}
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def add_pod(self, number: int, pod: Pod) -> PodClass:
        """Put a pod in; `number` is its place among equals (the first arrival is the lowest)."""
        kind = PodClass(pod.priority, pod.queue, pod.request, pod.memory, pod.gang)
        heapq.heappush(self._classes.setdefault(kind, []), (number, pod))
        self._count += 1
        return kind

    def pods(self) -> Iterator[Pod]:
        """Yield all, in no promised order."""
        for members in self._classes.values():
            for _, pod in members:
                yield pod

    def members(self, kind: PodClass) -> list[Pod]:
        """Return the pods of a class, first arrival first."""
        return [pod for _, pod in sorted(self._classes.get(kind, []))]

    def worth_trying(self, cluster: GpuCluster, nodes: Iterable[int]) -> list[PodClass]:
        """Return the classes that fit one of the nodes, were it alone (of a gang: one pod)."""
        classes = list(self._classes)
        if not classes:
            return []
        rows = np.array(
            [(k.request.cpu, k.memory, k.request.milli, k.request.gpus) for k in classes]
        )
        fits = np.zeros(len(classes), dtype=bool)
        for node in sorted(set(nodes)):
            if cluster.down[node]:
                continue
            left = cluster.gpus[node]
            size = np.maximum(rows[:, 2], 1)
            shares = (left // size[:, None]).sum(axis=1)
            fits |= (
                (rows[:, 0] <= cluster.cpu[node])
                & (rows[:, 1] <= cluster.memory[node])
                & ((rows[:, 3] == 0) | (shares >= rows[:, 3]))
            )
        return [kind for kind, able in zip(classes, fits, strict=True) if able]

    def round(
        self, kinds: Iterable[PodClass], attempt: Callable[[list[Pod]], bool], *, blocking: bool
    ) -> int:
        """Try pods in order until the first failure of their class; return how many were taken.

        `attempt` gets one pod, or all of a gang. With `blocking`, the first failure ends the round,
        and the head of all that wait comes first, whatever may have changed for it.
        """
        heads = [
            (-kind.priority, self._classes[kind][0][0], kind)
            for kind in set(self._classes if blocking else kinds)
            if kind in self._classes
        ]
        heapq.heapify(heads)
        taken = 0
        while heads:
            _, _, kind = heapq.heappop(heads)
            members = self._classes[kind]
            pods = self.members(kind) if kind.gang else [members[0][1]]
            if not attempt(pods):
                if blocking:
                    return taken
                continue
            taken += len(pods)
            self._count -= len(pods)
            if kind.gang or len(members) == 1:
                del self._classes[kind]
            else:
                heapq.heappop(members)
                heapq.heappush(heads, (-kind.priority, members[0][0], kind))
        return taken
