"""Bipartite matching of requests to devices, on bit sets: the cheap half of every "no".

A request needs several different devices, a device serves one request or, where it is shared,
several. Counters and constraints are ignored, so a failure here is a proof and a success is not.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple


class Shortfall(NamedTuple):
    """Demands (by position) that compete for too few devices: a violation of Hall's condition."""

    demands: tuple[int, ...]
    needed: int
    devices: int


def matched(
    needs: Sequence[int],
    masks: Sequence[int],
    shares: Mapping[int, int],
    spend: Callable[[int], None],
) -> list[int] | Shortfall:
    """Return per demand the set of devices that serve it, or who competes for too few of them.

    `shares` says how many demands a device may serve, where that is not one. Augmenting paths
    (Kuhn): polynomial, at most needs · devices steps each.
    """
    given = [0] * len(needs)
    serving: dict[int, list[int]] = {}
    full = 0

    def augment(demand: int, seen: list[int]) -> bool:
        nonlocal full
        candidates = masks[demand] & ~given[demand] & ~seen[0]
        free = candidates & ~full
        if free:
            give(demand, (free & -free).bit_length() - 1)
            return True
        while candidates:
            low = candidates & -candidates
            seen[0] |= low
            spend(1)
            device = low.bit_length() - 1
            for other in serving[device]:
                if other != demand and augment(other, seen):
                    # The other found a device elsewhere and leaves this one.
                    given[other] &= ~low
                    serving[device].remove(other)
                    full &= ~low
                    give(demand, device)
                    return True
            candidates = masks[demand] & ~given[demand] & ~seen[0]
        return False

    def give(demand: int, device: int) -> None:
        nonlocal full
        given[demand] |= 1 << device
        servants = serving.setdefault(device, [])
        servants.append(demand)
        if len(servants) >= shares.get(device, 1):
            full |= 1 << device

    for demand, need in enumerate(needs):
        for _ in range(need):
            seen = [0]
            if not augment(demand, seen):
                pool = seen[0] | masks[demand]
                reached = {demand}
                for device, servants in serving.items():
                    if pool >> device & 1:
                        reached.update(servants)
                return _shortfall(sorted(reached), needs, masks, shares)
    return given


def _shortfall(
    demands: Sequence[int], needs: Sequence[int], masks: Sequence[int], shares: Mapping[int, int]
) -> Shortfall:
    """Describe the demands on the alternating tree of a failed augmentation."""
    pool = 0
    for demand in demands:
        pool |= masks[demand]
    places = sum(shares.get(device, 1) for device in range(pool.bit_length()) if pool >> device & 1)
    return Shortfall(tuple(demands), sum(needs[each] for each in demands), places)
