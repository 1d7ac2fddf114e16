"""Moves for one pod and for many: who is left alone, what is said, and how it is carried out."""

import json
import subprocess
from copy import deepcopy

import pytest
import yaml
from click.testing import CliRunner

from builders import obj, worker
from crowded import flat, gpu_node, holder, waiter
from dralab.capacity.defragment import defragment
from dralab.capacity.departures import Departures
from dralab.capacity.move_costs import MoveCosts
from dralab.capacity.moves import clear_for
from dralab.capacity.steps import commands, steps
from dralab.cli.main import main
from dralab.scheduling.model import ClusterModel

# Four GPUs a node. `train` wants a whole node; two nodes could be cleared by one move.
CROWDED = flat(
    gpu_node("a"),
    gpu_node("b"),
    gpu_node("c"),
    holder("one", "a", 0, 1, labels={"app": "one"}),
    holder("two", "b", 0, labels={"app": "two"}, priority=5),
    holder("three", "c", 0, 1, priority=9),
    waiter("train", 4),
)


def budget(app, **status):
    spec = {"selector": {"matchLabels": {"app": app}}, "minAvailable": 1}
    made = obj("PodDisruptionBudget", app, namespace="default", api="policy/v1", spec=spec)
    return made | ({"status": status} if status else {})


def cleared(objects, by="moves", **options):
    model = ClusterModel(objects)
    (waiting,) = model.waiting
    found = clear_for(Departures(model, MoveCosts(model, by)), waiting, **options)
    return found, [(move.pod.key.name, move.placement.node) for move in found.moves]


def test_the_least_important_pod_moves_where_several_would_do():
    found, moves = cleared(CROWDED)
    assert [name for name, _ in moves] == ["one"]
    assert found.is_proved


@pytest.mark.parametrize("status", [{"disruptionsAllowed": 0}, {}])
def test_a_pod_whose_budget_allows_no_disruption_stays(status):
    _, moves = cleared([*CROWDED, budget("one", **status)])
    assert [name for name, _ in moves] == ["two"]


def test_a_budget_that_allows_a_disruption_does():
    _, moves = cleared([*CROWDED, budget("one", disruptionsAllowed=1)])
    assert [name for name, _ in moves] == ["one"]


def test_a_pod_of_a_daemon_set_stays():
    agent, claim = holder("agent", "a", 2)
    owner = {"kind": "DaemonSet", "name": "agents", "uid": "d", "controller": True}
    agent["metadata"]["ownerReferences"] = [owner]
    _, moves = cleared([*CROWDED, agent, claim])
    assert [name for name, _ in moves] == ["two"]


def test_two_unimportant_pods_may_cost_less_than_an_important_one():
    objects = flat(
        gpu_node("a"),
        gpu_node("b"),
        holder("one", "a", 0),
        holder("two", "a", 1),
        holder("grand", "b", 0, priority=1000),
        *(holder(f"filler-{n}", "b", n, priority=100 * n) for n in ()),
        waiter("train", 4),
    )
    others = flat(gpu_node("c", 2), holder("medium", "c", 0, priority=10))[1:]
    _, by_moves = cleared([*objects, *others])
    found, by_cost = cleared([*objects, *others], by="cost")
    assert [name for name, _ in by_moves] == ["grand"]
    assert sorted(name for name, _ in by_cost) == ["one", "two"]
    assert found.is_proved


def test_others_make_way_where_a_pod_finds_no_room():
    objects = flat(
        gpu_node("a", 4),
        gpu_node("b", 2),
        gpu_node("c", 1),
        holder("one", "a", 0, 1),
        holder("two", "b", 0),
        waiter("train", 4),
    )
    found, moves = cleared(objects)
    assert moves == [("two", "c"), ("one", "b")]
    assert found.moves[0].makes_room_for.name == "one"
    assert found.is_proved


def test_a_pod_that_no_node_could_ever_hold_needs_no_search():
    objects = [*CROWDED[:-2], *waiter("train", 5)]
    found, _ = cleared(objects)
    assert found.impossible
    assert found.is_proved


def test_no_more_pods_move_than_may():
    objects = flat(
        gpu_node("a"), gpu_node("b"), holder("one", "a", 0), holder("two", "a", 1),
        holder("three", "b", 0), holder("four", "b", 1), waiter("train", 4),
    )  # fmt: skip
    found, _ = cleared(objects, most=1)
    assert found.placement is None
    assert found.bound == 2
    assert len(cleared(objects, most=2)[1]) == 2


