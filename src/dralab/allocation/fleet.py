"""A fleet that is loaded once and then updated as devices are allocated and released.

`Fleet.allocate` takes decoded resource.k8s.io/v1 mappings and returns `status.allocation` mappings.
Its results equal those of `allocate` on every node in turn; docs/concepts/allocation.md explains
its cost. Nothing here is thread-safe.
"""

from collections.abc import Callable, Hashable, Iterable, Sequence
from copy import copy
from typing import Any, Final

import orjson

from dralab.allocation import v1
from dralab.allocation.allocator import DEFAULT_BUDGET, allocate_on, numbered_shares
from dralab.allocation.inventory.feasible_nodes import FeasibleNodes
from dralab.allocation.inventory.holdings import Held, PoolUse
from dralab.allocation.inventory.node_answers import NodeAnswers
from dralab.allocation.inventory.placements import DevicePlacement, NodePools, PlannedAllocation
from dralab.allocation.inventory.plan_results import ERROR, Plan, PlanFailure, Planned
from dralab.allocation.inventory.plans import ClaimKind, NodeShape, paths_read_by
from dralab.allocation.inventory.pool_records import PoolRecord
from dralab.allocation.inventory.pool_states import NOWHERE, PoolState
from dralab.allocation.inventory.pools_in_use import PoolsInUse
from dralab.allocation.inventory.row_log import RowLog
from dralab.allocation.outcome import Allocated, Unknown, Unsatisfiable
from dralab.allocation.policy.choosing import likely_requests
from dralab.allocation.policy.policies import Policy
from dralab.allocation.policy.ranking import NodeState, Ranking
from dralab.allocation.pools import PoolId
from dralab.allocation.problem import (
    AllocationFeatures,
    DeviceClass,
    InUse,
    Node,
    Problem,
    Slice,
)
from dralab.allocation.results import ShareIds
from dralab.allocation.search.node_devices import bits
from dralab.allocation.selectors import CelSelectorCompiler
from dralab.objects.claims import holds
from dralab.values.json_types import JsonObject
from dralab.values.labels import SelectorError

