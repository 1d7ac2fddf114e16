"""Checkpoints of runs that were stopped: a state, and the digest of all that it depends on.

A state is pickled. Loading one runs code from the file, as pickle does: load only your own.
"""

import hashlib
import pickle
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final, TypeVar

from dralab import __version__
from dralab.simulation.errors import InputError, content_of

MAGIC: Final = b"dralab checkpoint 1\n"
State = TypeVar("State")
# Errors of loading a pickle of another version, or a truncated file.
BROKEN: Final = (
    pickle.UnpicklingError, EOFError, AttributeError, ImportError, IndexError, KeyError, TypeError,
    ValueError,
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
    """Write a state atomically."""
    path.parent.mkdir(parents=True, exist_ok=True)
    aside = path.with_name(f"{path.name}.part")
    aside.write_bytes(MAGIC + pickle.dumps((key, state)))
    aside.replace(path)


def read(path: Path, key: str, kind: type[State]) -> State:
    """Return the state that `write` wrote; InputError if the file is not one, or of another run."""
    raw = content_of(path)
    if not raw.startswith(MAGIC):
        raise InputError(path, "is not a checkpoint of this version")
    try:
        found: Any = pickle.loads(raw[len(MAGIC) :])  # noqa: S301 - the user's own file
        known, state = found
    except BROKEN as error:
        raise InputError(path, f"cannot be read: {error!r}") from None
    if known != key or not isinstance(state, kind):
        raise InputError(path, "belongs to another scenario, seed or scheduler")
    return state
