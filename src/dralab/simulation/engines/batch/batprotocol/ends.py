"""Both ends of a batprotocol socket (extra: zeromq).

`RemoteComponent` is Batsim's end: its first message is binary, the size of some data for the
component and these data; the reply begins with four bytes that say in which form messages come.
`serve` is the component's end: a built-in scheduler that a real Batsim 5 asks.
"""

import struct
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Final

from dralab import __version__
from dralab.scenarios.errors import DecisionError
from dralab.simulation.engines.batch import protocol
from dralab.simulation.engines.batch.batprotocol import decisions, events, spelling
from dralab.simulation.engines.batch.decision_process import DecisionProcess
from dralab.simulation.engines.batch.engine import BatchOptions
from dralab.simulation.engines.batch.messages import (
    BatchEvents,
    JobScheduler,
    SchedulerReply,
    SimulationBegins,
)
from dralab.simulation.engines.batch.remote import ANSWER_TIMEOUT, asking, replying

WORD: Final = struct.Struct("=I")
VERSION: Final = "1.0.0"  # of batprotocol, as the component says it; Batsim writes it down
UNSUPPORTED: Final = (
    "forward_profiles_on_job_submission",
    "forward_profiles_on_jobs_killed",
    "forward_unknown_external_events",
)


class RemoteComponent:
    """An external decision component behind a socket; a scheduler to the engine.

    It has been greeted when this is made: `hello` is what it said of itself.
    """

    def __init__(
        self, endpoint: str, *, data: str = "", answer_timeout: float = ANSWER_TIMEOUT
    ) -> None:
        self._ask_raw, self._close = asking(endpoint, answer_timeout)
        given = data.encode()
        raw = self._ask_raw(WORD.pack(len(given)) + given)
        if len(raw) < WORD.size:
            raise DecisionError("answered the first message without its flags")
        (flags,) = WORD.unpack_from(raw)
        if flags not in spelling.FORMS.values():
            raise DecisionError(
                f"wants messages in the form {flags}, neither 1 (binary) nor 2 (JSON)"
            )
        self._form = flags
        greeting = spelling.read(raw[WORD.size :], flags, sender="scheduler")
        told = greeting.get("events") or []
        if [one["event_type"] for one in told] != ["EDCHelloEvent"]:
            raise DecisionError("answered the first message with something else than EDCHelloEvent")
        self.hello: Mapping[str, Any] = told[0]["event"]
        self._features: Mapping[str, Any] = self.hello.get("requested_simulation_features") or {}
        for feature in UNSUPPORTED:
            if self._features.get(feature):
                raise DecisionError(f"requests {feature}, which dralab does not do for Batsim 5")
        self._reader = protocol.ReplyReader()
        self._calls = decisions.RequestedCalls()

    def options(self, options: BatchOptions) -> BatchOptions:
        """Return the options of a run with what the component has requested."""
        constraints = self.hello.get("scheduling_constraints") or {}
        acknowledged = bool(self._features.get("acknowledge_dynamic_jobs"))
        return replace(
            options,
            dynamic_jobs=options.dynamic_jobs or bool(self._features.get("dynamic_registration")),
            share_machines=options.share_machines or bool(constraints.get("compute_sharing")),
            settings={**options.settings, "dynamic-jobs-acknowledged": acknowledged},
        )

    def begin(self, beginning: SimulationBegins) -> SchedulerReply | None:
        """Send the first message of the simulation."""
        wanted = bool(self._features.get("forward_profiles_on_simulation_begins"))
        return self._ask(events.beginning(beginning, with_profiles=wanted), [], 0)

    def decide(self, news: BatchEvents) -> SchedulerReply:
        """Ask for decisions, unless the only event is a stopped call."""
        self._reader.learn(news.submitted)
        told = protocol.news(news)
        calls, again = self._calls.due(told["now"])
        found, called = [], False
        for one in told["events"]:
            if one["type"] == "REQUESTED_CALL":
                if called:
                    continue
                called = True
            found += events.of_protocol_4(one, calls)
        if not found and not again:
            return SchedulerReply([])
        return self._ask({"now": told["now"], "events": found}, again, news.now)

    def end(self, now: int) -> None:
        """Send the last message."""
        told = protocol.ending(now)
        ending = [one for each in told["events"] for one in events.of_protocol_4(each, ())]
        self._ask({"now": told["now"], "events": ending}, [], now)
        self._close()

    def _ask(self, message: spelling.Message, again: list[float], now: int) -> SchedulerReply:
        reply: protocol.Message = {"now": message["now"], "events": []}
        if message["events"]:
            raw = self._ask_raw(spelling.written(message, self._form))
            answered = spelling.read(raw, self._form, sender="scheduler")
            reply = decisions.as_protocol_4(answered, self._calls, message["now"])
        reply["events"] += [
            {"timestamp": message["now"], "type": "CALL_ME_LATER", "data": {"timestamp": when}}
            for when in again
        ]
        return self._reader.answer(reply, now)


def serve(
    scheduler: JobScheduler,
    endpoint: str,
    *,
    form: int = spelling.JSON,
    ready: Callable[[str], None] | None = None,
) -> int:
    """Answer a Batsim 5 until its simulation ends; return how many messages there were."""
    with replying(endpoint) as (socket, address):
        if ready is not None:
            ready(address)
        socket.recv()  # data for the component, of which this one needs none
        socket.send(WORD.pack(form) + spelling.written(greeting(scheduler), form))
        side = DecisionProcess(scheduler)
        while not side.over:
            told = spelling.read(socket.recv(), form, sender="Batsim")
            socket.send(spelling.written(answer(side, told), form))
        return side.messages


def greeting(scheduler: JobScheduler) -> spelling.Message:
    """Return the message by which a built-in scheduler introduces itself."""
    hello = {
        "batprotocol_version": VERSION,
        "decision_component_name": f"dralab-{type(scheduler).__name__}",
        "decision_component_version": __version__,
        "decision_component_commit": "",
        "requested_simulation_features": {},
        "scheduling_constraints": {},
    }
    return {"now": 0.0, "events": [spelling.event(0.0, "EDCHelloEvent", hello)]}


def answer(side: DecisionProcess, told: spelling.Message) -> spelling.Message:
    """Return the answer to a message; DecisionError if it is not understood."""
    heard = []
    for one in told.get("events") or []:
        try:
            found = events.as_protocol_4(one)
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            if isinstance(error, DecisionError):
                raise
            kind = one.get("event_type") if isinstance(one, dict) else one
            raise DecisionError(
                f"sent a {kind} that is invalid: {error}", scheduler="Batsim"
            ) from None
        if found is not None:
            heard.append(found)
    return decisions.of_protocol_4(side.reply({"now": told["now"], "events": heard}))
