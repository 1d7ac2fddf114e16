from types import SimpleNamespace

import pytest

from builders import ask as asking
from builders import claim, device, device_class, first_of, pod, pool, request, worker
from dralab.api.status import ApiError
from dralab.runtime.resources import CLAIMS, CLASSES, EVENTS, NODES, PODS, SLICES, TAINT_RULES
from dralab.scheduler.withdrawal import unreserve

GPU = "gpu.example.com"
MODEL = f'device.attributes["{GPU}"].model'


def gpus(node, *models):
    devices = [device(f"gpu-{i}", model=model) for i, model in enumerate(models)]
    return pool(node, *devices, node=node)


@pytest.fixture
def cluster(lab):
    lab.server.add(NODES, worker("n0"), worker("n1"))
    lab.server.add(CLASSES, device_class("gpu", f'device.driver == "{GPU}"'))
    lab.server.add(SLICES, *gpus("n0", "a", "a"), *gpus("n1", "b"))
    lab.start()
    return lab


def allocated(lab, name):
    status = lab.get(CLAIMS, name).get("status") or {}
    results = (status.get("allocation") or {}).get("devices", {}).get("results", [])
    return sorted(f"{item['pool']}/{item['device']}" for item in results)


def named(name, *requests, **more):
    return claim(name, *requests, namespace="default", **more)


def test_a_pod_gets_its_device_where_it_is(cluster):
    cluster.add(CLAIMS, named("c", request("r", "gpu", f'{MODEL} == "b"')))
    [stored] = cluster.add(PODS, pod("p", claims={"gpu": "c"}))
    assert cluster.node_of("p") == "n1"
    assert allocated(cluster, "c") == ["n1/gpu-0"]
    status = cluster.get(CLAIMS, "c")["status"]
    assert status["reservedFor"] == [
        {"resource": "pods", "name": "p", "uid": stored["metadata"]["uid"]}
    ]
    assert status["allocation"]["allocationTimestamp"]
    assert cluster.get(CLAIMS, "c")["metadata"]["finalizers"] == [
        "resource.kubernetes.io/delete-protection"
    ]


def test_a_pod_is_taken_off_its_claims_and_off_no_others(cluster):
    cluster.add(CLAIMS, named("c", request("r")))
    pods = cluster.add(PODS, *(pod(name, claims={"gpu": "c"}) for name in "pq"))
    first, second = (SimpleNamespace(uid=each["metadata"]["uid"]) for each in pods)

    def taken_off(who, *, deallocate):
        client, before = cluster.client, cluster.get(CLAIMS, "c")
        unreserve(client, who, [before], deallocate=deallocate)
        after = cluster.get(CLAIMS, "c")
        users = [each["name"] for each in after["status"].get("reservedFor", ())]
        written = after["metadata"]["resourceVersion"] != before["metadata"]["resourceVersion"]
        return users, "allocation" in after["status"], written

    assert taken_off(first, deallocate=True) == (["q"], True, True)
    assert taken_off(first, deallocate=True) == (["q"], True, False)
    assert taken_off(second, deallocate=False) == ([], True, True)
    assert taken_off(second, deallocate=False) == ([], True, False)
    assert taken_off(second, deallocate=True) == ([], False, True)


def test_no_device_is_given_twice(cluster):
    cluster.add(CLAIMS, *(named(f"c{i}", request("r")) for i in range(4)))
    cluster.add(PODS, *(pod(f"p{i}", claims={"gpu": f"c{i}"}) for i in range(4)))
    found = [device for i in range(4) for device in allocated(cluster, f"c{i}")]
    assert sorted(found) == ["n0/gpu-0", "n0/gpu-1", "n1/gpu-0"]
    waiting = [i for i in range(4) if not cluster.node_of(f"p{i}")]
    assert len(waiting) == 1
    why = cluster.why(f"p{waiting[0]}")
    assert why.startswith("0/2 nodes are available: 2 cannot allocate all claims. ")
    assert "suitable devices are in use (DRA030)" in why
    assert "wait until claim c" in why
    assert len(why.encode()) <= 1024


