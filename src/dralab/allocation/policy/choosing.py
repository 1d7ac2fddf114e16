"""Allocations by a policy: on one node, and the best of many nodes."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from dralab.allocation import v1
from dralab.allocation.policy.policies import Policy
from dralab.allocation.policy.scoring import LikelyRequest, NodeOutlook, ServableDemand
from dralab.allocation.problem import AllocationFeatures, DeviceClass
from dralab.allocation.search.alternatives import Alternative, RefusedError
from dralab.allocation.search.backtracking import Effort
from dralab.allocation.search.eligibility import Eligibility
from dralab.allocation.search.node_devices import DeviceState, NodeDevices, bits
from dralab.allocation.search.reduction import Cost, cheapest
from dralab.allocation.search.setup import PickedAlternative, SearchSetup, prepare_alternatives
from dralab.allocation.selectors import CelSelectorCompiler

LikelyRequests = Sequence[tuple[Alternative, float]]


def likely_requests(
    policy: Policy, classes: Mapping[str, DeviceClass], features: AllocationFeatures
) -> LikelyRequests:
    """Return the requests that a policy names as likely, each with its worth."""
    found = []
    named: Iterable[tuple[Mapping[str, Any], float]] = getattr(policy, "demand", ())
    reader = v1.V1Reader(CelSelectorCompiler())
    for wire, worth in named:
        try:
            alternatives = prepare_alternatives([reader.claim(wire)], classes, features)
        except RefusedError:
            # What no node could serve is not likely to be asked here.
            continue
        found.append((alternatives[0][0][0], worth))
    return found


def worth_on(
    node_devices: NodeDevices,
    eligibility: Eligibility,
    demand: LikelyRequests,
    requests: Iterable[Iterable[Alternative]],
) -> ServableDemand:
    """Return what a node is worth for the demand; without a demand, for requests like these."""
    if demand:
        return ServableDemand(
            node_devices,
            eligibility,
            [LikelyRequest(alternative, worth) for alternative, worth in demand],
        )
    alternatives = [alternative for request in requests for alternative in request]
    wanted = [
        LikelyRequest(alternative, _part(node_devices, eligibility, alternative))
        for alternative in alternatives
    ]
    return ServableDemand(node_devices, eligibility, wanted)


def _part(node_devices: NodeDevices, eligibility: Eligibility, alternative: Alternative) -> float:
    """Return the largest part of a counter group that one device draws; 1 for plain devices."""
    part = 0.0
    mask = ServableDemand(node_devices, eligibility, [LikelyRequest(alternative, 1.0)]).masks[0]
    for number in bits(mask):
        consumption = node_devices.consumptions[number]
        if consumption is None:
            return 1.0
        total = node_devices.counter_groups[consumption.counter_group].total.counters
        parts = [
            float(amount) / float(total[place])
            for place, amount in consumption.amounts
            if total[place]
        ]
        part = max(part, sum(parts) / max(len(total), 1))
    return part or 1.0


def cost_by(policy: Policy, node_devices: NodeDevices, worth: ServableDemand) -> Cost:
    """Return what a change of state costs by a policy."""
    looks: dict[int, tuple[DeviceState, NodeOutlook]] = {}

    def look(state: DeviceState) -> NodeOutlook:
        known = looks.get(id(state))
        if known is None or known[0] is not state:
            known = looks[id(state)] = (state, NodeOutlook(node_devices, state, worth))
        return known[1]

    def cost(before: DeviceState, after: DeviceState) -> float:
        return policy.cost(look(before), NodeOutlook(node_devices, after, worth))

    return cost


def chosen_by(
    policy: Policy, setup: SearchSetup, effort: Effort, worth: ServableDemand
) -> tuple[tuple[PickedAlternative, ...], float] | None:
    """Return the devices that a policy chooses on one node, and what the choice costs."""
    cost = cost_by(policy, setup.node_devices, worth)
    picked = cheapest(setup, effort, cost)
    if picked is None:
        return None
    return picked, cost(setup.start, after(setup, picked))


def after(setup: SearchSetup, picked: Sequence[PickedAlternative]) -> DeviceState:
    """Return the state once all of these are taken."""
    state = setup.start
    for each in picked:
        if each.alternative.admin:
            continue
        for number in each.devices:
            shared = setup.node_devices.shareable >> number & 1
            amounts = setup.eligibility.amounts(each.alternative, number) if shared else None
            following = setup.node_devices.take_device(state, number, amounts)
            if following is not None:
                state = following
    return state
