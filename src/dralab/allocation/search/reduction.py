"""The first solution in Kubernetes' order, without its backtracking.

Kubernetes returns the lexicographically smallest solution of an exhaustive search. Here the devices
are tried in the same order, and after each choice `feasibility` checks whether the rest is still
feasible. If its answer is exact, no choice is ever undone (self-reduction). If it is inconclusive,
the search continues depth first, remembers failed states, and stops at its budget.
"""

from collections.abc import Callable, Iterable
from dataclasses import replace

from dralab.allocation.search.alternatives import Alternative
from dralab.allocation.search.backtracking import (
    BudgetError,
    Effort,
    SearchPosition,
    first,
    onward,
    taken_by,
    walked,
)
from dralab.allocation.search.eligibility import SearchError, Values
from dralab.allocation.search.feasibility import ActiveConstraint, Feasibility
from dralab.allocation.search.node_devices import DeviceState, lowest_first
from dralab.allocation.search.rules import MatchedValues, agreed
from dralab.allocation.search.setup import PickedAlternative, SearchSetup
from dralab.values.records import dataclass

# How long errors of selectors are looked for in Kubernetes' own order (see `solve`).
REPLAY = 20_000
# How often the search tries to go straight ahead again after it had to ask.
MOST_STRAYS = 3


def solve(setup: SearchSetup, effort: Effort) -> tuple[PickedAlternative, ...] | None:
    """Return the first solution, None if there is none.

    SearchError if a selector has no answer for a device that Kubernetes would look at;
    BudgetError if more steps would be needed.
    """
    straight = walked(setup, effort)
    if straight is not None:
        return tuple(straight)
    feasibility = Feasibility(setup, effort)
    if feasibility.errors:
        # Whether an error comes to light depends on the devices that a search in Kubernetes'
        # order looks at before it ends: so search in that order, for a while.
        try:
            return first(setup, Effort(REPLAY))
        except BudgetError:
            raise SearchError(min(min(found) for found in feasibility.errors.values())[1]) from None
    return _Reduction(setup, feasibility, effort).request(
        0, _fresh(setup, setup.requests[0][0].claim, setup.start)
    )


Cost = Callable[[DeviceState, DeviceState], float]


def cheapest(
    setup: SearchSetup, effort: Effort, cost: Cost
) -> tuple[PickedAlternative, ...] | None:
    """Return a solution that takes the cheapest possible device for every slot in turn.

    `cost` judges the state before and after a device is taken; among equals the first device in
    the order is taken. Whether all can be met is decided as in `solve`; so are errors.
    """
    feasibility = Feasibility(setup, effort)
    if feasibility.errors:
        return solve(setup, effort)
    return _Guided(setup, feasibility, effort, cost).request(0, _fresh(setup, 0, setup.start))


def _fresh(setup: SearchSetup, claim: int, state: DeviceState) -> SearchPosition:
    return SearchPosition(state, setup.rules(claim), 0, 0)


@dataclass(slots=True)
class _Step:
    """A request that is being served: which alternative, and what it has so far."""

    alternative: Alternative
    at: int
    devices: tuple[int, ...]


