"""The run without faults as faults are aimed at it: requests, events, changes, the user's steps."""

from bisect import bisect_right
from collections import Counter
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from dralab.apiserver.storage import Change
from dralab.kernel.clock import SECOND

RequestPlace = tuple[str, str, str]
"""(program, verb, resource): `("operator", "update/status", "pods")`."""
# So long after the script most has happened that follows its last step.
AT_REST: Final = 10 * SECOND
# Written all the time, whatever the user does.
BACKGROUND: Final = ("leases", "events")


class Occurrence(NamedTuple):
    """The `nth` request or event of its place; `revision` is the change, 0 if there is none."""

    program: str
    verb: str
    resource: str
    nth: int
    at: int
    revision: int = 0
    is_event: bool = False


class ObservedChange(NamedTuple):
    """A change of the store, and who made it: a program, `user`, or empty for the cluster."""

    at: int
    change: Change
    author: str

    @property
    def resource(self) -> str:
        """The collection, as programs ask for it."""
        return collection(self.change.key.resource)

    @property
    def revision(self) -> int:
        """The revision of the change."""
        return self.change.revision


@dataclass(slots=True)
class ObservedTraffic:
    """The requests of programs in the run without faults: where faults can be triggered.

    `earlier` counts the changes of each collection before the programs start.
    """

    requests: Counter[RequestPlace] = field(default_factory=Counter)
    events: Counter[tuple[str, str]] = field(default_factory=Counter)
    lists: Counter[tuple[str, str]] = field(default_factory=Counter)
    duration: int = 0
    occurrences: list[Occurrence] = field(default_factory=list)
    changes: list[ObservedChange] = field(default_factory=list)
    earlier: Counter[str] = field(default_factory=Counter)
    steps: list[int] = field(default_factory=list)

    @property
    def programs(self) -> list[str]:
        """The programs that ask the server for something."""
        return sorted({place[0] for place in self.requests} | {place[0] for place in self.events})

    def stage(self, at: int) -> int:
        """Return how many steps of the user were done at a time."""
        return bisect_right(self.steps, at)

    def settled(self, stage: int, margin: int) -> int:
        """Return the time shortly before the next step: what follows a step has happened."""
        if stage < len(self.steps):
            return max(self.steps[stage] - margin, 0)
        return self.duration + AT_REST


def collection(hub: str) -> str:
    """Return how programs name a collection of the store.

    >>> collection("apps/deployments"), collection("pods")
    ('deployments.apps', 'pods')
    """
    group, slash, plural = hub.rpartition("/")
    return f"{plural}.{group}" if slash else plural
