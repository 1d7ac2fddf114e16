"""Claims prepared for a search: every alternative with its class, its conditions and its count.

Errors in a claim that do not depend on devices are found here, in the order and with the texts of
Kubernetes' allocator. Such an error is final for the pod, on every node.
"""

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from dralab.allocation.facts import BadRequest
from dralab.allocation.problem import (
    AllocationFeatures,
    Claim,
    DeviceClass,
    DeviceSelector,
    Request,
    SubRequest,
)
from dralab.values.records import dataclass


class RefusedError(Exception):
    """A claim that no capacity can meet; carries the sentence that Kubernetes reports."""

    def __init__(self, claim: Claim, request: str, text: str) -> None:
        super().__init__(text)
        self.fact = BadRequest(str(claim), request, text)


class LocatedSelector(NamedTuple):
    """One selector and where it stands: `where` begins the sentence of an error."""

    where: str
    position: int
    selector: DeviceSelector


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Alternative:
    """One alternative, ready to be tried.

    `claim` and `request` are positions; `rank` is the position among the alternatives.
    """

    claim: int
    request: int
    rank: int
    name: str
    short: str
    subrequest: SubRequest
    device_class: DeviceClass
    conditions: tuple[LocatedSelector, ...]
    admin: bool
    all: bool
    prioritized: bool

    @property
    def count(self) -> int:
        """The devices it needs; for All that depends on the node."""
        return self.subrequest.count


def alternatives_of(
    claim: Claim,
    position: int,
    number: int,
    *,
    classes: Mapping[str, DeviceClass],
    features: AllocationFeatures,
) -> Iterator[Alternative]:
    """Yield the alternatives of request `number` of a claim at `position` among the claims.

    RefusedError if the request asks what cannot be.
    """
    request = claim.requests[number]
    if request.prioritized and not features.prioritized_list:
        raise _refused(
            claim, request.name, "has subrequests, but the DRAPrioritizedList feature is disabled"
        )
    for rank, subrequest in enumerate(request.subrequests):
        short = subrequest.name.rpartition("/")[2]
        _check(claim, request, subrequest, short, features)
        device_class = classes.get(subrequest.class_name)
        if not subrequest.class_name:
            raise _refused(claim, short, "missing device class name (unsupported request type?)")
        if device_class is None:
            raise _refused(
                claim,
                short,
                f"could not retrieve device class {subrequest.class_name}: "
                f'deviceclass.resource.k8s.io "{subrequest.class_name}" not found',
            )
        _check_count(claim, subrequest, short)
        yield Alternative(
            claim=position,
            request=number,
            rank=rank,
            name=subrequest.name,
            short=short,
            subrequest=subrequest,
            device_class=device_class,
            conditions=tuple(_conditions(claim, short, subrequest, device_class)),
            admin=bool(subrequest.admin),
            all=subrequest.mode == "All",
            prioritized=request.prioritized,
        )


def _check(
    claim: Claim, request: Request, subrequest: SubRequest, short: str, features: AllocationFeatures
) -> None:
    if subrequest.capacity and not features.consumable_capacity:
        kind = "subrequest" if request.prioritized else "request"
        raise RefusedError(
            claim,
            short,
            f"claim {claim}, {kind} {short}: has capacity requests, "
            "but the DRAConsumableCapacity feature is disabled",
        )
    for index, selector in enumerate(subrequest.selectors):
        if selector is None:
            raise RefusedError(
                claim,
                short,
                f"claim {claim}, request {short}, selector #{index}: "
                "CEL expression empty (unsupported selector type?)",
            )
    if subrequest.admin is not None and not features.admin_access:
        raise _refused(claim, short, "admin access is requested, but the feature is disabled")
    if subrequest.derived and not features.derived_attributes:
        raise _refused(
            claim, short, "has derived attributes, but the DRADerivedAttributes feature is disabled"
        )


def _check_count(claim: Claim, subrequest: SubRequest, short: str) -> None:
    if subrequest.mode not in {"ExactCount", "All"}:
        raise _refused(claim, short, f"unsupported count mode {subrequest.mode}")
    if subrequest.mode == "ExactCount" and subrequest.count <= 0:
        raise _refused(claim, short, f"exact count {subrequest.count} is too large")


def _conditions(
    claim: Claim, short: str, subrequest: SubRequest, device_class: DeviceClass
) -> Iterator[LocatedSelector]:
    for index, selector in enumerate(device_class.selectors):
        if selector is None:
            raise RefusedError(
                claim,
                short,
                f"class {device_class.name}: selector #{index}: "
                "CEL expression empty (unsupported selector type?)",
            )
        yield LocatedSelector(f"class {device_class.name}", index, selector)
    for index, selector in enumerate(subrequest.selectors):
        if selector is not None:
            yield LocatedSelector(f"claim {claim}", index, selector)


def check_constraints(claim: Claim) -> None:
    """Raise RefusedError if a claim has a constraint of an unknown type."""
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
