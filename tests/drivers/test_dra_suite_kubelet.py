"""The cases of Kubernetes' end-to-end suite for DRA about nodes and their drivers (1.36).

test/e2e/dra/dra.go, contexts "kubelet". Those about sockets are in tests/node as well, with real
sockets; here all parts of a cluster are there, and minutes are simulated.
"""

import pytest

from dralab.runtime.resources import CLAIMS, DAEMON_SETS, NAMESPACES, PODS
from suitelab import NAME, SuiteLab, plain


@pytest.fixture
def lab():
    return SuiteLab(10)


# --- one node with shared resources -----------------------------------------------------------


def test_registers_plugin(lab):
    [kubelet] = lab.kubelets.nodes.values()
    assert kubelet.plugins.get(NAME).code is lab.driver


def test_must_retry_node_prepare_resources(lab):
    lab.driver.failing.add("prepare")
    lab.create(lab.template("t"), lab.pod("p", inline=["t"]))
    assert lab.phase("p") == "Pending"
    calls = len(lab.driver.calls)
    assert calls
    lab.driver.failing.clear()
    lab.wait(120)
    assert lab.is_running("p")
    assert len(lab.driver.calls) > calls


def test_must_not_run_a_pod_if_a_claim_is_not_ready(lab):
    lab.create(lab.claim("c"), lab.pod("p", external=["c"], nodeName="node-0"))
    lab.wait(20)
    assert lab.phase("p") == "Pending"


def test_must_unprepare_resources_for_force_deleted_pod(lab):
    lab.create(lab.claim("c"), lab.pod("p", external=["c"], terminationGracePeriodSeconds=0))
    assert lab.is_running("p")
    lab.client.delete(PODS, "p", "default", options={"gracePeriodSeconds": 0})
    lab.wait(60)
    assert lab.driver.prepared == {}


def test_must_call_node_prepare_resources_even_if_not_used_by_any_container(lab):
    pod = lab.pod("p", inline=["t"])
    del pod["spec"]["containers"][0]["resources"]
    lab.create(lab.template("t"), pod)
    assert lab.is_running("p")
    assert lab.driver.prepared


def test_must_map_configs_and_devices_to_the_right_containers(lab):
    names = ("all", "container0", "container1")
    claims = []
    for name in names:
        requests = [lab.request(f"req{i}") for i in range(3)]
        of = [(), ("req1",), ("req2",)]
        config = [lab.config({f"{name}_config{i}": "true"}, *of[i]) for i in range(3)]
        claims.append(lab.claim(name, *requests, config=config))
    pod = lab.pod("p", external=names, containers=("container0", "container1"))
    first, second = pod["spec"]["containers"]
    first["resources"]["claims"] = [{"name": "all"}, {"name": "container0"}]
    second["resources"]["claims"] = [{"name": "all"}, {"name": "container1", "request": "req1"}]
    lab.create(*claims, pod)
    assert lab.is_running("p")

    def whole(name):
        return {f"user_{name}_config{i}": "true" for i in range(3)} | {
            f"claim_{name}_req{i}": "true" for i in range(3)
        }

    assert lab.env("p", "container0") == whole("all") | whole("container0")
    some = ("user_container1_config0", "user_container1_config1", "claim_container1_req1")
    assert lab.env("p", "container1") == whole("all") | dict.fromkeys(some, "true")


def test_blocks_new_pod_after_force_delete(lab):
    [claim, _] = lab.create(lab.claim("c"), lab.pod("p", external=["c"]))
    assert lab.is_running("p")
    lab.driver.failing.add("unprepare")
    lab.client.delete(PODS, "p", "default", options={"gracePeriodSeconds": 0})
    lab.client.delete(CLAIMS, "c", "default")
    lab.wait(10)
    assert lab.all(PODS) == lab.all(CLAIMS) == []
    old = claim["metadata"]["uid"]
    assert lab.driver.prepared == {old: "c"}
    [again, _] = lab.create(lab.claim("c"), lab.pod("p", external=["c"]))
    lab.wait(30)
    assert lab.phase("p") == "Pending"
    text = f"old ResourceClaim with same name c and different UID {old} still exists"
    assert any(text in event["message"] for event in lab.events("FailedPrepareDynamicResources"))
    lab.driver.failing.clear()
    lab.wait(180)
    assert lab.is_running("p")
    assert lab.driver.prepared == {again["metadata"]["uid"]: "c"}


