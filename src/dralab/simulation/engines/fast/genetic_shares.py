"""GPUs by a genetic algorithm, for the goodput of all: the policy of Pollux.

Source: Qiao et al., "Pollux: Co-adaptive Cluster Scheduling for Goodput-Optimized Deep Learning",
OSDI 2021, section 4.2, the simulator published with it, and pymoo 0.4.2, whose NSGA-II it uses
(Deb et al., 2002). Before each round, states (the GPUs of each training on each node) are bred from
those of the round before. The best has the highest harmonic mean of speedups, each relative to a
fair share of the GPUs; the second objective, utilisation, keeps the population diverse. Random
numbers are drawn in the order of pymoo, so that a seed chooses the same states here and there.

Accidents that are kept, because results depend on them: the states of the round before are handed
to the trainings that are still there by position, although their order has changed; and on a node
with two trainings that also run elsewhere, all that come after the first lose their GPUs.
"""

from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from dralab.kernel.clock import SECOND
from dralab.simulation.engines.fast.goodput import Floats, Whole
from dralab.simulation.engines.fast.rounds import Grant, RoundPolicy
from dralab.simulation.engines.fast.training import Training, TrainingRun, Trainings, runs_of

Flags = npt.NDArray[np.bool_]
POPULATION: Final = 100
GENERATIONS: Final = 100
# How often offspring are bred to replace those that were known already.
ATTEMPTS: Final = 101
CROSSED: Final = 0.9
# A mutation takes a training back to the GPUs that it has, or takes some of its GPUs away.
MUTATED: Final = 0.1
SEEDS: Final = 10_000_000
UNUSED: Final = np.iinfo(np.int16).max
# Seconds that a restart is believed to cost.
PENALTY: Final = 30
LEAST: Final = 1e-3


class Population(NamedTuple):
    """States, their two objectives (smaller is better), and how far each is from its neighbours.

    `best` tells which are not dominated by another.
    """

    states: Whole
    objectives: Floats
    crowding: Floats
    best: Flags


class GeneticShares(RoundPolicy[Training]):
    """Divides the GPUs of so many nodes, with so many each, of one type."""

    def __init__(self, nodes: int, gpus: int, chance: np.random.RandomState) -> None:
        self.nodes = nodes
        self.gpus = gpus
        self.chance = chance
        self._states: Whole = np.zeros((0, 0, nodes), dtype=np.int64)
        self._jobs: list[TrainingRun] = []

    def grants(self, run: Trainings) -> list[Grant[Training]]:
        """Return the GPUs of each training in the round that begins."""
        jobs = sorted(runs_of(run), key=lambda job: (job.served, job.job.arrives))
        [model] = run.capacity
        free = np.full(self.nodes, self.gpus)
        free[list(run.down(model))] = 0
        self.chance.seed(self.chance.randint(SEEDS))
        held = np.array([self._held(job) for job in jobs])
        problem = _Problem(jobs, held, model, run.now, free)
        begin = np.minimum(self._begin(jobs, held), free)
        found = _evolved(problem, begin, self.chance)
        self._states, self._jobs = found.states[found.best], jobs
        chosen = self._states[found.objectives[found.best, 0].argmin()]
        every = np.arange(self.nodes)
        return [
            Grant((job,), model, int(mine.sum()), tuple(np.repeat(every, mine).tolist()))
            for job, mine in zip(jobs, chosen, strict=True)
            if mine.any()
        ]

    def _held(self, job: TrainingRun) -> Whole:
        nodes = job.gpus.nodes if job.gpus else ()
        return np.bincount(np.array(nodes, dtype=np.int64), minlength=self.nodes)

    def _begin(self, jobs: Sequence[TrainingRun], held: Whole) -> Whole:
        """Return the states to begin with: the best of the round before."""
        if not len(self._states):
            return held[np.newaxis].copy()
        kept = [at for at, job in enumerate(self._jobs) if job in jobs]
        places = [at for at, job in enumerate(jobs) if job in self._jobs]
        states = np.zeros((len(self._states), *held.shape), dtype=np.int64)
        states[:, places] = self._states[:, kept]
        return states


