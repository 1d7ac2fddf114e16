"""`workload:` of a scenario: what arrives when, from whatever format it is described in."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from dralab.kernel.clock import SECOND
from dralab.kernel.randomness import Randomness
from dralab.simulation.errors import Complaints, InputError
from dralab.simulation.pods.model import Pod
from dralab.simulation.scenarios import manifests
from dralab.simulation.scenarios.fields import Fields
from dralab.simulation.workloads import batsim, generate, openb, swf
from dralab.simulation.workloads.jobs import Job, Workload
from dralab.simulation.workloads.openb import WHOLE_GPU, Shape
from dralab.simulation.workloads.profiles import Delay
from dralab.values.quantity import QuantityError, parse_any

MOST_TASKS: Final = 5_000_000
DISTRIBUTIONS: Final = ("constant", "uniform", "exponential", "lognormal", "weibull")


@dataclass(frozen=True, slots=True)
class Work:
    """Pods, or rigid jobs; `jobs` may be turned into pods, not the other way round.

    `objects` are what manifests held beside pods.
    """

    pods: tuple[Pod, ...] = ()
    jobs: Workload | None = None
    objects: tuple[manifests.Arrival, ...] = ()


def read(scenario: Fields, seed: int, complaints: Complaints, *, hosts: int | None = None) -> Work:
    """Return the workload of a scenario; InputError names what is wrong.

    `hosts` is how many machines a rigid job may have at most, where that matters.
    """
    fields = scenario.mapping("workload")
    work: Work = fields.one_of(
        {
            "batsim": lambda f: _batsim(f, complaints, hosts),
            "swf": lambda f: _swf(f, complaints, hosts),
            "openb": lambda f: Work(pods=tuple(_openb(f, complaints))),
            "manifests": lambda f: _manifests(f, complaints),
            "pods": lambda f: Work(pods=tuple(_listed(f))),
            "jobs": lambda f: Work(jobs=_jobs(f, complaints, hosts)),
            "generate": lambda f: Work(pods=tuple(_generated(f.mapping("generate"), seed))),
        }
    )
    fields.done()
    return work


def _manifests(fields: Fields, complaints: Complaints) -> Work:
    pods, objects = manifests.read(fields.file("manifests"), complaints)
    return Work(pods=pods, objects=objects)


def _batsim(fields: Fields, complaints: Complaints, hosts: int | None) -> Work:
    return Work(jobs=batsim.read(fields.file("batsim"), complaints=complaints, hosts=hosts))


def _swf(fields: Fields, complaints: Complaints, hosts: int | None) -> Work:
    trace = swf.read(fields.file("swf"), complaints=complaints)
    conversion = swf.Conversion(
        walltime_factor=fields.number("walltime_factor", 2.0),
        requested_only=fields.flag("requested_only", default=False),
        grain=fields.whole("grain", 0),
    )
    return Work(jobs=swf.jobs(trace, conversion, hosts=hosts, complaints=complaints))


def _openb(fields: Fields, complaints: Complaints) -> Iterator[Pod]:
    for pod in openb.read_pods(fields.file("openb"), complaints=complaints):
        created = pod.created or 0
        length = None if pod.deleted is None else (pod.deleted - created) * SECOND
        yield Pod(
            name=pod.name,
            shape=pod.shape,
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
                path, f"{source['cpu']!r} is no quantity", where=f"profile {job.profile}: cpu"
            ) from None
        limit = profile.duration if job.walltime is None else min(profile.duration, job.walltime)
        shape = Shape(-int(-1000 * cpu // 1), 0, 0, "")
        # batkube's profiles say who shall schedule them; `default` is whoever does.
        scheduler = str(source.get("scheduler", "default"))
        pods += [
            Pod(
                name=job.id if job.width == 1 else f"{job.id}-{rank}",
                shape=shape,
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
        base = _pod(entry)
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


def _pod(entry: Fields) -> dict[str, Any]:
    """What pods of any origin may say of themselves."""
    gpus = entry.whole("gpus", 0)
    milli = entry.whole("gpu_milli", WHOLE_GPU, least=1) if gpus else 0
    if milli > WHOLE_GPU:
        raise entry.error("gpu_milli", f"is of one GPU: at most {WHOLE_GPU}")
    models = entry.text("models", "") if gpus else ""
    labels = ",".join(sorted(entry.labels("node_labels")))
    return {
        "shape": Shape(entry.quantity("cpu", "0", scale=1000), milli, gpus, models, labels),
        "memory": entry.quantity("memory", "0"),
        "priority": entry.whole("priority", 0, least=-(2**31)),
        "queue": entry.text("queue", ""),
        "user": entry.text("user", ""),
        "scheduler": entry.text("scheduler", ""),
    }


def _jobs(fields: Fields, complaints: Complaints, hosts: int | None) -> Workload:
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
            complaints.about(entry.error("machines", f"is {width}; there are {hosts} machines"))
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


def _generated(fields: Fields, seed: int) -> Iterator[Pod]:
    count = fields.whole("count", least=1)
    if count > MOST_TASKS:
        raise fields.error("count", f"must be at most {MOST_TASKS}")
    how = fields.mapping("arrivals")
    arrivals = generate.Arrivals(
        process=how.choice("process", generate.PROCESSES, "poisson"),
        over=how.duration("over", 0) / SECOND,
        every=how.duration("every", 0) / SECOND,
        peak=how.number("peak", 1.8, least=1.0),
    )
    how.done()
    if arrivals.process in {"poisson", "daily", "uniform"} and not arrivals.over:
        raise how.error("over", "must be given, as a duration above 0")
    kinds, weights = [], []
    durations = []
    for entry in fields.mappings("pods"):
        weights.append(entry.number("weight", 1.0))
        kinds.append((_pod(entry), entry.whole("gang", 1, least=1)))
        durations.append(_distribution(entry if entry.has("duration") else fields))
        entry.done()
    if not kinds or not sum(weights):
        raise fields.error("pods", "must list at least one kind of pod with a weight above 0")
    users = fields.whole("users", 1, least=1)
    name = fields.text("name", "pod")
    fields.raw("duration")
    fields.done()
    chance = Randomness(seed)
    times = generate.arrivals(arrivals, count, chance.stream("workload/arrivals"))
    picks = chance.stream("workload/kinds").choices(range(len(kinds)), weights, k=count)
    lengths, owners = chance.stream("workload/durations"), chance.stream("workload/users")
    for index, (when, pick) in enumerate(zip(times, picks, strict=True)):
        base, gang = kinds[pick]
        length = max(1, round(durations[pick](lengths) * SECOND))
        user = base["user"] or f"user-{owners.randrange(users)}"
        for rank in range(gang):
            yield Pod(
                **(base | {"user": user}),
                name=f"{name}-{index}" if gang == 1 else f"{name}-{index}-{rank}",
                arrives=when,
                duration=length,
                gang=f"{name}-{index}" if gang > 1 else "",
            )


def _distribution(fields: Fields) -> generate.Draw:
    value = fields.raw("duration")
    if not isinstance(value, Mapping):
        return generate.constant(fields.duration("duration") / SECOND)
    how = fields.mapping("duration")
    name = how.choice("distribution", dict.fromkeys(DISTRIBUTIONS), "constant")

    def seconds(key: str) -> float:
        found = how.duration(key) / SECOND
        if not found:
            raise how.error(key, "must be above 0")
        return found

    if name == "uniform":
        draw = generate.uniform(how.duration("least", 0) / SECOND, seconds("most"))
    elif name == "exponential":
        draw = generate.exponential(seconds("mean"))
    elif name == "lognormal":
        draw = generate.lognormal(seconds("median"), how.number("sigma", 1.0))
    elif name == "weibull":
        draw = generate.weibull(seconds("scale"), how.number("shape", 0.7))
    else:
        draw = generate.constant(seconds("value"))
    how.done()
    return draw


def source_of(fields: Fields) -> Path:
    """Return the file of the scenario, for messages about what it names."""
    return fields.place.path
