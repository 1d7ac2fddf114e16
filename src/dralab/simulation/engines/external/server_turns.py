"""The server and the programs take turns: it answers only while all of them are idle.

So what programs find in their connections does not depend on how fast the server is.
"""

import select
import threading

from dralab.cluster import Cluster


class ServerTurns:
    """The turns of a server that serves from its own thread in this process.

    Until `close`, that thread rests between its turns.
    """

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._rests = threading.Event()
        self._turn = threading.Event()
        self._closed = False
        self._poll: select.poll | None = None
        if (descriptor := cluster.waits_on) is not None and hasattr(select, "poll"):
            self._poll = select.poll()
            self._poll.register(descriptor, select.POLLIN)
        self._cluster.when_idle(self._rest)
        self._rests.wait()

    def take(self, *, always: bool = False) -> bool:
        """Let the server read and answer all there is; return whether there was anything.

        With `always` it has a turn even so: what it closes takes its loop more than one.
        """
        if not always and self._poll is not None and not self._poll.poll(0):
            return False
        self._rests.clear()
        self._cluster.when_idle(self._rest, events=True)
        self._turn.set()
        self._rests.wait()
        return True

    def close(self) -> None:
        """Let the server run when it wants to."""
        self._closed = True
        self._turn.set()

    def _rest(self) -> None:
        """Keep the server's thread here until its next turn."""
        self._turn.clear()
        self._rests.set()
        if not self._closed:
            self._turn.wait()
