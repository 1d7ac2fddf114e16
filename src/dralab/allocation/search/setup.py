"""The input of a search on one node, checked in the order of Kubernetes' allocator."""

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property

from dralab.allocation.problem import AllocationFeatures, Claim, DeviceClass, InUse
from dralab.allocation.search.alternatives import (
    Alternative,
    RefusedError,
    alternatives_of,
    check_constraints,
    too_many,
)
from dralab.allocation.search.eligibility import Eligibility
from dralab.allocation.search.node_devices import DeviceState, NodeDevices
from dralab.allocation.search.rules import Rules, rules_of
from dralab.values.records import dataclass


@dataclass(frozen=True, slots=True, eq=False)
class PickedAlternative:
    """The chosen alternative of one request, and its devices by number, in order."""

    alternative: Alternative
    devices: tuple[int, ...]


@dataclass(frozen=True, eq=False)
class SearchSetup:
    """A search problem on one node.

    `alternatives` is [claim][request][alternative]; `fixed` are the devices of each alternative
    that asks for all. `known` are the devices that could serve each alternative, where the caller
    knows already and no selector is without an answer; `usable` are those of them that are tried.
    What is kept for later searches on the node looks at `known` alone.
    """

    node_devices: NodeDevices
    eligibility: Eligibility
    start: DeviceState
    claims: Sequence[Claim]
    alternatives: Sequence[Sequence[Sequence[Alternative]]]
    fixed: Mapping[Alternative, tuple[int, ...]]
    known: Mapping[Alternative, int] | None = None
    usable: Mapping[Alternative, int] | None = None

    @property
    def candidates(self) -> Mapping[Alternative, int] | None:
        """The devices to try for each alternative; None: all that its selectors accept."""
        return self.known if self.usable is None else self.usable

    def count(self, alternative: Alternative) -> int:
        """Return how many devices an alternative needs on this node."""
        return len(self.fixed[alternative]) if alternative.all else alternative.count

    def rules(self, claim: int) -> Rules:
        """Return the constraints of a claim before any device is chosen."""
        return rules_of(self.claims[claim].constraints)

    @cached_property
    def requests(self) -> list[Sequence[Alternative]]:
        """The alternatives of every request of every claim, in the order of the search."""
        return [request for claim in self.alternatives for request in claim]

    @cached_property
    def least_after(self) -> list[int]:
        """Per request: the devices that later requests of its claim need at least."""
        found = []
        for claim in self.alternatives:
            needs = [min(self.count(alternative) for alternative in request) for request in claim]
            found += [sum(needs[number + 1 :]) for number in range(len(claim))]
        return found


def prepare(
    node_devices: NodeDevices,
    claims: Sequence[Claim],
    classes: Mapping[str, DeviceClass],
    features: AllocationFeatures,
    in_use: InUse,
) -> SearchSetup:
    """Check the claims and collect what is fixed; RefusedError or SearchError stop the pod."""
    eligibility = Eligibility(node_devices)
    start = node_devices.state(in_use)
    fixed: dict[Alternative, tuple[int, ...]] = {}

    def count(alternative: Alternative) -> int:
        if alternative.all:
            fixed[alternative] = _all(eligibility, start, claims[alternative.claim], alternative)
            return len(fixed[alternative])
        return alternative.count

    alternatives = _checked(claims, classes, features, count)
    return SearchSetup(node_devices, eligibility, start, claims, alternatives, fixed)


def prepare_alternatives(
    claims: Sequence[Claim], classes: Mapping[str, DeviceClass], features: AllocationFeatures
) -> Sequence[Sequence[Sequence[Alternative]]]:
    """Check the claims apart from any node: requests for all devices count nothing yet."""
    return _checked(claims, classes, features, lambda alternative: alternative.count)


def fixed_devices(
    eligibility: Eligibility,
    start: DeviceState,
    claims: Sequence[Claim],
    alternatives: Sequence[Sequence[Sequence[Alternative]]],
) -> dict[Alternative, tuple[int, ...]]:
    """Collect the devices of requests for all of them; RefusedError if they are too many."""
    fixed = {
        alternative: _all(eligibility, start, claims[alternative.claim], alternative)
        for claim in alternatives
        for request in claim
        for alternative in request
        if alternative.all
    }
    for claim, requests in zip(claims, alternatives, strict=True):
        _check_least(
            claim,
            requests,
            lambda alternative: len(fixed[alternative]) if alternative.all else alternative.count,
        )
    return fixed


def _checked(
    claims: Sequence[Claim],
    classes: Mapping[str, DeviceClass],
    features: AllocationFeatures,
    count: Callable[[Alternative], int],
) -> Sequence[Sequence[Sequence[Alternative]]]:
    everything: list[list[list[Alternative]]] = []
    for position, claim in enumerate(claims):
        requests: list[list[Alternative]] = []
        counts: dict[Alternative, int] = {}
        for number in range(len(claim.requests)):
            alternatives = []
            for alternative in alternatives_of(
                claim, position, number, classes=classes, features=features
            ):
                counts[alternative] = count(alternative)
                alternatives.append(alternative)
            requests.append(alternatives)
        _check_least(claim, requests, counts.__getitem__)
        check_constraints(claim)
        everything.append(requests)
    return everything


def _check_least(
    claim: Claim, requests: Sequence[Sequence[Alternative]], count: Callable[[Alternative], int]
) -> None:
    least = sum(min(count(alternative) for alternative in request) for request in requests)
    if least > claim.limit:
        raise too_many(claim, least)


def _all(
    eligibility: Eligibility, start: DeviceState, claim: Claim, alternative: Alternative
) -> tuple[int, ...]:
    """Collect the devices of a request for all of them, in use or not."""
    node_devices = eligibility.node_devices
    for pool in node_devices.view.pools:
        if pool.unusable:
            state = "being updated" if pool.unusable == "incomplete" else "invalid"
            raise RefusedError(
                claim,
                alternative.short,
                f"claim {claim}, request {alternative.short}: asks for all devices, "
                f"but resource pool {pool.driver}/{pool.name} is currently {state}",
            )
    found = []
    for number in range(len(node_devices.offers)):
        if not eligibility.selectable(alternative, number):
            continue
        amounts = eligibility.amounts(alternative, number)
        if amounts is None:
            continue
        room = None if eligibility.features.all_counts_full else start.room.get(number)
        if amounts and room and any(have < want for have, want in zip(room, amounts, strict=True)):
            continue
        found.append(number)
    return tuple(found)
