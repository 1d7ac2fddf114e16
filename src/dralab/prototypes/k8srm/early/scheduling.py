"""Which device of which node meets each claim of a pod, in stages K0 and K1.

A complete search per node: claims in order, pools and devices as published, the first set that
works. Everything that was refused keeps its reason, in the words of the prototype.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from typing import Any

from dralab.prototypes.k8srm.early.capacities import (
    CapacityRequest,
    EarlyCapacity,
    Taken,
    fits_kind,
)
from dralab.prototypes.k8srm.early.model import (
    CapacityClaim,
    DeviceClaim,
    EarlyDevice,
    EarlyNode,
    EarlyPool,
)
from dralab.values.records import dataclass

Meets = Callable[[str, Mapping[str, Mapping[str, Any]]], bool]
"""Whether attributes meet a CEL constraint; raises ValueError if it cannot be evaluated."""

MAX_STEPS = 200_000


class EffortExceeded(RuntimeError):  # noqa: N818 - it says what happened
    """The search took more steps than allowed: the answer is unknown, not "no"."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceResult:
    """What one device would contribute to a claim, or why not."""

    device: str
    taken: tuple[Taken, ...] = ()
    score: int = 0
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolResult:
    """The devices of one pool, or why none of them was tried."""

    pool: str
    devices: tuple[DeviceResult, ...] = ()
    best: int = -1
    reason: str = ""

    @property
    def score(self) -> int:
        """The score of its best device."""
        return self.devices[self.best].score if self.best >= 0 else 0


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimResult:
    """Where one device claim of a capacity claim would be met."""

    claim: str
    pools: tuple[PoolResult, ...] = ()
    best: int = -1
    reason: str = ""

    @property
    def score(self) -> int:
        """The score of its best pool."""
        return self.pools[self.best].score if self.best >= 0 else 0


@dataclass(frozen=True, slots=True, kw_only=True)
class CapacityClaimResult:
    """The claims of a pod or of one container."""

    claim: str
    claims: tuple[ClaimResult, ...] = ()

    @property
    def score(self) -> int:
        """The integer mean of its claims; 100 without claims; 0 if one of them fails."""
        return _mean([claim.score for claim in self.claims])


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeResult:
    """The answer of one node to a pod."""

    node: str
    claims: tuple[CapacityClaimResult, ...] = ()
    left: tuple[EarlyPool, ...] = field(default=(), repr=False)

    @property
    def score(self) -> int:
        """The integer mean of the claims' scores: 0 is impossible, 100 the best."""
        return _mean([claim.score for claim in self.claims])


def schedule(
    nodes: Sequence[EarlyNode], pod: Sequence[CapacityClaim], meets: Meets
) -> list[NodeResult]:
    """Return the answers of the nodes, by name, up to and with the first that can run the pod.

    The last one is the winner if its score is above 0.
    """
    results = []
    for node in sorted(nodes, key=lambda n: n.name):
        results.append(node_result(node, pod, meets))
        if results[-1].score:
            break
    return results


def node_result(node: EarlyNode, pod: Sequence[CapacityClaim], meets: Meets) -> NodeResult:
    """Return how a node would meet a pod's claims, or which of them fail and why."""
    flat = [claim for group in pod for claim in group.claims]
    search = _Search(flat, meets)
    found = search.first(0, node.pools)
    chosen, left = found if found is not None else search.furthest(node.pools)
    groups, start = [], 0
    for group in pod:
        part = chosen[start : start + len(group.claims)]
        groups.append(CapacityClaimResult(claim=group.name, claims=tuple(part)))
        start += len(group.claims)
    return NodeResult(node=node.name, claims=tuple(groups), left=left)


