"""Chance as an argument: named streams of one seed, so that every run can be repeated."""

import hashlib
import random
import secrets
import uuid
from typing import NewType

Seed = NewType("Seed", int)


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
        """Return the stream of that name; asking again continues where it was left."""
        found = self._streams.get(name)
        if found is None:
            digest = hashlib.sha256(f"{self.seed}/{name}".encode()).digest()
            found = random.Random(int.from_bytes(digest, "big"))  # noqa: S311 - not a secret
            self._streams[name] = found
        return found

    def uuid(self, name: str) -> str:
        """Return the next random UUID (version 4) of a stream, in lower case."""
        return str(uuid.UUID(int=self.stream(name).getrandbits(128), version=4))
