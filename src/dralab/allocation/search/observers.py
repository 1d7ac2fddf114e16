"""What the search did, for whoever watches it: counts, transcripts, teaching.

The search reads as the steps of its algorithm and tells an observer about them; without one it
tells nobody. Why claims cannot be met is not gathered here but found by `explanation`, which
needs no search for it.
"""

from collections import Counter
from typing import Final, Protocol

from dralab.allocation.problem import DeviceId

# Yes, no, or None: there is no telling.
Answer = bool | None


class Observer(Protocol):
    """Is told about the steps of a search, in their order.

    `request` is as results write it; devices are tried in the order of the search.
    """

    def dead_end(self) -> None:
        """Going straight ahead failed: from here on every choice is asked about."""
        ...

    def passed(self, request: str, device: DeviceId) -> None:
        """A device does not fit what is left, or is like one that failed."""
        ...

    def asked(self, request: str, device: DeviceId, answer: Answer) -> None:
        """The oracle was asked whether the rest can be met if a device is taken."""
        ...

    def taken(self, request: str, device: DeviceId) -> None:
        """A device was taken."""
        ...

    def given_back(self, request: str, device: DeviceId) -> None:
        """A device was given back: the oracle could not tell, and it did not work out."""
        ...


class Silent:
    """Listens to nothing."""

    def dead_end(self) -> None:
        """Say nothing."""

    def passed(self, request: str, device: DeviceId) -> None:
        """Say nothing."""

    def asked(self, request: str, device: DeviceId, answer: Answer) -> None:
        """Say nothing."""

    def taken(self, request: str, device: DeviceId) -> None:
        """Say nothing."""

    def given_back(self, request: str, device: DeviceId) -> None:
        """Say nothing."""


class Counting(Silent):
    """Counts what happened, by name."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()

    def dead_end(self) -> None:
        """Count it."""
        self.counts["dead ends"] += 1

    def passed(self, request: str, device: DeviceId) -> None:  # noqa: ARG002 - only counted
        """Count it."""
        self.counts["passed"] += 1

    def asked(self, request: str, device: DeviceId, answer: Answer) -> None:  # noqa: ARG002
        """Count it."""
        self.counts["asked"] += 1

    def taken(self, request: str, device: DeviceId) -> None:  # noqa: ARG002 - only counted
        """Count it."""
        self.counts["taken"] += 1

    def given_back(self, request: str, device: DeviceId) -> None:  # noqa: ARG002 - only counted
        """Count it."""
        self.counts["given back"] += 1


class Transcript(Silent):
    """Writes one line for every step."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def dead_end(self) -> None:
        """Write it down."""
        self.lines.append("a dead end: from here on ask about every choice")

    def passed(self, request: str, device: DeviceId) -> None:
        """Write it down."""
        self.lines.append(f"{request}: {device} is passed over")

    def asked(self, request: str, device: DeviceId, answer: Answer) -> None:
        """Write it down."""
        words = {True: "yes", False: "no", None: "cannot tell"}[answer]
        self.lines.append(f"{request}: with {device} the rest can be met: {words}")

    def taken(self, request: str, device: DeviceId) -> None:
        """Write it down."""
        self.lines.append(f"{request}: {device} is taken")

    def given_back(self, request: str, device: DeviceId) -> None:
        """Write it down."""
        self.lines.append(f"{request}: {device} is given back")


SILENT: Final = Silent()
