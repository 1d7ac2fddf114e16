"""The checksums of a store: of each row's head, of its value, and of each chunk.

The head is all that says which object a row is a state of. With a sound head and a broken value it
is known which object is lost; with a broken head it is not. A chunk is a run of revisions: how many
rows it has and the sum of their heads, so that rows that are missing, or back again, are noticed.

CRC-32 finds every burst of up to 32 bits, and lets one of four billion other changes pass. It costs
a microsecond a row; a keyed hash would cost three times as much and not protect more, because
a program that can write the file can also write the checksums.
"""

from collections.abc import Mapping
from typing import Final
from zlib import crc32

CHUNK: Final = 256  # revisions
Totals = tuple[int, int]  # of a chunk: how many rows, the sum of their heads
# Of what is not recorded: how often there has been a recording, how many rows, their sum.
Tail = tuple[int, int, int]


def head_sum(  # noqa: PLR0917 - a row's columns, in their order
    revision: int, resource: str, namespace: str, name: str, created: int, deleted: int
) -> int:
    """Return the sum of what identifies a row."""
    text = f"{revision}\0{resource}\0{namespace}\0{name}\0{created}\0{deleted}"
    return crc32(text.encode("utf-8", "surrogatepass"))


def facts_sum(facts: Mapping[str, int], floors: Mapping[str, int]) -> int:
    """Return the sum of the two small tables."""
    return crc32(repr((sorted(facts.items()), sorted(floors.items()))).encode())


class Chunks:
    """The totals of every chunk that has rows, and which of them have been recorded.

    A chunk is recorded in the database once the next has begun, and after that whenever a row of it
    goes: another table in each transaction would cost a tenth of it. The totals of what is younger,
    the tail, stand in the mark. Changes count once they are settled.
    """

    def __init__(self) -> None:
        self.known: dict[int, Totals] = {}
        self.recorded = 0  # the chunks before this one
        self._changed: dict[int, Totals] = {}
        self.until = 0
        self.times = 0  # that there has been a recording

    def add(self, revision: int, head: int) -> None:
        """Count a new row."""
        self._count(revision, head, 1)

    def remove(self, revision: int, head: int) -> None:
        """Count a row that was deleted."""
        self._count(revision, head, -1)

    def _count(self, revision: int, head: int, step: int) -> None:
        chunk = revision // CHUNK
        rows, total = self._changed.get(chunk) or self.known.get(chunk, (0, 0))
        self._changed[chunk] = (rows + step, total ^ head)

    def is_due(self, first: int, last: int) -> bool:
        """Return whether a transaction with these revisions must record chunks."""
        return first // CHUNK < self.recorded or last // CHUNK > self.recorded

    def to_record(self, revision: int) -> list[tuple[int, int, int]]:
        """Return what a transaction that ends at a revision must record: chunks, rows, sums."""
        self.until = max(self.recorded, revision // CHUNK)
        new = {
            chunk: self.known[chunk]
            for chunk in range(self.recorded, self.until)
            if chunk in self.known
        }
        return [
            (chunk, *totals)
            for chunk, totals in {**new, **self._changed}.items()
            if chunk < self.until
        ]

    def settle(self) -> None:
        """Keep the changes: they have been written."""
        for chunk, totals in self._changed.items():
            if totals[0]:
                self.known[chunk] = totals
            else:
                self.known.pop(chunk, None)
        self._changed = {}
        self.recorded = max(self.recorded, self.until)

    def discard(self) -> None:
        """Drop the changes: they could not be written."""
        self._changed = {}
        self.until = 0

    def tail(self) -> Tail:
        """Return the totals of what is not recorded."""
        rows = total = 0
        for chunk, totals in reversed(self.known.items()):
            if chunk < self.recorded:
                break
            rows, total = rows + totals[0], total ^ totals[1]
        return self.times, rows, total
