"""`workload.generate`: pods or rigid jobs, drawn from distributions with a stream for each."""

import math
import random
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from dralab.kernel.clock import SECOND
from dralab.kernel.randomness import Randomness
from dralab.simulation.errors import InputProblems
from dralab.simulation.lifecycle.model import Pod
from dralab.simulation.scenario.fields import Fields
from dralab.simulation.workloads import generate
from dralab.simulation.workloads.jobs import Job, Workload
from dralab.simulation.workloads.openb import WHOLE_GPU, PodRequest
from dralab.simulation.workloads.profiles import Delay

MOST_TASKS: Final = 5_000_000
MOST_MACHINES: Final = 1_000_000
DISTRIBUTIONS: Final = ("constant", "uniform", "exponential", "lognormal", "weibull")
SIZES: Final = ("uniform", "powers")


@dataclass(frozen=True, slots=True)
class _Drawn:
    """One task: when it comes, which kind it is, how long it takes, whose it is."""

    when: int
    kind: int
    length: int
    user: str


def pods(fields: Fields, seed: int) -> Iterator[Pod]:
    """Yield pods; those of one kind with a `gang` come together."""
    kinds: list[tuple[dict[str, Any], int]] = []

    def kind(entry: Fields) -> None:
        kinds.append((asked(entry), entry.whole("gang", 1, least=1)))

    name = fields.text("name", "pod")
    for index, drawn in enumerate(_drawn(fields, seed, "pods", kind)):
        base, gang = kinds[drawn.kind]
        for rank in range(gang):
            yield Pod(
                **(base | {"user": base["user"] or drawn.user}),
                name=f"{name}-{index}" if gang == 1 else f"{name}-{index}-{rank}",
                arrives=drawn.when,
                duration=drawn.length,
                gang=f"{name}-{index}" if gang > 1 else "",
            )


def jobs(fields: Fields, seed: int, problems: InputProblems, hosts: int | None) -> Workload:
    """Return rigid jobs. Their walltime is the run time times `overestimate`, drawn for each."""
    sizes: list[Callable[[random.Random], int]] = []
    users: list[str] = []
    factor = _factor(fields.mapping("overestimate"))

    def kind(entry: Fields) -> None:
        sizes.append(_size(entry))
        users.append(entry.text("user", ""))

    name = fields.text("name", "job")
    chance = Randomness(seed)
    widths, factors = chance.stream("workload/machines"), chance.stream("workload/walltimes")
    found: list[Job] = []
    profiles: dict[str, Delay] = {}
    for index, drawn in enumerate(_drawn(fields, seed, "jobs", kind)):
        width = sizes[drawn.kind](widths)
        walltime = math.ceil(drawn.length * factor(factors))
        if hosts is not None and width > hosts:
            problem = f"{name}-{index} drew {width} machines; there are {hosts}"
            problems.about(fields.error("jobs", problem))
            continue
        profiles[f"{drawn.length}ns"] = Delay(duration=drawn.length)
        found.append(
            Job(
                id=f"{name}-{index}",
                submitted=drawn.when,
                width=width,
                walltime=walltime,
                profile=f"{drawn.length}ns",
                user=users[drawn.kind] or drawn.user,
            )
        )
    return Workload(
        jobs=tuple(found),
        profiles=profiles,
        machines=max((job.width for job in found), default=0),
        source=str(fields.place.path),
    )


def asked(entry: Fields) -> dict[str, Any]:
    """Return what pods of any origin may say of themselves, as fields of `Pod`."""
    gpus = entry.whole("gpus", 0)
    milli = entry.whole("gpu_milli", WHOLE_GPU, least=1) if gpus else 0
    if milli > WHOLE_GPU:
        raise entry.error("gpu_milli", f"is of one GPU: at most {WHOLE_GPU}")
    models = entry.text("models", "") if gpus else ""
    labels = ",".join(sorted(entry.labels("node_labels")))
    return {
        "request": PodRequest(entry.quantity("cpu", "0", scale=1000), milli, gpus, models, labels),
        "memory": entry.quantity("memory", "0"),
        "priority": entry.whole("priority", 0, least=-(2**31)),
        "queue": entry.text("queue", ""),
        "user": entry.text("user", ""),
        "scheduler": entry.text("scheduler", ""),
    }


def _drawn(fields: Fields, seed: int, of: str, kind: Callable[[Fields], None]) -> Iterator[_Drawn]:
    """Read what is common to pods and jobs, and draw; `kind` reads an entry of the list `of`."""
    count = fields.whole("count", least=1)
    if count > MOST_TASKS:
        raise fields.error("count", f"must be at most {MOST_TASKS}")
    arrivals = _arrivals(fields.mapping("arrivals"))
    weights: list[float] = []
    durations: list[generate.Draw] = []
    for entry in fields.mappings(of):
        weights.append(entry.number("weight", 1.0))
        durations.append(_distribution(entry if entry.has("duration") else fields))
        kind(entry)
        entry.done()
    if not sum(weights):
        raise fields.error(of, f"must list at least one kind of {of} with a weight above 0")
    users = fields.whole("users", 1, least=1)
    fields.raw("duration")
    fields.done()
    chance = Randomness(seed)
    times = generate.arrivals(arrivals, count, chance.stream("workload/arrivals"))
    picks = chance.stream("workload/kinds").choices(range(len(weights)), weights, k=count)
    lengths, owners = chance.stream("workload/durations"), chance.stream("workload/users")
    for when, pick in zip(times, picks, strict=True):
        length = max(1, round(durations[pick](lengths) * SECOND))
        yield _Drawn(when, pick, length, f"user-{owners.randrange(users)}")


def _arrivals(how: Fields) -> generate.Arrivals:
    arrivals = generate.Arrivals(
        process=how.choice("process", generate.PROCESSES, "poisson"),
        over=how.duration("over", 0) / SECOND,
        every=how.duration("every", 0) / SECOND,
        peak=how.number("peak", 1.8, least=1.0),
    )
    how.done()
    if arrivals.process in {"poisson", "daily", "uniform"} and not arrivals.over:
        raise how.error("over", "must be given, as a duration above 0")
    return arrivals


def _size(entry: Fields) -> Callable[[random.Random], int]:
    """Return what draws a number of machines: a number, or `powers` of two, or `uniform`."""
    if not isinstance(entry.raw("machines"), Mapping):
        width = entry.whole("machines", 1, least=1)
        return lambda _: width
    how = entry.mapping("machines")
    name = how.choice("distribution", dict.fromkeys(SIZES))
    least, most = how.whole("least", 1, least=1), how.whole("most", least=1)
    if not least <= most <= MOST_MACHINES:
        raise how.error("most", f"must be from {least} to {MOST_MACHINES}")
    how.done()
    if name == "uniform":
        return lambda chance: chance.randint(least, most)
    powers = [1 << n for n in range(most.bit_length()) if least <= 1 << n <= most]
    if not powers:
        raise how.error("most", f"there is no power of two from {least} to {most}")
    return lambda chance: chance.choice(powers)


def _factor(how: Fields) -> Callable[[random.Random], float]:
    least, most = how.number("least", 1.0, least=1.0), how.number("most", 2.0, least=1.0)
    if least > most:
        raise how.error("most", f"must be at least {least:g}")
    how.done()
    return lambda chance: chance.uniform(least, most)


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
        shape = how.number("shape", 0.7)
        if not shape:
            raise how.error("shape", "must be above 0")
        draw = generate.weibull(seconds("scale"), shape)
    else:
        draw = generate.constant(seconds("value"))
    how.done()
    return draw
