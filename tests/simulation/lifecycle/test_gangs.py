"""Gangs whose pods run only together, replicas of services, failures of GPUs, and what they lose."""

import pytest

from dralab.simulation import dispatch
from dralab.simulation.results import metrics
from scenarios_on_cluster import load

MINUTE = 60 * 1_000_000_000
GRACE = 5 * 60 + 50  # seconds until the pods of a node that is down are evicted

GANG = """
fleet: {nodes: [{name: n, count: NODES, cpu: 4, gpus: 8}]}
workload:
  generate:
    name: train
    count: 1
    arrivals: {process: burst}
    duration: 2h
    pods: [{gang: 2, cpu: 4, gpus: 8, startup: 5m, checkpoint: 30m}]
lifecycle: {gangs: HOW, restart: 1m}
faults: [{node: n-1, at: 50m, for: 10h}]
scheduler: firstfit
"""


def run(folder, text):
    result = dispatch.begin(load(folder, text)).go()
    return result, metrics.metrics_of(result)


def gang(folder, how, nodes=3):
    return run(folder, GANG.replace("HOW", how).replace("NODES", str(nodes)))


def ends(result):
    return [round(task.ended / MINUTE) for task in result.tasks]


def test_pods_of_a_gang_run_alone_where_nothing_else_is_said(tmp_path):
    result, lost = gang(tmp_path, "alone")
    # The first runs on; the second begins again at its checkpoint, after five minutes and 50 s.
    assert ends(result) == [125, 55 + 1 + 5 + 1 + 90]
    assert lost["evictions"] == 1


@pytest.mark.parametrize("how", ["recreate", "wait"])
def test_a_gang_that_loses_a_pod_loses_the_run_of_all(tmp_path, how):
    result, lost = gang(tmp_path, how)
    restarted = 50 * 60 + GRACE
    assert [round(task.ended / MINUTE) for task in result.tasks] == [
        round((restarted + (5 + 1 + 90) * 60) / 60)
    ] * 2
    # Each lost 15 minutes beyond its checkpoint, and the start-up before them.
    assert lost["redone_gpu_hours"] == pytest.approx(16 * 20 / 60, abs=0.01)
    # The pod on the broken node held it until it was evicted; so did the other one, idle.
    assert lost["idle_gpu_hours"] == pytest.approx(16 * (GRACE / 3600 + 6 / 60), abs=0.01)


def test_a_gang_without_a_spare_node_holds_its_nodes_only_where_it_waits_on_them(tmp_path):
    """With ten hours of repair, the one that waits loses them; the one that is evicted does not."""
    waiting, lost = gang(tmp_path, "wait", nodes=2)
    recreated, less = gang(tmp_path, "recreate", nodes=2)
    assert ends(waiting) == ends(recreated)
    assert lost["idle_gpu_hours"] - less["idle_gpu_hours"] == pytest.approx(
        8 * (10 - GRACE / 3600), abs=0.01
    )


def test_a_node_that_comes_back_in_time_lets_its_gang_go_on_where_it_was(tmp_path):
    text = GANG.replace("HOW", "recreate").replace("NODES", "3").replace("for: 10h", "for: 2m")
    result, lost = run(tmp_path, text)
    assert ends(result) == [52 + 5 + 1 + 90] * 2
    assert [result.lanes[task.lanes[0]] for task in result.tasks] == ["n-0/gpu-0", "n-1/gpu-0"]
    assert lost["evictions"] == 2


@pytest.mark.parametrize("how", ["recreate", "wait"])
def test_a_gang_fails_as_one(tmp_path, how):
    text = GANG.replace("HOW", f"{how}, failure: 1, retries: 2").replace("NODES", "2")
    text = text.replace("faults: [{node: n-1, at: 50m, for: 10h}]\n", "")
    result, lost = run(tmp_path, text)
    assert [task.state for task in result.tasks] == ["Failed", "Failed"]
    assert result.tasks[0].wasted == result.tasks[1].wasted
    assert sorted(task.reason for task in result.tasks)[1].endswith("of its gang failed")
    assert lost["lost_gpu_hours"] > 0


# --- replicas of services -------------------------------------------------------------------------

SERVICE = """
fleet: {nodes: [{name: n, count: 2, cpu: 4, gpus: 8}]}
workload:
  pods:
    - {name: batch, at: 0, duration: 3h, cpu: 4, gpus: 8, count: BATCH}
    - {name: serve, at: 1h, until: 5h, cpu: 4, gpus: 8, startup: 10m}
faults: [{node: n-0, at: 4h, for: 1m}]
stop: {at: 6h}
scheduler: firstfit
"""


def test_a_replica_serves_until_it_is_no_longer_wanted(tmp_path):
    result, numbers = run(tmp_path, SERVICE.replace("BATCH", "1"))
    serve = result.tasks[-1]
    assert (serve.state, serve.ended) == ("Succeeded", 5 * 60 * MINUTE)
    assert numbers["served_share"] == pytest.approx((240 - 10) / 240)
    assert numbers["redone_hours"] == 0


def test_a_replica_that_loses_its_node_lost_only_the_time_in_which_it_was_down(tmp_path):
    text = SERVICE.replace("BATCH", "1").replace("node: n-0", "node: n-1")
    _, numbers = run(tmp_path, text)
    assert numbers["served_share"] == pytest.approx((240 - 10 - 1 - 10) / 240)
    assert (numbers["redone_hours"], numbers["evictions"]) == (0, 1)


def test_a_replica_without_room_is_withdrawn_when_it_is_no_longer_wanted(tmp_path):
    text = SERVICE.replace("BATCH", "2").replace("duration: 3h", "duration: 9h")
    result, numbers = run(tmp_path, text.replace("at: 6h", "at: 20h").replace("for: 1m", "for: 1s"))
    serve = result.tasks[-1]
    assert (serve.state, serve.started) == ("Failed", None)
    assert "as long as it was wanted" in serve.reason
    assert numbers["served_share"] == 0
    assert result.samples[-1].waiting == 0


def test_until_is_after_the_arrival_and_without_a_duration(tmp_path):
    with pytest.raises(ValueError, match=r"workload.pods\[1\].until: must be after its arrival"):
        load(tmp_path, SERVICE.replace("BATCH", "1").replace("until: 5h", "until: 1h"))


# --- failures of GPUs -----------------------------------------------------------------------------


def test_nodes_fail_as_often_as_all_of_their_gpus(tmp_path):
    text = """
fleet: {nodes: [{name: big, cpu: 4, gpus: 8}, {name: small, cpu: 4, gpus: 1}, {name: cpu, cpu: 4}]}
workload: {pods: [{name: p, until: 365d, cpu: 1}]}
faults: {every: 1000h, repair: 1m, of: gpu}
stop: {at: 365d}
scheduler: firstfit
"""
    result, _ = run(tmp_path, text)
    lanes = [result.lanes[lane] for lane, _, _ in result.outages]
    assert 50 < lanes.count("big") < 95  # 8760 h / (1000 h / 8) = 70
    assert 2 <= lanes.count("small") < 20
    assert lanes.count("cpu") == 0
