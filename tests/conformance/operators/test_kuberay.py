"""KubeRay: a cluster has its head and workers, gets larger, heals, rests and goes."""

import pytest

from dralab.api.status import ApiError
from dralab.runtime.client import Resource
from dralab.runtime.resources import PODS, SERVICES
from operatorlab import NAMESPACE, free_port, holds, names, patch, running, there
from waiting import until

RAY_CLUSTERS = Resource("ray.io", "v1", "rayclusters")
pytestmark = [pytest.mark.conformance, pytest.mark.dralab(nodes=3)]


def template(name):
    container = {"name": name, "image": "rayproject/ray:2.46.0"}
    container["resources"] = {"limits": {"cpu": "1", "memory": "1G"}}
    return {"spec": {"containers": [container]}}


def ray_cluster(name, workers):
    group = {"groupName": "small", "replicas": workers, "minReplicas": 1, "maxReplicas": 5}
    group |= {"rayStartParams": {}, "template": template("ray-worker")}
    head = {"rayStartParams": {}, "template": template("ray-head")}
    spec = {"rayVersion": "2.46.0", "headGroupSpec": head, "workerGroupSpecs": [group]}
    return {"metadata": {"name": name}, "spec": spec}


def scale(client, name, workers):
    spec = client.get(RAY_CLUSTERS, name, NAMESPACE)["spec"]
    patch(
        client,
        RAY_CLUSTERS,
        name,
        {"workerGroupSpecs": [{**spec["workerGroupSpecs"][0], "replicas": workers}]},
    )


def test_a_cluster_of_ray_runs_scales_heals_and_rests(
    running_cluster, client, apply, start, operator
):
    sources, program = operator("kuberay")
    apply(sources / "config/crd/bases")
    probes = f"--health-probe-bind-address=127.0.0.1:{free_port()}"
    start(program, "--metrics-addr=0", probes, "--enable-leader-election=false")
    client.create(RAY_CLUSTERS, ray_cluster("train", 2), NAMESPACE)

    def workers(number):
        """Whether the cluster is ready with so many workers."""
        status = client.get(RAY_CLUSTERS, "train", NAMESPACE).get("status", {})
        ready = status.get("state"), status.get("availableWorkerReplicas")
        return ready == ("ready", number) and len(running(client)) == number + 1

    until(lambda: workers(2))
    ready = client.get(RAY_CLUSTERS, "train", NAMESPACE)
    assert holds(ready, "HeadPodReady")
    assert holds(ready, "RayClusterProvisioned")
    assert ready["status"]["desiredCPU"] == "3"
    ports = client.get(SERVICES, "train-head-svc", NAMESPACE)["spec"]["ports"]
    assert {"client", "dashboard", "gcs-server"} < {port["name"] for port in ports}
    [head] = client.list(PODS, NAMESPACE, label_selector="ray.io/node-type=head").items
    assert ready["status"]["head"]["podIP"] == head["status"]["podIP"]
    # The head's command, as the operator writes it.
    assert "ray start --head" in " ".join(head["spec"]["containers"][0]["args"])
    scale(client, "train", 3)
    until(lambda: workers(3))
    victim = client.list(PODS, NAMESPACE, label_selector="ray.io/group=small").items[0]
    client.delete(PODS, victim["metadata"]["name"], NAMESPACE)
    until(lambda: workers(3) and victim["metadata"]["name"] not in names(client, PODS))
    patch(client, RAY_CLUSTERS, "train", {"suspend": True})
    until(lambda: holds(client.get(RAY_CLUSTERS, "train", NAMESPACE), "RayClusterSuspended"))
    assert names(client, PODS) == set()
    patch(client, RAY_CLUSTERS, "train", {"suspend": False})
    until(lambda: workers(3))
    client.delete(RAY_CLUSTERS, "train", NAMESPACE)
    until(
        lambda: names(client, PODS) == set() and there(client, SERVICES, "train-head-svc") is None
    )
    with pytest.raises(ApiError, match="headGroupSpec"):
        client.create(RAY_CLUSTERS, {"metadata": {"name": "none"}, "spec": {}}, NAMESPACE)
