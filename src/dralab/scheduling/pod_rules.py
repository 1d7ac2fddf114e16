"""Rules that keep pods from nodes because of other pods and of volumes: what a snapshot asks.

Allocation knows nodes and devices. Host ports, affinity between pods, topology spread, volumes,
gangs, and what devices take of their node's CPU and memory belong to the scheduler. A snapshot
that is given `PodRules` asks them; `capacity.placement_rules` answers with the scheduler's code.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from dralab.objects.nodes import UnfitReason
from dralab.values.json_types import JsonDict, JsonObject


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokenRule:
    """A rule that keeps a pod from a node, and what would lift it.

    `clause` is a sentence about the node, in which `{have}` stands for "has" or "have". `field` is
    where the pod states the rule, `text` what it says there (both are empty where another pod
    states it). `facts` are lines about what there is. `blockers` are the pods, as namespace/name,
    that are in the way: once all of them have ended, the rule is met. Each of `remedies` is a
    change of the pod after which the node may run it.
    """

    reason: UnfitReason
    clause: str
    field: str = ""
    text: str = ""
    facts: Sequence[str] = ()
    blockers: Sequence[str] = ()
    remedies: Sequence[str] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class GangRefusal:
    """A gang does not start: of `members` pods that exist, `least` must fit at once.

    `fitting` members find places, with these `nodes` and `allocations`; `failing` is the first one
    that does not, None where too few members exist.
    """

    group: str
    least: int
    members: int
    fitting: int = 0
    failing: JsonDict | None = None
    allocations: Sequence[JsonObject] = ()
    why: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class RoomRefusal:
    """A node has a pod's devices, but not the CPU or memory that these devices take of it.

    `lacks` names for each resource what the pod needs with its devices, what the devices take of
    that, and what is free, as quantities; `why` is kube-scheduler's reason where it is not room.
    The end of any one of `blockers` is enough.
    """

    node: str
    lacks: Sequence[tuple[str, str, str, str]]
    why: str = ""
    blockers: Sequence[str] = ()


class PodRules(Protocol):
    """Answers for one set of objects; pods that are placed later are noted."""

    def blocked(self, pod: JsonObject) -> str:
        """Return why no node may run a pod because of its volume claims; empty if that is fine."""
        ...

    def refusal(self, pod: JsonObject, node: str) -> UnfitReason | None:
        """Return the first rule that keeps a pod from a node; None if there is none."""
        ...

    def told(self, pod: JsonObject, node: str) -> BrokenRule | None:
        """Return the same rule with everything that helps a person."""
        ...

    def after_devices(
        self, pod: JsonObject, claims: Iterable[JsonDict]
    ) -> GangRefusal | RoomRefusal | None:
        """Return why a pod whose devices are free still does not start; None if it does.

        `claims` are all claims as they are now.
        """
        ...

    def note_pod(self, pod: Mapping[str, object], node: str) -> None:
        """Take it that a pod runs on a node."""
        ...
