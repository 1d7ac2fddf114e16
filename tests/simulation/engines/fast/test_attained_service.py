"""Queues by attained service: who runs, who sinks, who comes back, and where GPUs are."""

import pytest

from dralab.kernel.clock import SECOND
from dralab.simulation.engines.fast.attained_service import (
    AttainedService,
    Gittins,
    Queue,
    shortest,
    shortest_service,
    smallest,
)
from dralab.simulation.engines.fast.free_nodes import ConsolidatedNodes
from dralab.simulation.engines.fast.rounds import RoundRules, RoundSimulation
from dralab.simulation.engines.fast.time_shares import TrainingJob


def ends(policy, gpus, *jobs):
    """Return when jobs end: pairs of duration and GPUs, or also with a time of arrival."""
    made = [
        TrainingJob(
            name=str(number),
            kind="",
            arrives=(arrives[0] if arrives else 0) * SECOND,
            work=float(duration),
            gpus=width,
            throughputs=lambda _kind, _gpus: 1.0,
        )
        for number, (duration, width, *arrives) in enumerate(jobs)
    ]
    run = RoundSimulation(made, {"": gpus}, policy, RoundRules(length=0, fixed=False))
    run.go()
    return [record.ended / SECOND for record in run.records]


BIG_THEN_SMALL = [(10, 2), (10, 4), (10, 2)]


@pytest.mark.parametrize(
    ("policy", "expected"),
    [
        pytest.param(Queue(blocks=True), [10, 20, 30], id="first come, first served"),
        pytest.param(Queue(), [10, 20, 10], id="who fits goes first"),
        pytest.param(Queue(smallest), [10, 20, 10], id="fewest GPUs"),
    ],
)
def test_a_queue_decides_who_waits(policy, expected):
    assert ends(policy, 4, *BIG_THEN_SMALL) == expected


def test_the_shortest_preempts_and_nobody_loses_progress():
    assert ends(Queue(shortest), 4, (100, 4), (10, 4, 20)) == [110, 30]


def test_service_is_time_and_gpus():
    jobs = (30, 1), (20, 4)
    assert ends(Queue(shortest), 4, *jobs) == [50, 20]
    assert ends(Queue(shortest_service), 4, *jobs) == [30, 50]


def test_a_job_sinks_when_it_has_had_its_limit_and_continues_when_there_is_room():
    policy = AttainedService((20,))
    # 20 GPU seconds are 5 s of 4 GPUs; the second arrives at 10 s, and goes first.
    assert ends(policy, 4, (30, 4), (4, 4, 10)) == [34, 14]


def test_without_a_limit_reached_a_newcomer_waits():
    assert ends(AttainedService((1000,)), 4, (30, 4), (4, 4, 10)) == [30, 34]


def test_a_job_that_waited_as_long_as_it_ran_is_promoted():
    # It has had 12 s when others come, each as the one before ends.
    newcomers = [(10, 4, 12), (10, 4, 22), (10, 4, 32)]
    assert ends(AttainedService((40,)), 4, (20, 4), *newcomers) == [50, 22, 32, 42]
    # From 24 s on it is in the first queue, before the last of them.
    assert ends(AttainedService((40,), patience=1), 4, (20, 4), *newcomers) == [40, 22, 32, 50]


def test_the_gittins_index_puts_first_who_is_likely_to_end_soon():
    # Half of the jobs need 10 s, the others 1,000: whoever is still there after 10 s is long.
    gittins = Gittins([10] * 50 + [1000] * 50, ahead=20)
    assert gittins.index(0) > gittins.index(11)
    assert gittins.index(1000) == 0.0
    policy = AttainedService((), gittins=gittins)
    assert ends(policy, 1, (1000, 1), (5, 1, 100))[1] == 105


def test_gpus_of_other_nodes_do_not_help_a_job_that_fits_on_one():
    three_each = [(10, 3), (10, 3), (10, 2)]
    assert ends(Queue(), 8, *three_each) == [10, 10, 10]
    assert ends(Queue(nodes=ConsolidatedNodes(1, 2, 4)), 8, *three_each) == [10, 10, 20]
