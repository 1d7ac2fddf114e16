import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from builders import claim, device, device_class, pod, pool, request, worker
from dralab.api.resource.features import ALL
from dralab.runtime.client import Resource
from dralab.runtime.resources import CLAIMS, CLASSES, NODES, POD_GROUPS, PODS, SLICES
from dralab.scheduler.scheduler import Scheduler
from labs import Lab
from smallselectors import SmallEnvironment

GROUP = "scheduling.k8s.io"
GPU = "gpu.example.com"
MODEL = f'device.attributes["{GPU}"].model'


def group(name, least):
    return {
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"schedulingPolicy": {"gang": {"minCount": least}}},
    }


def member(name, gang="g", **more):
    return pod(name, schedulingGroup={"podGroupName": gang}, **more)


def named(name, *requests, **more):
    return claim(name, *requests, namespace="default", **more)


def devices_of(lab, name):
    results = lab.get(CLAIMS, name)["status"]["allocation"]["devices"]["results"]
    return [f"{item['pool']}/{item['device']}" for item in results]


def test_a_gang_waits_for_all_its_members(lab):
    lab.server.add(NODES, worker("n", cpu="2"))
    lab.server.add(POD_GROUPS, group("g", 2))
    lab.start()
    lab.add(PODS, member("a"))
    assert lab.node_of("a") is None
    assert "waiting for 2 pods of gang g: 1 exist" in lab.why("a")
    lab.add(PODS, member("b"))
    lab.wait(2)
    assert (lab.node_of("a"), lab.node_of("b")) == ("n", "n")


def test_members_of_a_group_of_the_same_name_elsewhere_do_not_count(lab):
    lab.server.add(NODES, worker("n", cpu="4"))
    lab.server.add(POD_GROUPS, group("g", 2))
    lab.start()
    lab.add(PODS, pod("single"), member("x", namespace="other"), member("y", namespace="other"))
    lab.add(PODS, member("a"))
    lab.wait(2)
    assert lab.node_of("a") is None


def test_a_gang_that_does_not_fit_takes_nothing(lab):
    lab.server.add(NODES, worker("n", cpu="2"))
    lab.server.add(POD_GROUPS, group("g", 3))
    lab.start()
    lab.add(PODS, *(member(name, requests={"cpu": "1"}) for name in "abc"))
    assert [lab.node_of(name) for name in "abc"] == [None, None, None]
    assert lab.why("c").startswith("0/1 nodes are available: 1 Insufficient cpu.")
    lab.add(PODS, pod("single", requests={"cpu": "2"}))
    assert lab.node_of("single") == "n"


def test_what_the_scheduler_writes_of_a_group_does_not_wake_its_pods(lab):
    lab.server.add(NODES, worker("n", cpu="2"))
    lab.server.add(POD_GROUPS, group("g", 2))
    lab.server.add(PODS, *(member(name, requests={"cpu": "2"}) for name in "ab"))
    lab.start()
    assert lab.get(POD_GROUPS, "g")["status"]["conditions"]
    assert lab.scheduler.queue.get(lab.get(PODS, "a")["metadata"]["uid"]).attempts == 1


def test_more_members_than_needed_are_placed_as_far_as_they_fit(lab):
    lab.server.add(NODES, worker("n", cpu="2"))
    lab.server.add(POD_GROUPS, group("g", 2))
    lab.server.add(PODS, *(member(name, requests={"cpu": "1"}) for name in "abc"))
    lab.start()
    assert [lab.node_of(name) for name in "abc"] == ["n", "n", None]


def test_a_group_without_gang_policy_is_scheduled_pod_by_pod(lab):
    lab.server.add(NODES, worker("n"))
    basic = {
        "metadata": {"name": "g", "namespace": "default"},
        "spec": {"schedulingPolicy": {"basic": {}}},
    }
    lab.server.add(POD_GROUPS, basic)
    lab.start()
    lab.add(PODS, member("a"))
    assert lab.node_of("a") == "n"


