"""Semantic versions (semver.org 2.0.0), as attributes carry them and selectors compare them."""

import re
from dataclasses import field
from functools import total_ordering
from typing import Final

from dralab.values.records import dataclass
from dralab.values.remembering import remembered

PATTERN: Final = re.compile(
    r"(0|[1-9]\d*)\.(0|[1-9]\d*)\.(0|[1-9]\d*)"
    r"(?:-((?:0|[1-9]\d*|\d*[a-zA-Z-][0-9a-zA-Z-]*)(?:\.(?:0|[1-9]\d*|\d*[a-zA-Z-][0-9a-zA-Z-]*))*))?"
    r"(?:\+([0-9a-zA-Z-]+(?:\.[0-9a-zA-Z-]+)*))?",
    re.ASCII,
)


@total_ordering
@dataclass(frozen=True, slots=True, eq=False)
class Version:
    """A semantic version; build metadata takes no part in comparisons.

    >>> Version.parse("1.2.3-rc.1") < Version.parse("1.2.3")
    True
    """

    major: int
    minor: int
    patch: int
    prerelease: tuple[str, ...] = ()
    build: str = ""
    # The order of versions as an order of tuples: numbers before words, release last.
    key: tuple[object, ...] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        identifiers = tuple(
            (0, int(part), "") if part.isdigit() else (1, 0, part) for part in self.prerelease
        )
        key = (self.major, self.minor, self.patch, not self.prerelease, identifiers)
        object.__setattr__(self, "key", key)

    @classmethod
    def parse(cls, text: str) -> "Version":
        """Return the version of a text. ValueError."""
        return _parse(text)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Version) and self.key == other.key

    def __lt__(self, other: "Version") -> bool:
        return self.key < other.key

    def __hash__(self) -> int:
        return hash(self.key)

    def __str__(self) -> str:
        text = f"{self.major}.{self.minor}.{self.patch}"
        if self.prerelease:
            text += "-" + ".".join(self.prerelease)
        return text + (f"+{self.build}" if self.build else "")


def is_version(text: str) -> bool:
    """Return whether a text is a semantic version.

    >>> is_version("1.2.3"), is_version("v1.2")
    (True, False)
    """
    return PATTERN.fullmatch(text) is not None


@remembered(4096)
def _parse(text: str) -> Version:
    found = PATTERN.fullmatch(text)
    if found is None:
        raise ValueError(f"{text!r} is not a semantic version such as 1.2.3")
    major, minor, patch, prerelease, build = found.groups()
    parts = tuple(prerelease.split(".")) if prerelease else ()
    return Version(int(major), int(minor), int(patch), parts, build or "")
