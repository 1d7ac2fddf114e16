"""Policies of one's own: the same class in every engine that can heed it, refused elsewhere."""

import linecache

import pytest
import yaml

import dralab

FLEET = {"nodes": [{"name": "n", "count": 2, "cpu": 8, "gpus": 2, "model": "A"}]}
ENGINES = ["fast", "ticks", "cluster"]


def pods(*given):
    return {
        "name": "s",
        "fleet": FLEET,
        "workload": {"pods": [{"cpu": 1, **each} for each in given]},
    }


BUSY = pods(
    {"name": "first-0", "gpus": 2, "duration": "1h"},
    {"name": "first-1", "gpus": 2, "duration": "9h"},
    {"name": "long", "gpus": 2, "duration": "3h", "at": "1m", "user": "ann"},
    {"name": "short", "gpus": 2, "duration": "10m", "at": "2m", "user": "bob"},
)
JOBS = {
    "name": "j",
    "fleet": {"hosts": 4},
    "workload": {
        "jobs": [
            {"name": "first", "machines": 4, "duration": "1h"},
            {"name": "long", "machines": 4, "duration": "3h", "at": "1m"},
            {"name": "short", "machines": 4, "duration": "10m", "at": "2m"},
        ]
    },
}


def starts(run):
    return dict(zip(run.tasks["id"], run.tasks["started"], strict=True))


class ShortestFirst(dralab.Policy):
    def order(self, task):
        return task.estimate


class Last(dralab.Policy):
    """The last node or machine by name."""

    def place(self, task, nodes):
        chosen = sorted(nodes, key=lambda node: node.name)[-max(task.machines, 1) :]
        return chosen if task.machines else chosen[0]


class LikesLast(dralab.Policy):
    def prefer(self, task, node):
        return int(node.name.removeprefix("n-").removeprefix("host"))


@pytest.mark.parametrize("engine", ENGINES)
def test_pods_go_in_the_order_of_a_policy(engine):
    usual = starts(dralab.simulate(BUSY, scheduler=LikesLast, engine=engine))
    assert usual["long"] < usual["short"]
    ours = starts(dralab.simulate(BUSY, scheduler=ShortestFirst, engine=engine))
    assert ours["short"] < ours["long"]


def test_jobs_go_in_the_order_of_a_policy():
    ours = starts(dralab.simulate(JOBS, scheduler=ShortestFirst))
    assert (ours["short"], ours["long"]) == (3600, 4200)


@pytest.mark.parametrize("policy", [Last, LikesLast])
@pytest.mark.parametrize("engine", ENGINES)
def test_a_pod_goes_where_a_policy_wants_it(engine, policy):
    scenario = pods({"name": "p", "gpus": 1, "duration": "10m"})
    run = dralab.simulate(scenario, scheduler=policy, engine=engine)
    assert run.tasks["places"] == ["n-1 n-1/gpu-0"] or run.tasks["places"][0].startswith("n-1")


@pytest.mark.parametrize("policy", [Last, LikesLast])
def test_a_job_goes_where_a_policy_wants_it(policy):
    jobs = [{"name": "j", "machines": 2, "duration": "1m"}]
    run = dralab.simulate({**JOBS, "workload": {"jobs": jobs}}, scheduler=policy)
    (task,) = run.result.tasks
    assert task.lanes == (2, 3)


class Urgent(dralab.Policy):
    """A user's pods end those of others, the one that started last."""

    def preempt(self, task):
        others = [each for each in self.state.running if each.user != "boss"]
        return others[-1:] if task.user == "boss" else ()


@pytest.mark.parametrize("engine", ["fast", "ticks"])
def test_a_policy_says_whom_a_pod_preempts(engine):
    scenario = pods(
        {"name": "one", "gpus": 2, "duration": "1h", "user": "ann"},
        {"name": "two", "gpus": 2, "duration": "1h", "at": "1m", "user": "bob"},
        {"name": "boss", "gpus": 1, "duration": "1m", "at": "10m", "user": "boss"},
    )
    run = dralab.simulate(scenario, scheduler=Urgent, engine=engine)
    rows = {row["id"]: row for row in run.tasks}
    assert rows["boss"]["started"] < 700
    assert (rows["one"]["evictions"], rows["two"]["evictions"]) == (0, 1)


def test_victims_that_make_no_room_are_refused():
    class InVain(dralab.Policy):
        def preempt(self, task):
            return self.state.running[:1]

    scenario = pods(
        {"name": "small", "gpus": 1, "duration": "1h"},
        {"name": "half", "gpus": 1, "duration": "1h"},
        {"name": "more", "gpus": 2, "duration": "1h"},
        {"name": "wide", "gpus": 2, "duration": "1h"},
    )
    with pytest.raises(dralab.InputError, match=r"InVain.preempt: must return tasks of one node "):
        dralab.simulate(scenario, scheduler=InVain)


