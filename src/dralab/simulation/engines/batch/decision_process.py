"""The scheduler's side of Batsim's protocol: messages in, decisions out, no socket.

A recorded dialogue replayed here gives the same answers again.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

from dralab.scenarios.errors import DecisionError
from dralab.scenarios.fields import is_number
from dralab.simulation.engines.batch import protocol
from dralab.simulation.engines.batch.messages import (
    BatchEvents,
    JobEnd,
    JobScheduler,
    JobState,
    SimulationBegins,
)
from dralab.simulation.host_sets import parse
from dralab.simulation.json_input import nanoseconds
from dralab.simulation.platforms.platform import Platform, plain
from dralab.simulation.workloads.jobs import Job

# Version 1 had `status`, with other words.
STATES: Final[Mapping[str, JobState]] = {
    "SUCCESS": "COMPLETED_SUCCESSFULLY",
    "TIMEOUT": "COMPLETED_WALLTIME_REACHED",
    "COMPLETED_SUCCESSFULLY": "COMPLETED_SUCCESSFULLY",
    "COMPLETED_FAILED": "COMPLETED_FAILED",
    "COMPLETED_WALLTIME_REACHED": "COMPLETED_WALLTIME_REACHED",
    "COMPLETED_KILLED": "COMPLETED_KILLED",
    "REJECTED": "REJECTED",
}


class DecisionProcess:
    """Answers messages with the decisions of a scheduler."""

    def __init__(self, scheduler: JobScheduler) -> None:
        self.scheduler = scheduler
        self.jobs: dict[str, Job] = {}
        self.held: dict[str, int] = {}
        self.begun = self.over = False
        self.now = 0
        self.messages = 0

    def reply(self, message: Any) -> protocol.Message:
        """Return the reply to a message; DecisionError if it is not one."""
        if not isinstance(message, dict) or not isinstance(message.get("events"), list):
            raise DecisionError("sent an invalid message", scheduler="Batsim")
        now = _time(message.get("now"))
        if now < self.now:
            went = f"from {protocol.seconds(self.now):g} to {protocol.seconds(now):g}"
            raise DecisionError(f"sent a time that goes backwards, {went}", scheduler="Batsim")
        self.now = now
        self.messages += 1
        heard: dict[str, Any] = {}
        for item in message["events"]:
            self._event(heard, item, now)
        if self.over:
            if self.begun:
                self.scheduler.end(now)
            return {"now": message["now"], "events": []}
        if not heard:
            return {"now": message["now"], "events": []}
        if not self.begun:
            raise DecisionError("sent events before SIMULATION_BEGINS", scheduler="Batsim")
        answer = self.scheduler.decide(BatchEvents(now=now, **heard))
        for decision in answer.decisions:
            job, machines = getattr(decision, "job", None), getattr(decision, "machines", 0)
            if job is not None:
                self.held[job.key] = machines
        return protocol.decisions(answer, now)

    def _event(self, heard: dict[str, Any], item: Any, now: int) -> None:
        if not isinstance(item, dict) or not isinstance(item.get("data") or {}, dict):
            raise DecisionError(f"sent {item!r:.80}, which is not an event", scheduler="Batsim")
        kind, data = str(item.get("type")), item.get("data") or {}
        at = _time(item["timestamp"]) if "timestamp" in item else now
        if at > now:
            raise DecisionError(
                f"sent a {kind} of {protocol.seconds(at):g} s at {protocol.seconds(now):g} s",
                scheduler="Batsim",
            )
        try:
            if kind == "SIMULATION_BEGINS":
                if self.begun:
                    raise DecisionError("began twice", scheduler="Batsim")
                self.scheduler.begin(SimulationBegins(platform=_platform(data), workloads=()))
                self.begun = True
            elif kind == "SIMULATION_ENDS":
                self.over = True
            else:
                self._hear(heard, kind, data, at)
        except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
            if isinstance(error, DecisionError):
                raise
            raise DecisionError(
                f"sent a {kind} that is invalid: {error}", scheduler="Batsim"
            ) from None

    def _hear(self, heard: dict[str, Any], kind: str, data: Mapping[str, Any], at: int) -> None:
        def add(field: str, *items: object) -> None:
            heard[field] = (*heard.get(field, ()), *items)

        match kind:
            case "JOB_SUBMITTED":
                job = protocol.job_of(str(data["job_id"]), data.get("job") or {}, at)
                # The protocol counts from the submission, whatever the file said.
                self.jobs[str(data["job_id"])] = job = replace(job, submitted=at)
                add("submitted", job)
            case "JOB_COMPLETED":
                add("ended", self._ended(data, at))
            case "JOB_KILLED":
                known = (self.jobs[key] for key in data.get("job_ids", []) if key in self.jobs)
                add("killed", *((job, 0.0) for job in known))
            case "REQUESTED_CALL":
                add("called", at)
            case "RESOURCE_STATE_CHANGED":
                add("switched", (parse(str(data.get("resources", ""))), int(data["state"])))
            case "NOTIFY" if data.get("type") == "event_machine_unavailable":
                heard["unavailable"] = parse(str(data.get("resources", "")))
            case "NOTIFY" if data.get("type") == "event_machine_available":
                heard["available"] = parse(str(data.get("resources", "")))
            case "NOTIFY" if data.get("type") == "no_more_static_job_to_submit":
                heard["no_more_jobs"] = True
            case "NOTIFY" if data.get("type") == "no_more_external_event_to_occur":
                heard["no_more_events"] = True
            case _:
                add("unknown", {"type": kind, **data})

    def _ended(self, data: Mapping[str, Any], at: int) -> JobEnd:
        key = str(data.get("job_id"))
        if key not in self.jobs:
            raise DecisionError(f"ended job {key!r}, which it never submitted", scheduler="Batsim")
        state = STATES.get(str(data.get("job_state") or data.get("status")), "COMPLETED_FAILED")
        machines = parse(str(data["alloc"])) if data.get("alloc") else self.held.get(key, 0)
        return JobEnd(self.jobs[key], state, int(data.get("return_code") or 0), machines, at)


def _time(value: Any) -> int:
    if not is_number(value) or not abs(value) <= protocol.LATEST:
        raise DecisionError(f"sent the time {value!r:.80}", scheduler="Batsim")
    return nanoseconds(value)


def _platform(data: Mapping[str, Any]) -> Platform:
    """Return the hosts, with the given names."""
    count = data.get("nb_compute_resources", data.get("nb_resources", 0))
    if not isinstance(count, int) or not 0 < count <= 1 << 20:
        raise DecisionError(f"has {count!r} machines", scheduler="Batsim")
    platform = plain(count)
    listed = data.get("compute_resources") or data.get("resources_data") or []
    names = {item["id"]: str(item.get("name", "")) for item in listed if "id" in item}
    compute = tuple(
        replace(host, name=names.get(index) or host.name)
        for index, host in enumerate(platform.compute)
    )
    return replace(platform, compute=compute)
