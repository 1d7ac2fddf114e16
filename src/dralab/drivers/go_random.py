"""The UUIDs that Go's `math/rand` gives for a seed text, as the fake drivers name their devices.

The generator is an additive lagged Fibonacci one, 607/273, over 64-bit words.

>>> uuids("n1", 1)
['4cc1af25-7fa0-12f5-b59d-d496399f2f5a']
"""

import struct
from collections.abc import Iterator
from functools import cache
from importlib.resources import files
from typing import Final

LENGTH: Final = 607
TAP: Final = 273
FEED: Final = LENGTH - TAP
WORD: Final = (1 << 64) - 1
LARGEST: Final = (1 << 31) - 1
INSTEAD_OF_ZERO: Final = 89_482_311


def uuids(seed: str, count: int) -> list[str]:
    """Return the first UUIDs of a seed text; a smaller count gives a prefix of a larger one."""
    source = _bytes(text_hash(seed))
    found = []
    for _ in range(count):
        text = bytes(next(source) for _ in range(16)).hex()
        found.append(f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}")
    return found


def text_hash(text: str) -> int:
    """Return the seed of a text: 31 * h + code point, in signed 64 bits."""
    value = 0
    for character in text:
        value = (31 * value + ord(character)) & WORD
    return value - (1 << 64) if value >> 63 else value


def draws(seed: int) -> Iterator[int]:
    """Yield the 64-bit draws of a seed."""
    x = seed % LARGEST or INSTEAD_OF_ZERO
    for _ in range(20):
        x = _step(x)
    state = []
    for word in table():
        x = _step(x)
        mixed = x << 40
        x = _step(x)
        mixed ^= x << 20
        x = _step(x)
        state.append((mixed ^ x ^ word) & WORD)
    tap, feed = 0, FEED
    while True:
        tap, feed = (tap - 1) % LENGTH, (feed - 1) % LENGTH
        state[feed] = (state[feed] + state[tap]) & WORD
        yield state[feed]


@cache
def table() -> tuple[int, ...]:
    """Return the 607 words that a seed is mixed with (`tools/generate_go_random.py`)."""
    data = files("dralab.drivers").joinpath("data/go_random.bin").read_bytes()
    return struct.unpack(f"<{LENGTH}Q", data)


def _bytes(seed: int) -> Iterator[int]:
    for draw in draws(seed):
        yield from (draw & (WORD >> 1)).to_bytes(8, "little")[:7]


def _step(x: int) -> int:
    return 48_271 * x % LARGEST
