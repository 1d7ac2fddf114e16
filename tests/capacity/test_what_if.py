"""Who runs, who moves and who waits after a change, and that nothing else changes."""

import json

import pytest
import yaml
from click.testing import CliRunner

from builders import obj
from crowded import flat, gpu_node, holder, waiter
from dralab.capacity.changes import (
    AddNodes,
    Cordon,
    RemoveNode,
    Taint,
    UnknownName,
    UpgradeDriver,
    Without,
    patched,
)
from dralab.capacity.what_if import what_if
from dralab.cli.main import main
from dralab.objects.metadata import NamespacedName
from dralab.scheduling.model import ClusterModel

CROWDED = flat(
    gpu_node("a"),
    gpu_node("b"),
    holder("one", "a", 0),
    holder("two", "a", 1, 2),
    holder("three", "b", 0, 1, 2),
    waiter("big", 4),
)


def fates(objects, *changes):
    found = what_if(ClusterModel(objects), changes)
    return {each.pod.name: (each.fate, each.before, each.after) for each in found.outcomes}


def test_a_waiting_pod_starts_on_a_node_that_is_added():
    assert fates(CROWDED, AddNodes("a", 1)) == {"big": ("starts", "", "new-1-a")}


def test_a_shape_of_the_catalogue_can_be_added_and_serves_its_own_class():
    found = what_if(ClusterModel(CROWDED), [AddNodes("tpu", 2)])
    assert found.nodes == (2, 4)
    assert found.with_fate("still waits")[0].why  # its devices are another driver's


def test_the_nodes_that_come_go_and_fit_are_named():
    found = what_if(ClusterModel(CROWDED), [AddNodes("a", 3), RemoveNode("b")])
    assert (found.added, found.removed) == (["new-1-a", "new-2-a", "new-3-a"], ["b"])
    # Four devices are free nowhere before; after it on the new node that no other pod needs.
    for kinds, expected in ((found.before, []), (found.after, ["new-3-a"])):
        assert [each.nodes for each in kinds if each.kind.asks == "4 gpu"] == [expected]


def test_pods_of_a_removed_node_move_and_the_rest_is_told():
    assert fates(CROWDED, RemoveNode("a")) == {
        "big": ("still waits", "", ""),
        "one": ("moves", "a", "b"),
        "two": ("is displaced", "a", ""),
    }


def test_a_pod_of_a_daemon_set_ends_with_its_node():
    agent, wire = holder("agent", "b", 3)
    agent["metadata"]["ownerReferences"] = [
        {"kind": "DaemonSet", "name": "agents", "uid": "d", "controller": True}
    ]
    assert "agent" not in fates([*CROWDED, agent, wire], RemoveNode("b"))


def test_a_cordon_moves_nobody_and_takes_nobody():
    small = flat(gpu_node("a"), holder("one", "a", 0), waiter("next"))
    assert fates(small, Cordon("a")) == {"next": ("no longer starts", "a", "")}


@pytest.mark.parametrize(
    ("tolerations", "expected"),
    [
        ([], {"one": ("moves", "a", "b")}),
        ([{"key": "k", "operator": "Exists"}], {}),
        (
            [{"key": "k", "operator": "Exists", "tolerationSeconds": 60}],
            {"one": ("restarts", "a", "a")},
        ),
    ],
)
def test_a_taint_evicts_who_does_not_tolerate_it_for_ever(tolerations, expected):
    objects = flat(gpu_node("a"), gpu_node("b"), holder("one", "a", 0, tolerations=tolerations))
    taint = Taint("a", {"key": "k", "effect": "NoExecute"})
    assert fates(objects, taint) == expected


def test_a_pod_that_ends_leaves_its_devices():
    gone = Without("pod", NamespacedName("default", "three"))
    assert fates(CROWDED, gone) == {"big": ("starts", "", "b")}


def test_a_workload_ends_with_the_pods_of_its_replica_sets():
    pod, wire = holder("one-x-y", "a", 0)
    owner = {"kind": "ReplicaSet", "name": "one-x", "uid": "r", "controller": True}
    pod["metadata"]["ownerReferences"] = [owner]
    made = obj("ReplicaSet", "one-x", namespace="default", api="apps/v1", spec={})
    made["metadata"] |= {
        "uid": "r",
        "ownerReferences": [
            {"kind": "Deployment", "name": "one", "uid": "d", "controller": True},
        ],
    }
    objects = [*flat(gpu_node("a"), waiter("big", 4)), made, pod, wire]
    gone = Without("deployment", NamespacedName("default", "one"))
    assert fates(objects, gone) == {"big": ("starts", "", "a")}


