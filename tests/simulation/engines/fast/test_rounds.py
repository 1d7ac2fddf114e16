"""Rounds of time slices: progress, checkpoints, and shares of time."""

import random
from collections import Counter

import numpy as np
import pytest

from dralab.kernel.clock import SECOND
from dralab.simulation.engines.fast.rounds import Grant, RoundPolicy, RoundRules, RoundSimulation
from dralab.simulation.engines.fast.time_shares import ShareRequest, TimeShares, TrainingJob

ROUND = 60 * SECOND
FAST_AND_SLOW = {"fast": 2.0, "slow": 1.0}


def job(name, work, arrives=0, **more):
    """Return a job that does 2 steps per second on a fast GPU, and 1 on a slow one."""
    return TrainingJob(
        name=name,
        kind="net",
        arrives=arrives * SECOND,
        work=work,
        throughputs=lambda _, gpus: FAST_AND_SLOW[gpus.model],
        **more,
    )


class Turns(RoundPolicy):
    """Grants what a list says for each round: pairs of the name of a job and a model."""

    def __init__(self, *rounds):
        self.rounds = list(rounds)
        self.times = []

    def grants(self, run):
        chosen = self.rounds.pop(0) if self.rounds else []
        by_name = {each.job.name: each for each in run.active}
        return [Grant((by_name[name],), model) for name, model in chosen if name in by_name]

    def ran(self, grant, time):
        self.times.append((grant.jobs[0].job.name, time / SECOND))


def run(jobs, policy, capacity=None, **rules):
    """Return a run of jobs at its end."""
    rules = RoundRules(**({"length": ROUND} | rules))
    simulation = RoundSimulation(jobs, capacity or {"fast": 1, "slow": 1}, policy, rules)
    simulation.go()
    return simulation


def completions(simulation):
    """Return how many seconds the jobs took, by name."""
    return {each.job.name: each.completion / SECOND for each in simulation.records}


def test_work_is_done_at_the_speed_of_the_gpu():
    """120 steps on the fast GPU in the first round, the last 30 on the slow one in 30 s."""
    ended = run([job("a", 150)], Turns([("a", "fast")], [("a", "slow")]))
    assert completions(ended) == {"a": 90.0}
    assert ended.records[0].restarts == 1


def test_a_job_that_waits_keeps_what_it_has_done():
    """A runs in the rounds at 0 s and 120 s, b in the one between."""
    ended = run(
        [job("a", 200), job("b", 50)], Turns([("a", "fast")], [("b", "fast")], [("a", "fast")])
    )
    assert completions(ended) == {"b": 85.0, "a": 160.0}


def test_a_job_that_starts_or_moves_loads_its_checkpoint_first():
    """Of each minute 10 s are lost when it begins or moves: 100, 120 and 50 + 30 steps."""
    turns = Turns([("a", "fast")], [("a", "fast")], [("a", "slow")], [("a", "slow")])
    ended = run([job("a", 300, startup=10 * SECOND)], turns)
    assert completions(ended) == {"a": 60 + 60 + 60 + 30}
    assert (ended.records[0].rounds, ended.records[0].restarts) == (4, 1)
    assert ended.records[0].served == 210 * SECOND


def test_a_round_lasts_its_length_or_until_its_jobs_have_stopped():
    """A is over after 20 s, and b begins then, or with the next round."""
    jobs = [job("a", 40), job("b", 60)]
    turns = [[("a", "fast")], [("b", "fast")]]
    assert completions(run(jobs, Turns(*turns))) == {"a": 20.0, "b": 90.0}
    assert completions(run(jobs, Turns(*turns), fixed=False)) == {"a": 20.0, "b": 50.0}


