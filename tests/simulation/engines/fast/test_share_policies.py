"""Policies that divide the time of GPUs, on cases that one can compute by hand."""

import random
from itertools import permutations

import numpy as np
import pytest

from dralab.kernel.clock import SECOND
from dralab.simulation.engines.fast import share_policies, time_division
from dralab.simulation.engines.fast.rounds import JobProgress
from dralab.simulation.engines.fast.share_policies import cheapest_assignment
from dralab.simulation.engines.fast.time_shares import ShareRequest, TrainingJob


def asked(*jobs, capacity=(1, 1), now=0):
    """Return a request for jobs: speeds on v100 and k80, and what else a job has."""
    models = ("v100", "k80")[: len(capacity)]
    found = []
    for number, (speeds, more) in enumerate(jobs):
        table = dict(zip(models, speeds, strict=True))
        beside = more.pop("beside", 0.5)
        job = TrainingJob(
            name=str(number),
            kind="net",
            arrives=more.pop("arrives", 0) * SECOND,
            work=more.pop("work", 100.0),
            throughputs=lambda _, gpus, table=table, beside=beside: (
                table[gpus.model] * (beside if gpus.beside else 1)
            ),
            **more,
        )
        found.append(JobProgress(job, number))
    speeds = np.array([speeds for speeds, _ in jobs], dtype=float)
    return ShareRequest(found, models, np.array(capacity, dtype=float), speeds, now * SECOND)


def shares_of(policy, request):
    """Return the shares as lists, rounded."""
    return {key: row.round(3).tolist() for key, row in policy.shares(request).items()}


def test_fifo_gives_the_first_job_the_gpu_on_which_it_is_fastest():
    request = asked(((1, 2), {}), ((5, 1), {}), ((9, 9), {}))
    assert shares_of(share_policies.Fifo(), request) == {(0,): [0, 1], (1,): [1, 0]}


def test_fifo_lets_nobody_overtake_a_job_that_does_not_fit():
    request = asked(((1, 1), {"gpus": 2}), ((1, 1), {}))
    assert shares_of(share_policies.Fifo(), request) == {}


def test_agnostic_fifo_takes_types_by_their_names_and_keeps_them():
    policy = share_policies.AgnosticFifo(random.Random(0))
    request = asked(((1, 2), {}), ((5, 1), {}), capacity=(2, 1))
    assert shares_of(policy, request) == {(0,): [1, 0], (1,): [1, 0]}
    # The first has ended: its place goes to the next of the queue.
    later = asked(((1, 2), {}), ((5, 1), {}), ((7, 7), {}), capacity=(2, 1))
    later = ShareRequest(later.jobs[1:], later.models, later.capacity, later.speeds[1:], 0)
    assert shares_of(policy, later) == {(1,): [1, 0], (2,): [1, 0]}


@pytest.mark.parametrize(
    ("slow_time", "expected"),
    [(25, {(0,): [1, 0], (1,): [0, 1]}), (100, {(0,): [1, 0]})],
)
def test_allox_lets_a_job_wait_where_that_ends_all_sooner(slow_time, expected):
    """A takes 10 s or 30 s, b 20 s or `slow_time`: on their own GPUs 10 + 25, one after the other
    10 + 30; with 100 s the second is less.
    """
    request = asked(((10, 100 / 30), {}), ((5, 100 / slow_time), {}))
    assert shares_of(share_policies.AlloX(), request) == expected


def test_allox_keeps_what_it_gave():
    policy = share_policies.AlloX()
    assert shares_of(policy, asked(((10, 1), {}))) == {(0,): [1, 0]}
    both = asked(((10, 1), {}), ((99, 1), {}))
    assert shares_of(policy, both) == {(0,): [1, 0], (1,): [0, 1]}


def test_allox_refuses_jobs_of_several_gpus():
    with pytest.raises(ValueError, match="AlloX assigns jobs of one GPU; 0 needs more"):
        share_policies.AlloX().shares(asked(((1, 1), {"gpus": 2})))


@pytest.mark.parametrize("seed", range(20))
def test_the_assignment_is_the_cheapest_of_all(seed):
    chance = np.random.default_rng(seed)
    costs = chance.integers(0, 9, (4, 6)).astype(float)
    found = cheapest_assignment(costs)
    assert len(set(found)) == 4
    best = min(costs[range(4), chosen].sum() for chosen in permutations(range(6), 4))
    assert costs[range(4), found].sum() == best


def test_max_min_makes_the_least_gain_as_great_as_can_be():
    """Beside equal parts a is 1.6 and 0.4 times as fast, b 4/3 and 2/3 times.

    With x of the fast GPU for a and the rest of the time on the other one, the gain of a is 0.4 +
    1.2 x and that of b 4/3 - 2/3 x: equal at x = 0.5, where both gain 1.
    """
    request = asked(((4, 1), {}), ((2, 1), {}))
    assert shares_of(share_policies.MaxMin(), request) == {(0,): [0.5, 0.5], (1,): [0.5, 0.5]}


def test_weights_and_widths_count_in_max_min():
    """One type: a job of weight 3 gets three times as much, one of two GPUs a third as long."""
    request = asked(((1,), {"weight": 3.0}), ((1,), {}), capacity=(1,))
    assert shares_of(share_policies.MaxMin(), request) == {(0,): [0.75], (1,): [0.25]}
    request = asked(((1,), {"gpus": 2}), ((1,), {}), capacity=(2,))
    found = shares_of(share_policies.MaxMin(), request)
    assert found[0,] == [0.5]
    assert 0.999 <= found[1,][0] <= 1


