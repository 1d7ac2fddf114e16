"""The outcomes of an allocation: devices, a "no" with its facts, or "unknown within the budget"."""

from collections.abc import Mapping
from typing import Any, Literal

from dralab.allocation.facts import Fact
from dralab.allocation.problem import DeviceId
from dralab.objects.device_taints import DeviceToleration
from dralab.values.quantity import Number
from dralab.values.records import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Chosen:
    """One device for one request of a claim.

    `request` is as results write it (`request` or `request/subrequest`); `share` is the id of the
    share, None if the device is held whole; `consumed` lists (name, amount, text of the
    device's own quantity, which lends its unit).
    """

    request: str
    device: DeviceId
    admin: bool = False
    share: str | None = None
    consumed: tuple[tuple[str, Number, str], ...] = ()
    tolerations: tuple[DeviceToleration, ...] = ()
    binding_conditions: tuple[str, ...] = ()
    binding_failure_conditions: tuple[str, ...] = ()
    skip_node_operations: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ChosenConfig:
    """One configuration of a result; no requests: it is for all of them."""

    source: Literal["FromClass", "FromClaim"]
    requests: tuple[str, ...]
    body: Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimAllocation:
    """The devices of one claim, in the order in which they were found.

    `node_selector` is a core/v1 NodeSelector mapping, or None if any node will do.
    """

    claim: str
    chosen: tuple[Chosen, ...]
    configs: tuple[ChosenConfig, ...] = ()
    node_selector: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Allocated:
    """Every claim has its devices; `claims` are in the order in which they were given."""

    claims: tuple[ClaimAllocation, ...]
    steps: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Unsatisfiable:
    """No choice of devices meets all claims on this node.

    `error` is the text that Kubernetes reports, "" where it reports nothing; with `fatal` no other
    node can do better. `facts` say why, for those who explain.
    """

    error: str = ""
    fatal: bool = False
    facts: tuple[Fact, ...] = ()
    steps: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Unknown:
    """More than `budget` steps would be needed: neither yes nor no."""

    budget: int
    steps: int = 0


Outcome = Allocated | Unsatisfiable | Unknown
