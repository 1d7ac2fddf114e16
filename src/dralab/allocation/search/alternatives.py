"""Claims made ready for a search: every alternative with its class, its conditions and its count.

What is wrong with a claim whatever the devices are is found here, in the order and in the words
of Kubernetes' allocator; such an error is final for the pod, on every node.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

from dralab.allocation.facts import BadRequest
from dralab.allocation.problem import (
    Alternative,
    Claim,
    DeviceClass,
    Features,
    Request,
    Selector,
)

# More devices than this in one request cannot be meant (math.MaxInt32 upstream).
ABSURD: Final = 2**31 - 1


class RefusedError(Exception):
    """A claim that no capacity can meet; carries the sentence that Kubernetes reports."""

    def __init__(self, claim: Claim, request: str, text: str) -> None:
        super().__init__(text)
        self.fact = BadRequest(str(claim), request, text)


class Condition(NamedTuple):
    """One selector and where it stands: `where` begins the sentence of an error."""

    where: str
    position: int
    selector: Selector


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Term:
    """One alternative, ready to be tried.

    `claim` and `request` are positions; `rank` is the position among the alternatives.
    """

    claim: int
    request: int
    rank: int
    name: str
    short: str
    alternative: Alternative
    device_class: DeviceClass
    conditions: tuple[Condition, ...]
    admin: bool
    all: bool
    prioritized: bool

    @property
    def count(self) -> int:
        """The devices it needs; for All that depends on the node."""
        return self.alternative.count


def terms_of(
    claim: Claim,
    position: int,
    number: int,
    *,
    classes: Mapping[str, DeviceClass],
    features: Features,
) -> Iterator[Term]:
    """Yield the alternatives of request `number` of a claim at `position` among the claims.

    RefusedError where the request asks what cannot be.
    """
    request = claim.requests[number]
    if request.prioritized and not features.prioritized_list:
        raise _refused(
            claim, request.name, "has subrequests, but the DRAPrioritizedList feature is disabled"
        )
    for rank, alternative in enumerate(request.alternatives):
        short = alternative.name.rpartition("/")[2]
        _check(claim, request, alternative, short, features)
        device_class = classes.get(alternative.class_name)
        if not alternative.class_name:
            raise _refused(claim, short, "missing device class name (unsupported request type?)")
        if device_class is None:
            raise _refused(
                claim,
                short,
                f"could not retrieve device class {alternative.class_name}: "
                f'deviceclass.resource.k8s.io "{alternative.class_name}" not found',
            )
        _check_count(claim, alternative, short)
        yield Term(
            claim=position,
            request=number,
            rank=rank,
            name=alternative.name,
            short=short,
            alternative=alternative,
            device_class=device_class,
            conditions=tuple(_conditions(claim, short, alternative, device_class)),
            admin=bool(alternative.admin),
            all=alternative.mode == "All",
            prioritized=request.prioritized,
        )


def _check(
    claim: Claim, request: Request, alternative: Alternative, short: str, features: Features
) -> None:
    if alternative.capacity and not features.consumable_capacity:
        kind = "subrequest" if request.prioritized else "request"
        raise RefusedError(
            claim,
            short,
            f"claim {claim}, {kind} {short}: has capacity requests, "
            "but the DRAConsumableCapacity feature is disabled",
        )
    for index, selector in enumerate(alternative.selectors):
        if selector is None:
            raise RefusedError(
                claim,
                short,
                f"claim {claim}, request {short}, selector #{index}: "
                "CEL expression empty (unsupported selector type?)",
            )
    if alternative.admin is not None and not features.admin_access:
        raise _refused(claim, short, "admin access is requested, but the feature is disabled")
    if alternative.derived and not features.derived_attributes:
        raise _refused(
            claim, short, "has derived attributes, but the DRADerivedAttributes feature is disabled"
        )


def _check_count(claim: Claim, alternative: Alternative, short: str) -> None:
    if alternative.mode not in {"ExactCount", "All"}:
        raise _refused(claim, short, f"unsupported count mode {alternative.mode}")
    if alternative.mode == "ExactCount" and not 0 < alternative.count <= ABSURD:
        raise _refused(claim, short, f"exact count {alternative.count} is too large")


def _conditions(
    claim: Claim, short: str, alternative: Alternative, device_class: DeviceClass
) -> Iterator[Condition]:
    for index, selector in enumerate(device_class.selectors):
        if selector is None:
            raise RefusedError(
                claim,
                short,
                f"class {device_class.name}: selector #{index}: "
                "CEL expression empty (unsupported selector type?)",
            )
        yield Condition(f"class {device_class.name}", index, selector)
    for index, selector in enumerate(alternative.selectors):
        if selector is not None:
            yield Condition(f"claim {claim}", index, selector)


def check_constraints(claim: Claim) -> None:
    """Raise RefusedError where a claim has a constraint of an unknown type."""
    for index, constraint in enumerate(claim.constraints):
        if not constraint.kind:
            raise RefusedError(
                claim,
                "",
                f"claim {claim}, constraint #{index}: "
                "empty constraint (unsupported constraint type?)",
            )


def too_many(claim: Claim, least: int) -> RefusedError:
    """A claim needs more devices than one claim may have."""
    return RefusedError(
        claim,
        "",
        f"claim {claim}: number of requested devices {least} exceeds the claim limit of "
        f"{claim.limit}",
    )


def _refused(claim: Claim, short: str, text: str) -> RefusedError:
    return RefusedError(claim, short, f"claim {claim}, request {short}: {text}")