class _Problem:
    """What is optimised in one round: states of `jobs` that hold GPUs, on nodes with `free` ones.

    A node has `gpus` of them, or none while it is down.
    """

    def __init__(
        self, jobs: Sequence[TrainingRun], held: Whole, model: str, now: int, free: Whole
    ) -> None:
        self.held = held
        self.free = free
        self.gpus = gpus = int(free.max())
        self.most = np.array([job.most_useful() for job in jobs])
        count, nodes = held.shape
        fair = -(-int(free.sum()) // count)
        # By the number of its nodes and GPUs.
        self.speedups = np.zeros((count, nodes + 1, self.most.max() + 1))
        for job, table, most in zip(jobs, self.speedups, self.most.tolist(), strict=True):
            spread, total = np.indices(table.shape)
            used = (spread > 0) & (spread <= total) & (total <= np.minimum(gpus * spread, most))
            goodput = job.goodput(model)
            if goodput is None:
                table[used] = total[used] / fair
            else:
                [share] = goodput.best(1, fair).values
                table[used] = goodput.best(spread[used], total[used]).values / share
        ages = np.array([(now - job.job.arrives) / SECOND for job in jobs])
        lost = np.array([float(job.restarts * PENALTY) for job in jobs])
        self.changed = np.maximum(ages - lost, 0.0) / (ages + PENALTY)

    def objectives(self, states: Whole) -> Floats:
        """Return the harmonic mean of speedups and the utilisation of each state, as losses."""
        count = len(self.held)
        gpus = states.sum(axis=2)
        speedups = self.speedups[np.arange(count), np.count_nonzero(states, axis=2), gpus]
        moved = (states != self.held).any(axis=2)
        # A share of one node is a speedup of 1.
        scaled = speedups / self.gpus * np.where(moved, self.changed, 1)
        mean = 1 / (np.sum(1 / (scaled + LEAST), axis=1) / count)
        active = (states.any(axis=1).sum(axis=1) * self.gpus)[:, np.newaxis]
        each = np.divide(speedups, gpus, out=np.zeros_like(speedups), where=gpus > 0)
        share = np.divide(gpus, active, out=np.zeros_like(speedups), where=gpus > 0)
        return np.column_stack([-mean, -np.sum(each * share, axis=1)])

    def mutated(self, states: Whole, chance: np.random.RandomState) -> Whole:
        """Return states of which some trainings have other GPUs."""
        back = chance.random_sample(states.shape[:2]) < MUTATED
        states = np.where(back[:, :, np.newaxis], self.held, states)
        less = np.where(chance.random_sample(states.shape[:2]) < MUTATED, MUTATED, 0.0)
        states[chance.random_sample(states.shape) < less[:, :, np.newaxis]] = 0
        free = np.broadcast_to(states.sum(axis=1, keepdims=True) < self.free, states.shape)
        anew = free / states.shape[1]
        there = (states > 0) & free
        more = there / np.maximum(there.sum(axis=1, keepdims=True), 1.0)
        grown = chance.random_sample(states.shape) < anew + more - anew * more
        drawn = chance.randint(states, self.gpus + 1)
        states[grown] = drawn[grown]
        return states

    def repaired(self, states: Whole, chance: np.random.RandomState) -> Whole:
        """Return states without the GPUs that a training cannot use or a node does not have."""
        spread = np.count_nonzero(states, axis=2) > 1
        states[((states > 0) & spread[:, :, np.newaxis]).cumsum(axis=1) > 1] = 0
        shuffle = chance.random_sample(states.shape).argsort(axis=2)
        states = np.take_along_axis(states, shuffle, axis=2)
        states = np.minimum(states.cumsum(axis=2), self.most[:, np.newaxis])
        states = np.diff(states, axis=2, prepend=0)
        states = np.take_along_axis(states, shuffle.argsort(axis=2), axis=2)
        states = np.minimum(states.cumsum(axis=1), self.free)
        return states - np.pad(states, ((0, 0), (1, 0), (0, 0)))[:, :-1]


def _evolved(problem: _Problem, states: Whole, chance: np.random.RandomState) -> Population:
    """Return the population after all generations, or when no new state is found."""
    states = problem.repaired(states, chance)
    states = states[_new(states, set())]
    now = _surviving(states, problem.objectives(states), len(states), chance)
    for _ in range(GENERATIONS - 1):
        known = {each.tobytes() for each in now.states}
        born = np.concatenate([now.states[:0], *_offspring(problem, now, known, chance)])
        if not len(born):
            break
        now = _surviving(
            np.concatenate([now.states, born]),
            np.concatenate([now.objectives, problem.objectives(born)]),
            POPULATION,
            chance,
        )
    return now


def _new(states: Whole, known: set[bytes]) -> list[int]:
    """Return which states are not known yet, and note them."""
    found = []
    for at, state in enumerate(states):
        key = state.tobytes()
        if key not in known:
            known.add(key)
            found.append(at)
    return found


def _offspring(
    problem: _Problem, parents: Population, known: set[bytes], chance: np.random.RandomState
) -> Iterator[Whole]:
    """Yield new states, as many as a population has, unless too few are found."""
    wanted = POPULATION
    for _ in range(ATTEMPTS):
        pairs = -(-wanted // 2)
        states = parents.states[_tournament(parents, 2 * pairs, chance).reshape(pairs, 2).T]
        crossed = chance.random_sample(pairs) < CROSSED
        count = states.shape[2]
        swapped = np.arange(count) < chance.randint(count, size=(pairs, 1))
        # They also draw numbers of nodes, which are all the same.
        chance.randint(UNUSED, size=(2, pairs))
        swapped &= crossed[:, np.newaxis]
        states = np.where(swapped[:, :, np.newaxis], states[::-1], states)
        states = states.reshape(-1, *states.shape[2:])
        states = problem.repaired(problem.mutated(states, chance), chance)
        states = states[_new(states, known)][:wanted]
        yield states
        wanted -= len(states)
        if not wanted:
            return


def _tournament(now: Population, wanted: int, chance: np.random.RandomState) -> Whole:
    """Return who wins against a random other: by the objectives, by crowding, or by chance."""
    size = len(now.states)
    rounds = -(-wanted * 2 // size)
    order = np.concatenate([chance.permutation(size) for _ in range(rounds)])
    one, other = order[: wanted * 2].reshape(wanted, 2).T
    mine, theirs = now.objectives[one], now.objectives[other]
    no_worse, no_better = (mine <= theirs).all(axis=1), (mine >= theirs).all(axis=1)
    equal = no_worse == no_better
    wins = (no_worse & ~no_better) | (equal & (now.crowding[one] > now.crowding[other]))
    ties = equal & (now.crowding[one] == now.crowding[other])
    wins[ties] = chance.randint(2, size=int(ties.sum())) == 0
    return np.where(wins, one, other)


def _surviving(
    states: Whole, objectives: Floats, most: int, chance: np.random.RandomState
) -> Population:
    """Return the states of the best fronts; of the last, those with the fewest neighbours."""
    fronts: list[Whole] = []
    crowding: list[Floats] = []
    left = most
    for front in _fronts(objectives):
        order, mine = np.arange(len(front)), _crowding(objectives[front])
        if len(front) > left:
            shuffled = chance.permutation(len(front))
            order = shuffled[mine[shuffled].argsort(kind="stable")][::-1][:left]
        fronts.append(front[order])
        crowding.append(mine[order])
        left -= len(order)
        if not left:
            break
    chosen = np.concatenate(fronts)
    best = np.arange(len(chosen)) < len(fronts[0])
    return Population(states[chosen], objectives[chosen], np.concatenate(crowding), best)


def _fronts(objectives: Floats) -> Iterator[Whole]:
    """Yield the states that no other dominates, then those that only these dominate, and so on."""
    first, second = objectives.T
    no_worse: Flags = (first[:, np.newaxis] <= first) & (second[:, np.newaxis] <= second)
    dominates = no_worse & ~no_worse.T
    dominated = dominates.sum(axis=0)
    front = np.flatnonzero(dominated == 0)
    while len(front):
        yield front
        dominated[front] = -1
        by_front = dominates[front]
        dominated -= by_front.sum(axis=0)
        following = np.flatnonzero(dominated == 0)
        # In the order in which the last that dominates each was taken away.
        last = by_front[::-1, following].argmax(axis=0)
        front = following[np.lexsort((following, -last))]


def _crowding(objectives: Floats) -> Floats:
    """Return how far the neighbours of each are from each other; 0 for who is there already."""
    found = np.zeros(len(objectives))
    if len(objectives) <= 2:
        return found + np.inf
    seen: dict[tuple[float, ...], int] = {}
    for at, each in enumerate(objectives.tolist()):
        seen.setdefault(tuple(each), at)
    unique = list(seen.values())
    for column in objectives[unique].T:
        order = column.argsort(kind="stable")
        width = column[order[-1]] - column[order[0]]
        if width:
            steps = np.diff(column[order], prepend=-np.inf, append=np.inf) / width
            place = np.empty(len(order))
            place[order] = steps[:-1] + steps[1:]
            found[unique] += place
    return found / 2
