"""Claims that together hold more of a pool than it has.

One scheduler gives a device once. Two of them that have not heard of each other may give it twice,
or overdraw a device's capacity or the counters of a pool. Which of the claims has to give back is
for the scheduler to decide (`scheduler.precedence`).
"""

from collections.abc import Iterable, Sequence

from dralab.allocation.fleet import Fleet
from dralab.allocation.inventory.holdings import Holdings, device_of
from dralab.allocation.inventory.pool_records import PoolRecord
from dralab.allocation.pools import PoolId
from dralab.allocation.problem import DeviceId
from dralab.allocation.search.node_devices import DeviceState, Remaining, bits
from dralab.objects.claims import Holding
from dralab.values.quantity import Number, parse_any


def rivals(holdings: Holdings, fleet: Fleet, uid: str) -> list[str]:
    """Return the claims that compete with one for devices of which not all can be held at once.

    Almost always there are none, and little is looked at.
    """
    scarce: set[DeviceId] = set()
    for item in holdings.parts_of(uid):
        device = device_of(item)
        if holdings.is_contested(device):
            scarce.add(device)
        elif (at := _published(fleet, device)) is not None:
            index, inside = at
            if item.share and _is_overbooked(holdings, fleet.pools.records[index], device):
                scarce.add(device)
            scarce |= _overdrawn_group(fleet, index, inside)
    return [other for other in holdings.claims_with(scarce) if other != uid] if scarce else []


def fit_together(fleet: Fleet, held: Iterable[Sequence[Holding]]) -> bool:
    """Return whether what several claims hold can be held at once; `held` has a list for each.

    Of devices that no slice publishes only double use counts.
    """
    by_pool: dict[PoolId, list[Holding]] = {}
    for results in held:
        for item in results:
            by_pool.setdefault((item.driver, item.pool), []).append(item)
    return all(_fits(fleet, results) for results in by_pool.values())


def _fits(fleet: Fleet, results: Sequence[Holding]) -> bool:
    """Return whether results of one pool can be held at once."""
    whole, shared = set[DeviceId](), set[DeviceId]()
    for item in results:
        device = device_of(item)
        if device in whole or (device in shared and not item.share):
            return False
        (shared if item.share else whole).add(device)
    state: DeviceState | None = None
    for item in results:
        at = _published(fleet, device_of(item))
        if at is None:
            continue
        index, inside = at
        devices = fleet.pools.records[index].shape.node_devices
        if state is None:
            state = DeviceState(0, 0, tuple(each.total for each in devices.counter_groups), {})
        amounts: tuple[Number, ...] | None = None
        if item.share:
            consumed = {name: parse_any(value) for name, value in item.consumed.items()}
            amounts = devices.offers[inside].device.amounts_of(consumed)
        state = devices.take_device(state, inside, amounts)
        if state is None:
            return False
    return True


def _published(fleet: Fleet, device: DeviceId) -> tuple[int, int] | None:
    """Return the number of a device's pool, and its number there; None if no pool publishes it."""
    index = fleet.pools.pool_number(device.driver, device.pool)
    if index is None:
        return None
    record = fleet.pools.records[index]
    if record.irregular or not record.has(device.device):
        return None
    return index, record.number_of(device.device)


def _is_overbooked(holdings: Holdings, record: PoolRecord, device: DeviceId) -> bool:
    content = record.shape.node_devices.offers[record.number_of(device.device)].device
    consumed = holdings.pool_use((device.driver, device.pool)).consumed.get(device, {})
    capacities = [item.value for item in content.capacity.values()]
    return any(
        used > most for used, most in zip(content.amounts_of(consumed), capacities, strict=True)
    )


def _overdrawn_group(fleet: Fleet, index: int, inside: int) -> set[DeviceId]:
    """Return the devices that share the counters of one, if the counters are overdrawn."""
    record = fleet.pools.records[index]
    devices = record.shape.node_devices
    own = devices.consumptions[inside]
    if own is None:
        return set()
    remaining: Remaining | None = devices.counter_groups[own.counter_group].total
    members = devices.members[own.counter_group]
    for number in bits(members & fleet.use.occupancies[index].held):
        consumption = devices.consumptions[number]
        if consumption is not None and remaining is not None:
            remaining = remaining.without(consumption)
    if remaining is not None:
        return set()
    return {DeviceId(record.driver, record.name, record.names[each]) for each in bits(members)}
