"""GenericScheduler: filters, then weighted scores; one pod after the other, the head blocks."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final

from dralab.simulation.engines.ticks.model import (
    Bind,
    BoundPod,
    Delete,
    PodQueue,
    TickNode,
    TickPod,
)

Predicate = Callable[[TickPod, TickNode, int], bool]
Map = Callable[[TickPod, TickNode, int], float]
Reduce = Callable[[Sequence[float]], Sequence[float]]
HIGHEST: Final = 10


@dataclass(frozen=True, slots=True)
class Prioritizer:
    """A score per node, perhaps made comparable by `reduce`, times a weight."""

    name: str
    map: Map
    reduce: Reduce | None = None
    weight: float = 1.0


def fits(pod: TickPod, node: TickNode, clock: int) -> bool:
    """PodFitsResources."""
    return node.fits(pod, clock)


def least_requested(pod: TickPod, node: TickNode, clock: int) -> float:
    """The more CPU and memory stay free, the better: 0 to 10."""
    return sum(_free(pod, node, clock, name) for name in ("cpu", "memory")) / 2 * HIGHEST


def balanced(pod: TickPod, node: TickNode, clock: int) -> float:
    """The nearer the free shares of CPU and memory are, the better: 0 to 10."""
    gap = _free(pod, node, clock, "cpu") - _free(pod, node, clock, "memory")
    return (1 - abs(gap)) * HIGHEST


def _free(pod: TickPod, node: TickNode, clock: int, name: str) -> float:
    full = node.allocatable.get(name, 0)
    if not full:
        return 0.0
    taken = node.requested(clock).get(name, 0) + pod.requests.get(name, 0)
    return max(0.0, float((full - taken) / full))


@dataclass(slots=True)
class GenericScheduler:
    """As k8s-cluster-simulator's: with preemption, victims of lower priority become Deletes."""

    preemption: bool = False
    predicates: list[Predicate] = field(default_factory=lambda: [fits])
    prioritizers: list[Prioritizer] = field(
        default_factory=lambda: [
            Prioritizer("LeastRequested", least_requested),
            Prioritizer("BalancedResourceAllocation", balanced),
        ]
    )

    def schedule(
        self, clock: int, queue: PodQueue, nodes: Sequence[TickNode]
    ) -> Sequence[Bind | Delete]:
        """Bind from the front; the first pod that fits nowhere ends the cycle."""
        events: list[Bind | Delete] = []
        while (pod := queue.front()) is not None:
            able = [node for node in nodes if all(p(pod, node, clock) for p in self.predicates)]
            if not able:
                if self.preemption:
                    events += self._victims(pod, nodes, clock)
                return events
            queue.pop()
            best = self._best(pod, able, clock)
            # The next pod of this cycle must see that this one has its place.
            best.pods[pod.key] = BoundPod(pod, best.name, clock)
            events.append(Bind(pod, best.name))
        return events

    def _best(self, pod: TickPod, able: Sequence[TickNode], clock: int) -> TickNode:
        scores = [0.0] * len(able)
        for prioritizer in self.prioritizers:
            raw: Sequence[float] = [prioritizer.map(pod, node, clock) for node in able]
            if prioritizer.reduce is not None:
                raw = prioritizer.reduce(raw)
            scores = [s + prioritizer.weight * r for s, r in zip(scores, raw, strict=True)]
        return max(zip(scores, able, strict=True), key=lambda pair: pair[0])[1]

    def _victims(self, pod: TickPod, nodes: Sequence[TickNode], clock: int) -> list[Delete]:
        """Return the fewest pods of lower priority whose end makes room on some node."""
        best: list[BoundPod] | None = None
        for node in nodes:
            lower = [
                bound
                for bound in node.pods.values()
                if bound.running(clock) and bound.pod.priority < pod.priority
            ]
            lower.sort(key=lambda bound: (bound.pod.priority, -bound.bound_at))
            for count in range(1, len(lower) + 1):
                left = {k: b for k, b in node.pods.items() if b not in lower[:count]}
                if TickNode(node.name, node.allocatable, node.labels, left).fits(pod, clock):
                    if best is None or count < len(best):
                        best = lower[:count]
                    break
        return [Delete(bound.pod.name, bound.pod.namespace) for bound in best or ()]
