"""The releases of Kubernetes whose API dralab knows, and their data.

The newest release is kept whole. Of each older one there is the difference to the next newer: a
merge patch (RFC 7386). `tools/releases.py` writes them. What a server does by its release asks
for a feature gate or a table here, never for a number.
"""

import gzip
import re
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import Any, Final

import orjson

# Beside this file: importlib.resources takes longer to import than what it reads.
DATA: Final = Path(__file__).with_name("data")
DEFAULT: Final = "1.36"
"""What a server is unless told otherwise: the newest release whose answers are proven."""
MIXED: Final = ""
"""`DEFAULT`, and what the newest release added to it where a gate or a switch asks for that."""
_TEXT: Final = re.compile(r"v?(\d+\.\d+)(\.\d+)?")


class ReleaseError(ValueError):
    """A text does not name a known release; `str` lists them."""


@cache
def versions() -> Mapping[str, str]:
    """Return the latest known version of each release, the newest first.

    >>> versions()["1.36"]
    'v1.36.2'
    """
    found: dict[str, str] = orjson.loads((DATA / "releases.json").read_bytes())
    return found


def version_of(release: str) -> str:
    """Return the version that a server of a release says it is."""
    return versions()[release or DEFAULT]


def newest() -> str:
    """Return the newest release."""
    return next(iter(versions()))


def parse(text: str) -> str:
    """Return the release that a text names. ReleaseError.

    >>> parse("v1.34.1"), parse("latest") == newest()
    ('1.34', True)
    """
    if text == "latest":
        return newest()
    found = _TEXT.fullmatch(text)
    if found is None or found[1] not in versions():
        known = ", ".join(reversed([*versions()]))
        raise ReleaseError(
            f"{text!r} is not a known release of Kubernetes: expected one of {known}"
        )
    return found[1]


def is_since(release: str, first: str) -> bool:
    """Return whether a release is `first` or a newer one.

    >>> is_since("1.37", "1.36"), is_since(MIXED, "1.37")
    (True, False)
    """
    known = [*versions()]
    return known.index(release or DEFAULT) <= known.index(first)


def since(holds: Callable[[str], bool]) -> str:
    """Return the first release for which something holds; "" if there is none."""
    return next(filter(holds, reversed([*versions()])), "")


def merged(release: str, part: Callable[[str], dict[str, Any]]) -> dict[str, Any]:
    """Return a table of a release; `part` has that of the newest and the differences."""
    table: dict[str, Any] = {}
    for name in versions():
        _patch(table, part(name))
        if name == release:
            return table
    raise KeyError(release)


def table(name: str, release: str) -> dict[str, Any]:
    """Return a release's table from a file that has all releases; a new one each time."""
    content = orjson.loads((DATA / name).read_bytes())
    return merged(release or DEFAULT, content.__getitem__)


def unpacked(name: str) -> Any:
    """Return the content of a compressed data file; a new one each time."""
    return orjson.loads(gzip.decompress((DATA / name).read_bytes()))


def _patch(table: dict[str, Any], patch: Mapping[str, Any]) -> None:
    for key, value in patch.items():
        if value is None:
            table.pop(key, None)
        elif isinstance(value, dict) and isinstance(below := table.get(key), dict):
            _patch(below, value)
        else:
            table[key] = value
