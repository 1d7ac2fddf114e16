"""Checkpoints of runs that were stopped: a state, and the digest of all that it depends on.

A state is data (`state_graphs`): to read one from somebody else runs none of their code.
"""

import hashlib
from collections.abc import Iterable
from pathlib import Path
from typing import Final, TypeVar

import orjson

from dralab import __version__
from dralab.simulation.errors import InputError, content_of
from dralab.simulation.state_graphs import NoStateError, decoded, encoded

KIND: Final = "dralab checkpoint"
FORMAT: Final = 2
State = TypeVar("State")
# Errors of reading what another version wrote, or somebody changed.
BROKEN: Final = (
    ArithmeticError, AttributeError, ImportError, LookupError, MemoryError, RecursionError,
    TypeError, ValueError,
)  # fmt: skip


def digest(parts: Iterable[object], files: Iterable[Path] = ()) -> str:
    """Return a short text of what a run depends on: the same text, the same result.

    Parts must have texts that repeat: no sets, no addresses.
    """
    found = hashlib.sha256(__version__.encode())
    for part in parts:
        found.update(f"\n{part!r}".encode())
    for file in files:
        found.update(hashlib.sha256(content_of(file)).digest())
    return found.hexdigest()


def write(path: Path, key: str, state: object) -> None:
    """Write a state atomically. InputError: it holds what is no data."""
    try:
        found = {"kind": KIND, "format": FORMAT, "key": key, **encoded(state)}
        content = orjson.dumps(found)
    except (NoStateError, orjson.JSONEncodeError) as error:
        raise InputError(path, f"cannot be written: {error}") from None
    path.parent.mkdir(parents=True, exist_ok=True)
    aside = path.with_name(f"{path.name}.part")
    aside.write_bytes(content)
    aside.replace(path)


def read(path: Path, key: str, kind: type[State]) -> State:
    """Return the state that `write` wrote; InputError if the file is not one, or of another run."""
    try:
        found = orjson.loads(content_of(path))
    except orjson.JSONDecodeError:
        found = None
    if not isinstance(found, dict) or (found.get("kind"), found.get("format")) != (KIND, FORMAT):
        raise InputError(path, "is not a checkpoint of this version")
    if found.get("key") != key:
        raise InputError(path, "belongs to another scenario, seed or scheduler")
    try:
        state = decoded(found)
    except BROKEN as error:
        raise InputError(path, f"cannot be read: {error!r}") from None
    if not isinstance(state, kind):
        raise InputError(path, "belongs to another scenario, seed or scheduler")
    return state
