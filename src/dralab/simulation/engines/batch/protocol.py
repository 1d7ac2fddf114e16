"""Batsim's protocol, versions 1 to 4, as JSON: both sides.

Nothing here knows sockets: messages are mappings `{"now": seconds, "events": [...]}`. Field names
that changed between versions are read in all their forms and written in the newest.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from dralab.kernel.clock import SECOND
from dralab.scenarios.errors import DecisionError
from dralab.scenarios.fields import is_number
from dralab.simulation.engines.batch.messages import (
    BatchEvents,
    CallMeLater,
    ChangeJobState,
    Decision,
    KillJobs,
    QueryEnergy,
    RegisterJob,
    RegisterProfile,
    RegistrationFinished,
    RejectJob,
    ResizeJob,
    SchedulerReply,
    SetJobMetadata,
    SimulationBegins,
    StartJob,
    SwitchPstate,
)
from dralab.simulation.host_sets import parse, render
from dralab.simulation.json_input import nanoseconds
from dralab.simulation.platforms.platform import Host
from dralab.simulation.workloads.jobs import Job

Message = dict[str, Any]
LATEST: Final = 1e18  # seconds: later than that nothing happens
CONFIG: Final = {
    "redis-enabled": False,
    "redis-hostname": "127.0.0.1",
    "redis-port": 6379,
    "redis-prefix": "default",
    "profiles-forwarded-on-submission": False,
    "dynamic-jobs-enabled": False,
    "dynamic-jobs-acknowledged": False,
    "profile-reuse-enabled": False,
    "sched-config": "",
    "forward-unknown-events": False,
}


def seconds(when: int) -> float:
    """Return nanoseconds as the protocol writes times."""
    return when / SECOND


def event(when: int, kind: str, data: Mapping[str, Any]) -> Message:
    """Return one event."""
    return {"timestamp": seconds(when), "type": kind, "data": dict(data)}


# --- messages to the scheduler --------------------------------------------------------------------


def beginning(about: SimulationBegins) -> Message:
    """Return the first message: the machines, workloads and settings."""
    platform, options = about.platform, about.options
    compute = [_resource(number, host) for number, host in enumerate(platform.compute)]
    storage = [
        _resource(number, host) for number, host in enumerate(platform.storage, platform.width)
    ]
    data = {
        "nb_resources": len(compute) + len(storage),
        "nb_compute_resources": len(compute),
        "nb_storage_resources": len(storage),
        "allow_compute_sharing": bool(options.get("allow_compute_sharing", False)),
        "allow_storage_sharing": bool(options.get("allow_storage_sharing", True)),
        "config": {key: options.get(key, default) for key, default in CONFIG.items()},
        "compute_resources": compute,
        "storage_resources": storage,
        "workloads": {workload.name: workload.source for workload in about.workloads},
        "profiles": {w.name: dict(w.profile_sources) for w in about.workloads},
    }
    return {"now": 0.0, "events": [event(0, "SIMULATION_BEGINS", data)]}


def ending(now: int) -> Message:
    """Return the last message."""
    return {"now": seconds(now), "events": [event(now, "SIMULATION_ENDS", {})]}


def news(what: BatchEvents, profiles: Mapping[str, Mapping[str, Any]] | None = None) -> Message:
    """Return what happened at one instant; `profiles` (by workload!name) are sent along."""
    events: list[Message] = [
        event(
            ended.at,
            "JOB_COMPLETED",
            {
                "job_id": ended.job.key,
                "job_state": ended.state,
                "return_code": ended.code,
                "alloc": render(ended.machines),
            },
        )
        for ended in what.ended
    ]
    if what.killed:
        progress = {
            job.key: {"profile": job.profile, "profile_name": job.profile, "progress": done}
            for job, done in what.killed
        }
        data = {"job_ids": [job.key for job, _ in what.killed], "job_progress": progress}
        events.append(event(what.now, "JOB_KILLED", data))
    for job in what.submitted:
        data = {"job_id": job.key, "job": described(job)}
        if profiles is not None:
            data["profile"] = profiles.get(f"{job.workload}!{job.profile}", {})
        events.append(event(job.submitted, "JOB_SUBMITTED", data))
    for machines, pstate in what.switched:
        data = {"resources": render(machines), "state": str(pstate)}
        events.append(event(what.now, "RESOURCE_STATE_CHANGED", data))
    for kind, machines in (("unavailable", what.unavailable), ("available", what.available)):
        if machines:
            data = {"type": f"event_machine_{kind}", "resources": render(machines)}
            events.append(event(what.now, "NOTIFY", data))
    events += [event(what.now, "NOTIFY", dict(source)) for source in what.unknown]
    events += [event(when, "REQUESTED_CALL", {}) for when in what.called]
    events += [event(what.now, "ANSWER", {"consumed_energy": joules}) for joules in what.answers]
    if what.no_more_jobs:
        events.append(event(what.now, "NOTIFY", {"type": "no_more_static_job_to_submit"}))
    if what.no_more_events:
        events.append(event(what.now, "NOTIFY", {"type": "no_more_external_event_to_occur"}))
    # Times must not go back within a message; of one time the order above holds.
    events.sort(key=lambda item: float(item["timestamp"]))
    return {"now": seconds(what.now), "events": events}


def described(job: Job) -> Message:
    """Return a job as its workload file has it, under its full id."""
    return {
        "subtime": seconds(job.submitted),
        "walltime": -1 if job.walltime is None else seconds(job.walltime),
        "res": job.width,
        "profile": job.profile,
        **job.source,
        "id": job.key,
    }


def _resource(number: int, host: Host) -> Message:
    return {
        "id": number,
        "name": host.name,
        "state": "idle",
        "properties": dict(host.properties),
        "zone_properties": dict(host.zone_properties),
    }


# --- replies of the scheduler ---------------------------------------------------------------------


class ReplyReader:
    """Reads replies of a decision process; knows the jobs that were submitted to it."""

    def __init__(self) -> None:
        self.jobs: dict[str, Job] = {}

    def learn(self, jobs: Sequence[Job]) -> None:
        """Remember jobs that replies may name."""
        self.jobs |= {job.key: job for job in jobs}

    def answer(self, message: Any, asked_at: int) -> SchedulerReply:
        """Return the decisions of a reply; DecisionError if it is not understood."""
        if not isinstance(message, dict) or not isinstance(message.get("events"), list):
            raise DecisionError("answered with an invalid message")
        now = message.get("now", seconds(asked_at))
        if not is_number(now) or abs(now) > LATEST:
            raise DecisionError(f"answered with the time {now!r}")
        decisions: list[Decision] = []
        for item in message["events"]:
            try:
                kind, data = item.get("type"), item.get("data") or {}
                # A float of seconds loses nanoseconds: the present must not become the past.
                at = max(asked_at, nanoseconds(float(item.get("timestamp", now))))
                decisions += self._decisions(str(kind), data, at)
            except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
                if isinstance(error, DecisionError):
                    raise
                raise DecisionError(f"answered with an event that lacks {error}") from None
        return SchedulerReply(decisions, max(asked_at, nanoseconds(float(now))))

    def _job(self, key: Any) -> Job:
        job = self.jobs.get(str(key))
        if job is None:
            raise DecisionError(f"decided about job {key!r}, which was not submitted to it")
        return job

    def _decisions(  # noqa: PLR0911 - a table, one line an event
        self, kind: str, data: Mapping[str, Any], at: int
    ) -> list[Decision]:
        match kind:
            case "EXECUTE_JOB":
                return [
                    StartJob(
                        self._job(data.get("job_id")),
                        _machines(data.get("alloc"), kind),
                        at,
                        data.get("mapping") or None,
                    )
                ]
            case "REJECT_JOB":
                return [RejectJob(self._job(data.get("job_id")))]
            case "CALL_ME_LATER":
                return [CallMeLater(nanoseconds(float(data["timestamp"])))]
            case "KILL_JOB":
                return [KillJobs(tuple(str(key) for key in data.get("job_ids", [])), at)]
            case "SET_RESOURCE_STATE":
                machines = _machines(data.get("resources"), kind)
                return [SwitchPstate(machines, int(data["state"]), at)]
            case "SET_JOB_METADATA":
                return [SetJobMetadata(str(data["job_id"]), str(data.get("metadata", "")))]
            case "CHANGE_JOB_STATE":
                return [ChangeJobState(str(data["job_id"]), str(data["job_state"]))]
            case "REGISTER_JOB":
                job = job_of(str(data["job_id"]), data.get("job") or {}, at)
                self.learn([job])
                return [RegisterJob(job, at)]
            case "REGISTER_PROFILE":
                return [
                    RegisterProfile(
                        str(data["workload_name"]), str(data["profile_name"]), data["profile"]
                    )
                ]
            case "QUERY":
                wanted = data.get("requests") or {}
                return [QueryEnergy()] if "consumed_energy" in wanted else []
            case "NOTIFY" if data.get("type") == "registration_finished":
                return [RegistrationFinished()]
            case "NOTIFY" if data.get("type") == "continue_registration":
                return [RegistrationFinished(again=True)]
            case "NOTIFY" | "ANSWER" | "TO_JOB_MSG" | "RESOURCES_ADDED" | "RESOURCES_REMOVED":
                return []
            case _:
                raise DecisionError(
                    f"answered with {kind!r}, which is not an event of the protocol"
                )


def decisions(answer: SchedulerReply, now: int) -> Message:
    """Return an answer as the decision side writes it."""
    until = now if answer.busy_until is None else max(now, answer.busy_until)
    events = [_written(decision, now) for decision in answer.decisions]
    return {"now": seconds(until), "events": events}


def _written(decision: Decision, now: int) -> Message:  # noqa: PLR0911 - a table
    at = getattr(decision, "at", None) or now
    match decision:
        case StartJob():
            data: Message = {"job_id": decision.job.key, "alloc": render(decision.machines)}
            if decision.mapping:
                data["mapping"] = dict(decision.mapping)
            return event(at, "EXECUTE_JOB", data)
        case RejectJob():
            return event(at, "REJECT_JOB", {"job_id": decision.job.key})
        case KillJobs():
            return event(at, "KILL_JOB", {"job_ids": list(decision.keys)})
        case ResizeJob():
            raise DecisionError(f"resized job {decision.key!r}, for which Batsim has no message")
        case CallMeLater():
            return event(at, "CALL_ME_LATER", {"timestamp": seconds(decision.when)})
        case SwitchPstate():
            data = {"resources": render(decision.machines), "state": str(decision.pstate)}
            return event(at, "SET_RESOURCE_STATE", data)
        case SetJobMetadata():
            data = {"job_id": decision.key, "metadata": decision.metadata}
            return event(at, "SET_JOB_METADATA", data)
        case RegistrationFinished():
            kind = "continue_registration" if decision.again else "registration_finished"
            return event(at, "NOTIFY", {"type": kind})
        case RegisterJob():
            return event(
                at, "REGISTER_JOB", {"job_id": decision.job.key, "job": described(decision.job)}
            )
        case RegisterProfile():
            data = {
                "workload_name": decision.workload,
                "profile_name": decision.name,
                "profile": dict(decision.profile),
            }
            return event(at, "REGISTER_PROFILE", data)
        case QueryEnergy():
            return event(at, "QUERY", {"requests": {"consumed_energy": {}}})
        case ChangeJobState():
            data = {"job_id": decision.key, "job_state": decision.state}
            return event(at, "CHANGE_JOB_STATE", data)


def job_of(key: str, data: Mapping[str, Any], at: int) -> Job:
    """Return the job that JOB_SUBMITTED or REGISTER_JOB describes."""
    workload, mark, name = key.partition("!")
    if not mark:
        workload, name = "", key
    walltime = data.get("walltime", -1)
    width = data.get("res", 0)
    if not isinstance(width, int) or width < 1:
        raise DecisionError(f"job {key!r} asks for {width!r} machines")
    limited = is_number(walltime) and walltime > 0
    return Job(
        id=name,
        workload=workload,
        submitted=nanoseconds(data["subtime"]) if is_number(data.get("subtime")) else at,
        width=width,
        walltime=nanoseconds(walltime) if limited else None,
        profile=str(data.get("profile", "")),
        source=data,
    )


def _machines(text: Any, kind: str) -> int:
    try:
        return parse(str(text))
    except ValueError as error:
        raise DecisionError(f"{kind}: {error}") from None