# Kinds of claims that a fleet remembers; beyond it they are forgotten, which costs time alone.
MOST_KINDS: Final = 20_000
# Shapes of nodes likewise: drivers that change their slices make new ones for ever.
MOST_NODE_SHAPES: Final = 20_000
# Of so many nodes at once it is not worth noting which ones they are.
MANY_NODES: Final = 1_024
MISSING: Final = PlanFailure(unknown=True)
# What a claim gets: what was planned, or, where a node had to be searched, what is written.
Allocation = PlannedAllocation | dict[str, Any]


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
        self.use = PoolsInUse(self.features)
        self.pools = self.use.pools
        self.shapes = self.use.shapes
        self.sees: list[tuple[int, ...]] = [()] * len(self.nodes)
        self.shape_of: list[NodeShape | None] = [None] * len(self.nodes)
        self._node_shapes: dict[object, NodeShape] = {}
        self._kinds: dict[object, ClaimKind] = {}
        self.feasible_nodes = FeasibleNodes(len(self.nodes))
        self.rankings: dict[Policy, Ranking] = {}
        # Nodes whose devices have changed since somebody asked for `answers`.
        self.changed_nodes = RowLog()
        self._notes_changes = False
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
        self._note_changed(number)
        self.rankings = {}

    def remove_node(self, number: int) -> None:
        """Forget a node, if it is known; its devices stay, because other nodes may use them."""
        if number >= len(self.nodes):
            return
        self.number_of.pop(self.nodes[number].name, None)
        self.pools.remove_node(number)
        self.nodes[number], self.sees[number], self.shape_of[number] = NOWHERE, (), None
        self.feasible_nodes.remove_node(number)
        self._note_changed(number)
        self.rankings = {}

    def _load(self, slices: Iterable[Any]) -> None:
        self.use.load(slices, self.nodes, self.number_of)
        self._version = self.shapes.version
        for number in range(len(self.nodes)):
            self.sees[number] = self.pools.seen_by(number, self.nodes[number])
            self.shape_of[number] = self._node_shape(number)

    def replace_pools(self, changes: Iterable[tuple[PoolId, Iterable[Slice], PoolUse]]) -> None:
        """Replace the slices of pools, and what is in use of them.

        Devices that are not published any more hold nothing, as on Kubernetes.
        """
        nodes = 0
        for key, slices, use in changes:
            nodes |= self.use.replace_pool(key, slices, use, self.nodes, self.number_of)
        for number in bits(nodes):
            self.sees[number] = self.pools.seen_by(number, self.nodes[number])
            self.shape_of[number] = None
        self.feasible_nodes.add_released(nodes)
        self._touch(nodes)

    def _node_shape(self, number: int) -> NodeShape | None:
        """Return the shape of a node; None if a pool that it sees cannot be used."""
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
        """Return the kind of a pod's claims; shapes then include what their selectors read."""
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
        """Split shapes that selectors now tell apart; states keep their meaning."""
        self._version = self.shapes.version
        self._node_shapes = {}
        self.shape_of = [None] * len(self.nodes)
        self.use.reshape()
        self.changed_nodes.add_all()
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

    def cheapest(
        self, policy: Policy, claims: Sequence[JsonObject], candidates: int
    ) -> tuple[int, Plan] | None:
        """Return the node on which a policy's choice costs least; None if it can rank no node."""
        kind = self.kind(claims)
        if kind.refused is not None:
            return None
        found = self._ranking(policy).best(kind, candidates)
        return found if isinstance(found, tuple) else None

    def find_on_node(
        self, number: int, claims: Sequence[JsonObject], policy: Policy | None = None
    ) -> Sequence[Allocation] | Unsatisfiable | Unknown:
        """Return what the claims of one pod would get on one node, and take nothing yet.

        They get a policy's choice, where one is given that can rank the node.
        """
        return self.find_for_kind(number, self.kind(claims), lambda: claims, policy)

    def find_for_kind(
        self,
        number: int,
        kind: ClaimKind,
        claims: Callable[[], Sequence[JsonObject]],
        policy: Policy | None = None,
    ) -> Sequence[Allocation] | Unsatisfiable | Unknown:
        """Return the same for claims of a kind; they are read where a plan is not enough."""
        if kind.refused is not None:
            return self._refusal(claims())
        if policy is not None:
            chosen = self._ranking(policy).best(kind, 1 << number)
            if isinstance(chosen, tuple):
                return self._planned(*chosen)
        plan = self._plan(number, kind)
        if type(plan) is Plan:
            return self._planned(number, plan)
        if plan is None:
            return Unsatisfiable()
        return self._search(number, claims()) if plan is ERROR else Unknown(budget=self.budget)

    def _allocate_by(
        self, policy: Policy, kind: ClaimKind, claims: Sequence[JsonObject], candidates: int | None
    ) -> DevicePlacement | Unsatisfiable | Unknown:
        ranking = self._ranking(policy)
        among = self.feasible_nodes.every if candidates is None else candidates
        found = ranking.best(kind, among)
        if isinstance(found, tuple):
            return self._commit(*found)
        # Nodes that cannot be ranked are tried in order, with Kubernetes' choice.
        rest = among if found is not None else ranking.apart & among
        return self.allocate(claims, rest) if rest else Unsatisfiable()

    def _ranking(self, policy: Policy) -> Ranking:
        """Return the nodes as a policy sees them now."""
        ranking = self.rankings.get(policy)
        if ranking is None:
            demand = likely_requests(policy, self.classes, self.features)
            self.shapes.widen(paths_read_by(demand))
            if self._version != self.shapes.version:
                self._refine()
            ranking = Ranking(policy, demand, self.budget, len(self.nodes))
            self.rankings[policy] = ranking
        ranking.catch_up(self)
        return ranking

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
        plan = planner.plan_within(self._states(number), devices)
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
        return NodeState(shape, tuple(self._states(number)))

    def _states(self, number: int) -> list[PoolState]:
        """Return the states of the pools that a node sees."""
        occupancies = self.use.occupancies
        return [occupancies[each].state for each in self.sees[number]]

    def answers(self, kind: ClaimKind, may_try: Callable[[int], bool]) -> NodeAnswers | None:
        """Return on which nodes a kind of claims may find devices, while classes stay.

        None where the states of nodes do not say: a pool of several nodes changes them all. Of a
        node whose state does not say, `may_try` does.
        """
        if not self.pools.are_of_one_node or kind.refused is not None:
            return None
        self._notes_changes = True
        return NodeAnswers(self._likeness, lambda number: self._serves(number, kind), may_try)

    def _likeness(self, number: int) -> Hashable:
        """Return what nodes have in common that serve the same claims, as `node_state`."""
        seen = self.sees[number]
        if len(seen) == 1 and self.shape_of[number] is not None:
            # Pools of one node that have the same shape make nodes of the same shape.
            return self.use.occupancies[seen[0]].state
        return self.node_state(number)

    def _serves(self, number: int, kind: ClaimKind) -> bool | None:
        """Return whether a kind finds devices on a node in this state; None: only a try tells."""
        shape = self.shape_of[number]
        if shape is not None:
            serves = shape.planner(kind, self.budget).serves(self._states(number))
            if serves is not None:
                return serves
        plan = self._plan(number, kind)
        return None if isinstance(plan, PlanFailure) else plan is not None

    def rule_out(self, number: int, kind: Hashable) -> None:
        """Note that a kind was tried in vain on a node: until something is released there."""
        self.feasible_nodes.of_kind(kind).nodes &= ~(1 << number)
        self._note_changed(number)

    def _touch(self, nodes: int) -> None:
        if self._notes_changes:
            if nodes.bit_count() > MANY_NODES:
                self.changed_nodes.add_all()
            else:
                for number in bits(nodes):
                    self.changed_nodes.add_row(number)
        for ranking in self.rankings.values():
            ranking.changed |= nodes

    def _touch_pool(self, record: PoolRecord) -> None:
        if record.row < 0 or self.rankings:
            self._touch(record.nodes)
        else:
            self._note_changed(record.row)

    def _note_changed(self, number: int) -> None:
        if self._notes_changes:
            self.changed_nodes.add_row(number)

    def _plan(self, number: int, kind: ClaimKind) -> Planned:
        """Return the plan of a kind on a node."""
        shape = self.shape_of[number]
        if shape is None:
            shape = self.shape_of[number] = self._node_shape(number)
            if shape is None:
                return ERROR
        planner = shape.planners.get(kind) or shape.planner(kind, self.budget)
        seen = self.sees[number]
        if planner.only >= 0:
            key: object = self.use.occupancies[seen[planner.only]].state
            found = planner.plans.get(key, MISSING)
            if found is not MISSING:
                return found
        states = self._states(number)
        key = planner.key(states)
        found = planner.plans.get(key, MISSING)
        return planner.plan(states, key) if found is MISSING else found

    def _commit(self, number: int, plan: Plan) -> DevicePlacement:
        planned = self._planned(number, plan)
        for each in planned:
            self.hold(each)
        return DevicePlacement(self.nodes[number].name, [each.written for each in planned])

    def _planned(self, number: int, plan: Plan) -> list[PlannedAllocation]:
        """Return the allocations of a plan, by claim; they are written when they are asked for."""
        seen, share_ids = self.sees[number], self.share_ids
        records = list(map(self.pools.records.__getitem__, seen))
        pools = NodePools(self.nodes[number].name, seen, records)
        return [PlannedAllocation(plan, claim, pools, share_ids) for claim in range(len(plan.rows))]

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
        self.hold(holds(allocation))

    def release(self, allocation: JsonObject) -> None:
        """Give back the devices of an allocation."""
        self.give_back(holds(allocation))

    def hold(self, held: Held) -> bool:
        """Mark devices as in use; return whether nobody held any of them."""
        occupancies, are_free = self.use.occupancies, True
        for index, taking in self.use.taken_by(held):
            before = occupancies[index]
            if before.held & taking.whole or before.whole & taking.parts:
                are_free = False  # somebody holds one of them in a way that excludes others
            occupancies[index] = before.after(taking)
            self._touch_pool(self.pools.records[index])
        return are_free

    def give_back(self, held: Held) -> None:
        """Let devices be free again."""
        occupancies = self.use.occupancies
        for index, taking in self.use.taken_by(held):
            occupancies[index] = occupancies[index].before(taking)
            record = self.pools.records[index]
            self.feasible_nodes.add_released(record.nodes)
            self._touch_pool(record)

    def in_use(self, number: int) -> InUse:
        """Return what is in use in the pools that a node sees."""
        return self.use.in_use(self.sees[number])

    def copied(self) -> "Fleet":
        """Return a fleet that starts out the same and changes on its own: for what-if questions.

        Everything that was worked out is shared; only the lists of states are copied.
        """
        other = copy(self)
        other.use = self.use.copied()
        other.pools = other.use.pools
        other.shape_of = self.shape_of.copy()
        other.classes = self.classes.copy()
        other.sees = self.sees.copy()
        other.feasible_nodes = self.feasible_nodes.copied()
        other.rankings = {}
        other.changed_nodes, other._notes_changes = RowLog(), False  # noqa: SLF001 - a copy of oneself
        other._kinds = self._kinds.copy()  # noqa: SLF001 - a copy of oneself
        return other

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
        """Allocate on one node in the general way."""
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
