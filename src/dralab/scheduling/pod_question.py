"""One pod and a state: the nodes that cannot run it regardless of devices, and its demand.

Pages, events and questions about changes read the same facts here. What the facts mean to a person
is left to `explanation`.
"""

from functools import cached_property
from typing import Final

import numpy as np

from dralab.allocation.problem import Node, Problem
from dralab.objects.metadata import NamespacedName
from dralab.scheduling.claims import ClaimDemand
from dralab.scheduling.demands import BlockedPod, PodDemand
from dralab.scheduling.filters import (
    FILTERS,
    Reasons,
    beside,
    filters_of,
    passing,
    promised,
    reasons_by_node,
)
from dralab.scheduling.nodes import Mask, NodeTable
from dralab.scheduling.pods import PodInfo
from dralab.scheduling.state import ClusterState

FIT: Final = next(each for each in FILTERS if each.plugin == "NodeResourcesFit")


class PodQuestion:
    """A pod and the nodes of a state; `only` restricts them to one node.

    `held` are the claims that count as allocated; by default those that are.
    """

    def __init__(
        self,
        state: ClusterState,
        pod: PodInfo,
        only: str = "",
        held: frozenset[NamespacedName] | None = None,
    ) -> None:
        self.state = state
        self.pod = pod
        self.only = only
        self._among = held

    @property
    def table(self) -> NodeTable:
        """The nodes."""
        return self.state.table

    @cached_property
    def demand(self) -> PodDemand:
        """The demand, as far as known for a pod that cannot be tried."""
        found = self.state.demands.demand_of(self.pod)
        return found.demand if isinstance(found, BlockedPod) else found

    @cached_property
    def allocated(self) -> tuple[ClaimDemand, ...]:
        """The claims that have their devices."""
        return tuple(
            item
            for item in self.demand.claims
            if item.allocation is not None and (self._among is None or item.key in self._among)
        )

    @property
    def wants_devices(self) -> bool:
        """Whether the pod has claims, or asks for resources that devices provide."""
        return bool(self.demand.claims or self.demand.extended)

    @cached_property
    def held(self) -> PodDemand:
        """The demand without new devices."""
        return PodDemand(
            claims=self.allocated, extended=self.demand.extended, volumes=self.demand.volumes
        )

    def usable(self) -> Mask:
        """Return the nodes that may run the pod, whatever their free devices are."""
        mask = passing(self.state, self.pod, self.held)
        return mask & named(self.table, self.only) if self.only else mask

    def candidates(self) -> list[Node]:
        """Return the same nodes, as the allocator sees them."""
        mask = self.usable()
        return [self.state.devices.node(row) for row in self.table.row_of.values() if mask[row]]

    def unfit(self, *, every: bool = False) -> dict[str, Reasons]:
        """Return the nodes that may not run the pod whatever their free devices, each with why.

        The reasons are those of the first filter that a node fails, as kube-scheduler tells them,
        or of `every` filter.
        """
        found = reasons_by_node(self.state, self.pod, self.held, every=every)
        return {name: why for name, why in found.items() if not self.only or name == self.only}

    def refusals(self, node: str) -> Reasons:
        """Return the first failing filter's reasons against a node, regardless of devices."""
        row = self.table.row_of[node]
        for each in filters_of(self.pod):
            if found := each.at(self.state, self.pod, self.held, row):
                return found
        return ()

    def shortages(self, node: str) -> list[tuple[str, int, int]]:
        """Return what a node has too little of: (resource, needed, free), in base units."""
        row = self.table.row_of[node]
        short = [each.subject or "pods" for each in FIT.at(self.state, self.pod, self.held, row)]
        needed = {"pods": 1, **self.pod.requests}
        with beside(self.table, row, self.promised(node)):
            return [(name, needed[name], int(self.table.free(name)[row])) for name in short]

    def promised(self, node: str) -> list[PodInfo]:
        """Return the nominated pods of a node."""
        return promised(self.state, self.pod, node)

    def node(self, name: str) -> Node:
        """Return a node as far as devices care, cordoned ones too."""
        return self.state.devices.node(self.table.row_of[name])

    def problem(self) -> Problem:
        """Return the allocation problem of the pod, with everything that is in use."""
        claims = self.state.devices.claims_of(self.pod, self.demand)
        return self.state.devices.everywhere(claims)[1]


def named(table: NodeTable, name: str) -> Mask:
    """Return the mask of the node of a name; empty if it does not exist."""
    found = np.zeros(table.size, dtype=bool)
    row = table.row_of.get(name)
    if row is not None:
        found[row] = True
    return found