def test_pods_that_preempt_each_other_without_end_are_an_error():
    class Quarrel(dralab.Policy):
        def preempt(self, task):
            return self.state.running[:1]

    scenario = pods(*({"name": name, "gpus": 2, "duration": "1h"} for name in "abc"))
    with pytest.raises(dralab.InputError, match="at 0s tasks preempt each other without end"):
        dralab.simulate(scenario, scheduler=Quarrel)


SERVED = set()


class LeastServed(dralab.Policy):
    """Who has run for ten minutes goes behind those that have not, and gives way to them."""

    def order(self, task):
        SERVED.add(round(task.served))
        return task.served >= 600

    def preempt(self, task):
        if task.served >= 600:
            return ()
        served = [each for each in self.state.running if each.served >= 600]
        return served[-1:]


def test_a_policy_sees_what_a_task_has_done_over_its_runs():
    scenario = {
        **pods(
            {"name": "long", "gpus": 4, "duration": "1h"},
            {"name": "late", "gpus": 4, "duration": "2m", "at": "20m"},
        ),
        "fleet": {"nodes": [{"name": "n", "count": 1, "gpus": 4, "cpu": 64, "memory": "64Gi"}]},
        "lifecycle": {"checkpoint": "1s"},
    }
    run = dralab.simulate(scenario, scheduler=LeastServed, engine="fast")
    rows = {row["id"]: row for row in run.tasks}
    # The long one has run for 20 minutes; it continues where it was, and does not preempt in turn.
    assert (rows["late"]["started"], rows["long"]["evictions"]) == (pytest.approx(1200, abs=2), 1)
    assert rows["long"]["ended"] == pytest.approx(3600 + 120, abs=5)
    assert sorted(SERVED) == [0, 1200]


