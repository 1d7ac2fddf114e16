"""Is the rest still feasible? Checked after every choice, so that the search need not backtrack.

Checks, cheapest first (see docs/concepts/allocation.md):

1. each request alone has enough devices that still fit; 2. so do all requests together (bipartite
   matching); 3. each matchAttribute without a value is bound to each available value, equal ones in
   ascending order; 4. for devices that consume counters or are shared: what each counter group can
   serve, by dynamic programming.

True and False are exact. None means that no polynomial method is implemented for this kind of
problem; the search then has to decide, within its budget.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import islice
from typing import NamedTuple

from dralab.allocation.search.alternatives import Alternative
from dralab.allocation.search.backtracking import Effort
from dralab.allocation.search.eligibility import DevicesByValue, SearchError, Values
from dralab.allocation.search.group_feasibility import GroupFeasibility, OpenRequest
from dralab.allocation.search.matching import Shortfall, matched
from dralab.allocation.search.node_devices import DeviceState, bits, mask_of
from dralab.allocation.search.rules import CapacityTotal, DistinctValues, MatchedValues, Rule
from dralab.allocation.search.setup import SearchSetup
from dralab.values.quantity import Number


class ActiveConstraint(NamedTuple):
    """A rule of one claim that is in force."""

    claim: int
    rule: Rule

    def covers(self, alternative: Alternative) -> bool:
        """Return whether the rule binds a request."""
        return alternative.claim == self.claim and self.rule.constraint.covers(alternative.name)


class Feasibility:
    """Answers for one search problem; its results about counter groups are kept."""

    def __init__(self, setup: SearchSetup, effort: Effort) -> None:
        self.setup = setup
        self.node_devices = setup.node_devices
        self.eligibility = setup.eligibility
        self.effort = effort
        self.errors: dict[Alternative, list[tuple[int, str]]] = {}
        self.groups = GroupFeasibility(setup.node_devices, setup.eligibility, effort)
        self.eligible: dict[Alternative, int] = {
            alternative: self._eligible(alternative)
            for request in setup.requests
            for alternative in request
        }

    # --- what is fixed

    def _eligible(self, alternative: Alternative) -> int:
        """Return the devices that could serve a request; selectors without an answer are kept."""
        start = self.setup.start
        if self.setup.candidates is not None and not alternative.all:
            return self.setup.candidates[alternative] & (-1 if alternative.admin else ~start.used)
        mask = 0
        numbers: Sequence[int] = range(len(self.node_devices.offers))
        if alternative.all:
            numbers = self.setup.fixed[alternative]
        for number in numbers:
            if start.used >> number & 1 and not alternative.admin:
                continue
            self.effort.spend()
            try:
                if self.eligibility.accepts(alternative, number):
                    mask |= 1 << number
            except SearchError as error:
                self.errors.setdefault(alternative, []).append((number, str(error)))
        return mask

    # --- who is like whom

    def likeness(self, number: int) -> object:
        """Return what distinguishes a device from others for these claims, except its counters."""
        known = self.eligibility.likeness
        if number not in known:
            known[number] = self._likeness(number)
        return known[number]

    def _likeness(self, number: int) -> object:
        serves: list[object] = []
        # Kept for later searches on the node, so nothing may depend on what is in use now.
        masks = self.eligible if self.setup.known is None else self.setup.known
        for alternative, mask in masks.items():
            able = bool(mask >> number & 1)
            serves.append(able)
            if not able:
                continue
            serves.append(self.eligibility.amounts(alternative, number))
            serves += [
                self.eligibility.values(alternative, number, constraint.name)
                for constraint in self.setup.claims[alternative.claim].constraints
                if constraint.kind in {"match", "distinct"} and constraint.covers(alternative.name)
            ]
        capacity = self.node_devices.offers[number].device.capacity
        totals = tuple(
            capacity[constraint.name].value if constraint.name in capacity else 0
            for claim in self.setup.claims
            for constraint in claim.constraints
            if constraint.kind == "total"
        )
        return tuple(serves), totals

    def alike(self, counter_group: int) -> tuple[int, int, object]:
        """Return the start of a counter group, its devices from there, and its characteristics."""
        known = self.eligibility.alike
        found = known.get(counter_group)
        if found is None:
            members = self.node_devices.members[counter_group]
            low = (members & -members).bit_length() - 1
            content = []
            for number in bits(members):
                consumption = self.node_devices.consumptions[number]
                drawn = None if consumption is None else (consumption.amounts, consumption.groups)
                content.append((drawn, self.likeness(number)))
            like = self.eligibility.numbered((members >> low, tuple(content)))
            found = known[counter_group] = (low, members >> low, like)
        return found

    # --- questions

    def open_request(
        self, alternative: Alternative, need: int, state: DeviceState, exclude: int
    ) -> OpenRequest:
        """Return a demand with the devices that could serve it now."""
        mask = self.eligible[alternative] & ~exclude
        if not alternative.admin:
            mask &= ~state.used & self.node_devices.fitting(state)
            for number, room in state.room.items():
                if mask >> number & 1:
                    amounts = self.eligibility.amounts(alternative, number) or ()
                    if any(have < want for have, want in zip(room, amounts, strict=True)):
                        mask &= ~(1 << number)
        return OpenRequest(alternative, need, mask)

    def possible(
        self,
        demands: Sequence[OpenRequest],
        rest: int,
        state: DeviceState,
        bound: Sequence[ActiveConstraint],
        devices: int,
    ) -> bool | None:
        """Return whether `demands` and all requests from `rest` on can be met together.

        `bound` are the rules of the current claim; those of later claims are fresh. `devices` is
        how many the claim of the last demand would have, once the demands are met.
        """
        requests = self.setup.requests
        if rest == len(requests):
            return self.feasible(demands, state, bound)
        answer: bool | None = False
        alternatives = requests[rest]
        if alternatives[0].request == 0:
            devices = 0
            claim = alternatives[0].claim
            bound = [*bound, *(ActiveConstraint(claim, rule) for rule in self.setup.rules(claim))]
        if len(alternatives) > 1 and self.feasible(demands, state, bound) is False:
            return False
        limit = self.setup.claims[alternatives[0].claim].limit
        for alternative in alternatives:
            need = self.setup.count(alternative)
            if devices + need + self.setup.least_after[rest] > limit or (
                alternative.all and not need
            ):
                continue
            demand = self.open_request(alternative, need, state, 0)
            if demand.mask.bit_count() < need:
                continue
            found = self.possible([*demands, demand], rest + 1, state, bound, devices + need)
            if found:
                return True
            if found is None:
                answer = None
        return answer

    def feasible(
        self, demands: Sequence[OpenRequest], state: DeviceState, bound: Sequence[ActiveConstraint]
    ) -> bool | None:
        """Return whether demands can be met together, their alternatives being chosen."""
        self.effort.spend()
        demands = [demand for demand in demands if demand.need]
        complete, demands = self._restricted(demands, state, bound)
        if any(demand.mask.bit_count() < demand.need for demand in demands):
            return False
        if isinstance(self.matching(demands, state), Shortfall):
            return False
        open_rules = [
            each
            for each in bound
            if isinstance(each.rule, MatchedValues) and self._is_open(each, demands)
        ]
        found = self._bind(demands, state, open_rules, ())
        return None if found and not complete else found

    def matching(self, demands: Sequence[OpenRequest], state: DeviceState) -> list[int] | Shortfall:
        """Match demands to devices, ignoring counters and constraints."""
        # Within one claim no device is chosen twice, whether used or for admin access.
        everyone = self._exclusive(demands)
        normal = [demand for demand in demands if everyone or not demand.alternative.admin]
        mask = 0
        for demand in normal:
            mask |= demand.mask
        shares = {
            number: self.groups.shares(number, normal, state)
            for number in bits(mask & self.node_devices.shareable)
        }
        return matched(
            [demand.need for demand in normal],
            [demand.mask for demand in normal],
            shares,
            self.effort.spend,
        )

    # --- rules

    def _restricted(
        self, demands: Sequence[OpenRequest], state: DeviceState, bound: Sequence[ActiveConstraint]
    ) -> tuple[bool, list[OpenRequest]]:
        """Apply what rules already say; False if they ask for more than is checked below."""
        complete = True
        result = list(demands)
        for each in bound:
            covered = [
                place for place, demand in enumerate(result) if each.covers(demand.alternative)
            ]
            if not covered:
                complete = complete and each.rule.met
                continue
            rule = each.rule
            if isinstance(rule, CapacityTotal):
                least, most = self._reach(rule, [result[place] for place in covered])
                if most < rule.constraint.amount:
                    result[covered[0]] = replace(result[covered[0]], mask=0)
                complete = complete and least >= rule.constraint.amount
                continue
            if (
                isinstance(rule, DistinctValues)
                and sum(result[place].need for place in covered) > 1
            ):
                complete = False
            for place in covered:
                demand = result[place]
                carried = self._carried(demand.alternative, rule.constraint.name)
                mask = demand.mask & rule.admitted(carried)
                result[place] = OpenRequest(demand.alternative, demand.need, mask)
            if isinstance(rule, DistinctValues) and not self._enough(result, covered, rule):
                # Nothing can be served: let the caller's count of devices see it.
                result[covered[0]] = replace(result[covered[0]], mask=0)
        return complete and self._settled(result, state), result

    def _reach(self, rule: CapacityTotal, covered: Sequence[OpenRequest]) -> tuple[Number, Number]:
        """Return the least and the most that covered demands can bring a total to."""
        least = most = rule.reached or 0
        for demand in covered:
            offered = sorted(rule.offered(self.eligibility, n) for n in bits(demand.mask))
            least += sum(offered[: demand.need])
            most += sum(offered[-demand.need :])
        return least, most

    def _exclusive(self, demands: Sequence[OpenRequest]) -> bool:
        """Return whether any two demands exclude each other from any device."""
        claim = demands[0].alternative.claim if demands else 0
        return all(
            demand.alternative.claim == claim and not demand.mask & self.node_devices.shareable
            for demand in demands
        )

    def _settled(self, demands: Sequence[OpenRequest], state: DeviceState) -> bool:
        """Return whether admin access and use are separate enough for the answer to be yes."""
        watching = [demand for demand in demands if demand.alternative.admin]
        if not watching or len(demands) == 1:
            return True
        used = 0
        for demand in demands:
            if not demand.alternative.admin:
                used |= demand.mask
        if not used & self.node_devices.consuming & ~state.charged and self._exclusive(demands):
            # The matching has them all, and nothing else has to be decided.
            return True
        apart = used
        for demand in watching:
            free = demand.mask & ~apart
            if free.bit_count() < demand.need:
                return False
            apart |= mask_of(list(islice(bits(free), demand.need)))
        return True

    def _carried(self, alternative: Alternative, name: str) -> DevicesByValue:
        masks = self.eligible if self.setup.known is None else self.setup.known
        return self.eligibility.carried(alternative, name, masks[alternative])

    def _enough(
        self, demands: Sequence[OpenRequest], covered: Sequence[int], rule: DistinctValues
    ) -> bool:
        """Return whether covered demands find enough different values, matched one by one."""
        # By the whole set of a device's values: a relaxation that is exact for single values.
        places: dict[Values, int] = {}
        masks = []
        name = rule.constraint.name
        for place in covered:
            demand = demands[place]
            mask = 0
            for number in bits(demand.mask):
                values = self.eligibility.values(demand.alternative, number, name)
                if values is not None:
                    mask |= 1 << places.setdefault(values, len(places))
            masks.append(mask)
        needs = [demands[place].need for place in covered]
        return not isinstance(matched(needs, masks, {}, self.effort.spend), Shortfall)

    def _is_open(self, each: ActiveConstraint, demands: Sequence[OpenRequest]) -> bool:
        """Return whether a match rule still has to decide between values."""
        covered = [demand for demand in demands if each.covers(demand.alternative)]
        if sum(demand.need for demand in covered) <= 1:
            return False
        return len(self._choices(each.rule, covered)) > 1

    def _choices(self, rule: Rule, covered: Sequence[OpenRequest]) -> dict[object, list[int]]:
        """Return the devices left to each demand, by the values that a match rule could choose."""
        common = rule.common if isinstance(rule, MatchedValues) else None
        found: dict[object, list[int]] = {}
        for order, demand in enumerate(covered):
            for value, mask in self._carried(demand.alternative, rule.constraint.name).items():
                mine = mask & demand.mask
                if mine and (common is None or value in common):
                    found.setdefault(value, [0] * len(covered))[order] = mine
        return found

    def _bind(
        self,
        demands: Sequence[OpenRequest],
        state: DeviceState,
        rules: Sequence[ActiveConstraint],
        previous: tuple[object, int] | tuple[()],
    ) -> bool | None:
        """Bind open match rules to values, one after the other."""
        if not rules:
            return self.groups.served(demands, state)
        each = rules[0]
        covered = [place for place, demand in enumerate(demands) if each.covers(demand.alternative)]
        masks = self._choices(each.rule, [demands[place] for place in covered])
        # Rules that ask the same of the same devices are interchangeable: ascending values only.
        likeness = (
            each.rule.constraint.name,
            tuple((demands[place].need, demands[place].mask) for place in covered),
        )
        alone = not any(
            other.covers(demands[place].alternative) for other in rules[1:] for place in covered
        )
        first = previous[1] if previous and previous[0] == likeness else 0
        answer: bool | None = False
        tried: set[tuple[int, ...]] = set()
        failed: set[object] = set()
        alike = self._interchangeable(demands, rules)
        for index, (value, narrowed) in enumerate(masks.items()):
            if index < first or tuple(narrowed) in tried or (failed and alike(value) in failed):
                continue
            tried.add(tuple(narrowed))
            self.effort.spend()
            after = list(demands)
            for order, place in enumerate(covered):
                after[place] = OpenRequest(
                    demands[place].alternative, demands[place].need, narrowed[order]
                )
            if any(after[place].mask.bit_count() < after[place].need for place in covered):
                continue
            if isinstance(self.matching(after, state), Shortfall):
                failed.add(alike(value))
                continue
            found = self._bind(after, state, rules[1:], (likeness, index) if alone else ())
            if found:
                return True
            if found is None:
                answer = None
            failed.add(alike(value))
        return answer

    def _interchangeable(
        self, demands: Sequence[OpenRequest], rules: Sequence[ActiveConstraint]
    ) -> Callable[[object], object]:
        """Return what distinguishes values: of interchangeable ones one is enough.

        Two roots with equal numbers of equal devices are alike, as long as nothing else (another
        attribute, counters, a list of values) tells their devices apart.
        """
        name = rules[0].rule.constraint.name
        carried = [
            self._carried(demand.alternative, name)
            for demand in demands
            if any(each.covers(demand.alternative) for each in rules)
        ]
        involved = 0
        for demand in demands:
            involved |= demand.mask
        simple = (
            not involved & (self.node_devices.consuming | self.node_devices.shareable)
            and all(each.rule.constraint.name == name for each in rules)
            and len(carried) > 0
            and all(each.single for each in carried)
        )
        if not simple:
            return lambda value: value

        def alike(value: object) -> object:
            devices = 0
            for each in carried:
                devices |= each.get(value, 0)  # type: ignore[call-overload]  # a value of a rule
            kinds = Counter(
                tuple(demand.mask >> number & 1 for demand in demands)
                for number in bits(devices & involved)
            )
            return frozenset(kinds.items())

        return alike
