"""Claims as the scheduler handles them: as a server has them, or made for a pod and not written."""

from collections.abc import Mapping
from typing import Any, Final, NamedTuple, TypeAlias

from dralab.allocation.inventory.placements import PlannedAllocation
from dralab.objects.claims import allocation_of, results_of
from dralab.objects.metadata import NamespacedName, key_of, owner_reference, uid_of
from dralab.values.json_types import JsonDict, JsonObject

EXTENDED_CLAIM: Final = "<extended-resources>"


class MadeClaim(NamedTuple):
    """A claim that was made for a pod from a template: what tells it from others of the template.

    `consumer` is the pod as an entry of `reservedFor`. The claim is written out when it is asked
    for: of a million pods that run, hardly any is.
    """

    key: NamespacedName
    uid: str
    spec: JsonDict
    consumer: Mapping[str, str]

    @property
    def written(self) -> JsonDict:
        """The claim as a server has it."""
        pod = {"metadata": {"name": self.consumer["name"], "uid": self.consumer["uid"]}}
        metadata = {
            "name": self.key.name,
            "namespace": self.key.namespace,
            "uid": self.uid,
            "ownerReferences": [owner_reference(pod, api_version="v1", kind="Pod")],
        }
        return {"metadata": metadata, "spec": self.spec}


# A claim as it is known: what a server has, or what it would have.
KnownClaim: TypeAlias = dict[str, Any] | MadeClaim


class ClaimDemand(NamedTuple):
    """One claim of a pod, with the consumer that will be in its reservedFor."""

    known: KnownClaim
    consumer: Mapping[str, str]
    # What was decided but is not yet written, or what the claim's status says.
    allocation: JsonObject | None

    @property
    def claim(self) -> JsonDict:
        """The claim as a server has it."""
        return _written(self.known)

    @property
    def key(self) -> NamespacedName:
        """The claim's key."""
        known = self.known
        return known.key if isinstance(known, MadeClaim) else key_of(known)


class ClaimPlan(NamedTuple):
    """What to write for one claim: its allocation, as it is `given`, and its users.

    The claim has no name where it does not exist yet (the claim for extended resources, whose
    `mappings` go into the pod's status).
    """

    known: KnownClaim
    consumer: Mapping[str, str]
    given: PlannedAllocation | JsonObject
    mappings: tuple[JsonObject, ...] = ()

    @property
    def claim(self) -> JsonDict:
        """The claim as a server has it."""
        return _written(self.known)

    @property
    def uid(self) -> str:
        """The claim's uid; empty if it does not exist yet."""
        known = self.known
        return known.uid if isinstance(known, MadeClaim) else uid_of(known)

    @property
    def key(self) -> NamespacedName | None:
        """The claim's key; None if it does not exist yet."""
        known = self.known
        if isinstance(known, MadeClaim):
            return known.key
        return key_of(known) if known["metadata"].get("name") else None

    @property
    def allocation(self) -> JsonObject:
        """The allocation as it is written."""
        return self.given.written if isinstance(self.given, PlannedAllocation) else self.given

    @property
    def devices(self) -> tuple[str, ...]:
        """The names of the devices."""
        if isinstance(self.given, PlannedAllocation):
            return self.given.devices
        return tuple([str(result["device"]) for result in results_of(self.given)])

    @property
    def is_new(self) -> bool:
        """Whether the claim still has to be created."""
        return self.key is None

    @property
    def is_undecided(self) -> bool:
        """Whether the claim has no allocation yet, as far as a server knows."""
        return isinstance(self.known, MadeClaim) or allocation_of(self.known) is None

    @property
    def name(self) -> str:
        """The claim's name, or what stands for it."""
        return EXTENDED_CLAIM if self.key is None else self.key.name


def _written(known: KnownClaim) -> JsonDict:
    return known.written if isinstance(known, MadeClaim) else known