class Elastic(dralab.Policy):
    """All machines are shared out evenly."""

    def resize(self, task):
        tasks = len(self.state.waiting) + len(self.state.running)
        return max(1, 4 // tasks)


def test_a_policy_resizes_jobs_and_their_work_stays():
    jobs = [
        {"name": "a", "machines": 4, "duration": "1h"},
        {"name": "b", "machines": 2, "duration": "2h", "at": "30m"},
    ]
    run = dralab.simulate({**JOBS, "workload": {"jobs": jobs}}, scheduler=Elastic)
    rows = {row["id"]: row for row in run.tasks}
    # At 30 minutes `a` has two machine hours left, which take two machines an hour. At 90 minutes
    # `b` has as many left, which take four machines half an hour.
    assert rows["b"]["started"] == 1800
    assert rows["a"]["ended"] == 5400
    assert rows["b"]["ended"] == 7200
    assert "changes of the number of machines" in " ".join(run.notes)


def test_a_job_starts_with_the_machines_that_a_policy_gives_it():
    class Half(dralab.Policy):
        def resize(self, task):
            return 2

    jobs = [{"name": "a", "machines": 4, "duration": "1h"}]
    run = dralab.simulate({**JOBS, "workload": {"jobs": jobs}}, scheduler=Half)
    assert run.tasks["ended"] == [7200]


def test_what_an_engine_cannot_heed_is_refused():
    for engine, policy in [("fast", Elastic), ("cluster", Urgent), ("batch", Urgent)]:
        scenario = JOBS if engine == "batch" else BUSY
        with pytest.raises(dralab.InputError, match=f"is not heeded by the engine {engine}"):
            dralab.simulate(scenario, scheduler=policy, engine=engine)
    with pytest.raises(dralab.InputError, match="engine: 'slow' is not one of fast, ticks"):
        dralab.simulate(BUSY, scheduler=Last, engine="slow")
    with pytest.raises(dralab.InputError, match="engine: is for classes of yours; fgd has its own"):
        dralab.simulate(BUSY, scheduler="fgd", engine="fast")


@pytest.mark.parametrize("engine", [*ENGINES, "batch"])
def test_a_policy_sees_the_task_whole_and_what_there_is(engine):
    seen = []

    class Looks(dralab.Policy):
        def order(self, task):
            state = self.state
            seen.append(
                (task.name, task.arrives, task.duration, task.started, state.now >= task.arrives)
            )
            return 0

        def place(self, task, nodes):
            state = self.state
            seen.append([each.name for each in (*state.waiting, *state.running)])
            seen.append([(each.started is not None, list(each.nodes)) for each in state.running])
            assert {node.name for node in nodes} <= {node.name for node in state.nodes}
            assert 0 <= self.rng.random() < 1
            return nodes[: task.machines] if task.machines else nodes[0]

    jobs = {**JOBS, "workload": {"jobs": [{"name": "p", "duration": "10m", "at": "1m"}]}}
    scenario = jobs if engine == "batch" else pods({"name": "p", "duration": "10m", "at": "1m"})
    dralab.simulate(scenario, scheduler=Looks, engine=engine)
    assert ("p", 60, 600, None, True) in seen
    assert ["p"] in seen


MISTAKES = {
    "order": ("'a'", "must return a number or a tuple of numbers, and returned 'a'"),
    "prefer": ("'a'", "must return a number between"),
    "place": ("'a'", "must return one of the nodes it was given, or None, and returned 'a'"),
    "preempt": ("['a']", "must return tasks of self.state.running, and returned 'a'"),
}


@pytest.mark.parametrize("method", MISTAKES)
def test_a_wrong_answer_is_told_with_the_place_of_the_method(method, tmp_path):
    answer, problem = MISTAKES[method]
    given = {"order": "task", "preempt": "task", "place": "task, nodes", "prefer": "task, node"}
    lines = ["import dralab", "class Mine(dralab.Policy):"]
    lines += [f"    def {method}(self, {given[method]}):", f"        return {answer}"]
    (tmp_path / "mine.py").write_text("\n".join(lines))
    (tmp_path / "s.yaml").write_text(yaml.safe_dump({**BUSY, "scheduler": "mine.py:Mine"}))
    with pytest.raises(dralab.InputError) as caught:
        dralab.simulate(tmp_path / "s.yaml")
    assert caught.value.line == 3
    assert caught.value.file == str(tmp_path / "mine.py")
    assert problem in str(caught.value)


def test_a_mistake_is_told_with_its_line_however_deep_it_lies():
    class Deep(dralab.Policy):
        def __init__(self):
            self.weights = {}

        def prefer(self, task, node):
            return self.weigh(node)

        def weigh(self, node):
            return max(node.labels, key=lambda label: self.weights[label])

    with pytest.raises(dralab.InputError) as caught:
        dralab.simulate(BUSY, scheduler=Deep)
    assert linecache.getline(__file__, caught.value.line).strip().startswith("return max(")
    assert caught.value.__cause__ is None


def test_a_method_with_the_wrong_arguments_is_told_at_its_line():
    class Short(dralab.Policy):
        def prefer(self, task):
            return 0

    with pytest.raises(dralab.InputError, match="takes 2 positional arguments") as caught:
        dralab.simulate(BUSY, scheduler=Short)
    assert linecache.getline(__file__, caught.value.line).strip() == "def prefer(self, task):"


def test_a_scenario_file_names_the_engine_of_a_class(tmp_path):
    text = "class Mine:\n    def prefer(self, task, node):\n        return 0\n"
    (tmp_path / "mine.py").write_text(text)
    for engine, expected in [("cluster", None), ("batch", "schedules rigid jobs, not pods")]:
        decided = {"name": "mine.py:Mine", "engine": engine}
        (tmp_path / "s.yaml").write_text(yaml.safe_dump({**BUSY, "scheduler": decided}))
        if expected is None:
            assert dralab.simulate(tmp_path / "s.yaml").summary["ended"] == 4
        else:
            with pytest.raises(dralab.InputError, match=expected):
                dralab.simulate(tmp_path / "s.yaml")


def test_in_a_strict_order_the_first_of_a_policy_holds_up_the_others(tmp_path):
    """The wide task comes first by the policy, and the small one may not pass it."""

    (tmp_path / "mine.py").write_text(
        "class Mine:\n    def order(self, task):\n        return -task.gpus\n"
    )
    scenario = pods(
        {"name": "runs", "gpus": 1, "duration": "1h"},
        {"name": "runs-too", "gpus": 2, "duration": "1h"},
        {"name": "small", "gpus": 1, "duration": "1h", "at": "1m"},
        {"name": "wide", "gpus": 2, "duration": "1h", "at": "1m"},
    )
    decided = {"name": "mine.py:Mine", "strict_order": True}
    (tmp_path / "s.yaml").write_text(yaml.safe_dump({**scenario, "scheduler": decided}))
    found = starts(dralab.simulate(tmp_path / "s.yaml"))
    assert (found["wide"], found["small"]) == (3600, 3600)
    loose = {**scenario, "scheduler": {"name": "mine.py:Mine"}}
    (tmp_path / "s.yaml").write_text(yaml.safe_dump(loose))
    assert starts(dralab.simulate(tmp_path / "s.yaml"))["small"] == 60
