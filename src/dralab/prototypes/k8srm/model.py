"""Classes, claims, pools and pods of k8srm as frozen values, in the words of its last stage."""

from collections.abc import Mapping
from dataclasses import field
from typing import Any, Literal

from dralab.allocation.problem import Attribute
from dralab.values.labels import Selector
from dralab.values.quantity import Number
from dralab.values.records import dataclass


@dataclass(frozen=True, slots=True)
class ConfigRef:
    """An object whose content goes into a claim's status at allocation."""

    api_version: str
    kind: str
    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.kind} {self.namespace}/{self.name} ({self.api_version})"


@dataclass(frozen=True, slots=True, kw_only=True)
class K8srmClass:
    """A leaf (`driver`, or any driver of a `device_type`) or a group of leaves (`selector`).

    `minimum` and `maximum` bound the devices of a claim of that class (stages K1, K2).
    """

    name: str
    labels: Mapping[str, str]
    selector: Selector | None = None
    driver: str = ""
    device_type: str = ""
    constraints: str = ""
    configs: tuple[ConfigRef, ...] = ()
    minimum: int = 1
    maximum: int | None = None
    match: tuple[str, ...] = ()
    admin: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Detail:
    """Some devices of one class; `counted` if the author wrote how many.

    From `minimum` to `maximum` devices, the fewest whose resources add up to `totals`. With `admin`
    access devices in use count too; `everything`: all that there are, whatever the amounts.
    `written` are the paths of its fields as `claim_forms.NormalizedClaimSpec` has them.
    """

    class_name: str = ""
    device_type: str = ""
    driver: str = ""
    constraints: str = ""
    admin: bool = False
    everything: bool = False
    minimum: int = 1
    counted: bool = False
    maximum: int | None = None
    totals: Mapping[str, Number] = field(default_factory=dict)
    match: tuple[str, ...] = ()
    distinct: tuple[str, ...] = ()
    configs: tuple[ConfigRef, ...] = ()
    written: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Instance:
    """What containers refer to by one name: every detail of `all_of` and one of `one_of`."""

    name: str
    all_of: tuple[Detail, ...] = ()
    one_of: tuple[Detail, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimSpec:
    """Instances that are met together, with matching or different attributes."""

    instances: tuple[Instance, ...]
    match: tuple[str, ...] = ()
    distinct: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class K8srmClaim:
    """A claim, and its present allocation."""

    name: str
    namespace: str
    spec: ClaimSpec
    status: Mapping[str, Any] = field(default_factory=dict)

    @property
    def allocated(self) -> bool:
        """Whether devices were chosen for it."""
        return bool(self.status.get("allocations"))

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"


@dataclass(frozen=True, slots=True)
class Provided:
    """A capacity of a device; amounts are taken in multiples of `block`."""

    amount: Number
    block: Number
    binary: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class K8srmDevice:
    """A device; `attributes` are its own over those of its pool."""

    name: str
    attributes: Mapping[str, Attribute]
    consumes: Mapping[str, Number] = field(default_factory=dict)
    provides: Mapping[str, Provided] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class K8srmPool:
    """Devices of one driver; without a node they are attached over the network."""

    name: str
    driver: str
    node: str = ""
    shared: Mapping[str, Number] = field(default_factory=dict)
    devices: tuple[K8srmDevice, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class PodEntry:
    """One way in which a pod gets devices.

    class      `source` is a class name: one device, in a claim of the pod
    existing   `source` is the claim that is shared
    template   `source` is the claim whose spec is included as a copyto one of the pod
    embedded   `spec` is the claim
    """

    name: str
    how: Literal["class", "existing", "template", "embedded"]
    source: str = ""
    spec: Mapping[str, Any] = field(default_factory=dict)
    metadata: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class K8srmPod:
    """A pod as far as devices care; `containers` maps a container to the names it sees."""

    name: str
    namespace: str
    node: str
    entries: tuple[PodEntry, ...]
    containers: Mapping[str, tuple[str, ...]]
    whole: bool = False
    """Whether containers name the instances of one claim (stage K4) or entries (before)."""
