"""`workload.serving`: replicas of services, as many as the requests of each hour need.

A replica is a pod or a gang; its groups (prefill and decode, for example) follow different parts of
the same load. What an autoscaler would want is computed beforehand, interval by interval; whether
the replicas are there in time, the run shows.
"""

import math
import random
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

from dralab.kernel.clock import SECOND
from dralab.kernel.randomness import Randomness
from dralab.scenarios.fields import Fields, is_number
from dralab.scenarios.tables import (
    Given,
    Table,
    choice,
    duration,
    either,
    field,
    file,
    label,
    number,
    row,
    rows,
    whole,
)
from dralab.simulation.lifecycle.model import Pod
from dralab.simulation.scenario import generated
from dralab.simulation.scenario.generated import MOST_TASKS
from dralab.simulation.workloads import azure
from dralab.values import json_schema
from dralab.values.json_schema import listing

HOURS: Final = 24
REQUESTS: Final = "requests"
MOST_REPLICAS: Final = 100_000
# The parts of a load that a group of replicas may follow.
PARTS: Final = (REQUESTS, "context", "generated")


@dataclass(frozen=True, slots=True)
class Load:
    """Requests, tokens of their contexts and generated tokens, each a second, of one interval."""

    requests: float
    context: float
    generated: float


def _hourly(given: Fields, key: str) -> list[float]:
    value = given.raw(key)
    if len(value) != HOURS or not all(is_number(each) and 0 <= each < 1e9 for each in value):
        raise given.error(key, f"must be {HOURS} numbers: requests a second in each hour of a day")
    return [float(each) for each in value]


def _above_0(value: float) -> str:
    return "" if value > 0 else "must be above 0"


TOKENS: Final = Table(
    {"context": number("Mean of a request.", default=0), "generated": number(default=0)}
)
GROUP: Final = Table(
    generated.ASKED
    | generated.GANG
    | {
        "name": label("Such as prefill, decode.", required=True),
        "of": choice(PARTS, "What it follows: requests or tokens.", default=REQUESTS),
        "rate": number("So many of them a second keep a replica busy.", required=True).checked(
            _above_0
        ),
        "load": number("How busy a replica should be, of 1.", default=0.8).checked(_above_0),
        "least": whole("Replicas at any time.", default=1),
        "most": whole("Replicas at any time.", 1),
    }
)
SERVING: Final = Table(
    {
        "name": label(required=True),
        "over": duration(required=True).checked(_above_0),
        "every": duration("Between changes of the replicas.", default=900 * SECOND).checked(
            _above_0
        ),
        "stay": duration("A replica goes when it was not needed for so long.", default=0),
        "requests": either(
            number(), field(listing(json_schema.number(0), HOURS), _hourly),
            about="A second: the mean of a day, or 24 numbers, one an hour.",
        ),
        "peak": number("The busiest hour beside the mean.", 1, default=1.8),
        "tokens": row(TOKENS),
        "azure": file("Requests of an Azure LLM inference trace, again and again: CSV."),
        "groups": rows(GROUP, least=1, required=True).checked(
            lambda found: "" if found else "must have at least one group of replicas"
        ),
    },
    one_of=("requests", "azure"),
)  # fmt: skip


def pods(given: Sequence[Given], seed: int) -> Iterator[Pod]:
    """Yield the pods of all replicas. InputError."""
    names = [each.name for each in given]
    for service in given:
        if names.count(service.name) > 1:
            raise service.error("name", f"there are two services {service.name!r}")
        loads = list(_loads(service, Randomness(seed).stream(f"serving/{service.name}")))
        for group in service.groups:
            yield from _replicas(service, group, loads)


def _loads(service: Given, chance: random.Random) -> Iterator[Load]:
    """Yield the load of each interval; the number of requests is drawn from a Poisson law."""
    every, count = service.every, -(-service.over // service.every)
    if count > MOST_TASKS:
        raise service.error("every", f"makes {count} intervals; at most {MOST_TASKS}")
    if service.form == "azure":
        trace = azure.loads(service.azure, every)
        yield from (Load(*trace[index % len(trace)]) for index in range(count))
        return
    seconds, tokens = every / SECOND, service.tokens
    for index in range(count):
        expected = seconds * _rate(service, (index + 0.5) * seconds)
        drawn = max(0.0, chance.gauss(expected, math.sqrt(expected))) / seconds
        yield Load(drawn, drawn * tokens.context, drawn * tokens.generated)


def _rate(service: Given, when: float) -> float:
    """Return the requests a second at a time of the day, in seconds."""
    if isinstance(service.requests, list):
        hour: float = service.requests[int(when // 3600) % HOURS]
        return hour
    mean: float = service.requests
    return mean * generated.daily(when, service.peak)


def _replicas(service: Given, group: Given, loads: Sequence[Load]) -> Iterator[Pod]:
    """Yield the pods of a group: the replica that came last is the first to go."""
    most = MOST_REPLICAS if group.most is None else group.most
    if group.least > most:
        raise group.error("most", f"must be at least {group.least}")
    running: list[int] = []
    latest: deque[int] = deque(maxlen=1 + -(-service.stay // service.every))
    for index, load in enumerate(loads):
        latest.append(math.ceil(getattr(load, group.of) / (group.rate * group.load)))
        needed = max(latest)
        if needed > MOST_REPLICAS and group.most is None:
            raise group.error("rate", f"needs {needed} replicas at a time; at most {MOST_REPLICAS}")
        wanted = min(max(needed, group.least), most)
        while len(running) > wanted:
            yield from _replica(service, group, len(running) - 1, running.pop(), index)
        running += [index] * (wanted - len(running))
    while running:
        yield from _replica(service, group, len(running) - 1, running.pop(), len(loads))


def _replica(service: Given, group: Given, number: int, first: int, after: int) -> Iterator[Pod]:
    """Yield the pods of a replica that is wanted from one interval until before another."""
    name = f"{service.name}-{group.name}-{number}-{first}"
    asked: dict[str, Any] = generated.asked(group)
    for rank in range(group.gang):
        yield Pod(
            **asked | {"user": asked["user"] or service.name},
            name=name if group.gang == 1 else f"{name}-{rank}",
            arrives=first * service.every,
            until=min(after * service.every, service.over),
            gang=name if group.gang > 1 else "",
        )
