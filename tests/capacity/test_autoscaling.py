"""What an autoscaler decides about nodes with devices, by the scheduler's own model.

The manifests are those of the issues that are named, written anew in short.
"""

import random
from dataclasses import replace

import pytest

from builders import (
    DRIVER,
    ask,
    claim,
    counter_set,
    device,
    device_class,
    first_of,
    obj,
    pod,
    pool,
    request,
    taint,
    worker,
)
from crowded import GPU, flat, gpu_node, holder, waiter
from dralab.capacity.autoscaling.cluster_autoscaler import best, expansions, unneeded
from dralab.capacity.autoscaling.karpenter import disruptions, leave, provision
from dralab.capacity.autoscaling.node_pools import DisruptionBudget, NodePoolRules
from dralab.capacity.autoscaling.pools import Expansion, NodePool, add_node, homeless
from dralab.capacity.autoscaling.utilisation import utilisation
from dralab.kernel.clock import SECOND, from_rfc3339
from dralab.scheduling.model import ClusterModel
from dralab.scheduling.shares import Shares, shared_gpus

NONE = ()
MIG = device_class("mig", f'device.driver == "{DRIVER}"')


def node_pool(name, *slices, most=10, price=1.0, priority=0, **node):
    return NodePool(
        name=name, node=worker(name, **node), slices=slices, most=most, price=price,
        priority=priority,
    )  # fmt: skip


def gpu_pool(name, gpus, **more):
    _, *slices = gpu_node(name, gpus)
    return node_pool(name, *slices, cpu="64", memory="512Gi", **more)


def options(objects, *pools, rooms=None):
    model = ClusterModel(objects)
    left = homeless(model, model.waiting)
    found = expansions(model, {each: each.most for each in pools}, left)
    return {each.pool.name: (each.count, sorted(p.key.name for p in each.pods)) for each in found}


