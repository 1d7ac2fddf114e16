"""Who is down from when to when; outages of one node may overlap."""

from collections.abc import Iterator
from dataclasses import dataclass, field


@dataclass(slots=True)
class Outages:
    """Outages so far.

    >>> found = Outages()
    >>> found.begin("n", 1), found.begin("n", 2), found.end("n", 3), found.end("n", 5)
    (True, False, False, True)
    >>> list(found.until(9))
    [('n', 1, 5)]
    """

    _over: list[tuple[str, int, int]] = field(default_factory=list)
    _depth: dict[str, int] = field(default_factory=dict)
    _since: dict[str, int] = field(default_factory=dict)

    def begin(self, name: str, now: int) -> bool:
        """Begin an outage; return whether the node was up."""
        self._depth[name] = self._depth.get(name, 0) + 1
        if self._depth[name] > 1:
            return False
        self._since[name] = now
        return True

    def end(self, name: str, now: int) -> bool:
        """End an outage; return whether the node is up again."""
        self._depth[name] -= 1
        if self._depth[name]:
            return False
        self._over.append((name, self._since.pop(name), now))
        return True

    def until(self, end: int) -> Iterator[tuple[str, int, int]]:
        """Yield all outages; those that last end at `end`."""
        yield from self._over
        yield from ((name, since, end) for name, since in self._since.items())
