"""Sets of machines as bits of an integer, and their text: intervals separated by blanks.

Bit i stands for machine i. Intersection, union and counting are one machine-word loop each.
"""

import re
from collections.abc import Iterator
from typing import Final

INTERVAL: Final = re.compile(r"(\d{1,9})(?:-(\d{1,9}))?")
LARGEST: Final = 1 << 22


def all_machines(count: int) -> int:
    """Return the set of machines 0 to count - 1."""
    return (1 << count) - 1


def members(mask: int) -> Iterator[int]:
    """Yield the machines of a set, lowest first."""
    while mask:
        lowest_bit = mask & -mask
        yield lowest_bit.bit_length() - 1
        mask ^= lowest_bit


def lowest(mask: int, count: int) -> int:
    """Return the `count` lowest-numbered machines of a set that has at least as many.

    >>> bin(lowest(0b1101100, 3))
    '0b101100'
    """
    if count == 0:
        return 0
    low, high = 0, mask.bit_length()
    while low < high:
        middle = (low + high) >> 1
        if (mask & ((1 << middle) - 1)).bit_count() >= count:
            high = middle
        else:
            low = middle + 1
    return mask & ((1 << low) - 1)


def parse(text: str) -> int:
    """Return the set that a text of intervals names, in any order; ValueError if it is invalid.

    >>> sorted(members(parse("10 9 16 13-14")))
    [9, 10, 13, 14, 16]
    """
    mask = 0
    for part in text.replace(",", " ").split():
        found = INTERVAL.fullmatch(part)
        if found is None:
            raise ValueError(f"{part!r} is not an interval: write 3 or 3-7")
        first = int(found[1])
        last = first if found[2] is None else int(found[2])
        if last < first:
            raise ValueError(f"{part!r} ends before it begins")
        if last >= LARGEST:
            raise ValueError(f"{part!r}: machines are numbered below {LARGEST}")
        mask |= ((1 << (last - first + 1)) - 1) << first
    return mask


def render(mask: int) -> str:
    """Return the canonical text of a set: ascending, disjoint, maximal intervals.

    >>> render(parse("1 5 2 3 7"))
    '1-3 5 7'
    """
    parts, offset = [], 0
    while mask:
        skip = (mask & -mask).bit_length() - 1
        mask >>= skip
        offset += skip
        length = (~mask & (mask + 1)).bit_length() - 1
        parts.append(str(offset) if length == 1 else f"{offset}-{offset + length - 1}")
        mask >>= length
        offset += length
    return " ".join(parts)
