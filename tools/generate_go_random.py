"""Write go_random.bin below src/dralab/drivers/data: the table of Go's `math/rand`.

The generator is an additive lagged Fibonacci one, 607/273, over 64-bit words. Its table of 607
words is the state of the same generator after 7.8 * 10**12 draws; it is computed here by jumping
that far ahead: the draw n+N is a linear form of the draws n..n+606, whose coefficients are those
of X**N modulo X**607 - X**334 - 1.

    python tools/generate_go_random.py
"""

import sys
from pathlib import Path

FILE = Path(__file__).parents[1] / "src/dralab/drivers/data/go_random.bin"
LENGTH = 607
TAP = 273
FEED = LENGTH - TAP
AHEAD = 7_800_000_000_000
WORD = (1 << 64) - 1
# 607 products of two words need 138 bits.
PACK = 18


def table() -> list[int]:
    """Return the 607 words."""
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
    return found


def _step(x: int) -> int:
    return 48_271 * x % ((1 << 31) - 1)


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


if __name__ == "__main__":
    from usage import print_if_asked

    print_if_asked(__doc__)
    FILE.parent.mkdir(exist_ok=True)
    words = b"".join(word.to_bytes(8, "little") for word in table())
    print(f"{FILE.write_bytes(words)} bytes")
    sys.exit()
