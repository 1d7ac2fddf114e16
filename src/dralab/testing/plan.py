"""The faults of one running trial: counts requests and events, and triggers faults."""

from collections import Counter
from collections.abc import Callable, Iterable

from dralab.testing.faults import EVENT, FAULTS, LIST, TIME, PlannedFault
from dralab.testing.places import ObservedTraffic, Occurrence


class FaultPlan:
    """A schedule of faults and the counts that trigger them.

    `fired` are those that happened. After `end` nothing happens any more. `now` is the time since
    the trial's begin.
    """

    def __init__(
        self, faults: Iterable[PlannedFault] = (), now: Callable[[], int] = lambda: 0
    ) -> None:
        self.faults = tuple(faults)
        self._now = now
        self.traffic = ObservedTraffic()
        self.fired: list[PlannedFault] = []
        self.active = True
        self._requests: dict[tuple[str, str, str, int], PlannedFault] = {}
        self._events: dict[tuple[str, str, int], PlannedFault] = {}
        self._lists: dict[tuple[str, str, int], PlannedFault] = {}
        self._lasting: list[tuple[int, PlannedFault]] = []
        self._disturbed_until = -1
        self.timed: list[PlannedFault] = []
        for each in self.faults:
            trigger = FAULTS[each.fault].trigger
            if trigger == TIME:
                self.timed.append(each)
            elif trigger == EVENT:
                self._events.setdefault((each.program, each.resource, each.nth), each)
            elif trigger == LIST:
                self._lists.setdefault((each.program, each.resource, each.nth), each)
            else:
                place = (each.program, each.verb, each.resource, each.nth)
                self._requests.setdefault(place, each)

    def end(self) -> None:
        """Stop all faults."""
        self.active = False
        self._lasting.clear()

    def begin(self, fault: PlannedFault, now: int) -> None:
        """Begin a lasting fault."""
        self._lasting.append((now + fault.duration, fault))
        self.disturb(now + fault.duration)

    def disturb(self, until: int) -> None:
        """Record that programs may have a reason to exit until then."""
        self._disturbed_until = max(self._disturbed_until, until)

    def disturbed_since(self, when: int) -> bool:
        """Return whether programs had a reason to exit at that time or later."""
        return self._disturbed_until >= when

    def refusal(self, program: str, verb: str, resource: str, now: int) -> PlannedFault | None:
        """Return the lasting fault that refuses a request, or None."""
        if not self._lasting:
            return None
        self._lasting = [(until, fault) for until, fault in self._lasting if until > now]
        place = (program, verb, resource)
        for _, fault in self._lasting:
            if fault.program not in {program, ""}:
                continue
            if fault.fault != "deny" or (fault.program, fault.verb, fault.resource) == place:
                return fault
        return None

    def at_request(self, program: str, verb: str, resource: str) -> PlannedFault | None:
        """Count a request; return its fault."""
        place = (program, verb, resource)
        self.traffic.requests[place] += 1
        nth = self.traffic.requests[place]
        if self.active:
            self.traffic.occurrences.append(Occurrence(*place, nth, self._now()))
        return self._fire(self._requests.get((*place, nth)))

    def committed(self, program: str, verb: str, resource: str, revision: int) -> None:
        """Record which change the last request of a place has made."""
        found = self.traffic.occurrences
        for number in reversed(range(len(found)) if self.active else ()):
            if not found[number].is_event and found[number][:3] == (program, verb, resource):
                found[number] = found[number]._replace(revision=revision)
                return

    def at_event(self, program: str, resource: str, revision: int = 0) -> PlannedFault | None:
        """Count an event of a watch; return its fault."""
        place = (program, resource)
        self.traffic.events[place] += 1
        nth = self.traffic.events[place]
        if self.active:
            seen = Occurrence(program, "watch", resource, nth, self._now(), revision, is_event=True)
            self.traffic.occurrences.append(seen)
        return self._fire(self._events.get((*place, nth)))

    def at_first_list(self, program: str, resource: str) -> PlannedFault | None:
        """Count the first list of a kind after a start; return how old it is."""
        place = (program, resource)
        self.traffic.lists[place] += 1
        return self._fire(self._lists.get((*place, self.traffic.lists[place])))

    def fire(self, fault: PlannedFault) -> bool:
        """Record a timed fault; False if faults have stopped."""
        return self._fire(fault) is not None

    def _fire(self, fault: PlannedFault | None) -> PlannedFault | None:
        if fault is None or not self.active:
            return None
        self.fired.append(fault)
        return fault


class FaultCoverage:
    """How often each fault happened at each place, over many trials."""

    def __init__(self) -> None:
        self.counts: Counter[tuple[str, str, str]] = Counter()

    def count(self, fired: Iterable[PlannedFault]) -> None:
        """Add the faults of a trial."""
        for fault in fired:
            self.counts[fault.program, fault.place, fault.fault] += 1

    def rows(self) -> list[tuple[str, str, str, int]]:
        """Return (program, place, fault, count), sorted."""
        return [(*place, count) for place, count in sorted(self.counts.items())]
