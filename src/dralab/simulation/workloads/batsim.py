"""Batsim's workload files, as version 4 and version 5 write them."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import orjson

from dralab.kernel.clock import SECOND
from dralab.scenarios.errors import InputError, InputProblems
from dralab.scenarios.fields import is_number
from dralab.simulation.json_input import JsonFile, nanoseconds
from dralab.simulation.workloads.batsim_profiles import read_profile
from dralab.simulation.workloads.jobs import Composed, Delay, Job, ParallelTask, Profile, Workload

DEEPEST = 64


def read(
    path: Path,
    *,
    name: str = "w0",
    problems: InputProblems | None = None,
) -> Workload:
    """Return the workload of a file. InputError, with the line.

    Jobs may be wider than the platform: as in Batsim, the scheduler rejects them.
    """
    problems = InputProblems() if problems is None else problems
    document = JsonFile(path)
    value = document.value
    if not isinstance(value, dict):
        raise document.error([], "must be an object with jobs and profiles")
    for key, kind, what in (("jobs", list, "an array"), ("profiles", dict, "an object")):
        if not isinstance(value.get(key), kind):
            raise document.error([key], f"must be {what}")
    machines = value.get("nb_res", 0)
    if not isinstance(machines, int) or isinstance(machines, bool) or machines < 0:
        raise document.error(["nb_res"], "must be a whole number of machines")
    before = len(problems.skipped)
    profiles = _profiles(document, problems)
    jobs: dict[str, Job] = {}
    for index, entry in enumerate(value["jobs"]):
        try:
            job = _job(document, index, entry, name)
            if job.id in jobs:
                raise document.error(["jobs", index, "id"], f"there are two jobs {job.id!r}")
            if job.profile not in profiles:
                raise document.error(
                    ["jobs", index, "profile"], f"there is no profile {job.profile!r}"
                )
            profile = profiles[job.profile]
            if isinstance(profile, ParallelTask) and profile.width != job.width:
                raise document.error(
                    ["jobs", index, "res"],
                    f"{job.width} machines, but its profile is for {profile.width}",
                )
            jobs[job.id] = job
        except InputError as error:
            problems.about(error)
    return Workload(
        name=name,
        jobs=tuple(jobs.values()),
        profiles=profiles,
        machines=machines,
        source=str(path),
        skipped=len(problems.skipped) - before,
        profile_sources=value["profiles"],
    )


def _profiles(document: JsonFile, problems: InputProblems) -> dict[str, Profile]:
    profiles: dict[str, Profile] = {}
    for name, entry in document.value["profiles"].items():
        try:
            profiles[name] = read_profile(document, name, entry)
        except InputError as error:
            problems.about(error)
    for name in sorted(profiles):
        try:
            _check_parts(document, profiles, name, (), {})
        except InputError as error:
            problems.about(error)
            del profiles[name]
    return profiles


def _check_parts(
    document: JsonFile,
    profiles: Mapping[str, Profile],
    name: str,
    path: tuple[str, ...],
    sound: dict[str, bool],
) -> None:
    profile = profiles[name]
    if not isinstance(profile, Composed) or name in sound:
        return
    if name in path:
        raise document.error(
            ["profiles", name, "seq"], f"contains itself: {' > '.join([*path, name])}"
        )
    if len(path) >= DEEPEST:
        raise document.error(["profiles", name, "seq"], f"is nested more than {DEEPEST} deep")
    for index, part in enumerate(profile.parts):
        if part not in profiles:
            raise document.error(["profiles", name, "seq", index], f"there is no profile {part!r}")
        _check_parts(document, profiles, part, (*path, name), sound)
    sound[name] = True


def _job(document: JsonFile, index: int, entry: Any, workload: str) -> Job:
    steps: list[str | int] = ["jobs", index]
    if not isinstance(entry, dict):
        raise document.error(steps, "must be an object")
    identity = entry.get("id")
    if not isinstance(identity, (str, int)) or isinstance(identity, bool) or identity == "":
        raise document.error([*steps, "id"], "must be a string or a whole number")
    submitted = entry.get("subtime")
    if not is_number(submitted) or submitted < 0:  # type: ignore[operator]  # is_number says it
        raise document.error(
            [*steps, "subtime"], f"must be a number of seconds, not negative, and is {submitted!r}"
        )
    width = entry.get("res")
    if not isinstance(width, int) or isinstance(width, bool) or width < 1:
        raise document.error(
            [*steps, "res"], f"must be a number of machines, at least 1, and is {width!r}"
        )
    walltime = entry.get("walltime", -1)
    if not is_number(walltime) or (walltime <= 0 and walltime != -1):
        raise document.error(
            [*steps, "walltime"], f"must be a number of seconds above 0, or -1; it is {walltime!r}"
        )
    profile = entry.get("profile")
    if not isinstance(profile, (str, int)):
        raise document.error([*steps, "profile"], "must name a profile")
    return Job(
        id=str(identity),
        workload=workload,
        submitted=nanoseconds(submitted),  # type: ignore[arg-type]  # is_number says it
        width=width,
        walltime=None if walltime == -1 else nanoseconds(walltime),
        profile=str(profile),
        source=entry,
        user=str(entry.get("user", "")),
    )


def write(path: Path, jobs: Sequence[Job], profiles: Mapping[str, Delay], machines: int) -> None:
    """Write a workload of delays, as both versions read it (`type` as in version 4)."""
    value = {
        "nb_res": machines,
        "jobs": [
            {
                "id": job.id,
                "subtime": job.submitted / SECOND,
                "res": job.width,
                **({} if job.walltime is None else {"walltime": job.walltime / SECOND}),
                "profile": job.profile,
            }
            for job in jobs
        ],
        "profiles": {
            name: {"type": "delay", "delay": profile.duration / SECOND}
            for name, profile in sorted(profiles.items())
        },
    }
    path.write_bytes(orjson.dumps(value, option=orjson.OPT_INDENT_2) + b"\n")
