"""The points of nodes: kube-scheduler's arithmetic, in whole numbers."""

from types import SimpleNamespace

import numpy as np
import pytest

from builders import claim, device, device_class, pod, pool, request, worker
from dralab.scheduling import scores
from dralab.scheduling.model import ClusterModel
from dralab.scheduling.node_rules import NodeRules
from dralab.scheduling.nodes import NodeTable
from dralab.scheduling.pods import pod_info
from dralab.scheduling.state import PodPlacement

MIB = 1024 * 1024
SOFT = "preferredDuringSchedulingIgnoredDuringExecution"


def points(name, nodes, wanted, *, there=(), among=None):
    """What each node gets of a plugin, None where the plugin has nothing to say."""
    table = NodeTable()
    for node in nodes:
        table.put_node(node)
    for node, other in there:
        other["metadata"]["uid"] = other["metadata"]["name"]
        table.add_pod(node, pod_info(other))
    state = SimpleNamespace(table=table, node_rules=NodeRules(table))
    plugin = next(each for each in scores.PLUGINS if each.name == name)
    fitting = table.live if among is None else np.array(among)
    found = plugin.points(state, pod_info(wanted), fitting)
    return None if found is None else found.tolist()


def test_weights_are_those_of_the_default_profile():
    assert {each.name: each.weight for each in scores.PLUGINS} == {
        "TaintToleration": 3,
        "NodeAffinity": 2,
        "NodeResourcesFit": 1,
        "PodTopologySpread": 2,
        "InterPodAffinity": 2,
        "NodeResourcesBalancedAllocation": 1,
        "ImageLocality": 1,
    }
    assert scores.DEVICES_WEIGHT == 2


def test_an_empty_node_has_more_points_in_whole_numbers():
    nodes = [
        worker("even", cpu="4", memory="4Gi"),
        worker("third", cpu="3", memory="3Gi"),
        worker("full", cpu="1", memory="256Mi"),
        worker("no-memory", cpu="4", memory="0"),
        {"metadata": {"name": "bare"}, "spec": {}, "status": {}},
    ]
    wanted = pod("p", requests={"cpu": "1", "memory": "512Mi"})
    # 75 and 87 of 100; 66 and 83; 0 and 0, as 512 MiB are too much; cpu alone; nothing.
    assert points("NodeResourcesFit", nodes, wanted) == [81, 74, 0, 75, 0]


def test_each_container_that_asks_for_nothing_counts_a_little():
    wanted = pod("p", requests={"cpu": "1"})
    wanted["spec"]["containers"].append({"name": "second"})
    assert pod_info(wanted).scored == (1100, 400 * MIB)
    wanted["spec"]["initContainers"] = [{"name": "side", "restartPolicy": "Always"}]
    assert pod_info(wanted).scored == (1200, 600 * MIB)
    zero = pod("p", requests={"cpu": "0", "memory": "0"})
    assert pod_info(zero).scored == (0, 0)


def test_what_the_pod_itself_requests_counts_once_it_is_on_a_node():
    nodes = [worker("n0", cpu="4", memory="4Gi"), worker("n1", cpu="4", memory="4Gi")]
    wanted = pod("p", requests={"cpu": "1", "memory": "1Gi"}, resources={"requests": {"cpu": "3"}})
    assert points("NodeResourcesFit", nodes, wanted) == [75, 75]
    there = pod("there", requests={"cpu": "1"}, resources={"requests": {"cpu": "3"}})
    assert points("NodeResourcesFit", nodes, wanted, there=[("n0", there)]) == [35, 75]


