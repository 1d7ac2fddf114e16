"""Future events as data, so that a run can be saved and resumed."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from dralab.kernel.events import Event, Events


class AgendaEntry(NamedTuple):
    """At `when` (nanoseconds of the clock), `what` happens to `whom`; smaller priorities first."""

    when: int
    priority: int
    what: str
    whom: str
    detail: Mapping[str, int]


class Agenda:
    """Entries in the order in which they happen; each is passed to the method of its name."""

    def __init__(self, events: Events) -> None:
        self.events = events
        self.methods: dict[str, Callable[..., None]] = {}
        self._entries: dict[int, AgendaEntry] = {}

    def now(self) -> int:
        """Return the time of the clock."""
        return self.events.now()

    def next_time(self) -> int | None:
        """Return when the next entry happens."""
        return self.events.next_time()

    def schedule(self, when: int, priority: int, what: str, whom: str, **detail: int) -> Event:
        """Schedule an entry; the result can be cancelled."""
        due = _Due(self)
        event = self.events.at(when, due, priority=priority)
        due.number = event.number
        self._entries[event.number] = AgendaEntry(when, priority, what, whom, detail)
        return event

    def cancel(self, event: Event | None) -> None:
        """Cancel an entry; None, or one that has happened already, is ignored."""
        if event is not None and not event.cancelled:
            event.cancel()
            del self._entries[event.number]

    def happen(self, when: int) -> None:
        """Run everything up to an instant."""
        self.events.run(when)

    def entries(self) -> Sequence[AgendaEntry]:
        """Return future entries, in order."""
        listed = sorted(self._entries.items(), key=lambda item: (*item[1][:2], item[0]))
        return [entry for _, entry in listed]

    def hand_over(self, number: int) -> None:
        """Run an entry."""
        entry = self._entries.pop(number)
        self.methods[entry.what](entry.whom, **entry.detail)


@dataclass(slots=True)
class _Due:
    """The call of an entry; an object and not a closure, so that a run can be saved."""

    agenda: Agenda
    number: int = 0

    def __call__(self) -> None:
        self.agenda.hand_over(self.number)
