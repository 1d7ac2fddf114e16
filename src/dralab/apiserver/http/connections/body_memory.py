"""The memory of request bodies that are read or wait to be answered: it is bounded, and shared.

A large body is read only when there is room for all of it; until then its client is not read from.
Users and their programs take turns, and no user takes more than is left for others: one who sends
bodies slowly, or very many, gets half of the room, two get a third each. Small bodies are not
counted: they are bounded by the number of connections.
"""

import asyncio
from collections import OrderedDict, deque
from typing import NamedTuple


class _WaitingBody(NamedTuple):
    user: str
    size: int
    ready: "asyncio.Future[None]"


class BodyMemory:
    """Room for so many bytes of bodies; to be used in the thread of the loop alone.

    >>> memory = BodyMemory(100)
    >>> asyncio.run(memory.take("jane", "kubectl", 40)), memory.used
    (None, 40)
    >>> memory.give_back("jane", 40)
    >>> memory.used
    0
    """

    def __init__(self, most: int) -> None:
        self.most = most
        self.used = 0
        self._held: dict[str, int] = {}  # by user
        self._waiting: OrderedDict[tuple[str, str], deque[_WaitingBody]] = OrderedDict()

    async def take(self, user: str, program: str, size: int) -> None:
        """Wait for room, and take it; cancelled, nothing is taken."""
        asker = (user, program)
        if asker not in self._waiting and self._fits(user, size):
            self._add(user, size)
            return
        waiting = _WaitingBody(user, size, asyncio.get_running_loop().create_future())
        self._waiting.setdefault(asker, deque()).append(waiting)
        try:
            await waiting.ready
        except asyncio.CancelledError:
            if waiting.ready.done() and not waiting.ready.cancelled():
                self.give_back(user, size)
            else:
                self._forget(asker, waiting)
            raise

    def give_back(self, user: str, size: int) -> None:
        """Free room, and give it to the bodies that wait for it."""
        self.used -= size
        self._held[user] -= size
        if not self._held[user]:
            del self._held[user]
        self._hand_out()

    def _fits(self, user: str, size: int) -> bool:
        held = self._held.get(user, 0)
        # One body of each user always fits, whatever others hold.
        return not held or held + size <= self.most - self.used - size

    def _add(self, user: str, size: int) -> None:
        self.used += size
        self._held[user] = self._held.get(user, 0) + size

    def _hand_out(self) -> None:
        while asker := next(filter(self._is_next, self._waiting), None):
            queue = self._waiting[asker]
            waiting = queue.popleft()
            if not waiting.ready.cancelled():  # it gives up in this turn of the loop
                self._add(waiting.user, waiting.size)
                waiting.ready.set_result(None)
            if queue:
                self._waiting.move_to_end(asker)  # it has had its turn
            else:
                del self._waiting[asker]

    def _is_next(self, asker: tuple[str, str]) -> bool:
        first = self._waiting[asker][0]
        return self._fits(first.user, first.size)

    def _forget(self, asker: tuple[str, str], waiting: _WaitingBody) -> None:
        queue = self._waiting.get(asker)
        if queue is not None and waiting in queue:
            queue.remove(waiting)
            if not queue:
                del self._waiting[asker]
        self._hand_out()
