"""Checkpoints of stopped runs: the progress, and a digest of everything the run depends on.

A run goes on by running up to there again: the same input gives the same run. So a checkpoint from
somebody else can hold nothing but a number.
"""

import hashlib
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Final

import orjson

from dralab import __version__
from dralab.scenarios.errors import InputError, content_of

KIND: Final = "dralab checkpoint"
FORMAT: Final = 3


def digest(parts: Iterable[object], files: Iterable[Path] = ()) -> str:
    """Return a digest of everything that a run depends on.

    Parts must have texts that repeat: no sets, no addresses.
    """
    found = hashlib.sha256(__version__.encode())
    for part in parts:
        found.update(f"\n{part!r}".encode())
    for file in files:
        found.update(hashlib.sha256(content_of(file)).digest())
    return found.hexdigest()


def write(path: Path, key: str, steps: int) -> None:
    """Write a run's progress, atomically. InputError: it cannot be written."""
    aside = path.with_name(f"{path.name}.part")
    text = orjson.dumps({"kind": KIND, "format": FORMAT, "key": key, "steps": steps})
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        aside.write_bytes(text)
        aside.replace(path)
    except OSError as error:
        with suppress(OSError):
            aside.unlink(missing_ok=True)
        raise InputError(path, f"cannot be written: {error.strerror}") from error


def read(path: Path, key: str) -> int:
    """Return a run's progress; InputError if the file is not a checkpoint of this run."""
    try:
        found = orjson.loads(content_of(path))
    except orjson.JSONDecodeError:
        found = None
    if not isinstance(found, dict) or (found.get("kind"), found.get("format")) != (KIND, FORMAT):
        raise InputError(path, "is not a checkpoint of this version")
    if found.get("key") != key:
        raise InputError(path, "belongs to another scenario, seed or scheduler")
    steps = found.get("steps")
    if type(steps) is not int or steps < 0:
        raise InputError(path, f"steps must be a whole number from 0, not {steps!r}")
    return steps
