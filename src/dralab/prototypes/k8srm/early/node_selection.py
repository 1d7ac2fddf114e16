"""Which node has enough devices in its pools, in stage K2: a pool is only a number of devices.

Fewer pools for a claim are better; pools count down from claim to claim and pod to pod, so nothing
is handed out twice; a device without a matched attribute never matches. Words of refusals:
k8srm-prototype 1116416, `SelectNode`.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

from dralab.prototypes.k8srm.early.model import attributes_of
from dralab.prototypes.k8srm.early.scheduling import MAX_STEPS, EffortExceeded, Meets


@dataclass(frozen=True, slots=True, kw_only=True)
class CountedPool:
    """Some equal devices of one driver; an empty `node` means attached over the network."""

    name: str
    driver: str
    count: int
    node: str = ""
    attributes: Mapping[str, Mapping[str, Any]]


@dataclass(frozen=True, slots=True, kw_only=True)
class CountClaim:
    """A number of devices, perhaps alike in some attributes.

    `minimum` and `maximum` bound the number; the minimum is what is handed out.
    """

    name: str
    driver: str = ""
    constraints: str = ""
    minimum: int = 1
    maximum: int | None = None
    match: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class PoolShare:
    """So many devices of a pool."""

    pool: str
    count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimChoice:
    """What one claim gets on a node, or which pools were ignored and why it gets nothing."""

    claim: str
    shares: tuple[PoolShare, ...] = ()
    ignored: tuple[tuple[str, str], ...] = ()
    reason: str = ""

    @property
    def score(self) -> int:
        """100 or 0."""
        return 0 if self.reason else 100


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeChoice:
    """The answer of a node."""

    node: str
    claims: tuple[ClaimChoice, ...] = ()

    @property
    def score(self) -> int:
        """100 where every claim is met, else 0."""
        return 100 if all(claim.score for claim in self.claims) else 0

    @property
    def summary(self) -> str:
        """One line for people."""
        failed = [claim.claim for claim in self.claims if not claim.score]
        if failed:
            return f"{self.node}: could not satisfy these claims: {', '.join(failed)}"
        return f"{self.node}: satisfied all claims with score {self.score}"


def read_counted_pools(objects: Sequence[Mapping[str, Any]]) -> list[CountedPool]:
    """Return the pools of stage K2's DevicePool objects."""
    return [
        CountedPool(
            name=item["metadata"]["name"],
            driver=item["spec"]["driver"],
            count=int(item["spec"].get("count") or 0),
            node=item["spec"].get("nodeName") or "",
            attributes=attributes_of(item["spec"].get("attributes") or ()),
        )
        for item in objects
    ]


def select_node(
    pools: Sequence[CountedPool], claims: Sequence[CountClaim], meets: Meets
) -> list[NodeChoice]:
    """Return the answers of all nodes, by name; the first with a score above 0 is the winner."""
    names = sorted({pool.node for pool in pools if pool.node})
    return [_choice(name, [p for p in pools if p.node == name], claims, meets) for name in names]


def _choice(
    node: str, pools: Sequence[CountedPool], claims: Sequence[CountClaim], meets: Meets
) -> NodeChoice:
    search = _Search(claims, meets)
    counts = {pool.name: pool.count for pool in pools}
    found = search.first(0, pools, counts)
    if found is not None:
        return NodeChoice(node=node, claims=tuple(found))
    choices = []
    for claim in claims:
        eligible, ignored = search.eligible(claim, pools, counts)
        shares = next(search.shares(claim, eligible, counts), None)
        if shares is None:
            reason = _why(claim, eligible, counts)
            choices.append(ClaimChoice(claim=claim.name, ignored=tuple(ignored), reason=reason))
            continue
        choices.append(ClaimChoice(claim=claim.name, shares=shares, ignored=tuple(ignored)))
        counts = _less(counts, shares)
    if all(choice.score for choice in choices):
        last = choices[-1]
        choices[-1] = ClaimChoice(
            claim=last.claim, ignored=last.ignored, reason="no choice of pools meets all claims"
        )
    return NodeChoice(node=node, claims=tuple(choices))


