"""The devices of the cluster, for the scheduler: an adapter to the allocator's fleet.

Allocations that were decided but are not yet written count as held ("assumed"), so that the next
pod never gets the same device. What a claim may get on a node, and on which nodes it is worth
asking, is the answer of `allocation.fleet`; who holds what is kept by `allocation.inventory`.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final, NamedTuple

import numpy as np

from dralab.allocation import v1
from dralab.allocation.allocator import DEFAULT_BUDGET
from dralab.allocation.contention import fit_together, rivals
from dralab.allocation.fleet import Allocation, Fleet
from dralab.allocation.free_devices import FreeDeviceCounter, FreeDevices
from dralab.allocation.inventory.holdings import HeldByClaim, Holdings
from dralab.allocation.inventory.node_answers import NodeAnswers
from dralab.allocation.inventory.placements import PlannedAllocation
from dralab.allocation.inventory.plans import ClaimKind
from dralab.allocation.inventory.row_log import RowLog
from dralab.allocation.outcome import Unknown, Unsatisfiable
from dralab.allocation.policy.policies import Policy
from dralab.allocation.pools import PoolId, SliceCatalog
from dralab.allocation.problem import AllocationFeatures, Claim, Node, Problem, Slice
from dralab.allocation.releasing import (
    WantedDevices,
    fits_without,
    freed_at_most,
    wanted_devices,
)
from dralab.allocation.results import ShareIds
from dralab.objects.claims import (
    consumer_of,
    consumers_of,
    holds,
    requests_of,
    results_of,
)
from dralab.objects.extended_resources import synthetic_claim
from dralab.objects.metadata import NamespacedName, key_of, status_of, uid_of
from dralab.scheduling.allocatable import NodeAllocatableDevices, NodeShortage, shared
from dralab.scheduling.claims import EXTENDED_CLAIM, ClaimPlan, KnownClaim
from dralab.scheduling.demands import PodDemand
from dralab.scheduling.node_columns import Numbers
from dralab.scheduling.nodes import Mask, NodeTable
from dralab.scheduling.pods import PodInfo
from dralab.scheduling.reach import reached
from dralab.values.json_types import JsonDict, JsonObject

# KEP-4816: so many points for the first of a request's alternatives, one less for each further.
MOST_POINTS: Final = 8
# With so few nodes in a bit set they are picked one by one: most changes are of a node or two.
FEW_BITS: Final = 16
# Demands whose answers are kept; beyond it they are forgotten, which costs time alone.
MOST_ANSWERS: Final = 1_024


class DevicePlans(NamedTuple):
    """What to write for a placement.

    `refused` is set where its claims cannot be met there; then there are no plans. `allocated` says
    whether anything had to be allocated, `points` how far alternatives are the preferred ones.
    """

    plans: tuple[ClaimPlan, ...] = ()
    refused: Unsatisfiable | Unknown | None = None
    allocated: bool = False
    points: int = 0


class LentDevices(NamedTuple):
    """What a claim holds while it is assumed to hold nothing."""

    claim: str
    held: HeldByClaim


class ClusterDevices:
    """Slices, classes and holdings of the cluster.

    Nodes have the numbers of their rows in the table. Changes of nodes and slices reach the fleet
    when it is next asked: many of them come at once. Allocations that are not written yet are kept
    in `in_flight`, by the uids of their claims.
    """

    def __init__(
        self,
        table: NodeTable,
        reader: v1.V1Reader,
        *,
        share_ids: ShareIds | None = None,
        budget: int = DEFAULT_BUDGET,
        features: AllocationFeatures | None = None,
    ) -> None:
        self._table = table
        self._reader = reader
        self._answers: dict[bytes, NodeAnswers] = {}
        self._kinds: dict[bytes, ClaimKind] = {}
        self._fleet = Fleet(
            (), (), features=features, budget=budget, share_ids=share_ids, reader=reader
        )
        self._free = FreeDeviceCounter(self._fleet)
        self._holdings = Holdings()
        # Counts the changes, as `NodeTable.version` does; those of slices and classes alone.
        self.version = 0
        self.inventory_version = 0
        self._allocatable = NodeAllocatableDevices()
        # The slices as they are published, by name.
        self.wires: dict[str, JsonDict] = {}
        self._slices: dict[str, Slice] = {}
        self._pools: dict[PoolId, dict[str, Slice]] = {}
        self._rules: dict[str, JsonDict] = {}
        self._changed_pools: set[PoolId] = set()
        self._rows_seen = 0
        self._catalog: tuple[SliceCatalog, tuple[Slice, ...]] | None = None
        self._in_flight: dict[str, Allocation | JsonObject] = {}
        # Pods that count on an allocation in flight: it is given up with the last of them.
        self._counting_on: dict[str, tuple[str, ...]] = {}

    # --- slices and classes

    def put_slice(self, name: str, wire: JsonDict | None) -> None:
        """Handle a new, changed or deleted (None) ResourceSlice."""
        old = self._slices.pop(name, None)
        if old is not None:
            del self._pools[old.driver, old.pool][name]
            self._note_change(old)
        self._allocatable.put_slice(name, wire)
        if wire is None:
            self.wires.pop(name, None)
            return
        self.wires[name] = wire
        found = self._reader.slice(wire, [self._rules[rule] for rule in sorted(self._rules)])
        self._slices[name] = found
        self._pools.setdefault((found.driver, found.pool), {})[name] = found
        self._note_change(found)

    def put_rule(self, name: str, rule: JsonDict | None) -> None:
        """Handle a new, changed or deleted DeviceTaintRule: the slices are read again."""
        if rule is None:
            self._rules.pop(name, None)
        else:
            self._rules[name] = rule
        for slice_name in sorted(self.wires):
            self.put_slice(slice_name, self.wires[slice_name])

    def put_class(self, name: str, wire: JsonDict | None) -> None:
        """Handle a new, changed or deleted DeviceClass."""
        if wire is None:
            self._fleet.remove_class(name)
        else:
            self._fleet.put_class(wire)
        self._answers.clear()
        self._kinds.clear()
        self.version += 1
        self.inventory_version += 1

    # --- holdings

    def put_claim(self, claim: JsonDict) -> bool:
        """Record a claim's stored state; return whether devices became free."""
        uid = uid_of(claim)
        allocation = status_of(claim).get("allocation")
        if allocation is None:
            return False if uid in self._in_flight else self._release(uid)
        self._forget_flight(uid)
        self._hold(uid, key_of(claim), allocation)
        return False

    def remove_claim(self, claim: JsonDict) -> bool:
        """Record that a claim is gone; return whether devices became free."""
        self._forget_flight(uid_of(claim))
        return self._release(uid_of(claim))

    def in_flight(self, uid: str) -> JsonObject | None:
        """Return the allocation of a claim that is being written."""
        found = self._in_flight.get(uid)
        return None if found is None else _as_written(found)

    def assume_plans(self, plans: Iterable[ClaimPlan], pod: PodInfo) -> None:
        """Assume that devices are held, before anything is written."""
        for plan in plans:
            uid = plan.uid or _pending_uid(pod)
            if plan.is_undecided:
                self._hold(uid, plan.key or EXTENDED_CLAIM, plan.given)
                self._in_flight[uid] = plan.given
                self._counting_on[uid] = (*self._counting_on.get(uid, ()), pod.uid)

    def forget_plans(self, plans: Iterable[ClaimPlan], pod: PodInfo) -> None:
        """Undo an assumption that will not be written."""
        self.forget_claims((plan.uid or _pending_uid(pod) for plan in plans), pod)

    def forget_claims(self, uids: Iterable[str], pod: PodInfo) -> None:
        """Undo assumptions about some claims of a pod."""
        for uid in uids:
            counting = self._counting_on.get(uid)
            if counting is None:
                continue
            if left := tuple([each for each in counting if each != pod.uid]):
                self._counting_on[uid] = left
            else:
                self._forget_flight(uid)
                self._release(uid)

    def adopt(self, pod: PodInfo, claim: JsonDict) -> None:
        """Record that the claim for a pod's extended resources now exists, as `claim`."""
        pending, uid = _pending_uid(pod), uid_of(claim)
        allocation = self._in_flight.get(pending)
        self._forget_flight(pending)
        if allocation is not None and self._holdings.has(pending) and not self._holdings.has(uid):
            self._holdings.replace_claim(pending, uid, str(key_of(claim)))
            self._in_flight[uid] = allocation
            self._counting_on[uid] = (pod.uid,)

    def claims_held_by(self, pod: PodInfo, claims: Iterable[JsonDict]) -> dict[str, set[str]]:
        """Return the claims of a pod that hold devices, by uid, with the uids of their users."""
        found = {}
        for claim in claims:
            uid = uid_of(claim)
            if self._holdings.parts_of(uid):
                found[uid] = self.users_of(claim)
        pending = _pending_uid(pod)
        if self._holdings.parts_of(pending):
            found[pending] = {pod.uid}
        return found

    def users_of(self, claim: JsonObject) -> set[str]:
        """Return the uids of the users of a claim, assumed ones included."""
        known = {str(user.get("uid")) for user in consumers_of(claim)}
        return known.union(self._counting_on.get(uid_of(claim), ()))

    def claims_named(self, pod: PodInfo, claims: Iterable[JsonDict]) -> set[str]:
        """Return the uids of all claims of a pod, the one for extended resources included."""
        return {uid_of(claim) for claim in claims} | {_pending_uid(pod)}

    def lend(self, uid: str) -> LentDevices:
        """Assume that a claim holds nothing, until `take_back`; versions do not change."""
        return LentDevices(uid, self._give_back(uid))

    def take_back(self, lent: LentDevices) -> None:
        """Undo `lend`."""
        self._holdings.add_claim(lent.claim, lent.held)
        self._fleet.hold(lent.held.devices)

    def rivals(self, uid: str) -> list[str]:
        """Return the claims that compete with one for devices."""
        self._catch_up()
        return rivals(self._holdings, self._fleet, uid)

    def can_all_hold(self, uids: Iterable[str]) -> bool:
        """Return whether the allocations of these claims are compatible."""
        return fit_together(self._fleet, map(self._holdings.parts_of, uids))

    # --- allocation

    def reached(self, demand: PodDemand) -> Mask | None:
        """Return the nodes that reach the devices of allocated claims; None if all do."""
        return reached(demand, self._table)

    def feasible(self, demand: PodDemand) -> Mask | None:
        """Return the nodes on which the unallocated claims did not fail; None without such."""
        return _mask_of(self.feasible_nodes(demand), self._table) if demand.signature else None

    def feasible_nodes(self, demand: PodDemand) -> int:
        """Return the same as a bit set of rows; 0 without such claims."""
        if not demand.signature:
            return 0
        self._catch_up()
        return self._fleet.feasible_nodes.of_kind(demand.signature).nodes

    def answers(self, demand: PodDemand) -> NodeAnswers | None:
        """Return which nodes may serve unallocated claims, by their states; None: these do not say.

        Nodes whose states change are in `changed_nodes`.
        """
        if demand.extended:
            return None
        self._catch_up()
        if not self._fleet.pools.are_of_one_node:
            return None
        found = self._answers.get(demand.signature)
        if found is None:
            signature = demand.signature
            found = self._fleet.answers(
                self._kind(demand),
                lambda row: self._fleet.feasible_nodes.of_kind(signature).has(row),
            )
            if found is not None:
                if len(self._answers) >= MOST_ANSWERS:
                    self._answers.clear()
                self._answers[demand.signature] = found
        return found

    def _kind(self, demand: PodDemand) -> ClaimKind:
        """Return the kind of the claims that have no devices yet; none of it is extended."""
        found = self._kinds.get(demand.signature)
        if found is None:
            if len(self._kinds) >= MOST_ANSWERS:
                self._kinds.clear()
            found = self._fleet.kind([item.claim for item in demand.unallocated])
            self._kinds[demand.signature] = found
        return found

    def may_serve(self, demand: PodDemand) -> Callable[[int], bool]:
        """Return what says whether the unallocated claims may be met on a node, by row."""
        if not demand.signature:
            return lambda _: True
        if (answers := self.answers(demand)) is not None:
            return answers.of
        self._catch_up()
        return self._fleet.feasible_nodes.of_kind(demand.signature).has

    @property
    def changed_nodes(self) -> RowLog:
        """The rows of nodes whose devices have changed, as far as `answers` have been asked."""
        return self._fleet.changed_nodes

    def cheapest(self, policy: Policy, demand: PodDemand, among: Mask) -> int | None:
        """Return the node on which a policy's choice costs least; None: it cannot rank any."""
        if demand.extended:
            return None
        self._catch_up()
        nodes = int.from_bytes(np.packbits(among, bitorder="little").tobytes(), "little")
        found = self._fleet.cheapest(policy, [item.claim for item in demand.unallocated], nodes)
        return None if found is None else found[0]

    def plans(
        self, pod: PodInfo, demand: PodDemand, row: int, policy: Policy | None = None
    ) -> DevicePlans:
        """Return what to write for a placement on a node, or why the claims cannot be met.

        A `policy` that has ranked the node chooses the devices; otherwise it is Kubernetes' choice.
        """
        plans: list[ClaimPlan] = []
        wanted: list[tuple[KnownClaim, Mapping[str, str], tuple[JsonObject, ...]]] = []
        for known, consumer, allocation in demand.claims:
            if allocation is None:
                wanted.append((known, consumer, ()))
            else:
                plans.append(ClaimPlan(known, consumer, allocation))
        extended: list[JsonDict] = []
        if demand.extended:
            offered = self._table.objects[row] or {}
            own = status_of(offered).get("allocatable") or {}
            provided = {
                resource: name
                for resource, name in demand.extended.items()
                if str(own.get(resource, "0")) == "0"
            }
            if provided:
                wire, mappings = synthetic_claim(pod.obj, provided)
                consumer = consumer_of(pod.obj)
                wanted.append((wire, consumer, tuple(mappings)))
                extended.append(_named(wire))
        if not wanted:
            return DevicePlans(tuple(plans))

        def wires() -> list[JsonDict]:
            return [*(item.claim for item in demand.unallocated), *extended]

        self._catch_up()
        kind = self._fleet.kind(wires()) if extended else self._kind(demand)
        found = self._fleet.find_for_kind(row, kind, wires, policy)
        if isinstance(found, Unsatisfiable | Unknown):
            fatal = isinstance(found, Unsatisfiable) and found.fatal
            if demand.signature and not fatal:
                self._rule_out(demand, row)
            return DevicePlans(refused=found, allocated=True)
        points = 0
        if demand.ranked:
            points = sum(map(_points, wires(), map(_as_written, found)))
        for (known, consumer, of_pod), given in zip(wanted, found, strict=True):
            plans.append(ClaimPlan(known, consumer, given, of_pod))
        return DevicePlans(tuple(plans), None, allocated=True, points=points)

    def _rule_out(self, demand: PodDemand, row: int) -> None:
        """Note that a node cannot serve a demand until something is released there."""
        self._fleet.rule_out(row, demand.signature)

    def charged(self, pod: PodInfo, plans: Sequence[ClaimPlan]) -> PodInfo | NodeShortage:
        """Return a pod with its devices' consumption added, or why it may not have them."""
        if not self._allocatable.are_any:
            return pod
        for plan in plans:
            users = self._counting_on.get(plan.uid, ())
            if (
                plan.consumer["resource"] == "pods"
                and any(user != pod.uid for user in users)
                and self._allocatable.is_mapped(plan.allocation)
            ):
                return shared(plan.name)
        return self._allocatable.charged(pod, plans)

    def is_of_network(self, allocation: JsonObject) -> bool:
        """Return whether some device of a claim is reachable from more than one node."""
        return any(
            not each.node_scope.node
            for item in results_of(allocation)
            for each in self._pools.get((item["driver"], item["pool"]), {}).values()
        )

    def find_allocations(
        self, claims: Sequence[JsonDict], row: int, policy: Policy | None = None
    ) -> Sequence[Allocation] | Unsatisfiable | Unknown:
        """Return allocations for several claims at once on one node, or why there are none."""
        if not claims:
            return []
        self._catch_up()
        return self._fleet.find_on_node(row, claims, policy)

    def free_for(self, claims: Sequence[JsonDict], rows: Sequence[int]) -> list[FreeDevices]:
        """Return how many devices of each node are free for some claims, and whether they fit."""
        self._catch_up()
        return self._free.on(rows, claims)

    def fits_without(
        self, claims: Sequence[JsonDict], row: int, allocations: Iterable[JsonObject]
    ) -> bool | None:
        """Return whether claims fit on a node once others are released; None if unknown."""
        self._catch_up()
        return fits_without(self._fleet, row, claims, allocations)

    def wanted(self, claims: Sequence[JsonDict], row: int) -> WantedDevices | None:
        """Return the devices of a node that claims could use; None if counting is useless."""
        self._catch_up()
        return wanted_devices(self._fleet, row, claims)

    def freed_at_most(self, row: int, allocations: Iterable[JsonObject]) -> int:
        """Return the devices of a node that may become free without some allocations, as bits."""
        self._catch_up()
        return freed_at_most(self._fleet, row, allocations)

    def fleet_without(self, allocations: Iterable[JsonObject]) -> Fleet:
        """Return a copy of the fleet without some allocations."""
        self._catch_up()
        fleet = self._fleet.copied()
        for allocation in allocations:
            fleet.release(allocation)
        return fleet

    def state_of(self, row: int) -> object:
        """Return what nodes with equal devices have in common; None: pools are in transition."""
        self._catch_up()
        return self._fleet.node_state(row)

    def everywhere(self, claims: Iterable[Claim]) -> tuple[SliceCatalog, Problem]:
        """Return the problem of claims on the whole cluster, with its slices in order."""
        return self.catalog, Problem(
            claims=tuple(claims),
            classes=self._fleet.classes,
            slices=self.slices,
            in_use=self._holdings.in_use(),
            features=self._fleet.features,
        )

    @property
    def fleet(self) -> Fleet:
        """The fleet as it is now; nodes have the numbers of their rows."""
        self._catch_up()
        return self._fleet

    @property
    def slices(self) -> tuple[Slice, ...]:
        """The slices by name, with the taints of DeviceTaintRules."""
        return self._published[1]

    @property
    def catalog(self) -> SliceCatalog:
        """The slices by pool."""
        return self._published[0]

    @property
    def _published(self) -> tuple[SliceCatalog, tuple[Slice, ...]]:
        if self._catalog is None:
            slices = tuple(self._slices[name] for name in sorted(self._slices))
            self._catalog = SliceCatalog(slices), slices
        return self._catalog

    def node(self, row: int) -> Node:
        """Return a node as the allocator sees it."""
        table = self._table
        declared = v1.skips_operations(table.objects[row])
        return Node(table.names[row], table.labels[row], declared)

    def claims_of(self, pod: PodInfo, demand: PodDemand) -> list[Claim]:
        """Return what a pod still needs allocated, extended resources included."""
        wires = [item.claim for item in demand.unallocated]
        if demand.extended:
            wires.append(_named(synthetic_claim(pod.obj, demand.extended)[0]))
        return [self._reader.claim(wire) for wire in wires]

    # --- inside

    def _note_change(self, changed: Slice) -> None:
        self._catalog = None
        self.version += 1
        self.inventory_version += 1
        self._changed_pools.add((changed.driver, changed.pool))

    def _catch_up(self) -> None:
        """Update the fleet with nodes and slices that have changed since the last time."""
        changed = self._table.changed
        if self._rows_seen < len(changed):
            for row in dict.fromkeys(changed[self._rows_seen :]):
                if self._table.names[row]:
                    self._fleet.put_node(row, self.node(row))
                else:
                    self._fleet.remove_node(row)
            self._rows_seen = len(changed)
        if self._changed_pools:
            self._fleet.replace_pools(
                (pool, self._pools[pool].values(), self._holdings.pool_use(pool))
                for pool in sorted(self._changed_pools)
            )
            self._changed_pools.clear()

    def _forget_flight(self, uid: str) -> None:
        self._in_flight.pop(uid, None)
        self._counting_on.pop(uid, None)

    def _hold(
        self, uid: str, holder: NamespacedName | str, allocation: PlannedAllocation | JsonObject
    ) -> None:
        planned = isinstance(allocation, PlannedAllocation)
        held = HeldByClaim(
            holder, allocation if isinstance(allocation, PlannedAllocation) else holds(allocation)
        )
        if self._holdings.has(uid):
            if self._holdings.parts_of(uid) == held.parts:
                return
            self._release(uid)
        self.version += 1
        # What pools that have changed hold is not in the fleet yet.
        free = self._fleet.hold(held.devices)
        alone = free and planned and not self._changed_pools
        self._holdings.add_claim(uid, held, alone=alone)

    def _release(self, uid: str) -> bool:
        holds_any = self._give_back(uid).holds_any
        self.version += holds_any
        return holds_any

    def _give_back(self, uid: str) -> HeldByClaim:
        contested = self._holdings.any_contested(uid)
        held = self._holdings.remove_claim(uid)
        if contested:
            # Other claims hold some of these still: what is in use is counted anew.
            used = {(item.driver, item.pool) for item in held.parts}
            self._changed_pools |= used & self._pools.keys()
        elif held.holds_any:
            self._fleet.give_back(held.devices)
        return held


