"""Workloads drawn from distributions: arrivals, sizes and durations, each from its own stream.

Changing one of them leaves the draws of the others as they were.
"""

import math
import random
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from dralab.kernel.clock import SECOND

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


def arrivals(how: Arrivals, count: int, chance: random.Random) -> list[int]:
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
    """Thinning: times of the highest rate, kept with the chance that the hour gives."""
    found: list[float] = []
    while len(found) < count:
        when = chance.uniform(0, how.over)
        rate = 1 + (how.peak - 1) * math.sin(2 * math.pi * when / 86_400 - math.pi / 2)
        if chance.uniform(0, how.peak) < rate:
            found.append(when)
    yield from sorted(found)


PROCESSES: Final[Mapping[str, Callable[[Arrivals, int, random.Random], Iterator[float]]]] = {
    "poisson": _poisson,
    "uniform": _uniform,
    "spaced": _spaced,
    "burst": _burst,
    "daily": _daily,
}


def constant(value: float) -> Draw:
    """Return the same each time."""
    return lambda _: value


def uniform(low: float, high: float) -> Draw:
    """Return numbers spread evenly."""
    return lambda chance: chance.uniform(low, high)


def exponential(mean: float) -> Draw:
    """Return numbers without memory."""
    return lambda chance: chance.expovariate(1 / mean)


def lognormal(median: float, sigma: float) -> Draw:
    """Return numbers whose logarithm is normal: many short, few very long."""
    return lambda chance: median * math.exp(chance.gauss(0, sigma))


def weibull(scale: float, shape: float) -> Draw:
    """Return Weibull's numbers; a shape below 1 has a heavy tail."""
    return lambda chance: chance.weibullvariate(scale, shape)
