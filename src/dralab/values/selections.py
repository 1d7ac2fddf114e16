"""Choosing among names that have groups: by a name, a group, or a pattern."""

import fnmatch
from collections.abc import Sequence


class NothingSelectedError(ValueError):
    """A pattern names nothing."""

    def __init__(self, pattern: str, kind: str, listed_by: str) -> None:
        super().__init__(pattern)
        self.pattern, self.kind, self.listed_by = pattern, kind, listed_by

    def __str__(self) -> str:
        return f"{self.pattern!r} names no {self.kind}; `{self.listed_by}` lists them"


def selected(
    names: Sequence[str],
    patterns: Sequence[str],
    *,
    after_group: str = ".",
    kind: str = "name",
    listed_by: str = "",
) -> list[str]:
    """Return the names that are given, in a given group, or fit a pattern; all for no pattern.

    `after_group` ends the group of a name. NothingSelectedError: a pattern names none of them; the
    error says what they are, and which command lists them.

    >>> selected(["a.x", "a.y", "b.x"], ["a"])
    ['a.x', 'a.y']
    >>> selected(["a.x", "a.y", "b.x"], ["*.x"])
    ['a.x', 'b.x']
    """
    wanted: set[str] = set()
    for pattern in patterns:
        found = {
            name
            for name in names
            if name.partition(after_group)[0] == pattern or fnmatch.fnmatchcase(name, pattern)
        }
        if not found:
            raise NothingSelectedError(pattern, kind, listed_by)
        wanted |= found
    return [name for name in names if not patterns or name in wanted]
