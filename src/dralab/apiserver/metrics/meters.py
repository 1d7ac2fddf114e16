"""Counters and histograms with labels, for any thread."""

from bisect import bisect_left, bisect_right
from collections import deque
from collections.abc import Hashable, Iterable, Iterator, Sequence
from contextlib import suppress
from itertools import repeat, starmap
from threading import Lock
from typing import Final, TypeVar

from dralab.kernel.clock import SECOND, stopwatch
from dralab.values.exposition import histogram_lines, labels_text

Labels = tuple[str, ...]

now: Final = stopwatch
FOLDED: Final = 512  # notes that are added at a time
Noted = TypeVar("Noted")
Place = TypeVar("Place", bound=Hashable)


class Counters:
    """Numbers that only grow, one for each combination of labels.

    >>> found = Counters("eggs_total", "Eggs laid.", ("hen",))
    >>> found.add(("Berta",), 2)
    >>> list(found.lines())[-1]
    'eggs_total{hen="Berta"} 2'
    """

    def __init__(self, name: str, about: str, labels: Labels = ()) -> None:
        self.name, self.about, self.labels = name, about, labels
        self._found: dict[Labels, int] = {}
        self._lock = Lock()

    def add(self, labels: Labels, by: int = 1) -> None:
        """Count."""
        with self._lock:
            self._found[labels] = self._found.get(labels, 0) + by

    def lines(self, name: str = "", about: str = "") -> Iterator[str]:
        """Yield the counters in Prometheus' text format, under another name where one is given."""
        with self._lock:
            found = sorted(self._found.items())
        about = about or self.about
        return values(name or self.name, "counter", about, self.labels, found)


class Histograms:
    """Durations or sizes, one histogram for each combination of labels; `bounds` are inclusive."""

    def __init__(self, name: str, about: str, labels: Labels, bounds: Sequence[float]) -> None:
        self.name, self.about, self.labels, self.bounds = name, about, labels, tuple(bounds)
        self._found: dict[Labels, tuple[list[int], list[float]]] = {}
        self._lock = Lock()

    def add(self, labels: Labels, value: float, times: int = 1) -> None:
        """Record a value, in seconds or bytes, so many times."""
        with self._lock:
            self._add(labels, value, times)

    def add_all(self, labels: Labels, taken: Sequence[int], *, unit: int = SECOND) -> None:
        """Record several durations in nanoseconds, or other values by their `unit`."""
        ordered, done = sorted(taken), 0
        with self._lock:
            counts, total = self._of(labels)
            for place, bound in enumerate(self.bounds):
                if done == len(ordered):
                    break
                before, done = done, bisect_right(ordered, bound * unit, done)
                counts[place] += done - before
            counts[-1] += len(ordered) - done
            total[0] += sum(taken) / unit

    def _of(self, labels: Labels) -> tuple[list[int], list[float]]:
        found = self._found.get(labels)
        if found is None:
            found = self._found[labels] = ([0] * (len(self.bounds) + 1), [0.0])
        return found

    def _add(self, labels: Labels, value: float, times: int) -> None:
        counts, total = self._of(labels)
        counts[bisect_left(self.bounds, value)] += times
        total[0] += value * times

    def since(self, labels: Labels, began: int) -> int:
        """Record how long it took since `began`; return the time."""
        ended = now()
        self.add(labels, (ended - began) / SECOND)
        return ended

    def lines(self) -> Iterator[str]:
        """Yield the histograms in Prometheus' text format."""
        with self._lock:
            found = sorted((labels, list(own[0]), own[1][0]) for labels, own in self._found.items())
        yield from heading(self.name, "histogram", self.about)
        for labels, counts, total in found:
            text = labels_text(zip(self.labels, labels, strict=True))
            yield from histogram_lines(self.name, text, self.bounds, counts, total)

    def counts(self, name: str, about: str) -> Iterator[str]:
        """Yield how many values there were, as counters of another name."""
        with self._lock:
            found = sorted((labels, sum(own[0])) for labels, own in self._found.items())
        return values(name, "counter", about, self.labels, found)


def values(
    name: str,
    sort: str,
    about: str,
    labels: Sequence[str],
    found: Iterable[tuple[Labels, float]],
) -> Iterator[str]:
    """Yield a family of plain values: of a `sort` counter or gauge."""
    yield from heading(name, sort, about)
    for own, value in found:
        text = labels_text(zip(labels, own, strict=True))
        yield f"{name}{{{text}}} {value}" if text else f"{name} {value}"


def heading(name: str, sort: str, about: str) -> tuple[str, str]:
    """Return the two lines before a family."""
    return f"# HELP {name} {about}", f"# TYPE {name} {sort}"


def taken_from(noted: deque[Noted]) -> list[Noted]:
    """Return the notes, each once, while other threads add and take notes.

    >>> taken_from(deque("ab"))
    ['a', 'b']
    """
    found: list[Noted] = []
    with suppress(IndexError):  # which ends an iteration that has no end
        found.extend(starmap(noted.popleft, repeat(())))
    return found


def by_place(noted: Iterable[tuple[Place, Noted]]) -> dict[Place, list[Noted]]:
    """Return what was noted of each place."""
    found: dict[Place, list[Noted]] = {}
    for place, note in noted:
        found.setdefault(place, []).append(note)
    return found
