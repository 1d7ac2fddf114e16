"""The interfaces between a trial and its parts, and the exceptions that end a trial."""

from typing import Protocol

from dralab.apiserver.server import ApiServer
from dralab.apiserver.storage import Key
from dralab.runtime.client import Client, Resource
from dralab.runtime.local import LocalClient
from dralab.runtime.simulated import SimulatedEngine
from dralab.testing.faults import PlannedFault
from dralab.testing.history import TrialHistory
from dralab.testing.plan import FaultPlan


class ProgramKilled(BaseException):
    """The process was killed, as by kill -9."""


class TrialEnded(BaseException):
    """The trial has ended, by a limit or a violation; programs must not catch it."""


class RequestingProcess(Protocol):
    """The process that sends a request."""

    name: str
    program: str

    def die(self, down: int) -> None:
        """End at once, and start again."""
        ...

    def wait(self, duration: int) -> None:
        """Let time pass within a request. ProgramKilled, TrialEnded."""
        ...

    def check_alive(self, incarnation: int) -> None:
        """ProgramKilled: the incarnation is over."""
        ...


class TrialSurroundings(Protocol):
    """A trial, as its programs see it."""

    engine: SimulatedEngine
    server: ApiServer
    plan: FaultPlan
    history: TrialHistory
    seed: int
    latency: int
    """How long an event of a watch takes to a program, in nanoseconds."""

    @property
    def user(self) -> Client:
        """A client whose requests have no faults."""
        ...

    @property
    def acting(self) -> RequestingProcess | None:
        """The process under test whose event happens now, or None."""
        ...

    @acting.setter
    def acting(self, process: RequestingProcess | None) -> None: ...

    def client_for(self, agent: str) -> LocalClient:
        """Return a client of the server, without faults."""
        ...

    def pass_time(self, duration: int) -> None:
        """Run all events of the next `duration` nanoseconds. TrialEnded."""
        ...

    def note_start(self) -> None:
        """Record a program's start: its lists then are not a hot loop."""
        ...

    def revision_of(self, resource: Resource, old: PlannedFault) -> int:
        """Return the revision that an old list of a collection has; 0: it had none."""
        ...

    def answered(self, program: str, request: str) -> None:
        """Note that a request was carried out: it is not due any more."""
        ...

    def refused(self, program: str, request: str, code: int) -> None:
        """Count a request of a program that was refused; a client sends some of them again."""
        ...

    def has_to_itself(self, key: Key) -> bool:
        """Return whether a program made an object, and no other program wrote to it."""
        ...

    def violated(self, oracle: str, text: str) -> None:
        """Note that something is wrong; the trial ends soon."""
        ...
