"""Imports dralab's modules without pytest's rewriting of `assert`.

pytest parses and compiles anew every module of a distribution that holds a plugin, for messages of
its `assert` statements, and does not use what pip has compiled. In dralab there is none to rewrite:
250 modules would cost the first run of a test, hence every run in CI, more than a second.
"""

import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType


class PlainImports:
    """A finder for `sys.meta_path` that finds the modules of dralab, and no others."""

    @staticmethod
    def find_spec(
        name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Find a module as Python's own finder does."""
        return PathFinder.find_spec(name, path, target) if name.startswith("dralab.") else None


def import_plainly() -> None:
    """Put the finder before pytest's, once."""
    if PlainImports not in sys.meta_path:
        sys.meta_path.insert(0, PlainImports)