def test_a_released_device_goes_to_who_waits_for_it(cluster):
    cluster.add(CLAIMS, *(named(f"c{i}", request("r", count=1)) for i in range(4)))
    cluster.add(PODS, *(pod(f"p{i}", claims={"gpu": f"c{i}"}) for i in range(4)))
    stored = cluster.get(CLAIMS, "c0")
    cluster.server.update(CLAIMS, {**stored, "status": {}}, subresource="status")
    cluster.wait(3)
    assert all(cluster.node_of(f"p{i}") for i in range(4))


def test_two_pods_share_a_claim_on_its_node(cluster):
    cluster.add(CLAIMS, named("c", request("r")))
    cluster.add(PODS, pod("p0", claims={"g": "c"}), pod("p1", claims={"g": "c"}))
    assert cluster.node_of("p0") == cluster.node_of("p1") is not None
    assert len(cluster.get(CLAIMS, "c")["status"]["reservedFor"]) == 2


def test_two_of_one_model_leave_the_odd_one_alone(cluster):
    cluster.add(CLAIMS, named("c", request("r", count=2), match=f"{GPU}/model"))
    cluster.add(PODS, pod("p", claims={"g": "c"}))
    assert allocated(cluster, "c") == ["n0/gpu-0", "n0/gpu-1"]


@pytest.mark.parametrize(
    ("claims", "why"),
    [
        ([], 'resourceclaim.resource.k8s.io "c" not found'),
        (
            [named("c", request("r", "no-such-class"))],
            "request r: device class no-such-class does not exist",
        ),
    ],
)
def test_a_pod_that_cannot_be_tried_says_what_it_waits_for(cluster, claims, why):
    cluster.add(CLAIMS, *claims)
    cluster.add(PODS, pod("p", claims={"g": "c"}))
    assert cluster.why("p").startswith(f"0/2 nodes are available: {why}.")


def test_a_claim_that_appears_later_lets_its_pod_go(cluster):
    cluster.add(PODS, pod("p", claims={"g": "c"}))
    assert cluster.node_of("p") is None
    cluster.add(CLAIMS, named("c", request("r")))
    cluster.wait(2)
    assert cluster.node_of("p")


def test_a_generated_claim_must_belong_to_its_pod(cluster):
    cluster.add(CLAIMS, named("c", request("r")))
    stranger = pod("p", status={"resourceClaimStatuses": [{"name": "g", "resourceClaimName": "c"}]})
    stranger["spec"]["resourceClaims"] = [{"name": "g", "resourceClaimTemplateName": "t"}]
    cluster.add(PODS, stranger)
    assert "was not created for Pod default/p (Pod is not owner)" in cluster.why("p")


def test_a_selector_that_fails_stops_the_pod_and_says_so(cluster):
    cluster.add(CLAIMS, named("c", request("r", "gpu", f'device.attributes["{GPU}"].x == "1"')))
    cluster.add(PODS, pod("p", claims={"g": "c"}))
    assert "no such key: x" in cluster.why("p")


def test_a_tainted_device_is_avoided_until_the_rule_goes(cluster):
    rule = {
        "metadata": {"name": "broken"},
        "spec": {
            "deviceSelector": {"pool": "n1"},
            "taint": {"key": "broken", "effect": "NoSchedule"},
        },
    }
    cluster.add(TAINT_RULES, rule)
    cluster.add(CLAIMS, named("c", request("r", "gpu", f'{MODEL} == "b"')))
    cluster.add(PODS, pod("p", claims={"g": "c"}))
    assert cluster.node_of("p") is None
    cluster.server.delete(TAINT_RULES, "broken")
    cluster.wait(2)
    assert cluster.node_of("p") == "n1"


def test_the_better_alternative_wins_over_the_emptier_node(cluster):
    wanted = first_of(
        "r",
        best=asking("gpu", f'{MODEL} == "b"'),
        other=asking("gpu", f'{MODEL} == "a"'),
    )
    cluster.add(
        PODS,
        pod("ballast", requests={"cpu": "100m"}, nodeSelector={"kubernetes.io/hostname": "n1"}),
    )
    cluster.add(CLAIMS, named("c", wanted))
    cluster.add(PODS, pod("p", claims={"g": "c"}))
    assert allocated(cluster, "c") == ["n1/gpu-0"]


