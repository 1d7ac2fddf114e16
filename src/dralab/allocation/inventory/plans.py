"""Plans: what a kind of claim gets on a node in a given state, computed once per state.

A `ClaimKind` is what a pod's claims request, without their names; a `NodeShape` is what equal nodes
have in common. `Planner` holds the plans of one kind on one shape: a lazily built automaton, whose
states are the states of the pools that matter to the kind, and whose transitions are plans.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import accumulate
from operator import itemgetter, lt
from typing import Any, Final

from dralab.allocation.inventory.occupancy import taking_of
from dralab.allocation.inventory.plan_results import (
    ERROR,
    UNKNOWN,
    Plan,
    Planned,
    PlannedDevice,
)
from dralab.allocation.inventory.pool_states import Amounts, PoolShape, PoolState
from dralab.allocation.inventory.several import SeveralRequests, several_requests
from dralab.allocation.outcome import Chosen
from dralab.allocation.pools import Pool, PoolView
from dralab.allocation.problem import (
    AllocationFeatures,
    Claim,
    DeviceClass,
    DevicePath,
    DeviceSelectorError,
    Node,
)
from dralab.allocation.results import chosen_device, configs_of, node_selector, only
from dralab.allocation.search.alternatives import Alternative, RefusedError
from dralab.allocation.search.backtracking import BudgetError, Effort
from dralab.allocation.search.eligibility import WHOLE, Eligibility, SearchError, SelectorAnswers
from dralab.allocation.search.node_devices import (
    DeviceState,
    NodeDevices,
    Remaining,
    bits,
    changed,
)
from dralab.allocation.search.reduction import solve
from dralab.allocation.search.rules import rules_of
from dralab.allocation.search.setup import (
    PickedAlternative,
    SearchSetup,
    fixed_devices,
    prepare_alternatives,
)

# Plans that one planner remembers, and states of pools in their keys; beyond it they are forgotten,
# which costs time alone.
MOST_PLANS: Final = 100_000
MOST_STATES_IN_KEYS: Final = 10_000_000
STATES_OF_CLAIM: Final[frozenset[str]] = frozenset({"match", "distinct"})


class ClaimKind:
    """What the claims of a pod ask for; pods with equal requests are of one kind."""

    def __init__(
        self,
        claims: Sequence[Claim],
        classes: Mapping[str, DeviceClass],
        features: AllocationFeatures,
    ) -> None:
        self.claims = tuple(claims)
        self.refused: RefusedError | None = None
        self.alternatives: Sequence[Sequence[Sequence[Alternative]]] = ()
        try:
            self.alternatives = prepare_alternatives(self.claims, classes, features)
        except RefusedError as error:
            self.refused = error
        requests = [request for claim in self.alternatives for request in claim]
        every = [alternative for request in requests for alternative in request]
        self.some_all = any(alternative.all for alternative in every)
        self.reads = frozenset(_reads(self.claims, every))
        # The usual kind: one request for some devices, and at most one rule, on a common value.
        self.single = every[0] if len(every) == 1 and _simple(every[0]) else None
        rules = rules_of(self.claims[0].constraints) if self.single else ()
        covering = [rule for rule in rules if self.single and rule.constraint.covers(every[0].name)]
        self.match = ""
        if covering:
            if len(covering) == 1 and covering[0].constraint.kind == "match":
                self.match = covering[0].constraint.name
            else:
                self.single = None


def paths_read_by(demand: Iterable[tuple[Alternative, float]]) -> Iterable[DevicePath]:
    """Return what the selectors of likely requests read."""
    return _reads((), [alternative for alternative, _ in demand])


def _simple(alternative: Alternative) -> bool:
    return not (alternative.all or alternative.admin)


def _reads(claims: Iterable[Claim], alternatives: Iterable[Alternative]) -> Iterable[DevicePath]:
    for alternative in alternatives:
        for condition in alternative.conditions:
            yield from condition.selector.reads
        for derivation in alternative.subrequest.derived.values():
            yield from derivation.reads
        if alternative.subrequest.capacity:
            yield ("capacity",)
    for claim in claims:
        for constraint in claim.constraints:
            if constraint.kind in STATES_OF_CLAIM:
                domain, _, name = constraint.name.rpartition("/")
                yield ("attributes", domain, name)
            else:
                yield ("capacity",)


class NodeShape:
    """What nodes that see pools of the same shapes have in common."""

    def __init__(
        self,
        node: Node,
        pools: Sequence[Pool],
        shapes: Sequence[PoolShape],
        visible: int,
        features: AllocationFeatures,
    ) -> None:
        self.pools = tuple(shapes)
        self.view = PoolView(node=node, pools=tuple(pools))
        self.node_devices = NodeDevices(self.view, features)
        self.visible = visible
        self.offsets: list[int] = []
        at = 0
        for shape in shapes:
            self.offsets.append(at)
            at += shape.size
        self.masks = [
            shape.everything << offset for shape, offset in zip(shapes, self.offsets, strict=True)
        ]
        groups = [len(shape.node_devices.counter_groups) for shape in shapes]
        self._first_groups = list(accumulate(groups, initial=0))
        self.answers = SelectorAnswers(self.node_devices)
        self.planners: dict[ClaimKind, Planner] = {}
        # The state of the node that was asked for last: the next differs in few pools.
        self._last: tuple[Sequence[PoolState | None], DeviceState] = (
            (None,) * len(shapes),
            DeviceState(0, 0, (Remaining((), ()),) * sum(groups), {}),
        )

    def planner(self, kind: ClaimKind, budget: int) -> "Planner":
        """Return the planner of a kind."""
        found = self.planners.get(kind)
        if found is None:
            found = self.planners[kind] = Planner(self, kind, budget)
        return found

    def state(self, states: Sequence[PoolState]) -> DeviceState:
        """Return the states of all pools as one state of the node."""
        if len(states) == 1:
            return states[0].state
        before, (used, charged, known, rooms) = self._last
        remaining, room = list(known), dict(rooms)
        for at in changed(before, states):
            own, was, offset = states[at].state, before[at], self.offsets[at]
            used = used & ~self.masks[at] | own.used << offset
            charged = charged & ~self.masks[at] | own.charged << offset
            if own.remaining:
                first = self._first_groups[at]
                remaining[first : first + len(own.remaining)] = own.remaining
            for number in was.state.room if was else ():
                del room[number + offset]
            for number in own.room:
                room[number + offset] = own.room[number]
        found = DeviceState(used, charged, tuple(remaining), room)
        self._last = (states, found)
        return found

    def pool_and_number(self, number: int) -> tuple[int, int]:
        """Return the pool of a device, and its number there."""
        if len(self.offsets) == 1:
            return 0, number
        pool = len(self.offsets) - 1
        while self.offsets[pool] > number:
            pool -= 1
        return pool, number - self.offsets[pool]


class Planner:
    """The plans of one kind of claims on nodes of one shape."""

    def __init__(self, shape: NodeShape, kind: ClaimKind, budget: int) -> None:
        self.shape = shape
        self.kind = kind
        self.budget = budget
        self.node_devices = shape.node_devices
        self.eligibility = Eligibility(self.node_devices, shape.answers)
        self.plans: dict[object, Planned] = {}
        self.known: dict[Alternative, int] | None = {}
        for claim in kind.alternatives:
            for request in claim:
                for alternative in request:
                    self._learn(alternative)
        union = -1
        if self.known is not None and not kind.some_all:
            union = 0
            for mask in self.known.values():
                union |= mask
        self.relevant = tuple(position for position, mask in enumerate(shape.masks) if union & mask)
        # The pool that alone matters, -1 where several do or none.
        self.only = self.relevant[0] if len(self.relevant) == 1 else -1
        self._relevant_of = itemgetter(*self.relevant) if self.relevant else None
        self._most_plans = min(MOST_PLANS, MOST_STATES_IN_KEYS // max(1, len(self.relevant)))
        self.impossible = self.known is not None and not kind.some_all and self._short()
        self.single = kind.single if self.known is not None and self.only >= 0 else None
        self.wanted = self.known[self.single] if self.single and self.known else 0
        # The same, where counting devices with room says whether there is a plan.
        self.counted = self.single
        shared = self.wanted & self.node_devices.shareable
        if self.single and shared:
            if not all(self.eligibility.amounts(self.single, number) for number in bits(shared)):
                self.counted = None
            self.single = None
        self.count = self.single.count if self.single else 0
        self.groups = self._groups() if self.single else []
        self.consuming = self.node_devices.consuming
        self.special = self._special()
        self._nothing_left: dict[Alternative, tuple[Sequence[PoolState | None], int]] = {}
        self._configs: dict[tuple[Alternative, ...], tuple[tuple[Mapping[str, Any], ...], ...]] = {}
        self.offset = shape.offsets[self.only] if self.only >= 0 else 0
        self.several = (
            several_requests(
                shape.pools[self.only],
                claims=kind.claims,
                alternatives=kind.alternatives,
                known=self.known,
                offset=self.offset,
                eligibility=self.eligibility,
            )
            if self.known is not None and self.only >= 0
            else None
        )
        self.node_bound = all(
            offer.slice.scope_of(offer.device).node for offer in self.node_devices.offers
        )
        self.plain = (
            self.several is not None
            and self.several.plain
            and self.node_bound
            and not any(mask & self.special for mask in (self.known or {}).values())
        )
        self._planned: dict[Alternative, dict[int, PlannedDevice]] = {}
        single = self.single
        self.bare = (
            single is not None
            and self.node_bound
            and not (single.subrequest.tolerations or single.prioritized)
            and not (single.device_class.configs or kind.claims[0].configs)
        )

    def _learn(self, alternative: Alternative) -> None:
        """Find the devices that could serve an alternative; give up where a selector fails."""
        if self.known is None:
            return
        try:
            self.known[alternative] = self.eligibility.accepting(alternative, self.shape.visible)
        except DeviceSelectorError:
            self.known = None

    def _short(self) -> bool:
        """Return whether some request could not be met even on an empty node."""
        return any(
            all(
                self.known is not None and self.known[alternative].bit_count() < alternative.count
                for alternative in request
            )
            for claim in self.kind.alternatives
            for request in claim
        )

    def _groups(self) -> list[int]:
        """Return the eligible devices per common value, where one is asked for."""
        alternative = self.single
        if alternative is None or not self.kind.match:
            return [self.wanted]
        groups: dict[object, int] = {}
        for number in bits(self.wanted):
            for value in self.eligibility.values(alternative, number, self.kind.match) or ():
                groups[value] = groups.get(value, 0) | 1 << number
        return list(groups.values())

    def _special(self) -> int:
        """Return the devices whose results say more than the device's identity."""
        mask = 0
        for number, offer in enumerate(self.node_devices.offers):
            device = offer.device
            if device.binding_conditions or offer.slice.skip_node_operations:
                mask |= 1 << number
        return mask | self.node_devices.shareable

    # --- plans

    def key(self, states: Sequence[PoolState]) -> object:
        """Return what a plan depends on: the states of the pools that matter."""
        return self._relevant_of(states) if self._relevant_of else ()

    def plan(self, states: Sequence[PoolState], key: object) -> Planned:
        """Compute the plan for a new state."""
        if self.known is None:
            # A selector fails on some device; whether that matters depends on what is really in
            # use, which states do not say.
            found: Planned = ERROR
        elif self.impossible:
            found = None
        elif self.single is not None:
            found = self._quick(self.single, states)
        elif self.several is not None:
            found = self._of_several(self.several, states)
        else:
            found = self._full(states)
        if len(self.plans) >= self._most_plans:
            self.plans.clear()
        self.plans[key] = found
        return found

    def serves(self, states: Sequence[PoolState]) -> bool | None:
        """Return whether there is a plan for a state, by counting; None: only planning tells."""
        asked = self.counted
        if asked is None:
            return None
        free = self.wanted & states[self.only].free << self.offset
        if free & self.node_devices.shareable:
            free &= ~self._exhausted(asked, states)
        if free.bit_count() < asked.count:
            return False
        return None if self.kind.match or free & self.consuming else True

    def plan_within(self, states: Sequence[PoolState], devices: int | None) -> Planned:
        """Return the plan for a state that uses these devices alone, None for all of them."""
        key = self.key(states)
        if devices is None or self.known is None:
            return self.plans[key] if key in self.plans else self.plan(states, key)
        within = (key, devices)
        if within not in self.plans:
            known = {alternative: mask & devices for alternative, mask in self.known.items()}
            self.plans[within] = self._full(states, known)
        return self.plans[within]

    def _quick(self, alternative: Alternative, states: Sequence[PoolState]) -> Planned:
        """Serve one request from one pool, without looking at devices one by one."""
        free = states[self.only].free << self.offset
        best: tuple[int, ...] = ()
        for group in self.groups:
            mask = group & free
            if mask.bit_count() < self.count:
                continue
            if mask & self.consuming and self.count > 1:
                # Each fits, but perhaps not all: counters decide.
                return self._full(states)
            devices = _lowest(mask, self.count)
            if not best or devices < best:
                best = devices
        if not best:
            return None
        if self.bare and not any(self.special >> number & 1 for number in best):
            return self._plain((alternative,), ([number - self.offset for number in best],))
        return self.planned((PickedAlternative(alternative, best),))

    def _of_several(self, several: SeveralRequests, states: Sequence[PoolState]) -> Planned:
        """Serve several requests from the counter groups of one pool."""
        rows = several.first(states[self.only])
        if rows is None:
            return None
        if self.plain:
            return self._plain(several.alternatives, rows)
        picked = [
            PickedAlternative(alternative, tuple([number + self.offset for number in row]))
            for alternative, row in zip(several.alternatives, rows, strict=True)
        ]
        return self.planned(picked)

    def _plain(self, alternatives: Sequence[Alternative], rows: Iterable[Sequence[int]]) -> Plan:
        """Return the plan for whole devices of one pool, by request, and nothing to copy."""
        planned: list[PlannedDevice] = []
        taken: list[tuple[int, None]] = []
        for alternative, row in zip(alternatives, rows, strict=True):
            devices = self._planned.setdefault(alternative, {})
            for number in row:
                found = devices.get(number)
                if found is None:
                    found = PlannedDevice(alternative.name, self.only, number, None)
                    devices[number] = found
                planned.append(found)
                taken.append((number, None))
        return Plan(
            rows=(tuple(planned),),
            configs=((),),
            selectors=(True,),
            takings=(((self.only, taking_of(tuple(taken))),),),
        )

    def _full(
        self, states: Sequence[PoolState], known: Mapping[Alternative, int] | None = None
    ) -> Planned:
        state = self.shape.state(states)
        try:
            fixed = (
                fixed_devices(self.eligibility, state, self.kind.claims, self.kind.alternatives)
                if self.kind.some_all
                else {}
            )
            setup = replace(self.setup(state, fixed), usable=self._with_room(known, states))
            picked = solve(setup, Effort(self.budget))
        except (SearchError, RefusedError):
            return ERROR
        except BudgetError:
            return UNKNOWN
        return None if picked is None else self.planned(picked)

    def _with_room(
        self, known: Mapping[Alternative, int] | None, states: Sequence[PoolState]
    ) -> Mapping[Alternative, int] | None:
        """Leave out shared devices with too little left: the search would try each of them."""
        known = self.known if known is None else known
        if known is None or not self.node_devices.shareable:
            return known
        found = dict(known)
        for alternative, mask in known.items():
            if mask & self.node_devices.shareable and not (alternative.admin or alternative.all):
                found[alternative] = mask & ~self._exhausted(alternative, states)
        return found

    def _exhausted(self, alternative: Alternative, states: Sequence[PoolState]) -> int:
        """Return the shared devices that have less left than a request takes."""
        before, full = self._nothing_left.get(alternative, ((None,) * len(states), 0))
        for at in changed(before, states):
            offset = self.shape.offsets[at]
            full &= ~self.shape.masks[at]
            for inside, room in states[at].state.room.items():
                wanted = self.eligibility.amounts(alternative, inside + offset)
                if wanted and any(map(lt, room, wanted)):
                    full |= 1 << inside + offset
        self._nothing_left[alternative] = (states, full)
        return full

    def setup(
        self, state: DeviceState, fixed: Mapping[Alternative, tuple[int, ...]]
    ) -> SearchSetup:
        """Return the search problem for a state."""
        return SearchSetup(
            self.node_devices,
            self.eligibility,
            state,
            self.kind.claims,
            self.kind.alternatives,
            fixed,
            self.known,
        )

    def planned(self, picked: Sequence[PickedAlternative]) -> Plan:
        """Return the plan that gives these devices."""
        place = self.shape.pool_and_number
        takings: list[dict[int, list[tuple[int, Amounts]]]] = [{} for _ in self.kind.claims]
        rows: list[list[PlannedDevice]] = [[] for _ in self.kind.claims]
        for each in picked:
            alternative = each.alternative
            plain = not (alternative.admin or alternative.subrequest.tolerations)
            into, taking = rows[alternative.claim], takings[alternative.claim]
            for number in each.devices:
                pool, inside = place(number)
                special = self.special >> number & 1
                chosen = None if plain and not special else self._chosen(alternative, number)
                into.append(PlannedDevice(alternative.name, pool, inside, chosen))
                if alternative.admin:
                    continue
                amounts = None
                if special and self.node_devices.shareable >> number & 1:
                    amounts = self.eligibility.amounts(alternative, number) or WHOLE
                taking.setdefault(pool, []).append((inside, amounts))
        return Plan(
            rows=tuple(map(tuple, rows)),
            configs=self._configs_for(picked),
            selectors=self._selectors(picked),
            takings=tuple(
                tuple([(pool, taking_of(tuple(taken))) for pool, taken in taking.items()])
                for taking in takings
            ),
            shares=tuple([sum(map(_is_share, row)) for row in rows]) if self.special else (),
        )

    def _chosen(self, alternative: Alternative, number: int) -> Chosen:
        # The writer of the allocation gives each share its id.
        return chosen_device(
            self.node_devices, self.eligibility, alternative, number, share_ids=str
        )

    def _configs_for(
        self, picked: Sequence[PickedAlternative]
    ) -> tuple[tuple[Mapping[str, Any], ...], ...]:
        alternatives = tuple(each.alternative for each in picked)
        found = self._configs.get(alternatives)
        if found is None:
            found = self._configs[alternatives] = tuple(
                tuple(
                    {"source": item.source}
                    | ({"requests": list(item.requests)} if item.requests else {})
                    | dict(item.body)
                    for item in configs_of(
                        claim, [each for each in picked if each.alternative.claim == position]
                    )
                )
                for position, claim in enumerate(self.kind.claims)
            )
        return found

    def _selectors(
        self, picked: Sequence[PickedAlternative]
    ) -> tuple[Mapping[str, Any] | bool | None, ...]:
        if self.node_bound:
            with_devices = {each.alternative.claim for each in picked if each.devices}
            return tuple(
                True if position in with_devices else None
                for position in range(len(self.kind.claims))
            )
        alone = only(self.shape.view.node)
        found: list[Mapping[str, Any] | bool | None] = []
        for position in range(len(self.kind.claims)):
            mine = [each for each in picked if each.alternative.claim == position]
            selector = node_selector(self.node_devices, mine)
            found.append(True if selector == alone else selector)
        return tuple(found)


def _is_share(planned: PlannedDevice) -> bool:
    return planned.chosen is not None and planned.chosen.share is not None


def _lowest(mask: int, count: int) -> tuple[int, ...]:
    found = []
    for _ in range(count):
        low = mask & -mask
        found.append(low.bit_length() - 1)
        mask ^= low
    return tuple(found)
