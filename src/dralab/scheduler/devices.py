"""The devices of the cluster as the scheduler sees them: slices, who holds what, what may be had.

Allocations that were decided but are not yet written count as held ("assumed"), so that the next
pod never gets the same device. What a claim may get on a node is `allocation`'s answer; this
module hands it the slices and holdings that matter there, and remembers each "no" until
something that could change it happens.
"""

from collections import OrderedDict, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

import numpy as np

from dralab.allocation import v1
from dralab.allocation.outcome import Allocated, Outcome
from dralab.allocation.pools import Catalog, View
from dralab.allocation.problem import (
    Claim,
    DeviceClass,
    DeviceId,
    Features,
    InUse,
    Node,
    Problem,
    ShareId,
    Slice,
)
from dralab.objects.metadata import key_of, uid_of
from dralab.runtime.client import Object
from dralab.scheduler.allocatable import (
    EXTENDED_CLAIM,
    Allocatable,
    ClaimPlan,
    NodeShortage,
    shared,
)
from dralab.scheduler.demands import Demand, synthetic_claim
from dralab.scheduler.nodes import REMEMBERED, Mask, NodeTable
from dralab.scheduler.pods import PodInfo
from dralab.values import labels
from dralab.values.quantity import Number

Wire = Mapping[str, Any]
PoolKey = tuple[str, str]


class Allocator(Protocol):
    """Finds devices for claims among the pools of one node."""

    def __call__(self, problem: Problem, view: View) -> Outcome:
        """Return the devices, or why there are none."""
        ...


@dataclass(slots=True)
class _PoolUse:
    """What claims hold of one pool."""

    exclusive: dict[DeviceId, str] = field(default_factory=dict)
    shares: dict[ShareId, str] = field(default_factory=dict)
    consumed: dict[DeviceId, dict[str, Number]] = field(default_factory=dict)


class _NodeView(NamedTuple):
    """The slices that matter on one node, and the pools they make up there."""

    slices: tuple[Slice, ...]
    pools: tuple[PoolKey, ...]
    view: View


