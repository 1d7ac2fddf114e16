"""What a policy answers is checked in every engine, and what it is given cannot be changed."""

import itertools
import math
import sys

import numpy as np
import pytest
import yaml

import dralab
from dralab.simulation.engines.batch.messages import SchedulerReply

NODES = [{"name": "n", "count": 2, "cpu": 8, "gpus": 2, "model": "A"}]
# The third finds no room.
TASKS = [{"name": name, "gpus": 2, "cpu": 1, "duration": "1h"} for name in ("a", "b", "c")]
PODS = {"name": "s", "fleet": {"nodes": NODES}, "workload": {"pods": TASKS}}
ALONE = [{"name": name, "machines": 2, "duration": "1h"} for name in ("a", "b", "c")]
JOBS = {"name": "j", "fleet": {"hosts": 4}, "workload": {"jobs": ALONE}}
ENGINES = ["fast", "ticks", "cluster", "batch", "rounds"]
ARGUMENTS = {"prefer": 2, "place": 2}
NOT_NUMBERS = [math.nan, "5", b"5", 10**400, [1], (1, math.nan), ("5",), None, 1j, int]
NOT_WHOLE = [1.5, "2", True, int, np.array([1, 2]), 10**12, 0, -1]
NOT_NODES = [5, True, math.nan, [5], [[]], [{}], "nobody", ["nobody"], {"nobody": 1}, int]
CASES = [
    *((engine, "order", answer) for engine in ENGINES for answer in NOT_NUMBERS),
    *(
        (engine, "prefer", answer)
        for engine in ENGINES
        for answer in NOT_NUMBERS
        if answer is not None
    ),
    *((engine, "place", answer) for engine in ENGINES for answer in NOT_NODES),
    *((engine, "preempt", answer) for engine in ("fast", "ticks") for answer in NOT_NODES),
    *((engine, "resize", answer) for engine in ("batch", "rounds") for answer in NOT_WHOLE),
]


def policy(method, answer):
    """Return a policy of one method; what raises or is a generator is made by a call."""
    answered = answer if callable(answer) and not isinstance(answer, type) else lambda *_: answer
    if ARGUMENTS.get(method) == 2:
        return type("Mine", (dralab.Policy,), {method: lambda self, task, node: answered(node)})
    return type("Mine", (dralab.Policy,), {method: lambda self, task: answered(self)})


def refused(engine, method, answer):
    with pytest.raises(dralab.InputError) as caught:
        dralab.simulate(
            JOBS if engine == "batch" else PODS, scheduler=policy(method, answer), engine=engine
        )
    assert caught.value.where == f"Mine.{method}"
    assert (caught.value.file, caught.value.line is None) == (__file__, False)
    return str(caught.value)


@pytest.mark.parametrize(("engine", "method", "answer"), CASES)
def test_a_wrong_answer_says_what_would_be_right(engine, method, answer):
    assert f"Mine.{method}: must return " in refused(engine, method, answer)


def broken(*_):
    yield "n-0"
    raise ValueError("in the middle")


@pytest.mark.parametrize(
    ("engine", "method"),
    [("fast", "place"), ("batch", "place"), ("rounds", "place"), ("fast", "preempt")],
)
def test_answers_that_break_or_never_end_are_mistakes_of_the_policy(engine, method):
    problem = refused(engine, method, broken)
    # Who is unknown may be noticed before the break.
    assert "ValueError: in the middle" in problem
    assert "each once" in refused(engine, method, lambda _: itertools.repeat("n-0"))


@pytest.mark.parametrize("engine", ENGINES)
def test_a_policy_does_not_end_the_program(engine):
    assert "Mine.order: SystemExit: 0" in refused(engine, "order", lambda _: sys.exit(0))


def test_numbers_of_numpy_are_numbers():
    for method, answer in [("order", np.int64(1)), ("prefer", np.float32(1))]:
        run = dralab.simulate(PODS, scheduler=policy(method, answer))
        assert run.summary["ended"] == 3
    assert dralab.simulate(JOBS, scheduler=policy("resize", np.int64(2))).summary["ended"] == 3


REPLIES = [
    (5, "a SchedulerReply, or None, and returned 5"),
    ([], "a SchedulerReply, or None, and returned []"),
    (SchedulerReply(None), "with a list of decisions, and returned None"),
    (SchedulerReply([1]), "with a list of decisions, and returned 1"),
    (SchedulerReply(busy_until="x"), "with busy_until in nanoseconds, and returned 'x'"),
]


@pytest.mark.parametrize(("reply", "problem"), REPLIES)
def test_a_wrong_reply_of_batsims_protocol_says_what_would_be_right(reply, problem):
    assert problem in refused("batch", "decide", lambda _: reply)


def test_a_method_that_would_never_be_asked_is_refused():
    def nothing(self, *_):
        return None

    for methods, problem in [
        ({"place": nothing, "prefer": nothing}, "Mine.prefer would never be asked, since place"),
        ({"order": 5, "prefer": nothing}, "Mine.order must be a method, and is 5"),
    ]:
        with pytest.raises(dralab.InputError, match=problem):
            dralab.simulate(PODS, scheduler=type("Mine", (dralab.Policy,), methods))
    both = type("Mine", (dralab.Policy,), {"decide": nothing, "order": nothing})
    with pytest.raises(dralab.InputError, match=r"Mine\.order would never be asked, since decide"):
        dralab.simulate(JOBS, scheduler=both)


CHANGES = {
    "a field": lambda self, task, nodes: setattr(task, "gpus", 0),
    "an own field": lambda self, task, nodes: setattr(task, "mine", 0),
    "a label": lambda self, task, nodes: task.labels.update(a="b"),
    "an amount": lambda self, task, nodes: task.requests.update(cpu=0),
    "a node": lambda self, task, nodes: setattr(nodes[0], "cpu", 0),
    "a label of a node": lambda self, task, nodes: nodes[0].labels.update(a="b"),
    "the nodes": lambda self, task, nodes: nodes.pop(),
    "the queue": lambda self, task, nodes: self.state.waiting.clear(),
    "the state": lambda self, task, nodes: setattr(self.state, "mine", 0),
    "speeds": lambda self, task, nodes: task.speeds.update(A=9),
}


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("what", CHANGES)
def test_what_a_policy_is_given_cannot_be_changed(engine, what):
    mine = type("Mine", (dralab.Policy,), {"place": CHANGES[what]})
    with pytest.raises(dralab.InputError, match=r"Mine\.place: (FrozenInstance|Attribute)Error"):
        dralab.simulate(JOBS if engine == "batch" else PODS, scheduler=mine, engine=engine)


def test_the_object_of_a_task_cannot_be_changed(tmp_path, monkeypatch):
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "p", "labels": {"a": "b"}},
        "spec": {"containers": [{"name": "c", "image": "i"}]},
    }
    seen = []

    class Mine(dralab.Policy):
        def place(self, task, nodes):
            seen.append(task.body)
            task.body["spec"]["containers"].clear()
            return nodes[0]

    monkeypatch.chdir(tmp_path)
    (tmp_path / "pods.yaml").write_text(yaml.safe_dump(pod))
    scenario = {**PODS, "workload": {"manifests": "pods.yaml"}}
    with pytest.raises(dralab.InputError, match="'tuple' object has no attribute 'clear'"):
        dralab.simulate(scenario, scheduler=Mine)
    assert seen[0]["metadata"]["labels"] == {"a": "b"}
