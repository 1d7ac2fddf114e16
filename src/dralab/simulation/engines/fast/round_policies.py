"""The policies of rounds by their names in scenarios, which the reproductions use as well."""

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from dralab.simulation.engines.fast import attained_service as queues
from dralab.simulation.engines.fast import share_policies as shares
from dralab.simulation.engines.fast.attained_service import AttainedService, Gittins, Queue
from dralab.simulation.engines.fast.genetic_shares import GeneticShares
from dralab.simulation.engines.fast.goodput_shares import GoodputShares, SiaRules
from dralab.simulation.engines.fast.marginal_gains import MarginalGains
from dralab.simulation.engines.fast.rounds import RoundPolicy
from dralab.simulation.engines.fast.throughput_shares import ThroughputShares
from dralab.simulation.engines.fast.time_shares import SharePolicy, TimeShares

# By what decides who runs; `needs` are the GPU seconds that jobs need, which one of them knows.
QUEUES: Final[Mapping[str, Callable[[Sequence[int]], Queue[Any]]]] = {
    "fifo": lambda _: Queue(blocks=True),
    "fifo-fit": lambda _: Queue(),
    "fewest-gpus": lambda _: Queue(queues.smallest),
    "shortest": lambda _: Queue(queues.shortest),
    "shortest-service": lambda _: Queue(queues.shortest_service),
    "las": lambda _: AttainedService(of_gpus=False),
    "las-2d": lambda _: AttainedService(),
    "gittins-2d": lambda needs: AttainedService(gittins=Gittins(needs)),
}
# Those that divide the time of GPUs; `chance` draws pairs and types.
SHARES: Final[Mapping[str, Callable[[random.Random], SharePolicy]]] = {
    "fifo-shares": lambda _: shares.Fifo(),
    "fifo-shares-agnostic": shares.AgnosticFifo,
    "max-min": lambda _: shares.MaxMin(),
    "max-min-agnostic": lambda _: shares.MaxMin(aware=False),
    "finish-time": lambda _: shares.FinishTimeFairness(),
    "finish-time-agnostic": lambda _: shares.FinishTimeFairness(aware=False),
    "makespan": lambda _: shares.MinMakespan(),
    "makespan-agnostic": lambda _: shares.MinMakespan(aware=False),
    "allox": lambda _: shares.AlloX(),
    "gandiva": shares.Gandiva,
}
# Those that POP computes in parts, each with a part of the GPUs of every model.
POP: Final = {f"pop-{name}": name for name in ("max-min", "finish-time", "makespan")}
PARTS: Final = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundSetting:
    """What a policy is made for: GPUs by model, in all and of a node, and the length of a round.

    A model whose nodes differ is not in `of_a_node`. `needs` are the GPU seconds of jobs, and
    `penalties` those of a restart by kind of training. Of the `jobs`, the `widest` of which wants
    so many GPUs, some are `measured`.
    """

    capacity: Mapping[str, int]
    of_a_node: Mapping[str, int]
    length: int
    chance: random.Random
    needs: Sequence[int]
    penalties: Mapping[str, int]
    measured: int
    jobs: int
    widest: int


def policy_named(name: str, setting: RoundSetting) -> RoundPolicy[Any]:
    """Return the policy of a name. ValueError: it is not for that setting."""
    if name in QUEUES:
        return QUEUES[name](setting.needs)
    if not setting.length and name != "optimus":
        raise ValueError("needs rounds of a length, and `round` is 0")
    if name == "allox" and setting.widest > 1:
        raise ValueError(f"is for trainings of one GPU, and one asks for {setting.widest}")
    if name in SHARES or name in POP:
        if setting.measured:
            raise ValueError("divides by speeds: give `steps` or `duration`, not `epochs`")
        return TimeShares(
            _in_parts(POP[name], setting) if name in POP else SHARES[name](setting.chance),
            setting.capacity,
            length=setting.length,
            chance=setting.chance,
        )
    if name in {"optimus", "pollux"} and len(setting.capacity) > 1:
        models = ", ".join(setting.capacity)
        raise ValueError(f"is for GPUs of one model, and the fleet has {models}")
    if name == "optimus":
        return MarginalGains()
    if differ := sorted(setting.capacity.keys() - setting.of_a_node.keys()):
        raise ValueError(f"needs as many GPUs on each node of a model; those of {differ[0]} differ")
    if name == "throughput":
        return ThroughputShares(setting.of_a_node, setting.length)
    if setting.measured < setting.jobs:
        raise ValueError("goes by goodput: give `kind`, `epochs` and a folder as `profiles`")
    if name == "pollux":
        [(model, gpus)] = setting.of_a_node.items()
        draws = np.random.RandomState(setting.chance.getrandbits(32))
        return GeneticShares(setting.capacity[model] // gpus, gpus, draws)
    rules = SiaRules(penalties=setting.penalties)
    return GoodputShares(setting.of_a_node, setting.capacity, rules)


def _in_parts(name: str, setting: RoundSetting) -> SharePolicy:
    """Return a policy in parts, of which each has a GPU of every model."""
    parts = min(PARTS, *setting.capacity.values())
    return shares.InParts([SHARES[name](setting.chance) for _ in range(parts)], setting.chance)
