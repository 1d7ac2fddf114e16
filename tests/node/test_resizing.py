"""Changed pods on a node: what is allocated, what waits, what is restarted."""

import pytest

from dralab import SimulatedCluster
from dralab.node.resizing import differ, shortage, summary
from dralab.objects.conditions import condition_of
from dralab.runtime.resources import EVENTS, PODS


def resources(cpu="100m", memory="64Mi", limit=None):
    found = {"requests": {"cpu": cpu, "memory": memory}}
    return found | ({"limits": {"cpu": limit, "memory": "1Gi"}} if limit else {})


def body(name="p", *, cpu="100m", policy=(), sidecar=False, **spec):
    container = {
        "name": "c",
        "image": "i",
        "command": ["sleep", "infinity"],
        "resources": resources(cpu),
        "resizePolicy": list(policy),
    }
    if sidecar:
        spec["initContainers"] = [{**container, "name": "s", "restartPolicy": "Always"}]
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"containers": [container], **spec},
    }


@pytest.fixture
def lab():
    return SimulatedCluster(nodes=["n1"])


def run(lab, pod):
    lab.create(pod)
    lab.wait(2)
    return lab.client.get(PODS, pod["metadata"]["name"], "default")


def resize(lab, name="p", part="containers", container="c", **wanted):
    patch = {"spec": {part: [{"name": container, "resources": resources(**wanted)}]}}
    lab.client.patch(PODS, name, patch, "default", subresource="resize", type="strategic")
    lab.wait(2)
    return lab.client.get(PODS, name, "default")


def status(pod, key="containerStatuses"):
    found = pod["status"][key][0]
    return found["allocatedResources"], found["resources"], found["restartCount"]


def reasons(lab):
    return {each["reason"] for each in lab.client.list(EVENTS).items if "esize" in each["reason"]}


def test_the_status_tells_what_a_container_is_allocated(lab):
    wanted = resources()
    assert status(run(lab, body())) == (wanted["requests"], wanted, 0)


def test_a_container_gets_more_without_a_restart(lab):
    run(lab, body())
    found = resize(lab, cpu="200m")
    wanted = resources("200m")
    assert status(found) == (wanted["requests"], wanted, 0)
    assert condition_of(found, "PodResizeInProgress") is None
    assert found["status"]["observedGeneration"] == found["metadata"]["generation"] == 2
    assert condition_of(found, "Ready")["observedGeneration"] == 2
    assert reasons(lab) == {"ResizeStarted", "ResizeCompleted"}


def test_a_sidecar_is_resized_too(lab):
    run(lab, body(sidecar=True))
    found = resize(lab, part="initContainers", container="s", cpu="300m")
    wanted = resources("300m")
    assert status(found, "initContainerStatuses") == (wanted["requests"], wanted, 0)


@pytest.mark.parametrize("restart", ["Never", "OnFailure", "Always"])
def test_a_container_is_restarted_where_its_policy_says_so(lab, restart):
    policy = [{"resourceName": "cpu", "restartPolicy": "RestartContainer"}]
    if restart == "Never":
        policy = []  # refused by the server
    run(lab, body(policy=policy, restartPolicy=restart, terminationGracePeriodSeconds=0))
    found = resize(lab, cpu="200m")
    assert status(found) == (
        resources("200m")["requests"], resources("200m"), int(restart != "Never"),
    )  # fmt: skip
    assert found["status"]["phase"] == "Running"


def test_what_the_node_has_not_got_waits_until_it_has(lab):
    run(lab, body())
    run(lab, body("other", cpu="10"))
    found = resize(lab, cpu="12")
    condition = condition_of(found, "PodResizePending")
    assert (condition["reason"], condition["observedGeneration"]) == ("Deferred", 2)
    assert condition["message"] == (
        "Node didn't have enough resource: cpu, requested: 12000, used: 10000, capacity: 16000"
    )
    assert status(found)[0] == resources()["requests"]
    lab.client.delete(PODS, "other", "default", options={"gracePeriodSeconds": 0})
    lab.wait(20)
    found = lab.client.get(PODS, "p", "default")
    assert condition_of(found, "PodResizePending") is None
    assert status(found)[0] == resources("12")["requests"]
    assert reasons(lab) == {"ResizeDeferred", "ResizeStarted", "ResizeCompleted"}


@pytest.mark.parametrize("policy", ["Never", "Always"])
def test_a_container_is_restarted_for_another_image(lab, policy):
    run(lab, body(restartPolicy=policy, terminationGracePeriodSeconds=0))
    patch = {"spec": {"containers": [{"name": "c", "image": "newer"}]}}
    lab.client.patch(PODS, "p", patch, "default", type="strategic")
    lab.wait(2)
    (entry,) = lab.client.get(PODS, "p", "default")["status"]["containerStatuses"]
    assert (entry["image"], entry["restartCount"], list(entry["state"])) == (
        "newer",
        1,
        ["running"],
    )
    told = {each["message"] for each in lab.client.list(EVENTS).items}
    assert "Container c definition changed, will be restarted" in told


def test_amounts_are_compared_not_their_spelling():
    assert not differ(resources("1"), resources("1000m"))
    assert differ(resources("1"), resources("1", limit="2"))
    assert not differ({"requests": {"x.y/gpu": "1"}}, {})


def test_a_shortage_names_the_first_resource_that_is_missing():
    spec = {"containers": [{"resources": resources("1", "2Gi")}]}
    assert shortage({"cpu": "4", "memory": "4Gi"}, spec, [spec]) == ""
    assert "memory, requested: 2147483648, used: 2147483648, capacity: 3221225472" in shortage(
        {"cpu": "4", "memory": "3Gi"}, spec, [spec]
    )


def test_events_tell_of_all_containers():
    spec = {"containers": [{"name": "c", "resources": {"requests": {"cpu": "1"}, "limits": {}}}]}
    assert summary("Pod resize error", spec, 3, "no") == (
        'Pod resize error: {"containers":[{"name":"c","resources":{"limits":{},'
        '"requests":{"cpu":"1"}}}],"generation":3,"error":"no"}'
    )
