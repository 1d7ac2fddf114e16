"""The faults that a real cluster can cause, as data, and how a seed chooses them.

A fault has a trigger that counts what the program does: its third create of pods, its fifth event
of a watch, or a time. So a schedule means the same when other faults are left out of it.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, fields
from random import Random
from typing import Any, Final, NamedTuple

from dralab.kernel.clock import SECOND
from dralab.kernel.randomness import Randomness
from dralab.testing.places import ObservedTraffic, RequestPlace

REQUEST: Final = "request"
WRITE: Final = "write"
EVENT: Final = "event"
LIST: Final = "list"
TIME: Final = "time"
PROGRAM: Final = "program"
CLUSTER: Final = "cluster"
NODES: Final = "nodes"


class FaultKind(NamedTuple):
    """A kind of fault: what triggers it, how often it is drawn, what happens, and to whom.

    `text` describes one planned fault, with the words of `PlannedFault.text`. What happens to the
    cluster, or to nodes that a trial has beside the programs, is not aimed at a program.
    """

    trigger: str
    weight: int
    help: str
    text: str
    target: str = PROGRAM


FAULTS: Final[Mapping[str, FaultKind]] = {
    "kill": FaultKind(
        WRITE, 6, "the program is killed before, during or after a write, and restarted",
        "killed {moment} {where}, restarted {lasting} later",
    ),
    "conflict": FaultKind(
        WRITE, 4, "another client writes to the object just before the request arrives",
        "another client writes to the object just before {where}",
    ),
    "lose-answer": FaultKind(
        WRITE, 4, "the write is committed, and its answer is lost",
        "the answer to {where} is lost after it is committed",
    ),
    "late-write": FaultKind(
        WRITE, 2, "the request times out, and is committed later",
        "{where} times out, and is committed {lasting} later",
    ),
    "refuse": FaultKind(
        REQUEST, 3, "the server answers 429, 500, 503 or 504 and does nothing",
        "{where} is answered with {code}",
    ),
    "slow": FaultKind(
        REQUEST, 3, "the request takes long; the rest of the cluster goes on",
        "{where} takes {lasting}",
    ),
    "throttle": FaultKind(
        REQUEST, 2, "all requests are answered with 429 and Retry-After for a while",
        "from {where} on, all its requests are answered with 429 for {lasting}",
    ),
    "deny": FaultKind(
        WRITE, 2, "admission refuses the writes to one kind for a while",
        "from {where} on, a webhook that {denies} refuses these writes for {lasting}",
    ),
    "hold-watch": FaultKind(
        EVENT, 4, "the watch of one kind lags behind",
        "its watch lags by {lasting} from {event} on",
    ),
    "expire-watch": FaultKind(
        EVENT, 3, "the watch misses changes, then ends with 410: list again",
        "its watch misses {lasting} from {event} on, then ends with 410",
    ),
    "end-watch": FaultKind(
        EVENT, 2, "the watch ends; the program lists again",
        "its watch ends at {event}",
    ),
    "stale-list": FaultKind(
        LIST, 2, "the first list of a start comes from a cache that lags behind",
        "its list of {resource} at start {nth} is {age}, and stays so for {lasting}",
    ),
    "restart": FaultKind(
        TIME, 5, "the program is killed between two of its steps, and restarted",
        "killed at {start}, restarted {lasting} later",
    ),
    "pause": FaultKind(
        TIME, 3, "the program stands still, and comes back",
        "stands still from {start} for {lasting}",
    ),
    "skew": FaultKind(
        TIME, 1, "the clock of the program is wrong",
        "its clock is {lasting} ahead",
    ),
    "expire-credentials": FaultKind(
        TIME, 2, "the token or certificate has expired: 401 until it is new",
        "its credentials expire at {start}: 401 for {lasting}",
    ),
    "outage": FaultKind(
        TIME, 2, "the API server cannot be reached; watches end",
        "the API server cannot be reached from {start} for {lasting}", CLUSTER,
    ),
    "delete-pod": FaultKind(
        TIME, 2, "another client deletes a pod that a controller owns",
        "another client deletes an owned pod at {start}", CLUSTER,
    ),
    "out-of-memory": FaultKind(
        TIME, 2, "a container is killed for its memory (OOMKilled), and restarted",
        "a container is killed for its memory at {start}", NODES,
    ),
    "node-down": FaultKind(
        TIME, 2, "a node loses power, and comes back",
        "a node loses power at {start} for {lasting}", NODES,
    ),
    "driver-down": FaultKind(
        TIME, 2, "the driver of a node is gone for a while: no claim is prepared",
        "a driver is gone from {start} for {lasting}", NODES,
    ),
}  # fmt: skip
OF_CLUSTER: Final = frozenset(name for name in FAULTS if FAULTS[name].target != PROGRAM)
OF_NODES: Final = frozenset(name for name in FAULTS if FAULTS[name].target == NODES)
READS: Final = frozenset({"get", "list", "watch"})
RESTARTS: Final = frozenset({"kill", "restart"})
# A node that is silent for 40 s is not ready; after 5 minutes more its pods are evicted.
DOWN: Final = (10 * SECOND, 60 * SECOND, 400 * SECOND)
# So long after the script a fault may begin: before it is judged whether all is at rest.
AFTERWARDS: Final = 20 * SECOND
DURATIONS: Final = (SECOND // 20, SECOND // 2, 2 * SECOND, 5 * SECOND, 15 * SECOND, 40 * SECOND)
CODES: Final = (429, 500, 503, 504)
# A webhook that denies a write, and one that cannot be called (failurePolicy Fail).
DENIALS: Final = (403, 500)
KILL_MOMENTS: Final = ("before", "during", "after")
# A list that is so old still has what was deleted last: the view that does most harm.
DELETION: Final = "deletion"
DEFAULT_MOST: Final = 6
# What another client writes in a conflict: an annotation that no program reads.
TOUCHED: Final = "dralab.dev/touched"


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedFault:
    """One fault and its trigger; times in nanoseconds since the trial's begin.

    >>> print(
    ...     PlannedFault(
    ...         fault="kill",
    ...         program="op",
    ...         verb="create",
    ...         resource="pods",
    ...         nth=3,
    ...         moment="after",
    ...         duration=2 * SECOND,
    ...     )
    ... )
    op: killed after its create of pods (3rd), restarted 2s later
    """

    fault: str
    program: str = ""
    verb: str = ""
    resource: str = ""
    nth: int = 0
    at: int = 0
    duration: int = 0
    code: int = 0
    behind: int = 0
    moment: str = ""

    def as_json(self) -> dict[str, Any]:
        """Return the fields that are set."""
        return {each.name: value for each in fields(self) if (value := getattr(self, each.name))}

    @classmethod
    def of(cls, found: Mapping[str, Any]) -> "PlannedFault":
        """Return the fault of its JSON. ValueError, TypeError: a field or a value is wrong."""
        known = {each.name: each.type for each in fields(cls)}
        for name, value in found.items():
            if name not in known:
                raise ValueError(f"field {name!r} is unknown; known: {', '.join(known)}")
            wanted = str if known[name] in {str, "str"} else int
            if not isinstance(value, wanted) or isinstance(value, bool):
                raise TypeError(f"field {name!r} must be of type {wanted.__name__}: {value!r}")
        if found.get("fault") not in FAULTS:
            raise ValueError(f"fault {found.get('fault')!r} is unknown; known: {', '.join(FAULTS)}")
        return cls(**found)

    @property
    def place(self) -> str:
        """What it is aimed at, as coverage counts it."""
        return f"{self.verb} {self.resource}".strip() or "-"

    def __str__(self) -> str:
        return f"{self.program}: {self.text}" if self.program else self.text

    @property
    def text(self) -> str:
        """The description, without the program."""
        return FAULTS[self.fault].text.format_map(
            {
                "where": f"its {self.verb} of {self.resource} ({_ordinal(self.nth)})",
                "event": f"event {self.nth} of {self.resource}",
                "start": _seconds(self.at),
                "lasting": _seconds(self.duration),
                "denies": "denies them" if self.code == DENIALS[0] else "cannot be called",
                "age": self._age,
                **{name: getattr(self, name) for name in ("moment", "code", "resource", "nth")},
            }
        )

    @property
    def _age(self) -> str:
        """How old a list is."""
        if self.moment == DELETION:
            return "from before the last deletion"
        return f"{self.behind} changes old"


def draw(
    seed: int,
    traffic: ObservedTraffic,
    *,
    allowed: Collection[str] = tuple(FAULTS),
    most: int = DEFAULT_MOST,
    cached_lists: Collection[str] = (),
) -> list[PlannedFault]:
    """Return the schedule of a seed: one to `most` faults; none where nothing can be triggered.

    `cached_lists` are the programs whose first lists may be old, as of informers.
    """
    randomness = Randomness(seed)
    chance = randomness.stream("faults")
    drawer = _Drawer(chance, randomness.stream("ages"), traffic, frozenset(cached_lists))
    names = [name for name in FAULTS if name in allowed and drawer.can(name)]
    if not names:
        return []
    weights = [FAULTS[name].weight for name in names]
    wanted = min(most, 1 + int(chance.expovariate(0.5)))
    found: list[PlannedFault] = []
    while len(found) < wanted:
        name = chance.choices(names, weights)[0]
        found += drawer.draw(name)
        # A restart is where a stale list is seen.
        if name in RESTARTS and "stale-list" in names and chance.random() < 0.6:
            found += drawer.stale_lists(found)
    return found


class _Drawer:
    """Draws faults of each name at the places that the traffic has."""

    def __init__(
        self,
        chance: Random,
        ages: Random,
        traffic: ObservedTraffic,
        cached: frozenset[str],
    ) -> None:
        self.chance = chance
        self.ages = ages
        self.programs = traffic.programs
        self.duration = traffic.duration
        self.counts = traffic.requests
        self.events = traffic.events
        self.requests = sorted(traffic.requests)
        self.writes = [place for place in self.requests if place[1] not in READS]
        self.seen = sorted(traffic.events)
        self.lists = sorted(place for place in traffic.lists if place[0] in cached)

    def can(self, name: str) -> bool:
        """Return whether there is a place for a fault."""
        places: Mapping[str, Sequence[Any]] = {
            REQUEST: self.requests,
            WRITE: self.writes if name != "conflict" else self._edits(),
            EVENT: self.seen,
            LIST: self.lists,
            TIME: self.programs,
        }
        return bool(places[FAULTS[name].trigger])

    def stale_lists(self, found: Sequence[PlannedFault]) -> list[PlannedFault]:
        """Return old lists for the start after the last of some faults."""
        program = found[-1].program
        start = 1 + sum(each.program == program and each.fault in RESTARTS for each in found)
        duration = self.chance.choice(DURATIONS[2:])
        return [
            PlannedFault(
                fault="stale-list",
                program=program,
                verb="list",
                resource=resource,
                nth=start,
                behind=1 + int(self.chance.expovariate(0.2)),
                moment=self._age(),
                duration=duration,
            )
            for who, resource in self.lists
            if who == program and self.chance.random() < 0.7
        ]

    def draw(self, name: str) -> list[PlannedFault]:
        """Return a fault of that name, at most one."""
        chance = self.chance
        duration = chance.choice(DURATIONS)
        trigger = FAULTS[name].trigger
        if trigger == LIST:
            program, resource = chance.choice(self.lists)
            return [
                PlannedFault(
                    fault=name, program=program, verb="list", resource=resource,
                    nth=chance.choice((1, 2, 2, 2, 3)), behind=1 + int(chance.expovariate(0.2)),
                    moment=self._age(), duration=duration,
                )
            ]  # fmt: skip
        if trigger == EVENT:
            who, resource = place = chance.choice(self.seen)
            return [
                PlannedFault(
                    fault=name, program=who, verb="watch", resource=resource,
                    nth=self._nth(self.events[place]), duration=duration,
                )
            ]  # fmt: skip
        if trigger == TIME:
            return [
                PlannedFault(
                    fault=name,
                    program="" if name in OF_CLUSTER else chance.choice(self.programs),
                    at=0 if name == "skew" else self._when(),
                    # Of the cluster's things, which one.
                    nth=chance.randrange(1, 61) if name in OF_CLUSTER - {"outage"} else 0,
                    duration=chance.choice(DOWN) if name == "node-down" else duration,
                )
            ]
        places3 = self.requests if trigger == REQUEST else self.writes
        if name == "conflict":
            places3 = self._edits()
        who, verb, resource = place3 = chance.choice(places3)
        return [
            PlannedFault(
                fault=name, program=who, verb=verb, resource=resource,
                nth=self._nth(self.counts[place3]), duration=duration,
                code=chance.choice({"refuse": CODES, "deny": DENIALS}.get(name, (0,))),
                moment=chance.choice(KILL_MOMENTS) if name == "kill" else "",
            )
        ]  # fmt: skip

    def _when(self) -> int:
        """Return a time during the script, or shortly after it."""
        during = self.chance.randrange(1, max(2, self.duration))
        if self.ages.random() < 0.8:
            return during
        return self.duration + self.ages.randrange(1, AFTERWARDS)

    def _age(self) -> str:
        """Return how old a list is: a number of changes, or the time of a deletion."""
        return DELETION if self.ages.random() < 0.5 else ""

    def _edits(self) -> list[RequestPlace]:
        """Return the writes that change an object which exists."""
        return [place for place in self.writes if edits(place[1])]

    def _nth(self, count: int) -> int:
        """Return the number of an occurrence, or a little more: faults cause additional ones."""
        return self.chance.randrange(1, count + count // 4 + 2)


def edits(verb: str) -> bool:
    """Return whether a request changes an object which exists."""
    return verb.partition("/")[0] in {"update", "patch", "delete"}


def _ordinal(number: int) -> str:
    """Return a number as an ordinal.

    >>> [_ordinal(n) for n in (1, 2, 3, 4, 11, 22)]
    ['1st', '2nd', '3rd', '4th', '11th', '22nd']
    """
    if 10 <= number % 100 <= 20:
        return f"{number}th"
    return f"{number}{ {1: 'st', 2: 'nd', 3: 'rd'}.get(number % 10, 'th') }"


def _seconds(nanoseconds: int) -> str:
    return f"{nanoseconds / SECOND:g}s"
