"""Feature gates, as sets of the names of those that are on.

A function that depends on a gate takes such a set and asks `NAME in features`; nothing is global.
Which gates a release has, their stages and defaults are data (`data/gates.json`, written by
`tools/generate_gates.py`); what dralab does about a gate is where it is asked for.
"""

from collections.abc import Mapping, Sequence
from functools import cache
from typing import Final, NamedTuple

from dralab.api.releases import DEFAULT, MIXED, is_since, newest, table, version_of, versions

Features = frozenset[str]

COMPARING_TOLERATIONS: Final = "TaintTolerationComparisonOperators"
"""Tolerations of pods may compare numbers: Lt and Gt (KEP-5471)."""

LIMIT_SCALING: Final = "VolumeLimitScaling"
"""Drivers of volumes may keep pods from nodes without them (KEP-5030)."""

RELAXED_SERVICE_NAMES: Final = "RelaxedServiceNameValidation"
"""Names of Services may begin with a digit (KEP-5311)."""

RESOURCE_HEALTH: Final = "ResourceHealthStatus"
"""The status of pods has the health of their devices (KEP-4680)."""

CBOR_SERVING: Final = "CBORServingAndStorage"
"""The server reads and writes CBOR (KEP-4222)."""

DECLARED: Final = frozenset({"DRAOptionalNodeOperations"})
"""What nodes declare that they can do (KEP-5328)."""

OF_LABS: Final = frozenset({"DynamicResourceAllocation", "DRADeviceTaintRules"})
"""Without these there is nothing to try: a lab has them on, whatever the release does."""

OWNERS_BY_INDEX: Final = "OwnersByIndex"
"""Errors about owners name which one, and say that a field is required."""

IMMUTABLE_ROLE_REFERENCES: Final = "ImmutableRoleReferences"
"""Errors about a changed roleRef say so in the words of all immutable fields."""

WIDE_DEFINITIONS: Final = "WideDefinitions"
"""The table of CustomResourceDefinitions has their scope and versions."""

VALIDATION_TAGS: Final = "ValidationTags"
"""More rules are tags beside the Go types: their words, and each cause is told once."""

ALL_COUNTS_FULL: Final = "AllCountsFullDevices"
"""A request for all devices fails for one that others have filled, instead of leaving it out."""

CHANGES: Final[Mapping[str, str]] = {
    ALL_COUNTS_FULL: "1.37",
    OWNERS_BY_INDEX: "1.37",
    IMMUTABLE_ROLE_REFERENCES: "1.37",
    WIDE_DEFINITIONS: "1.37",
    VALIDATION_TAGS: "1.37",
}
"""What changed with a release and has no gate upstream: asked for like one, and never set."""

TOPOLOGY_LABELS: Final = "PodTopologyLabelsAdmission"
"""Pods get the zone and the region of their node as labels (KEP-4742)."""

WORKLOAD_PREEMPTION: Final = "WorkloadAwarePreemption"
"""Pod groups of v1alpha2 have priorities and are preempted (1.36; in 1.37 they always are)."""

WATCH_LIST: Final = "WatchList"
"""Watches may begin with all objects that there are (KEP-3157)."""

ACTED_ON: Final = frozenset(
    {
        "DRAAdminAccess",
        "DRAConsumableCapacity",
        "DRADerivedAttributes",
        "DRADeviceBindingConditions",
        "DRADeviceCompatibilityGroups",
        "DRADeviceTaintRules",
        "DRADeviceTaints",
        "DRAExtendedResource",
        "DRAFractionalCapacityRange",
        "DRAListTypeAttributes",
        "DRANodeAllocatableResources",
        "DRAOptionalNodeOperations",
        "DRAPartitionableDevices",
        "DRAPartitionableDevicesType",
        "DRAPrioritizedList",
        "DRAResourceClaimDeviceStatus",
        "DRAResourceClaimGranularStatusAuthorization",
        "DRAResourcePoolStatus",
        "DRASchedulerFilterTimeout",
        "DRAWorkloadResourceClaims",
        "DynamicResourceAllocation",
        "WorkloadWithJob",
        CBOR_SERVING,
        COMPARING_TOLERATIONS,
        LIMIT_SCALING,
        RELAXED_SERVICE_NAMES,
        RESOURCE_HEALTH,
        TOPOLOGY_LABELS,
        WATCH_LIST,
    }
)
"""The gates that change what dralab does; the others are known by name."""


class ReleaseGate(NamedTuple):
    """A gate in a release: its stage, whether it is on by default, whether that can be changed."""

    stage: str
    default: bool
    locked: bool


STAGES: Final = {"A": "Alpha", "B": "Beta", "G": "GA", "D": "Deprecated"}
GROUPS: Final = {"AllAlpha": "Alpha", "AllBeta": "Beta"}


class GateError(ValueError):
    """An invalid setting of feature gates."""


