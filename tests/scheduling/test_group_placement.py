"""Groups of pods and groups of groups: which places they get, and what a refusal says.

The rules are those of kube-scheduler 1.37 (workload-aware scheduling, KEP-5732).
"""

import pytest

from builders import pod, worker
from dralab.scheduling.model import ClusterModel
from dralab.scheduling.state import Refusal

RACK = "example.com/rack"
ZONE = "example.com/zone"


def nodes(**cpus):
    """Nodes named RACK_N; the first letter of a rack is its zone."""
    return [
        worker(name, cpu=cpu, labels={RACK: name.split("_")[0], ZONE: name[0]})
        for name, cpu in cpus.items()
    ]


def group(name, least=None, key="", parent="", kind="PodGroup", **spec):
    counted = "minCount" if kind == "PodGroup" else "minGroupCount"
    spec["schedulingPolicy"] = {"basic": {}} if least is None else {"gang": {counted: least}}
    if key:
        spec["schedulingConstraints"] = {"topology": [{"key": key}]}
    if parent:
        spec["parentCompositePodGroupName"] = parent
    return {"kind": kind, "metadata": {"name": name, "namespace": "default"}, "spec": spec}


def composite(name, least=None, **more):
    return group(name, least, kind="CompositePodGroup", **more)


def pods(gang, count, cpu="1", **more):
    requests = {"requests": {"cpu": cpu}}
    return [
        pod(f"{gang}{i}", schedulingGroup={"podGroupName": gang}, **requests, **more)
        for i in range(count)
    ]


def run(*objects):
    """Return the node of each pod, and what the others are told."""
    flat = [each for some in objects for each in (some if isinstance(some, list) else [some])]
    model = ClusterModel([{"kind": _kind(each), **each} for each in flat])
    decided = model.run(model.waiting)
    names = {each.uid: each.key.name for each in model.waiting}
    placed = {names[uid]: found for uid, found in decided.items()}
    return (
        {name: found.node for name, found in placed.items() if not isinstance(found, Refusal)},
        {name: found.message for name, found in placed.items() if isinstance(found, Refusal)},
    )


def _kind(obj):
    return "Pod" if "containers" in obj.get("spec", {}) else "Node"


def racks(placed):
    return {node.split("_")[0] for node in placed.values()}


def test_a_group_goes_into_one_rack():
    placed, refused = run(
        nodes(a1_0="2", a1_1="2", a2_0="4", a2_1="2"), group("g", 5, RACK), pods("g", 5)
    )
    assert (racks(placed), len(placed), refused) == ({"a2"}, 5, {})


def test_a_gang_starts_with_those_that_fit_where_the_first_ones_do_not_all():
    small, large = pods("g", 5), pods("g", 5, cpu="2")
    members = [small[0], large[1], small[2], small[3], large[4]]
    placed, _ = run(nodes(a_0="2", a_1="1"), group("g", 3), members)
    assert sorted(placed) == ["g0", "g2", "g3"]


def test_a_gang_in_a_rack_starts_with_a_small_pod_where_the_first_one_is_too_large():
    members = [pods("g", 1, cpu="2")[0], pods("g", 2)[1]]
    placed, _ = run(nodes(a_0="1"), group("g", 1, RACK), members)
    assert sorted(placed) == ["g1"]


def test_a_group_of_a_composite_waits_for_its_pods_while_others_start():
    groups = [composite("all", 1), group("g", 2, parent="all"), group("h", 3, parent="all")]
    placed, refused = run(nodes(a_0="8"), *groups, pods("g", 2), pods("h", 2))
    assert (sorted(placed), sorted(refused)) == (["g0", "g1"], ["h0", "h1"])


def test_a_group_that_fits_into_no_rack_is_told_of_the_roomiest():
    _, refused = run(nodes(a1_0="2", a2_0="3"), group("g", 4, RACK), pods("g", 4))
    assert set(refused.values()) == {
        "0/2 nodes are available: group g needs 4 pods in one example.com/rack; a2 has room for 3."
    }


def test_the_rack_with_most_pods_wins_and_then_the_fullest():
    # Three of four have to fit: a3 takes all of them.
    placed, _ = run(nodes(a1_0="3", a2_0="3", a3_0="4"), group("g", 3, RACK), pods("g", 4))
    assert racks(placed) == {"a3"}
    placed, _ = run(nodes(a1_0="8", a2_0="4"), group("g", 3, RACK), pods("g", 3))
    assert racks(placed) == {"a2"}


def test_later_pods_join_those_that_run():
    running = [
        pod("old", nodeName="a1_0", schedulingGroup={"podGroupName": "g"}, requests={"cpu": "1"})
    ]
    placed, refused = run(nodes(a1_0="3", a2_0="9"), group("g", 2, RACK), running, pods("g", 3))
    assert placed == {"g0": "a1_0", "g1": "a1_0"}
    assert refused["g2"] == (
        "0/2 nodes are available: group g starts without it: there is no more room where its "
        "pods may be."
    )


