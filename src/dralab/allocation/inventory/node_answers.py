"""Numbers of the states that nodes are in, and what is known of each.

Nodes in the same state get the same devices, so a question about one node is answered for all of
them. Who asks again catches up with the nodes whose state has changed.
"""

from collections.abc import Callable, Hashable
from typing import Final

from dralab.allocation.inventory.row_log import RowLog
from dralab.allocation.search.node_devices import bits

# States that are told apart before all are forgotten, which costs time alone.
MOST_STATES: Final = 1 << 18
# Of so many nodes at once it is not worth noting which ones they are.
MANY_NODES: Final = 1_024


class StateNumbers:
    """The number of each node's state; -1: it has none, and the node itself is to be asked.

    Nothing is noted before the first number is asked for.
    """

    __slots__ = ("_known", "_next", "_numbers", "touched")

    def __init__(self) -> None:
        # Nodes whose state is another one than before.
        self.touched = RowLog()
        self._numbers: dict[int, int] = {}
        self._known: dict[Hashable, int] = {}
        self._next = 0

    @property
    def are_read(self) -> bool:
        """Whether anybody has asked for a number."""
        return bool(self._numbers)

    def forget_nodes(self, nodes: int) -> None:
        """Note that these nodes (a bit set) have another state."""
        if not self._numbers:
            return
        if nodes.bit_count() > MANY_NODES:
            self.forget_all()
            return
        numbers, touched = self._numbers, self.touched
        for number in bits(nodes):
            if number in numbers:
                del numbers[number]
                touched.add_row(number)

    def forget_all(self) -> None:
        """Note that any node may have another state."""
        self._numbers.clear()
        self.touched.add_all()

    def number_of(self, node: int, state_of: Callable[[int], Hashable]) -> int:
        """Return the number of a node's state, which `state_of` finds; None there: it has none."""
        found = self._numbers.get(node)
        if found is None:
            found = self._numbers[node] = self._number(state_of(node))
        return found

    def _number(self, state: Hashable) -> int:
        if state is None:
            return -1
        found = self._known.get(state)
        if found is None:
            if len(self._known) >= MOST_STATES:
                self._known.clear()
            found = self._known[state] = self._next
            self._next += 1
        return found


class NodeAnswers:
    """Whether nodes may serve a kind of claims, by the numbers of their states.

    `ask` answers None where the state does not say. Then `may_try` does, for the node itself: a
    node may serve the claims until they were tried there in vain.
    """

    __slots__ = ("_ask", "_known", "_may_try", "_number")

    def __init__(
        self,
        number: Callable[[int], int],
        ask: Callable[[int], bool | None],
        may_try: Callable[[int], bool],
    ) -> None:
        self._number = number
        self._ask = ask
        self._may_try = may_try
        self._known: dict[int, bool | None] = {-1: None}

    def of(self, node: int) -> bool:
        """Return whether a node may serve the claims, as it is now."""
        number, known = self._number(node), self._known
        if number in known:
            found = known[number]
        else:
            if len(known) >= MOST_STATES:
                known.clear()
                known[-1] = None
            found = known[number] = self._ask(node)
        return self._may_try(node) if found is None else found
