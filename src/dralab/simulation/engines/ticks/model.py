"""Pods, nodes, and the answers of submitters and schedulers."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

from dralab.simulation.workloads.phases import Phase, total, usage_at
from dralab.values.quantity import Number

Amounts = Mapping[str, Number]
Status = Literal["Ok", "Deleted", "OverCapacity"]


@dataclass(frozen=True, slots=True, kw_only=True)
class TickPod:
    """A pod as it is submitted: what it requests, its limits, and its phases of use."""

    name: str
    namespace: str = "default"
    requests: Amounts = field(default_factory=dict)
    limits: Amounts = field(default_factory=dict)
    phases: tuple[Phase, ...]
    priority: int = 0
    grace: int = 30

    @property
    def key(self) -> str:
        """`namespace/name`."""
        return f"{self.namespace}/{self.name}"


@dataclass(slots=True)
class BoundPod:
    """A pod on a node, from `bound_at` on (seconds since the epoch)."""

    pod: TickPod
    node: str
    bound_at: int
    status: Status = "Ok"
    deleted_at: int | None = None

    def elapsed(self, now: int) -> int:
        """Whole seconds it has run."""
        return max(0, min(now - self.bound_at, total(self.pod.phases)))

    def running(self, now: int) -> bool:
        """Whether its phases are not over and it was not deleted."""
        return (
            self.status == "Ok"
            and self.deleted_at is None
            and now - self.bound_at < total(self.pod.phases)
        )

    def terminating(self, now: int) -> bool:
        """Whether it was deleted and its grace has not passed: it still uses resources."""
        return self.deleted_at is not None and now - self.deleted_at < self.pod.grace

    def holds(self, now: int) -> bool:
        """Whether its requests count on its node."""
        return self.running(now) or self.terminating(now)

    def usage(self, now: int) -> Amounts:
        """What it uses."""
        return usage_at(self.pod.phases, now - self.bound_at) if self.holds(now) else {}


@dataclass(slots=True)
class TickNode:
    """A node: what can be allocated, and the pods bound to it."""

    name: str
    allocatable: Amounts
    labels: Mapping[str, str] = field(default_factory=dict)
    pods: dict[str, BoundPod] = field(default_factory=dict)

    def requested(self, now: int) -> dict[str, Number]:
        """What its pods request together."""
        return _sum(bound.pod.requests for bound in self.pods.values() if bound.holds(now))

    def used(self, now: int) -> dict[str, Number]:
        """What its pods use together."""
        return _sum(bound.usage(now) for bound in self.pods.values())

    def fits(self, pod: TickPod, now: int) -> bool:
        """Whether requests and the number of pods leave room for one more."""
        requested = self.requested(now)
        count = sum(bound.holds(now) for bound in self.pods.values())
        return count < self.allocatable.get("pods", 110) and all(
            requested.get(name, 0) + amount <= self.allocatable.get(name, 0)
            for name, amount in pod.requests.items()
        )


def _sum(parts: Any) -> dict[str, Number]:
    found: dict[str, Number] = {}
    for part in parts:
        for name, amount in part.items():
            found[name] = found.get(name, 0) + amount
    return found


@dataclass(frozen=True, slots=True)
class Submit:
    """A new pod."""

    pod: TickPod


@dataclass(frozen=True, slots=True)
class Delete:
    """Delete a pod, queued or bound."""

    name: str
    namespace: str = "default"


@dataclass(frozen=True, slots=True)
class Update:
    """Replace a queued pod."""

    name: str
    pod: TickPod
    namespace: str = "default"


@dataclass(frozen=True, slots=True)
class Terminate:
    """The submitter has nothing more to submit."""


@dataclass(frozen=True, slots=True)
class Bind:
    """Put the pod on a node."""

    pod: TickPod
    node: str


class Submitter(Protocol):
    """Submits and deletes pods at each tick; must not block."""

    def submit(
        self, clock: int, nodes: Sequence[TickNode], metrics: Mapping[str, Any]
    ) -> Sequence[Submit | Delete | Update | Terminate]:
        """Return what happens at this tick."""
        ...


class PodQueue(Protocol):
    """The pods that wait."""

    def push(self, pod: TickPod) -> None:
        """Put a pod in."""
        ...

    def front(self) -> TickPod | None:
        """Return the next pod without taking it; None if there is none."""
        ...

    def pop(self) -> TickPod:
        """Take the next pod."""
        ...

    def delete(self, key: str) -> bool:
        """Remove a pod; False if it is not there."""
        ...

    def update(self, key: str, pod: TickPod) -> bool:
        """Replace a pod; False if it is not there."""
        ...

    def __len__(self) -> int: ...


class TickScheduler(Protocol):
    """Takes pods from the queue and binds them to nodes."""

    def schedule(
        self, clock: int, queue: PodQueue, nodes: Sequence[TickNode]
    ) -> Sequence[Bind | Delete]:
        """Return what is bound and deleted at this tick."""
        ...
