"""What policies see: a node before and after a choice, and what it is still good for."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from dralab.allocation.search.alternatives import Term
from dralab.allocation.search.eligibility import Eligibility, SearchError
from dralab.allocation.search.node_devices import Board, Draw, Left, State, bits


@dataclass(frozen=True, slots=True, eq=False)
class Wanted:
    """A kind of device that is likely to be asked for, and what one is worth."""

    term: Term
    worth: float


class Worth:
    """How much of what is wanted a board can still serve, unit by unit.

    The worth of a unit is the most that could still be had from it, in the best order: for a GPU
    with its partitions, memory slices still usable. Equal units in equal states are counted once.
    """

    def __init__(self, board: Board, eligibility: Eligibility, wanted: Sequence[Wanted]) -> None:
        self.board = board
        self.wanted = wanted
        self.masks = [self._mask(eligibility, each.term) for each in wanted]
        self._known: dict[object, float] = {}
        best: dict[int, float] = {}
        for each, mask in zip(wanted, self.masks, strict=True):
            for number in bits(mask & ~board.drawing):
                best[number] = max(best.get(number, 0.0), each.worth)
        self._plain = best
        # Equal units are told by one small number: long keys would be hashed very often.
        numbers: dict[object, int] = {}
        self._likeness = [
            numbers.setdefault(self._like(unit), len(numbers)) for unit in range(len(board.units))
        ]
        self._lows = [max((mask & -mask).bit_length() - 1, 0) for mask in board.members]
        self._full = [
            self.unit(unit, board.members[unit], each.total)
            for unit, each in enumerate(board.units)
        ]

    def _mask(self, eligibility: Eligibility, term: Term) -> int:
        mask = 0
        for number in range(len(self.board.offers)):
            try:
                if eligibility.accepts(term, number):
                    mask |= 1 << number
            except SearchError:
                continue
        return mask

    def _like(self, unit: int) -> object:
        members = self.board.members[unit]
        low = (members & -members).bit_length() - 1
        found: list[object] = [members >> max(low, 0)]
        for number in bits(members):
            draw = self.board.draws[number]
            serves = tuple(mask >> number & 1 for mask in self.masks)
            found.append((draw and (draw.amounts, draw.groups), serves))
        return tuple(found)

    def usable(self, free: int, state: State) -> float:
        """Return the worth of all units together, of which `free` devices can be had."""
        total = sum(worth for number, worth in self._plain.items() if free >> number & 1)
        for unit, left in enumerate(state.left):
            total += self.unit(unit, free & self.board.members[unit], left)
        return total

    def squares(self, free: int, state: State) -> float:
        """Return the sum of the squares of what units have left, in units of worth.

        Whoever takes from an emptier unit loses less of it: a convex term that packs.
        """
        total = sum(worth * worth for number, worth in self._plain.items() if free >> number & 1)
        for unit, left in enumerate(state.left):
            if not free & self.board.members[unit]:
                continue
            spare = self._full[unit] * _share(left, self.board.units[unit].total)
            total += spare * spare
        return total

    def unit(self, unit: int, free: int, left: Left) -> float:
        """Return the most that could still be had from one unit."""
        if not free:
            return 0.0
        key = (self._likeness[unit], free >> self._lows[unit], left)
        found = self._known.get(key)
        if found is None:
            found = self._known[key] = self._best(unit, free, left)
        return found

    def _best(self, unit: int, free: int, left: Left) -> float:
        best = 0.0
        tried: set[tuple[float, Draw]] = set()
        for each, mask in zip(self.wanted, self.masks, strict=True):
            for number in bits(free & mask):
                draw = self.board.draws[number]
                if draw is None or (each.worth, draw) in tried:
                    continue
                tried.add((each.worth, draw))
                rest = left.without(draw)
                if rest is None:
                    continue
                following = free & ~(1 << number) & self.board.fitting_in(unit, rest)
                best = max(best, each.worth + self.unit(unit, following, rest))
        return best


def _share(left: Left, total: Left) -> float:
    """Return which part of its counters a unit has left, on average."""
    parts = [
        max(float(have), 0.0) / float(all_)
        for have, all_ in zip(left.counters, total.counters, strict=True)
        if all_
    ]
    return sum(parts) / len(parts) if parts else 0.0


class Look:
    """A node in one state, as policies see it."""

    def __init__(self, board: Board, state: State, worth: Worth | None = None) -> None:
        self.board = board
        self.state = state
        self.worth = worth

    @cached_property
    def mask(self) -> int:
        """The devices that can still be had, as a bit set."""
        board, state = self.board, self.state
        everything = (1 << len(board.offers)) - 1
        return everything & ~state.used & board.fitting(state)

    @cached_property
    def free(self) -> int:
        """How many devices can still be had."""
        return self.mask.bit_count()

    @property
    def devices(self) -> int:
        """How many devices the node sees."""
        return len(self.board.offers)

    @cached_property
    def usable(self) -> float:
        """How much of what the policy names as wanted can still be had; 0 without that."""
        return 0.0 if self.worth is None else self.worth.usable(self.mask, self.state)

    @cached_property
    def squares(self) -> float:
        """The sum over units of the square of what they have left, in units of worth."""
        return 0.0 if self.worth is None else self.worth.squares(self.mask, self.state)
