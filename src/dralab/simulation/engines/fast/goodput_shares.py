"""GPUs of several types where they add the most goodput: the policy of Sia.

Source: Subramanya et al., "Sia: Heterogeneity-aware, goodput-optimized ML-cluster scheduling", SOSP
2023, section 3, and the simulator published with it. In each round a training gets one of a few
configurations (a type of GPU, and 1, 2, 4, … of a node or whole nodes) or none, so that the sum of
their normalised goodputs to a power is least. A change counts less, the more a training has
restarted. Where a training has not run, its goodput follows from that on another type.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, NamedTuple

import numpy as np

from dralab.kernel.clock import SECOND
from dralab.kernel.extras import require
from dralab.simulation.engines.fast.goodput import Floats, GoodputModel
from dralab.simulation.engines.fast.rounds import Grant, RoundPolicy
from dralab.simulation.engines.fast.training import Training, TrainingRun, Trainings, runs_of
from dralab.simulation.workloads.training_profiles import TrainingProfile

NOTHING: Final = 1e-4
# Powers of goodputs are rounded to two digits.
HUNDREDTHS: Final = 100
MOST: Final = 3000.0


class Configuration(NamedTuple):
    """So many GPUs of a type, on so many nodes."""

    model: str
    nodes: int
    gpus: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SiaRules:
    """The numbers of the policy: the power of goodputs, and what a training without GPUs costs.

    `penalties` are the seconds that the policy believes a restart of each model to cost.
    """

    power: float = -0.5
    waiting: float = 1.1
    penalties: Mapping[str, int]


class GoodputShares(RoundPolicy[Training]):
    """Nodes with so many GPUs of each type."""

    def __init__(
        self, of_a_node: Mapping[str, int], capacity: Mapping[str, int], rules: SiaRules
    ) -> None:
        self.of_a_node = of_a_node
        self.rules = rules
        self.configurations = [
            Configuration(model, max(1, gpus // of_a_node[model]), gpus)
            for model in of_a_node
            for gpus in _sizes(of_a_node[model], capacity[model])
        ]
        self._use = np.array(
            [
                [each.gpus if each.model == model else 0 for each in self.configurations]
                for model in of_a_node
            ],
            dtype=float,
        )

    def grants(self, run: Trainings) -> list[Grant[Training]]:
        """Return the configuration of each training in the round that begins."""
        jobs = runs_of(run)
        held = [self._held(job) for job in jobs]
        values = np.array(
            [self._values(job, at, run.now) for job, at in zip(jobs, held, strict=True)]
        )
        powers = np.minimum(np.round(values**self.rules.power, 2), MOST)
        fixed = [at if job.loading else None for job, at in zip(jobs, held, strict=True)]
        capacity = [float(run.capacity[model]) for model in self.of_a_node]
        chosen = least_cost(powers - self.rules.waiting, self._use, capacity, fixed)
        found: list[Grant[Training]] = []
        for model in self.of_a_node:
            given = [
                (job, self.configurations[at].gpus)
                for job, at in zip(jobs, chosen, strict=True)
                if at is not None and self.configurations[at].model == model
            ]
            down = run.down(model)
            nodes = run.capacity[model] // self.of_a_node[model] + len(down)
            free = [0 if at in down else self.of_a_node[model] for at in range(nodes)]
            found += self._placed(model, given, free)
        return found

    def _held(self, job: TrainingRun) -> int | None:
        if job.gpus is None:
            return None
        [at] = [
            number
            for number, each in enumerate(self.configurations)
            if (each.model, each.gpus) == (job.gpus.model, job.gpus.number)
        ]
        return at

    def _values(self, job: TrainingRun, held: int | None, now: int) -> Floats:
        """Return the goodput of each configuration, as multiples of the least on one GPU."""
        values: Floats = np.full(len(self.configurations), NOTHING)
        known = {
            model: goodput
            for model in self.of_a_node
            if (goodput := job.goodput(model)) is not None
        }
        if not known:
            values[[each.gpus == 1 for each in self.configurations]] = 1.0
        most = job.most_useful()
        for model in self.of_a_node if known else ():
            mine = [
                at
                for at, each in enumerate(self.configurations)
                if each.model == model and each.gpus <= most
            ]
            values[mine] = self._of(job, model, mine, known)
        if known:
            values /= values[values > NOTHING].min()
        values = np.maximum(values, NOTHING)
        if held is not None:
            kept = values[held]
            values *= self._factor(job, now)
            values[held] = kept
        return values

    def _of(
        self, job: TrainingRun, model: str, mine: Sequence[int], known: Mapping[str, GoodputModel]
    ) -> Floats:
        """Return goodputs on a type; where it has not run, those of another type, scaled."""
        seen = model if model in known else next(iter(known))
        gpus = np.array([self.configurations[at].gpus for at in mine], dtype=float)
        nodes = np.array([self.configurations[at].nodes for at in mine], dtype=float)
        if seen != model:
            nodes = np.ceil(gpus / self.of_a_node[seen])
        # The policy keeps to the batch of the user, which the training itself does not.
        goodput = replace(known[seen], largest=job.job.batch or known[seen].largest)
        profiles = job.job.profiles
        ratio = 1.0 if seen == model else _pace(profiles[model]) / _pace(profiles[seen])
        found: Floats = goodput.best(nodes, gpus).values * ratio
        return found

    def _factor(self, job: TrainingRun, now: int) -> float:
        """Return what a change counts: less for a training that has restarted often."""
        age = (now - job.job.arrives) / SECOND
        penalty = self.rules.penalties[job.job.kind]
        if age < penalty:
            return 1.0
        return max(age - job.restarts * penalty, 0) / (age + penalty)

    def _placed(
        self, model: str, given: Sequence[tuple[TrainingRun, int]], free: list[int]
    ) -> Iterator[Grant[Training]]:
        """Yield grants with nodes, largest first: whole nodes, then from the next node on."""
        whole, at = self.of_a_node[model], 0
        for job, gpus in sorted(given, key=lambda each: -each[1]):
            chosen: list[int] = []
            order = [(at + step) % len(free) for step in range(len(free))]
            for node in order:
                if free[node] == whole <= gpus - len(chosen):
                    free[node] = 0
                    chosen += [node] * whole
                    at = (node + 1) % len(free)
            while len(chosen) < gpus:
                taken = min(gpus - len(chosen), free[at])
                free[at] -= taken
                chosen += [at] * taken
                at = (at + 1) % len(free)
            yield Grant((job,), model, gpus, tuple(chosen))


def _sizes(of_a_node: int, capacity: int) -> list[int]:
    """Return numbers of GPUs: powers of two on a node, then whole nodes."""
    parts = [1 << power for power in range(of_a_node.bit_length() - 1)]
    return [*parts, *range(of_a_node, capacity + 1, of_a_node)]


def _pace(profile: TrainingProfile) -> float:
    """Return the samples per second of one GPU with the largest batch that it holds."""
    alone = profile.placements[1]
    return max(each.batch for each in alone) / max(each.time.step for each in alone)


def least_cost(
    costs: Floats, use: Floats, capacity: Sequence[float], fixed: Sequence[int | None]
) -> list[int | None]:
    """Return one column or none for each row, so that the sum of costs is least.

    `use` has what each column takes of each `capacity`; some rows have their column `fixed`.
    """
    require("optimal", "the policy of Sia")
    from ortools.sat.python import cp_model

    model = cp_model.CpModel()
    whole = np.round(costs * HUNDREDTHS).astype(int)
    use, most = use.astype(int), [int(each) for each in capacity]
    taken: dict[tuple[int, int], Any] = {}
    for row, at in enumerate(fixed):
        columns = np.flatnonzero(whole[row] < 0).tolist() if at is None else [at]
        for column in columns:
            taken[row, column] = model.new_bool_var("")
        mine = [taken[row, column] for column in columns]
        if at is None:
            model.add_at_most_one(mine)
        else:
            model.add(mine[0] == 1)
    for amounts, limit in zip(use, most, strict=True):
        model.add(sum(int(amounts[column]) * each for (_, column), each in taken.items()) <= limit)
    model.minimize(sum(int(whole[key]) * each for key, each in taken.items()))
    solver = cp_model.CpSolver()
    solver.parameters.num_workers = 1
    solver.solve(model)
    found: list[int | None] = [None] * len(fixed)
    for (row, column), each in taken.items():
        if solver.boolean_value(each):
            found[row] = column
    return found
