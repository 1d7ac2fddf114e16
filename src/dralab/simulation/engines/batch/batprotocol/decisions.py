"""Decisions of a component: from batprotocol to protocol 4, and back."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from dralab.scenarios.errors import DecisionError
from dralab.simulation.engines.batch import protocol
from dralab.simulation.engines.batch.batprotocol import profiles
from dralab.simulation.engines.batch.batprotocol.spelling import Message, event

UNITS: Final[Mapping[str, float]] = {"Second": 1.0, "Millisecond": 1e-3}
REFUSED: Final[Mapping[str, str]] = {
    "CreateProbeEvent": "probes are not simulated",
    "TriggerProbeEvent": "probes are not simulated",
    "StopProbeEvent": "probes are not simulated",
    "ResetProbeEvent": "probes are not simulated",
    "TurnOnOffHostsEvent": "hosts are switched by their pstates: ChangeHostsPStateEvent",
    "ForceSimulationStopEvent": "a run ends when its jobs have; `stop` of a scenario ends it early",
}


@dataclass(slots=True)
class _Call:
    """A call that a component requested; with a `period` it repeats `left` times."""

    due: float
    period: float = 0.0
    left: int | None = 1


@dataclass(slots=True)
class RequestedCalls:
    """The calls that a component asked for, by their ids. Times are seconds."""

    calls: dict[str, _Call] = field(default_factory=dict)

    def ask(self, value: Mapping[str, Any], now: float) -> float:
        """Record a CallMeLaterEvent; return when it is due."""
        when = value.get("when") or {}
        unit = UNITS[when.get("time_unit", "Second")]
        match value.get("when_type"):
            case "OneShot":
                call = _Call(when["time"] * unit)
            case "Periodic":
                finite = when.get("mode_type") == "FinitePeriodNumber"
                left = int(when["mode"]["nb_periods"]) if finite else None
                call = _Call(when["offset"] * unit, when["period"] * unit, left)
                if not call.period > 0:
                    raise DecisionError("asked for periodic calls with a period of 0")
                while call.due < now:
                    call.due += call.period
            case other:
                raise DecisionError(f"asked for a call with the trigger {other}")
        if call.due < now:
            raise DecisionError(f"asked for a call at {call.due:g} s, which was before {now:g} s")
        self.calls[str(value["call_me_later_id"])] = call
        return call.due

    def stop(self, key: str) -> None:
        """Forget a call."""
        self.calls.pop(key, None)

    def due(self, now: float) -> tuple[list[str], list[float]]:
        """Return the ids of the due calls, and when periodic ones are due again."""
        found = [key for key, call in self.calls.items() if call.due <= now + 1e-9]
        again = []
        for key in found:
            call = self.calls[key]
            call.left = None if call.left is None else call.left - 1
            if call.period and call.left != 0:
                call.due += call.period
                again.append(call.due)
            else:
                del self.calls[key]
        return found, again


# --- to protocol 4: we are Batsim -----------------------------------------------------------------


def as_protocol_4(
    message: Mapping[str, Any], calls: RequestedCalls, now: float
) -> protocol.Message:
    """Return a component's reply as one of protocol 4; DecisionError if it is not understood."""
    events = []
    for one in message.get("events") or []:
        kind, value = str(one["event_type"]), one.get("event") or {}
        try:
            found = [
                {"timestamp": one["timestamp"], "type": name, "data": data}
                for name, data in _as_protocol_4(kind, value, calls, now)
            ]
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            if isinstance(error, DecisionError):
                raise
            raise DecisionError(f"answered with a {kind} that lacks {error}") from None
        events += found
    return {"now": message["now"], "events": events}


