"""Future events as data, so that a run can be saved and resumed."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from dralab.kernel.events import Event, Events


class AgendaEntry(NamedTuple):
    """At `when` (nanoseconds of the clock), `what` happens to `whom`; lower priorities first."""

    when: int
    priority: int
    what: str
    whom: str
    detail: Mapping[str, int]


class Agenda:
    """Entries in the order in which they happen; each is passed to the method of its name."""

    def __init__(self, events: Events) -> None:
        self.events = events
        # Returns the time of the clock.
        self.now: Callable[[], int] = events.clock.now
        self.methods: dict[str, Callable[..., None]] = {}

    def next_time(self) -> int | None:
        """Return when the next entry happens."""
        return self.events.next_time()

    def schedule(self, when: int, priority: int, what: str, whom: str, **detail: int) -> Event:
        """Schedule an entry; the result can be cancelled."""
        return self.events.at(when, _Due(self, what, whom, detail or None), priority=priority)

    def cancel(self, event: Event | None) -> None:
        """Cancel an entry; None, or one that has happened already, is ignored."""
        if event is not None:
            event.cancel()

    def happen(self, when: int) -> None:
        """Run everything up to an instant."""
        self.events.run(when)

    def entries(self) -> Sequence[AgendaEntry]:
        """Return future entries, in order."""
        return [
            AgendaEntry(event.when, event.priority, due.what, due.whom, due.detail or {})
            for event in self.events.pending()
            if isinstance(due := event.call, _Due)
        ]


@dataclass(slots=True)
class _Due:
    """The call of an entry: an object and not a closure, so that a run can be saved."""

    agenda: Agenda
    what: str
    whom: str
    detail: Mapping[str, int] | None

    def __call__(self) -> None:
        method = self.agenda.methods[self.what]
        if self.detail is None:
            method(self.whom)
        else:
            method(self.whom, **self.detail)
