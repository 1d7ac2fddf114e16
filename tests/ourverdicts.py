"""What dralab decides about one pod in a given state, in the form of `stockverdicts`."""

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from dralab.objects.claims import claim_names
from dralab.objects.extended_resources import classes_by_resource
from dralab.objects.metadata import is_deleting
from dralab.objects.requests import pod_requests
from dralab.objects.volumes import claims_of
from dralab.scheduling import scores
from dralab.scheduling.cycle import on_node
from dralab.scheduling.demands import BlockedPod
from dralab.scheduling.filters import passing, reasons_by_node
from dralab.scheduling.model import ClusterModel
from dralab.scheduling.pods import DEFAULT_SCHEDULER, PodInfo
from dralab.scheduling.preemption import eviction_for
from dralab.scheduling.reasons import NO_DEVICES
from dralab.scheduling.state import ClusterState, PodPlacement
from dralab.values.json_types import JsonDict
from stockverdicts import FITS, Points, StockVerdict

TAINT = re.compile(r"untolerated taint \{.*\}")


@dataclass
class OurVerdict:
    """Where a pod goes, or why nowhere; the weighted points of the nodes that could run it."""

    node: str = ""
    message: str = ""
    blocked: str = ""
    fatal: str = ""
    reasons: dict[str, int] = field(default_factory=dict)
    points: Points = field(default_factory=dict)
    by_node: dict[str, list[str]] = field(default_factory=dict)
    evicted: list[str] = field(default_factory=list)
    """The pods that would be preempted; not judged for a pod that wants devices."""

    @property
    def best(self) -> set[str]:
        """The nodes with the highest score."""
        totals = {node: sum(points.values()) for node, points in self.points.items()}
        return {node for node, points in totals.items() if points == max(totals.values())}


def our_verdict(objects: Sequence[JsonDict], name: str) -> OurVerdict:
    model = ClusterModel(objects)
    pod = next(each for each in model.waiting if each.key.name == name)
    decided = model.try_pod(pod)
    if isinstance(decided, PodPlacement):
        return OurVerdict(
            node=decided.node,
            points=judged(model.state, pod),
            by_node=by_node(model.state, pod),
        )
    budgets = [item for item in objects if item["kind"] == "PodDisruptionBudget"]
    room = eviction_for(model.state, pod, budgets)
    return OurVerdict(
        evicted=sorted(each.key.name for each in room.victims) if room is not None else [],
        by_node={} if decided.blocked else by_node(model.state, pod),
        message=decided.message,
        blocked=str(decided.blocked or ""),
        fatal=str(decided.fatal or ""),
        reasons={str(reason): count for reason, count in decided.reasons.items()},
    )


def judged(state: ClusterState, pod: PodInfo) -> Points:
    """Return the points of every node that could run a pod, devices included."""
    demand = state.demands.demand_of(pod)
    assert not isinstance(demand, BlockedPod)
    left = passing(state, pod, demand)
    ranks: dict[int, int] = {}
    for row in np.flatnonzero(left):
        tried = on_node(state, pod, demand, int(row))
        if tried.placement is None:
            left[row] = False
        else:
            ranks[int(row)] = tried.points or 0
    points = {
        plugin.name: (plugin.weight, plugin.points(state, pod, left)) for plugin in scores.PLUGINS
    }
    more = dict(zip(ranks, scores.devices_points(list(ranks.values())), strict=True))
    return {
        state.table.names[row]: {
            name: weight * int(column[row])
            for name, (weight, column) in points.items()
            if column is not None
        }
        | {"DynamicResources": more[row]}
        for row in ranks
    }


def by_node(state: ClusterState, pod: PodInfo) -> dict[str, list[str]]:
    """Return kube-scheduler's reasons against each node for a pod."""
    demand = state.demands.demand_of(pod)
    assert not isinstance(demand, BlockedPod)
    refused = reasons_by_node(state, pod, demand)
    found = {}
    for name, row in state.table.row_of.items():
        if name in refused:
            found[name] = [_as_stock(str(reason)) for reason in refused[name]]
            continue
        tried = on_node(state, pod, demand, row)
        if tried.placement is not None:
            found[name] = [FITS]
        elif tried.shortage is not None:
            found[name] = [_as_stock(str(reason)) for reason in tried.shortage.reasons]
        else:
            found[name] = [NO_DEVICES.sentence]
    return found