def _as_written(given: Allocation | JsonObject) -> JsonObject:
    return given.written if isinstance(given, PlannedAllocation) else given


def _pending_uid(pod: PodInfo) -> str:
    return f"extended/{pod.uid}"


def _named(wire: JsonDict) -> JsonDict:
    """Return the claim for extended resources with a name for sentences."""
    return {**wire, "metadata": {**wire["metadata"], "name": EXTENDED_CLAIM}}


def rows_of(nodes: int) -> Numbers:
    """Return the rows of a bit set, in order."""
    if nodes.bit_count() <= FEW_BITS:
        few = []
        while nodes:
            few.append(nodes.bit_length() - 1)
            nodes ^= 1 << few[-1]
        return np.array(few[::-1], dtype=int)
    packed = np.frombuffer(nodes.to_bytes((nodes.bit_length() + 7) // 8, "little"), dtype=np.uint8)
    return np.flatnonzero(np.unpackbits(packed, bitorder="little"))


def _mask_of(nodes: int, table: NodeTable) -> Mask:
    """Return a bit set of rows as a mask over the table."""
    found = np.zeros(table.size, dtype=bool)
    found[rows_of(nodes)] = True
    return found


def _points(claim: JsonDict, allocation: JsonObject) -> int:
    """Return the score of a claim's chosen alternatives."""
    chosen = {item["request"] for item in results_of(allocation)}
    return sum(
        MOST_POINTS - rank
        for request in requests_of(claim["spec"])
        for rank, subrequest in enumerate(request.get("firstAvailable") or ())
        if f"{request['name']}/{subrequest['name']}" in chosen
    )
