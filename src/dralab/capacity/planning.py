"""Nodes to add so that waiting pods run, the fewest or the cheapest; and nodes to remove.

A plan is grown node by node: the shape comes next whose node serves most for its price, where
pods that every shape serves badly count more. Then nodes are left out again as long as all pods
still run. Every plan is tried with the scheduler on the whole cluster, so what it promises holds.
How far from the cheapest it is at most, `least` tells: a bound by CP-SAT (`allocation.node_bound`).
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, Final

from dralab.allocation.node_bound import NodeOffer, least_price
from dralab.capacity.changes import AddNodes, RemoveNode
from dralab.capacity.move_costs import BELONGS
from dralab.capacity.need import PodToPlace
from dralab.capacity.page_words import PageWords
from dralab.kernel.extras import MissingExtraError
from dralab.objects.nodes import PODS
from dralab.scheduling.demands import BlockedPod
from dralab.scheduling.model import ClusterModel
from dralab.scheduling.pods import PodInfo
from dralab.scheduling.state import PodPlacement, Refusal
from dralab.values.json_types import JsonDict
from dralab.values.records import dataclass

# Nodes that a plan has at most.
MOST_NODES = 2_000
HIGHEST_PRICE: Final = 1_000_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class NodePlan:
    """Nodes to add by shape, and what becomes of the pods that wait.

    `fitting` pods need no new node, `served` run with the new ones; `unserved` fit on no shape, or
    the budget ends before; with why they wait. `codes` say why those wait without new nodes.
    No plan that serves the same pods has a lower price than `least`; None: not known without
    OR-Tools.
    """

    nodes: Mapping[str, int]
    price: float
    fitting: Sequence[PodInfo]
    served: Sequence[PodInfo]
    unserved: Mapping[str, tuple[PodInfo, str]]
    codes: Mapping[str, str]
    least: float | None = None


def is_price(value: Any) -> bool:
    """Return whether a value is the price of a node, or a budget."""
    number = isinstance(value, int | float) and not isinstance(value, bool)
    return number and 0 <= value < HIGHEST_PRICE


def plan(model: ClusterModel, prices: Mapping[str, float], budget: float | None = None) -> NodePlan:
    """Return the nodes to add for the pods that wait; the model is left as it was.

    `prices` names the shapes, or nodes to copy, with the price of a node. UnknownName: there is no
    such shape or node.
    """
    for name in prices:
        AddNodes(name, 1).objects(model)  # an unknown one is an error though nothing waits
    with model.tentatively():
        decided = model.run(model.waiting)
        fitting = [pod for pod in model.waiting if isinstance(decided[pod.uid], PodPlacement)]
        refused = [each for pod in model.waiting if isinstance(each := decided[pod.uid], Refusal)]
        backlog = [each.pod for each in refused]
        planner = _Planner(model, prices, backlog)
        unserved = {
            pod.uid: (pod, "it fits on no node of these shapes: " + planner.why[pod.uid])
            for pod in backlog
            if pod.uid in planner.why
        }
        wanted = [pod for pod in backlog if pod.uid not in unserved]
        nodes = planner.grown(wanted, budget)
        served = planner.tried(nodes, wanted)
        if len(served) == len(wanted):
            nodes = planner.reduced(nodes, wanted)
        there = {pod.uid for pod in served}
        for pod in wanted:
            if pod.uid not in there:
                unserved[pod.uid] = pod, "the budget does not suffice for it"
        least = planner.least(served)
        words = PageWords(model)
        codes = {each.pod.uid: words(each).code for each in refused if each.pod.uid in unserved}
    return NodePlan(
        nodes={name: count for name, count in nodes.items() if count},
        price=planner.price(nodes),
        fitting=fitting,
        served=served,
        unserved=unserved,
        codes=codes,
        least=least,
    )


@dataclass(frozen=True, slots=True)
class Removable:
    """Nodes that can be removed, in order, with the pods that move; and those that must stay."""

    nodes: Sequence[tuple[str, Sequence[tuple[PodInfo, str]]]]
    stay: Mapping[str, str]


def removable(model: ClusterModel, refused: Mapping[str, str]) -> Removable:
    """Return nodes that can be removed while every running or starting pod still runs.

    Nodes with the fewest pods come first; `refused` are pods that may not move, by uid, with why.
    The model is left as it was. It is a way that works, not the largest set of nodes there is.
    """
    found: list[tuple[str, list[tuple[PodInfo, str]]]] = []
    stay: dict[str, str] = {}
    with model.tentatively():
        model.run(model.waiting)
        names = sorted(model.state.table.row_of, key=lambda name: (len(model.on(name)), name))
        for name in names:
            there = [each.pod for each in model.on(name)]
            pinned = next((p for p in there if refused.get(p.uid, BELONGS) != BELONGS), None)
            if pinned is not None:
                stay[name] = f"{pinned.key} may not move: {refused[pinned.uid]}"
                continue
            mark = model.mark()
            leaving = RemoveNode(name).apply(model)
            decided = model.run(leaving)
            lost = [pod for pod in leaving if isinstance(decided[pod.uid], Refusal)]
            if lost:
                model.rollback(mark)
                stay[name] = f"{lost[0].key} would find no other place"
                continue
            moved = [
                (pod, each.node)
                for pod in leaving
                if isinstance(each := decided[pod.uid], PodPlacement)
            ]
            found.append((name, moved))
    return Removable(found, stay)


class _Planner:
    """Shapes, what a node of each serves, and trials on the whole cluster."""

    def __init__(
        self, model: ClusterModel, prices: Mapping[str, float], backlog: Sequence[PodInfo]
    ) -> None:
        self.model = model
        self.prices = prices
        self.backlog = backlog
        self.why: dict[str, str] = {}
        self._filled: dict[tuple[str, tuple[tuple[object, int], ...]], Counter[object]] = {}
        self._kinds: dict[object, list[PodInfo]] = {}
        for pod in backlog:
            self._kinds.setdefault(self._kind(pod), []).append(pod)
        # How many pods of a kind a node of a shape serves, if it serves no others.
        self.alone: dict[str, dict[object, int]] = {name: {} for name in prices}
        for kind, pods in self._kinds.items():
            refusals = [self._measure(name, kind, pods) for name in prices]
            if all(refusals):
                for pod in pods:
                    self.why[pod.uid] = refusals[0]
        self.value = {
            kind: min(
                prices[name] / most[kind] for name, most in self.alone.items() if most.get(kind)
            )
            for kind in self._kinds
            if any(most.get(kind) for most in self.alone.values())
        }

    def _kind(self, pod: PodInfo) -> object:
        kind = self.model.kind_of(pod)
        return pod.uid if kind is None else kind

    def price(self, nodes: Mapping[str, int]) -> float:
        """Return the price of some nodes."""
        return sum(self.prices[name] * count for name, count in nodes.items())

    def tried(self, nodes: Mapping[str, int], wanted: Sequence[PodInfo]) -> list[PodInfo]:
        """Return which pods the scheduler places with these nodes on the whole cluster."""
        with self.model.tentatively():
            for name, count in nodes.items():
                if count:
                    AddNodes(name, count).apply(self.model)
            decided = self.model.run(wanted)
        return [pod for pod in wanted if isinstance(decided[pod.uid], PodPlacement)]

    def grown(self, wanted: Sequence[PodInfo], budget: float | None) -> Counter[str]:
        """Return nodes for the pods, one after the other, as long as the budget lasts."""
        nodes: Counter[str] = Counter()
        uids = {pod.uid for pod in wanted}
        left = Counter(
            {kind: sum(p.uid in uids for p in pods) for kind, pods in self._kinds.items()}
        )
        while +left and nodes.total() < MOST_NODES:
            spent = self.price(nodes)
            open_to = [
                name
                for name in self.prices
                if budget is None or spent + self.prices[name] <= budget
            ]
            best = max(open_to, key=lambda name: self._worth(name, left), default=None)
            if best is None or not self._worth(best, left):
                break
            nodes[best] += 1
            left -= self._fill(best, left)
        # The scheduler may spread pods so that large ones find no node: then it takes more.
        while budget is None and nodes.total() < MOST_NODES:
            missing = len(wanted) - len(self.tried(nodes, wanted))
            if not missing:
                break
            nodes[self._best_for(wanted, nodes)] += 1
        return nodes

    def reduced(self, nodes: Counter[str], wanted: Sequence[PodInfo]) -> Counter[str]:
        """Return the nodes without those that are not needed; the dearest are tried first."""
        for name in sorted(nodes, key=lambda name: -self.prices[name]):
            while nodes[name]:
                fewer = nodes - Counter({name: 1})
                if len(self.tried(fewer, wanted)) < len(wanted):
                    break
                nodes = fewer
        return nodes

    def least(self, served: Sequence[PodInfo]) -> float | None:
        """Return a lower bound on the price of plans for these pods; None if unknown."""
        there = {pod.uid for pod in served}
        counts: list[int] = []
        claims: list[list[JsonDict]] = []
        requests: list[Mapping[str, int]] = []
        for pods in self._kinds.values():
            number = sum(pod.uid in there for pod in pods)
            if not number:
                continue
            counts.append(number)
            demand = self.model.state.demands.demand_of(pods[0])
            if isinstance(demand, BlockedPod):
                return None
            claims.append(PodToPlace(self.model, pods[0], demand).claims)
            requests.append({**pods[0].requests, PODS: 1})
        if not counts:
            return 0.0
        offers = [self._offer(name, requests) for name in self.prices]
        try:
            return least_price(offers, claims, counts, requests)
        except MissingExtraError:
            return None

    def _offer(self, name: str, requests: Sequence[Mapping[str, int]]) -> NodeOffer:
        with self.model.tentatively():
            row = self._one(name)
            table = self.model.state.table
            resources = {each for request in requests for each in request}
            offer = {
                each: int(table.free(each)[row]) for each in resources if table.free(each)[row]
            }
            fleet = self.model.devices.fleet_without(())
            return NodeOffer(self.prices[name], fleet, fleet.node_state(row), offer)

    def _best_for(self, wanted: Sequence[PodInfo], nodes: Counter[str]) -> str:
        there = {pod.uid for pod in self.tried(nodes, wanted)}
        missing = next(pod for pod in wanted if pod.uid not in there)
        kind = self._kind(missing)
        able = [name for name, most in self.alone.items() if most.get(kind)]
        return min(able, key=lambda name: self.prices[name] / self.alone[name][kind])

    def _worth(self, name: str, left: Counter[object]) -> float:
        served = self._fill(name, left)
        price = self.prices[name] or 1e-9
        return sum(self.value[kind] * count for kind, count in served.items()) / price

    def _fill(self, name: str, left: Counter[object]) -> Counter[object]:
        """Return what one node of a shape serves of the pods that are left."""
        most = self.alone[name]
        capped = {kind: min(count, most.get(kind, 0)) for kind, count in left.items()}
        key = name, tuple(sorted(((k, n) for k, n in capped.items() if n), key=repr))
        found = self._filled.get(key)
        if found is None:
            found = Counter()
            pods = [pod for kind, n in key[1] for pod in self._kinds[kind][:n]]
            with self.model.tentatively():
                self._one(name)
                decided = self.model.run(pods)
                for kind, n in key[1]:
                    for pod in self._kinds[kind][:n]:
                        found[kind] += isinstance(decided[pod.uid], PodPlacement)
            self._filled[key] = found
        return found

    def _measure(self, name: str, kind: object, pods: Sequence[PodInfo]) -> str:
        """Record how many pods of a kind a node of a shape serves; return why it serves none."""
        with self.model.tentatively():
            self._one(name)
            decided = self.model.run(pods)
            served = sum(isinstance(each, PodPlacement) for each in decided.values())
            self.alone[name][kind] = served
            first = decided[pods[0].uid]
            if served or not isinstance(first, Refusal):
                return ""
            return PageWords(self.model)(first).text

    def _one(self, name: str) -> int:
        """Add one node of a shape: the pods of the backlog fit on no other."""
        table = self.model.state.table
        before = set(table.row_of)
        AddNodes(name, 1).apply(self.model)
        (new,) = set(table.row_of) - before
        return table.row_of[new]