class _Search:
    """Depth first over the claims, fewest pools first."""

    def __init__(self, claims: Sequence[CountClaim], meets: Meets) -> None:
        self.claims = claims
        self.meets = meets
        self.steps = 0
        self.failed: set[tuple[int, tuple[int, ...]]] = set()

    def first(
        self, index: int, pools: Sequence[CountedPool], counts: Mapping[str, int]
    ) -> list[ClaimChoice] | None:
        if index == len(self.claims):
            return []
        state = (index, tuple(counts.values()))
        if state in self.failed:
            return None
        claim = self.claims[index]
        eligible, ignored = self.eligible(claim, pools, counts)
        for shares in self.shares(claim, eligible, counts):
            self.steps += 1
            if self.steps > MAX_STEPS:
                raise EffortExceeded(f"no answer within {MAX_STEPS} steps")
            rest = self.first(index + 1, pools, _less(counts, shares))
            if rest is not None:
                choice = ClaimChoice(claim=claim.name, shares=shares, ignored=tuple(ignored))
                return [choice, *rest]
        self.failed.add(state)
        return None

    def eligible(
        self, claim: CountClaim, pools: Sequence[CountedPool], counts: Mapping[str, int]
    ) -> tuple[list[CountedPool], list[tuple[str, str]]]:
        kept, ignored = [], []
        for pool in pools:
            reason = self.refusal(claim, pool, counts[pool.name])
            if reason:
                ignored.append((pool.name, reason))
            else:
                kept.append(pool)
        return kept, ignored

    def refusal(self, claim: CountClaim, pool: CountedPool, count: int) -> str:
        if count <= 0:
            return "no available devices"
        if claim.driver and claim.driver != pool.driver:
            return "claim and pool driver do not match"
        try:
            accepted = not claim.constraints or self.meets(claim.constraints, pool.attributes)
        except ValueError as error:
            return f"error evaluating constraints: {error}"
        return "" if accepted else "constraints not met"

    def shares(
        self, claim: CountClaim, pools: Sequence[CountedPool], counts: Mapping[str, int]
    ) -> Iterator[tuple[PoolShare, ...]]:
        """Yield the ways to meet a claim: fewer pools first, then in pool order."""
        if claim.maximum is not None and claim.maximum < claim.minimum:
            return
        for size in range(1, min(len(pools), claim.minimum) + 1):
            for group in combinations(pools, size):
                if not _alike(claim, group):
                    continue
                shares = _filled(claim.minimum, group, counts)
                if shares is not None:
                    yield shares


def _alike(claim: CountClaim, pools: Sequence[CountedPool]) -> bool:
    for name in claim.match:
        values = [pool.attributes.get(name) for pool in pools]
        if None in values or any(value != values[0] for value in values):
            return False
    return True


def _filled(
    wanted: int, pools: Sequence[CountedPool], counts: Mapping[str, int]
) -> tuple[PoolShare, ...] | None:
    shares = []
    for pool in pools:
        part = min(wanted, counts[pool.name])
        if part <= 0:
            return None
        shares.append(PoolShare(pool.name, part))
        wanted -= part
    return tuple(shares) if wanted == 0 else None


def _why(claim: CountClaim, eligible: Sequence[CountedPool], counts: Mapping[str, int]) -> str:
    there = sum(counts[pool.name] for pool in eligible)
    if there >= claim.minimum and claim.match:
        return "claim MatchAttributes constraint failed"
    short = claim.minimum - min(there, claim.minimum)
    return f"unable to satisfy {short} of {claim.minimum} device requests"


def _less(counts: Mapping[str, int], shares: Sequence[PoolShare]) -> dict[str, int]:
    left = dict(counts)
    for share in shares:
        left[share.pool] -= share.count
    return left
