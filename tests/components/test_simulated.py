import re
from pathlib import Path

import orjson

from builders import pod, worker
from dralab.api.resource.features import with_gates
from dralab.components import example
from dralab.components.simulated import SimulatedCluster
from dralab.kernel.clock import rfc3339
from dralab.runtime.resources import (
    CLAIMS,
    CONFIG_MAPS,
    CRON_JOBS,
    DAEMON_SETS,
    DEPLOYMENTS,
    EVENTS,
    JOBS,
    NODES,
    PODS,
    REPLICA_SETS,
)

DOCS = Path(__file__).parents[2] / "docs/concepts"


def dump(cluster):
    kinds = (NODES, PODS, CLAIMS, EVENTS, REPLICA_SETS, DEPLOYMENTS, CONFIG_MAPS)
    return orjson.dumps([list(cluster.client.list(kind).items) for kind in kinds])


def lived(seed):
    cluster = SimulatedCluster(seed=seed)
    example.load(cluster.client)
    cluster.wait(5)
    container = {"name": "main", "image": "nginx"}
    deployment = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "web", "namespace": "default"},
        "spec": {
            "replicas": 4,
            "selector": {"matchLabels": {"app": "web"}},
            "template": {
                "metadata": {"labels": {"app": "web"}},
                "spec": {"containers": [container]},
            },
        },
    }
    cluster.client.create(DEPLOYMENTS, deployment, "default")
    cluster.wait(60)
    cluster.client.delete(NODES, "node-a")
    cluster.wait(300)
    return cluster


def test_same_seed_same_objects_to_the_byte():
    assert dump(lived(1)) == dump(lived(1))


def test_another_seed_gives_other_names_and_the_same_placements():
    dumps, nodes = [], []
    for seed in (1, 2):
        cluster = SimulatedCluster(seed=seed)
        pods = example.load(cluster.client)
        cluster.wait(5)
        dumps.append(dump(cluster))
        nodes.append([item.node for item in example.placements(cluster.client, pods)])
    assert dumps[0] != dumps[1]
    assert nodes[0] == nodes[1]


def test_the_example_is_placed_in_simulated_time_as_in_the_demo():
    cluster = SimulatedCluster()
    pods = example.load(cluster.client)
    cluster.wait(5)
    assert example.settled(cluster.client, pods)
    placed = {item.pod: item for item in example.placements(cluster.client, pods)}
    assert [given.device for given in placed["pair"].devices] == ["gpu-1", "gpu-2"]
    assert placed["sharer-0"].devices == placed["sharer-1"].devices
    assert placed["dreamer"].node == ""
    assert "2 cannot allocate all claims" in placed["dreamer"].why
    assert "no foozer-gpu has memory ≥ 80Gi (DRA014)" in placed["dreamer"].why


def test_five_days_of_a_cron_job_pass_at_once():
    cluster = SimulatedCluster(without=["scheduler"])
    template = {"spec": {"containers": [{"name": "main", "image": "x"}], "restartPolicy": "Never"}}
    cron_job = {
        "apiVersion": "batch/v1",
        "kind": "CronJob",
        "metadata": {"name": "nightly", "namespace": "default"},
        "spec": {"schedule": "0 3 * * *", "jobTemplate": {"spec": {"template": template}}},
    }
    cluster.client.create(CRON_JOBS, cron_job, "default")
    cluster.wait(5 * 24 * 3600)
    assert len(cluster.client.list(JOBS).items) == 5
    assert rfc3339(cluster.now) == "2026-01-06T00:00:00Z"


def test_the_example_is_only_for_empty_clusters():
    cluster = SimulatedCluster()
    assert example.is_empty(cluster.client)
    example.load(cluster.client)
    assert not example.is_empty(cluster.client)


def test_the_controller_in_the_documentation_works():
    blocks = re.findall(r"```python\n(.*?)```", (DOCS / "runtime.md").read_text(), flags=re.DOTALL)
    names = {}
    exec(compile(blocks[1], "runtime.md", "exec"), names)  # noqa: S102 - our own page
    cluster = SimulatedCluster(without=["scheduler"])
    names["Labels"](cluster.manager)
    example.load(cluster.client)
    cluster.wait(5)
    labels = [node["metadata"]["labels"].get("seen") for node in cluster.client.list(NODES).items]
    assert labels == ["yes", "yes"]


def test_a_pod_that_tolerates_a_taint_by_number_is_scheduled_and_stays():
    gate = with_gates("TaintTolerationComparisonOperators=true")
    cluster = SimulatedCluster(features=gate)
    worn = [{"key": "age", "value": "7", "effect": "NoExecute"}]
    cluster.client.create(NODES, worker("n", taints=worn))
    status = {"status": worker("n")["status"]}
    cluster.client.patch(NODES, "n", status, subresource="status")
    tolerations = [{"key": "age", "operator": "Gt", "value": "5", "effect": "NoExecute"}]
    cluster.client.create(PODS, pod("p", tolerations=tolerations), "default")
    labels = {"app": "d"}
    template = {"metadata": {"labels": labels}, "spec": pod("d", tolerations=tolerations)["spec"]}
    spec = {"selector": {"matchLabels": labels}, "template": template}
    made = {"metadata": {"name": "d"}, "spec": spec}
    cluster.client.create(DAEMON_SETS, made, "default")
    cluster.wait(30)
    pods = cluster.client.list(PODS, "default").items
    assert len(pods) == 2
    assert [item["spec"].get("nodeName") for item in pods] == ["n", "n"]
    assert not any("deletionTimestamp" in item["metadata"] for item in pods)
