"""How much of the free capacity the existing kinds of pods can use.

A free device is stranded for a kind of pods where the kind does not fit on its node, although the
device by itself would do. Weighted with how often each kind occurs this is the measure of FGD
(Weng et al., USENIX ATC 2023), for devices of any sort.
"""

from collections.abc import Iterable, Sequence
from typing import Final

import orjson

from dralab.objects.claims import alternatives_of, requests_of
from dralab.objects.extended_resources import synthetic_claim
from dralab.scheduling import filters
from dralab.scheduling.demands import BlockedPod
from dralab.scheduling.model import ClusterModel
from dralab.scheduling.pods import PodInfo
from dralab.scheduling.state import PodPlacement
from dralab.values.json_types import JsonDict, JsonObject
from dralab.values.records import dataclass

MOST_KINDS: Final = 6


@dataclass(frozen=True, slots=True)
class PodKind:
    """Pods with equal requests: one of them, its own claims, and their number."""

    pod: PodInfo
    claims: Sequence[JsonDict]
    pods: int

    @property
    def asks(self) -> str:
        """What such a pod asks for, in a few words: `4 gpu.nvidia.com`."""
        return " + ".join(_asked(claim["spec"]) for claim in self.claims)


@dataclass(frozen=True, slots=True)
class KindFragmentation:
    """The free devices for a kind, and those stranded on nodes where it does not fit.

    `nodes` are those on which the kind fits.
    """

    kind: PodKind
    free: int
    stranded: int
    nodes: Sequence[str]


def pod_kinds(model: ClusterModel) -> list[PodKind]:
    """Return the kinds of pods with devices, the most frequent first."""
    found: dict[bytes, PodKind] = {}
    for pod, claims in _pods_with_claims(model):
        specs = [claim["spec"] for claim in claims]
        room = sorted(pod.requests.items())
        key = orjson.dumps([specs, room], option=orjson.OPT_SORT_KEYS) + pod.placement
        known = found.get(key)
        found[key] = PodKind(pod, claims, 1) if known is None else _one_more(known)
    ordered = sorted(found.values(), key=lambda kind: -kind.pods)
    return ordered[:MOST_KINDS]


def fragmentation(model: ClusterModel, kinds: Iterable[PodKind]) -> list[KindFragmentation]:
    """Return what is free and what is stranded for each kind, on nodes that the kind may use."""
    table, devices = model.state.table, model.devices
    found = []
    for kind in kinds:
        pod = model.unbound(kind.pod)
        allowed = table.live & model.state.node_rules.mask(pod)
        room = filters.room(table, pod, {name: table.live for name in pod.requests if "/" in name})
        free = stranded = 0
        nodes: list[str] = []
        rows = allowed.nonzero()[0].tolist()
        for row, here in zip(rows, devices.free_for(kind.claims, rows), strict=True):
            free += here.free
            if here.fits and room[row]:
                nodes.append(table.names[row])
            else:
                stranded += here.free
        found.append(KindFragmentation(kind, free, stranded, nodes))
    return found


def stranded_share(found: Sequence[KindFragmentation]) -> float | None:
    """Return the stranded part of what is free, kinds weighted by their pods; None: none is free.

    The result is between 0 and 1.
    """
    weighed = sum(each.kind.pods * each.free for each in found)
    if not weighed:
        return None
    return sum(each.kind.pods * each.stranded for each in found) / weighed


def _pods_with_claims(model: ClusterModel) -> Iterable[tuple[PodInfo, list[JsonDict]]]:
    for placement in model.in_order(model.running.values()):
        claims = _own_claims(placement)
        if claims:
            yield placement.pod, claims
    for pod in model.waiting:
        if pod.uid in model.running:
            continue
        demand = model.state.demands.demand_of(pod)
        if isinstance(demand, BlockedPod):
            continue
        wanted = [item.claim for item in demand.unallocated]
        if demand.extended:
            wanted.append(synthetic_claim(pod.obj, demand.extended)[0])
        if wanted:
            yield pod, wanted


def _own_claims(placement: PodPlacement) -> list[JsonDict]:
    """Return the claims that only this pod uses."""
    return [plan.claim for plan in placement.plans if plan.consumer["resource"] == "pods"]


def _one_more(kind: PodKind) -> PodKind:
    return PodKind(kind.pod, kind.claims, kind.pods + 1)


def _asked(spec: JsonObject) -> str:
    return " + ".join(
        " or ".join(
            f"{each.get('count') or 1 if each.get('allocationMode') != 'All' else 'all'} "
            f"{each.get('deviceClassName')}"
            for each in alternatives_of(request)
        )
        for request in requests_of(spec)
    )
