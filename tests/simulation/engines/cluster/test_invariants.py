"""What must always hold on a simulated cluster, whatever goes wrong."""

import random

import pytest

from dralab.runtime.resources import CLAIMS
from dralab.simulation.engines.cluster.run import ClusterRun
from dralab.values.quantity import parse
from scenarios_on_cluster import load

EFFECTS = ("NoSchedule", "NoExecute")


def scenario(seed):
    """Return a scenario drawn by chance: small, busy, and with all kinds of trouble."""
    draw = random.Random(seed)
    lines = [f"seed: {seed}", "scheduler: dralab", "stop: {at: 6h}", "fleet:", "  nodes:"]
    nodes = draw.randint(1, 4)
    lines += [
        f"  - {{name: n{n}, cpu: {draw.randint(1, 6)}, gpus: {draw.randint(0, 3)}, model: A}}"
        for n in range(nodes)
    ]
    lines += ["workload:", "  pods:"]
    for number in range(draw.randint(1, 8)):
        gpus = draw.choice([0, 0, 1, 1, 2])
        lines.append(
            f"  - {{name: p{number}, count: {draw.randint(1, 5)}, cpu: {draw.randint(1, 3)}, "
            f"duration: {draw.randint(1, 60)}m, at: {draw.randint(0, 60)}m, every: {draw.choice([0, 30, 300])}s, "
            f"gpus: {gpus}, priority: {draw.choice([0, 0, 7])}, queue: {draw.choice(['q', '', 'r'])}"
            + (f", gpu_milli: {draw.choice([300, 500, 1000])}" if gpus == 1 else "") + "}"
        )  # fmt: skip
    lines.append("queues: {q: {cpu: 3, gpus: 2}}")
    lines.append(
        f"lifecycle: {{start: {{delay: 5s, jitter: 9s}}, release: 3s, failure: {draw.choice([0, 0.3])}, retries: {draw.randint(0, 2)}}}"
    )
    lines.append("faults:")
    for _ in range(draw.randint(1, 6)):
        node, at, length = f"n{draw.randrange(nodes)}", draw.randint(1, 90), draw.randint(1, 40)
        what = draw.choice(
            [
                f"node: {node}",
                f"node: {node}, taint: {{key: t, effect: {draw.choice(EFFECTS)}}}",
                f"node: {node}, device: gpu-0, taint: {{key: t, effect: {draw.choice(EFFECTS)}}}",
                "happens: 'prepare=fail'", "happens: 'prepare=slow:40'", "happens: 'prepare=crash-after'",
                "happens: 'unprepare=errorx3'", "happens: 'slices=disappear:60'", "happens: 'health=flap:30'",
            ]
        )  # fmt: skip
        lines.append(f"- {{{what}, at: {at}m, for: {length}m}}")
    return "\n".join(lines) + "\n"


def no_device_is_given_twice(run):
    held = {}
    for claim in run.cluster.client.list(CLAIMS).items:
        status = claim.get("status") or {}
        for given in ((status.get("allocation") or {}).get("devices") or {}).get("results") or ():
            key = given["pool"], given["device"]
            held[key] = held.get(key, 0) + int(parse(given["consumedCapacity"]["share"]))
    assert all(share <= 1000 for share in held.values()), held


@pytest.mark.thorough
@pytest.mark.parametrize("seed", range(8))
def test_whatever_goes_wrong_nothing_is_given_twice_and_every_task_is_accounted_for(tmp_path, seed):
    run = ClusterRun(load(tmp_path, scenario(seed)))
    asked = []

    def look():
        asked.append(1)
        no_device_is_given_twice(run)
        return False

    result = run.go(stop=look)
    no_device_is_given_twice(run)
    assert result.complete
    capacity = result.capacity
    for sample in result.samples:
        assert 0 <= sample.cpu <= capacity["cpu"]
        assert 0 <= sample.gpu <= capacity.get("gpu", 0)
        assert sample.waiting >= 0
        assert sample.running >= 0
    states = {task.state for task in result.tasks}
    assert states <= {"Pending", "Bound", "Running", "Succeeded", "Failed"}
    last = result.samples[-1]
    assert last.waiting == sum(
        t.state == "Pending" and t.submitted <= result.end for t in result.tasks
    )
    assert last.ended == sum(task.state in {"Succeeded", "Failed"} for task in result.tasks)
    for task in result.tasks:
        if task.ended is not None:
            assert task.submitted <= task.bound <= task.started <= task.ended
        if task.state == "Pending":
            assert task.reason
