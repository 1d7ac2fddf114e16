"""Whether claims would fit on a node if others released their devices; changes nothing."""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from dralab.allocation.fleet import Fleet
from dralab.allocation.inventory.plan_results import Plan
from dralab.allocation.inventory.pool_states import PoolState
from dralab.objects.claims import holds
from dralab.values.json_types import JsonObject


def fits_without(
    fleet: Fleet, number: int, claims: Sequence[JsonObject], allocations: Iterable[JsonObject]
) -> bool | None:
    """Return whether claims fit on a node without some allocations; None if that is unknown.

    It is not known where pools are in transition, a selector fails, or the search is too long.
    """
    kind = fleet.kind(claims)
    state = fleet.node_state(number)
    if kind.refused is not None:
        return False
    if state is None:
        return None
    states = _states_without(fleet, number, allocations)
    planner = state.shape.planner(kind, fleet.budget)
    key = planner.key(states)
    plan = planner.plans[key] if key in planner.plans else planner.plan(states, key)
    if plan is None:
        return False
    return True if isinstance(plan, Plan) else None


def _states_without(
    fleet: Fleet, number: int, allocations: Iterable[JsonObject]
) -> list[PoolState]:
    """Return the states of the pools that a node sees, without some allocations."""
    after = {index: fleet.use.occupancies[index] for index in fleet.sees[number]}
    for allocation in allocations:
        for index, taking in fleet.use.taken_by(holds(allocation)):
            if index in after:  # else it is another node's
                after[index] = after[index].before(taking)
    return [each.state for each in after.values()]


class WantedDevices(NamedTuple):
    """Devices of a node as bit sets: those that claims would take, and which of them are free.

    The claims fit only if at least `needed` of `wanted` are free.
    """

    wanted: int
    free: int
    needed: int


def wanted_devices(fleet: Fleet, number: int, claims: Sequence[JsonObject]) -> WantedDevices | None:
    """Return the devices that claims could use on a node; None where counting does not help."""
    kind = fleet.kind(claims)
    state = fleet.node_state(number)
    if state is None or kind.refused is not None or kind.some_all:
        return None
    shape = state.shape
    planner = shape.planner(kind, fleet.budget)
    if planner.known is None or any(alternative.admin for alternative in planner.known):
        return None
    wanted = 0
    for mask in planner.known.values():
        wanted |= mask
    if wanted & shape.node_devices.shareable:
        return None
    start = shape.state(state.pools)
    free = wanted & shape.visible & shape.node_devices.fitting(start) & ~start.used
    needed = sum(
        min(alternative.count for alternative in request)
        for claim in kind.alternatives
        for request in claim
    )
    return WantedDevices(wanted, free, needed)


def freed_at_most(fleet: Fleet, number: int, allocations: Iterable[JsonObject]) -> int:
    """Return the devices of a node that may become free if allocations are released, as a bit set.

    These are the devices themselves and all that share counters with them.
    """
    state = fleet.node_state(number)
    if state is None:
        return -1
    node_devices, offsets = state.shape.node_devices, state.shape.offsets
    seen = fleet.sees[number]
    mask = 0
    for allocation in allocations:
        for index, taking in fleet.use.taken_by(holds(allocation)):
            if index not in seen:
                continue
            offset = offsets[seen.index(index)]
            for inside, _ in taking.devices:
                device = offset + inside
                mask |= 1 << device
                consumption = node_devices.consumptions[device]
                if consumption is not None:
                    mask |= node_devices.members[consumption.counter_group]
    return mask