def test_daemon_set_with_admin_access(lab):
    label = {"metadata": {"labels": {"resource.kubernetes.io/admin-access": "true"}}}
    lab.client.patch(NAMESPACES, "default", label)
    pod = lab.pod("x", inline=["t"], nodeSelector={"kubernetes.io/hostname": "node-0"})
    labels = {"app": "monitoring"}
    template = {"metadata": {"labels": labels}, "spec": pod["spec"]}
    spec = {"selector": {"matchLabels": labels}, "template": template}
    name = {"name": "monitoring-ds", "namespace": "default"}
    daemons = {"apiVersion": "apps/v1", "kind": "DaemonSet", "metadata": name, "spec": spec}
    [made, _] = lab.create(lab.template("t", lab.request("r", adminAccess=True)), daemons)
    assert made["spec"]["spec"]["devices"]["requests"][0]["exactly"]["adminAccess"] is True
    lab.wait(30)
    status = lab.get("monitoring-ds", DAEMON_SETS)["status"]
    assert (status["desiredNumberScheduled"], status["numberReady"]) == (1, 1)


# --- resources of each node -------------------------------------------------------------------


def test_must_manage_resource_slices():
    lab = SuiteLab(1, nodes=4)

    def seen():
        found = {}
        for each in lab.slices():
            [owner] = each["metadata"]["ownerReferences"]
            spec = each["spec"]
            del spec["pool"]["generation"]
            node = spec.pop("nodeName")
            assert (owner["kind"], owner["name"], owner["controller"]) == ("Node", node, True)
            pool = {"name": node, "resourceSliceCount": 1}
            assert spec == {"driver": NAME, "pool": pool, "devices": plain(1)}
            found[node] = each["metadata"]["resourceVersion"]
        return found

    before = seen()
    assert sorted(before) == [f"node-{i}" for i in range(4)]
    lab.wait(20)
    assert seen() == before


def test_supports_init_containers_with_external_claims(lab):
    init = lab.container("init", {"claims": [{"name": "c"}]}, "export")
    lab.create(lab.claim("c"), lab.pod("p", external=["c"], initContainers=[init]))
    assert lab.is_running("p")
    assert lab.env("p", "init")["user_a"] == lab.env("p")["user_a"] == "b"


def short(lab, name, command, **more):
    pod = lab.pod(name, **more)
    pod["spec"]["containers"][0]["command"][-1] = command
    return pod


def test_removes_reservation_from_claim_when_pod_is_done(lab):
    pod = short(lab, "p", "true", external=["c"], restartPolicy="Never")
    lab.create(lab.claim("c"), pod)
    lab.wait(10)
    assert lab.phase("p") == "Succeeded"
    assert "reservedFor" not in lab.get("c", CLAIMS)["status"]


def test_deletes_generated_claims_when_pod_is_done(lab):
    pod = short(lab, "p", "sleep 5", inline=["t"], restartPolicy="Never")
    for each in (lab.template("t"), pod):
        lab.create(each) if each is not pod else lab.client.create(PODS, pod, "default")
    lab.wait(2)
    assert len(lab.all(CLAIMS)) == 1
    lab.wait(20)
    assert lab.phase("p") == "Succeeded"
    assert lab.all(CLAIMS) == []