def partitions(card="gpu-0", size=40):
    """A card of 40 as a whole, as two halves and as four quarters, as MIG has them."""
    yield device(card, consumes={card: {"memory": size}}, profile="whole")
    for part in (2, 4):
        for number in range(part):
            yield device(
                f"{card}-{part}-{number}", consumes={card: {"memory": size // part}},
                profile=f"1/{part}",
            )  # fmt: skip


def mig_pool(name="mig", cards=1, **more):
    names = [f"gpu-{number}" for number in range(cards)]
    slices = pool(
        f"{name}-gpus", *(part for card in names for part in partitions(card)), node=name,
        counters=[counter_set(card, memory=40) for card in names],
    )  # fmt: skip
    return node_pool(name, *slices, cpu="64", **more)


def part_of(name, profile):
    wanted = f'device.attributes["{DRIVER}"].profile == "{profile}"'
    return [pod(name, claims={"c": name}), claim(name, request("r", "mig", wanted))]


# --- more nodes: kubernetes/autoscaler #10199, #7780, karpenter #3228 --------------------------


def test_a_pool_without_nodes_serves_claims_by_the_devices_of_its_template():
    objects = flat(*(waiter(f"w{n}", 2) for n in range(5)))
    assert options(objects, gpu_pool("four", 4), gpu_pool("one", 1)) == {
        "four": (3, [f"w{n}" for n in range(5)])
    }


def test_a_template_whose_pool_lacks_a_slice_serves_no_claim():
    """Issue #10199: the count of slices was left at zero, so that no pool was complete."""
    good = gpu_pool("four", 4)
    spec = good.slices[0]["spec"]
    broken = {
        **good.slices[0],
        "spec": {**spec, "pool": {**spec["pool"], "resourceSliceCount": 0}},
    }
    bad = node_pool("bad", broken, cpu="64")
    assert options(flat(waiter("w")), bad) == {}
    assert options(flat(waiter("w")), bad, good) == {"four": (1, ["w"])}


def test_a_template_that_leaves_out_an_attribute_serves_no_claim_that_selects_by_it():
    """The second claim of #10199: the template of an A100 in MIG mode says nothing of profiles."""
    wanted = part_of("w", "1/4")
    plain = node_pool("plain", *pool("plain-gpus", device("gpu-0"), node="plain"))
    assert options([MIG, *wanted], plain) == {}
    assert options([MIG, *wanted], mig_pool()) == {"mig": (1, ["w"])}


def test_parts_of_a_card_are_counted_by_its_counters():
    objects = [MIG, *(item for n in range(5) for item in part_of(f"w{n}", "1/4"))]
    assert options(objects, mig_pool())["mig"][0] == 2
    assert options(objects, mig_pool(cards=2))["mig"][0] == 1


def test_devices_of_the_network_serve_new_nodes_that_their_selector_reaches():
    net = obj(
        "ResourceSlice", "nics",
        spec={
            "driver": DRIVER, "pool": {"name": "net", "generation": 1, "resourceSliceCount": 1},
            "nodeSelector": {"nodeSelectorTerms": [{"matchExpressions": [
                {"key": "rack", "operator": "In", "values": ["a"]}]}]},
            "devices": [device("nic-0"), device("nic-1")],
        },
    )  # fmt: skip
    objects = [*flat(waiter("w0"), waiter("w1"), waiter("w2")), net]
    near = node_pool("near", labels={"rack": "a"})
    assert options(objects, near, node_pool("far", labels={"rack": "b"})) == {
        "near": (1, ["w0", "w1"])
    }


def test_pods_that_share_a_claim_go_to_one_new_node():
    shared = claim("shared", request("r"))
    pods = [pod(f"p{n}", claims={"c": "shared"}, requests={"cpu": "30"}) for n in range(3)]
    # Two fit beside each other; a node more would not have the device.
    assert options([GPU, shared, *pods], gpu_pool("four", 4)) == {"four": (1, ["p0", "p1"])}


def test_an_alternative_request_is_served_by_the_pool_that_has_one_of_them():
    wanted = claim("c", first_of("r", big=ask("gpu", count=8), small=ask("gpu", count=2)))
    objects = [GPU, wanted, pod("p", claims={"c": "c"})]
    assert options(objects, gpu_pool("four", 4), gpu_pool("one", 1)) == {"four": (1, ["p"])}


def test_taints_of_a_pool_keep_pods_away_that_do_not_tolerate_them():
    tainted = gpu_pool("four", 4, taints=[taint("dedicated")])
    tolerating = waiter("yes", tolerations=[{"key": "dedicated", "operator": "Exists"}])
    assert options(flat(waiter("no"), tolerating), tainted) == {"four": (1, ["yes"])}


def test_pods_that_fit_on_nodes_that_are_to_come_need_no_more():
    model = ClusterModel(flat(waiter("a", 2), waiter("b", 2), waiter("c", 2)))
    with model.tentatively():
        add_node(model, gpu_pool("four", 4), "four-0")
        assert [pod.key.name for pod in homeless(model, model.waiting)] == ["c"]
    assert len(homeless(model, model.waiting)) == 3


def test_a_pool_adds_no_more_than_it_has_room_for():
    objects = flat(*(waiter(f"w{n}", 4) for n in range(5)))
    assert options(objects, gpu_pool("four", 4, most=2))["four"][0] == 2


# --- which pool -----------------------------------------------------------------------------------


def test_the_expanders_prefer_what_they_are_named_for():
    objects = flat(*(waiter(f"w{n}", 1) for n in range(3)), waiter("large", 4))
    model = ClusterModel(objects)
    pools = [
        gpu_pool("eight", 8, price=30.0),
        gpu_pool("one", 1, price=2.0, priority=5),
        gpu_pool("four", 4, price=10.0),
    ]
    found = expansions(model, {each: each.most for each in pools}, model.waiting)
    assert [(each.pool.name, each.count, len(each.pods)) for each in found] == [
        ("eight", 1, 4), ("one", 3, 3), ("four", 2, 4),
    ]  # fmt: skip

    def chosen(*names):
        return best(found, names, random.Random(3).choice).pool.name

    assert chosen("price") == "one"
    assert chosen("priority") == "one"
    assert chosen("least-nodes") == "eight"
    assert chosen("most-pods", "price") == "four"
    assert {best(found, ["random"], random.Random(n).choice).pool.name for n in range(20)} == {
        "eight", "one", "four",
    }  # fmt: skip
    assert best([], ["price"], random.Random(1).choice) is None


def test_least_waste_looks_at_cpu_and_memory_and_not_at_devices():
    """As in cluster-autoscaler: a pool of costly GPUs wins by its smaller memory."""
    model = ClusterModel([pod("p", requests={"cpu": "4", "memory": "8Gi"})])
    _, *slices = gpu_node("gpus", 8)
    pools = [
        node_pool("gpus", *slices, cpu="8", memory="16Gi"),
        node_pool("plain", cpu="16", memory="64Gi"),
    ]
    found = expansions(model, {each: each.most for each in pools}, model.waiting)
    assert best(found, ["least-waste"], random.Random(1).choice).pool.name == "gpus"


# --- how much is in use: kubernetes/autoscaler #7781, #8053, kwok #1733 -----------------------


def test_devices_count_and_cpu_does_not_where_a_node_has_some():
    busy = pod("busy", requests={"cpu": "4"}, nodeName="n")
    model = ClusterModel(flat(gpu_node("n", 4), holder("h", "n", 0), [busy]))
    assert utilisation(model, "n") == 0.25
    assert utilisation(ClusterModel([worker("n"), busy]), "n") == 1.0


@pytest.mark.parametrize(
    ("taken", "part"),
    [
        ([], 0.0),
        (["gpu-0"], 0.5),
        (["gpu-0-4-0"], 0.125),
        (["gpu-0-4-0", "gpu-0-2-1", "gpu-1-2-0"], 0.625),
    ],
)
def test_parts_of_cards_count_by_the_counters_that_they_take(taken, part):
    held = []
    for name in taken:
        user, wire = holder(name, "mig", 0)
        wire["status"]["allocation"]["devices"]["results"][0] |= {
            "device": name, "pool": "mig-gpus",
        }  # fmt: skip
        held += [user, wire]
    two = mig_pool(cards=2)
    model = ClusterModel([GPU, two.node, *two.slices, *held])
    assert utilisation(model, "mig") == part


def test_the_fullest_pool_of_a_node_counts():
    nics = pool("nics", device("nic-0"), node="n", driver="nic.example.com")
    _, nic = holder("x", "n", 0)
    nic["status"]["allocation"]["devices"]["results"][0] |= {
        "driver": "nic.example.com", "pool": "nics", "device": "nic-0",
    }  # fmt: skip
    user, _ = holder("x", "n", 0)
    model = ClusterModel(flat(gpu_node("n", 4), nics, [user, nic]))
    assert utilisation(model, "n") == 1.0


def test_a_share_of_a_device_counts_as_the_whole_one():
    """What #7781 asks about: ten per cent of a card that many share keep its node."""
    user, wire = holder("h", "n", 0)
    wire["status"]["allocation"]["devices"]["results"][0]["consumedCapacity"] = {"share": "100m"}
    model = ClusterModel(flat(gpu_node("n", 1), [user, wire]))
    assert utilisation(model, "n") == 1.0


def test_a_pool_that_lacks_a_slice_keeps_its_node():
    node, one = gpu_node("n", 4)
    one["spec"]["pool"]["resourceSliceCount"] = 2
    model = ClusterModel(flat([node, one]))
    assert utilisation(model, "n") is None
    assert unneeded(model, ["n"], threshold=0.5, passed=NONE) == ([], [])


# --- fewer nodes --------------------------------------------------------------------------------


def owned(name, node, *gpus, **more):
    """A pod of a Job on a node, with its claim."""
    made, wire = holder(name, node, *gpus, **more)
    made["metadata"]["ownerReferences"] = [
        {"apiVersion": "batch/v1", "kind": "Job", "name": "j", "uid": "j", "controller": True}
    ]
    return [made, wire]


def going(objects, *names):
    found, needed = unneeded(ClusterModel(objects), names, threshold=0.5, passed=NONE)
    return [each.name for each in found], needed


def test_a_node_goes_whose_pods_find_devices_elsewhere():
    room = [gpu_node("a", 4), gpu_node("b", 4), owned("h", "a", 0), owned("i", "b", 0)]
    assert going(flat(*room), "a", "b") == (["a"], ["b"])
    assert going(flat(*room, owned("j", "b", 1, 2, 3)), "a", "b") == ([], ["a"])


def test_what_is_in_use_above_the_threshold_stays():
    objects = flat(gpu_node("a", 4), gpu_node("b", 4), owned("h", "a", 0, 1, 2))
    assert going(objects, "a", "b") == (["b"], [])


@pytest.mark.parametrize(
    ("change", "goes"),
    [
        ({}, True),
        ({"annotations": {"cluster-autoscaler.kubernetes.io/safe-to-evict": "false"}}, False),
        ({"ownerReferences": []}, False),
        (
            {
                "ownerReferences": [],
                "annotations": {"cluster-autoscaler.kubernetes.io/safe-to-evict": "true"},
            },
            True,
        ),
    ],
)
def test_a_pod_that_nobody_makes_again_keeps_its_node_unless_it_says_otherwise(change, goes):
    made, wire = owned("h", "a", 0)
    made["metadata"] |= change
    objects = flat(gpu_node("a", 4), gpu_node("b", 4), [made, wire])
    assert (going(objects, "a")[0] == ["a"]) is goes


def test_a_budget_keeps_the_node_of_its_pods():
    budget = obj("PodDisruptionBudget", "b", namespace="default", api="policy/v1",
                 spec={"minAvailable": 1, "selector": {"matchLabels": {"app": "x"}}})  # fmt: skip
    objects = flat(gpu_node("a", 4), gpu_node("b", 4), owned("h", "a", 0, labels={"app": "x"}))
    assert going(objects, "a")[0] == ["a"]
    assert going([*objects, budget], "a")[0] == []


def test_an_expansion_costs_its_nodes():
    assert Expansion(gpu_pool("four", 4, price=2.5), 3, ()).price == 7.5


# --- karpenter #3228 ------------------------------------------------------------------------------


def asked(objects, *pools):
    model = ClusterModel(objects)
    found = provision(model, {each: each.most for each in pools}, homeless(model, model.waiting))
    return sorted((each.pool.name, sorted(p.key.name for p in each.pods)) for each in found)


def test_the_cheapest_shape_that_fits_all_pods_of_a_node_is_asked_for():
    pools = [gpu_pool(f"g{n}", n, price=price) for n, price in ((1, 2), (2, 3), (4, 7), (8, 20))]
    assert asked(flat(waiter("a", 1)), *pools) == [("g1", ["a"])]
    # Pods are packed onto one node as long as some shape has room for all of them.
    assert asked(flat(waiter("a", 1), waiter("b", 1)), *pools) == [("g2", ["a", "b"])]
    assert asked(flat(waiter("a", 8), waiter("b", 1)), *pools) == [("g1", ["b"]), ("g8", ["a"])]
    assert asked(flat(waiter("a", 9)), *pools) == []


def test_a_shape_that_is_used_up_is_replaced_by_the_next_cheapest():
    pools = [gpu_pool("cheap", 1, price=1, most=1), gpu_pool("dear", 1, price=5)]
    assert asked(flat(waiter("a"), waiter("b")), *pools) == [("cheap", ["a"]), ("dear", ["b"])]


def test_pools_of_a_higher_weight_come_first_whatever_they_cost():
    pools = [gpu_pool("cheap", 4, price=1), gpu_pool("first", 4, price=9, priority=10)]
    assert asked(flat(waiter("a", 2)), *pools) == [("first", ["a"])]
    assert asked([pod("p", requests={"cpu": "2"})], node_pool("cpu", cpu="4"), *pools[:0]) == [
        ("cpu", ["p"])
    ]


def test_pods_of_one_claim_are_not_split():
    shared = claim("shared", request("r"))
    pods = [pod(f"p{n}", claims={"c": "shared"}, requests={"cpu": "3"}) for n in range(3)]
    small, large = gpu_pool("small", 1, price=1), gpu_pool("large", 1, price=2)
    small.node["status"]["allocatable"]["cpu"] = "4"
    assert asked([GPU, shared, *pods], small, large) == [("large", ["p0", "p1", "p2"])]


def test_partitions_join_the_node_that_still_has_room_for_them():
    objects = [MIG, *(item for n in range(5) for item in part_of(f"w{n}", "1/4"))]
    pools = [mig_pool("one", 1, price=4), mig_pool("two", 2, price=7)]
    assert asked(objects, *pools) == [("two", [f"w{n}" for n in range(5)])]


def consolidated(objects, nodes, *pools, allowed=9, only_empty=False, drifted=()):
    found = disruptions(
        ClusterModel(objects), nodes, {each: each.most for each in pools},
        allowed if callable(allowed) else lambda _reason, _group: allowed,
        drifted=dict(drifted), only_empty={""} if only_empty else (),
    )  # fmt: skip
    if found is None:
        return None
    return found.nodes, next((each.name for each in found.replacements), None)


FOUR, ONE = gpu_pool("four", 4, price=10.0), gpu_pool("one", 1, price=2.0)


def test_empty_nodes_go_first_and_all_together_as_the_budget_allows():
    objects = flat(*(gpu_node(name, 4) for name in "abc"), holder("h", "b", 0))
    nodes = dict.fromkeys("abc", FOUR)
    assert consolidated(objects, nodes, FOUR) == (("a", "c"), None)
    assert consolidated(objects, nodes, FOUR, allowed=1) == (("a",), None)
    assert consolidated(objects, nodes, FOUR, allowed=0) is None


def test_nodes_go_together_whose_pods_find_devices_elsewhere():
    objects = flat(
        *(gpu_node(name, 4) for name in "abc"), holder("h", "a", 0), holder("i", "b", 0),
        holder("j", "c", 0),
    )  # fmt: skip
    nodes = dict.fromkeys("abc", FOUR)
    assert consolidated(objects, nodes, FOUR) == (("a", "b"), None)
    assert consolidated(objects, nodes, FOUR, allowed=1) == (("a",), None)
    assert consolidated(objects, nodes, FOUR, only_empty=True) is None


def test_a_node_is_replaced_by_a_cheaper_one_that_has_the_devices():
    objects = flat(gpu_node("a", 4), holder("h", "a", 0))
    assert consolidated(objects, {"a": FOUR}, FOUR, ONE) == (("a",), "one")
    assert consolidated(objects, {"a": FOUR}, FOUR) is None
    two = flat(gpu_node("a", 4), holder("h", "a", 0, 1))
    assert consolidated(two, {"a": FOUR}, FOUR, ONE) is None


def test_a_spot_node_is_not_replaced_by_another_spot_node():
    """consolidation.go, computeSpotToSpotConsolidation: its feature gate is off by default."""
    objects = flat(gpu_node("a", 4), holder("h", "a", 0))
    large, small = replace(FOUR, spot=True), replace(ONE, spot=True)
    assert consolidated(objects, {"a": large}, large, small) is None
    assert consolidated(objects, {"a": large}, FOUR, small, ONE) is None
    assert consolidated(objects, {"a": large}, FOUR, ONE) == (("a",), "one")
    # One that is not is replaced by a spot node alone, even by a dearer one than the cheapest.
    cheaper = replace(ONE, name="cheaper", price=1.0)
    assert consolidated(objects, {"a": FOUR}, FOUR, cheaper, small) == (("a",), "one")
    # It goes if its pods have other places.
    two = flat(objects, gpu_node("b", 4), holder("i", "b", 0))
    assert consolidated(two, {"a": large}, large) == (("a",), None)


def test_the_node_pool_that_comes_first_decides_what_a_node_is_replaced_by():
    """Prices are compared among the instance types of the node that pods would get otherwise."""
    objects = flat(gpu_node("a", 4), holder("h", "a", 0))
    heavy = replace(FOUR, name="heavy", priority=10, group="heavy")
    assert consolidated(objects, {"a": FOUR}, FOUR, ONE, heavy) is None


def test_no_node_goes_whose_pods_would_move_to_one_that_is_not_ready():
    objects = flat(gpu_node("a", 4), holder("h", "a", 0), gpu_node("b", 4))
    model = ClusterModel(objects)
    pools = {FOUR: 9, ONE: 9}

    def asked(**how):
        return disruptions(model, {"a": FOUR}, pools, lambda *_: 9, **how)

    model.cordon("b")
    assert asked(unready=["b"]) is None
    assert asked(unready=["b"], drifted={"a": FOUR}) is None
    found = asked()
    assert [each.name for each in found.replacements] == ["one"]


@pytest.mark.parametrize(
    ("spec", "moves"),
    [
        ({"maxUnavailable": 0}, False),
        ({"maxUnavailable": "0%"}, False),
        ({"minAvailable": "100%"}, False),
        # It allows none now, and may later.
        ({"minAvailable": 1}, True),
    ],
)
def test_pods_that_will_not_leave_a_node_that_goes_need_no_other_place(spec, moves):
    """utils/pdb, IsCurrentlyReschedulable."""
    held, wire = holder("h", "a", 0)
    held["metadata"]["labels"] = {"app": "h"}
    other, its_wire = holder("i", "a", 1)
    other["metadata"]["annotations"] = {"karpenter.sh/do-not-disrupt": "true"}
    budget = {
        "kind": "PodDisruptionBudget",
        "apiVersion": "policy/v1",
        "metadata": {"name": "b", "namespace": held["metadata"]["namespace"]},
        "spec": {**spec, "selector": {"matchLabels": {"app": "h"}}},
    }
    model = ClusterModel(flat(gpu_node("a", 4), [held, wire, other, its_wire, budget]))
    assert [pod.key.name for pod in leave(model, ["a"])] == (["h"] if moves else [])


def test_a_pod_that_must_not_be_disrupted_keeps_its_node():
    held, wire = holder("h", "a", 0)
    held["metadata"]["annotations"] = {"karpenter.sh/do-not-disrupt": "true"}
    objects = flat(gpu_node("a", 4), gpu_node("b", 4), [held, wire], holder("i", "b", 0))
    assert consolidated(objects, {"a": FOUR, "b": FOUR}, FOUR) == (("b",), None)


def replaced(objects, *drifted, pools=(FOUR, ONE), allowed=9):
    """Which of the nodes goes because it has drifted, and the nodes that come for it."""
    found = disruptions(
        ClusterModel(objects), {}, {each: each.most for each in pools},
        lambda reason, _: allowed if reason == "Drifted" else 9,
        drifted=dict.fromkeys(drifted, FOUR),
    )  # fmt: skip
    if found is None:
        return None
    assert found.reason == "Drifted"
    return found.nodes, [each.name for each in found.replacements]


def test_a_node_that_has_drifted_goes_for_as_many_as_its_pods_need_whatever_they_cost():
    objects = flat(gpu_node("a", 4), holder("h", "a", 0), holder("i", "a", 1))
    assert replaced(objects, "a") == (("a",), ["four"])
    assert replaced(objects, "a", pools=(ONE,)) == (("a",), ["one", "one"])
    assert replaced(objects, "a", pools=()) is None
    assert replaced(flat(objects, gpu_node("b", 4)), "a") == (("a",), [])


def test_of_nodes_that_have_drifted_an_empty_one_goes_first_and_as_many_as_the_budget_allows():
    objects = flat(gpu_node("a", 4), holder("h", "a", 0), gpu_node("b", 4))
    assert replaced(objects, "a", "b") == (("b",), [])
    assert replaced(objects, "a", "b", allowed=0) is None
    # One that nobody uses goes as such, if its NodePool lets it: all of them together.
    assert consolidated(objects, {"b": FOUR}, FOUR, drifted={"a": FOUR}) == (("b",), None)


def test_a_node_that_has_drifted_is_replaced_before_others_are_consolidated():
    objects = flat(
        gpu_node("a", 4), holder("h", "a", 0), gpu_node("b", 4), holder("i", "b", 0),
        gpu_node("c", 4), holder("j", "c", 0),
    )  # fmt: skip
    found = consolidated(objects, dict.fromkeys("abc", FOUR), FOUR, drifted={"c": FOUR})
    assert found == (("c",), None)


def test_a_pod_that_must_not_be_disrupted_keeps_a_node_that_has_drifted():
    held, wire = holder("h", "a", 0)
    held["metadata"]["annotations"] = {"karpenter.sh/do-not-disrupt": "true"}
    assert replaced(flat(gpu_node("a", 4), [held, wire]), "a") is None


# --- NodePools ------------------------------------------------------------------------------------


def test_limits_count_the_most_that_a_node_may_come_to_be():
    """scheduler.go, subtractMax: of a limit of 6 CPUs, a node of 2 or 4 leaves 2."""
    small, large = node_pool("small", cpu="2"), replace(node_pool("large", cpu="4"), price=1.5)
    pods = [pod(f"p{n}", requests={"cpu": "1500m"}) for n in range(4)]
    model = ClusterModel(pods)
    found = provision(
        model, {small: 9, large: 9}, homeless(model, model.waiting), {"": {"cpu": 6000}}
    )
    assert [(each.pool.name, len(each.pods)) for each in found] == [("large", 2), ("small", 1)]


def test_an_empty_node_that_its_budget_keeps_does_not_go_for_another_reason():
    objects = flat(*(gpu_node(name, 4) for name in "abc"), holder("p", "c", 1))
    nodes = dict.fromkeys("abc", FOUR)
    spared = consolidated(objects, nodes, FOUR, allowed=lambda reason, _: 2 * (reason != "Empty"))
    assert spared == (("c",), None)
    assert consolidated(objects, nodes, FOUR, allowed=lambda *_: 0) is None


AT_NIGHT = DisruptionBudget(nodes="0", schedule="0 22 * * *", duration=8 * 3600 * SECOND)


@pytest.mark.parametrize(
    ("when", "allowed", "changes"),
    [
        ("2026-01-01T21:59:59Z", 3, "2026-01-01T22:00:00Z"),
        ("2026-01-01T22:00:00Z", 0, "2026-01-02T06:00:00Z"),
        ("2026-01-02T06:00:00Z", 0, "2026-01-02T06:00:00Z"),
        ("2026-01-02T06:00:01Z", 3, "2026-01-02T22:00:00Z"),
    ],
)
def test_a_budget_holds_for_its_duration_after_each_time_of_its_schedule(when, allowed, changes):
    rules = NodePoolRules(budgets=(AT_NIGHT, DisruptionBudget(nodes="25%")))
    now = from_rfc3339(when)
    assert rules.allowed(11, now, "Empty") == allowed
    assert rules.changes_at(now) // SECOND == from_rfc3339(changes) // SECOND
    assert rules.changes_at(now) > now


@pytest.mark.parametrize(
    ("nodes", "reasons", "allowed"),
    [("10%", (), 2), ("0", (), 0), ("100%", (), 11), ("3", (), 3), ("3", ("Empty",), 11)],
)
def test_a_part_of_the_nodes_is_rounded_up(nodes, reasons, allowed):
    rules = NodePoolRules(budgets=(DisruptionBudget(nodes=nodes, reasons=reasons),))
    assert rules.allowed(11, 0, "Underutilized") == allowed


def test_shared_gpus_count_alone_in_what_is_in_use_of_a_node():
    """As cluster-autoscaler counts GPUs that are extended resources."""
    model = ClusterModel([worker("n", labels=shared_gpus(4, "T4")), worker("plain")])
    table = model.state.table
    assert utilisation(model, "n") == utilisation(model, "plain") == 0
    table.gpus.take(table.row_of["n"], Shares(2, 1000, taken=(0, 1)), 1)
    table.gpus.take(table.row_of["n"], Shares(1, 500, taken=(2,)), 1)
    assert utilisation(model, "n") == 0.625
    # The row is used again by a node without GPUs.
    table.remove_node("n")
    table.put_node(worker("other"))
    assert table.row_of["other"] == 0
    assert utilisation(model, "other") == 0
    assert not table.gpus.left[0].any()
