"""The history of a trial: requests, watch events, faults, verdicts."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from dralab.kernel.clock import SECOND
from dralab.runtime.client import Resource
from dralab.testing.faults import READS

# What an entry is about; the timeline colours by it.
REQUEST: Final = "request"
WRITE: Final = "write"
SEEN: Final = "seen"
WITHHELD: Final = "withheld"
FAULT: Final = "fault"
LIFE: Final = "life"
STEP: Final = "step"
VERDICT: Final = "verdict"
# Who carries out the steps of the script.
USER: Final = "user"
# A trial that goes wrong repeats itself; what follows is left out and counted.
MOST_ENTRIES: Final = 50_000


@dataclass(frozen=True, slots=True)
class ProgramRequest:
    """A request as faults and timelines name it; `verb` with its subresource."""

    verb: str
    resource: Resource
    namespace: str = ""
    name: str = ""

    @property
    def plural(self) -> str:
        """The collection, such as `pods` or `widgets.example.com`."""
        return named(self.resource)

    @property
    def writes(self) -> bool:
        """Whether it changes something."""
        return self.verb not in READS

    def __str__(self) -> str:
        place = f"{self.namespace}/{self.name}".strip("/")
        return f"{self.verb} {self.plural} {place}".rstrip()


def named(resource: Resource) -> str:
    """Return a collection's name with its group."""
    return f"{resource.plural}.{resource.group}" if resource.group else resource.plural


@dataclass(frozen=True, slots=True)
class HistoryEntry:
    """One entry; `at` in nanoseconds since the beginning, `revision` 0 without one.

    Of a request of a program under test `request` has verb, resource, namespace and name; `code` is
    that of the refusal, 0 where it was carried out.
    """

    at: int
    who: str
    what: str
    text: str
    revision: int = 0
    request: ProgramRequest | None = None
    code: int = 0


class TrialHistory:
    """The entries of one trial, in order; invariants in Python read them, and timelines show them.

    It iterates over all entries; `of` over those of some kinds.
    """

    def __init__(self, now: Callable[[], int]) -> None:
        self.entries: list[HistoryEntry] = []
        self.left_out = 0
        self._now = now

    def add(
        self,
        who: str,
        what: str,
        text: str,
        revision: int = 0,
        *,
        request: ProgramRequest | None = None,
        code: int = 0,
    ) -> None:
        """Add an entry at the present time."""
        if len(self.entries) >= MOST_ENTRIES and what != VERDICT:
            self.left_out += 1
            return
        self.entries.append(HistoryEntry(self._now(), who, what, text, revision, request, code))

    def __iter__(self) -> Iterator[HistoryEntry]:
        return iter(self.entries)

    def of(self, *what: str, who: str = "") -> Iterator[HistoryEntry]:
        """Yield the entries of some kinds, of one program or of all."""
        for entry in self:
            if entry.what in what and (not who or entry.who == who):
                yield entry

    def __len__(self) -> int:
        return len(self.entries)


def timeline(entries: Sequence[HistoryEntry], *, width: int = 100) -> Iterator[str]:
    """Yield one line for each entry, none longer than `width`.

    >>> for line in timeline([HistoryEntry(2 * SECOND, "op", WRITE, "create pods a", 7)]):
    ...     print(line)
       2.000s  rev 7    op   create pods a
    """
    names = max((len(entry.who) for entry in entries), default=0)
    for entry in entries:
        mark = {FAULT: "! ", WITHHELD: "~ ", LIFE: "* ", VERDICT: "X "}.get(entry.what, "  ")
        revision = f"rev {entry.revision}" if entry.revision else ""
        text = " ".join(entry.text.split())
        line = f"{entry.at / SECOND:8.3f}s  {revision:8} {entry.who:{names}} {mark}{text}"
        yield line if len(line) <= width else line[: width - 1] + "…"


@dataclass(frozen=True, slots=True)
class TrialViolation:
    """One violation: its oracle, and a sentence."""

    oracle: str
    text: str

    def __str__(self) -> str:
        return f"{self.oracle}: {self.text}"
