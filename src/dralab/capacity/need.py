"""What a waiting pod needs of a node, and whether removing pods would provide it.

The quick answer compares devices, CPU, memory and other amounts, and ignores ports, affinity and
spread. So a "no" is certain, and a "yes" has to be confirmed by placing the pod.
"""

from collections import Counter
from collections.abc import Sequence

from dralab.objects.claims import alternatives_of, requests_of
from dralab.objects.extended_resources import synthetic_claim
from dralab.objects.nodes import PODS
from dralab.scheduling.cycle import on_node
from dralab.scheduling.demands import PodDemand
from dralab.scheduling.filters import passing, possible
from dralab.scheduling.model import ClusterModel
from dralab.scheduling.pods import PodInfo
from dralab.scheduling.state import PodPlacement
from dralab.values.json_types import JsonDict


class PodToPlace:
    """A pod that is on no node, and what it demands.

    `by_pods` is set where other pods decide which nodes it may use: then moving them may help
    without freeing anything.
    """

    def __init__(self, model: ClusterModel, pod: PodInfo, demand: PodDemand) -> None:
        self.model = model
        self.pod = pod
        self.demand = demand
        self.by_pods = bool(pod.affinity or pod.anti_affinity or pod.spread)
        self.claims: list[JsonDict] = [item.claim for item in demand.unallocated]
        if demand.extended:
            self.claims.append(synthetic_claim(pod.obj, demand.extended)[0])
        self.devices = sum(
            min(int(each.get("count") or 1) for each in alternatives_of(request))
            for claim in self.claims
            for request in requests_of(claim["spec"])
        )

    def rows(self) -> list[int]:
        """Return the nodes that the pod may use, regardless of other pods."""
        found: list[int] = possible(self.model.state, self.pod, self.demand).nonzero()[0].tolist()
        return found

    def lacking(self, row: int) -> int:
        """Return how many devices are missing on a node, counted one by one."""
        if not self.claims:
            return 0
        return max(0, self.devices - self.model.devices.free_for(self.claims, [row])[0].free)

    def met_without(self, row: int, leaving: Sequence[PodPlacement]) -> bool | None:
        """Return whether the pod would fit without some of the node's pods; None if unknown."""
        table = self.model.state.table
        freed: Counter[str] = Counter({PODS: len(leaving)})
        for each in leaving:
            freed.update(each.pod.requests)
        if int(table.free(PODS)[row]) + freed[PODS] < 1:
            return False
        for resource, amount in self.pod.requests.items():
            if resource in self.demand.extended and not int(table.allocatable(resource)[row]):
                continue
            if amount and int(table.free(resource)[row]) + freed[resource] < amount:
                return False
        if not self.claims:
            return True
        if any(int(table.allocatable(name)[row]) for name in self.demand.extended):
            return None  # what the node itself offers, no device has to
        released = self.model.released_by(leaving)
        return self.model.devices.fits_without(self.claims, row, released)

    def placement_on(self, row: int) -> PodPlacement | None:
        """Return the pod's place on a node as things are; None if it does not fit there."""
        state = self.model.state
        if not passing(state, self.pod, self.demand)[row]:
            return None
        return on_node(state, self.pod, self.demand, row).placement