class _Search:
    """Depth first over the claims; states that failed once are not tried again."""

    def __init__(self, claims: Sequence[DeviceClaim], meets: Meets) -> None:
        self.claims = claims
        self.meets = meets
        self.failed: set[tuple[int, tuple[tuple[EarlyCapacity, ...], ...]]] = set()
        self.steps = 0

    def first(
        self, index: int, pools: tuple[EarlyPool, ...]
    ) -> tuple[list[ClaimResult], tuple[EarlyPool, ...]] | None:
        """Return the first results that meet all claims from `index` on, and what is left."""
        if index == len(self.claims):
            return [], pools
        self.steps += 1
        if self.steps > MAX_STEPS:
            raise EffortExceeded(f"no result within {MAX_STEPS} steps")
        # Names and attributes stay as they are: what is left of the capacities is the state.
        state = (index, tuple(device.capacities for pool in pools for device in pool.devices))
        if state in self.failed:
            return None
        offers = self.offers(self.claims[index], pools)
        for at, pool in enumerate(offers):
            for position, device in enumerate(pool.devices):
                if not device.score:
                    continue
                rest = self.first(index + 1, _reduced(pools, at, device))
                if rest is not None:
                    return [_picked(self.claims[index], offers, at, position), *rest[0]], rest[1]
        self.failed.add(state)
        return None

    def furthest(
        self, pools: tuple[EarlyPool, ...]
    ) -> tuple[list[ClaimResult], tuple[EarlyPool, ...]]:
        """Return the result of a search without backtracking, to explain why a node fails.

        It continues after a claim that fails, so that every claim gets its reason.
        """
        results = []
        for claim in self.claims:
            offers = self.offers(claim, pools)
            spot = next(
                (
                    (at, position)
                    for at, pool in enumerate(offers)
                    for position, device in enumerate(pool.devices)
                    if device.score
                ),
                None,
            )
            if spot is None:
                reason = "no pool found that can satisfy the claim"
                results.append(ClaimResult(claim=claim.name, pools=tuple(offers), reason=reason))
                continue
            results.append(_picked(claim, offers, *spot))
            pools = _reduced(pools, spot[0], offers[spot[0]].devices[spot[1]])
        if all(result.score for result in results) and results:
            # Each claim alone finds a device; together they do not.
            last = results[-1]
            results[-1] = ClaimResult(
                claim=last.claim, pools=last.pools, reason="no set of devices satisfies all claims"
            )
        return results, pools

    def offers(self, claim: DeviceClaim, pools: Sequence[EarlyPool]) -> list[PoolResult]:
        return [self.pool_offer(claim, pool) for pool in pools]

    def pool_offer(self, claim: DeviceClaim, pool: EarlyPool) -> PoolResult:
        if claim.driver and claim.driver != pool.driver:
            reason = f'pool driver "{pool.driver}" mismatch claim driver "{claim.driver}"'
            return PoolResult(pool=pool.name, reason=reason)
        devices = tuple(self.device_offer(claim, pool, device) for device in pool.devices)
        best = next((at for at, device in enumerate(devices) if device.score), -1)
        reason = "" if best >= 0 else "no devices in pool with sufficient capacity"
        return PoolResult(pool=pool.name, devices=devices, best=best, reason=reason)

    def device_offer(
        self, claim: DeviceClaim, pool: EarlyPool, device: EarlyDevice
    ) -> DeviceResult:
        if claim.constraints:
            try:
                accepted = self.meets(claim.constraints, {**pool.attributes, **device.attributes})
            except ValueError as error:
                reason = f"error evaluating against constraints: {error}"
                return DeviceResult(device=device.name, reason=reason)
            if not accepted:
                return DeviceResult(device=device.name, reason="does not meet constraints")
        taken: list[Taken] = []
        split = 0
        for request in claim.requests:
            parts, missing = _offer(device, request)
            if missing:
                return DeviceResult(device=device.name, reason=missing)
            split += len(parts) > 1
            taken += parts
        aligned, why = _alignment(claim, taken)
        if why:
            return DeviceResult(device=device.name, reason=why)
        score = 100 - 10 * min(9, split + aligned)
        return DeviceResult(device=device.name, taken=tuple(taken), score=score)


def _offer(device: EarlyDevice, request: CapacityRequest) -> tuple[list[Taken], str]:
    """Return what a device contributes to one request, or why it cannot."""
    named = [c for c in device.capacities if c.name == request.capacity]
    if not named:
        return [], f'no capacity "{request.capacity}" present in device "{device.name}"'
    short = f'insufficient capacity "{request.capacity}" present in device "{device.name}"'
    if not all(fits_kind(request, capacity) for capacity in named):
        return [], "request/capacity type mismatch"
    if request.mode:
        for capacity in named:
            granted = capacity.grant(request.mode)
            if granted:
                part = Taken(
                    capacity=capacity.name,
                    topologies=capacity.topologies,
                    mode=granted,
                    text=granted,
                )
                return [part], ""
        return [], short
    parts: list[Taken] = []
    missing = request
    for capacity in named:
        given, left = capacity.take_request(missing)
        if given is not None:
            parts.append(given)
        missing = CapacityRequest(capacity=request.capacity, kind=request.kind, amount=left)
        if left <= 0:
            return parts, ""
    return [], short


def _alignment(claim: DeviceClaim, taken: Sequence[Taken]) -> tuple[int, str]:
    """Return how many preferred topologies the parts span, or the violated required one."""
    missed = 0
    for kind, policy in claim.topologies:
        names = {name for part in taken for type_, name in part.topologies if type_ == kind}
        if len(names) > 1:
            if policy == "require":
                return 0, f'capacities are not in one topology of type "{kind}"'
            missed += 1
    return missed, ""


def _reduced(pools: tuple[EarlyPool, ...], at: int, device: DeviceResult) -> tuple[EarlyPool, ...]:
    reduced = pools[at].without(device.device, device.taken)
    return (*pools[:at], reduced, *pools[at + 1 :])


def _picked(
    claim: DeviceClaim, offers: Sequence[PoolResult], at: int, position: int
) -> ClaimResult:
    pool = offers[at]
    picked = PoolResult(pool=pool.pool, devices=pool.devices, best=position)
    return ClaimResult(claim=claim.name, pools=(*offers[:at], picked, *offers[at + 1 :]), best=at)


def _mean(scores: Sequence[int]) -> int:
    if not scores:
        return 100
    return 0 if 0 in scores else sum(scores) // len(scores)