@cache
def gates(release: str = MIXED) -> Mapping[str, ReleaseGate]:
    """Return the gates of a release; `MIXED` has those of the newest that are new, too.

    >>> gates("1.36")["DRAPrioritizedList"]
    ReleaseGate(stage='GA', default=True, locked=False)
    """
    found = {name: _gate(marks) for name, marks in table("gates.json", release).items()}
    if release != MIXED:
        return found
    later = {name: gate._replace(default=False) for name, gate in gates(newest()).items()}
    return {**later, **found}


def _gate(marks: str) -> ReleaseGate:
    return ReleaseGate(STAGES[marks[0]], "+" in marks, "!" in marks)


@cache
def needs(release: str = MIXED) -> Mapping[str, Sequence[str]]:
    """Return the gates that a gate of a release needs, as upstream has them since 1.35.

    >>> needs("1.36")["DRAWorkloadResourceClaims"]
    ['DynamicResourceAllocation', 'GenericWorkload']
    """
    found: dict[str, Sequence[str]] = table("gate_needs.json", release)
    return found if release != MIXED else {**needs(newest()), **found}


@cache
def changes_of(release: str) -> Features:
    """Return what has changed in a release without a gate: the names of `CHANGES`."""
    return frozenset(name for name, first in CHANGES.items() if is_since(release, first))


@cache
def default_of(release: str = MIXED) -> Features:
    """Return the gates that are on by default in a release; `MIXED` is a lab's.

    >>> "DRAPartitionableDevices" in default_of("1.36") - default_of("1.35")
    True
    """
    found = frozenset(name for name, gate in gates(release).items() if gate.default)
    return found | changes_of(release) | (of_labs(release) if release == MIXED else frozenset())


OF_GROUPS: Final = frozenset(
    {
        "CompositePodGroup",
        "DRAWorkloadResourceClaims",
        "GangScheduling",
        "GenericWorkload",
        "PodGroupPreemptionPolicy",
        "TopologyAwareWorkloadScheduling",
        "WorkloadAwarePreemption",
        "WorkloadWithJob",
    }
)
"""What pod groups need: simulations have these on, since nobody switches gates there."""


def of_labs(release: str) -> Features:
    """Return the gates of a release that a lab has on."""
    return OF_LABS & gates(release).keys()


def of_simulations(release: str = MIXED) -> Features:
    """Return the gates that are on in a simulation, which has no switches."""
    return default_of(release) | (OF_LABS | OF_GROUPS) & gates(release).keys()


def off_in(release: str, features: Features) -> Features:
    """Return the gates that are off in a release: those of later ones, too, which it cannot have.

    >>> "DRAConsumableCapacity" in off_in("1.33", default_of("1.33"))
    True
    """
    later = (gates(each) for each in versions() if is_since(each, release or DEFAULT))
    return frozenset(CHANGES).union(*later) - features


DEFAULT_1_36: Final[Features] = default_of(MIXED)
"""On unless something else is said."""

ALL: Final[Features] = frozenset(gates(MIXED))
"""Every gate."""


def with_gates(text: str, default: Features | None = None, release: str = MIXED) -> Features:
    """Return the gates that are on after a setting as Kubernetes' --feature-gates has it.

    GateError: an unknown gate, a locked one, one that needs others, or a value other than true and
    false.

    >>> with_gates("DRAConsumableCapacity=false") ^ DEFAULT_1_36
    frozenset({'DRAConsumableCapacity'})
    """
    known = gates(release)
    found = set(default_of(release) if default is None else default)
    touched: set[str] = set()
    settings = [part.strip().partition("=") for part in text.split(",") if part.strip()]
    # A group of gates comes first, as upstream: a gate that is named has the last word.
    for name, _, value in sorted(settings, key=lambda setting: setting[0] not in GROUPS):
        if name not in GROUPS and name not in known:
            raise GateError(f"unknown feature gate {name!r}: {_of(release)} has none of that name")
        if value not in {"true", "false"}:
            raise GateError(f"feature gate {name} must be true or false, not {value!r}")
        on = value == "true"
        if name in GROUPS:
            named = {each for each, gate in known.items() if gate.stage == GROUPS[name]}
        elif known[name].locked and known[name].default != on:
            locked = str(known[name].default).lower()
            raise GateError(f"feature gate {name} is locked to {locked} in {_of(release)}")
        else:
            named = {name}
        found = found | named if on else found - named
        touched |= named
    for name in sorted(found & known.keys()):
        missing = [each for each in needs(release).get(name, ()) if each not in found]
        # What a lab has on by itself needs nothing.
        if missing and touched & {name, *missing}:
            raise GateError(
                f"feature gate {name} is on, but depends on gates that are off in {_of(release)}: "
                f"{', '.join(missing)}"
            )
    return frozenset(found)


def _of(release: str) -> str:
    return f"Kubernetes {version_of(release)[1:]}"


def ignored(text: str) -> list[str]:
    """Return the gates of a setting that have no effect in dralab."""
    names = (part.strip().partition("=")[0] for part in text.split(","))
    return [name for name in names if name and name not in ACTED_ON and name not in GROUPS]
