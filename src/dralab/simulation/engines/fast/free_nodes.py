"""Which nodes' GPUs a job gets: on as few nodes as can be, or where most are free."""

from collections.abc import Iterable, Sequence


class FreeNodes:
    """The free GPUs of nodes. A job gets them where most are free, and may be split."""

    def __init__(self, nodes: int, gpus: int) -> None:
        self.of_a_node = gpus
        self.free = [gpus] * nodes

    def empty(self, kept: Iterable[Sequence[int]]) -> None:
        """Free all GPUs but those on some nodes, one node for each GPU."""
        self.free = [self.of_a_node] * len(self.free)
        for nodes in kept:
            self._take(nodes)

    def _take(self, nodes: Sequence[int]) -> None:
        for node in nodes:
            self.free[node] -= 1

    def place(self, wanted: int) -> tuple[int, ...] | None:
        """Take so many GPUs, and return the node of each; None: there is no such place."""
        found = self.choice(wanted)
        if found is not None:
            self._take(found)
        return found

    def choice(self, wanted: int) -> tuple[int, ...] | None:
        """Return the nodes that are chosen.

        >>> nodes = FreeNodes(3, 4)
        >>> nodes.place(2), nodes.place(6)
        ((0, 0), (1, 1, 1, 1, 2, 2))
        """
        found: list[int] = []
        for node in sorted(range(len(self.free)), key=lambda node: -self.free[node]):
            found += [node] * min(self.free[node], wanted - len(found))
        return tuple(found) if len(found) == wanted else None


class ConsolidatedNodes(FreeNodes):
    """A job gets GPUs of one node, or whole nodes and a rest, of one switch.

    >>> nodes = ConsolidatedNodes(2, 2, 4)
    >>> nodes.place(3), nodes.place(6), nodes.place(2), nodes.place(6)
    ((0, 0, 0), (2, 2, 2, 2, 3, 3), (1, 1), None)
    """

    def __init__(self, switches: int, nodes: int, gpus: int) -> None:
        super().__init__(switches * nodes, gpus)
        self.of_a_switch = nodes

    def choice(self, wanted: int) -> tuple[int, ...] | None:
        """Return the nodes of the first switch that has room."""
        for first in range(0, len(self.free), self.of_a_switch):
            found = self._on(range(first, first + self.of_a_switch), wanted)
            if found is not None:
                return found
        return None

    def _on(self, nodes: range, wanted: int) -> tuple[int, ...] | None:
        whole, rest = divmod(wanted, self.of_a_node)
        if wanted == self.of_a_node:
            whole, rest = 0, wanted
        full = [node for node in nodes if self.free[node] == self.of_a_node][:whole]
        last = [node for node in nodes if self.free[node] >= rest and node not in full][:1]
        if len(full) < whole or (rest and not last):
            return None
        return tuple([node for node in full for _ in range(self.of_a_node)] + last * rest)