def _as_protocol_4(
    kind: str, value: Mapping[str, Any], calls: RequestedCalls, now: float
) -> Iterator[tuple[str, Message]]:
    match kind:
        case "ExecuteJobEvent":
            yield "EXECUTE_JOB", _execute(value)
        case "RejectJobEvent":
            yield "REJECT_JOB", {"job_id": value["job_id"]}
        case "KillJobsEvent":
            yield "KILL_JOB", {"job_ids": value["job_ids"]}
        case "CallMeLaterEvent":
            yield "CALL_ME_LATER", {"timestamp": calls.ask(value, now)}
        case "StopCallMeLaterEvent":
            calls.stop(str(value["call_me_later_id"]))
        case "RegisterProfileEvent":
            given = value["profile"]
            workload, _, name = str(given["id"]).rpartition("!")
            profile = profiles.in_file(given["profile_type"], given["profile"])
            yield (
                "REGISTER_PROFILE",
                {"workload_name": workload, "profile_name": name, "profile": profile},
            )
        case "RegisterJobEvent":
            yield "REGISTER_JOB", _registered(value)
        case "FinishRegistrationEvent":
            yield "NOTIFY", {"type": "registration_finished"}
        case "ChangeHostsPStateEvent":
            state = str(value["pstate"])
            yield "SET_RESOURCE_STATE", {"resources": value["host_ids"], "state": state}
        case _:
            why = REFUSED.get(kind, "it is not a decision of the protocol")
            raise DecisionError(f"answered with {kind}: {why}")


def _execute(value: Mapping[str, Any]) -> Message:
    for part in ("profile_allocation_override", "storage_placement"):
        if value.get(part):
            raise DecisionError(f"executes {value['job_id']} with a {part}, which is not simulated")
    allocation = value["allocation"]
    found: Message = {"job_id": value["job_id"], "alloc": allocation["host_allocation"]}
    if allocation.get("executor_placement_type") == "CustomExecutorToHostMapping":
        mapping = allocation["executor_placement"]["mapping"]
        found["mapping"] = {str(rank): str(host) for rank, host in enumerate(mapping)}
    return found


def _registered(value: Mapping[str, Any]) -> Message:
    key, job = str(value["job_id"]), value["job"]
    workload, _, profile = str(job["profile_id"]).rpartition("!")
    if workload and workload != key.partition("!")[0]:
        raise DecisionError(f"registers job {key} with a profile of another workload, {workload}")
    walltime = job.get("walltime") or -1
    found = {"id": key, "res": job["resource_request"], "walltime": walltime, "profile": profile}
    return {"job_id": key, "job": found}


# --- from protocol 4: we are the component --------------------------------------------------------


def of_protocol_4(message: Mapping[str, Any]) -> Message:
    """Return decisions of protocol 4 as those of batprotocol; DecisionError if impossible."""
    now = float(message["now"])
    events = [
        event(float(one["timestamp"]), *_of_protocol_4(one["type"], one["data"]))
        for one in message["events"]
    ]
    return {"now": now, "events": events}


def _of_protocol_4(kind: str, data: Mapping[str, Any]) -> tuple[str, Message]:
    match kind:
        case "EXECUTE_JOB":
            placement: Message = {
                "host_allocation": data["alloc"],
                "executor_placement_type": "PredefinedExecutorPlacementStrategyWrapper",
                "executor_placement": {"strategy": "SpreadOverHostsFirst"},
            }
            return "ExecuteJobEvent", {"job_id": data["job_id"], "allocation": placement}
        case "REJECT_JOB":
            return "RejectJobEvent", {"job_id": data["job_id"]}
        case "KILL_JOB":
            return "KillJobsEvent", {"job_ids": data["job_ids"]}
        case "CALL_ME_LATER":
            # Whole milliseconds: never early.
            time = -int(-float(data["timestamp"]) * 1000 // 1)
            when = {"time": time, "time_unit": "Millisecond"}
            key = f"at-{time}-ms"
            value = {"call_me_later_id": key, "when_type": "OneShot", "when": when}
            return "CallMeLaterEvent", value
        case "SET_RESOURCE_STATE":
            return (
                "ChangeHostsPStateEvent",
                {"host_ids": data["resources"], "pstate": int(data["state"])},
            )
        case "NOTIFY" if data.get("type") == "registration_finished":
            return "FinishRegistrationEvent", {}
        case _:
            pass
    raise DecisionError(f"{kind} has no form in Batsim 5", scheduler="dralab")
