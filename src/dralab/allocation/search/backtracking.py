"""The plain search: depth first, in order, with chronological backtracking.

It is correct but slow, and the tests compare `reduction` with it. Every allocation begins with its
first walk, without backtracking, because it evaluates selectors in the order of Kubernetes'
allocator.
"""

from collections.abc import Iterator, Sequence

from dralab.allocation.search.alternatives import Alternative
from dralab.allocation.search.eligibility import SearchError
from dralab.allocation.search.node_devices import DeviceState
from dralab.allocation.search.rules import MatchedValues, Rules, agreed
from dralab.allocation.search.setup import PickedAlternative, SearchSetup
from dralab.values.records import dataclass


class BudgetError(Exception):
    """More steps would be needed than were given."""


@dataclass(slots=True)
class Effort:
    """Steps taken, and their limit; steps and not time, so that answers repeat."""

    budget: int
    steps: int = 0

    def spend(self, steps: int = 1) -> None:
        """Count steps; BudgetError beyond the budget."""
        self.steps += steps
        if self.steps > self.budget:
            raise BudgetError


@dataclass(frozen=True, slots=True)
class SearchPosition:
    """Where a search stands: what is in use, and within the current claim its rules and devices.

    `mine` are the devices that the current claim has, by whatever way.
    """

    state: DeviceState
    rules: Rules
    mine: int
    devices: int


def first(setup: SearchSetup, effort: Effort) -> tuple[PickedAlternative, ...] | None:
    """Return the first solution in Kubernetes' order, None if there is none."""
    found = next(solutions(setup, effort), None)
    return None if found is None else tuple(found)


def solutions(setup: SearchSetup, effort: Effort) -> Iterator[tuple[PickedAlternative, ...]]:
    """Yield every solution, in lexicographic order of (claim, request, alternative, devices)."""
    if setup.requests:
        yield from _Backtracking(setup, effort).request(
            0, _fresh(setup, setup.requests[0][0].claim, setup.start), ()
        )
    else:
        yield ()


def _fresh(setup: SearchSetup, claim: int, state: DeviceState) -> SearchPosition:
    return SearchPosition(state, setup.rules(claim), 0, 0)


class _Backtracking:
    def __init__(self, setup: SearchSetup, effort: Effort) -> None:
        self.setup = setup
        self.effort = effort
        self.eligibility = setup.eligibility

    def request(
        self, at: int, position: SearchPosition, picked: tuple[PickedAlternative, ...]
    ) -> Iterator[tuple[PickedAlternative, ...]]:
        """Try the alternatives of one request in order."""
        setup = self.setup
        if at == len(setup.requests):
            if all(rule.met for rule in position.rules):
                yield picked
            return
        alternatives = setup.requests[at]
        claim = alternatives[0].claim
        if alternatives[0].request == 0 and at:
            if not all(rule.met for rule in position.rules):
                return
            position = _fresh(setup, claim, position.state)
        for alternative in alternatives:
            needs = setup.count(alternative)
            if position.devices + needs + setup.least_after[at] > setup.claims[claim].limit:
                continue
            chosen = (
                self.fixed(alternative, position)
                if alternative.all
                else self.some(alternative, position, ())
            )
            for devices, after in chosen:
                yield from self.request(
                    at + 1, after, (*picked, PickedAlternative(alternative, devices))
                )

    def some(
        self, alternative: Alternative, position: SearchPosition, devices: tuple[int, ...]
    ) -> Iterator[tuple[tuple[int, ...], SearchPosition]]:
        """Choose the next of `count` devices, each later in the order than the one before."""
        if len(devices) == alternative.count:
            yield devices, position
            return
        for number in range(devices[-1] + 1 if devices else 0, len(self.setup.node_devices.offers)):
            self.effort.spend()
            after = self.with_device(alternative, number, position)
            if after is not None:
                yield from self.some(alternative, after, (*devices, number))

    def fixed(
        self, alternative: Alternative, position: SearchPosition
    ) -> Iterator[tuple[tuple[int, ...], SearchPosition]]:
        """Take all devices of a request, or none."""
        devices = self.setup.fixed[alternative]
        if not devices:
            return
        for number in devices:
            self.effort.spend()
            after = self.with_device(alternative, number, position)
            if after is None:
                if not alternative.prioritized and self.forbidden(alternative, number, position):
                    claim = self.setup.claims[alternative.claim]
                    raise SearchError(
                        f"claim {claim}, request {alternative.short}: cannot add "
                        f"device {self.setup.node_devices.offers[number].id} because a claim "
                        "constraint would not be satisfied"
                    )
                return
            position = after
        yield devices, position

    def forbidden(self, alternative: Alternative, number: int, position: SearchPosition) -> bool:
        """Return whether a constraint alone keeps a device from a request."""
        taken = taken_by(self.setup, alternative, number, position)
        return (
            taken is not None
            and agreed(position.rules, self.eligibility, alternative, number) is None
        )

    def with_device(
        self, alternative: Alternative, number: int, position: SearchPosition
    ) -> SearchPosition | None:
        """Return the position once a device is taken, None if it may not be."""
        state = taken_by(self.setup, alternative, number, position)
        if state is None:
            return None
        rules = agreed(position.rules, self.eligibility, alternative, number)
        if rules is None:
            return None
        return SearchPosition(state, rules, position.mine | 1 << number, position.devices + 1)


