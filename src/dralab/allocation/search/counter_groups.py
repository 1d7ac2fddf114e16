"""What a counter group can serve: the exact answer for devices that share counters.

A counter group is a GPU with its partitions, or a device that is shared by capacity. For a few
kinds of demand, dynamic programming over its devices finds the vectors that it can serve. Only
maximal vectors are kept, because a group that can serve more can serve less. Equal groups in equal
states have equal tables, whatever their names.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from dralab.allocation.search.node_devices import Consumption, Remaining
from dralab.values.quantity import Number
from dralab.values.records import dataclass

Vector = tuple[int, ...]
Spend = Callable[[int], None]


class GroupMember(NamedTuple):
    """One device of a counter group as demands see it.

    `consumption` is None if its counters are paid for already or where it has none. `serves` are
    the demands that may have it; `amounts` what each of them takes, for a shared device alone, and
    `room` what it has.
    """

    consumption: Consumption | None
    serves: tuple[int, ...]
    amounts: tuple[tuple[Number, ...], ...] = ()
    room: tuple[Number, ...] | None = None


@dataclass(frozen=True, slots=True)
class CounterGroupKey:
    """Everything on which the table of a counter group depends."""

    members: tuple[GroupMember, ...]
    remaining: Remaining | None
    caps: Vector


def served(key: CounterGroupKey, spend: Spend, limit: int) -> tuple[Vector, ...] | None:
    """Return the maximal vectors that a counter group can serve; None if that takes too long.

    `limit` bounds the number of states that are kept at any time.
    """
    caps = key.caps
    reached: dict[Vector, set[Remaining | None]] = {(0,) * len(caps): {key.remaining}}
    for member in key.members:
        news: list[tuple[Vector, Remaining | None]] = []
        for vector, remainders in reached.items():
            servings = _servings(member, vector, caps)
            if not servings:
                continue
            for remaining in remainders:
                spend(1)
                rest = remaining
                if member.consumption is not None and remaining is not None:
                    rest = remaining.without(member.consumption)
                    if rest is None:
                        continue
                news += [(serving, rest) for serving in servings]
        for vector, remaining in news:
            reached.setdefault(vector, set()).add(remaining)
        if sum(map(len, reached.values())) > limit:
            return None
    return maximal(reached)


def _servings(member: GroupMember, vector: Vector, caps: Vector) -> list[Vector]:
    """Return the vectors once one more device serves what it can."""
    if member.room is None:
        return [
            (*vector[:kind], vector[kind] + 1, *vector[kind + 1 :])
            for kind in member.serves
            if vector[kind] < caps[kind]
        ]
    found = [(vector, member.room)]
    for kind, amounts in zip(member.serves, member.amounts, strict=True):
        if vector[kind] >= caps[kind]:
            continue
        more = []
        for each, room in found:
            rest = tuple(have - want for have, want in zip(room, amounts, strict=True))
            if all(have >= 0 for have in rest):
                more.append(((*each[:kind], each[kind] + 1, *each[kind + 1 :]), rest))
        found += more
    return [each for each, _ in found[1:]]


def maximal(vectors: Iterable[Vector], most: int = 1 << 30) -> tuple[Vector, ...]:
    """Return the vectors that no other one covers; no more than `most` + 1 of them.

    >>> maximal([(1, 0), (0, 2), (1, 1), (0, 1)])
    ((0, 2), (1, 1))
    """
    kept: list[Vector] = []
    for vector in sorted(set(vectors), key=lambda each: (-sum(each), each)):
        if not any(all(a >= b for a, b in zip(other, vector, strict=True)) for other in kept):
            kept.append(vector)
            if len(kept) > most:
                break
    return tuple(kept)


def folded(
    tables: Sequence[tuple[Vector, ...]], caps: Vector, spend: Spend, limit: int
) -> tuple[Vector, ...] | None:
    """Return the maximal vectors that several counter groups serve together, clipped to `caps`.

    None if more than `limit` vectors would have to be kept.
    """
    reached: tuple[Vector, ...] = ((0,) * len(caps),)
    for table in tables:
        if reached == (caps,):
            return reached
        sums = set()
        for mine in reached:
            for theirs in table:
                sums.add(
                    tuple(min(a + b, cap) for a, b, cap in zip(mine, theirs, caps, strict=True))
                )
        reached = maximal(sums, limit)
        # Each sum was compared with the ones that were kept.
        spend(len(sums) * (1 + len(reached) // 16))
        if len(reached) > limit:
            return None
    return reached
