"""The answer of an older generation for a pod: where it can run and with which devices.

The search itself is `dralab.allocation`'s; a generation says what is asked and writes down what was
found. Turning reasons into longer explanations is left to `explanation`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import field
from typing import Any, Protocol

from dralab.allocation.outcome import Outcome
from dralab.allocation.problem import Node, Problem
from dralab.prototypes.findings import NormalizedDocument
from dralab.scheduling.reasons import Reason
from dralab.values.json_types import JsonDict
from dralab.values.records import dataclass


class UnallocatableError(ValueError):
    """A claim that no devices could ever meet."""


@dataclass(frozen=True, slots=True)
class ExpressionFailure:
    """An expression that failed for some devices, which were skipped."""

    expression: str
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacedDevice:
    """A device as people name it: where it is and what it is for."""

    claim: str
    request: str
    pool: str
    device: str
    driver: str

    def __str__(self) -> str:
        return f"{self.pool}/{self.device}"


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacedPod:
    """A pod that can run on a node.

    `claims` are the claim objects with their new status, generated ones included; `pod` is the pod
    bound to the node; `containers` maps each container to the devices it sees.
    """

    pod: JsonDict
    node: str
    devices: tuple[PlacedDevice, ...]
    claims: tuple[JsonDict, ...]
    containers: Mapping[str, tuple[str, ...]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeRefusal:
    """Why one node cannot run a pod: `unfit` by itself, or `outcome` of the search there."""

    node: str
    unfit: tuple[Reason, ...] = ()
    outcome: Outcome | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class UnplacedPod:
    """A pod that can run nowhere: for one reason of its own, or for a reason of each node."""

    pod: JsonDict
    reason: str = ""
    nodes: tuple[NodeRefusal, ...] = ()
    failures: tuple[ExpressionFailure, ...] = ()


PlacementResult = PlacedPod | UnplacedPod


class GenerationCluster(Protocol):
    """The cluster that objects of one generation describe.

    Objects are normalized documents; a placement changes nothing until it is applied.
    """

    def pods(self) -> Sequence[JsonDict]:
        """Return the pods, in the order in which they came."""
        ...

    def place(self, pod: JsonDict) -> PlacementResult:
        """Return where a pod can run: the node that scores best, with the first devices."""
        ...

    def apply(self, placed: PlacedPod) -> None:
        """Apply a placement: its devices are in use from now on."""
        ...

    def problems(self, pod: JsonDict) -> Sequence[tuple[Node, Problem]]:
        """Return the allocation problem of a pod on every node; ValueError if it has none."""
        ...

    def fleet(self) -> Problem:
        """Return a problem without claims: all devices, and which of them are in use."""
        ...


def stored_name(generation: str, group: str, plural: str) -> str:
    """Return the store's name of a collection of an older generation.

    Today's objects of the same names mean something else: their rivals are stored beside them.
    """
    return f"{generation}.{group}/{plural}" if group == "resource.k8s.io" else f"{group}/{plural}"


class Generation(Protocol):
    """One generation of the device API."""

    @property
    def name(self) -> str:
        """The name of the generation, as `--api` has it."""
        ...

    @property
    def api_version(self) -> str:
        """The group and version of its own kinds."""
        ...

    def read(self, item: Mapping[str, Any]) -> NormalizedDocument:
        """Return a document as this generation reads it."""
        ...

    def read_all(self, items: Sequence[Mapping[str, Any]]) -> Sequence[NormalizedDocument]:
        """Return documents that belong together, each as this generation reads it."""
        ...

    def cluster(
        self, objects: Sequence[JsonDict], refused: Sequence[NormalizedDocument] = ()
    ) -> GenerationCluster:
        """Return the cluster that normalized objects describe.

        `refused` are stored objects that are invalid: what uses one is unplaced and says so; what
        their status holds is in use.
        """
        ...
