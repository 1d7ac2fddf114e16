"""The fast engine decides as the whole cluster does, at the same times.

There is no tolerance: both take no simulated time for what a control plane does, but for what it
waits for on purpose (a node that is silent for 50 s, tolerations with seconds).
"""

import pytest

from dralab.simulation.dispatch import begin
from dralab.simulation.scenario import scenario as scenarios
from dralab.simulation.scenario.schedulers import FAST, OWN
from scenarios_in_both import seen, write


def both(folder, seed, pods):
    path = write(folder, seed, pods)
    return [begin(scenarios.load(path, scheduler=name)).go() for name in (OWN, FAST)]


@pytest.mark.parametrize("seed", range(12))
def test_small_scenarios_go_as_on_a_whole_cluster(tmp_path, seed):
    cluster, fast = both(tmp_path, seed, 5)
    assert seen(fast) == seen(cluster)


# With quotas, pods that come again or wait for five minutes, evictions that once never ended.
@pytest.mark.thorough
@pytest.mark.parametrize("seed", [4, 14, 26, 50, 67, 70, 81, 96, 188])
def test_scenarios_that_once_differed_go_as_on_a_whole_cluster(tmp_path, seed):
    cluster, fast = both(tmp_path, seed, 40)
    assert seen(fast) == seen(cluster)


@pytest.mark.conformance
@pytest.mark.parametrize("seed", range(200))
def test_two_hundred_scenarios_go_as_on_a_whole_cluster(tmp_path, seed):
    cluster, fast = both(tmp_path, seed, 40)
    assert seen(fast) == seen(cluster)
