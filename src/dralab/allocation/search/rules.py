"""Constraints during the search: each choice yields the rules for the next ones."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Self

from dralab.allocation.problem import Constraint
from dralab.allocation.search.alternatives import Alternative
from dralab.allocation.search.eligibility import DevicesByValue, Eligibility, Values
from dralab.values.quantity import Number
from dralab.values.records import dataclass


@dataclass(frozen=True, slots=True)
class MatchedValues:
    """All devices have one value in common: the intersection of their sets of values."""

    constraint: Constraint
    common: Values | None = None

    @property
    def met(self) -> bool:
        """Whether the rule holds if no further device comes: always."""
        return True

    def after(self, eligibility: Eligibility, alternative: Alternative, number: int) -> Self | None:
        """Narrow the common values by those of one more device."""
        offered = eligibility.values(alternative, number, self.constraint.name)
        if offered is None:
            return None
        if self.common is not None:
            offered &= self.common
        return replace(self, common=offered) if offered else None

    def admitted(self, carried: DevicesByValue) -> int:
        """Return the devices whose values the rule still admits, each by itself."""
        return carried.any if self.common is None else carried.with_any_of(self.common)


@dataclass(frozen=True, slots=True)
class DistinctValues:
    """No two devices share a value."""

    constraint: Constraint
    taken: Values = frozenset()

    @property
    def met(self) -> bool:
        """Whether the rule holds if no further device comes: always."""
        return True

    def after(self, eligibility: Eligibility, alternative: Alternative, number: int) -> Self | None:
        """Add the values of one more device, which must be new."""
        offered = eligibility.values(alternative, number, self.constraint.name)
        if offered is None or offered & self.taken:
            return None
        return replace(self, taken=self.taken | offered)

    def admitted(self, carried: DevicesByValue) -> int:
        """Return the devices whose values the rule still admits, each by itself."""
        return carried.any & ~carried.with_any_of(self.taken)


@dataclass(frozen=True, slots=True)
class CapacityTotal:
    """The devices add up to an amount: earlier generations of the device API ask so.

    `reached` is None while none of the alternatives that the rule covers has a device: an amount
    asked of an alternative binds only where that alternative is chosen.
    """

    constraint: Constraint
    reached: Number | None = None

    @property
    def met(self) -> bool:
        """Whether the amount is reached, or was not asked of what is chosen."""
        return self.reached is None or self.reached >= self.constraint.amount

    def after(self, eligibility: Eligibility, _: Alternative, number: int) -> Self:
        """Add the capacity of one more device."""
        return replace(self, reached=(self.reached or 0) + self.offered(eligibility, number))

    def offered(self, eligibility: Eligibility, number: int) -> Number:
        """Return what one device adds."""
        offered = eligibility.node_devices.offers[number].device.capacity.get(self.constraint.name)
        return offered.value if offered else 0


Rule = MatchedValues | DistinctValues | CapacityTotal
Rules = tuple[Rule, ...]


def rules_of(constraints: tuple[Constraint, ...]) -> Rules:
    """Return the rules of a claim before any device is chosen."""
    return tuple(_rules(constraints))


def _rules(constraints: tuple[Constraint, ...]) -> Iterator[Rule]:
    for constraint in constraints:
        if constraint.kind == "match":
            yield MatchedValues(constraint)
        elif constraint.kind == "distinct":
            yield DistinctValues(constraint)
        elif constraint.kind == "total":
            yield CapacityTotal(constraint)


def agreed(
    rules: Rules, eligibility: Eligibility, alternative: Alternative, number: int
) -> Rules | None:
    """Return the rules after a device is chosen for a request, None if one forbids it."""
    after: list[Rule] = []
    for rule in rules:
        if not rule.constraint.covers(alternative.name):
            after.append(rule)
            continue
        bound = rule.after(eligibility, alternative, number)
        if bound is None:
            return None
        after.append(bound)
    return tuple(after)
