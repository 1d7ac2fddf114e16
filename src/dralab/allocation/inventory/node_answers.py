"""Whether nodes may serve a kind of claims, by what they have in common.

Nodes in the same state get the same devices, so a question about one node is answered for all of
them. Who asks again catches up with the nodes whose state has changed (`Fleet.changed_nodes`).
"""

from collections.abc import Callable, Hashable
from typing import Final

# States of which an answer is known before all are forgotten, which costs time alone.
MOST_STATES: Final = 1 << 18


class NodeAnswers:
    """Whether nodes may serve a kind of claims.

    Nodes of the same `likeness` serve it, or do not, alike; None: only the node itself tells. `ask`
    answers None where the state does not say. Then `may_try` does, for the node itself: a node may
    serve the claims until they were tried there in vain.
    """

    __slots__ = ("_ask", "_known", "_likeness", "_may_try")

    def __init__(
        self,
        likeness: Callable[[int], Hashable],
        ask: Callable[[int], bool | None],
        may_try: Callable[[int], bool],
    ) -> None:
        self._likeness = likeness
        self._ask = ask
        self._may_try = may_try
        self._known: dict[Hashable, bool | None] = {None: None}

    def of(self, node: int) -> bool:
        """Return whether a node may serve the claims, as it is now."""
        state, known = self._likeness(node), self._known
        if state in known:
            found = known[state]
        else:
            if len(known) >= MOST_STATES:
                known.clear()
                known[None] = None
            found = known[state] = self._ask(node)
        return self._may_try(node) if found is None else found
