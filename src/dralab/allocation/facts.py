"""The facts that explain a "no"; other modules turn them into sentences."""

from typing import Literal

from dralab.allocation.problem import Attribute, DeviceId
from dralab.objects.device_taints import DeviceTaint
from dralab.values.quantity import Number
from dralab.values.records import dataclass


@dataclass(frozen=True, slots=True)
class PoolUnusable:
    """No device of a pool is offered: it is being replaced, or it contradicts itself."""

    driver: str
    pool: str
    why: Literal["incomplete", "invalid", "obsolete"]
    detail: str = ""


@dataclass(frozen=True, slots=True)
class BadRequest:
    """A request that no capacity can meet; `text` is the sentence that Kubernetes reports."""

    claim: str
    request: str
    text: str


@dataclass(frozen=True, slots=True)
class Excluded:
    """Devices that a request may not have, by the first condition they fail.

    `why` is one of
      selector   `detail` is its text, `where` "class NAME" or "claim", `index` its position;
      error      likewise, and `error` is the message of the failing expression;
      in-use     `holders` are the claims that hold them;
      node       the device does not serve this node;
      capacity   `detail` is the name of the capacity, `needed` and `offered` the best amounts;
      counters   `detail` is SET/COUNTER, `needed` and `offered` likewise;
      groups     no common compatibility group, `detail` is the counter set;
      taint      `taint` is not tolerated;
      feature    `detail` names what the device has and this cluster has switched off;
      attribute  the device lacks the attribute `detail` that a constraint reads.
    `example` is the first such device in the order of the search.
    """

    why: str
    count: int
    example: DeviceId
    where: str = ""
    index: int = 0
    detail: str = ""
    error: str = ""
    holders: tuple[str, ...] = ()
    taint: DeviceTaint | None = None
    needed: Number = 0
    offered: Number = 0


@dataclass(frozen=True, slots=True)
class RequestFacts:
    """The devices that a node has for one alternative of a request.

    `devices` were looked at, `eligible` could each serve it alone, `wanted` are needed.
    """

    claim: str
    request: str
    wanted: int
    devices: int
    eligible: int
    excluded: tuple[Excluded, ...] = ()


@dataclass(frozen=True, slots=True)
class Shortage:
    """Requests that together need more devices than are eligible for any of them (Hall)."""

    requests: tuple[tuple[str, str], ...]
    wanted: int
    eligible: int


@dataclass(frozen=True, slots=True)
class CounterShortage:
    """The eligible devices of a request draw on counters that do not suffice for all of them."""

    driver: str
    pool: str
    counter_set: str
    counter: str
    left: Number
    least: Number


@dataclass(frozen=True, slots=True)
class ConstraintOffers:
    """A constraint, and how many eligible devices carry each value; None: without the attribute."""

    claim: str
    kind: str
    name: str
    requests: tuple[str, ...]
    wanted: int
    offers: tuple[tuple[Attribute | None, int], ...]


@dataclass(frozen=True, slots=True)
class TooManyDevices:
    """A claim would need more devices than one claim may have."""

    claim: str
    limit: int


Fact = (
    PoolUnusable
    | BadRequest
    | RequestFacts
    | Shortage
    | CounterShortage
    | ConstraintOffers
    | TooManyDevices
)
