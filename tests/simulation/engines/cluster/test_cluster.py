"""dralab's own scheduler and controllers in simulated time."""

from collections import Counter

import pytest

from dralab.runtime.resources import CLAIMS
from dralab.simulation.engines.cluster.run import ClusterRun
from dralab.simulation.results import metrics, outputs
from dralab.simulation.scenario import scenario as scenarios
from dralab.values.quantity import parse


def run_of(scenario):
    return ClusterRun(scenario).go()


@pytest.fixture
def load(tmp_path):
    def write(nodes, pods, more=""):
        path = tmp_path / "scenario.yaml"
        path.write_text(
            f"fleet: {{nodes: [{nodes}]}}\nworkload: {{pods: [{pods}]}}\nscheduler: dralab\n{more}"
        )
        return scenarios.load(path)

    return write


@pytest.mark.parametrize(
    ("pods", "expected"),
    [
        ("{name: p, count: 40, duration: 170s, cpu: 1}", (850, 340, 680)),
        ("{name: p, count: 24, duration: 80s, every: 10s, cpu: 1}", (310, 0, 0)),
    ],
)
def test_our_scheduler_gives_the_ideal_numbers(load, pods, expected):
    found = metrics.metrics_of(run_of(load("{name: n, count: 8, cpu: 1}", pods)))
    assert (found["makespan"], found["wait_mean"], found["wait_max"]) == expected


@pytest.mark.conformance
@pytest.mark.parametrize(
    ("pods", "expected"),
    [
        ("{name: p, count: 200, duration: 170s, cpu: 1}", (2210, 979.2, 2040)),
        ("{name: p, count: 200, duration: 170s, every: 10s, cpu: 1}", (2280, 57.6, 120)),
        ("{name: p, count: 200, duration: 160s, every: 10s, cpu: 1}", (2150, 0, 0)),
        ("{name: p, count: 300, duration: 200s, cpu: 1}", (3800, 1776, 3600)),
    ],
)
def test_the_workloads_of_batkube_have_their_ideal_numbers(load, pods, expected):
    found = metrics.metrics_of(run_of(load("{name: n, count: 16, cpu: 1}", pods)))
    assert (found["makespan"], round(found["wait_mean"], 3), found["wait_max"]) == expected


GPUS = "{name: gpu, count: 2, cpu: 32, gpus: 2, model: A100}"
SHARING = (
    "{name: part, count: 5, cpu: 1, gpus: 1, gpu_milli: 500, duration: 10m, every: 10s}, "
    "{name: whole, count: 3, cpu: 2, gpus: 2, duration: 5m, every: 20s, models: A100}, "
    "{name: other, cpu: 1, gpus: 1, models: H100, duration: 1m}"
)


def test_pods_with_claims_get_devices_in_virtual_time_and_no_device_is_given_twice(load):
    run = ClusterRun(load(GPUS, SHARING))
    most = Counter()
    while run.cluster.engine.step():
        held = Counter()
        for claim in run.cluster.client.list(CLAIMS).items:
            if not claim.get("status", {}).get("reservedFor"):
                continue
            for given in claim["status"]["allocation"]["devices"]["results"]:
                held[given["pool"], given["device"]] += int(
                    parse(given["consumedCapacity"]["share"])
                )
        most |= held
        if all(seen.is_over or seen.name == "other" for seen in run.tasks.records):
            break
    assert set(most.values()) == {1000}
    assert len(most) == 4
    (other,) = (seen for seen in run.tasks.records if seen.name == "other")
    assert "cannot allocate all claims" in other.reason
    run._explain()
    assert 'no gpu has model "H100" (DRA021)' in other.reason


def test_the_same_scenario_and_seed_give_the_same_bytes(load, tmp_path):
    def files(name):
        paths = outputs.write(run_of(load(GPUS, SHARING)), tmp_path / name)
        return [path.read_bytes() for path in paths]

    assert files("a") == files("b")