def test_a_network_device_ties_its_claim_to_no_node_and_followers_may_differ(lab):
    lab.server.add(NODES, worker("n0", pods="1"), worker("n1", pods="1"))
    lab.server.add(CLASSES, device_class("gpu"))
    lab.server.add(SLICES, *pool("net", device("d0"), node=None))
    lab.start()
    lab.add(CLAIMS, named("c", request("r")))
    lab.add(PODS, pod("p0", claims={"g": "c"}), pod("p1", claims={"g": "c"}))
    assert {lab.node_of("p0"), lab.node_of("p1")} == {"n0", "n1"}


def test_an_extended_resource_becomes_a_claim_of_devices(lab):
    lab.server.add(NODES, worker("plugin", extra={"example.com/gpu": "1"}), worker("dra"))
    lab.server.add(CLASSES, device_class("gpu", extendedResourceName="example.com/gpu"))
    lab.server.add(SLICES, *gpus("dra", "a", "b"))
    lab.start()
    lab.add(PODS, *(pod(f"p{i}", requests={"example.com/gpu": "1"}) for i in range(4)))
    nodes = sorted(str(lab.node_of(f"p{i}")) for i in range(4))
    assert nodes == ["None", "dra", "dra", "plugin"]
    for made in lab.server.all(CLAIMS):
        assert made["metadata"]["annotations"] == {
            "resource.kubernetes.io/extended-resource-claim": "true"
        }
        assert made["spec"]["devices"]["requests"] == [
            {
                "name": "container-0-request-0",
                "exactly": {
                    "deviceClassName": "gpu",
                    "allocationMode": "ExactCount",
                    "count": 1,
                },
            }
        ]
        owner = made["metadata"]["ownerReferences"][0]["name"]
        status = lab.get(PODS, owner)["status"]["extendedResourceClaimStatus"]
        assert status["resourceClaimName"] == made["metadata"]["name"]
        assert status["requestMappings"] == [
            {
                "containerName": "main",
                "resourceName": "example.com/gpu",
                "requestName": "container-0-request-0",
            }
        ]


def test_a_device_class_can_be_asked_for_by_its_implicit_name(lab):
    lab.server.add(NODES, worker("n"))
    lab.server.add(CLASSES, device_class("gpu"))
    lab.server.add(SLICES, *gpus("n", "a", "b"))
    lab.start()
    lab.add(PODS, pod("p", requests={"deviceclass.resource.kubernetes.io/gpu": "2"}))
    [made] = lab.server.all(CLAIMS)
    assert len(made["status"]["allocation"]["devices"]["results"]) == 2


def test_a_claim_write_that_fails_gives_the_device_back(cluster):
    cluster.server.fail_next("update status", "resourceclaims", ApiError("Timeout", "slow"))
    cluster.add(CLAIMS, named("c", request("r")))
    cluster.add(PODS, pod("p", claims={"g": "c"}))
    cluster.wait(5)
    assert cluster.node_of("p")
    assert len(allocated(cluster, "c")) == 1


class TestBindingConditions:
    @pytest.fixture
    def fabric(self, lab):
        attached = {
            "bindingConditions": ["example.com/attached"],
            "bindingFailureConditions": ["example.com/broken"],
        }
        lab.server.add(NODES, worker("n0"))
        lab.server.add(CLASSES, device_class("gpu"))
        lab.server.add(SLICES, *pool("n0", device("d", more=attached), node="n0"))
        lab.start()
        lab.add(CLAIMS, named("c", request("r")))
        lab.add(PODS, pod("p", claims={"g": "c"}))
        return lab

    def report(self, lab, condition):
        stored = lab.get(CLAIMS, "c")
        [result] = stored["status"]["allocation"]["devices"]["results"]
        entry = {name: result[name] for name in ("driver", "pool", "device")}
        entry["conditions"] = [
            {
                "type": condition,
                "status": "True",
                "reason": "Told",
                "lastTransitionTime": lab.manager.now(),
            }
        ]
        status = {**stored["status"], "devices": [entry]}
        lab.server.update(CLAIMS, {**stored, "status": status}, subresource="status")

    def test_the_pod_is_bound_when_its_device_is_ready(self, fabric):
        assert fabric.node_of("p") is None
        assert allocated(fabric, "c") == ["n0/d"]
        assert "BindingConditionsPending" in [e["reason"] for e in fabric.server.all(EVENTS)]
        self.report(fabric, "example.com/attached")
        fabric.engine.settle()
        assert fabric.node_of("p") == "n0"

    def test_a_device_that_fails_is_given_back_and_the_pod_tried_again(self, fabric):
        self.report(fabric, "example.com/broken")
        fabric.engine.settle()
        assert fabric.node_of("p") is None
        reasons = [event["message"] for event in fabric.server.all(EVENTS)]
        assert any("example.com/broken" in reason for reason in reasons)
        fabric.wait(15)
        assert allocated(fabric, "c") == ["n0/d"]
        self.report(fabric, "example.com/attached")
        fabric.engine.settle()
        assert fabric.node_of("p") == "n0"

    def test_a_device_that_never_gets_ready_is_given_up_after_ten_minutes(self, fabric):
        fabric.wait(599)
        assert not any("timeout" in event["message"] for event in fabric.server.all(EVENTS))
        fabric.wait(2)
        assert any("timeout" in event["message"] for event in fabric.server.all(EVENTS))


