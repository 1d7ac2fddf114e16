"""Can the rest still be met? Asked after every choice, so that the search need not go back.

In this order, cheapest first (see docs/concepts/allocation.md):

1. every request has enough devices that still fit, one by one;
2. all requests together have (bipartite matching);
3. each open matchAttribute is bound to each value on offer, equal ones in ascending order;
4. devices that draw on counters or are shared: what each unit can serve, by dynamic programming.

The answer is exact wherever it is True or False. None means that the rest is of a kind for which
no polynomial method is built in; the search then has to look, within its budget.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from math import prod
from typing import Final, NamedTuple

from dralab.allocation.problem import Scalar
from dralab.allocation.search.alternatives import Term
from dralab.allocation.search.backtracking import Effort
from dralab.allocation.search.counter_groups import Member, UnitKey, Vector, folded, served
from dralab.allocation.search.eligibility import Carried, SearchError, Values
from dralab.allocation.search.matching import Shortfall, matched
from dralab.allocation.search.node_devices import Draw, Left, State, bits, mask_of
from dralab.allocation.search.observers import Answer
from dralab.allocation.search.rules import Distinct, Match, Rule, Total
from dralab.allocation.search.setup import Setup

# Beyond these sizes the dynamic programme gives up, and the search looks for itself.
MOST_VECTORS: Final = 300
MOST_KINDS: Final = 12
MOST_FAILURES: Final = 8
MOST_STATES: Final = 20_000


class Bound(NamedTuple):
    """A rule of one claim that is in force."""

    claim: int
    rule: Rule

    def covers(self, term: Term) -> bool:
        """Return whether the rule binds a request."""
        return term.claim == self.claim and self.rule.constraint.covers(term.name)


@dataclass(frozen=True, slots=True, eq=False)
class Demand:
    """What is left of one request: `need` more devices of `mask`."""

    term: Term
    need: int
    mask: int


class Oracle:
    """Answers for one search problem; what it works out about units is kept."""

    def __init__(self, setup: Setup, effort: Effort) -> None:
        self.setup = setup
        self.board = setup.board
        self.eligibility = setup.eligibility
        self.effort = effort
        self.errors: dict[Term, list[tuple[int, str]]] = {}
        self._failures = 0
        self._hard = 1 << 30
        # What was worked out about units outlives the search: it depends on their contents alone.
        self._served: dict[object, tuple[Vector, ...] | None] = setup.eligibility.served
        self.eligible: dict[Term, int] = {
            term: self._eligible(term) for request in setup.requests for term in request
        }

    # --- what is fixed

    def _eligible(self, term: Term) -> int:
        """Return the devices that could serve a request; selectors without an answer are kept."""
        start = self.setup.start
        if self.setup.known is not None and not term.all:
            return self.setup.known[term] & (-1 if term.admin else ~start.used)
        mask = 0
        numbers: Sequence[int] = range(len(self.board.offers))
        if term.all:
            numbers = self.setup.fixed[term]
        for number in numbers:
            if start.used >> number & 1 and not term.admin:
                continue
            self.effort.spend()
            try:
                if self.eligibility.accepts(term, number):
                    mask |= 1 << number
            except SearchError as error:
                self.errors.setdefault(term, []).append((number, str(error)))
        return mask

    # --- who is like whom

    def likeness(self, number: int) -> object:
        """Return what tells a device from others for these claims, its counters apart."""
        known = self.eligibility.likeness
        if number not in known:
            known[number] = self._likeness(number)
        return known[number]

    def _likeness(self, number: int) -> object:
        serves: list[object] = []
        # Kept for later searches on the board, so nothing may depend on what is in use now.
        masks = self.eligible if self.setup.known is None else self.setup.known
        for term, mask in masks.items():
            able = bool(mask >> number & 1)
            serves.append(able)
            if not able:
                continue
            serves.append(self.eligibility.amounts(term, number))
            serves += [
                self.eligibility.values(term, number, constraint.name)
                for constraint in self.setup.claims[term.claim].constraints
                if constraint.kind in {"match", "distinct"} and constraint.covers(term.name)
            ]
        capacity = self.board.offers[number].device.capacity
        totals = tuple(
            capacity[constraint.name].value if constraint.name in capacity else 0
            for claim in self.setup.claims
            for constraint in claim.constraints
            if constraint.kind == "total"
        )
        return tuple(serves), totals

    def alike(self, unit: int) -> tuple[int, int, object]:
        """Return where a unit begins, its devices from there, and what tells it from others."""
        known = self.eligibility.alike
        found = known.get(unit)
        if found is None:
            members = self.board.members[unit]
            low = (members & -members).bit_length() - 1
            content = []
            for number in bits(members):
                draw = self.board.draws[number]
                drawn = None if draw is None else (draw.amounts, draw.groups)
                content.append((drawn, self.likeness(number)))
            like = self.eligibility.numbered((members >> low, tuple(content)))
            found = known[unit] = (low, members >> low, like)
        return found

    # --- questions

    def demand(self, term: Term, need: int, state: State, exclude: int) -> Demand:
        """Return a demand with the devices that could serve it now."""
        mask = self.eligible[term] & ~exclude
        if not term.admin:
            mask &= ~state.used & self.board.fitting(state)
            for number, room in state.room.items():
                if mask >> number & 1:
                    amounts = self.eligibility.amounts(term, number) or ()
                    if any(have < want for have, want in zip(room, amounts, strict=True)):
                        mask &= ~(1 << number)
        return Demand(term, need, mask)

    def possible(
        self,
        demands: Sequence[Demand],
        rest: int,
        state: State,
        bound: Sequence[Bound],
        devices: int,
    ) -> Answer:
        """Return whether `demands` and all requests from `rest` on can be met together.

        `bound` are the rules of the current claim; those of later claims are fresh. `devices` is
        how many the claim of the last demand would have, once the demands are met.
        """
        requests = self.setup.requests
        if rest == len(requests):
            return self.feasible(demands, state, bound)
        answer: Answer = False
        terms = requests[rest]
        if terms[0].request == 0:
            devices = 0
            claim = terms[0].claim
            bound = [*bound, *(Bound(claim, rule) for rule in self.setup.rules(claim))]
        if len(terms) > 1 and self.feasible(demands, state, bound) is False:
            return False
        limit = self.setup.claims[terms[0].claim].limit
        for term in terms:
            need = self.setup.count(term)
            if devices + need + self.setup.least_after[rest] > limit or (term.all and not need):
                continue
            demand = self.demand(term, need, state, 0)
            if demand.mask.bit_count() < need:
                continue
            found = self.possible([*demands, demand], rest + 1, state, bound, devices + need)
            if found:
                return True
            if found is None:
                answer = None
        return answer

    def feasible(self, demands: Sequence[Demand], state: State, bound: Sequence[Bound]) -> Answer:
        """Return whether demands can be met together, their alternatives being chosen."""
        self.effort.spend()
        demands = [demand for demand in demands if demand.need]
        complete, demands = self._restricted(demands, state, bound)
        if any(demand.mask.bit_count() < demand.need for demand in demands):
            return False
        if isinstance(self.matching(demands, state), Shortfall):
            return False
        open_rules = [
            each for each in bound if isinstance(each.rule, Match) and self._is_open(each, demands)
        ]
        found = self._bind(demands, state, open_rules, ())
        return None if found and not complete else found

    def matching(self, demands: Sequence[Demand], state: State) -> list[int] | Shortfall:
        """Match demands to devices, counters and constraints aside."""
        # Within one claim nobody gets a device twice, whether it is used or only watched.
        everyone = self._exclusive(demands)
        normal = [demand for demand in demands if everyone or not demand.term.admin]
        mask = 0
        for demand in normal:
            mask |= demand.mask
        shares = {
            number: self._shares(number, normal, state)
            for number in bits(mask & self.board.shareable)
        }
        return matched(
            [demand.need for demand in normal],
            [demand.mask for demand in normal],
            shares,
            self.effort.spend,
        )

    # --- rules

    def _restricted(
        self, demands: Sequence[Demand], state: State, bound: Sequence[Bound]
    ) -> tuple[bool, list[Demand]]:
        """Apply what rules already say; False where they ask for more than is checked below."""
        complete = True
        result = list(demands)
        for each in bound:
            covered = [place for place, demand in enumerate(result) if each.covers(demand.term)]
            if not covered:
                complete = complete and each.rule.met
                continue
            rule = each.rule
            if isinstance(rule, Total):
                complete = False
                continue
            if isinstance(rule, Distinct) and sum(result[place].need for place in covered) > 1:
                complete = False
            for place in covered:
                demand = result[place]
                mask = demand.mask & self._admitted(rule, demand.term)
                result[place] = Demand(demand.term, demand.need, mask)
            if isinstance(rule, Distinct) and not self._enough(result, covered, rule):
                # Nothing can be served: let the caller's count of devices see it.
                result[covered[0]] = replace(result[covered[0]], mask=0)
        return complete and self._settled(result, state), result

    def _exclusive(self, demands: Sequence[Demand]) -> bool:
        """Return whether any two demands exclude each other from any device."""
        claim = demands[0].term.claim if demands else 0
        return all(
            demand.term.claim == claim and not demand.mask & self.board.shareable
            for demand in demands
        )

    def _settled(self, demands: Sequence[Demand], state: State) -> bool:
        """Return whether admin access is told well enough from use for an answer to be yes."""
        watching = [demand for demand in demands if demand.term.admin]
        if not watching or len(demands) == 1:
            return True
        used = 0
        for demand in demands:
            if not demand.term.admin:
                used |= demand.mask
        if not used & self.board.drawing & ~state.charged and self._exclusive(demands):
            # The matching has them all, and nothing else has to be decided.
            return True
        apart = used
        for demand in watching:
            free = demand.mask & ~apart
            if free.bit_count() < demand.need:
                return False
            apart |= mask_of(list(islice(bits(free), demand.need)))
        return True

    def _admitted(self, rule: Match | Distinct, term: Term) -> int:
        """Return the devices whose values a rule still admits, each by itself."""
        carried = self._carried(term, rule.constraint.name)
        if isinstance(rule, Match) and rule.common is not None:
            return carried.of(rule.common)
        if isinstance(rule, Distinct):
            return carried.any & ~carried.of(rule.taken)
        return carried.any

    def _carried(self, term: Term, name: str) -> Carried:
        known = self.eligibility.carried
        found = known.get((term, name))
        if found is None:
            by_value: dict[tuple[str, Scalar], int] = {}
            mask = self.eligible[term] if self.setup.known is None else self.setup.known[term]
            for number in bits(mask):
                for value in sorted(self.eligibility.values(term, number, name) or (), key=repr):
                    by_value[value] = by_value.get(value, 0) | 1 << number
            found = known[term, name] = Carried(by_value)
        return found

    def _enough(self, demands: Sequence[Demand], covered: Sequence[int], rule: Distinct) -> bool:
        """Return whether covered demands find enough different values, matched one by one."""
        # By the whole set of a device's values: a relaxation that is exact for single values.
        places: dict[Values, int] = {}
        masks = []
        name = rule.constraint.name
        for place in covered:
            demand = demands[place]
            mask = 0
            for number in bits(demand.mask):
                values = self.eligibility.values(demand.term, number, name)
                if values is not None:
                    mask |= 1 << places.setdefault(values, len(places))
            masks.append(mask)
        needs = [demands[place].need for place in covered]
        return not isinstance(matched(needs, masks, {}, self.effort.spend), Shortfall)

    def _is_open(self, each: Bound, demands: Sequence[Demand]) -> bool:
        """Return whether a match rule still has to decide between values."""
        covered = [demand for demand in demands if each.covers(demand.term)]
        if sum(demand.need for demand in covered) <= 1:
            return False
        return len(self._choices(each.rule, covered)) > 1

    def _choices(self, rule: Rule, covered: Sequence[Demand]) -> dict[object, list[int]]:
        """Return per value that a match rule could settle on the devices left to each demand."""
        common = rule.common if isinstance(rule, Match) else None
        found: dict[object, list[int]] = {}
        for order, demand in enumerate(covered):
            for value, mask in self._carried(demand.term, rule.constraint.name).items():
                mine = mask & demand.mask
                if mine and (common is None or value in common):
                    found.setdefault(value, [0] * len(covered))[order] = mine
        return found

    def _bind(
        self,
        demands: Sequence[Demand],
        state: State,
        rules: Sequence[Bound],
        previous: tuple[object, int] | tuple[()],
    ) -> Answer:
        """Bind open match rules to values, one after the other."""
        if not rules:
            return self._units(demands, state)
        each = rules[0]
        covered = [place for place, demand in enumerate(demands) if each.covers(demand.term)]
        masks = self._choices(each.rule, [demands[place] for place in covered])
        # Rules that ask the same of the same devices are interchangeable: ascending values only.
        likeness = (
            each.rule.constraint.name,
            tuple((demands[place].need, demands[place].mask) for place in covered),
        )
        alone = not any(
            other.covers(demands[place].term) for other in rules[1:] for place in covered
        )
        first = previous[1] if previous and previous[0] == likeness else 0
        answer: Answer = False
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
                after[place] = Demand(demands[place].term, demands[place].need, narrowed[order])
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
        self, demands: Sequence[Demand], rules: Sequence[Bound]
    ) -> Callable[[object], object]:
        """Return what tells values from each other: of those that are alike one is enough.

        Two roots with equal numbers of equal devices are alike, as long as nothing else (another
        attribute, counters, a list of values) tells their devices apart.
        """
        name = rules[0].rule.constraint.name
        carried = [
            self._carried(demand.term, name)
            for demand in demands
            if any(each.covers(demand.term) for each in rules)
        ]
        involved = 0
        for demand in demands:
            involved |= demand.mask
        simple = (
            not involved & (self.board.drawing | self.board.shareable)
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

    # --- units

    def _shares(self, number: int, demands: Sequence[Demand], state: State) -> int:
        """Return how many demands a shared device could serve, by the smallest amounts asked."""
        room = self.board.room(state, number)
        asked = [
            self.eligibility.amounts(demand.term, number) or ()
            for demand in demands
            if demand.mask >> number & 1
        ]
        most = len(asked)
        for position, have in enumerate(room):
            left, count = have, 0
            for amount in sorted(amounts[position] for amounts in asked):
                left -= amount
                if left < 0:
                    break
                count += 1
            most = min(most, count)
        return most

    def _units(self, demands: Sequence[Demand], state: State) -> Answer:
        """Decide by what units can serve; matching is exact where none is involved."""
        normal = [demand for demand in demands if not demand.term.admin]
        union = 0
        for demand in normal:
            union |= demand.mask
        unpaid = self.board.drawing & ~state.charged
        involved = union & (unpaid | self.board.shareable)
        if not involved:
            return True
        merged = _merged(normal, self.board.shareable)
        caps = tuple(demand.need for demand in merged)
        if prod(cap + 1 for cap in caps) > MOST_VECTORS:
            rough = self._roughly(merged, involved, unpaid, state)
            if rough is False or len(caps) > MOST_KINDS:
                return rough
        if self._failures >= MOST_FAILURES and len(caps) >= self._hard:
            return None
        tables = []
        for members, left in self._clusters(involved, unpaid, state):
            table = self._table(
                UnitKey(
                    tuple(self._member(number, merged, unpaid, state) for number in members),
                    left,
                    caps,
                )
            )
            if table is None:
                self._give_up(len(caps))
                return None
            tables.append(table)
        vectors = folded(tables, caps, self.effort.spend, MOST_VECTORS)
        if vectors is None:
            self._give_up(len(caps))
            return None
        plain = [demand.mask & ~involved for demand in merged]
        return any(self._rest(caps, vector, plain) for vector in vectors)

    def _give_up(self, kinds: int) -> None:
        """Remember that so many kinds of demand were too many, and do not try for ever."""
        self._failures += 1
        self._hard = min(self._hard, kinds)

    def _table(self, key: UnitKey) -> tuple[Vector, ...] | None:
        if key not in self._served:
            self._served[key] = served(key, self.effort.spend, MOST_STATES)
        return self._served[key]

    def _roughly(
        self, demands: Sequence[Demand], involved: int, unpaid: int, state: State
    ) -> Answer:
        """Match demands to units, each with as many places as it can serve at most.

        For many different kinds of demand at once, where the vectors would be too many: still a
        proof when it fails, and no answer when it does not.
        """
        masks = [demand.mask & ~involved for demand in demands]
        place = len(self.board.offers)
        for members, left in self._clusters(involved, unpaid, state):
            inside = sum(1 << number for number in members)
            most = sum(demand.need for demand in demands if demand.mask & inside)
            if not self.board.shareable & inside:
                one = tuple(
                    self._member(number, demands, unpaid, state)._replace(serves=(0,))
                    for number in members
                )
                table = self._table(UnitKey(one, left, (min(most, len(members)),)))
                most = table[0][0] if table else min(most, len(members))
            places = ((1 << most) - 1) << place
            place += most
            for kind, demand in enumerate(demands):
                if demand.mask & inside:
                    masks[kind] |= places
        needs = [demand.need for demand in demands]
        found = matched(needs, masks, {}, self.effort.spend)
        return False if isinstance(found, Shortfall) else None

    def _rest(self, caps: Vector, vector: Vector, plain: list[int]) -> bool:
        needs = [cap - done for cap, done in zip(caps, vector, strict=True)]
        if any(need > mask.bit_count() for need, mask in zip(needs, plain, strict=True)):
            return False
        return not isinstance(matched(needs, plain, {}, self.effort.spend), Shortfall)

    def _clusters(
        self, involved: int, unpaid: int, state: State
    ) -> Iterator[tuple[list[int], Left | None]]:
        """Yield devices that depend on each other, with what they have left together."""
        for unit, members in enumerate(self.board.members):
            mask = involved & members & unpaid
            if mask:
                yield bits(mask), state.left[unit]
        for number in bits(involved & ~unpaid):
            yield [number], None

    def _member(self, number: int, demands: Sequence[Demand], unpaid: int, state: State) -> Member:
        serves = tuple(kind for kind, demand in enumerate(demands) if demand.mask >> number & 1)
        draw = self.board.draws[number] if unpaid >> number & 1 else None
        # The unit is told apart by what it has left, not by its number.
        draw = None if draw is None else Draw(0, draw.amounts, draw.groups)
        if not self.board.shareable >> number & 1:
            return Member(draw, serves)
        room = self.board.room(state, number)
        amounts = tuple(
            self.eligibility.amounts(demands[kind].term, number) or () for kind in serves
        )
        return Member(draw, serves, amounts, room)


def _merged(demands: Sequence[Demand], shareable: int) -> list[Demand]:
    """Add up demands for the same whole devices; one device may serve two that share it."""
    merged: dict[object, Demand] = {}
    for demand in demands:
        key: object = demand.mask if not demand.mask & shareable else demand
        known = merged.get(key)
        merged[key] = demand if known is None else replace(known, need=known.need + demand.need)
    return list(merged.values())
