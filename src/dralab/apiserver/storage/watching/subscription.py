"""A watcher's subscription to the hub: the events that it has not read yet."""

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from typing import Any, Generic, TypeVar

from dralab.apiserver.storage.watching.interfaces import Spelling, Watching

Item = TypeVar("Item")


class Piece(Generic[Item]):
    """Items that are sent together; `holders` watchers still have to read them."""

    __slots__ = ("holders", "items", "weight")

    def __init__(self, items: Sequence[Item], weight: int) -> None:
        self.items = items
        self.weight = weight
        self.holders = 0


class Subscription(Generic[Item]):
    """What one watcher still has to read: its initial events, then pieces of the live ones.

    Any thread may call it. `cut` is None while the watch lives, "" after `close`, and otherwise
    says why the hub ended it; the watcher lists again.
    """

    def __init__(
        self,
        lock: AbstractContextManager[Any],
        wanted: Watching,
        spelling: Spelling[Item],
        leave: "Callable[[Subscription[Item]], None]",
    ) -> None:
        self.wanted = wanted
        self.spelling = spelling
        self.since = wanted.since
        self.bookmarked = 0
        self.cut: str | None = None
        self.finished = False
        self.weight = 0
        self.initial: Iterator[Piece[Item]] | None = None
        self.pieces: deque[Piece[Item]] = deque()
        self.lock = lock
        self._leave = leave
        self._ready: Callable[[], None] | None = None

    def take_items(self) -> Sequence[Item]:
        """Return the next items to send, about 64 KiB of them; nothing where all has been read."""
        with self.lock:
            if self.initial is not None:
                piece = next(self.initial, None)
                if piece is not None:
                    return piece.items
                self.initial = None
            if not self.pieces:
                return ()
            piece = self.pieces.popleft()
            self.release_piece(piece)
            return piece.items

    @property
    def waiting(self) -> bool:
        """Whether there is something to take, or `cut` is set."""
        return self.initial is not None or bool(self.pieces) or self.done

    def notify(self, ready: Callable[[], None]) -> None:
        """Call `ready` each time something may have come; at once where something waits.

        It is called with the store's lock held, in any thread: note it and return.
        """
        with self.lock:
            self._ready = ready
            if self.waiting:
                ready()

    def push(self, piece: Piece[Item]) -> None:
        """Add a piece of the stream; the hub calls it, with the lock held."""
        piece.holders += 1
        self.weight += piece.weight
        self.pieces.append(piece)
        if self._ready is not None:
            self._ready()

    def release_piece(self, piece: Piece[Item]) -> None:
        """Release a piece."""
        piece.holders -= 1
        self.weight -= piece.weight

    def end(self, why: str) -> None:
        """Drop unread events, with the reason."""
        with self.lock:
            if self.cut is not None:
                return
            self.cut = why
            self.initial = None
            if not self.finished:
                self._leave(self)
            while self.pieces:
                self.release_piece(self.pieces.popleft())
            if self._ready is not None:
                self._ready()

    def finish(self) -> None:
        """Stop gently: what has come can still be read, then `done` is true."""
        with self.lock:
            if self.cut is None:
                self.finished = True
                self._leave(self)
                if self._ready is not None:
                    self._ready()

    @property
    def done(self) -> bool:
        """Whether nothing more will come."""
        if self.cut is not None:
            return True
        return self.finished and self.initial is None and not self.pieces

    def close(self) -> None:
        """Stop; further changes are not kept."""
        self.end("")