def test_pods_in_two_racks_keep_the_others_waiting():
    running = [
        pod(f"old{i}", nodeName=f"a{i}_0", schedulingGroup={"podGroupName": "g"}) for i in (1, 2)
    ]
    _, refused = run(nodes(a1_0="3", a2_0="9"), group("g", 3, RACK), running, pods("g", 1))
    assert "its pods run in several: a1, a2" in refused["g0"]


def test_nodes_without_the_label_do_not_count():
    _, refused = run(worker("n", cpu="9"), group("g", 1, RACK), pods("g", 1))
    assert "no usable node has label example.com/rack" in refused["g0"]


def test_a_group_without_gang_takes_one_rack_with_what_fits():
    placed, refused = run(nodes(a1_0="2", a2_0="3"), group("g", None, RACK), pods("g", 4))
    assert (racks(placed), len(placed), len(refused)) == ({"a2"}, 3, 1)


@pytest.mark.parametrize(
    ("least", "expected"),
    [(2, set()), (1, {"a"})],
)
def test_a_composite_needs_so_many_of_its_groups(least, expected):
    placed, refused = run(
        nodes(a1_0="3"),
        composite("c", least),
        group("a", 2, parent="c"),
        group("b", 2, parent="c"),
        pods("a", 2),
        pods("b", 2),
    )
    assert {name[0] for name in placed} == expected
    if not expected:
        assert refused["a0"] == (
            "0/1 nodes are available: 2 of the 2 groups of composite pod group c have to fit at "
            "once and 1 do, b not."
        )


def test_each_group_has_its_rack_and_all_have_one_zone():
    placed, refused = run(
        nodes(a1_0="2", a2_0="1", b1_0="2", b2_0="2", b3_0="1"),
        composite("c", 2, key=ZONE),
        group("x", 2, RACK, parent="c"),
        group("y", 2, RACK, parent="c"),
        pods("x", 2),
        pods("y", 2),
    )
    assert refused == {}
    assert {node[0] for node in placed.values()} == {"b"}
    assert placed["x0"] == placed["x1"] != placed["y0"] == placed["y1"]


def test_a_composite_waits_until_enough_of_its_groups_have_their_pods():
    _, refused = run(
        nodes(a1_0="9"),
        composite("c", 2),
        group("a", 2, parent="c"),
        group("b", 2, parent="c"),
        pods("a", 2),
        pods("b", 1),
    )
    assert "waiting for the pods of 2 groups of composite pod group c: those of 1" in refused["a0"]


def test_groups_of_groups_of_groups():
    placed, _ = run(
        nodes(a1_0="4"),
        composite("top", 2),
        composite("left", 1, parent="top"),
        composite("right", 1, parent="top"),
        group("l", 2, parent="left"),
        group("r", 2, parent="right"),
        pods("l", 2),
        pods("r", 2),
    )
    assert len(placed) == 4


def test_a_tree_of_more_than_four_levels_is_refused():
    names = "edcba"
    chain = [composite(n, 1, parent=p) for n, p in zip(names[1:], names, strict=False)]
    _, refused = run(
        nodes(a1_0="4"), composite("e", 1), chain, group("g", 1, parent="a"), pods("g", 1)
    )
    assert "more than 4 levels of groups" in refused["g0"]


def test_a_parent_that_does_not_exist_is_named():
    _, refused = run(nodes(a1_0="4"), group("g", 1, parent="c"), pods("g", 1))
    assert 'compositepodgroup.scheduling.k8s.io "c" not found' in refused["g0"]


def test_the_priority_of_a_group_is_that_of_its_pods():
    _, refused = run(nodes(a1_0="4"), group("g", 1, priority=5), pods("g", 1, priority=7))
    assert "same priority as the pod group's priority, got 7 and 5" in refused["g0"]


def test_no_choice_is_left_to_the_first_rack():
    # Alone a1 has room for both; the second pod needs a node of 3.
    placed, _ = run(
        nodes(a1_0="2", a1_1="2", a2_0="3", a2_1="1"),
        group("g", 2, RACK),
        pods("g", 1),
        [pod("h", schedulingGroup={"podGroupName": "g"}, requests={"cpu": "3"})],
    )
    assert placed == {"g0": "a2_1", "h": "a2_0"}


def test_the_pods_of_a_job_are_a_group_as_the_job_asks():
    template = {"spec": {"containers": pods("x", 1)[0]["spec"]["containers"]}}
    job = {
        "kind": "Job",
        "metadata": {"name": "j", "namespace": "default"},
        "spec": {
            "parallelism": 3,
            "template": template,
            "scheduling": {
                "schedulingPolicy": {"gang": {}},
                "schedulingConstraints": {"topology": [{"key": RACK}]},
            },
        },
    }
    placed, refused = run(nodes(a1_0="2", a2_0="3"), job)
    assert (placed, refused) == (dict.fromkeys(("j-0", "j-1", "j-2"), "a2_0"), {})
    _, refused = run(nodes(a1_0="2", a2_0="2"), job)
    assert "group j needs 3 pods in one example.com/rack; a2 has room for 2" in refused["j-0"]
