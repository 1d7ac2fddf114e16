"""Randomness as an argument: named streams of one seed, so that every run can be repeated."""

import hashlib
import random
import secrets
from typing import Final, NewType

Seed = NewType("Seed", int)
# RFC 9562, section 5.4: the variant in two bits, the version in four.
VERSION_4: Final = (4 << 76) | (0b10 << 62)
VERSION_CLEARED: Final = ~((0xF << 76) | (0b11 << 62))


class Randomness:
    """Independent random streams, each found by its name.

    A stream depends on the seed and on its own name alone: using one more stream somewhere
    changes no other.

    >>> Randomness(7).stream("jitter").random() == Randomness(7).stream("jitter").random()
    True
    """

    def __init__(self, seed: int) -> None:
        self.seed = Seed(seed)
        self._streams: dict[str, random.Random] = {}

    @classmethod
    def from_system(cls) -> "Randomness":
        """Return streams that no other run will see again."""
        return cls(secrets.randbits(64))

    def stream(self, name: str) -> random.Random:
        """Return the stream of that name; it continues where it was left."""
        found = self._streams.get(name)
        if found is None:
            digest = hashlib.sha256(f"{self.seed}/{name}".encode()).digest()
            found = random.Random(int.from_bytes(digest, "big"))  # noqa: S311 - not a secret
            self._streams[name] = found
        return found

    def uuid(self, name: str) -> str:
        """Return the next random UUID (version 4) of a stream, in lower case."""
        # As `uuid.UUID(int=…, version=4)` is written, in a third of the time.
        text = f"{self.stream(name).getrandbits(128) & VERSION_CLEARED | VERSION_4:032x}"
        return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"
