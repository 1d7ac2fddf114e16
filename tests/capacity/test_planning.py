"""Nodes to add, as few or cheap as can be, and nodes that can go."""

import json
import random

import pytest
import yaml
from click.testing import CliRunner

from builders import obj
from crowded import flat, gpu_node, holder, waiter
from dralab.capacity.changes import AddNodes
from dralab.capacity.move_costs import MoveCosts
from dralab.capacity.planning import plan, removable
from dralab.cli.main import main
from dralab.scheduling.model import ClusterModel
from dralab.scheduling.state import PodPlacement


def full(*, sizes):
    """A full node of each size, so that waiting pods need new ones."""
    return [
        group
        for size in sizes
        for group in (gpu_node(f"n{size}", size), holder(f"h{size}", f"n{size}", *range(size)))
    ]


def test_the_cheaper_shape_is_taken_where_both_would_do():
    model = ClusterModel(flat(*full(sizes=(2, 4)), waiter("a", 2), waiter("b", 2)))
    assert plan(model, {"n2": 1, "n4": 3}).nodes == {"n2": 2}
    assert plan(model, {"n2": 1, "n4": 1.5}).nodes == {"n4": 1}


def test_a_mix_of_shapes_is_found_and_proved():
    pytest.importorskip("ortools")
    model = ClusterModel(
        flat(*full(sizes=(2, 4)), waiter("a", 4), *(waiter(f"s{n}", 1) for n in range(2)))
    )
    found = plan(model, {"n2": 1, "n4": 3})
    assert found.nodes == {"n2": 1, "n4": 1}
    assert (found.price, found.least) == (4, 4)


def test_pods_that_fit_need_no_nodes_and_some_no_shape_helps():
    model = ClusterModel(flat(gpu_node("x", 2), *full(sizes=(4,)), waiter("a", 1), waiter("b", 8)))
    found = plan(model, {"n4": 1})
    assert [pod.key.name for pod in found.fitting] == ["a"]
    [(pod, why)] = found.unserved.values()
    assert pod.key.name == "b"
    assert "fits on no node of these shapes" in why


def test_a_budget_ends_a_plan():
    model = ClusterModel(flat(*full(sizes=(4,)), *(waiter(f"w{n}", 4) for n in range(3))))
    found = plan(model, {"n4": 2}, budget=5)
    assert (found.nodes, len(found.served), len(found.unserved)) == ({"n4": 2}, 2, 1)


@pytest.mark.parametrize("seed", range(6))
def test_no_plan_is_cheaper_than_the_bound_and_every_plan_works(seed):
    pytest.importorskip("ortools")
    chance = random.Random(seed)
    pods = [waiter(f"w{n}", chance.choice((1, 2, 3, 4))) for n in range(4)]
    objects = flat(*full(sizes=(2, 4)), *pods)
    prices = {"n2": chance.choice((1, 2)), "n4": chance.choice((2, 3))}
    found = plan(ClusterModel(objects), prices)
    cheapest = min(
        two * prices["n2"] + four * prices["n4"]
        for two in range(5)
        for four in range(5)
        if all_run(objects, {"n2": two, "n4": four})
    )
    assert all_run(objects, found.nodes)
    assert found.least <= cheapest <= found.price


def all_run(objects, nodes):
    model = ClusterModel(objects)
    for name, count in nodes.items():
        if count:
            AddNodes(name, count).apply(model)
    return all(isinstance(each, PodPlacement) for each in model.run(model.waiting).values())


def test_nodes_can_go_while_their_pods_find_other_places():
    objects = flat(gpu_node("a"), gpu_node("b"), gpu_node("c"), holder("one", "a", 0))
    model = ClusterModel(objects)
    found = removable(model, MoveCosts(model).refused)
    assert [name for name, _ in found.nodes] == ["b", "c"]
    assert found.stay == {"a": "default/one would find no other place"}


def test_a_node_stays_whose_pod_may_not_move():
    budget = obj("PodDisruptionBudget", "b", namespace="default", api="policy/v1")
    budget |= {"spec": {"selector": {}}, "status": {"disruptionsAllowed": 0}}
    model = ClusterModel([*flat(gpu_node("a"), gpu_node("b"), holder("one", "a", 0)), budget])
    found = removable(model, MoveCosts(model).refused)
    assert "allows no disruption" in found.stay["a"]


@pytest.fixture
def run(tmp_path):
    def run_(*arguments):
        file = tmp_path / "cluster.yaml"
        objects = flat(*full(sizes=(4,)), waiter("w", 4))
        file.write_text(yaml.safe_dump_all(objects))
        (tmp_path / "prices.yaml").write_text("n4: 2.5\nbad: cheap\n")
        (tmp_path / "good.yaml").write_text("n4: 2.5\n")
        texts = [text.replace("DIR", str(tmp_path)) for text in arguments]
        return CliRunner().invoke(main, ["plan", "nodes", "-f", str(file), *texts])

    return run_


def test_the_page_and_json_tell_the_plan(run):
    found = run("--shapes", "n4", "--price", "DIR/good.yaml")
    assert found.exit_code == 0, found.output
    assert "1 x n4, 2.5 each" in found.stdout
    answer = json.loads(run("--shapes", "n4", "-o", "json").stdout)
    assert answer["nodes"] == {"n4": 1}
    assert run("--removable").exit_code == 1


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ([], "give the --shapes"),
        (["--shapes", "h10"], "no shape or node 'h10'; did you mean 'h100'?"),
        (["--removable", "--shapes", "n4"], "--removable needs no"),
        (["--shapes", "n4", "--price", "DIR/prices.yaml"], "'cheap' is not a price"),
        (["--shapes", "n4,tpu", "--price", "DIR/good.yaml"], "there is no price for tpu"),
    ],
)
def test_a_bad_option_says_what_would_be_right(run, arguments, told):
    found = run(*arguments)
    assert found.exit_code == 2
    assert told in found.output
