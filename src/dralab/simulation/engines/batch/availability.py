"""Free machines over time, for schedulers that plan ahead."""

from bisect import bisect_left
from collections.abc import Iterable
from dataclasses import dataclass

from dralab.simulation.engines.batch.waiting_jobs import NEVER
from dralab.simulation.host_sets import all_machines, lowest


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
                self._free[index] = self._with(self._free[index], placement.machines)
            self._merge(first, last)

    def reserve(self, placement: Reservation) -> None:
        """Hold given machines over a given time."""
        self._hold(placement)

    def _hold(self, placement: Reservation) -> None:
        first, last = self._split(placement.start), self._split(placement.end)
        for index in range(first, last):
            self._free[index] = self._without(self._free[index], placement.machines)

    def machines_of(self, placement: Reservation, usable: int) -> int:  # noqa: ARG002 - as counted
        """Return the machines of a reservation that begins now; `usable` are free now."""
        return placement.machines

    @staticmethod
    def _with(free: int, machines: int) -> int:
        return free | machines

    @staticmethod
    def _without(free: int, machines: int) -> int:
        return free & ~machines

    def startable(self, widths: Iterable[int]) -> dict[int, int]:
        """Return how long jobs of each width can run that start now; none where they cannot."""
        begins, free = self._begins, self._free
        left = sorted(widths)
        found: dict[int, int] = {}
        common = free[0]
        for index in range(len(begins)):
            common &= free[index]
            count = common.bit_count()
            while left and left[-1] > count:
                width = left.pop()
                if index:
                    found[width] = begins[index] - begins[0]
            if not left:
                return found
        return found | dict.fromkeys(left, NEVER - 1)

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


class CountedAvailability(Availability):
    """How many machines are free over time: the k lowest bits stand for k of them.

    >>> free = CountedAvailability(0b1111)
    >>> [free.reserve_earliest(width, 10).start for width in (1, 3, 2)]
    [0, 0, 10]
    """

    def __init__(self, machines: int, now: int = 0) -> None:
        super().__init__(all_machines(machines.bit_count()), now)

    def machines_of(self, placement: Reservation, usable: int) -> int:
        """Return the lowest of the machines that are free now, as many as were reserved."""
        return lowest(usable, placement.machines.bit_count())

    @staticmethod
    def _with(free: int, machines: int) -> int:
        return all_machines(free.bit_count() + machines.bit_count())

    @staticmethod
    def _without(free: int, machines: int) -> int:
        return free >> machines.bit_count()
