"""Where a kind of claims may still fit, as far as is known: bit sets of nodes.

A node that could not serve a kind cannot serve it until something is released there, so it is
skipped until then. Releases are written into one log, which every kind reads when it is next used.
"""

from collections.abc import Hashable
from typing import Final

# Releases that are logged one by one before all kinds are updated.
MOST_RELEASES: Final = 4_096
# Kinds that are remembered; beyond it the oldest is forgotten, which costs time alone.
MOST_KINDS: Final = 20_000


class FeasibleNodesOfKind:
    """The nodes on which one kind may still fit, and how far it has read the log."""

    __slots__ = ("nodes", "noticed")

    def __init__(self, nodes: int, noticed: int) -> None:
        self.nodes = nodes
        self.noticed = noticed

    def has(self, node: int) -> bool:
        """Return whether the kind may still fit on a node."""
        return bool(self.nodes >> node & 1)


class FeasibleNodes:
    """Where every kind may still fit."""

    def __init__(self, nodes: int) -> None:
        self.every = (1 << nodes) - 1
        self._kinds: dict[Hashable, FeasibleNodesOfKind] = {}
        self._log: list[int] = []
        self._length = 0

    def of_kind(self, kind: Hashable) -> FeasibleNodesOfKind:
        """Return where a kind may still fit: everywhere, if it is asked for the first time."""
        found = self._kinds.get(kind)
        if found is None:
            if len(self._kinds) >= MOST_KINDS:
                del self._kinds[next(iter(self._kinds))]
            found = self._kinds[kind] = FeasibleNodesOfKind(self.every, self._length)
        elif found.noticed != self._length:
            self._notice(found)
        return found

    def add_node(self, number: int) -> None:
        """Note that there is a node of this number, or that it has changed."""
        self.every |= 1 << number
        self.add_released(1 << number)

    def remove_node(self, number: int) -> None:
        """Remove the node with this number."""
        self.every &= ~(1 << number)

    def add_released(self, nodes: int) -> None:
        """Record that something was released on these nodes."""
        self._log.append(nodes)
        self._length += 1
        if len(self._log) >= MOST_RELEASES:
            for each in self._kinds.values():
                self._notice(each)
            self._log.clear()

    def forget_kinds(self) -> None:
        """Forget everything."""
        self._kinds.clear()

    def copied(self) -> "FeasibleNodes":
        """Return the same, for a copy that changes on its own."""
        other = FeasibleNodes(0)
        other.__dict__.update(
            every=self.every,
            _kinds={
                kind: FeasibleNodesOfKind(each.nodes, each.noticed)
                for kind, each in self._kinds.items()
            },
            _log=self._log.copy(),
            _length=self._length,
        )
        return other

    def _notice(self, known: FeasibleNodesOfKind) -> None:
        behind = self._length - known.noticed
        for nodes in self._log[len(self._log) - behind :]:
            known.nodes |= nodes
        known.noticed = self._length
