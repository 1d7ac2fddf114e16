"""One inquiry: the problem, its alternatives, and what the fleet has for each.

`causes_of` finds the cause with it, `helps` what would help. It asks the allocator and counts; it
decides nothing.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Final

from dralab.allocation.facts import Excluded, RequestFacts
from dralab.allocation.problem import Claim, Problem
from dralab.allocation.search.alternatives import (
    Alternative,
    RefusedError,
    alternatives_of,
    check_constraints,
)
from dralab.explanation import misses
from dralab.explanation.alike_nodes import AlikeNodes, DeviceKind
from dralab.explanation.causes import Asked, MarkedField, Owner, Refused, TooFew
from dralab.explanation.findings import findings
from dralab.explanation.names import HolderEnd, amount, taint_text
from dralab.explanation.questions import FleetQuestions, held_anywhere, largest_count


class Inquiry:
    """Requests and supply; `suits` are the devices that suit an alternative."""

    def __init__(self, asking: FleetQuestions, ends: Mapping[str, HolderEnd] | None = None) -> None:
        self.asking = asking
        self.ends = ends or {}
        self.problem = asking.problem
        self.in_use = asking.problem.in_use
        self.alternatives: list[list[Alternative]] = []
        self._supplies: dict[Alternative, TooFew] = {}

    @property
    def kinds(self) -> list[DeviceKind]:
        """All devices that the nodes can use, by what the claims read of them."""
        return self.asking.kinds

    # --- the claims themselves

    def read_claims(self) -> Refused | None:
        """Read the claims; return their errors, independent of devices."""
        for position, claim in enumerate(self.problem.claims):
            try:
                check_constraints(claim)
                for number in range(len(claim.requests)):
                    found = alternatives_of(
                        claim, position, number,
                        classes=self.problem.classes, features=self.problem.features,
                    )  # fmt: skip
                    self.alternatives.append(list(found))
            except RefusedError as error:
                return self._of_refusal(claim, error)
            if claim.least() > claim.limit:
                mark = misses.in_claim(str(claim), "spec.devices.requests")
                text = f"it asks for {claim.least()} devices, and a claim may have {claim.limit}"
                return Refused(code="DRA004", text=text, mark=mark)
        return self._uncompiled()

    def _of_refusal(self, claim: Claim, error: RefusedError) -> Refused:
        fact = error.fact
        for number, request in enumerate(claim.requests):
            for rank, each in enumerate(request.subrequests):
                short = each.name.rpartition("/")[2]
                if fact.request not in {each.name, short, request.name}:
                    continue
                base = f"spec.devices.requests[{number}]"
                base += f".firstAvailable[{rank}]" if request.prioritized else ".exactly"
                owner: Owner = ("claim", str(claim))
                if each.class_name and each.class_name not in self.problem.classes:
                    name, field = each.class_name, f"{base}.deviceClassName"
                    return Refused(
                        code="DRA002", text=fact.text, missing="DeviceClass", name=name,
                        known=tuple(sorted(self.problem.classes)),
                        mark=MarkedField(owner=owner, field=field, text=name),
                        asked=(
                            Asked(
                                claim=str(claim), request=each.name,
                                class_name=each.class_name, count=each.count,
                            ),
                        ),
                    )  # fmt: skip
                return Refused(
                    code="DRA003", text=fact.text, mark=MarkedField(owner=owner, field=base)
                )
        mark = misses.in_claim(str(claim), "spec.devices")
        return Refused(code="DRA003", text=fact.text, mark=mark)

    def _uncompiled(self) -> Refused | None:
        for alternative in self.each_alternative():
            for located in alternative.conditions:
                message = getattr(located.selector, "message", "")
                if message:
                    claim = self.claim_of(alternative)
                    mark = misses.mark_of(alternative, claim, located, None)
                    return Refused(code="DRA005", text=message, mark=mark)
        return None

    # --- parts

    def each_alternative(self) -> Iterator[Alternative]:
        """Yield every alternative of every request."""
        for each in self.alternatives:
            yield from each

    def claim_of(self, alternative: Alternative) -> str:
        """Return the name of the claim of an alternative."""
        return str(self.problem.claims[alternative.claim])

    def alternative(self, claim: str, request: str) -> Alternative:
        """Return the alternative of a claim and a request."""
        return next(
            each
            for each in self.each_alternative()
            if (self.claim_of(each), each.name) == (claim, request)
        )

    def asked(self, alternative: Alternative) -> Asked:
        """Return what an alternative asks for, as data."""
        claim = self.problem.claims[alternative.claim]
        own = [each for each in alternative.conditions if not each.where.startswith("class ")]
        return Asked(
            claim=str(claim),
            request=alternative.name,
            class_name=alternative.device_class.name,
            count=0 if alternative.all else alternative.count,
            conditions=tuple(part.condition for part in misses.parts_of(own)),
            capacity=alternative.subrequest.capacity,
            constraints=tuple(each for each in claim.constraints if each.covers(alternative.name)),
            admin=alternative.admin,
            only=len(claim.requests) == 1 and not alternative.prioritized,
        )

    def by_itself(self, alternative: Alternative) -> Problem:
        """Return the problem with one alternative alone, without constraints."""
        claim = self.problem.claims[alternative.claim]
        request = claim.requests[alternative.request]
        single = replace(request, subrequests=(alternative.subrequest,))
        return replace(self.problem, claims=(replace(claim, requests=(single,), constraints=()),))

    def suits(self, alternative: Alternative) -> list[DeviceKind]:
        """Return the devices that the selectors of an alternative accept."""
        return [
            kind
            for kind in misses.of_class(alternative, self.kinds)
            if misses.selects(alternative.conditions, kind.device)
        ]

    def supply(self, alternative: Alternative) -> TooFew:
        """Return how many devices could serve an alternative, and what blocks the others."""
        found = self._supplies.get(alternative)
        if found is None:
            found = supply_of(self.asking, self.by_itself(alternative))
            self._supplies[alternative] = found
        return found

    def largest(
        self, small: Problem, alternative: Alternative, *, empty: bool = False
    ) -> int | None:
        """Return the largest smaller count that some node serves; 0 if not even one.

        None: that could not be settled.
        """
        claim, count = self.claim_of(alternative), alternative.count
        return largest_count(self.asking, small, claim, alternative.name, count, empty=empty)


def wider_attributes(
    inquiry: Inquiry, alternative: Alternative, name: str, where: str
) -> list[str]:
    """Return attributes that divide the devices of a node into fewer, larger parts than one does.

    The one with most parts first: it is nearest to what was asked.
    """
    found = {kind.number for kind in inquiry.suits(alternative)}
    devices = [
        offer.device
        for offer in inquiry.asking.fleet.view(where).offers()
        if inquiry.asking.likeness.number(offer.device) in found
    ]
    names = {each for device in devices for each in device.attributes}
    parts = {
        each: len({device.attributes.get(each) for device in devices}) for each in sorted(names)
    }
    wider = [each for each in parts if 1 < parts[each] < parts.get(name, 0)]
    return sorted(wider, key=lambda each: -parts[each])


BLOCKS: Final = frozenset({"in-use", "taint", "counters", "capacity", "groups"})
"""What keeps a device that suits from being had; it could be lifted."""


def total_of(kinds: Sequence[DeviceKind]) -> int:
    """Return the number of devices of some kinds."""
    return sum(kind.count for kind in kinds)


def supply_of(asking: FleetQuestions, alone: Problem) -> TooFew:
    """Return what nodes have for a problem of one request, for the simplest cause."""
    blocked: Counter[str] = Counter()
    taints: Counter[str] = Counter()
    holders: dict[str, None] = {}
    nearest: Excluded | None = None
    free = most = 0
    best, where = -1, ""
    for place in asking.places:
        fact = _fact(asking, alone, place)
        if fact is None:
            continue
        nodes = place.size
        lifted = [item for item in fact.excluded if item.why in BLOCKS]
        free += fact.eligible * nodes
        suitable = fact.eligible + sum(item.count for item in lifted)
        most = max(most, suitable)
        if suitable and fact.eligible > best:
            best, where = fact.eligible, place.names[0]
        for item in lifted:
            blocked[item.why] += item.count * nodes
            holders |= dict.fromkeys(item.holders)
            if item.taint is not None:
                taints[taint_text(item.taint)] += item.count * nodes
            if item.why in {"counters", "capacity"} and _nearer(item, nearest):
                nearest = item
    return TooFew(
        code="DRA030",
        free=free,
        most=most,
        most_free=max(best, 0),
        where=where,
        blocked=dict(blocked),
        holders=tuple(holders),
        name=nearest.detail if nearest else "",
        needed=amount(nearest.needed) if nearest else "",
        offered=amount(nearest.offered) if nearest else "",
        taints=tuple(taints.most_common()),
    )


def _fact(asking: FleetQuestions, alone: Problem, place: AlikeNodes) -> RequestFacts | None:
    local = replace(alone, in_use=place.in_use)
    for fact in findings(local, place.view).facts:
        if isinstance(fact, RequestFacts):
            found = held_anywhere(fact, place, asking.likeness, asking.uses)
            return found if isinstance(found, RequestFacts) else None
    return None


def _nearer(item: Excluded, known: Excluded | None) -> bool:
    return known is None or item.needed - item.offered < known.needed - known.offered