def test_without_knowledge_of_speeds_all_types_are_alike():
    request = asked(((9, 1), {}), ((1, 9), {}))
    found = shares_of(share_policies.MaxMin(aware=False), request)
    assert found == {(0,): [0.5, 0.5], (1,): [0.5, 0.5]}
    found = shares_of(share_policies.MaxMin(), request)
    assert found == {(0,): [1, 0], (1,): [0, 1]}


def test_the_makespan_is_within_5_percent_of_the_least():
    """A needs 100 s of the only GPU, b 300 s: both end after 400 s if they get 1/4 and 3/4."""
    request = asked(((1,), {}), ((1,), {"work": 300.0}), capacity=(1,))
    found = share_policies.MinMakespan().shares(request)
    assert 100 / found[0,][0] <= 420
    assert 300 / found[1,][0] <= 420


def test_who_waited_longer_gets_more():
    """Both have 100 s left and one GPU; a has waited for 300 s, in half of it 150 s had been done.

    Alone both take 200 s more: a's ratio is (300 + 100 / x) / 200, b's 100 / (1 - x) / 200.
    """
    policy = share_policies.FinishTimeFairness()
    request = asked(((1,), {}), ((1,), {"arrives": 300}), capacity=(1,), now=300)
    [of_a] = policy.shares(request)[0,]
    [of_b] = policy.shares(request)[1,]
    assert (300 + 100 / of_a) == pytest.approx(100 / of_b, rel=1e-4)
    assert of_a + of_b == pytest.approx(1, abs=1e-6)


class Sampled:
    """Draws what a list says."""

    def __init__(self, *drawn):
        self.drawn = list(drawn)

    def sample(self, population, count):
        return self.drawn.pop(0)


def test_gandiva_pairs_jobs_only_where_they_are_too_many():
    policy = share_policies.Gandiva(Sampled([1, 0]))
    two = asked(((1, 1), {}), ((1, 1), {}))
    assert shares_of(policy, two) == {(0,): [0.5, 0.5], (1,): [0.5, 0.5]}
    three = asked(*(((1, 1), {}) for _ in range(3)))
    assert shares_of(policy, three) == {(0, 1): [0.5, 0.5], (2,): [0.5, 0.5]}


@pytest.mark.parametrize(("beside", "kept"), [(0.9, True), (0.2, False)])
def test_gandiva_parts_a_pair_that_is_slower_than_one_job_alone(beside, kept):
    """Over two types and two jobs, 4 * 0.9 is more than 1, and 4 * 0.2 is not."""
    policy = share_policies.Gandiva(Sampled([0, 1], [1, 2]))
    three = asked(*(((1, 1), {"beside": beside}) for _ in range(3)))
    policy.shares(three)
    assert ((0, 1) in policy.shares(three)) is kept


@pytest.mark.parametrize("seed", range(5))
def test_the_least_gain_is_that_of_a_simplex_method(seed):
    linear = pytest.importorskip("ortools.linear_solver.pywraplp")
    chance = np.random.default_rng(seed)
    jobs = int(chance.integers(2, 60))
    gains = chance.uniform(0.1, 5, (jobs, 3)) * (chance.random((jobs, 3)) < 0.9)
    gains[:, 0] += 0.1
    widths = chance.choice([1.0, 2.0, 4.0], jobs)
    capacity = np.array([4.0, 8.0, 6.0])
    found = time_division.max_min(gains, capacity, widths)
    solver = linear.Solver.CreateSolver("GLOP")
    shares = [[solver.NumVar(0, 1, "") for _ in range(3)] for _ in range(jobs)]
    least = solver.NumVar(0, solver.infinity(), "")
    for job, row in enumerate(shares):
        solver.Add(sum(row) <= 1)
        solver.Add(sum(g * x for g, x in zip(gains[job], row, strict=True)) >= least)
    for model in range(3):
        used = sum(width * row[model] for width, row in zip(widths, shares, strict=True))
        solver.Add(used <= capacity[model])
    solver.Maximize(least)
    assert solver.Solve() == solver.OPTIMAL
    assert (gains * found).sum(axis=1).min() == pytest.approx(least.solution_value(), rel=1e-6)
    assert (found.sum(axis=1) <= 1 + 1e-6).all()
    assert (widths @ found <= capacity + 1e-6).all()


def test_shares_of_most_throughput_by_hand():
    # Two alike gain most from the one fast GPU, and share it; the third keeps the slow one.
    speeds = np.array([[4.0, 1.0], [4.0, 1.0], [3.0, 2.0]])
    shares = time_division.most_throughput(speeds, np.ones(2), np.ones(3))
    assert shares == pytest.approx(np.array([[0.5, 0.0], [0.5, 0.0], [0.0, 1.0]]), abs=1e-6)


def test_a_wide_job_takes_more_of_a_type():
    speeds = np.array([[3.0], [2.0]])
    shares = time_division.most_throughput(speeds, np.array([4.0]), np.array([4.0, 1.0]))
    # For the wide one a GPU gives 0.75, for the other one 2.
    assert shares == pytest.approx(np.array([[0.75], [1.0]]), abs=1e-6)