def test_pods_that_ask_for_the_same_are_each_told_of_their_own_claim(cluster):
    wanted = [request(name, "gpu", f"{MODEL} in ['a', 'b']", count=2) for name in ("r", "s")]
    cluster.server.add(CLAIMS, *(named(f"c{i}", *wanted) for i in (1, 10)))
    cluster.add(PODS, *(pod(f"p{i}", claims={"g": f"c{i}"}) for i in (1, 10)))
    for number in (1, 10):
        why = cluster.why(f"p{number}")
        assert "DRA0" in why
        assert "\x01" not in why


def test_an_unused_allocation_that_keeps_its_pod_from_every_node_is_given_up(cluster):
    cluster.add(CLAIMS, named("c", request("r")))
    cluster.add(PODS, pod("first", claims={"g": "c"}))
    home = cluster.node_of("first")
    cluster.server.delete(PODS, "first", "default", options={"gracePeriodSeconds": 0})
    stored = cluster.get(CLAIMS, "c")
    status = {**stored["status"], "reservedFor": []}
    cluster.server.update(CLAIMS, {**stored, "status": status}, subresource="status")
    cluster.server.patch(NODES, home, {"spec": {"unschedulable": True}})
    cluster.engine.settle()
    cluster.add(PODS, pod("second", claims={"g": "c"}))
    cluster.wait(3)
    assert cluster.node_of("second") not in {None, home}


def test_an_allocation_that_others_use_is_not_given_up(cluster):
    cluster.add(CLAIMS, named("c", request("r")))
    cluster.add(PODS, pod("first", claims={"g": "c"}))
    home = cluster.node_of("first")
    cluster.server.patch(NODES, home, {"spec": {"unschedulable": True}})
    cluster.engine.settle()
    cluster.add(PODS, pod("second", claims={"g": "c"}))
    cluster.wait(30)
    assert cluster.node_of("second") is None
    assert "allocation" in cluster.get(CLAIMS, "c")["status"]
    assert "node(s) were unschedulable" in cluster.why("second")
    assert "resourceclaim not available on the node" in cluster.why("second")


def test_devices_stay_held_while_nobody_knows_what_a_dying_server_has_stored(cluster):
    """It stores an allocation and dies; when it is back, its watch tells of that much later."""
    cluster.add(CLAIMS, *(named(name, request("r", "gpu", f'{MODEL} == "b"')) for name in "cd"))
    for watch in cluster.server.watches:
        if watch.resource is CLAIMS:
            watch.next = lambda timeout=None: None
    store, answers = cluster.server.update, iter([False])

    def dying(resource, body, *, subresource=""):
        stored = store(resource, body, subresource=subresource)
        if resource is CLAIMS and subresource == "status" and not next(answers, True):
            cluster.server.fail_next("list", "resourceclaims", gone)
            raise gone
        return stored

    gone = ApiError("ServiceUnavailable", "the server does not answer")
    cluster.server.update = dying
    cluster.add(PODS, pod("p", claims={"gpu": "c"}), pod("q", claims={"gpu": "d"}))
    cluster.wait(30)
    assert next(answers, True), "the server has died"
    assert (allocated(cluster, "c"), allocated(cluster, "d")) == (["n1/gpu-0"], [])
    assert (cluster.node_of("p"), cluster.node_of("q")) == ("n1", None)
