"""`workload:` of a scenario: its tasks, in any supported format."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from dralab.kernel.clock import SECOND
from dralab.scenarios.errors import InputError, InputProblems
from dralab.scenarios.fields import Fields, numbered
from dralab.scenarios.tables import (
    Given,
    Table,
    count,
    duration,
    either,
    field,
    file,
    flag,
    label,
    number,
    row,
    rows,
    whole,
)
from dralab.simulation.lifecycle.model import Pod
from dralab.simulation.scenario import generated, manifests, serving, trainings
from dralab.simulation.scenario.generated import of_delays
from dralab.simulation.scenario.recorded import history_of
from dralab.simulation.traces import formats as traces
from dralab.simulation.workloads import batsim, openb, swf
from dralab.simulation.workloads.jobs import Delay, Job, Workload
from dralab.simulation.workloads.openb import PodRequest
from dralab.values import json_schema
from dralab.values.json_schema import one_of_fields
from dralab.values.quantity import QuantityError, parse_any

MOST_INFLATED: Final = 100


@dataclass(frozen=True, slots=True)
class ScenarioWorkload:
    """Pods, or rigid jobs; `jobs` may be turned into pods, not the other way round.

    `objects` are what manifests held beside pods. `until` is when a recorded history ends. With
    `inflate` pods are cloned until they ask for that multiple of all GPUs, and are placed once,
    without time, in an order drawn at random. `profiles` say how fast trainings are.
    """

    pods: tuple[Pod, ...] = ()
    jobs: Workload | None = None
    objects: tuple[manifests.Arrival, ...] = ()
    inflate: float | None = None
    until: int | None = None
    profiles: Path | None = None

    @property
    def is_alone(self) -> bool:
        """Whether it cannot be combined with other pods."""
        return self.jobs is not None or self.inflate is not None


ARRIVING: Final = {
    "count": count(generated.MOST_TASKS),
    "every": duration("Between two arrivals.", default=0),
    "at": duration("When the first arrives.", default=0),
}
POD: Final = Table(
    generated.ASKED
    | {"name": label(required=True)}
    | ARRIVING
    | {
        "duration": duration("How long it runs; default: for ever."),
        "until": duration("A replica of a service: it runs until then, whenever it starts."),
    },
    rules={"not": {"required": ["duration", "until"]}},
)
JOB: Final = Table(
    {"name": label(required=True)}
    | ARRIVING | {"every": duration(default=0), "at": duration(default=0)}
    | {
        "duration": duration(required=True),
        "machines": whole(least=1, default=1),
        "walltime": duration("It is killed after so long."),
        "user": label(default=""),
    }
)  # fmt: skip
FORMS: Final = {
    "pods": rows(POD, always=False),
    "jobs": rows(JOB, "Rigid jobs: so many machines for so long.", always=False),
    "generate": either(
        row(generated.GENERATE),
        rows(generated.GENERATE),
        about="Pods or jobs drawn from distributions; a list draws each of its entries.",
    ),
    "trainings": rows(
        trainings.TRAINING, "Jobs with a speed on each type of GPU, for rounds.", always=False
    ),
    "serving": rows(
        serving.SERVING, "Services with as many replicas as their requests need.", always=False
    ),
    "batsim": file("Batsim's jobs and profiles: JSON."),
    "swf": file("A log in the Standard Workload Format."),
    "openb": file("The pods of an openb trace: CSV."),
    "trace": file("The pods of a public trace, which is told by its content."),
    "manifests": file("Pods, Jobs and what they need: YAML."),
    "recording": file("A file of `dralab record`: the pods that ran and waited."),
}
INFLATE: Final = field(
    {"type": "number", "exclusiveMinimum": 0, "maximum": MOST_INFLATED},
    Fields.number,
    needs="openb",
).checked(
    lambda ratio: (
        "" if 0 < ratio <= MOST_INFLATED else f"must be above 0 and at most {MOST_INFLATED}"
    )
)
WORKLOAD: Final = Table(
    FORMS
    | {
        "walltime_factor": number(needs="swf", default=2.0),
        "requested_only": flag(needs="swf", default=False),
        "grain": whole(needs="swf", default=0),
        "inflate": INFLATE,
        "profiles": field(
            json_schema.FILE,
            lambda given, key: given.file(key, folders=True),
            "Speeds by `kind`: JSON as Gavel's, or a folder of measurements as Pollux's.",
            needs="trainings",
        ),
    },
    rules={"anyOf": one_of_fields(*FORMS)},
)


def read(
    given: Given,
    seed: int,
    problems: InputProblems,
    *,
    hosts: int | None = None,
    elsewhere: bool = True,
) -> ScenarioWorkload:
    """Return the workload of a scenario: several forms of pods, or one of jobs. InputError.

    `hosts` is how many machines a rigid job may have at most, where that matters. `elsewhere`: the
    pods of a recording run on another fleet, and those that ran at its beginning arrive, too.
    """
    forms = [form for form in FORMS if given[form] is not None]
    if not forms:
        raise given.error("", f"must have one of {', '.join(FORMS)}")
    if forms == ["recording"]:
        history = history_of(given.recording)
        pods, objects = history.work(alone=elsewhere)
        return ScenarioWorkload(pods=pods, objects=objects, until=history.end)
    if "recording" in forms:
        raise given.error("recording", "cannot be combined with other pods")
    parts = [_read(given, form, seed, problems, hosts) for form in forms]
    if len(parts) == 1:
        return parts[0]
    alone = next((f for f, part in zip(forms, parts, strict=True) if part.is_alone), "")
    if alone:
        raise given.error(alone, f"cannot be combined with {', '.join({*forms} - {alone})}")
    pods = tuple(pod for part in parts for pod in part.pods)
    _check_names(given, pods)
    return ScenarioWorkload(
        pods=pods,
        objects=tuple(o for part in parts for o in part.objects),
        profiles=given.profiles,
    )


def _check_names(given: Given, pods: Sequence[Pod]) -> None:
    seen: set[str] = set()
    for pod in pods:
        if pod.key in seen:
            raise given.error("", f"there are two pods {pod.key!r}: give their sources other names")
        seen.add(pod.key)


def _read(
    given: Given, form: str, seed: int, problems: InputProblems, hosts: int | None
) -> ScenarioWorkload:
    match form:
        case "batsim":
            return ScenarioWorkload(jobs=batsim.read(given.batsim, problems=problems))
        case "swf":
            trace = swf.read(given.swf, problems=problems)
            conversion = swf.SwfConversion(
                walltime_factor=given.walltime_factor,
                requested_only=given.requested_only,
                grain=given.grain,
            )
            jobs = swf.jobs(trace, conversion, hosts=hosts, problems=problems)
            return ScenarioWorkload(jobs=jobs)
        case "openb":
            pods = tuple(openb_pods(given.openb, problems))
            return ScenarioWorkload(pods=pods, inflate=given.inflate)
        case "trace":
            return ScenarioWorkload(pods=traces.pods(given.trace, problems))
        case "manifests":
            pods, objects = manifests.read(given.manifests, problems)
            return ScenarioWorkload(pods=pods, objects=objects)
        case "pods":
            return ScenarioWorkload(pods=tuple(_listed(given.pods)))
        case "jobs":
            return ScenarioWorkload(jobs=_jobs(given, problems, hosts))
        case "trainings":
            pods = tuple(trainings.pods(given.trainings, profiles=given.profiles is not None))
            return ScenarioWorkload(pods=pods, profiles=given.profiles)
        case "serving":
            return ScenarioWorkload(pods=tuple(serving.pods(given.serving, seed)))
        case _:
            return _generated(given.generate, seed, problems, hosts)


def _generated(
    drawn: Given | list[Given], seed: int, problems: InputProblems, hosts: int | None
) -> ScenarioWorkload:
    """Return what one generator makes, or several with random streams of their own."""
    if isinstance(drawn, Given):
        if drawn.form == "jobs":
            return ScenarioWorkload(jobs=generated.jobs(drawn, seed, problems, hosts))
        return ScenarioWorkload(pods=tuple(generated.pods(drawn, seed)))
    pods: list[Pod] = []
    for each in drawn:
        if each.form == "jobs":
            raise each.error("jobs", "a list of generators makes pods")
        if not each.name or [other.name for other in drawn].count(each.name) > 1:
            raise each.error("name", "must be given, and be another one in each entry of the list")
        pods += generated.pods(each, seed, f"workload/{each.name}")
    return ScenarioWorkload(pods=tuple(pods))


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
        if len(pods) + job.width > generated.MOST_TASKS:
            raise InputError(
                path, f"there would be more than {generated.MOST_TASKS} pods", where=f"job {job.id}"
            )
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


def _listed(entries: Sequence[Given]) -> Iterator[Pod]:
    seen: set[str] = set()
    for entry in generated.bounded(entries, "pods"):
        base = generated.asked(entry)
        for index, full in enumerate(numbered(entry.name, entry.count)):
            if full in seen:
                raise entry.error("name", f"there are two pods {full!r}")
            seen.add(full)
            arrives = entry.at + index * entry.every
            if entry.until is not None and (entry.duration is not None or entry.until <= arrives):
                raise entry.error("until", "must be after its arrival, and without `duration`")
            yield Pod(
                name=full, arrives=arrives, duration=entry.duration, until=entry.until, **base
            )


def _jobs(given: Given, problems: InputProblems, hosts: int | None) -> Workload:
    """Read rigid jobs that are written in the scenario itself."""
    jobs: dict[str, Job] = {}
    for entry in generated.bounded(given.jobs, "jobs"):
        width = entry.machines
        if hosts is not None and width > hosts:
            problems.about(entry.error("machines", f"is {width}; there are {hosts} machines"))
            continue
        for index, full in enumerate(numbered(entry.name, entry.count)):
            if full in jobs:
                raise entry.error("name", f"there are two jobs {full!r}")
            jobs[full] = Job(
                id=full,
                submitted=entry.at + index * entry.every,
                width=width,
                walltime=entry.walltime,
                profile=f"{entry.duration}ns",
                user=entry.user,
            )
    return of_delays(list(jobs.values()), given)
