"""Batsim's two ends of a ZeroMQ socket (extra: zeromq).

`RemoteScheduler` is Batsim's end: it connects, asks, and simulated time stands still until the
answer is there. `serve` is the other end: a built-in scheduler that a real Batsim asks.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final

import orjson

from dralab.kernel.extras import require
from dralab.scenarios.errors import DecisionError
from dralab.simulation.engines.batch import protocol
from dralab.simulation.engines.batch.decision_process import DecisionProcess
from dralab.simulation.engines.batch.messages import (
    BatchEvents,
    JobScheduler,
    SchedulerReply,
    SimulationBegins,
)

DEFAULT: Final = "tcp://localhost:28000"
ANSWER_TIMEOUT: Final = 60.0


class RemoteScheduler:
    """A decision process behind a socket; a scheduler to the engine."""

    def __init__(self, endpoint: str = DEFAULT, *, answer_timeout: float = ANSWER_TIMEOUT) -> None:
        self._ask_raw, self._close = asking(endpoint, answer_timeout)
        self.reader = protocol.ReplyReader()
        self.profiles: dict[str, Any] | None = None

    def begin(self, beginning: SimulationBegins) -> SchedulerReply | None:
        """Send the first message."""
        if beginning.options.get("profiles-forwarded-on-submission"):
            self.profiles = {
                f"{workload.name}!{name}": source
                for workload in beginning.workloads
                for name, source in workload.profile_sources.items()
            }
        return self._ask(protocol.beginning(beginning), 0)

    def decide(self, news: BatchEvents) -> SchedulerReply:
        """Ask for decisions."""
        self.reader.learn(news.submitted)
        return self._ask(protocol.news(news, self.profiles), news.now)

    def end(self, now: int) -> None:
        """Send the last message."""
        self._ask(protocol.ending(now), now)
        self._close()

    def _ask(self, message: protocol.Message, now: int) -> SchedulerReply:
        try:
            reply = orjson.loads(self._ask_raw(orjson.dumps(message)))
        except orjson.JSONDecodeError as error:
            raise DecisionError(f"answered with invalid JSON: {error.msg}") from None
        return self.reader.answer(reply, now)


def serve(
    scheduler: JobScheduler, endpoint: str, *, ready: Callable[[str], None] | None = None
) -> int:
    """Answer a Batsim until its simulation ends; return how many messages there were."""
    with replying(endpoint) as (socket, address):
        if ready is not None:
            ready(address)
        side = DecisionProcess(scheduler)
        while not side.over:
            socket.send(orjson.dumps(side.reply(_loaded(socket.recv()))))
        return side.messages


def asking(
    endpoint: str, answer_timeout: float
) -> tuple[Callable[[bytes], bytes], Callable[[], None]]:
    """Connect; return how to ask (DecisionError: no answer in time), and how to hang up."""
    zmq = _zmq()
    socket = zmq.Context.instance().socket(zmq.REQ)
    socket.setsockopt(zmq.RCVTIMEO, int(answer_timeout * 1000))
    socket.setsockopt(zmq.LINGER, 0)
    socket.connect(endpoint)

    def ask(message: bytes) -> bytes:
        socket.send(message)
        try:
            return bytes(socket.recv())
        except zmq.Again:
            raise DecisionError(f"did not answer on {endpoint}") from None

    return ask, socket.close


@contextmanager
def replying(endpoint: str) -> Iterator[tuple[Any, str]]:
    """Listen; yield the socket and its address. DecisionError: that can't be done."""
    zmq = _zmq()
    socket = zmq.Context.instance().socket(zmq.REP)
    try:
        socket.bind(endpoint)
    except zmq.ZMQError as error:
        raise DecisionError(f"cannot listen on {endpoint}: {error}") from None
    try:
        yield socket, socket.getsockopt_string(zmq.LAST_ENDPOINT)
    finally:
        # The last reply must still leave.
        socket.close(linger=1000)


def _loaded(raw: bytes) -> Any:
    try:
        return orjson.loads(raw)
    except orjson.JSONDecodeError as error:
        raise DecisionError(f"sent invalid JSON: {error.msg}", scheduler="Batsim") from None


def _zmq() -> Any:
    require("zeromq", "a scheduler behind a ZeroMQ socket")
    import zmq

    return zmq
