"""Policies: small objects that choose one of the possible allocations.

A policy assigns a cost to each choice. The search takes the cheapest device for every slot and the
cheapest node for every pod, and still guarantees correctness. Without a policy the choice is
Kubernetes': the first node, and the first devices in its order.

A custom policy is a class with one method:

>>> class Balanced:
...     def cost(self, before: NodeOutlook, after: NodeOutlook) -> float:
...         return abs(after.free - after.devices / 2)
"""

from collections.abc import Mapping
from dataclasses import field
from typing import Any, Final, Protocol, runtime_checkable

from dralab.allocation.policy.scoring import NodeOutlook
from dralab.values.records import dataclass

__all__ = ["FragmentationAware", "NodeOutlook", "Pack", "Policy", "Spread", "policy_named"]

# By how much packing weighs against what stays usable (measured: docs/benchmarks.md).
PACKING: Final = 0.01


@runtime_checkable
class Policy(Protocol):
    """Says what a choice costs."""

    def cost(self, before: NodeOutlook, after: NodeOutlook) -> float:
        """Return the cost of changing a node in this way; the least is chosen, then the first."""
        ...


@dataclass(frozen=True, slots=True)
class Pack:
    """Fill nodes that are fullest already, and leave others empty."""

    def cost(self, before: NodeOutlook, after: NodeOutlook) -> float:  # noqa: ARG002 - the result decides
        """Return how many devices the node has left."""
        return after.free


@dataclass(frozen=True, slots=True)
class Spread:
    """Keep all nodes equally free."""

    def cost(self, before: NodeOutlook, after: NodeOutlook) -> float:  # noqa: ARG002 - the result decides
        """Return how many devices of the node are in use."""
        return -after.free


@dataclass(frozen=True, slots=True)
class FragmentationAware:
    """Keep as much as possible of what future claims could use.

    `demand` are claims (resource.k8s.io/v1 mappings) that are likely to be made, each with what one
    is worth, such as its memory slices; the first request of each counts. What a node is good for
    is the worth that could still be had from each of its counter groups, plus a small convex term
    that makes it fill counter groups which are broken into already. Without `demand`, the claims at
    hand are taken for typical, and a device is worth the part of its counter group that it draws.
    """

    demand: tuple[tuple[Mapping[str, Any], float], ...] = field(default=(), compare=False)
    packing: float = PACKING

    def cost(self, before: NodeOutlook, after: NodeOutlook) -> float:
        """Return the worth that is lost."""
        lost = before.usable - after.usable
        return lost + self.packing * (before.squares - after.squares)


def policy_named(name: str) -> Policy | None:
    """Return a policy by its name on the command line; KeyError if there is none.

    None is Kubernetes' choice.
    """
    return POLICIES[name]


POLICIES: Final[Mapping[str, Policy | None]] = {
    "kubernetes": None,
    "pack": Pack(),
    "spread": Spread(),
    "fragmentation-aware": FragmentationAware(),
}
