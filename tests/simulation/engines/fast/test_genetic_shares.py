"""The genetic algorithm of Pollux: its random numbers, its fronts, and the states that it allows."""

from types import SimpleNamespace

import numpy as np
import pytest

from dralab.kernel.clock import SECOND
from dralab.simulation.engines.fast import genetic_shares
from dralab.simulation.engines.fast.genetic_shares import GeneticShares
from dralab.simulation.engines.fast.goodput import Goodput
from dralab.simulation.engines.fast.rounds import GpuSlice
from dralab.simulation.engines.fast.training import Training, TrainingRun

NODES = 4
GPUS = 4


class KnownRun(TrainingRun):
    """A training whose goodput is a formula."""

    def goodput(self, model):
        return SimpleNamespace(best=lambda nodes, gpus: Goodput(formula(nodes, gpus), None, None))

    def most_useful(self):
        return self.job.most


def formula(nodes, gpus):
    return np.atleast_1d(gpus / (1 + gpus / 16 + nodes / 8))


def runs():
    """Return five trainings: when they came, the GPU seconds that they had, the most GPUs."""
    known = [("a", 0, 9000, 16), ("b", 60, 5000, 16), ("c", 120, 700, 4), ("d", 240, 600, 2)]
    return [
        KnownRun(
            job=Training(name=name, arrives=at * SECOND, profiles={}, of_a_node={}, most=most),
            number=number,
            served=served * SECOND,
        )
        for number, (name, at, served, most) in enumerate([*known, ("e", 500, 100, 1)])
    ]


def rounds(seed, times, leaves):
    """Yield the nodes of each training, round by round; one leaves at the last."""
    policy = GeneticShares(NODES, GPUS, np.random.RandomState(seed))
    jobs = runs()
    for time in times:
        jobs = [job for job in jobs if (job.job.name, time) != leaves]
        run = SimpleNamespace(
            active=jobs, capacity={"": NODES * GPUS}, now=time * SECOND, down=lambda _: ()
        )
        given = {grant.jobs[0].number: grant for grant in policy.grants(run)}
        for job in jobs:
            held, grant = job.gpus, given.get(job.number)
            job.gpus = None if grant is None else GpuSlice("", grant.gpus, nodes=grant.nodes)
            if job.gpus and job.gpus != held:
                job.restarts += job.started is not None
                job.started = time
            job.served += 180 * SECOND * (job.gpus.number if job.gpus else 0)
        yield {job.job.name: job.gpus.nodes for job in jobs if job.gpus}


@pytest.mark.parametrize(
    ("seed", "first", "last"),
    [
        (
            0,
            {"a": (2, 2, 2, 2), "b": (1, 1, 1, 3, 3), "c": (0, 0, 0, 0), "d": (3, 3), "e": (1,)},
            {"a": (1, 1, 1, 2, 2, 2, 2, 3, 3), "c": (0, 0, 0, 0), "d": (3, 3), "e": (1,)},
        ),
        pytest.param(
            7,
            {"a": (0, 0, 0, 0), "b": (1, 1, 2, 2, 2), "c": (3, 3, 3, 3), "d": (1, 1), "e": (2,)},
            {"a": (0, 0, 0, 0, 1, 1, 2, 2, 2), "c": (3, 3, 3, 3), "d": (1, 1), "e": (2,)},
            marks=pytest.mark.thorough,
        ),
    ],
)
def test_a_seed_gives_the_states_that_it_gives_in_the_authors_program(seed, first, last):
    """The nodes were recorded from the policy of the artifact (osdi21-artifact, pymoo 0.4.2.1)."""
    assert list(rounds(seed, (600, 780), leaves=("b", 780))) == [first, last]


def test_states_fit_on_nodes_and_only_one_training_of_a_node_is_also_elsewhere():
    chance = np.random.RandomState(3)
    jobs = runs()
    free = np.full(NODES, GPUS)
    free[1] = 0  # that node is down
    problem = genetic_shares._Problem(jobs, np.zeros((5, NODES), dtype=int), "", 600, free)
    states = problem.repaired(chance.randint(0, GPUS + 1, size=(200, 5, NODES)), chance)
    assert states.any()
    assert states.min() == 0
    assert (states.sum(axis=1) <= free).all()
    assert (states.sum(axis=2) <= [job.job.most for job in jobs]).all()
    spread = (states > 0).sum(axis=2) > 1
    assert (((states > 0) & spread[:, :, np.newaxis]).sum(axis=1) <= 1).all()


def test_fronts_are_those_of_a_plain_search():
    chance = np.random.RandomState(1)
    objectives = chance.randint(0, 6, size=(40, 2)).astype(float)
    left = dict(enumerate(objectives.tolist()))
    for front in genetic_shares._fronts(objectives):
        plain = {
            at
            for at, (one, two) in left.items()
            if not any(a <= one and b <= two and (a, b) != (one, two) for a, b in left.values())
        }
        assert set(front.tolist()) == plain
        left = {at: each for at, each in left.items() if at not in plain}
    assert not left


def test_the_ends_of_a_front_are_the_loneliest_and_a_second_of_a_kind_counts_nothing():
    objectives = np.array([[0, 4], [1, 2], [1, 2], [4, 0]], dtype=float)
    assert genetic_shares._crowding(objectives).tolist() == [np.inf, 1, 0, np.inf]