class Devices:
    """Slices, classes and holdings, kept up to date by whoever watches them."""

    def __init__(self, table: NodeTable, reader: v1.Reader, allocate: Allocator) -> None:
        self._table = table
        self._reader = reader
        self._allocate = allocate
        # Counts the changes, as `NodeTable.version` does.
        self.version = 0
        self._features = Features()
        self._allocatable = Allocatable()
        self._wires: dict[str, Object] = {}
        self._slices: dict[str, Slice] = {}
        self._rules: dict[str, Object] = {}
        self._classes: dict[str, DeviceClass] = {}
        self._pools: dict[PoolKey, dict[str, Slice]] = defaultdict(dict)
        self._local: dict[str, dict[PoolKey, int]] = defaultdict(dict)
        self._shared: dict[PoolKey, int] = {}
        self._views: dict[str, _NodeView] = {}
        self._catalog: tuple[Catalog, tuple[Slice, ...]] | None = None
        self._use: dict[PoolKey, _PoolUse] = {}
        self._held: dict[str, tuple[str, list[Wire]]] = {}
        self._in_flight: dict[str, Wire] = {}
        # Pods that count on an allocation in flight: it is given up with the last of them.
        self._counting_on: dict[str, set[str]] = {}
        self._claims: OrderedDict[str, Claim] = OrderedDict()
        self._refused: OrderedDict[bytes, Mask] = OrderedDict()

    # --- what there is

    def put_slice(self, name: str, wire: Object | None) -> None:
        """Take a new or changed ResourceSlice, or its end (None)."""
        old = self._slices.pop(name, None)
        if old is not None:
            self._unlink(old)
        self._allocatable.put_slice(name, wire)
        if wire is None:
            self._wires.pop(name, None)
            return
        self._wires[name] = wire
        rules = [self._rules[rule] for rule in sorted(self._rules)]
        found = self._reader.slice(wire, rules)
        self._slices[name] = found
        pool = (found.driver, found.pool)
        self._pools[pool][name] = found
        if found.node_scope.node:
            places = self._local[found.node_scope.node]
            places[pool] = places.get(pool, 0) + 1
        else:
            self._shared[pool] = self._shared.get(pool, 0) + 1
        self._changed(found)

    def put_rule(self, name: str, rule: Object | None) -> None:
        """Take a new or changed DeviceTaintRule, or its end: the slices are read again."""
        if rule is None:
            self._rules.pop(name, None)
        else:
            self._rules[name] = rule
        for slice_name in sorted(self._wires):
            self.put_slice(slice_name, self._wires[slice_name])

    def put_class(self, name: str, wire: Object | None) -> None:
        """Take a new or changed DeviceClass, or its end."""
        if wire is None:
            self._classes.pop(name, None)
        else:
            self._classes[name] = self._reader.device_class(wire)
        self.version += 1
        self._refused.clear()

    def node_changed(self, row: int) -> None:
        """Forget the refusals of a node whose labels changed."""
        self.version += 1
        for refused in self._refused.values():
            if row < refused.shape[0]:
                refused[row] = False
        self._views.pop(self._table.names[row], None)

    # --- who holds it

    def put_claim(self, claim: Object) -> bool:
        """Take a claim as the API has it; return whether devices became free."""
        uid = uid_of(claim)
        allocation = (claim.get("status") or {}).get("allocation")
        if allocation is None:
            return False if uid in self._in_flight else self._release(uid)
        self._settle(uid)
        self._hold(claim, allocation)
        return False

    def remove_claim(self, claim: Object) -> bool:
        """Take it that a claim is gone; return whether devices became free."""
        self._settle(uid_of(claim))
        return self._release(uid_of(claim))

    def in_flight(self, uid: str) -> Wire | None:
        """Return the allocation that was decided for a claim and is being written."""
        return self._in_flight.get(uid)

    def assume(self, plans: Iterable[ClaimPlan], pod: PodInfo) -> None:
        """Count devices as held from now on, although nothing is written yet."""
        for plan in plans:
            uid = uid_of(plan.claim) or _pending_uid(pod)
            if (plan.claim.get("status") or {}).get("allocation") is None:
                self._hold(plan.claim, plan.allocation, uid)
                self._in_flight[uid] = plan.allocation
                self._counting_on.setdefault(uid, set()).add(pod.uid)

    def forget(self, plans: Iterable[ClaimPlan], pod: PodInfo) -> None:
        """Take back what was assumed and will not be written."""
        for plan in plans:
            uid = uid_of(plan.claim) or _pending_uid(pod)
            counting = self._counting_on.get(uid)
            if counting is None:
                continue
            counting.discard(pod.uid)
            if not counting:
                self._settle(uid)
                self._release(uid)

    def adopt(self, pod: PodInfo, claim: Object) -> None:
        """Take it that the claim for a pod's extended resources now exists, as `claim`."""
        pending, uid = _pending_uid(pod), uid_of(claim)
        allocation = self._in_flight.get(pending)
        self._settle(pending)
        held = self._held.pop(pending, None)
        if held is not None and allocation is not None and uid not in self._held:
            self._held[uid] = held
            self._in_flight[uid] = allocation
            self._counting_on[uid] = {pod.uid}

    # --- what may be had

    def candidates(self, demand: Demand) -> Mask | None:
        """Return the nodes that devices do not rule out so far; None where none is ruled out."""
        found: Mask | None = None
        for item in demand.wanted:
            selector = (item.allocation or {}).get("nodeSelector")
            if selector is not None:
                mask = self._selected(selector)
                found = mask if found is None else found & mask
        if demand.shape:
            refused = self._refusals(demand.shape)
            found = ~refused if found is None else found & ~refused
        return found

    def plans(
        self, pod: PodInfo, demand: Demand, row: int
    ) -> tuple[tuple[ClaimPlan, ...], Outcome | None]:
        """Return what to write where the pod goes to a node, and the outcome behind it.

        The outcome is None where nothing had to be allocated; it is no `Allocated` where the
        node cannot serve the pod, and then there are no plans.
        """
        kept = [
            ClaimPlan(item.claim, item.consumer, item.allocation)
            for item in demand.wanted
            if item.allocation is not None
        ]
        wanted: list[tuple[Object, Mapping[str, str], tuple[Wire, ...]]] = [
            (item.claim, item.consumer, ()) for item in demand.open
        ]
        claims = [self._claim(item.claim) for item in demand.open]
        if demand.extended:
            offered = self._table.objects[row] or {}
            own = (offered.get("status") or {}).get("allocatable") or {}
            provided = {
                resource: name
                for resource, name in demand.extended.items()
                if str(own.get(resource, "0")) == "0"
            }
            if provided:
                wire, mappings, claim = self._synthetic(pod, provided)
                consumer = {"resource": "pods", "name": pod.key.name, "uid": pod.uid}
                wanted.append((wire, consumer, mappings))
                claims.append(claim)
        if not claims:
            return tuple(kept), None
        outcome = self.joint(claims, row)
        if not isinstance(outcome, Allocated):
            if demand.shape:
                self._refusals(demand.shape)[row] = True
            return (), outcome
        made = [
            ClaimPlan(claim, consumer, v1.status_allocation(found), mappings)
            for (claim, consumer, mappings), found in zip(wanted, outcome.claims, strict=True)
        ]
        return (*kept, *made), outcome

    def charged(self, pod: PodInfo, plans: Sequence[ClaimPlan]) -> PodInfo | NodeShortage:
        """Return a pod with what its devices take of its node, or why it may not have them."""
        for plan in plans:
            users: set[str] = self._counting_on.get(uid_of(plan.claim), set())
            if (
                plan.consumer["resource"] == "pods"
                and users - {pod.uid}
                and self._allocatable.is_mapped(plan.allocation)
            ):
                return shared(plan.name)
        return self._allocatable.charged(pod, plans)

    def is_of_network(self, allocation: Wire) -> bool:
        """Return whether some device of a claim can be had from more than one node."""
        return bool(self._shared) and any(
            (item["driver"], item["pool"]) in self._shared
            for item in (allocation.get("devices") or {}).get("results") or ()
        )

    def joint(self, claims: Iterable[Claim], row: int) -> Outcome:
        """Return devices for several claims at once on one node."""
        return self._allocate(self.problem(claims, row), self._view(row).view)

    def problem(self, claims: Iterable[Claim], row: int) -> Problem:
        """Return the allocation problem of claims on a node: what matters there, and no more."""
        view = self._view(row)
        return Problem(
            claims=tuple(claims),
            classes=self._classes,
            slices=view.slices,
            in_use=self._in_use(view.pools),
        )

    def everywhere(self, claims: Iterable[Claim]) -> tuple[Catalog, Problem]:
        """Return the problem of claims on the whole cluster, with its slices in order."""
        if self._catalog is None:
            slices = tuple(self._slices[name] for name in sorted(self._slices))
            self._catalog = Catalog(slices), slices
        catalog, slices = self._catalog
        in_use = self._in_use(sorted(self._use))
        return catalog, Problem(
            claims=tuple(claims), classes=self._classes, slices=slices, in_use=in_use
        )

    def node(self, row: int) -> Node:
        """Return a node as the allocator sees it."""
        return Node(self._table.names[row], self._table.labels[row])

    def claim(self, wire: Object) -> Claim:
        """Return a claim as the allocator sees it."""
        return self._claim(wire)

    def claims_of(self, pod: PodInfo, demand: Demand) -> list[Claim]:
        """Return what a pod still needs allocated, extended resources included."""
        claims = [self._claim(item.claim) for item in demand.open]
        if demand.extended:
            claims.append(self._synthetic(pod, demand.extended)[2])
        return claims

    # --- inside

    def _settle(self, uid: str) -> None:
        self._in_flight.pop(uid, None)
        self._counting_on.pop(uid, None)

    def _synthetic(
        self, pod: PodInfo, provided: Mapping[str, str]
    ) -> tuple[Object, tuple[Wire, ...], Claim]:
        wire, mappings = synthetic_claim(pod, provided)
        named = {**wire, "metadata": {**wire["metadata"], "name": EXTENDED_CLAIM}}
        return wire, tuple(mappings), self._reader.claim(named)

    def _unlink(self, old: Slice) -> None:
        pool = (old.driver, old.pool)
        del self._pools[pool][old.name]
        if not self._pools[pool]:
            del self._pools[pool]
        places = self._local[old.node_scope.node] if old.node_scope.node else self._shared
        places[pool] -= 1
        if not places[pool]:
            del places[pool]
        self._changed(old)

    def _changed(self, changed: Slice) -> None:
        self._catalog = None
        self.version += 1
        node = changed.node_scope.node
        row = self._table.row_of.get(node) if node else None
        shared = any(
            not other.node_scope.node
            for other in self._pools.get((changed.driver, changed.pool), {}).values()
        )
        if node and not shared:
            self._views.pop(node, None)
            if row is not None:
                for refused in self._refused.values():
                    if row < refused.shape[0]:
                        refused[row] = False
        else:
            self._views.clear()
            self._refused.clear()

    def _view(self, row: int) -> "_NodeView":
        name = self._table.names[row]
        found = self._views.get(name)
        if found is None:
            pools = tuple(sorted({*self._local.get(name, ()), *self._shared}))
            slices = tuple(
                self._pools[pool][slice_name]
                for pool in pools
                for slice_name in sorted(self._pools[pool])
            )
            view = Catalog(slices).view(self.node(row), self._features)
            found = self._views[name] = _NodeView(slices, pools, view)
        return found

    def _in_use(self, pools: Iterable[PoolKey]) -> InUse:
        exclusive: dict[DeviceId, str] = {}
        shares: dict[ShareId, str] = {}
        consumed: dict[DeviceId, Mapping[str, Number]] = {}
        for pool in pools:
            use = self._use.get(pool)
            if use is not None:
                exclusive |= use.exclusive
                if use.shares:
                    shares |= use.shares
                    consumed |= use.consumed
        holders: dict[DeviceId, tuple[str, ...]] = {
            device: (holder,) for device, holder in exclusive.items()
        }
        for share, holder in shares.items():
            holders[share.device] = (*holders.get(share.device, ()), holder)
        return InUse(
            exclusive=frozenset(exclusive),
            shares=frozenset(shares),
            consumed=consumed,
            holders=holders,
        )

    def _hold(self, claim: Object, allocation: Wire, uid: str = "") -> None:
        uid = uid or uid_of(claim)
        results = [
            item
            for item in (allocation.get("devices") or {}).get("results") or ()
            if not item.get("adminAccess")
        ]
        held = self._held.get(uid)
        if held is not None:
            if held[1] == results:
                return
            self._release(uid)
        self.version += 1
        name = str(key_of(claim)) if claim["metadata"].get("name") else EXTENDED_CLAIM
        self._held[uid] = (name, results)
        for item in results:
            device = DeviceId(item["driver"], item["pool"], item["device"])
            use = self._use.setdefault((device.driver, device.pool), _PoolUse())
            if item.get("shareID"):
                use.shares[ShareId(device, item["shareID"])] = name
                total = use.consumed.setdefault(device, {})
                v1.add_amounts(total, item.get("consumedCapacity"))
            else:
                use.exclusive[device] = name

    def _release(self, uid: str) -> bool:
        _, results = self._held.pop(uid, ("", []))
        self.version += bool(results)
        for item in results:
            device = DeviceId(item["driver"], item["pool"], item["device"])
            use = self._use[device.driver, device.pool]
            share = item.get("shareID")
            if share:
                use.shares.pop(ShareId(device, share), None)
                total, less = use.consumed[device], dict[str, Number]()
                v1.add_amounts(less, item.get("consumedCapacity"))
                for name, amount in less.items():
                    total[name] -= amount
                if not any(other.device == device for other in use.shares):
                    del use.consumed[device]
            else:
                use.exclusive.pop(device, None)
            self._freed((device.driver, device.pool))
        return bool(results)

    def _freed(self, pool: PoolKey) -> None:
        if pool in self._shared or not self._refused:
            self._refused.clear()
            return
        for item in self._pools.get(pool, {}).values():
            row = self._table.row_of.get(item.node_scope.node)
            if row is not None:
                for refused in self._refused.values():
                    if row < refused.shape[0]:
                        refused[row] = False

    def _refusals(self, shape: bytes) -> Mask:
        found = self._refused.get(shape)
        if found is None:
            found = self._refused[shape] = np.zeros(max(64, self._table.size), dtype=bool)
            if len(self._refused) > REMEMBERED:
                self._refused.popitem(last=False)
        elif found.shape[0] < self._table.size:
            grown = np.zeros(2 * self._table.size, dtype=bool)
            grown[: found.shape[0]] = found
            found = self._refused[shape] = grown
        return found[: self._table.size]

    def _selected(self, selector: Wire) -> Mask:
        found = np.zeros(self._table.size, dtype=bool)
        for name in _named_nodes(selector):
            row = self._table.row_of.get(name)
            if row is not None:
                found[row] = True
        if not _names_only(selector):
            for name, row in self._table.row_of.items():
                found[row] = labels.node_selector_accepts(selector, self._table.labels[row], name)
        return found

    def _claim(self, wire: Object) -> Claim:
        uid = uid_of(wire)
        found = self._claims.get(uid)
        if found is None or not uid:
            found = self._reader.claim(wire)
            if uid:
                self._claims[uid] = found
                if len(self._claims) > 16 * REMEMBERED:
                    self._claims.popitem(last=False)
        return found


def _pending_uid(pod: PodInfo) -> str:
    return f"extended/{pod.uid}"


def _named_nodes(selector: Wire) -> list[str]:
    return [
        name
        for term in selector.get("nodeSelectorTerms") or ()
        for item in term.get("matchFields") or ()
        if item.get("key") == "metadata.name" and item.get("operator") == "In"
        for name in item.get("values") or ()
    ]


def _names_only(selector: Wire) -> bool:
    return all(
        not term.get("matchExpressions")
        and len(term.get("matchFields") or ()) == 1
        and term["matchFields"][0].get("operator") == "In"
        for term in selector.get("nodeSelectorTerms") or ()
    )