def test_a_missing_group_is_named(lab):
    lab.server.add(NODES, worker("n"))
    lab.start()
    lab.add(PODS, member("a"))
    assert 'podgroup.scheduling.k8s.io "g" not found' in lab.why("a")
    lab.add(POD_GROUPS, group("g", 1))
    lab.wait(2)
    assert lab.node_of("a") == "n"


def test_an_earlier_member_gives_up_the_device_that_a_later_one_needs(lab):
    # kubernetes#138765: first-fit gives the only "b" to whoever asks first.
    lab.server.add(NODES, worker("n"))
    lab.server.add(CLASSES, device_class("gpu"))
    lab.server.add(SLICES, *pool("n", device("d0", model="b"), device("d1", model="a"), node="n"))
    lab.server.add(POD_GROUPS, group("g", 2))
    lab.server.add(
        CLAIMS, named("any", request("r")), named("b", request("r", "gpu", f'{MODEL} == "b"'))
    )
    lab.server.add(PODS, member("p0", claims={"c": "any"}), member("p1", claims={"c": "b"}))
    lab.start()
    assert (lab.node_of("p0"), lab.node_of("p1")) == ("n", "n")
    assert devices_of(lab, "any") == ["n/d1"]
    assert devices_of(lab, "b") == ["n/d0"]


def test_an_earlier_member_moves_to_another_node_for_a_later_one(lab):
    lab.server.add(NODES, worker("n0", cpu="8"), worker("n1", cpu="2"))
    lab.server.add(CLASSES, device_class("gpu"))
    lab.server.add(SLICES, *pool("n0", device("d0"), node="n0"))
    lab.server.add(POD_GROUPS, group("g", 2))
    lab.server.add(CLAIMS, named("c", request("r")))
    lab.server.add(
        PODS,
        member("p0", requests={"cpu": "2"}),
        member("p1", requests={"cpu": "7"}, claims={"c": "c"}),
    )
    lab.start()
    assert (lab.node_of("p0"), lab.node_of("p1")) == ("n1", "n0")


def network(*models):
    """A pool that every node reaches."""
    return pool("net", *(device(f"d{i}", model=m) for i, m in enumerate(models)), node=None)


def test_a_member_elsewhere_gives_up_a_device_of_the_network(lab):
    lab.server.add(NODES, *(worker(f"n{i}", cpu="1") for i in range(3)))
    lab.server.add(CLASSES, device_class("gpu"))
    lab.server.add(SLICES, *network("a", "b", "c"))
    lab.server.add(POD_GROUPS, group("g", 3))
    only_a = request("r", "gpu", f'{MODEL} == "a"')
    lab.server.add(
        CLAIMS, named("c0", request("r")), named("c1", request("r")), named("c2", only_a)
    )
    whole = {"requests": {"cpu": "1"}}
    lab.server.add(PODS, *(member(f"p{i}", claims={"g": f"c{i}"}, **whole) for i in range(3)))
    lab.start()
    assert len({lab.node_of(f"p{i}") for i in range(3)}) == 3
    assert devices_of(lab, "c2") == ["net/d0"]
    given = [each for i in range(3) for each in devices_of(lab, f"c{i}")]
    assert len(set(given)) == 3


def test_who_gives_up_a_device_may_need_that_of_a_third(lab):
    lab.server.add(NODES, *(worker(f"n{i}", cpu="1") for i in range(3)))
    lab.server.add(CLASSES, device_class("gpu"))
    devices = [
        device("d0", left="yes", right="no", model="a"),
        device("d1", left="yes", right="yes", model="b"),
        device("d2", left="no", right="yes", model="b"),
    ]
    lab.server.add(SLICES, *pool("net", *devices, node=None))
    lab.server.add(POD_GROUPS, group("g", 3))
    for number, (name, value) in enumerate([("left", "yes"), ("right", "yes"), ("model", "a")]):
        selector = f'device.attributes["{GPU}"].{name} == "{value}"'
        lab.server.add(CLAIMS, named(f"c{number}", request("r", "gpu", selector)))
        entry = {"g": f"c{number}"}
        lab.server.add(PODS, member(f"p{number}", claims=entry, requests={"cpu": "1"}))
    lab.start()
    assert [devices_of(lab, f"c{i}") for i in range(3)] == [["net/d1"], ["net/d2"], ["net/d0"]]