def test_a_driver_is_upgraded_node_by_node():
    objects = flat(gpu_node("a"), gpu_node("b"), holder("one", "a", 0, 1), holder("two", "b", 0))
    found = what_if(ClusterModel(objects), [UpgradeDriver("gpu.example.com")])
    assert {each.pod.name: each.fate for each in found.outcomes} == {
        "one": "restarts",
        "two": "moves",
    }
    assert not any(each.interrupted for each in found.outcomes)


def test_pods_wait_where_all_nodes_are_upgraded_at_once():
    objects = flat(gpu_node("a"), gpu_node("b"), holder("one", "a", 0), holder("two", "b", 0))
    model = ClusterModel(objects)
    with model.tentatively():
        left = UpgradeDriver("gpu.example.com", at_once=2).apply(model)
        assert not left
        assert len(model.interrupted) == 2
    assert not model.interrupted


def test_a_patch_is_merged_and_new_objects_are_added():
    small, _ = waiter("big")
    patch = {"kind": "ResourceClaim", "metadata": {"name": "big-gpus"}, "spec": {"x": None}}
    merged = list(patched([{**patch, "spec": {"x": 1, "y": 2}}], [patch, small]))
    assert [item.get("spec") for item in merged] == [{"y": 2}, small["spec"]]


def test_the_model_is_left_as_it_was():
    model = ClusterModel(CROWDED)
    changes = [
        RemoveNode("a"),
        AddNodes("b", 2),
        Cordon("b"),
        Without("pod", NamespacedName("default", "three")),
        UpgradeDriver("gpu.example.com"),
    ]
    first = what_if(model, changes)
    assert what_if(model, changes) == first
    assert what_if(ClusterModel(CROWDED), changes).outcomes == first.outcomes


@pytest.mark.parametrize(
    "change",
    [
        RemoveNode("aa"),
        AddNodes("h10", 1),
        UpgradeDriver("gpu.example.co"),
        Without("pod", NamespacedName("default", "threes")),
    ],
)
def test_a_name_that_is_not_there_gets_a_suggestion(change):
    with pytest.raises(UnknownName, match="did you mean"):
        what_if(ClusterModel(CROWDED), [change])


def test_free_devices_are_stranded_where_the_pod_does_not_fit():
    found = what_if(ClusterModel(CROWDED), [AddNodes("a", 1)])
    big = next(each for each in found.before if each.kind.asks == "4 gpu")
    assert (big.free, big.stranded, big.nodes) == (2, 2, [])


# --- the command


@pytest.fixture
def run(tmp_path):
    file = tmp_path / "cluster.yaml"
    file.write_text(yaml.safe_dump_all(CROWDED))

    def run_(*arguments):
        return CliRunner().invoke(main, ["what-if", "-f", str(file), *arguments])

    return run_


def test_the_page_tells_who_waits_and_why(run):
    found = run("--remove", "a")
    assert found.exit_code == 1
    assert "one  a -> b" in " ".join(found.stdout.split(" ")).replace("default/", "")
    assert "running  3: 1 stay, 1 move or restart, 1 lose their place" in found.stdout
    assert "all 4 suitable devices are in use (DRA030)" in found.stdout


def test_programs_read_json(run):
    found = run("--add", "b=1", "-o", "json")
    assert found.exit_code == 0
    answer = json.loads(found.stdout)
    assert answer["pods"][0]["after"] == "new-1-b"
    assert answer["nodes"] == {"before": 2, "after": 3, "added": ["new-1-b"], "removed": []}


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ([], "nothing would change"),
        (["--add", "a=0"], "expected SHAPE=COUNT"),
        (["--taint", "a"], "expected NODE:KEY=VALUE:EFFECT"),
        (["--taint", "a:k=v:Never"], "the effect must be one of"),
        (["--end", "pods/x"], "expected KIND/NAME"),
        (["--remove", "c"], "no node 'c'"),
    ],
)
def test_a_bad_option_says_what_would_be_right(run, arguments, told):
    found = run(*arguments)
    assert found.exit_code == 2
    assert told in found.output
