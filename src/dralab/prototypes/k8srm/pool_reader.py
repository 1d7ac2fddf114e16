"""Pools as slices of the allocation problem, and chosen devices as a claim's allocations.

Pools are numbered, because k8srm looks at them in the order in which they were loaded.
"""

from collections.abc import Iterator, Sequence
from typing import Final

from dralab.allocation import problem as core
from dralab.allocation.outcome import Chosen, ClaimAllocation
from dralab.prototypes.k8srm.claim_reader import AskedClaim
from dralab.prototypes.k8srm.model import K8srmPool, Provided
from dralab.prototypes.searching import SHARED, slices_of
from dralab.values.json_types import JsonDict
from dralab.values.quantity import Number, render

EVERYBODY: Final = "k8srm"


def slices(pools: Sequence[K8srmPool]) -> Iterator[core.Slice]:
    """Yield the slices of pools: one with devices, one with counters where there are any."""
    for number, pool in enumerate(pools):
        yield from slices_of(
            EVERYBODY,
            core.NumberedPool.of(number, pool.name),
            pool.node,
            [
                core.Device(
                    name=device.name,
                    driver=pool.driver,
                    attributes=device.attributes,
                    capacity={
                        name: core.Capacity(provided.amount // provided.block * provided.block)
                        for name, provided in device.provides.items()
                    },
                    consumes=(
                        (core.CounterConsumption(SHARED, device.consumes),)
                        if device.consumes
                        else ()
                    ),
                )
                for device in pool.devices
            ],
            pool.shared,
        )


def device_id(number: int, pool: str, device: str) -> core.DeviceId:
    """Return the identity of a device in the problem."""
    return core.DeviceId(EVERYBODY, core.NumberedPool.of(number, pool), device)


def allocated(
    pools: Sequence[K8srmPool], asked: AskedClaim, allocation: ClaimAllocation
) -> list[JsonDict]:
    """Return `status.allocations`: a device each, with the amounts taken, rounded to blocks."""
    left: dict[str, dict[str, Number]] = {
        name: dict(totals) for name, totals in asked.totals.items()
    }
    return [_entry(pools, chosen, left) for chosen in allocation.chosen]


def _entry(
    pools: Sequence[K8srmPool], chosen: Chosen, left: dict[str, dict[str, Number]]
) -> JsonDict:
    pool = pools[int(chosen.device.pool)]
    device = next(d for d in pool.devices if d.name == chosen.device.device)
    wanted = left.get(chosen.request, {})
    parts = []
    for name, amount in wanted.items():
        provided = device.provides.get(name)
        if provided is None or amount <= 0:
            continue
        taken = _rounded(amount, provided)
        wanted[name] = amount - taken
        text = render(taken, "BinarySI" if provided.binary else "DecimalSI")
        parts.append({"name": name, "allocation": text})
    found: JsonDict = {"devicePoolName": pool.name, "deviceName": device.name}
    return found | ({"allocations": parts} if parts else {})


def _rounded(amount: Number, provided: Provided) -> Number:
    """Return an amount rounded up to the block, within what the device has in whole blocks."""
    up = -(-amount // provided.block) * provided.block
    return min(up, provided.amount // provided.block * provided.block)
