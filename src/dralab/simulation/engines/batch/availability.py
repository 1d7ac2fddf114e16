"""Which machines are free when: slices of time, each with the set of machines free in it.

The first slice begins now, the last has no end. A job is placed at the first slice where enough
machines are free over its whole walltime, on the lowest-numbered of them: that is how batsched's
EASY and conservative back-filling place, so results can be equal machine by machine.
"""

from bisect import bisect_left
from dataclasses import dataclass

from dralab.simulation.host_sets import lowest


@dataclass(frozen=True, slots=True)
class Reservation:
    """Machines held from `start` until before `end`."""

    start: int
    end: int
    machines: int


class Availability:
    """Free machines over time.

    >>> free = Availability(0b1111)
    >>> first = free.reserve_earliest(3, 10)
    >>> second = free.reserve_earliest(2, 5)
    >>> first.start, second.start, bin(second.machines)
    (0, 10, '0b11')
    """

    def __init__(self, machines: int, now: int = 0) -> None:
        self._begins = [now]
        self._free = [machines]

    @property
    def now(self) -> int:
        """The begin of the first slice."""
        return self._begins[0]

    def cut(self, now: int) -> None:
        """Forget what was before `now`."""
        first = bisect_left(self._begins, now)
        if first == len(self._begins) or self._begins[first] != now:
            first -= 1
        if first > 0:
            del self._begins[:first], self._free[:first]
        self._begins[0] = max(now, self._begins[0])

    def reserve_earliest(self, width: int, walltime: int) -> Reservation:
        """Place `width` machines for `walltime` as early as possible, and hold them.

        `width` must not be more than all machines: then there is always a place.
        """
        begins, free = self._begins, self._free
        count = len(begins)
        index = 0
        while True:
            start = begins[index]
            common = free[index]
            if common.bit_count() >= width:
                end = start + walltime
                last = index + 1
                while last < count and begins[last] < end:
                    common &= free[last]
                    if common.bit_count() < width:
                        break
                    last += 1
                else:
                    placement = Reservation(start, end, lowest(common, width))
                    self._hold(placement)
                    return placement
            index += 1

    def cancel(self, placement: Reservation, now: int) -> None:
        """Give back what a placement still holds from `now` on."""
        start = max(placement.start, now, self._begins[0])
        if start < placement.end:
            first, last = self._split(start), self._split(placement.end)
            for index in range(first, last):
                self._free[index] |= placement.machines
            self._merge(first, last)

    def reserve(self, placement: Reservation) -> None:
        """Hold given machines over a given time."""
        self._hold(placement)

    def _hold(self, placement: Reservation) -> None:
        first, last = self._split(placement.start), self._split(placement.end)
        for index in range(first, last):
            self._free[index] &= ~placement.machines

    def _split(self, when: int) -> int:
        """Return the index of the slice that begins at `when`, made where there is none."""
        index = bisect_left(self._begins, when)
        if index == len(self._begins) or self._begins[index] != when:
            self._begins.insert(index, when)
            self._free.insert(index, self._free[index - 1])
        return index

    def _merge(self, first: int, last: int) -> None:
        for index in range(min(last, len(self._begins) - 1), max(first, 1) - 1, -1):
            if self._free[index] == self._free[index - 1]:
                del self._begins[index], self._free[index]