def wants_devices(objects: Sequence[JsonDict], pod: JsonDict) -> bool:
    """Whether a pod has claims, or asks for resources that a class provides."""
    classes = [item for item in objects if item["kind"] == "DeviceClass"]
    return bool(claim_names(pod)) or not classes_by_resource(classes).keys().isdisjoint(
        pod_requests(pod["spec"])
    )


def is_tried(pod: JsonDict) -> bool:
    """Whether the default scheduler looks for a node for a pod at all."""
    spec = pod["spec"]
    ours = (spec.get("schedulerName") or DEFAULT_SCHEDULER) == DEFAULT_SCHEDULER
    return ours and not spec.get("schedulingGates") and not is_deleting(pod)


def difference(stock: StockVerdict, ours: OurVerdict) -> str:
    """Return what kube-scheduler decided otherwise; empty: nothing."""
    if stock.by_node and ours.by_node and not ours.fatal:
        differing = {
            node: (reasons, ours.by_node.get(node))
            for node, reasons in stock.by_node.items()
            if sorted(reasons) != sorted(ours.by_node.get(node) or ())
        }
        if differing:
            return f"by node: {differing}"
    if not (stock.node and ours.node):
        return "" if stock.node == ours.node and _same_reasons(stock, ours) else _told(stock, ours)
    if stock.points and _steps(stock.points) != _steps(ours.points):
        return f"points {stock.points}, ours {ours.points}"
    return "" if stock.node in ours.best else _told(stock, ours)


def preempted_otherwise(stock: StockVerdict, ours: OurVerdict, objects: Sequence[JsonDict]) -> str:
    """Return where other pods are preempted, or dearer ones; empty: nowhere.

    Of several nodes where the same would be lost, kube-scheduler takes any. What ends already is
    not lost.
    """

    def loss(names: Sequence[str]) -> list[int]:
        pods = [each for each in objects if each["kind"] == "Pod" and not is_deleting(each)]
        return sorted(
            each["spec"]["priority"] for each in pods if each["metadata"]["name"] in names
        )

    same = loss(stock.evicted) == loss(ours.evicted) or _share_a_single_claim(objects, ours.evicted)
    return "" if same else f"preempted {stock.evicted}, ours {ours.evicted}"


def _share_a_single_claim(objects: Sequence[JsonDict], names: Sequence[str]) -> bool:
    """Whether pods name one ReadWriteOncePod claim, which kube-scheduler counts once."""
    single = {
        item["metadata"]["name"]
        for item in objects
        if item["kind"] == "PersistentVolumeClaim"
        and "ReadWriteOncePod" in item["spec"]["accessModes"]
    }
    pods = [each for each in objects if each["kind"] == "Pod" and each["metadata"]["name"] in names]
    return sum(any(claim in single for claim, _ in claims_of(pod)) for pod in pods) > 1


def _same_reasons(stock: StockVerdict, ours: OurVerdict) -> bool:
    if ours.fatal:
        # An error of the plugin ends the attempt; what other nodes say is not told.
        return stock.message.startswith('running "DynamicResources" filter plugin: ')
    if not stock.message:
        # It is not queued before its claims are there; we say what keeps them from being made.
        return any(word in ours.blocked.lower() for word in ("resourceclaim", "quota"))
    found: Counter[str] = Counter()
    for reason, count in (ours.reasons or {ours.blocked: 0}).items():
        found[_as_stock(reason)] += count
    return dict(found) == stock.reasons


def _as_stock(reason: str) -> str:
    """We name the taint."""
    return TAINT.sub("untolerated taint(s)", reason)


def _steps(points: Points) -> dict[str, dict[str, int]]:
    """Return by how much nodes differ, by plugin: what all get alike decides nothing."""
    plugins = {plugin for each in points.values() for plugin in each}
    least = {name: min(each.get(name, 0) for each in points.values()) for name in plugins}
    return {
        node: {
            name: each.get(name, 0) - low for name, low in least.items() if each.get(name, 0) > low
        }
        for node, each in points.items()
    }


def _told(stock: StockVerdict, ours: OurVerdict) -> str:
    return f"{stock.node or stock.message!r}, ours {ours.node or ours.message!r}"
