"""A fleet that is loaded once and then updated as devices are allocated and released.

`Fleet.allocate` takes decoded resource.k8s.io/v1 mappings and returns `status.allocation` mappings.
Its results equal those of `allocate` on every node in turn; docs/concepts/allocation.md explains
its cost. Nothing here is thread-safe.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from copy import copy
from typing import Any, Final

import orjson

from dralab.allocation import v1
from dralab.allocation.allocator import DEFAULT_BUDGET, allocate_on, numbered_shares
from dralab.allocation.inventory.feasible_nodes import FeasibleNodes
from dralab.allocation.inventory.holdings import PoolUse
from dralab.allocation.inventory.placements import DevicePlacement, placement
from dralab.allocation.inventory.plan_results import ERROR, Plan, PlanFailure, Planned
from dralab.allocation.inventory.plans import ClaimKind, NodeShape, paths_read_by
from dralab.allocation.inventory.pool_records import PoolRecord, Pools
from dralab.allocation.inventory.pool_states import NOWHERE, PoolShapes, PoolState
from dralab.allocation.outcome import Allocated, Unknown, Unsatisfiable
from dralab.allocation.policy.choosing import likely_requests
from dralab.allocation.policy.policies import Policy
from dralab.allocation.policy.ranking import NodeState, Ranking
from dralab.allocation.pools import PoolId
from dralab.allocation.problem import (
    AllocationFeatures,
    DeviceClass,
    DeviceId,
    InUse,
    Node,
    Problem,
    ShareId,
    Slice,
)
from dralab.allocation.results import ShareIds
from dralab.allocation.search.node_devices import bits
from dralab.allocation.selectors import CelSelectorCompiler
from dralab.objects.claims import results_of
from dralab.values.json_types import JsonObject
from dralab.values.labels import SelectorError
from dralab.values.quantity import Number, parse_any

# Kinds of claims that a fleet remembers; beyond it they are forgotten, which costs time alone.
MOST_KINDS: Final = 20_000
# Shapes of nodes likewise: drivers that change their slices make new ones for ever.
MOST_NODE_SHAPES: Final = 20_000
MISSING: Final = PlanFailure(unknown=True)


class Fleet:
    """Nodes, what they offer, and what of it is in use.

    `budget` bounds the steps of each plan. Nodes are tried in the order in which they were given;
    `share_ids` yields the ids of shares of devices.
    """

    def __init__(
        self,
        nodes: Iterable[JsonObject],
        slices: Iterable[JsonObject | Slice],
        classes: Iterable[JsonObject] = (),
        *,
        features: AllocationFeatures | None = None,
        budget: int = DEFAULT_BUDGET,
        share_ids: ShareIds | None = None,
        reader: v1.V1Reader | None = None,
    ) -> None:
        self.features = features or AllocationFeatures()
        self.budget = budget
        self.share_ids = share_ids or numbered_shares()
        self.reader = reader or v1.V1Reader(CelSelectorCompiler())
        self.classes: dict[str, DeviceClass] = {}
        self.nodes: list[Node] = [v1.node(wire) for wire in nodes]
        self.number_of = {node.name: number for number, node in enumerate(self.nodes)}
        self.shapes = PoolShapes(self.features)
        self.pools = Pools(self.features, self.shapes)
        self.states: list[PoolState] = []
        self.held: list[int] = []
        self.whole: list[int] = []
        self.sharers: dict[tuple[int, int], int] = {}
        self.sees: list[tuple[int, ...]] = [()] * len(self.nodes)
        self.shape_of: list[NodeShape | None] = [None] * len(self.nodes)
        self._node_shapes: dict[object, NodeShape] = {}
        self._kinds: dict[object, ClaimKind] = {}
        self.feasible_nodes = FeasibleNodes(len(self.nodes))
        self.rankings: dict[Policy, Ranking] = {}
        self._version = 0
        for wire in classes:
            self.put_class(wire)
        self._load(each if isinstance(each, Slice) else self.reader.slice(each) for each in slices)

    # --- what is there

    def put_class(self, wire: JsonObject) -> None:
        """Add or replace a DeviceClass."""
        found = self.reader.device_class(wire)
        self.classes[found.name] = found
        self._forget_kinds()

    def remove_class(self, name: str) -> None:
        """Forget a DeviceClass."""
        self.classes.pop(name, None)
        self._forget_kinds()

    def put_node(self, number: int, node: Node) -> None:
        """Assign a number to a node that is new or has changed.

        Callers that number nodes themselves may reuse the numbers of removed nodes.
        """
        known = self.number_of.get(node.name, number)
        if known != number:
            self.remove_node(known)
        while len(self.nodes) <= number:
            self.nodes.append(NOWHERE)
            self.sees.append(())
            self.shape_of.append(None)
        if self.nodes[number] is not NOWHERE:
            self.remove_node(number)
        self.nodes[number] = node
        self.number_of[node.name] = number
        self.pools.put_node(number, node)
        self.sees[number] = self.pools.seen_by(number, node)
        self.feasible_nodes.add_node(number)
        self.rankings = {}

    def remove_node(self, number: int) -> None:
        """Forget a node, if it is known; its devices stay, because other nodes may use them."""
        if number >= len(self.nodes):
            return
        self.number_of.pop(self.nodes[number].name, None)
        self.pools.remove_node(number)
        self.nodes[number], self.sees[number], self.shape_of[number] = NOWHERE, (), None
        self.feasible_nodes.remove_node(number)
        self.rankings = {}

    def _load(self, slices: Iterable[Any]) -> None:
        self.pools.add_slices(slices, self.nodes, self.number_of)
        self._version = self.shapes.version
        self.states = [record.shape.empty for record in self.pools.records]
        self.held = [0] * len(self.states)
        self.whole = [0] * len(self.states)
        for number in range(len(self.nodes)):
            self.sees[number] = self.pools.seen_by(number, self.nodes[number])
            self.shape_of[number] = self._node_shape(number)

    def replace_pool(self, key: PoolId, slices: Iterable[Slice], use: PoolUse) -> None:
        """Let a pool be made of these slices from now on, and exactly this be in use of it.

        Devices that are not published any more hold nothing, as on Kubernetes.
        """
        old = self.pools.pool_number(*key)
        nodes = 0
        if old is not None:
            nodes = self.pools.records[old].nodes
            for inside in bits(self.held[old]):
                self.sharers.pop((old, inside), None)
        index = self.pools.put_pool(key, slices, self.nodes, self.number_of)
        record = self.pools.records[index]
        if old is None:
            self.states.append(record.shape.empty)
            self.held.append(0)
            self.whole.append(0)
        self._set_use(index, record, use)
        nodes |= record.nodes
        for number in bits(nodes):
            self.sees[number] = self.pools.seen_by(number, self.nodes[number])
            self.shape_of[number] = None
        self.feasible_nodes.add_released(nodes)
        self._touch(nodes)

    def _set_use(self, index: int, record: PoolRecord, use: PoolUse) -> None:
        shares = Counter(share.device for share in use.shares)
        held = whole = 0
        taking: list[tuple[int, tuple[Number, ...] | None]] = []
        for device in {**use.exclusive, **shares}:
            if not record.has(device.device):
                continue
            inside = record.number_of(device.device)
            held |= 1 << inside
            if device in use.exclusive:
                whole |= 1 << inside
                taking.append((inside, None))
            else:
                self.sharers[index, inside] = shares[device]
                content = record.shape.node_devices.offers[inside].device
                taking.append((inside, content.amounts_of(use.consumed.get(device, {}))))
        self.held[index], self.whole[index] = held, whole
        self.states[index] = record.shape.holding(record.shape.empty, tuple(taking), held, whole)

    def _node_shape(self, number: int) -> NodeShape | None:
        """Return the shape of a node, None if it sees pools that are in no fit state."""
        seen = self.sees[number]
        records = [self.pools.records[each] for each in seen]
        if any(record.irregular for record in records):
            return None
        node = self.nodes[number]
        parts = [self.pools.part(record, node) for record in records]
        key = tuple((record.shape, part.key) for record, part in zip(records, parts, strict=True))
        found = self._node_shapes.get(key)
        if found is None:
            if len(self._node_shapes) >= MOST_NODE_SHAPES:
                self._node_shapes.clear()
                self.shapes.forget_shapes()
            visible, offset = 0, 0
            for record, part in zip(records, parts, strict=True):
                visible |= part.visible << offset
                offset += record.shape.size
            found = self._node_shapes[key] = NodeShape(
                node,
                [part.pool for part in parts],
                [record.shape for record in records],
                visible,
                self.features,
            )
        return found

    # --- what is asked

    def kind(self, claims: Sequence[JsonObject]) -> ClaimKind:
        """Return the kind of a pod's claims; from now on what their selectors read is seen."""
        key: object
        if len(claims) == 1:
            key = orjson.dumps(claims[0].get("spec"))
        else:
            key = tuple(orjson.dumps(claim.get("spec")) for claim in claims)
        found = self._kinds.get(key)
        if found is None:
            if len(self._kinds) >= MOST_KINDS:
                self._forget_kinds()
            parsed = [self.reader.claim(claim) for claim in claims]
            found = ClaimKind(parsed, self.classes, self.features)
            self.shapes.widen(found.reads)
            if self._version != self.shapes.version:
                self._refine()
            self._kinds[key] = found
        return found

    def _forget_kinds(self) -> None:
        """Forget all kinds and plans; they are worked out again when they are asked for."""
        self._kinds.clear()
        self.feasible_nodes.forget_kinds()
        self.rankings = {}
        for shape in self._node_shapes.values():
            shape.planners.clear()

    def _refine(self) -> None:
        """Split shapes that selectors can tell apart by now; states keep their meaning."""
        self._version = self.shapes.version
        self._node_shapes = {}
        self.shape_of = [None] * len(self.nodes)
        self.states = self.pools.reshape(self.states)
        self.rankings = {}

    def allocate(
        self,
        claims: Sequence[JsonObject],
        candidates: int | None = None,
        policy: Policy | None = None,
    ) -> DevicePlacement | Unsatisfiable | Unknown:
        """Give the claims of one pod devices on the first node where they fit.

        `candidates` is a bit set of nodes (see `candidates_of`), None for all. On every node the
        devices are Kubernetes' choice, and among the nodes the first is taken; a policy chooses
        both by their cost.
        """
        kind = self.kind(claims)
        if kind.refused is not None:
            return self._refusal(claims)
        if policy is not None:
            return self._allocate_by(policy, kind, claims, candidates)
        known = self.feasible_nodes.of_kind(kind)
        nodes = known.nodes & (self.feasible_nodes.every if candidates is None else candidates)
        unknown = False
        refusal = Unsatisfiable()
        while nodes:
            low = nodes & -nodes
            number = low.bit_length() - 1
            plan = self._plan(number, kind)
            if type(plan) is Plan:
                return self._commit(number, plan)
            if plan is None:
                known.nodes &= ~low
            elif plan is ERROR or self.shape_of[number] is None:
                found = self._slow(number, claims)
                if isinstance(found, DevicePlacement) or (
                    isinstance(found, Unsatisfiable) and found.fatal
                ):
                    return found
                unknown = unknown or isinstance(found, Unknown)
                if isinstance(found, Unsatisfiable) and found.error:
                    refusal = found
            else:
                unknown = True
            nodes ^= low
        return Unknown(budget=self.budget) if unknown else refusal

    def find_on_node(
        self, number: int, claims: Sequence[JsonObject]
    ) -> list[dict[str, Any]] | Unsatisfiable | Unknown:
        """Return what the claims of one pod would get on one node, and take nothing yet."""
        kind = self.kind(claims)
        if kind.refused is not None:
            return self._refusal(claims)
        plan = self._plan(number, kind)
        if type(plan) is Plan:
            return self._placement(number, plan).allocations
        if plan is None:
            return Unsatisfiable()
        return self._search(number, claims) if plan is ERROR else Unknown(budget=self.budget)

    def _allocate_by(
        self, policy: Policy, kind: ClaimKind, claims: Sequence[JsonObject], candidates: int | None
    ) -> DevicePlacement | Unsatisfiable | Unknown:
        ranking = self.rankings.get(policy)
        if ranking is None:
            demand = likely_requests(policy, self.classes, self.features)
            self.shapes.widen(paths_read_by(demand))
            if self._version != self.shapes.version:
                self._refine()
            ranking = Ranking(policy, demand, self.budget, len(self.nodes))
            self.rankings[policy] = ranking
        ranking.catch_up(self)
        among = self.feasible_nodes.every if candidates is None else candidates
        found = ranking.best(kind, among)
        if isinstance(found, tuple):
            return self._commit(*found)
        # Nodes that cannot be ranked are tried in order, with Kubernetes' choice.
        rest = among if found is not None else ranking.apart & among
        return self.allocate(claims, rest) if rest else Unsatisfiable()

    def allocate_within(
        self, number: int, claims: Sequence[JsonObject], devices: int | None
    ) -> DevicePlacement | None:
        """Give claims devices on one node, from a part of its devices (None: from all of them).

        None if that cannot be, or where the node is in no fit state.
        """
        kind = self.kind(claims)
        shape = self.shape_of[number] or self._node_shape(number)
        if shape is None or kind.refused is not None:
            return None
        planner = shape.planner(kind, self.budget)
        states = [self.states[each] for each in self.sees[number]]
        plan = planner.plan_within(states, devices)
        return self._commit(number, plan) if isinstance(plan, Plan) else None

    def alone(self, number: int) -> bool:
        """Return whether no other node sees a pool that this one sees."""
        return all(self.pools.records[each].home for each in self.sees[number])

    def node_state(self, number: int) -> NodeState | None:
        """Return everything on which a choice on a node depends; None: ask the node itself."""
        shape = self.shape_of[number]
        if shape is None:
            shape = self.shape_of[number] = self._node_shape(number)
            if shape is None:
                return None
        return NodeState(shape, tuple([self.states[each] for each in self.sees[number]]))

    def _touch(self, nodes: int) -> None:
        for ranking in self.rankings.values():
            ranking.changed |= nodes

    def _plan(self, number: int, kind: ClaimKind) -> Planned:
        shape = self.shape_of[number]
        if shape is None:
            shape = self.shape_of[number] = self._node_shape(number)
            if shape is None:
                return ERROR
        planner = shape.planners.get(kind) or shape.planner(kind, self.budget)
        seen = self.sees[number]
        if planner.only >= 0:
            key: object = self.states[seen[planner.only]]
            found = planner.plans.get(key, MISSING)
            if found is not MISSING:
                return found
        states = [self.states[each] for each in seen]
        key = planner.key(states)
        found = planner.plans.get(key, MISSING)
        return planner.plan(states, key) if found is MISSING else found

    def _commit(self, number: int, plan: Plan) -> DevicePlacement:
        seen = self.sees[number]
        records = self.pools.records
        for pool, state, taken in plan.after:
            index = seen[pool]
            self.states[index] = state
            self.held[index] |= taken
            self.whole[index] |= taken
            if self.rankings:
                self._touch(records[index].nodes)
        for pool, inside in plan.shared:
            key = (seen[pool], inside)
            self.whole[key[0]] &= ~(1 << inside)
            self.sharers[key] = self.sharers.get(key, 0) + 1
        return self._placement(number, plan)

    def _placement(self, number: int, plan: Plan) -> DevicePlacement:
        pools = [self.pools.records[each] for each in self.sees[number]]
        return placement(plan, pools, self.nodes[number].name, self.share_ids)

    def candidates_of(self, names: Iterable[str]) -> int:
        """Return the bit set of some nodes."""
        mask = 0
        for name in names:
            mask |= 1 << self.number_of[name]
        return mask

    # --- what is in use

    def mark_in_use(self, allocation: JsonObject) -> None:
        """Mark the devices of an allocation that was made elsewhere as in use.

        Devices of pools that are not here hold nothing.
        """
        for index, taken in self.devices_of(allocation).items():
            record = self.pools.records[index]
            for inside, amounts in taken:
                self.held[index] |= 1 << inside
                if amounts is None:
                    self.whole[index] |= 1 << inside
                else:
                    key = (index, inside)
                    self.sharers[key] = self.sharers.get(key, 0) + 1
            self.states[index] = record.shape.holding(
                self.states[index], tuple(taken), self.held[index], self.whole[index]
            )
            self._touch(record.nodes)

    def mark_all_in_use(self, allocations: Iterable[JsonObject]) -> None:
        """Do what `mark_in_use` does for each of many; equal pools in equal use cost little."""
        taken: dict[int, list[tuple[int, tuple[Number, ...] | None]]] = {}
        for allocation in allocations:
            for index, part in self.devices_of(allocation).items():
                taken.setdefault(index, []).extend(part)
        known: dict[object, PoolState] = {}
        for index, part in taken.items():
            record = self.pools.records[index]
            for inside, amounts in part:
                self.held[index] |= 1 << inside
                if amounts is None:
                    self.whole[index] |= 1 << inside
                else:
                    self.sharers[index, inside] = self.sharers.get((index, inside), 0) + 1
            held, whole = self.held[index], self.whole[index]
            key = (self.states[index], tuple(part), held, whole)
            state = known.get(key)
            if state is None:
                state = record.shape.holding(self.states[index], tuple(part), held, whole)
                known[key] = state
            self.states[index] = state
            self._touch(record.nodes)

    def release(self, allocation: JsonObject) -> None:
        """Give back the devices of an allocation."""
        for index, taken in self.devices_of(allocation).items():
            record = self.pools.records[index]
            last = 0
            for inside, amounts in taken:
                if amounts is not None:
                    key = (index, inside)
                    rest = self.sharers.get(key, 0) - 1
                    if rest > 0:
                        self.sharers[key] = rest
                        continue
                    self.sharers.pop(key, None)
                last |= 1 << inside
            self.held[index] &= ~last
            self.whole[index] &= ~last
            self.states[index] = record.shape.released(
                self.states[index], tuple(taken), self.held[index], self.whole[index]
            )
            self.feasible_nodes.add_released(record.nodes)
            self._touch(record.nodes)

    def devices_of(
        self, allocation: JsonObject
    ) -> dict[int, list[tuple[int, tuple[Number, ...] | None]]]:
        """Return per pool the devices of an allocation, with amounts where they are shared."""
        found: dict[int, list[tuple[int, tuple[Number, ...] | None]]] = {}
        for item in results_of(allocation):
            if item.get("adminAccess"):
                continue
            index = self.pools.pool_number(item["driver"], item["pool"])
            if index is None:
                continue
            record = self.pools.records[index]
            if not record.has(item["device"]):
                continue
            inside = record.number_of(item["device"])
            amounts: tuple[Number, ...] | None = None
            if item.get("shareID"):
                consumed = item.get("consumedCapacity") or {}
                device = record.shape.node_devices.offers[inside].device
                amounts = tuple(
                    parse_any(consumed.get(device.written(name), 0)) for name in device.capacity
                )
            found.setdefault(index, []).append((inside, amounts))
        return found

    def copied(self) -> "Fleet":
        """Return a fleet that starts out the same and changes on its own: for what-if questions.

        Everything that was worked out is shared; only the lists of states are copied.
        """
        other = copy(self)
        other.pools = self.pools.copied()
        other.states = self.states.copy()
        other.held = self.held.copy()
        other.whole = self.whole.copy()
        other.sharers = self.sharers.copy()
        other.shape_of = self.shape_of.copy()
        other.classes = self.classes.copy()
        other.sees = self.sees.copy()
        other.feasible_nodes = self.feasible_nodes.copied()
        other.rankings = {}
        other._kinds = self._kinds.copy()  # noqa: SLF001 - a copy of oneself
        return other

    def in_use(self, number: int) -> InUse:
        """Return what is in use in the pools that a node sees."""
        exclusive: set[DeviceId] = set()
        shares: set[ShareId] = set()
        consumed: dict[DeviceId, dict[str, Number]] = {}
        for index in self.sees[number]:
            record = self.pools.records[index]
            state = self.states[index].state
            for inside in bits(self.held[index]):
                device = DeviceId(record.driver, record.name, record.names[inside])
                if self.whole[index] >> inside & 1:
                    exclusive.add(device)
                    continue
                shares.add(ShareId(device, ""))
                content = record.shape.node_devices.offers[inside].device
                room = state.room.get(inside)
                if room is not None:
                    consumed[device] = {
                        content.written(name): item.value - rest
                        for (name, item), rest in zip(content.capacity.items(), room, strict=True)
                    }
        return InUse(exclusive=frozenset(exclusive), shares=frozenset(shares), consumed=consumed)

    # --- what needs a look at the node itself

    def _problem(self, number: int, claims: Sequence[JsonObject]) -> Problem:
        slices = [each for index in self.sees[number] for each in self.pools.records[index].slices]
        return Problem(
            claims=tuple(self.reader.claim(claim) for claim in claims),
            classes=self.classes,
            slices=tuple(slices),
            in_use=self.in_use(number),
            features=self.features,
        )

    def _slow(
        self, number: int, claims: Sequence[JsonObject]
    ) -> DevicePlacement | Unsatisfiable | Unknown:
        """Allocate on one node by the general way."""
        found = self._search(number, claims)
        if not isinstance(found, list):
            return found
        for each in found:
            self.mark_in_use(each)
        return DevicePlacement(self.nodes[number].name, found)

    def _search(
        self, number: int, claims: Sequence[JsonObject]
    ) -> list[dict[str, Any]] | Unsatisfiable | Unknown:
        """Search on one node without a plan: for errors, and for pools in transition."""
        problem = self._problem(number, claims)
        try:
            view = self.pools.view(self.nodes[number], problem.slices)
        except SelectorError as error:
            return Unsatisfiable(error=f"gather pool information: {error}", fatal=True)
        outcome = allocate_on(problem, view, budget=self.budget, share_ids=self.share_ids)
        if not isinstance(outcome, Allocated):
            return outcome
        return [v1.status_allocation(each) for each in outcome.claims]

    def _refusal(self, claims: Sequence[JsonObject]) -> Unsatisfiable:
        found = ClaimKind(
            [self.reader.claim(claim) for claim in claims], self.classes, self.features
        )
        refused = found.refused
        if refused is None:
            return Unsatisfiable()
        return Unsatisfiable(error=str(refused), fatal=True, facts=(refused.fact,))