def taken_by(
    setup: SearchSetup, alternative: Alternative, number: int, position: SearchPosition
) -> DeviceState | None:
    """Return what is left once a request takes a device, None if it may not; ignores rules."""
    bit = 1 << number
    state = position.state
    if alternative.admin:
        # Watches any device, once per claim; later claims that want it whole find it taken.
        if position.mine & bit or not setup.eligibility.accepts(alternative, number):
            return None
        if setup.node_devices.shareable & bit:
            return state
        return state._replace(used=state.used | bit)
    # Free comes before the selectors: what is in use cannot make them fail.
    if state.used & bit or not setup.eligibility.accepts(alternative, number):
        return None
    shared = bool(setup.node_devices.shareable & bit)
    amounts = setup.eligibility.amounts(alternative, number)
    return setup.node_devices.take_device(state, number, amounts if shared else None)


def walked(setup: SearchSetup, effort: Effort) -> Sequence[PickedAlternative] | None:
    """Return the result of always taking the first possible device, None at a dead end.

    Where this succeeds it is the first solution: nothing earlier was passed over but what could
    not be taken.
    """
    if not setup.requests:
        return []
    start = _fresh(setup, setup.requests[0][0].claim, setup.start)
    return _ahead(_Backtracking(setup, effort), 0, start)


def onward(
    setup: SearchSetup, effort: Effort, at: int, begun: PickedAlternative, position: SearchPosition
) -> Sequence[PickedAlternative] | None:
    """Return the result of going straight ahead from here, None at a dead end.

    `begun` is what request `at` has so far, `position` where that leaves the search.
    """
    walk = _Backtracking(setup, effort)
    found = _straight(walk, begun.alternative, position, begun.devices)
    if found is None:
        return None
    rest = _ahead(walk, at + 1, found[1])
    return None if rest is None else [PickedAlternative(begun.alternative, found[0]), *rest]


def _ahead(
    walk: _Backtracking, at: int, position: SearchPosition
) -> list[PickedAlternative] | None:
    setup = walk.setup
    picked: list[PickedAlternative] = []
    for number in range(at, len(setup.requests)):
        alternative = setup.requests[number][0]
        if alternative.request == 0 and number:
            if not all(rule.met for rule in position.rules):
                return None
            position = _fresh(setup, alternative.claim, position.state)
        if position.devices + setup.count(alternative) + setup.least_after[number] > (
            setup.claims[alternative.claim].limit
        ):
            return None
        if alternative.all:
            found = next(walk.fixed(alternative, position), None)
        else:
            found = _straight(walk, alternative, position, ())
        if found is None:
            return None
        picked.append(PickedAlternative(alternative, found[0]))
        position = found[1]
    return picked if all(rule.met for rule in position.rules) else None


def _straight(
    walk: _Backtracking, alternative: Alternative, position: SearchPosition, begun: tuple[int, ...]
) -> tuple[tuple[int, ...], SearchPosition] | None:
    devices = list(begun)
    if len(devices) == alternative.count:
        return begun, position
    start = devices[-1] + 1 if devices else 0
    mask = _candidates(walk.setup, alternative, position) >> start << start
    while mask:
        low = mask & -mask
        mask ^= low
        number = low.bit_length() - 1
        walk.effort.spend()
        after = walk.with_device(alternative, number, position)
        if after is not None:
            devices.append(number)
            position = after
            if len(devices) == alternative.count:
                return tuple(devices), position
            mask &= _candidates(walk.setup, alternative, position)
    return None


def _candidates(setup: SearchSetup, alternative: Alternative, position: SearchPosition) -> int:
    """Return the devices to try, without those that a rule or their use leaves out for sure."""
    if setup.candidates is None or setup.known is None:
        return (1 << len(setup.node_devices.offers)) - 1
    mask = setup.candidates[alternative]
    for rule in position.rules:
        if isinstance(rule, MatchedValues) and rule.constraint.covers(alternative.name):
            mask &= rule.admitted(
                setup.eligibility.carried(
                    alternative, rule.constraint.name, setup.known[alternative]
                )
            )
    return mask if alternative.admin else mask & ~position.state.used
