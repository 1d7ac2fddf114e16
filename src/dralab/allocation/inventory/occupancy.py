"""What is in use of a pool, and what that becomes as devices are taken and given back.

Pools of one shape of which the same is in use share one `Occupancy`, which remembers those that
follow it: to take devices that were taken before is to look it up.
"""

from collections.abc import Mapping
from functools import lru_cache
from typing import Any, Final

from dralab.allocation.inventory.pool_states import Amounts, PoolShape, PoolState
from dralab.allocation.search.node_devices import bits, mask_of

# Occupancies that one shape remembers, and bits of them; beyond it they are forgotten, which costs
# time alone.
MOST_OCCUPANCIES: Final = 200_000
MOST_BITS: Final = 1 << 28
# What may follow one occupancy likewise.
MOST_FOLLOWING: Final = 1_024

Sharers = tuple[tuple[int, int], ...]
"""The claims of each device that several share, by the number of the device."""


class Taking:
    """Devices of a pool that a claim takes, by number: whole, or amounts of their capacities.

    `whole` and `parts` are the bit sets of either. Equal ones are one object (`taking_of`).
    """

    __slots__ = ("devices", "parts", "whole")

    def __init__(self, devices: tuple[tuple[int, Amounts], ...]) -> None:
        self.devices = devices
        self.whole = mask_of([number for number, amounts in devices if amounts is None])
        self.parts = mask_of([number for number, amounts in devices if amounts is not None])


# Forgetting the oldest costs time alone.
taking_of = lru_cache(maxsize=1 << 16)(Taking)


class Occupancy:
    """What is in use of pools of one shape.

    `held` and `whole` are bit sets of devices: taken at all, taken by one claim alone. `sharers`
    counts the claims of a device that several share. `state` is what is left.
    """

    __slots__ = ("_after", "_before", "held", "sharers", "state", "whole")

    def __init__(self, held: int, whole: int, sharers: Sharers, state: PoolState) -> None:
        self.held = held
        self.whole = whole
        self.sharers = sharers
        self.state = state
        # Both are made when first used: many an occupancy comes once and is not followed.
        self._after: dict[Taking, Occupancy] | None = None
        self._before: dict[Taking, Occupancy] | None = None

    def after(self, taking: Taking) -> "Occupancy":
        """Return what is in use once devices are taken, whether they fit or not."""
        following = self._after
        if following is None:
            following = self._after = {}
        elif (found := following.get(taking)) is not None:
            return found
        sharers = self.sharers
        if taking.parts:
            counts = dict(sharers)
            for number in bits(taking.parts):
                counts[number] = counts.get(number, 0) + 1
            sharers = _in_order(counts)
        held, whole = self.held | taking.whole | taking.parts, self.whole | taking.whole
        found = _interned(held, whole, sharers, self._state_after(taking, held, whole))
        _remember(following, taking, found)
        return found

    def _state_after(self, taking: Taking, held: int, whole: int) -> PoolState:
        before = self.state
        if (taking.whole | taking.parts) & ~before.free:
            return before.shape.holding(before, taking.devices, held, whole)
        # What follows when free devices are taken does not depend on what else is in use.
        following = before.moves
        if following is None:
            following = before.moves = {}
        elif (found := following.get(taking)) is not None:
            return found
        found = before.shape.holding(before, taking.devices, held, whole)
        _remember(following, taking, found)
        return found

    def before(self, taking: Taking) -> "Occupancy":
        """Return what is in use once devices are given back."""
        following = self._before
        if following is None:
            following = self._before = {}
        elif (found := following.get(taking)) is not None:
            return found
        sharers, last = self.sharers, taking.whole
        if taking.parts:
            counts = dict(sharers)
            for number in bits(taking.parts):
                rest = counts.pop(number, 0) - 1
                if rest > 0:
                    counts[number] = rest
                else:
                    last |= 1 << number
            sharers = _in_order(counts)
        held, whole = self.held & ~last, self.whole & ~last
        state = self.state.shape.released(self.state, taking.devices, held, whole)
        found = _interned(held, whole, sharers, state)
        _remember(following, taking, found)
        return found

    def forget(self) -> None:
        """Forget what follows."""
        self._after = self._before = None

    def of_shape(self, shape: PoolShape) -> "Occupancy":
        """Return the same for a shape that tells more apart."""
        return _interned(self.held, self.whole, self.sharers, shape.interned(self.state.state))


def _remember(following: dict[Any, Any], taking: Taking, found: Occupancy | PoolState) -> None:
    if len(following) >= MOST_FOLLOWING:
        following.clear()
    following[taking] = found


def nothing_in_use(shape: PoolShape) -> Occupancy:
    """Return what is in use of a pool in the beginning."""
    return _interned(0, 0, (), shape.empty)


def occupancy_of(shape: PoolShape, taking: Taking, sharers: Mapping[int, int]) -> Occupancy:
    """Return what is in use of a pool; of shared devices `taking` has what all `sharers` take."""
    held = taking.whole | taking.parts
    state = shape.holding(shape.empty, taking.devices, held, taking.whole)
    return _interned(held, taking.whole, _in_order(sharers), state)


def _in_order(sharers: Mapping[int, int]) -> Sharers:
    return tuple(sorted(sharers.items()))


def _interned(held: int, whole: int, sharers: Sharers, state: PoolState) -> Occupancy:
    """Return the one object for what is in use."""
    known: dict[object, Occupancy] = state.shape.occupancies
    key = held, whole, sharers, state
    found = known.get(key)
    if found is None:
        if len(known) >= min(MOST_OCCUPANCIES, MOST_BITS // max(1, state.shape.size)):
            for each in known.values():
                each.forget()  # they hold on to those that follow them
            known.clear()
        found = known[key] = Occupancy(held, whole, sharers, state)
    return found
