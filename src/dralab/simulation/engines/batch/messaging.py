"""Batsim's internal messages, which take time: its server handles them one by one.

Batsim's actors (one that submits a workload, one for each job, one for each question to the
scheduler) send messages of one byte across the platform to the server, which sits on the master
host. The server takes them in the order in which they were sent, and the next one begins its way
when the one before it has arrived. It asks the scheduler when it has news, the scheduler has
answered before, and no other message waits. So jobs start 60 µs to some milliseconds after a
decision, and news of one instant may come in several questions.

Source: the output files of Batsim 4.2.1; its documentation of the protocol.
"""

from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final, Protocol

from dralab.kernel.clock import SECOND
from dralab.kernel.events import DECIDING, ENDING, Events
from dralab.simulation.engines.batch.messages import Decision, SchedulerReply
from dralab.simulation.platforms.network import Network
from dralab.simulation.platforms.platform import Host, Platform

AFTER_ALL: Final = DECIDING + 1  # else that happens at the same instant
BYTE: Final = 1.0  # what every message has
Call = Callable[[], None]


class DecisionHandler(Protocol):
    """What the server does with messages."""

    def ask(self) -> SchedulerReply | None:
        """Ask the scheduler for decisions about the events; None if there are none."""
        ...

    def carry_out(self, decision: Decision) -> None:
        """Carry out decisions."""
        ...


class BatsimServer:
    """The mailbox of the server, and its conversation with the scheduler."""

    def __init__(self, events: Events, platform: Platform, served: DecisionHandler) -> None:
        self._events = events
        self._platform = platform
        self._network = Network(platform)
        self._served = served
        self._waiting: deque[tuple[Host, Call | None, Call | None]] = deque()
        self._on_its_way = False
        self._ready = False
        self._delays: dict[str, int] = {}

    def send(self, sender: Host | None, heard: Call | None, sent: Call | None = None) -> None:
        """Send a message from a host (None: the master) to the server.

        When it arrives, the server does `heard`, and the sender goes on with `sent`.
        """
        self._waiting.append((sender or self._master, heard, sent))
        if not self._on_its_way:
            self._deliver()

    def begin(self, answer: SchedulerReply) -> None:
        """Handle the answer to the first message."""
        self._hear(answer)

    @property
    def _master(self) -> Host:
        return self._platform.hosts[self._platform.master]

    def _deliver(self) -> None:
        sender, heard, sent = self._waiting.popleft()
        self._on_its_way = True
        delay = self._delay(sender)
        self._events.after(
            delay,
            partial(self._delivered, heard, sent),
            # What arrives was sent before what happens at that instant, unless no time passed.
            priority=ENDING if delay else AFTER_ALL,
        )

    def _delivered(self, heard: Call | None, sent: Call | None) -> None:
        if heard is not None:
            heard()
        if self._ready and not self._waiting:
            self._turn()
        if sent is not None:
            sent()
        self._on_its_way = False
        if self._waiting:
            self._deliver()

    def _turn(self) -> None:
        answer = self._served.ask()
        if answer is not None:
            self._ready = False
            self._events.after(0, partial(self._hear, answer), priority=DECIDING)

    def _hear(self, answer: SchedulerReply) -> None:
        """Carry out the decisions of an answer, each at its time and after the one before."""
        self._pass_on(answer.decisions, 0, answer.busy_until)

    def _pass_on(self, decisions: Sequence[Decision], done: int, until: int | None) -> None:
        now = self._events.now()
        if done == len(decisions):
            self._events.at(max(now, until or now), partial(self.send, None, self._becomes_ready))
            return
        decision = decisions[done]
        at = max(now, getattr(decision, "at", None) or now)
        heard = partial(self._served.carry_out, decision)
        following = partial(self._pass_on, decisions, done + 1, until)
        if at > now:
            self._events.at(at, partial(self.send, None, heard, following))
        else:
            self.send(None, heard, following)

    def _becomes_ready(self) -> None:
        self._ready = True

    def _delay(self, sender: Host) -> int:
        found = self._delays.get(sender.name)
        if found is None:
            moved = self._network.transfer([(sender, self._master, BYTE)])
            found = round((moved.sending + moved.latency) * SECOND)
            self._delays[sender.name] = found
        return found