class _Reduction:
    def __init__(self, setup: SearchSetup, feasibility: Feasibility, effort: Effort) -> None:
        self.setup = setup
        self.feasibility = feasibility
        self.effort = effort
        self.failed: set[object] = set()
        # How often going straight ahead led into another dead end.
        self.strays = 0

    def request(self, at: int, position: SearchPosition) -> tuple[PickedAlternative, ...] | None:
        """Serve the requests from `at` on."""
        setup = self.setup
        if at == len(setup.requests):
            return () if all(rule.met for rule in position.rules) else None
        alternatives = setup.requests[at]
        if alternatives[0].request == 0 and at:
            if not all(rule.met for rule in position.rules):
                return None
            position = _fresh(setup, alternatives[0].claim, position.state)
        for alternative in alternatives:
            need = setup.count(alternative)
            limit = setup.claims[alternative.claim].limit
            if position.devices + need + setup.least_after[at] > limit or (
                alternative.all and not need
            ):
                continue
            step = _Step(alternative, at, ())
            if self.ask(step, position) is False:
                continue
            found = self.fixed(step, position) if alternative.all else self.some(step, position)
            if found is not None:
                return found
        return None

    def ask(self, step: _Step, position: SearchPosition) -> bool | None:
        """Ask whether the rest of this request and all later ones can be met."""
        alternative = step.alternative
        need = self.setup.count(alternative) - len(step.devices)
        exclude = position.mine if alternative.admin else 0
        for number in step.devices:
            exclude |= 1 << number
        demand = self.feasibility.open_request(alternative, need, position.state, exclude)
        return self.feasibility.possible(
            [demand],
            step.at + 1,
            position.state,
            [ActiveConstraint(alternative.claim, rule) for rule in position.rules],
            position.devices + need,
        )

    def some(self, step: _Step, position: SearchPosition) -> tuple[PickedAlternative, ...] | None:
        """Choose the rest of `count` devices, each later in the order than the one before."""
        alternative = step.alternative
        if len(step.devices) == alternative.count:
            rest = self.request(step.at + 1, position)
            return (
                None
                if rest is None
                else (PickedAlternative(alternative, tuple(sorted(step.devices))), *rest)
            )
        key = _key(step, position)
        if key in self.failed:
            return None
        rejected: set[object] = set()
        hopeless = _Hopeless(self, step, position)
        for number in self.candidates(step, position):
            self.effort.spend()
            after = self.with_device(alternative, number, position)
            likeness = None if after is None else self.likeness(number, position.state)
            if after is None or likeness in rejected or hopeless.has(number):
                continue
            next_step = _Step(alternative, step.at, (*step.devices, number))
            answer = self.ask(next_step, after)
            if answer is not False:
                found = self.onward(next_step, after, answer=answer) or self.some(next_step, after)
                if found is not None:
                    return found
            else:
                hopeless.learn(number)
            rejected.add(likeness)
        self.failed.add(key)
        return None

    def onward(
        self, step: _Step, position: SearchPosition, *, answer: bool | None
    ) -> tuple[PickedAlternative, ...] | None:
        """Try to go straight ahead from here: often one choice was the only obstacle."""
        if not answer or self.strays >= MOST_STRAYS:
            return None
        begun = PickedAlternative(step.alternative, step.devices)
        found = onward(self.setup, self.effort, step.at, begun, position)
        if found is None:
            self.strays += 1
            return None
        return tuple(found)

    def candidates(self, step: _Step, position: SearchPosition) -> Iterable[int]:  # noqa: ARG002
        """Return the devices to try next, in order: later ones than those of the request."""
        start = step.devices[-1] + 1 if step.devices else 0
        return lowest_first(self.feasibility.eligible[step.alternative] >> start << start)

    def fixed(self, step: _Step, position: SearchPosition) -> tuple[PickedAlternative, ...] | None:
        """Take all devices of a request, or none."""
        for number in self.setup.fixed[step.alternative]:
            self.effort.spend()
            after = self.with_device(step.alternative, number, position)
            if after is None:
                return None
            position = after
        rest = self.request(step.at + 1, position)
        picked = PickedAlternative(step.alternative, self.setup.fixed[step.alternative])
        return None if rest is None else (picked, *rest)

    def with_device(
        self, alternative: Alternative, number: int, position: SearchPosition
    ) -> SearchPosition | None:
        """Return the position once a device is taken, None if it may not be."""
        state = taken_by(self.setup, alternative, number, position)
        if state is None:
            return None
        rules = agreed(position.rules, self.setup.eligibility, alternative, number)
        if rules is None:
            return None
        return SearchPosition(state, rules, position.mine | 1 << number, position.devices + 1)

    def likeness(self, number: int, state: DeviceState) -> object:
        """Return what distinguishes a device for this pod: equal ones are interchangeable.

        Devices that draw on counters are only compared within their counter group.
        """
        node_devices = self.setup.node_devices
        busy = state.used >> number & 1, state.charged >> number & 1
        lasting = self.feasibility.likeness(number)
        return node_devices.consumptions[number], node_devices.room(state, number), busy, lasting