def test_room_of_another_kind_is_made_too():
    objects = flat(
        gpu_node("a", cpu="4"),
        [worker("b", cpu="2")],
        holder("one", "a", 0),
        waiter("train", 1),
    )
    one, train = objects[4], objects[6]
    del one["spec"]["resourceClaims"]
    one["spec"]["containers"][0]["resources"] = {"requests": {"cpu": "2"}}
    train["spec"]["containers"][0]["resources"] = {"requests": {"cpu": "3"}}
    assert cleared(objects)[1] == [("one", "b")]


# --- many pods

MANY = [*CROWDED, *waiter("second", 4), *waiter("small", 1, priority=1)]


def test_pods_take_turns_in_the_order_of_the_scheduler_and_the_bound_is_told():
    pytest.importorskip("ortools")
    model = ClusterModel(MANY)
    found = defragment(model, model.waiting, MoveCosts(model))
    assert [each.pod.key.name for each in found.fitting] == ["small"]
    assert [each.pod.key.name for each in found.clearings] == ["train"]
    assert [each.pod.key.name for each in found.unserved] == ["second"]
    assert found.at_best == 2  # 7 of 12 GPUs are wanted for one: 6 are in use after `small`
    assert ClusterModel(MANY).running.keys() == model.running.keys()


def script(objects):
    """Return the steps of a script of commands, without its functions."""
    model = ClusterModel(objects)
    found = defragment(model, model.waiting, MoveCosts(model))
    lines = list(commands(steps(model, found)))
    checked = subprocess.run(["sh", "-n"], input="\n".join(lines), text=True, check=False)
    assert checked.returncode == 0
    first = next(line for line in lines if line.startswith("# 1. "))
    return lines[lines.index(first) :]


def test_a_plan_is_carried_out_by_commands_that_steer_the_scheduler():
    assert script(CROWDED) == [
        "# 1. default/one moves from a to b, to make room for default/train",
        "cordon a",
        "# Nothing makes this pod again: it is written to a file and created from it.",
        "again default one a b",
        "",
        "uncordon a",
        "starts default train a",
    ]


def test_a_pod_that_a_controller_makes_again_is_waited_for_by_it():
    one = deepcopy(CROWDED)
    owner = {"kind": "ReplicaSet", "name": "ones", "uid": "o", "controller": True}
    next(p for p in one if p["metadata"]["name"] == "one")["metadata"]["ownerReferences"] = [owner]
    assert "move default one a b ReplicaSet/ones" in script(one)


# --- the command


@pytest.fixture
def run(tmp_path):
    def run_(*arguments, objects=CROWDED):
        file = tmp_path / "cluster.yaml"
        file.write_text(yaml.safe_dump_all(objects))
        return CliRunner().invoke(main, ["plan", "moves", "-f", str(file), *arguments])

    return run_


def test_the_page_shows_the_steps_and_the_proof(run):
    found = run("--for", "train", "--explain")
    assert found.exit_code == 0, found.output
    assert "default/train fits on a after 1 move: no plan has fewer (proved)" in found.stdout
    assert "holds gpu-0, gpu-1 on a, where default/train needs room" in found.stdout


def test_programs_read_json(run):
    answer = json.loads(run("--all-pending", "-o", "json").stdout)
    assert answer["clearings"][0]["moves"][0]["from"] == "a"
    assert answer["clearings"][0]["proved"]


def test_a_pod_that_stays_waiting_makes_the_answer_no(run):
    found = run("--for", "pod/default/train", "--max-moves", "0")
    assert found.exit_code == 1
    assert "still waiting:\n  default/train: no moves were found" in found.stdout


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ([], "either --for POD or --all-pending"),
        (["--for", "tain"], "no pod 'tain' waits; those that do: default/train"),
        (["--for", "default/one"], "does not wait: it runs on a"),
        (["--for", "train", "--apply"], "name it with --kubeconfig or --server, without files"),
        (["--for", "train", "--force"], "say what --apply may do"),
    ],
)
def test_a_bad_option_says_what_would_be_right(run, arguments, told):
    found = run(*arguments)
    assert found.exit_code == 2
    assert told in found.output
