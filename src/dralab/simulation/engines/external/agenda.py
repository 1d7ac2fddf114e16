"""What is to come, as data: so that a run can be written down and gone on with."""

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from dralab.kernel.clock import ManualClock
from dralab.kernel.events import Event, Events


class Entry(NamedTuple):
    """At `when` (nanoseconds of the clock), `what` happens to `whom`; smaller priorities first."""

    when: int
    priority: int
    what: str
    whom: str
    detail: Mapping[str, int]


class Agenda:
    """Entries in the order in which they happen; each is handed to the method of its name."""

    def __init__(self, clock: ManualClock, methods: Mapping[str, Callable[..., None]]) -> None:
        self.events = Events(clock)
        self.methods = methods
        self._entries: dict[int, Entry] = {}

    def now(self) -> int:
        """Return the time of the clock."""
        return self.events.now()

    def next_time(self) -> int | None:
        """Return when the next entry happens."""
        return self.events.next_time()

    def add(self, when: int, priority: int, what: str, whom: str, **detail: int) -> Event:
        """Put something down; what comes back can be cancelled."""
        entry = Entry(when, priority, what, whom, detail)

        def happen() -> None:
            del self._entries[event.number]
            self.methods[what](whom, **detail)

        event = self.events.at(when, happen, priority=priority)
        self._entries[event.number] = entry
        return event

    def cancel(self, event: Event | None) -> None:
        """Forget something that was to come; None, or what has happened already, is nothing."""
        if event is not None and not event.cancelled:
            event.cancel()
            del self._entries[event.number]

    def happen(self, when: int) -> None:
        """Let everything up to an instant happen."""
        self.events.run(when)

    def entries(self) -> Sequence[Entry]:
        """Return what is to come, in its order."""
        listed = sorted(self._entries.items(), key=lambda item: (*item[1][:2], item[0]))
        return [entry for _, entry in listed]
