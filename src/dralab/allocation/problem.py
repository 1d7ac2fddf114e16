"""The allocation problem as frozen values: what exists, what is requested, what is in use.

This module knows no wire format: `v1` reads resource.k8s.io/v1 mappings into these values, and a
reader of another generation of the device API does the same for its own objects. Selectors are
abstract (`DeviceSelector`), so that each generation brings its own expression environment.

Source of the meanings: KEP-4381 and its follow-ups; the field names are those of resource.k8s.io.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import field, fields
from types import MappingProxyType
from typing import Any, Final, Literal, NamedTuple, Protocol, runtime_checkable

from dralab.objects.device_taints import DeviceTaint, DeviceToleration
from dralab.values import labels
from dralab.values.quantity import Number
from dralab.values.records import dataclass

NOTHING: Final[Mapping[str, Any]] = MappingProxyType({})


def nothing() -> Mapping[str, Any]:
    """Return the one empty mapping: fleets hold millions of them."""
    return NOTHING


DevicePath = tuple[str, ...]
Scalar = int | bool | str
AttributeType = Literal["int", "bool", "string", "version", "quantity", ""]

# The limits of resource.k8s.io/v1 that the allocator itself enforces.
MAX_DEVICES_PER_CLAIM: Final = 32
MAX_INT64: Final = 2**63 - 1


# --- What selectors are ------------------------------------------------------------------------


class DeviceSelectorError(Exception):
    """A selector that fails for a device: it did not compile, or failed while running.

    Such an error is not "no": it aborts the allocation of the whole pod. `lacks_key`: it asks for a
    key, an attribute for example, that the device does not have.
    """

    def __init__(self, message: str, *, compiling: bool = False, lacks_key: bool = False) -> None:
        super().__init__(message)
        self.message = message
        self.compiling = compiling
        self.lacks_key = lacks_key


class DeviceSelector(Protocol):
    """A condition on one device.

    `reads` are the paths of the device that the answer depends on, such as
    ("attributes", "gpu.example.com", "model"), ("driver",) or, for a whole map,
    ("attributes", "gpu.example.com"). Devices that agree on them get the same answer.
    """

    @property
    def text(self) -> str:
        """The condition as its author wrote it."""
        ...

    @property
    def reads(self) -> frozenset[DevicePath]:
        """The paths of a device on which the answer depends."""
        ...

    def matches(self, device: "Device") -> bool:
        """Return whether the device meets the condition; SelectorError if there is no answer."""
        ...


@runtime_checkable
class OlderSelector(DeviceSelector, Protocol):
    """A condition in the words of an older generation of the device API."""

    def with_text(self, text: str) -> DeviceSelector:
        """Return another condition in the same words."""
        ...

    def place(self, path: tuple[str, ...]) -> tuple[str, ...]:
        """Return where a device has the value at a path of an expression.

        ("attributes", domain, name), with an empty domain where names have none.
        """
        ...


class Derivation(Protocol):
    """An attribute computed from a device, for the constraints of one request."""

    @property
    def text(self) -> str:
        """The expression as its author wrote it."""
        ...

    @property
    def reads(self) -> frozenset[DevicePath]:
        """The paths of a device on which the value depends."""
        ...

    def value(self, device: "Device") -> "Attribute":
        """Return the value for a device; SelectorError if there is none."""
        ...


# --- What is there -----------------------------------------------------------------------------


class NumberedPool(str):
    """A pool of an older generation: identified and sorted by its number, displayed by its name.

    >>> pool = NumberedPool.of(3, "node-a-gpus")
    >>> pool, pool.shown, NumberedPool.of(20, "a") > pool
    ('000003', 'node-a-gpus', True)
    """

    __slots__ = ("shown",)
    shown: str

    @classmethod
    def of(cls, number: int, name: str) -> "NumberedPool":
        """Return the pool that stands at a position."""
        made = cls(f"{number:06d}")
        made.shown = name
        return made


class DeviceId(NamedTuple):
    """What identifies a device in a cluster; the slice that publishes it may change."""

    driver: str
    pool: str
    device: str

    @property
    def pool_shown(self) -> str:
        """The pool as people name it."""
        return self.pool.shown if isinstance(self.pool, NumberedPool) else self.pool

    @property
    def shown(self) -> str:
        """The device as people name it."""
        return f"{self.pool_shown}/{self.device}"

    def __str__(self) -> str:
        return f"{self.driver}/{self.pool}/{self.device}"


@dataclass(frozen=True, slots=True)
class Attribute:
    """A typed value, or a list of values of one type.

    Type "" is a value that this version does not know: selectors that meet it have no answer.
    Versions are kept as written: constraints compare them as strings. Quantities, which only older
    generations have, are kept as their canonical decimal text: equal numbers are equal texts.
    """

    type: AttributeType
    values: tuple[Scalar, ...]
    listed: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestPolicy:
    """How the amount that a request takes from a shared device is found (KEP-5075)."""

    default: Number | None = None
    valid_values: tuple[Number, ...] = ()
    least: Number | None = None
    most: Number | None = None
    step: Number | None = None

    def amount(
        self, asked: Number | None, value: Number, *, fractional: bool = True
    ) -> Number | None:
        """Return what is consumed when `asked` is requested of `value`; None if that is forbidden.

        Steps are counted in 64 bits: in thousandths, or without `fractional` in whole numbers,
        everything rounded up (DRAFractionalCapacityRange).
        """
        if asked is None:
            return value if self.default is None else self.default
        if self.valid_values:
            return next((valid for valid in self.valid_values if valid >= asked), None)
        if self.least is None:
            return asked
        amount = max(asked, self.least)
        if self.step and asked >= self.least:
            least, step = self.least, self.step
            fine = fractional and all(map(_is_in_milli, (least, step, self.most or 0)))
            if fine and not _is_in_milli(amount):
                return None
            if not fine:
                least, step, amount = (-(-each // 1) for each in (least, step, amount))
            amount = least + -((least - amount) // step) * step
            if not (_is_in_milli(amount) if fine else amount <= MAX_INT64):
                return None
        return None if self.most is not None and amount > self.most else amount


def _is_in_milli(number: Number) -> bool:
    return number * 1000 <= MAX_INT64 and not 1000 % number.denominator


@dataclass(frozen=True, slots=True)
class Capacity:
    """An amount that a device offers; `text` is how the driver wrote it."""

    value: Number
    text: str = ""
    policy: RequestPolicy = RequestPolicy()


@dataclass(frozen=True, slots=True)
class CounterConsumption:
    """What a device draws from one counter set of its pool while it is in use.

    Devices that draw from one set may be in use together only where the intersection of their
    compatibility groups stays non-empty; no groups agree with no groups alone (KEP-5963).
    """

    counter_set: str
    counters: Mapping[str, Number]
    groups: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Node:
    """A node as far as devices are concerned; `skips_operations`: it omits optional operations.

    Real nodes declare that in their status (DRAOptionalNodeOperations).
    """

    name: str
    labels: Mapping[str, str] = field(default_factory=nothing)
    skips_operations: bool = True


@dataclass(frozen=True, slots=True)
class NodeScope:
    """The nodes from which something can be used; without any field: from none.

    `selector` is a core/v1 NodeSelector mapping.
    """

    node: str = ""
    selector: Mapping[str, Any] | None = None
    everywhere: bool = False

    def accepts(self, node: Node) -> bool:
        """Return whether the node is one of them; `values.labels.SelectorError` if unreadable."""
        if self.node:
            return self.node == node.name
        if self.selector is not None:
            return labels.node_selector_accepts(self.selector, node.labels, node.name)
        return self.everywhere


NO_NODE_SCOPE: Final = NodeScope()


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Device:
    """One device as its driver describes it; pools with equal contents may share the object.

    Names of attributes and capacities are fully qualified: a bare name belongs to the driver's
    domain. `node_scope` is only read where the slice says that each device selects its nodes.
    """

    name: str
    driver: str
    attributes: Mapping[str, Attribute] = field(default_factory=nothing)
    capacity: Mapping[str, Capacity] = field(default_factory=nothing)
    consumes: tuple[CounterConsumption, ...] = ()
    taints: tuple[DeviceTaint, ...] = ()
    shareable: bool = False
    node_scope: NodeScope = NO_NODE_SCOPE
    binds_to_node: bool = False
    binding_conditions: tuple[str, ...] = ()
    binding_failure_conditions: tuple[str, ...] = ()
    # Names of capacities as the driver wrote them, where that differs from the qualified name.
    capacity_names: Mapping[str, str] = field(default_factory=nothing)
    # Why no expression can be evaluated on the device: an attribute without a usable value.
    problem: str = ""

    def written(self, capacity: str) -> str:
        """Return the name of a capacity as its driver wrote it."""
        return self.capacity_names.get(capacity, capacity)

    def amounts_of(self, consumed: Mapping[str, Number]) -> tuple[Number, ...]:
        """Return what is consumed of each capacity, in their order; names as in results."""
        return tuple(
            consumed.get(self.written(name), consumed.get(name, 0)) for name in self.capacity
        )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Slice:
    """A part of a pool: devices, or the counter sets from which devices of the pool draw."""

    name: str
    driver: str
    pool: str
    generation: int = 0
    slice_count: int = 1
    node_scope: NodeScope = NO_NODE_SCOPE
    per_device_scope: bool = False
    devices: tuple[Device, ...] = ()
    counter_sets: tuple["CounterSet", ...] = ()
    skip_node_operations: tuple[str, ...] = ()

    def is_seen_from(self, node: Node) -> bool:
        """Return whether a node sees it; `values.labels.SelectorError` if that is unreadable."""
        if self.per_device_scope:
            return any(device.node_scope.accepts(node) for device in self.devices)
        return self.node_scope.accepts(node)

    def scope_of(self, device: Device) -> NodeScope:
        """Return the nodes from which a device of this slice can be used."""
        return device.node_scope if self.per_device_scope else self.node_scope


@dataclass(frozen=True, slots=True)
class CounterSet:
    """Amounts that devices of one pool share."""

    name: str
    counters: Mapping[str, Number]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class DeviceClass:
    """A named set of conditions and configurations.

    `configs` are the `opaque` parts as mappings, copied into results.
    """

    name: str
    selectors: tuple[DeviceSelector | None, ...] = ()
    configs: tuple[Mapping[str, Any], ...] = ()


# --- What is asked -----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class SubRequest:
    """One way to meet a request: `count` devices (or All) of a class that selectors accept.

    `name` is as results write it: `request` or `request/subrequest`. `mode` is ExactCount, All,
    or a text that is refused. `capacity` are amounts asked of each device, by qualified or bare
    name. `admin` is None if the field is absent: even `false` needs the feature. `written` maps
    fields of an ExactDeviceRequest to paths in a claim of an older generation, as far as they are
    known: `most` is where its author limits the devices, "" the part that holds them all.
    """

    name: str
    class_name: str
    selectors: tuple[DeviceSelector | None, ...] = ()
    mode: str = "ExactCount"
    count: int = 1
    admin: bool | None = None
    tolerations: tuple[DeviceToleration, ...] = ()
    capacity: Mapping[str, Number] = field(default_factory=nothing)
    derived: Mapping[str, Derivation] = field(default_factory=nothing)
    written: Mapping[str, str] | None = None


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Request:
    """What a claim asks for under one name; `prioritized`: the first alternative that works."""

    name: str
    subrequests: tuple[SubRequest, ...]
    prioritized: bool = False


@dataclass(frozen=True, slots=True)
class Constraint:
    """A rule on the devices chosen for some requests (none named: for all of the claim).

    match      all carry one common value of the attribute
    distinct   no two carry the same value of the attribute
    total      their capacities of that name add up to at least `amount` (not in
               resource.k8s.io; earlier generations of the API ask so)
    ""         a rule that this version does not know: the claim is refused

    `written` is its path in a claim of an older generation; None: as in resource.k8s.io.
    """

    kind: Literal["match", "distinct", "total", ""]
    name: str
    requests: tuple[str, ...] = ()
    amount: Number = 0
    written: str | None = None

    def covers(self, subrequest: str) -> bool:
        """Return whether the rule binds an alternative, named as in `SubRequest.name`."""
        if not self.requests:
            return True
        return subrequest in self.requests or subrequest.partition("/")[0] in self.requests


@dataclass(frozen=True, slots=True)
class DeviceConfig:
    """A configuration of a claim for some of its requests; `body` is copied into the result."""

    requests: tuple[str, ...]
    body: Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Claim:
    """Requests that are met together or not at all."""

    name: str
    namespace: str = ""
    uid: str = ""
    requests: tuple[Request, ...] = ()
    constraints: tuple[Constraint, ...] = ()
    configs: tuple[DeviceConfig, ...] = ()
    # Devices chosen for one claim; older generations of the API have no such limit.
    limit: int = MAX_DEVICES_PER_CLAIM

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}" if self.namespace else self.name

    def least(self) -> int:
        """Return how many devices its requests ask for at least."""
        return sum(min((each.count for each in r.subrequests), default=0) for r in self.requests)


# --- What is in use ----------------------------------------------------------------------------


class ShareId(NamedTuple):
    """One share of a device that several requests use."""

    device: DeviceId
    share: str


@dataclass(frozen=True, slots=True, kw_only=True)
class InUse:
    """What claims hold: whole devices, shares, and amounts taken from shared devices.

    `holders` says which claims, for explanations alone; devices without one are allowed.
    """

    exclusive: frozenset[DeviceId] = frozenset()
    shares: frozenset[ShareId] = frozenset()
    consumed: Mapping[DeviceId, Mapping[str, Number]] = field(default_factory=dict)
    holders: Mapping[DeviceId, tuple[str, ...]] = field(default_factory=dict)

    def devices(self) -> frozenset[DeviceId]:
        """Return every device that some claim holds, whole or in part."""
        return self.exclusive | self.consumed.keys() | {share.device for share in self.shares}


# --- What is switched on -----------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class AllocationFeatures:
    """The feature gates that change an allocation, all on by default, and rules that changed.

    >>> AllocationFeatures.named(["DRAAdminAccess"]).admin_access
    True
    """

    admin_access: bool = True
    prioritized_list: bool = True
    partitionable_devices: bool = True
    device_taints: bool = True
    binding_conditions: bool = True
    consumable_capacity: bool = True
    list_attributes: bool = True
    derived_attributes: bool = True
    compatibility_groups: bool = True
    optional_node_operations: bool = True
    fractional_ranges: bool = True
    # All devices are those with room left in 1.36, and those that others have filled, too, in 1.37.
    all_counts_full: bool = False

    @classmethod
    def named(cls, gates: Iterable[str]) -> "AllocationFeatures":
        """Return the features of exactly these gates; names that change nothing are ignored."""
        on = {GATES[part] for gate in gates for part in gate.split("+") if part in GATES}
        return cls(**{item.name: item.name in on for item in fields(cls)})

    @classmethod
    def without(cls, gates: Collection[str]) -> "AllocationFeatures":
        """Return all features, also those of the newest release, except those of these gates.

        >>> AllocationFeatures.without(["DRAAdminAccess"]).admin_access
        False
        """
        return cls(**{part: gate not in gates for gate, part in GATES.items()})


GATES: Final[Mapping[str, str]] = MappingProxyType(
    {
        "DRAAdminAccess": "admin_access",
        "DRAPrioritizedList": "prioritized_list",
        "DRAPartitionableDevices": "partitionable_devices",
        "DRADeviceTaints": "device_taints",
        "DRADeviceBindingConditions": "binding_conditions",
        "DRAConsumableCapacity": "consumable_capacity",
        "DRAListTypeAttributes": "list_attributes",
        "DRADerivedAttributes": "derived_attributes",
        "DRADeviceCompatibilityGroups": "compatibility_groups",
        "DRAOptionalNodeOperations": "optional_node_operations",
        "DRAFractionalCapacityRange": "fractional_ranges",
        "AllCountsFullDevices": "all_counts_full",
    }
)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Problem:
    """Claims of one pod, and the capacity they may use.

    `slices` are all slices of the cluster, taints of DeviceTaintRules already merged in.
    """

    claims: tuple[Claim, ...]
    classes: Mapping[str, DeviceClass]
    slices: tuple[Slice, ...]
    in_use: InUse = InUse()
    features: AllocationFeatures = AllocationFeatures()


def subrequests_of(problem: Problem) -> Iterator[SubRequest]:
    """Yield the alternatives of all requests of all claims."""
    for claim in problem.claims:
        for request in claim.requests:
            yield from request.subrequests
