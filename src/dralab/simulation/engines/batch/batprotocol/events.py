"""Events of Batsim: from protocol 4 to batprotocol, and back."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

import orjson

from dralab.scenarios.errors import DecisionError
from dralab.simulation.engines.batch import protocol
from dralab.simulation.engines.batch.batprotocol import profiles
from dralab.simulation.engines.batch.batprotocol.spelling import Message, event
from dralab.simulation.engines.batch.messages import SimulationBegins
from dralab.simulation.platforms.platform import Host

NO_MORE_JOBS: Final = "AllStaticJobsHaveBeenSubmittedEvent"
NO_MORE_EVENTS: Final = "AllStaticExternalEventsHaveBeenInjectedEvent"
NOTICES: Final[Mapping[str, str]] = {
    "no_more_static_job_to_submit": NO_MORE_JOBS,
    "no_more_external_event_to_occur": NO_MORE_EVENTS,
}


# --- from protocol 4 ------------------------------------------------------------------------------


def beginning(about: SimulationBegins, *, with_profiles: bool) -> Message:
    """Return the first message: the machines, the workloads and, if asked for, the profiles."""
    platform = about.platform
    compute = [_host(number, host) for number, host in enumerate(platform.compute)]
    storage = [_host(number, host) for number, host in enumerate(platform.storage, platform.width)]
    value: dict[str, Any] = {
        "host_number": len(compute) + len(storage),
        "computation_host_number": len(compute),
        "computation_hosts": compute,
        "storage_host_number": len(storage),
        "storage_hosts": storage,
        "batsim_arguments": [],
        "batsim_execution_context_json": orjson.dumps(dict(about.options)).decode(),
        "workloads": [{"name": one.name, "filename": one.source} for one in about.workloads],
    }
    if with_profiles:
        value["profiles"] = [
            found
            for one in about.workloads
            for name, source in one.profile_sources.items()
            if (found := profiles.of_file(f"{one.name}!{name}", source)) is not None
        ]
    return {"now": 0.0, "events": [event(0.0, "SimulationBeginsEvent", value)]}


def _host(number: int, host: Host) -> Message:
    return {
        "id": number,
        "name": host.name,
        "pstate": 0,
        "pstate_count": len(host.speeds),
        "state": "IDLE",
        "properties": _pairs(host.properties),
        "zone_properties": _pairs(host.zone_properties),
        "core_count": host.cores,
        "computation_speed": list(host.speeds),
    }


def _pairs(values: Mapping[str, str]) -> list[Message]:
    return [{"key": key, "value": value} for key, value in values.items()]


def of_protocol_4(one: Mapping[str, Any], calls: Sequence[str]) -> list[Message]:
    """Return an event that Batsim 4 would send as those of batprotocol.

    `calls` are the ids of the calls that are due, for REQUESTED_CALL. DecisionError: there is none.
    """
    kind, data, when = one["type"], one["data"], one["timestamp"]
    match kind:
        case "JOB_SUBMITTED":
            return [event(when, "JobSubmittedEvent", _submitted(data))]
        case "JOB_COMPLETED":
            value = {
                "job_id": data["job_id"],
                "state": data["job_state"],
                "return_code": max(int(data["return_code"]), 0),
            }
            return [event(when, "JobCompletedEvent", value)]
        case "JOB_KILLED":
            progresses = [_progress(key, found) for key, found in data["job_progress"].items()]
            value = {"job_ids": data["job_ids"], "progresses": progresses}
            return [event(when, "JobsKilledEvent", value)]
        case "REQUESTED_CALL":
            return [event(when, "RequestedCallEvent", {"call_me_later_id": key}) for key in calls]
        case "RESOURCE_STATE_CHANGED":
            value = {"host_ids": data["resources"], "pstate": int(data["state"])}
            return [event(when, "HostsPStateChangedEvent", value)]
        case "SIMULATION_ENDS":
            return [event(when, "SimulationEndsEvent")]
        case "NOTIFY" if data.get("type") in NOTICES:
            return [event(when, NOTICES[data["type"]])]
        case _:
            pass
    name = f"{kind} {data['type']}" if kind == "NOTIFY" else kind
    raise DecisionError(f"{name} has no form in Batsim 5", scheduler="dralab")


def _submitted(data: Mapping[str, Any]) -> Message:
    key, job = str(data["job_id"]), data["job"]
    found: Message = {
        "resource_request": int(job["res"]),
        "rigid": True,
        "profile_id": f"{key.partition('!')[0]}!{job['profile']}",
    }
    if (walltime := job.get("walltime", -1)) > 0:
        found["walltime"] = float(walltime)
    if (extra := job.get("extra_data")) is not None:
        found["extra_data"] = extra if isinstance(extra, str) else orjson.dumps(extra).decode()
    return {"job_id": key, "job": found, "submission_time": float(job["subtime"])}


def _progress(key: str, found: Mapping[str, Any]) -> Message:
    name = f"{key.partition('!')[0]}!{found['profile_name']}"
    progress = {"profile_id": name, "progress": found["progress"]}
    wrapper = {"kill_progress_type": "KillProgressAtomicProfile", "kill_progress": progress}
    return {"job_id": key, "wrapper": wrapper}


# --- to protocol 4 --------------------------------------------------------------------------------


def as_protocol_4(one: Mapping[str, Any]) -> Message | None:
    """Return an event of Batsim 5 as Batsim 4 would send it; None if it has no counterpart.

    KeyError, TypeError or ValueError for an event that lacks something.
    """
    kind, value, when = one["event_type"], one.get("event") or {}, float(one["timestamp"])
    match kind:
        case "SimulationBeginsEvent":
            return _sent(when, "SIMULATION_BEGINS", _begins(value))
        case "JobSubmittedEvent":
            job = value["job"]
            workload, _, profile = str(job.get("profile_id", "")).rpartition("!")
            given = {
                "id": value["job_id"],
                "subtime": value.get("submission_time", when),
                "res": job["resource_request"],
                "walltime": job.get("walltime") or -1,
                "profile": profile,
            }
            if workload and workload != str(value["job_id"]).partition("!")[0]:
                given["profile"] = f"{workload}!{profile}"
            return _sent(when, "JOB_SUBMITTED", {"job_id": value["job_id"], "job": given})
        case "JobCompletedEvent":
            data = {
                "job_id": value["job_id"],
                "job_state": value["state"],
                "return_code": value["return_code"],
            }
            return _sent(when, "JOB_COMPLETED", data)
        case "JobsKilledEvent":
            return _sent(when, "JOB_KILLED", {"job_ids": value["job_ids"]})
        case "RequestedCallEvent":
            return _sent(when, "REQUESTED_CALL", {})
        case "HostsPStateChangedEvent":
            data = {"resources": value["host_ids"], "state": str(value["pstate"])}
            return _sent(when, "RESOURCE_STATE_CHANGED", data)
        case "SimulationEndsEvent":
            return _sent(when, "SIMULATION_ENDS", {})
        case _:
            pass
    for notice, name in NOTICES.items():
        if kind == name:
            return _sent(when, "NOTIFY", {"type": notice})
    return None


def _begins(value: Mapping[str, Any]) -> Message:
    hosts = value.get("computation_hosts") or []
    if hosts and [host["id"] for host in hosts] != list(range(len(hosts))):
        raise DecisionError("numbers its computation hosts with gaps", scheduler="Batsim")
    listed = [{"id": host["id"], "name": host.get("name", "")} for host in hosts]
    count = value["computation_host_number"]
    return {"nb_resources": count, "nb_compute_resources": count, "compute_resources": listed}


def _sent(when: float, kind: str, data: Mapping[str, Any]) -> protocol.Message:
    return {"timestamp": when, "type": kind, "data": dict(data)}