def test_only_whole_steps_are_done_in_a_slice():
    """A minute holds 120 steps of 0.5 s, and 119 if 59.9 s are left of it."""
    turns = Turns([("a", "fast")], [("a", "fast")])
    ended = run([job("a", 200.5, startup=SECOND // 10)], turns, whole=True, fixed=False)
    assert turns.times == [("a", 0.1 + 59.5), ("a", (200.5 - 119) / 2)]
    assert ended.records[0].left == 0


def test_a_run_waits_for_the_next_arrival():
    """Rounds begin at multiples of their length, unless they end early."""
    jobs = [job("a", 20), job("b", 20, arrives=100)]
    turns = [[("a", "fast")], [("b", "fast")]]
    assert completions(run(jobs, Turns(*turns)))["b"] == 20 + 10
    assert completions(run(jobs, Turns(*turns), fixed=False))["b"] == 10


@pytest.mark.parametrize(
    ("granted", "told"),
    [
        ([("a", "fast"), ("b", "fast")], "2 GPUs of type fast are granted; there are 1"),
        ([("a", "odd")], "1 GPUs of type odd are granted; there are 0"),
        ([], "no job gets GPUs, and none will arrive; waiting: a, b"),
    ],
)
def test_a_policy_that_cannot_be_followed_is_refused(granted, told):
    with pytest.raises(ValueError, match=told):
        run([job("a", 10), job("b", 10)], Turns(granted))


class Fixed:
    """Gives shares by the number of the job."""

    aware, packs, strict = True, False, False

    def __init__(self, *shares):
        self.by_number = shares
        self.asked: list[ShareRequest] = []

    def shares(self, asked):
        self.asked.append(asked)
        return {(each.number,): np.array(self.by_number[each.number]) for each in asked.jobs}


def shared(policy, jobs, capacity=None, until=None):
    """Return the run of jobs by shares, and how often each had which model."""
    capacity = capacity or {"fast": 1, "slow": 1}
    shares = TimeShares(policy, capacity, length=ROUND, chance=random.Random(0))
    had, whole = Counter(), shares.ran

    def ran(grant, time):
        had[grant.jobs[0].job.name, grant.model] += time // SECOND
        whole(grant, time)

    shares.ran = ran
    run = RoundSimulation(jobs, capacity, shares, RoundRules(length=ROUND, fixed=False, whole=True))
    run.go(lambda: until is not None and run.now >= until)
    return run, had


def test_rounds_follow_the_shares():
    """Half of each GPU for each of two jobs: they change places every minute."""
    policy = Fixed((0.5, 0.5), (0.5, 0.5))
    _, had = shared(policy, [job("a", 9e9), job("b", 9e9)], until=40 * ROUND)
    assert set(had.values()) == {20 * 60}


def test_unequal_shares_are_met_in_time():
    """A has three quarters of the fast GPU, b the rest; on the slow one it is the other way."""
    policy = Fixed((0.75, 0.25), (0.25, 0.75))
    _, had = shared(policy, [job("a", 9e9), job("b", 9e9)], until=80 * ROUND)
    assert had["a", "fast"] == had["b", "slow"]
    assert had["a", "fast"] / (80 * 60) == pytest.approx(0.75, abs=0.02)


def test_a_job_runs_on_one_type_at_a_time():
    _, had = shared(Fixed((1.0, 1.0)), [job("a", 1200)])
    assert had == {("a", "fast"): 600}


def test_shares_are_computed_again_32_minutes_after_the_last_time_at_the_earliest():
    """B comes a minute after a; its shares are known 32 minutes after those of minute 1."""
    policy = Fixed((0.5, 0.5), (0.5, 0.5), (1.0, 0.0))
    arriving = [job("a", 9e9), job("b", 9e9, arrives=60), job("c", 9e9, arrives=120)]
    shared(policy, arriving, until=60 * ROUND)
    assert [each.now // ROUND for each in policy.asked] == [0, 1, 33]


def test_gpus_that_nobody_has_a_share_of_go_to_others_unless_the_policy_is_strict():
    """B has no share, but the slow GPU is left over."""
    policy = Fixed((1.0, 0.0), (0.0, 0.0))
    _, had = shared(policy, [job("a", 9e9), job("b", 9e9)], until=10 * ROUND)
    assert had == {("a", "fast"): 600, ("b", "slow"): 600}
    policy.strict = True
    _, had = shared(policy, [job("a", 9e9), job("b", 9e9)], until=10 * ROUND)
    assert had == {("a", "fast"): 600}


def test_wide_jobs_do_not_get_parts_of_what_they_need():
    """In the second minute c is the furthest behind, and a has the GPU that is left."""
    policy = Fixed((1.0,), (1.0,), (1.0,))
    jobs = [job("a", 240), job("b", 240), job("c", 240, gpus=2)]
    ended, _ = shared(policy, jobs, {"fast": 3})
    assert completions(ended) == {"a": 120.0, "b": 180.0, "c": 180.0}
