"""`workload:` of a scenario: what arrives when, from whatever format it is described in."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from dralab.kernel.clock import SECOND
from dralab.simulation.errors import InputError, InputProblems
from dralab.simulation.lifecycle.model import Pod
from dralab.simulation.scenario import generated, manifests
from dralab.simulation.scenario.fields import Fields
from dralab.simulation.workloads import batsim, openb, swf
from dralab.simulation.workloads.jobs import Job, Workload
from dralab.simulation.workloads.openb import PodRequest
from dralab.simulation.workloads.profiles import Delay
from dralab.values.quantity import QuantityError, parse_any

MOST_INFLATED: Final = 100


@dataclass(frozen=True, slots=True)
class ScenarioWorkload:
    """Pods, or rigid jobs; `jobs` may be turned into pods, not the other way round.

    `objects` are what manifests held beside pods. With `inflate` pods are cloned until they ask for
    that multiple of all GPUs, and are placed once, without time, in an order drawn at random.
    """

    pods: tuple[Pod, ...] = ()
    jobs: Workload | None = None
    objects: tuple[manifests.Arrival, ...] = ()
    inflate: float | None = None


def read(
    scenario: Fields, seed: int, problems: InputProblems, *, hosts: int | None = None
) -> ScenarioWorkload:
    """Return the workload of a scenario; InputError names what is wrong.

    `hosts` is how many machines a rigid job may have at most, where that matters.
    """
    fields = scenario.mapping("workload")
    work: ScenarioWorkload = fields.one_of(
        {
            "batsim": lambda f: _batsim(f, problems),
            "swf": lambda f: _swf(f, problems, hosts),
            "openb": lambda f: _openb(f, problems),
            "manifests": lambda f: _manifests(f, problems),
            "pods": lambda f: ScenarioWorkload(pods=tuple(_listed(f))),
            "jobs": lambda f: ScenarioWorkload(jobs=_jobs(f, problems, hosts)),
            "generate": lambda f: _generated(f.mapping("generate"), seed, problems, hosts),
        }
    )
    fields.done()
    return work


def _manifests(fields: Fields, problems: InputProblems) -> ScenarioWorkload:
    pods, objects = manifests.read(fields.file("manifests"), problems)
    return ScenarioWorkload(pods=pods, objects=objects)


def _batsim(fields: Fields, problems: InputProblems) -> ScenarioWorkload:
    return ScenarioWorkload(jobs=batsim.read(fields.file("batsim"), problems=problems))


def _generated(
    fields: Fields, seed: int, problems: InputProblems, hosts: int | None
) -> ScenarioWorkload:
    if fields.has("jobs"):
        return ScenarioWorkload(jobs=generated.jobs(fields, seed, problems, hosts))
    return ScenarioWorkload(pods=tuple(generated.pods(fields, seed)))


def _swf(fields: Fields, problems: InputProblems, hosts: int | None) -> ScenarioWorkload:
    trace = swf.read(fields.file("swf"), problems=problems)
    conversion = swf.SwfConversion(
        walltime_factor=fields.number("walltime_factor", 2.0),
        requested_only=fields.flag("requested_only", default=False),
        grain=fields.whole("grain", 0),
    )
    return ScenarioWorkload(jobs=swf.jobs(trace, conversion, hosts=hosts, problems=problems))


def _openb(fields: Fields, problems: InputProblems) -> ScenarioWorkload:
    inflate = fields.number("inflate") if fields.has("inflate") else None
    if inflate is not None and not 0 < inflate <= MOST_INFLATED:
        raise fields.error("inflate", f"must be above 0 and at most {MOST_INFLATED}")
    pods = openb_pods(fields.file("openb"), problems)
    return ScenarioWorkload(pods=tuple(pods), inflate=inflate)


def openb_pods(path: Path, problems: InputProblems) -> Iterator[Pod]:
    """Yield the pods of an openb trace, which counts memory in MiB."""
    for pod in openb.read_pods(path, problems=problems):
        created = pod.created or 0
        length = None if pod.deleted is None else (pod.deleted - created) * SECOND
        yield Pod(
            name=pod.name,
            request=pod.request,
            memory=pod.memory << 20,
            arrives=created * SECOND,
            duration=length,
        )


def as_pods(workload: Workload, path: str) -> tuple[Pod, ...]:
    """Return each job as pods: one a machine, together a gang, each with the profile's `cpu`.

    InputError for a profile other than a delay: how long it takes depends on machines and network.
    """
    pods: list[Pod] = []
    for job in workload.jobs:
        profile = workload.profiles[job.profile]
        if not isinstance(profile, Delay):
            raise InputError(
                path, "only delays can run as pods", where=f"job {job.id}: {job.profile}"
            )
        source = workload.profile_sources.get(job.profile, {})
        try:
            cpu = parse_any(source.get("cpu", "1"))
        except QuantityError:
            raise InputError(
                path, f"{source['cpu']!r} is not a quantity", where=f"profile {job.profile}: cpu"
            ) from None
        limit = profile.duration if job.walltime is None else min(profile.duration, job.walltime)
        request = PodRequest(-int(-1000 * cpu // 1), 0, 0, "")
        # batkube's profiles name a scheduler; `default` is the scenario's own.
        scheduler = str(source.get("scheduler", "default"))
        pods += [
            Pod(
                name=job.id if job.width == 1 else f"{job.id}-{rank}",
                request=request,
                arrives=job.submitted,
                duration=limit,
                gang=job.id if job.width > 1 else "",
                user=job.user,
                scheduler="" if scheduler == "default" else scheduler,
            )
            for rank in range(job.width)
        ]
    return tuple(pods)


def _listed(fields: Fields) -> Iterator[Pod]:
    seen: set[str] = set()
    for entry in fields.mappings("pods"):
        base = generated.asked(entry)
        count, every = entry.whole("count", 1, least=1), entry.duration("every", 0)
        name, arrives = entry.text("name"), entry.duration("at", 0)
        length = entry.duration("duration") if entry.has("duration") else None
        entry.done()
        for index in range(count):
            full = name if count == 1 else f"{name}-{index}"
            if full in seen:
                raise entry.error("name", f"there are two pods {full!r}")
            seen.add(full)
            yield Pod(name=full, arrives=arrives + index * every, duration=length, **base)


def _jobs(fields: Fields, problems: InputProblems, hosts: int | None) -> Workload:
    """Rigid jobs written in the scenario itself."""
    jobs: dict[str, Job] = {}
    profiles: dict[str, Delay] = {}
    for entry in fields.mappings("jobs"):
        count, every = entry.whole("count", 1, least=1), entry.duration("every", 0)
        name, arrives = entry.text("name"), entry.duration("at", 0)
        length, width = entry.duration("duration"), entry.whole("machines", 1, least=1)
        walltime = entry.duration("walltime") if entry.has("walltime") else None
        user = entry.text("user", "")
        entry.done()
        if hosts is not None and width > hosts:
            problems.about(entry.error("machines", f"is {width}; there are {hosts} machines"))
            continue
        profiles[f"{length}ns"] = Delay(duration=length)
        for index in range(count):
            full = name if count == 1 else f"{name}-{index}"
            if full in jobs:
                raise entry.error("name", f"there are two jobs {full!r}")
            jobs[full] = Job(
                id=full,
                submitted=arrives + index * every,
                width=width,
                walltime=walltime,
                profile=f"{length}ns",
                user=user,
            )
    return Workload(
        jobs=tuple(jobs.values()),
        profiles=profiles,
        machines=max((job.width for job in jobs.values()), default=0),
        source=str(fields.place.path),
    )
