"""Waiting jobs in order, from which the next one that is small and short enough is found fast.

For each width there is a tree of walltimes: finding the next job costs the logarithm of the queue's
length for each width, however many jobs wait that do not fit.
"""

from collections.abc import Iterator, Mapping
from typing import Final

from dralab.simulation.workloads.jobs import Job

NEVER: Final = 1 << 62


class _Walltimes:
    """Jobs of one width in the order of their numbers, with the least walltime of each half."""

    def __init__(self) -> None:
        self.jobs: list[tuple[int, Job]] = []
        self._place: dict[str, int] = {}
        self._size = 1
        self._least = [NEVER, NEVER]

    def add(self, number: int, job: Job, walltime: int) -> None:
        if len(self.jobs) == self._size:
            self._rebuild()
        place = self._place[job.key] = len(self.jobs)
        self.jobs.append((number, job))
        self._set(place, walltime)

    def remove(self, job: Job) -> None:
        self._set(self._place.pop(job.key), NEVER)

    def first(self, after: int, walltime: int) -> tuple[int, Job] | None:
        """Return the first job behind a number with at most a walltime."""
        low, high = 0, len(self.jobs)
        while low < high:
            middle = (low + high) // 2
            if self.jobs[middle][0] > after:
                high = middle
            else:
                low = middle + 1
        place = self._next(low, walltime)
        return None if place is None else self.jobs[place]

    def _next(self, place: int, walltime: int) -> int | None:
        """Return the first place from one on whose walltime is small enough."""
        least = self._least
        if place >= len(self.jobs) or least[1] > walltime:
            return None
        node = place + self._size
        while least[node] > walltime:
            # Up while it is the right half, then over to the next right half.
            while node & 1:
                node >>= 1
            if node == 0:
                return None
            node += 1
        while node < self._size:
            node *= 2
            if least[node] > walltime:
                node += 1
        return node - self._size

    def _set(self, place: int, walltime: int) -> None:
        least, node = self._least, place + self._size
        least[node] = walltime
        node >>= 1
        while node:
            now = min(least[2 * node], least[2 * node + 1])
            if least[node] == now:
                return
            least[node] = now
            node >>= 1

    def _rebuild(self) -> None:
        """Forget jobs that have gone; where most are still there, make room for twice as many."""
        kept = [
            (number, job, self._least[place + self._size])
            for place, (number, job) in enumerate(self.jobs)
            if job.key in self._place and self._place[job.key] == place
        ]
        while 2 * len(kept) > self._size:
            self._size *= 2
        self.jobs = [(number, job) for number, job, _ in kept]
        self._place = {job.key: place for place, (_, job) in enumerate(self.jobs)}
        self._least = [NEVER] * (2 * self._size)
        for place, (_, _, walltime) in enumerate(kept):
            self._least[place + self._size] = walltime
        for node in range(self._size - 1, 0, -1):
            self._least[node] = min(self._least[2 * node], self._least[2 * node + 1])


class WaitingJobs:
    """Jobs that wait, in the order in which they came.

    >>> waiting = WaitingJobs()
    >>> jobs = [Job(id=str(i), submitted=0, width=w, profile="") for i, w in enumerate((4, 1, 2))]
    >>> for job, walltime in zip(jobs, (5, 90, 7)):
    ...     waiting.add(job, walltime)
    >>> waiting.next_one(-1, {1: 8, 2: 8})[1].id
    '2'
    """

    def __init__(self) -> None:
        self._number = 0
        self._widths: dict[int, _Walltimes] = {}

    def add(self, job: Job, walltime: int) -> None:
        """Add a job behind the others."""
        self._widths.setdefault(job.width, _Walltimes()).add(self._number, job, walltime)
        self._number += 1

    def remove(self, job: Job) -> None:
        """Remove a job."""
        self._widths[job.width].remove(job)

    def widths(self) -> Iterator[int]:
        """Yield the widths that jobs have, or had."""
        yield from self._widths

    def next_one(self, after: int, longest: Mapping[int, int]) -> tuple[int, Job] | None:
        """Return the number of the next job behind one, and the job; None: there is none.

        `longest` are the walltimes that are allowed, by width; other widths are not.
        """
        found = (self._widths[width].first(after, most) for width, most in longest.items())
        return min(filter(None, found), key=lambda each: each[0], default=None)
