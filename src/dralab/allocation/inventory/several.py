"""Several requests for partitions: the first solution in Kubernetes' order, without trying devices.

For a claim of plain requests whose devices all draw on counters, where every device competes only
with those of its own counter group (the partitions of one GPU). What a node can give is the sum of
what its groups can give (`units`). That answers exactly whether the rest of a claim fits once a
device is taken, so the lowest device for which it does is the one that a search with backtracking
finds. No lower one can come later: the solution would begin with it.

The claim may ask that all devices have one attribute in common. Everything else is left to
`search`, which the tests compare this with.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from dralab.allocation.inventory.pool_states import PoolShape, PoolState
from dralab.allocation.inventory.units import MOST_VECTORS, Ask, Needs, Units, UnitState
from dralab.allocation.problem import Claim
from dralab.allocation.search.alternatives import Alternative
from dralab.allocation.search.eligibility import Eligibility
from dralab.allocation.search.node_devices import bits
from dralab.allocation.search.rules import rules_of

NOT_ASKED: Final = (-1,)


class CombinedGroups(NamedTuple):
    """The groups whose devices may be combined, in order, each with what requests ask of it.

    `lowest` is the first device that could be the first of all.
    """

    asks: Sequence[tuple[int, Ask]]
    lowest: int


class SeveralRequests:
    """The plans of one claim of several requests on pools of one shape.

    `plain`: its results say nothing but which devices they are, and it has no configuration.
    """

    def __init__(
        self,
        units: "Units",
        alternatives: Sequence[Alternative],
        needs: Needs,
        scopes: Sequence[CombinedGroups],
        *,
        plain: bool,
    ) -> None:
        self.units = units
        self.alternatives = alternatives
        self.needs = needs
        self.scopes = scopes
        self.plain = plain

    def first(self, state: PoolState) -> list[tuple[int, ...]] | None:
        """Return the numbers of the devices of each request; None if they do not fit.

        Of all ways the one that comes first in the order of requests and devices.
        """
        units, lows = state.units, self.units.lows
        best: list[int] | None = None
        for scope in self.scopes:
            if best is not None and scope.lowest > best[0]:
                break
            if len(scope.asks) == 1:
                group, ask = scope.asks[0]
                unit = units[group]
                way = unit.ways.get(ask, NOT_ASKED)
                if way is NOT_ASKED:
                    way = self._way(scope, units)
                if way is None:
                    continue
                low = lows[group]
                found: list[int] | None = [each + low for each in way]
            else:
                found = self._worked_out(scope, units)
            if found is not None and (best is None or found < best):
                best = found
        if best is None:
            return None
        rows, at = [], 0
        for alternative in self.alternatives:
            rows.append(tuple(best[at : at + alternative.count]))
            at += alternative.count
        return rows

    def _way(self, scope: CombinedGroups, units: Sequence[UnitState]) -> tuple[int, ...] | None:
        """Return the first solution within the one group of a scope, and remember it."""
        ((group, ask),) = scope.asks
        found, low = self._worked_out(scope, units), self.units.lows[group]
        way = None if found is None else tuple([each - low for each in found])
        units[group].ways[ask] = way
        return way

    def _worked_out(self, scope: CombinedGroups, units: Sequence[UnitState]) -> list[int] | None:
        found = _straight(scope, units, self.units.lows, self.needs.counts)
        return self._first_within(scope, units) if found is None else found

    def _first_within(self, scope: CombinedGroups, units: Sequence[UnitState]) -> list[int] | None:
        needs = self.needs
        mine = [units[group] for group, _ in scope.asks]
        can = [unit.can(ask) for unit, (_, ask) in zip(mine, scope.asks, strict=True)]
        total = 1
        for each in can:
            total = needs.total(total, each)
        left = needs.full
        if not total >> left & 1:
            return None
        picked: list[int] = []
        for request, count in enumerate(needs.counts):
            last = -1
            for _ in range(count):
                left -= needs.strides[request]
                number, at = self._lowest(
                    scope=scope, mine=mine, can=can, request=request, last=last, left=left
                )
                group, ask = scope.asks[at]
                mine[at] = mine[at].without(number - self.units.lows[group])
                can[at] = mine[at].can(ask)
                picked.append(number)
                last = number
        return picked

    def _lowest(
        self,
        *,
        scope: CombinedGroups,
        mine: Sequence[UnitState],
        can: Sequence[int],
        request: int,
        last: int,
        left: int,
    ) -> tuple[int, int]:
        """Return the lowest device after `last` with which the rest fits, and where it is."""
        needs, lows = self.needs, self.units.lows
        for number, at in _candidates(scope, mine, lows, request):
            if number <= last:
                continue
            if not left:
                return number, at
            group, ask = scope.asks[at]
            total = mine[at].without(number - lows[group]).can(ask)
            for other, each in enumerate(can):
                if other != at:
                    total = needs.total(total, each)
            if total >> left & 1:
                return number, at
        raise AssertionError("unreachable: what fits has a device to begin with")


def _straight(
    scope: CombinedGroups, units: Sequence[UnitState], lows: Sequence[int], counts: Sequence[int]
) -> list[int] | None:
    """Return the result of always taking the first free device, None at a dead end.

    Where this succeeds, it is the first way of all.
    """
    asks = scope.asks
    mine = [units[group] for group, _ in asks]
    picked: list[int] = []
    for request, count in enumerate(counts):
        at = 0
        mask = 0
        after = 0  # devices of the group at hand before this one are behind us
        for _ in range(count):
            while at < len(asks):
                mask = mine[at].free & asks[at][1].masks[request] >> after << after
                if mask:
                    break
                at += 1
                after = 0
            else:
                return None
            number = (mask & -mask).bit_length() - 1
            mine[at] = mine[at].without(number)
            picked.append(lows[asks[at][0]] + number)
            after = number + 1
    return picked


def _candidates(
    scope: CombinedGroups, mine: Sequence[UnitState], lows: Sequence[int], request: int
) -> Iterator[tuple[int, int]]:
    """Yield the free devices that suit a request in order, each with its place in the scope."""
    for at, (group, ask) in enumerate(scope.asks):
        mask = mine[at].free & ask.masks[request]
        low = lows[group]
        while mask:
            bit = mask & -mask
            mask ^= bit
            yield low + bit.bit_length() - 1, at


def several_requests(
    shape: PoolShape,
    *,
    claims: Sequence[Claim],
    alternatives: Sequence[Sequence[Sequence[Alternative]]],
    known: Mapping[Alternative, int],
    offset: int,
    eligibility: Eligibility,
) -> SeveralRequests | None:
    """Return how the requests of a claim are served from one pool; None: leave it to the search.

    `known` are the devices that suit each alternative, by their numbers on the node, where the pool
    begins at `offset`.
    """
    requests = [request for claim in alternatives for request in claim]
    if len(claims) != 1 or len(requests) < 2 or any(len(request) != 1 for request in requests):
        return None
    every = [request[0] for request in requests]
    size = 1
    for each in every:
        size *= each.count + 1
    devices = shape.node_devices
    masks = [known[each] >> offset & shape.everything for each in every]
    plain = not any(each.all or each.admin for each in every)
    whole = all(mask & ~devices.consuming == 0 and mask & devices.shareable == 0 for mask in masks)
    few = size <= MOST_VECTORS and sum(each.count for each in every) <= claims[0].limit
    if not (plain and whole and few):
        return None
    units = shape.units
    if not units.apart:
        return None
    rules = rules_of(claims[0].constraints)
    if not rules:
        return _served(units, every, [masks], claims[0])
    if len(rules) > 1 or rules[0].constraint.kind != "match":
        return None
    if not all(rules[0].constraint.covers(each.name) for each in every):
        return None
    by_value: dict[object, list[int]] = {}
    for position, (each, mask) in enumerate(zip(every, masks, strict=True)):
        for number in bits(mask):
            values = eligibility.values(each, number + offset, rules[0].constraint.name)
            if values is None:
                continue
            if len(values) != 1:
                return None
            (value,) = values
            found = by_value.setdefault(value, [0] * len(every))
            found[position] |= 1 << number
    return _served(units, every, list(by_value.values()), claims[0])


def _served(
    units: Units, every: Sequence[Alternative], masks: Sequence[Sequence[int]], claim: Claim
) -> SeveralRequests:
    counts = tuple(each.count for each in every)
    scopes = []
    for each in masks:
        asks = units.asked(counts, each)
        if asks and each[0]:
            scopes.append(CombinedGroups(asks, (each[0] & -each[0]).bit_length() - 1))
    scopes.sort(key=lambda scope: scope.lowest)
    plain = not claim.configs and not any(
        each.subrequest.tolerations or each.prioritized or each.device_class.configs
        for each in every
    )
    return SeveralRequests(units, every, units.needs(counts), scopes, plain=plain)
