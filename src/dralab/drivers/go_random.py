"""The UUIDs that Go's `math/rand` gives for a seed text, as the fake drivers name their devices.

The generator is an additive lagged Fibonacci one, 607/273, over 64-bit words. Its table of 607
words is the state of the same generator after 7.8 * 10**12 draws; it is computed here by jumping
that far ahead: the draw n+N is a linear form of the draws n..n+606, whose coefficients are those
of X**N modulo X**607 - X**334 - 1.

>>> uuids("n1", 1)
['4cc1af25-7fa0-12f5-b59d-d496399f2f5a']
"""

from collections.abc import Iterator
from functools import cache
from typing import Final

LENGTH: Final = 607
TAP: Final = 273
FEED: Final = LENGTH - TAP
AHEAD: Final = 7_800_000_000_000
WORD: Final = (1 << 64) - 1
LARGEST: Final = (1 << 31) - 1
INSTEAD_OF_ZERO: Final = 89_482_311
# 607 products of two words need 138 bits.
PACK: Final = 18


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
    """Return the 607 words that a seed is mixed with."""
    x = 1
    for _ in range(20):
        x = _step(x)
    start = []
    for _ in range(LENGTH):
        word = 0
        for shift in (20, 10, 0):
            x = _step(x)
            word ^= x << shift
        start.append(word)
    # `history[i]` is draw number i - 606.
    history = [start[(FEED - n) % LENGTH] for n in range(1 - LENGTH, 1)]
    while len(history) < 2 * LENGTH:
        history.append((history[-LENGTH] + history[-TAP]) & WORD)
    power = _power(AHEAD)
    product = _unpack(_pack(power[::-1]) * _pack(history), 3 * LENGTH)
    jumped = product[LENGTH - 1 : 2 * LENGTH - 1]
    found = [0] * LENGTH
    for index, value in enumerate(jumped):
        found[(FEED - (AHEAD - LENGTH + 1 + index)) % LENGTH] = value
    return tuple(found)


def _bytes(seed: int) -> Iterator[int]:
    for draw in draws(seed):
        yield from (draw & (WORD >> 1)).to_bytes(8, "little")[:7]


def _step(x: int) -> int:
    return 48_271 * x % LARGEST


def _power(exponent: int) -> list[int]:
    """Return the coefficients of X**exponent modulo the generator's polynomial."""
    result = [1]
    for bit in f"{exponent:b}":
        packed = _pack(result)
        result = _unpack(packed * packed, 2 * LENGTH)
        if bit == "1":
            result.insert(0, 0)
        for degree in range(len(result) - 1, LENGTH - 1, -1):
            value = result[degree]
            result[degree - LENGTH] = (result[degree - LENGTH] + value) & WORD
            result[degree - TAP] = (result[degree - TAP] + value) & WORD
        del result[LENGTH:]
    return result


def _pack(coefficients: list[int]) -> int:
    return int.from_bytes(b"".join(c.to_bytes(PACK, "little") for c in coefficients), "little")


def _unpack(packed: int, count: int) -> list[int]:
    data = packed.to_bytes(count * PACK + PACK, "little")
    return [int.from_bytes(data[at : at + 8], "little") for at in range(0, count * PACK, PACK)]
