"""`workload.generate`: pods or rigid jobs, drawn from distributions with a stream for each."""

import math
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any, Final

from dralab.kernel.clock import SECOND
from dralab.kernel.randomness import Randomness
from dralab.scenarios.errors import InputProblems
from dralab.scenarios.fields import Fields
from dralab.scenarios.tables import (
    HOW_LONG,
    Given,
    InputField,
    Table,
    choice,
    duration,
    either,
    field,
    label,
    labels,
    number,
    quantity,
    row,
    rows,
    whole,
)
from dralab.simulation.lifecycle.model import Pod
from dralab.simulation.workloads.jobs import Delay, Job, Workload
from dralab.simulation.workloads.openb import WHOLE_GPU, PodRequest
from dralab.values import json_schema
from dralab.values.json_schema import any_of

Draw = Callable[[random.Random], float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Arrivals:
    """When `count` tasks come, in seconds.

    `poisson` has exponential gaps with mean `over / count`; `uniform` spreads them at random over
    `over`; `spaced` puts one every `every`; `burst` all at 0; `daily` is a Poisson process whose
    rate follows a day, `peak` times higher at its top than on average.
    """

    process: str
    over: float = 0.0
    every: float = 0.0
    peak: float = 1.8


def arrival_times(how: Arrivals, count: int, chance: random.Random) -> list[int]:
    """Return the times in nanoseconds, in order."""
    return [round(when * SECOND) for when in PROCESSES[how.process](how, count, chance)]


def _poisson(how: Arrivals, count: int, chance: random.Random) -> Iterator[float]:
    now = 0.0
    for _ in range(count):
        yield now
        now += chance.expovariate(count / how.over) if how.over else 0.0


def _uniform(how: Arrivals, count: int, chance: random.Random) -> Iterator[float]:
    yield from sorted(chance.uniform(0, how.over) for _ in range(count))


def _spaced(how: Arrivals, count: int, _: random.Random) -> Iterator[float]:
    gap = how.every or how.over / max(count, 1)
    yield from (index * gap for index in range(count))


def _burst(_: Arrivals, count: int, __: random.Random) -> Iterator[float]:
    yield from [0.0] * count


def _daily(how: Arrivals, count: int, chance: random.Random) -> Iterator[float]:
    """Draw times by thinning: at the highest rate, kept with the hour's probability."""
    found: list[float] = []
    while len(found) < count:
        when = chance.uniform(0, how.over)
        if chance.uniform(0, how.peak) < daily(when, how.peak):
            found.append(when)
    yield from sorted(found)


def daily(when: float, peak: float) -> float:
    """Return the rate at a time of the day, in seconds, beside the mean: least at midnight."""
    return max(0.0, 1 + (peak - 1) * math.sin(2 * math.pi * when / 86_400 - math.pi / 2))


PROCESSES: Final[Mapping[str, Callable[[Arrivals, int, random.Random], Iterator[float]]]] = {
    "poisson": _poisson,
    "uniform": _uniform,
    "spaced": _spaced,
    "burst": _burst,
    "daily": _daily,
}


def constant(value: float) -> Draw:
    """Return a constant."""
    return lambda _: value


def uniform(low: float, high: float) -> Draw:
    """Return uniformly distributed numbers."""
    return lambda chance: chance.uniform(low, high)


def exponential(mean: float) -> Draw:
    """Return exponentially distributed numbers."""
    return lambda chance: chance.expovariate(1 / mean)


def lognormal(median: float, sigma: float) -> Draw:
    """Return log-normally distributed numbers: many short, few very long."""
    return lambda chance: median * math.exp(chance.gauss(0, sigma))


def weibull(scale: float, shape: float) -> Draw:
    """Return Weibull-distributed numbers; a shape below 1 has a heavy tail."""
    return lambda chance: chance.weibullvariate(scale, shape)


MOST_TASKS: Final = 5_000_000
MOST_MACHINES: Final = 1_000_000
SIZES: Final = ("uniform", "powers")
OVER_A_TIME: Final = ("poisson", "daily", "uniform")


@dataclass(frozen=True, slots=True)
class _Drawn:
    """One drawn task: arrival, kind, run time, and user."""

    when: int
    kind: int
    length: int
    user: str


ASKED: Final = {
    "cpu": quantity(scale=1000, default=0),
    "memory": quantity(default=0),
    "gpus": whole(default=0),
    "gpu_milli": whole(
        "Of each GPU, in thousandths.", 1, WHOLE_GPU, default=WHOLE_GPU, needs="gpus"
    ).checked(lambda milli: f"is of one GPU: at most {WHOLE_GPU}" if milli > WHOLE_GPU else ""),
    "models": label("Names of GPU models, joined by |.", default="", needs="gpus"),
    "node_labels": labels(),
    "priority": whole(least=-(2**31), default=0),
    "queue": label(default=""),
    "user": label(default=""),
    "scheduler": label("Which of several external schedulers.", default=""),
    "startup": duration("In which a run does no work: images, weights, compilation.", default=0),
    "checkpoint": duration("Time between checkpoints, in place of that of `lifecycle`."),
}
"""What pods of any origin may say of themselves."""
GANG: Final = {
    "gang": whole("So many start together.", 1, MOST_TASKS, default=1),
    "topology": label("The node label whose value the nodes of a gang share.", default=""),
}
OF_PODS: Final = (
    "memory", "priority", "queue", "user", "scheduler", "startup", "checkpoint",
)  # fmt: skip


def _above_0(value: float) -> str:
    return "" if value else "must be above 0"


def _length(**how: Any) -> InputField:
    return duration(required=True, **how).checked(_above_0)


# By name: how long tasks take, and what draws that from the values, in seconds.
DISTRIBUTIONS: Final[dict[str, tuple[dict[str, InputField], Callable[[Given], Draw]]]] = {
    "constant": ({"value": _length()}, lambda how: constant(how.value / SECOND)),
    "uniform": (
        {"least": duration(default=0), "most": _length()},
        lambda how: uniform(how.least / SECOND, how.most / SECOND),
    ),
    "exponential": ({"mean": _length()}, lambda how: exponential(how.mean / SECOND)),
    "lognormal": (
        {"median": _length(), "sigma": number(default=1.0)},
        lambda how: lognormal(how.median / SECOND, how.sigma),
    ),
    "weibull": (
        {
            "scale": _length(),
            "shape": field(
                {"type": "number", "exclusiveMinimum": 0}, Fields.number, default=0.7
            ).checked(_above_0),
        },
        lambda how: weibull(how.scale / SECOND, how.shape),
    ),
}


def _drawn_length(**how: Any) -> InputField:
    tables = {
        name: Table(
            {"distribution": label(schema={"const": name}, required=name != "constant")} | own
        )
        for name, (own, _) in DISTRIBUTIONS.items()
    }

    def read(given: Fields, key: str) -> Draw:
        if not isinstance(given.raw(key), Mapping):
            return constant(given.duration(key) / SECOND)
        how = given.mapping(key)
        name = how.choice("distribution", DISTRIBUTIONS) if how.has("distribution") else "constant"
        return DISTRIBUTIONS[name][1](tables[name].read(how))

    return field(any_of(HOW_LONG, *(table.schema() for table in tables.values())), read, **how)


KIND: Final = {
    "weight": number("How often, beside the others; default: 1.", default=1.0),
    "duration": _drawn_length(),
}
POD: Final = Table(ASKED | KIND | GANG)
MACHINES: Final = Table(
    {
        "distribution": choice(SIZES, required=True),
        "least": whole(least=1, default=1),
        "most": whole("", 1, MOST_MACHINES, required=True),
    }
)
JOB: Final = Table(
    KIND | {"machines": either(whole(least=1), row(MACHINES), default=1), "user": label(default="")}
)
ARRIVALS: Final = Table(
    {
        "process": choice(list(PROCESSES), "Default: poisson.", default="poisson"),
        "over": duration("All arrive within so long.", default=0),
        "every": duration("Between two arrivals.", default=0),
        "peak": number("Of `daily`: the busiest hour beside the mean.", 1, default=1.8),
    },
    rules={
        "if": {"properties": {"process": json_schema.choice(OVER_A_TIME)}},
        "then": {"required": ["over"]},
    },
)
OVERESTIMATE: Final = Table(
    {"least": number("", 1, default=1.0), "most": number("", 1, default=2.0)}
)
GENERATE: Final = Table(
    {
        "name": label(),
        "count": whole("", 1, MOST_TASKS, required=True),
        "users": whole(least=1, default=1),
        "arrivals": row(ARRIVALS, required=True),
        "duration": _drawn_length(),
        "pods": rows(POD, least=1, always=False),
        "jobs": rows(JOB, least=1, always=False),
        "overestimate": row(
            OVERESTIMATE, "The walltime of jobs beside their run time.", needs="jobs"
        ),
    },
    one_of=("pods", "jobs"),
)


def pods(given: Given, seed: int, streams: str = "workload") -> Iterator[Pod]:
    """Yield pods; those of one kind with a `gang` come together."""
    for entry in given.pods:
        if given.count * entry.gang > MOST_TASKS:
            raise entry.error("gang", f"of {given.count} gangs: there may be {MOST_TASKS} pods")
    kinds = [(asked(entry), entry.gang) for entry in given.pods]
    name = given.name or "pod"
    for index, drawn in enumerate(_drawn(given, seed, "pods", streams)):
        base, gang = kinds[drawn.kind]
        for rank in range(gang):
            yield Pod(
                **(base | {"user": base["user"] or drawn.user}),
                name=f"{name}-{index}" if gang == 1 else f"{name}-{index}-{rank}",
                arrives=drawn.when,
                duration=drawn.length,
                gang=f"{name}-{index}" if gang > 1 else "",
            )


def jobs(given: Given, seed: int, problems: InputProblems, hosts: int | None) -> Workload:
    """Return rigid jobs. Their walltime is the run time times `overestimate`, drawn for each."""
    sizes = [_size(entry.machines) for entry in given.jobs]
    least, most = given.overestimate.least, given.overestimate.most
    if least > most:
        raise given.overestimate.error("most", f"must be at least {least:g}")
    name = given.name or "job"
    chance = Randomness(seed)
    widths, factors = chance.stream("workload/machines"), chance.stream("workload/walltimes")
    found: list[Job] = []
    for index, drawn in enumerate(_drawn(given, seed, "jobs", "workload")):
        width = sizes[drawn.kind](widths)
        walltime = math.ceil(drawn.length * factors.uniform(least, most))
        if hosts is not None and width > hosts:
            problem = f"{name}-{index} drew {width} machines; there are {hosts}"
            problems.about(given.error("jobs", problem))
            continue
        found.append(
            Job(
                id=f"{name}-{index}",
                submitted=drawn.when,
                width=width,
                walltime=walltime,
                profile=f"{drawn.length}ns",
                user=given.jobs[drawn.kind].user or drawn.user,
            )
        )
    return of_delays(found, given)


def of_delays(found: Sequence[Job], given: Given) -> Workload:
    """Return a workload of jobs whose profiles are named by their length, such as `5ns`."""
    lengths = {job.profile: int(job.profile.removesuffix("ns")) for job in found}
    return Workload(
        jobs=tuple(found),
        profiles={name: Delay(duration=length) for name, length in lengths.items()},
        machines=max((job.width for job in found), default=0),
        source=str(given.given.place.path),
    )


def bounded(entries: Sequence[Given], noun: str) -> Sequence[Given]:
    """Return the entries if their counts together are at most MOST_TASKS. InputError."""
    for entry, total in zip(entries, accumulate(entry.count for entry in entries), strict=True):
        if total > MOST_TASKS:
            raise entry.error("count", f"makes {total} {noun}: there may be {MOST_TASKS}")
    return entries


def asked(entry: Given) -> dict[str, Any]:
    """Return a pod's requests and properties, as fields of `Pod`."""
    milli = entry.gpu_milli if entry.gpus else 0
    labels = ",".join(sorted(entry.node_labels))
    own = {key: entry[key] for key in OF_PODS} | {"topology": entry.values.get("topology", "")}
    return own | {"request": PodRequest(entry.cpu, milli, entry.gpus, entry.models, labels)}


def _drawn(given: Given, seed: int, of: str, streams: str) -> Iterator[_Drawn]:
    """Draw tasks of the kinds in the list `of`, from random streams with that prefix."""
    how, count, kinds = given.arrivals, given.count, given[of]
    if how.process in OVER_A_TIME and not how.over:
        raise how.error("over", "must be given, as a duration above 0")
    arrivals = Arrivals(
        process=how.process, over=how.over / SECOND, every=how.every / SECOND, peak=how.peak
    )
    weights = [entry.weight for entry in kinds]
    durations = [entry.duration or given.duration for entry in kinds]
    if None in durations:
        given.given.duration("duration")  # which tells that it must be given
    if not sum(weights):
        raise given.error(of, f"must list at least one kind of {of} with a weight above 0")
    chance = Randomness(seed)
    times = arrival_times(arrivals, count, chance.stream(f"{streams}/arrivals"))
    picks = chance.stream(f"{streams}/kinds").choices(range(len(weights)), weights, k=count)
    lengths, owners = chance.stream(f"{streams}/durations"), chance.stream(f"{streams}/users")
    for when, pick in zip(times, picks, strict=True):
        length = max(1, round(durations[pick](lengths) * SECOND))
        yield _Drawn(when, pick, length, f"user-{owners.randrange(given.users)}")


def _size(how: int | Given) -> Callable[[random.Random], int]:
    """Return a generator of machine counts: constant, `powers` of two, or `uniform`."""
    if isinstance(how, int):
        return lambda _: how
    least, most = how.least, how.most
    if not least <= most <= MOST_MACHINES:
        raise how.error("most", f"must be from {least} to {MOST_MACHINES}")
    if how.distribution == "uniform":
        return lambda chance: chance.randint(least, most)
    powers = [1 << n for n in range(most.bit_length()) if least <= 1 << n <= most]
    if not powers:
        raise how.error("most", f"there is no power of two from {least} to {most}")
    return lambda chance: chance.choice(powers)
