"""Bytes from a producer in any thread to one client."""

from collections import deque
from collections.abc import Callable, Sequence
from threading import Condition
from typing import Final

LIMIT: Final = 8 * 1024 * 1024
ROOM: Final = 512 * 1024  # bytes that may wait for the reader before the producer has to wait


class Feed:
    r"""A `Source` for producers: they put bytes and end it, and learn when the reader is gone.

    >>> feed = Feed()
    >>> feed.put(b"line\n")
    True
    >>> feed.end()
    >>> feed.take_items(), feed.done
    ((b'line\n',), True)
    """

    def __init__(
        self,
        limit: int = LIMIT,
        on_close: Callable[[], None] = lambda: None,
        on_room: Callable[[], None] = lambda: None,
    ) -> None:
        self.limit = limit
        self.cut: str | None = None
        self._on_close = on_close
        self._on_room = on_room
        self._lock = Condition()
        self._items: deque[bytes] = deque()
        self._weight = 0
        self._ended = False
        self._closed = False
        self._ready: Callable[[], None] = lambda: None

    def put(self, data: bytes) -> bool:
        """Add bytes; False if the reader is gone. A client that is too slow is cut off."""
        with self._lock:
            if self._closed or self._ended or self.cut:
                return False
            self._items.append(data)
            self._weight += len(data)
            if self._weight > self.limit:
                self.cut = f"the client reads too slowly: {self._weight} bytes are queued for it"
                self._items.clear()
            ready = self._ready
        ready()
        return self.cut is None

    def offer(self, data: bytes) -> bool:
        """Add bytes as soon as the reader has room; False if the reader is gone.

        For producers with a thread of their own: they wait, and no client is cut off.
        """
        with self._lock:
            self._lock.wait_for(lambda: self.room or self.done)
        return self.put(data)

    @property
    def room(self) -> bool:
        """Whether there is room for more; `on_room` is called once the reader has read."""
        return self._weight < ROOM

    def end(self) -> None:
        """End the stream."""
        with self._lock:
            self._ended = True
            ready = self._ready
        ready()

    def abort(self, why: str) -> None:
        """End the stream early: the reader is cut off, and may see it."""
        with self._lock:
            if self.cut is None and not self._ended:
                self.cut = why
            ready = self._ready
        ready()

    @property
    def done(self) -> bool:
        """Whether nothing more will come."""
        return self._closed or self.cut is not None or (self._ended and not self._items)

    def take_items(self) -> Sequence[bytes]:
        """Return what has come."""
        with self._lock:
            found = tuple(self._items)
            self._items.clear()
            self._weight = 0
            self._lock.notify_all()
        self._on_room()
        return found

    def notify(self, ready: Callable[[], None]) -> None:
        """Call `ready` each time something may have come; at once where it has."""
        with self._lock:
            self._ready = ready
            waiting = bool(self._items) or self.done
        if waiting:
            ready()

    def close(self) -> None:
        """Stop: the reader is gone."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
            self._items.clear()
            self._lock.notify_all()
            ready = self._ready
        ready()
        self._on_room()
        self._on_close()
