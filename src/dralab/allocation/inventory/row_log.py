"""A log of changed rows, from which whoever keeps something by row catches up."""

from typing import Final

MOST_TOUCHED: Final = 1 << 16


class RowLog:
    """Rows that changed, in order: the last of them, at least half of MOST_TOUCHED."""

    __slots__ = ("_first", "_rows")

    def __init__(self) -> None:
        self._first = 0
        self._rows: list[int] = []

    @property
    def position(self) -> int:
        """How many changes there were."""
        return self._first + len(self._rows)

    def add_row(self, row: int) -> None:
        """Note a change."""
        self._rows.append(row)
        if len(self._rows) >= MOST_TOUCHED:
            half = MOST_TOUCHED // 2
            del self._rows[:half]
            self._first += half

    def add_all(self) -> None:
        """Note that any row may have changed."""
        self._first = self.position + 1
        self._rows.clear()

    def since(self, position: int) -> list[int] | None:
        """Return the rows that changed since a position; None where that is too long ago."""
        return None if position < self._first else self._rows[position - self._first :]