class _Hopeless:
    """Common values on which an open match rule cannot settle, found when a device fails.

    One question spares all further devices of such a value: a request for three partitions of one
    GPU need not be refused for every partition of every GPU that is too full.
    """

    def __init__(self, reduction: _Reduction, step: _Step, position: SearchPosition) -> None:
        self.reduction = reduction
        self.step = step
        self.position = position
        self.open = [
            (place, rule)
            for place, rule in enumerate(position.rules)
            if isinstance(rule, MatchedValues)
            and rule.common is None
            and rule.constraint.covers(step.alternative.name)
        ]
        self.answers: dict[tuple[int, Values], bool] = {}

    def has(self, number: int) -> bool:
        """Return whether a device carries a value that was found to be hopeless."""
        return bool(self.answers) and any(
            self.answers.get((place, self._values(rule, number)), False)
            for place, rule in self.open
        )

    def learn(self, number: int) -> None:
        """Find out whether a device failed because of its value."""
        for place, rule in self.open:
            values = self._values(rule, number)
            if len(values) != 1 or (place, values) in self.answers:
                continue
            rules = list(self.position.rules)
            rules[place] = replace(rule, common=values)
            bound = replace(self.position, rules=tuple(rules))
            self.answers[place, values] = self.reduction.ask(self.step, bound) is False

    def _values(self, rule: MatchedValues, number: int) -> Values:
        found = self.reduction.setup.eligibility.values(
            self.step.alternative, number, rule.constraint.name
        )
        return found or frozenset()


class _Guided(_Reduction):
    """Tries devices by their cost; a request's devices may come in any order."""

    def __init__(
        self, setup: SearchSetup, feasibility: Feasibility, effort: Effort, cost: Cost
    ) -> None:
        super().__init__(setup, feasibility, effort)
        self.cost = cost
        # Straight ahead is Kubernetes' way, not the cheapest.
        self.strays = MOST_STRAYS

    def candidates(self, step: _Step, position: SearchPosition) -> Iterable[int]:
        """Return the devices to try next, the cheapest first; of equals only the first."""
        ranked: list[tuple[float, int]] = []
        seen: set[object] = set()
        alike = self.feasibility.alike
        state = position.state
        free = -1 if step.alternative.admin else ~state.used
        for number in lowest_first(self.feasibility.eligible[step.alternative] & free):
            if number in step.devices:
                continue
            self.effort.spend()
            consumption = self.setup.node_devices.consumptions[number]
            if consumption is not None and not step.devices and not position.mine:
                # The same device of an equal counter group in an equal state costs the same.
                low, inside, like = alike(consumption.counter_group)
                key = (
                    like,
                    state.remaining[consumption.counter_group],
                    state.used >> low & inside,
                    number - low,
                )
                if key in seen:
                    continue
                seen.add(key)
            else:
                likeness = self.likeness(number, state)
                if likeness in seen:
                    continue
                seen.add(likeness)
            after = taken_by(self.setup, step.alternative, number, position)
            if after is not None:
                ranked.append((self.cost(state, after), number))
        ranked.sort()
        return [number for _, number in ranked]


def _key(step: _Step, position: SearchPosition) -> object:
    """Return all that the outcome of the rest depends on."""
    state = position.state
    return (
        step.alternative,
        step.devices,
        state.used,
        state.charged,
        state.remaining,
        tuple(sorted(state.room.items())),
        position.rules,
        position.mine,
        position.devices,
    )