@pytest.mark.thorough
@settings(deadline=None, max_examples=25)
@given(
    st.lists(st.sampled_from("abc"), min_size=1, max_size=5),
    st.lists(st.sampled_from(["a", "b", "c", "any"]), min_size=1, max_size=5),
)
def test_a_gang_gets_devices_of_the_network_exactly_when_some_choice_exists(models, wanted):
    made = Lab()
    Scheduler(made.manager, SmallEnvironment())
    made.server.add(NODES, *(worker(f"n{i}", cpu="1") for i in range(len(wanted))))
    made.server.add(CLASSES, device_class("gpu"))
    made.server.add(SLICES, *network(*models))
    made.server.add(POD_GROUPS, group("g", len(wanted)))
    for number, model in enumerate(wanted):
        selectors = [] if model == "any" else [f'{MODEL} == "{model}"']
        made.server.add(CLAIMS, named(f"c{number}", request("r", "gpu", *selectors)))
        entry = {"g": f"c{number}"}
        made.server.add(PODS, member(f"p{number}", claims=entry, requests={"cpu": "1"}))
    made.start()
    exists = len(wanted) <= len(models) and all(
        wanted.count(model) <= models.count(model) for model in "abc"
    )
    nodes = {made.get(PODS, f"p{i}")["spec"].get("nodeName") for i in range(len(wanted))}
    assert nodes == ({f"n{i}" for i in range(len(wanted))} if exists else {None})


def test_a_claim_shared_by_a_gang_is_allocated_once(lab):
    lab.server.add(NODES, worker("n0"), worker("n1"))
    lab.server.add(CLASSES, device_class("gpu"))
    lab.server.add(SLICES, *pool("n1", device("d0"), node="n1"))
    lab.server.add(POD_GROUPS, group("g", 3))
    lab.server.add(CLAIMS, named("c", request("r")))
    lab.server.add(PODS, *(member(f"p{i}", claims={"c": "c"}) for i in range(3)))
    lab.start()
    assert {lab.node_of(f"p{i}") for i in range(3)} == {"n1"}
    assert len(lab.get(CLAIMS, "c")["status"]["reservedFor"]) == 3


def test_a_claim_of_the_group_is_reserved_for_the_group(lab):
    lab.server.add(NODES, worker("n"))
    lab.server.add(CLASSES, device_class("gpu"))
    lab.server.add(SLICES, *pool("n", device("d0"), node="n"))
    shared = group("g", 2)
    shared["spec"]["resourceClaims"] = [{"name": "c", "resourceClaimName": "c"}]
    [stored] = lab.server.add(POD_GROUPS, shared)
    lab.server.add(CLAIMS, named("c", request("r")))
    lab.server.add(PODS, *(member(f"p{i}", claims={"c": "c"}) for i in range(2)))
    lab.start()
    assert lab.get(CLAIMS, "c")["status"]["reservedFor"] == [
        {
            "apiGroup": "scheduling.k8s.io",
            "resource": "podgroups",
            "name": "g",
            "uid": stored["metadata"]["uid"],
        }
    ]
    assert lab.node_of("p0") == lab.node_of("p1") == "n"