def test_a_pod_that_evens_out_a_node_gives_it_points():
    nodes = [worker("n0", cpu="4", memory="4Gi"), worker("n1", cpu="4", memory="4Gi")]
    hungry = pod("there", requests={"memory": "2Gi"})
    wanted = pod("p", requests={"cpu": "2"})
    # n0: used 0 and 0 before, 0.5 and 0 after: from 100 to 75. n1: from 75 to 100.
    found = points("NodeResourcesBalancedAllocation", nodes, wanted, there=[("n1", hungry)])
    assert found == [50 + (50 - 25) // 2, 50 + (50 + 25) // 2]
    assert points("NodeResourcesBalancedAllocation", nodes, pod("p")) is None
    # With one of the two resources there is nothing to balance.
    alone = [worker("n", cpu="4", memory="0")]
    assert points("NodeResourcesBalancedAllocation", alone, wanted) == [75]


def test_taints_to_avoid_count_beside_those_of_the_other_nodes():
    avoid = {"key": "t", "effect": "PreferNoSchedule"}
    nodes = [
        worker("n0", taints=[avoid, {**avoid, "key": "u"}, {**avoid, "key": "v"}]),
        worker("n1", taints=[avoid, {"key": "w", "effect": "NoSchedule"}]),
        worker("n2"),
    ]
    assert points("TaintToleration", nodes, pod("p")) == [0, 67, 100]
    assert points("TaintToleration", nodes, pod("p"), among=[False, True, True])[1:] == [0, 100]
    tolerant = pod("p", tolerations=[{"key": "t", "operator": "Exists"}])
    assert points("TaintToleration", nodes, tolerant) == [0, 100, 100]
    assert points("TaintToleration", nodes[2:], pod("p")) is None


def preferring(*terms, **more):
    wished = [
        {
            "weight": weight,
            "preference": {
                "matchExpressions": [{"key": "zone", "operator": "In", "values": [zone]}]
            },
        }
        for weight, zone in terms
    ]
    return pod("p", affinity={"nodeAffinity": {SOFT: wished, **more}})


def test_preferred_nodes_count_beside_the_best():
    nodes = [worker(f"n{zone}", labels={"zone": zone}) for zone in "abc"]
    assert points("NodeAffinity", nodes, preferring((7, "b"), (3, "c"))) == [0, 100, 42]
    assert points("NodeAffinity", nodes, preferring((7, "x"))) is None
    assert points("NodeAffinity", nodes, pod("p")) is None
    # A pod that names its nodes has wishes, too.
    field = {"key": "metadata.name", "operator": "In", "values": ["nb", "nc"]}
    named = {
        "requiredDuringSchedulingIgnoredDuringExecution": {
            "nodeSelectorTerms": [{"matchFields": [field]}]
        }
    }
    wanted = preferring((7, "b"), (3, "c"), (50, "a"), **named)
    assert points("NodeAffinity", nodes, wanted, among=[False, True, True])[1:] == [100, 42]


def test_an_image_counts_by_its_size_and_by_how_many_nodes_have_it():
    nodes = []
    for number, sizes in enumerate(((500,), (500, 1200), (), ())):
        made = worker(f"n{number}")
        made["status"]["images"] = [
            {"names": [f"{name}:latest"], "sizeBytes": size * MIB}
            for name, size in zip("ab", sizes, strict=False)
        ]
        nodes.append(made)

    def of(*images, inits=(), volume=""):
        wanted = pod("p")
        wanted["spec"]["containers"] = [{"name": name, "image": name} for name in images]
        wanted["spec"]["initContainers"] = [{"name": name, "image": name} for name in inits]
        if volume:
            wanted["spec"]["volumes"] = [{"name": "v", "image": {"reference": volume}}]
        return points("ImageLocality", nodes, wanted)

    assert of("c") is None
    # Half of the nodes have 500 MiB: 250 count, of which 23 are too few; 1,000 would be all.
    assert of("a") == [(250 - 23) * 100 // (1000 - 23)] * 2 + [0, 0]
    assert of("b")[1] == (300 - 23) * 100 // (1000 - 23)
    both = [(250 - 23) * 100 // (2000 - 23), (550 - 23) * 100 // (2000 - 23), 0, 0]
    assert of("a", "b") == of("a", inits=["b"]) == both
    # The image of a volume counts, and is not a container.
    assert of("a", volume="b")[1] == (550 - 23) * 100 // (1000 - 23)


def spreading(key, skew=1, selector=None, **more):
    rule = {
        "topologyKey": key,
        "maxSkew": skew,
        "labelSelector": {"matchLabels": {"app": "x"}} if selector is None else selector,
        "whenUnsatisfiable": "ScheduleAnyway",
    }
    return pod("p", labels={"app": "x"}, topologySpreadConstraints=[rule | more])


def test_pods_in_deletion_do_not_count_for_spread():
    nodes = [worker(f"n{zone}", labels={"zone": zone}) for zone in "ab"]
    leaving = pod("gone", labels={"app": "x"})
    leaving["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    there = [("na", leaving), ("nb", pod("other", labels={"app": "x"}))]
    assert points("PodTopologySpread", nodes, spreading("zone"), there=there) == [100, 0]
    # An empty selector counts nobody.
    assert points("PodTopologySpread", nodes, spreading("zone", selector={}), there=there) == [
        100, 100
    ]  # fmt: skip


def test_spread_is_judged_among_the_nodes_that_fit_and_have_the_label():
    nodes = [worker(f"n{zone}", labels={"zone": zone}) for zone in "abc"] + [worker("bare")]
    there = [("na", pod(f"a{n}", labels={"app": "x"})) for n in range(2)]
    there += [("nb", pod("b", labels={"app": "x"}))]
    # log(3 + 2) a pod: 3 and 2 rounded, so (3 + 0 - n) * 100 / 3.
    found = points("PodTopologySpread", nodes, spreading("zone"), there=there)
    assert found == [0, 33, 100, 0]
    among = [True, True, False, False]
    # log(2 + 2): 3 and 1; the least crowded one has (3 + 1 - 1) / 3.
    assert points("PodTopologySpread", nodes, spreading("zone"), there=there, among=among) == [
        33, 100, 0, 0
    ]  # fmt: skip


def test_the_best_alternative_counts_beside_what_others_offer():
    assert scores.devices_points([8, 7, 0]) == [200, 174, 0]
    assert scores.devices_points([0, 0]) == [0, 0]


@pytest.mark.parametrize("preferred", ["n0", "n1"])
def test_nodes_without_devices_do_not_count_where_points_are_relative(preferred):
    """A node that has no devices left would push the wish of the pod out of the scale."""
    nodes = [
        worker(name, labels={"zone": "ab"[index]}, cpu="4")
        for index, name in enumerate(("n0", "n1"))
    ]
    none = worker("n2", labels={"zone": "c"}, cpu="64")
    wish = {"n0": "a", "n1": "b"}[preferred]
    wanted = preferring((1, wish), (100, "c"))
    wanted["spec"]["containers"][0]["resources"] = {"requests": {"cpu": "1"}}
    busy = pod("busy", requests={"cpu": "500m"}, nodeName=preferred)
    wanted["spec"]["resourceClaims"] = [{"name": "d", "resourceClaimName": "c"}]
    gpu = device_class("gpu")
    asked = claim("c", request("r", count=2), match="gpu.example.com/numa")
    slices = [
        item
        for name in ("n0", "n1", "n2")
        for item in pool(
            name, device("d0", numa=0), device("d1", numa=int(name == "n2")), node=name
        )
    ]
    model = ClusterModel([*nodes, none, gpu, asked, *slices, busy, wanted])
    found = model.try_pod(model.waiting[0])
    assert isinstance(found, PodPlacement)
    assert found.node == preferred