def test_does_not_delete_generated_claims_when_pod_is_restarting(lab):
    pod = short(lab, "p", "sleep 1; exit 1", inline=["t"], restartPolicy="Always")
    lab.create(lab.template("t"), pod)
    [claim] = lab.all(CLAIMS)
    lab.wait(120)
    assert lab.get("p")["status"]["containerStatuses"][0]["restartCount"] >= 2
    assert [each["metadata"]["uid"] for each in lab.all(CLAIMS)] == [claim["metadata"]["uid"]]


# --- drivers that come and go -----------------------------------------------------------------


def test_runs_pod_after_driver_starts():
    lab = SuiteLab(0, drivers=0)
    cel = [{"cel": {"expression": f"device.driver == '{NAME}'"}}]
    lab.create(lab.object("DeviceClass", NAME, spec={"selectors": cel}))
    lab.create(lab.claim("c"), lab.pod("p", external=["c"]))
    assert lab.why_pending("p")
    lab.run_driver("node-0", plain(1))
    lab.wait(10)
    assert lab.is_running("p")


def use(lab):
    lab.create(lab.claim("c"), lab.pod("p", external=["c"]))
    lab.wait(10)
    return lab.is_running("p")


def test_rolling_update(lab):
    [kubelet] = lab.kubelets.nodes.values()
    old, slices = kubelet.plugins.get(NAME), lab.slices()
    new, _ = lab.instance(lab.driver)
    kubelet.plugins.deregister(old)
    lab.wait(60)
    assert use(lab)
    assert (new.calls, lab.driver.calls) == (["prepare"], [])
    assert lab.slices() == slices


def test_failed_update(lab):
    [kubelet] = lab.kubelets.nodes.values()
    slices = lab.slices()
    new, plugin = lab.instance(lab.driver)
    kubelet.plugins.deregister(plugin)
    lab.wait(60)
    assert use(lab)
    assert (new.calls, lab.driver.calls) == ([], ["prepare"])
    assert lab.slices() == slices


def test_sequential_update_with_pods_replacing_each_other(lab):
    [kubelet] = lab.kubelets.nodes.values()
    slices = lab.slices()
    kubelet.plugins.deregister(kubelet.plugins.get(NAME))
    lab.wait(20)
    new, plugin = lab.instance(lab.driver)
    assert use(lab)
    assert new.calls == ["prepare"]
    assert lab.slices() == slices
    lab.publisher.forget_driver(lab.driver)
    kubelet.plugins.deregister(plugin)
    lab.wait(60)
    assert lab.slices() == []


def test_multiple_drivers_work():
    """With v1beta1 and v1 of the service: tests/node/test_sockets.py."""
    lab = SuiteLab(2, nodes=4, drivers=2)
    claims = [lab.claim("c1"), lab.claim("c1b")]
    other = "other-1.example.com"
    claims += [lab.claim(name, lab.request("r", other), driver=other) for name in ("c2", "c2b")]
    lab.create(*claims, lab.pod("p", external=["c1", "c1b", "c2", "c2b"]))
    lab.wait(10)
    assert lab.is_running("p")
    wanted = {"claim_c1_req_0", "claim_c1b_req_0", "claim_c2_r", "claim_c2b_r", "user_a"}
    assert set(lab.env("p")) == wanted


def test_should_report_device_health_with_custom_messages(lab):
    lab.create(lab.claim("c"), lab.pod("p", external=["c"]))
    [result] = lab.results("c")
    assert result["pool"] == "node-0"
    for health, message in [
        ("Healthy", "Device operating normally, temperature: 45°C"),
        ("Unhealthy", "ECC error count exceeded threshold (15 errors in last hour)"),
        ("Unhealthy", "Critical: Memory corruption detected"),
        ("Healthy", "Recovered after reset, all diagnostics passed"),
    ]:
        lab.told(lab.driver, result["device"], health, message)
        [container] = lab.get("p")["status"]["containerStatuses"]
        [resource] = container["allocatedResourcesStatus"]
        assert resource["name"] == "claim:c"
        [found] = resource["resources"]
        assert (found["health"], found["message"]) == (health, message)