@pytest.mark.thorough
@settings(deadline=None, max_examples=60)
@given(
    st.lists(st.lists(st.sampled_from("ab"), max_size=3), min_size=1, max_size=2),
    st.lists(
        st.tuples(st.sampled_from(["a", "b", None]), st.integers(1, 2)), min_size=1, max_size=4
    ),
)
def test_a_gang_is_placed_exactly_when_some_placement_exists(nodes, wanted):
    lab = Lab()
    Scheduler(lab.manager, SmallEnvironment())
    lab.server.add(CLASSES, device_class("gpu"))
    for number, models in enumerate(nodes):
        name = f"n{number}"
        lab.server.add(NODES, worker(name))
        if models:
            devices = [device(f"d{i}", model=model) for i, model in enumerate(models)]
            lab.server.add(SLICES, *pool(name, *devices, node=name))
    lab.server.add(POD_GROUPS, group("g", len(wanted)))
    for number, (model, count) in enumerate(wanted):
        selectors = [f'{MODEL} == "{model}"'] if model else []
        asked = named(f"c{number}", request("r", "gpu", *selectors, count=count))
        lab.server.add(CLAIMS, asked)
        lab.server.add(PODS, member(f"p{number}", claims={"c": f"c{number}"}))
    lab.start()
    placed = [bool(obj["spec"].get("nodeName")) for obj in lab.server.all(PODS)]
    assert len(set(placed)) == 1
    assert placed[0] == some_placement(nodes, wanted)


def some_placement(nodes, wanted):
    """Every way to send members to nodes, and on a node every way to deal out its devices."""
    for places in itertools.product(range(len(nodes)), repeat=len(wanted)):
        if all(
            deals(models, [want for want, place in zip(wanted, places, strict=True) if place == n])
            for n, models in enumerate(nodes)
        ):
            return True
    return False


def deals(models, wants):
    # Members of one node share its devices: those that name a model first, the others after.
    left = {model: models.count(model) for model in "ab"}
    for model, count in wants:
        if model:
            left[model] -= count
    return min(left.values()) >= 0 and sum(left.values()) >= sum(
        count for model, count in wants if not model
    )


@pytest.mark.parametrize("size", [1, 5])
def test_a_refused_gang_leaves_no_trace(lab, size):
    lab.server.add(NODES, worker("n"))
    lab.server.add(CLASSES, device_class("gpu"))
    lab.server.add(SLICES, *pool("n", *(device(f"d{i}") for i in range(size)), node="n"))
    lab.server.add(POD_GROUPS, group("g", size + 1))
    for number in range(size + 1):
        lab.server.add(CLAIMS, named(f"c{number}", request("r")))
        lab.server.add(PODS, member(f"p{number}", claims={"c": f"c{number}"}))
    lab.start()
    assert not any(obj["spec"].get("nodeName") for obj in lab.server.all(PODS))
    lab.add(CLAIMS, named("all", request("r", count=size)))
    lab.add(PODS, pod("single", claims={"c": "all"}))
    assert lab.node_of("single") == "n"


def test_groups_of_groups_start_together_in_one_rack():
    lab = Lab(features=ALL, release="1.37")
    Scheduler(lab.manager, SmallEnvironment())
    composites = Resource(GROUP, "v1alpha3", "compositepodgroups")
    groups = Resource(GROUP, "v1beta1", "podgroups")
    workload = {"workloadName": "w", "templateName": "t"}
    together = {
        "workloadRef": workload,
        "schedulingPolicy": {"gang": {"minGroupCount": 2}},
        "schedulingConstraints": {"topology": [{"key": "rack"}]},
    }
    lab.server.add(
        NODES, *(worker(f"n{i}", cpu="3", labels={"rack": "ab"[i // 2]}) for i in range(4))
    )
    lab.server.add(composites, {"metadata": {"name": "c"}, "spec": together})
    for name in "ab":
        spec = {
            "workloadRef": workload,
            "schedulingPolicy": {"gang": {"minCount": 2}},
            "parentCompositePodGroupName": "c",
        }
        lab.server.add(groups, {"metadata": {"name": name}, "spec": spec})
    lab.start()
    for name in ("a0", "a1", "b0", "b1"):
        assert all("nodeName" not in each["spec"] for each in lab.all(PODS))
        lab.add(PODS, member(name, name[0], requests={"cpu": "1"}))
        lab.wait(2)
    assert {each["spec"]["nodeName"] for each in lab.all(PODS)} in ({"n0", "n1"}, {"n2", "n3"})
    for name in "ab":
        (condition,) = lab.get(groups, name)["status"]["conditions"]
        assert (condition["type"], condition["status"]) == ("PodGroupInitiallyScheduled", "True")
