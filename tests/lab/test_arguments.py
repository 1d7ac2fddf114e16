"""Arguments of a wrong type are refused with their name and value, and nothing is done."""

import math

import pytest

import dralab

SCENARIO = {
    "name": "s",
    "fleet": {"nodes": [{"name": "n", "count": 2, "cpu": 8}]},
    "workload": {"pods": [{"name": "p", "cpu": 1, "duration": "1m"}]},
}
ODD = [0, math.nan, 10**12, b"x", object, [1], {1: 1}]
LAB = [
    ("remove", lambda lab, odd: lab.what_if(remove=odd)),
    ("cordon", lambda lab, odd: lab.what_if(cordon=odd)),
    ("uncordon", lambda lab, odd: lab.what_if(uncordon=odd)),
    ("shapes", lambda lab, odd: lab.plan(odd)),
    ("pod", lambda lab, odd: lab.defragment(odd)),
    ("policy", lambda lab, odd: lab.allocate(policy=odd)),
    ("node", lambda lab, odd: lab.allocate(node=odd)),
    ("node", lambda lab, odd: lab.explain("p", node=odd)),
    ("name", lambda lab, odd: lab.explain(odd)),
]
GRIDS = [
    ("scenarios", lambda odd, folder: dralab.campaign(odd, "fgd", folder=folder)),
    ("schedulers", lambda odd, folder: dralab.campaign(SCENARIO, odd, folder=folder)),
    ("folder", lambda odd, _: dralab.campaign(SCENARIO, "fgd", folder=odd)),
]


@pytest.fixture(scope="module")
def lab():
    return dralab.open({"h100": 1})


@pytest.fixture(scope="module")
def run():
    return dralab.simulate(SCENARIO)


@pytest.mark.parametrize("odd", ODD)
@pytest.mark.parametrize(("name", "ask"), LAB)
def test_a_question_names_the_argument(lab, name, ask, odd):
    with pytest.raises(TypeError, match=f"^{name}: "):
        ask(lab, odd)


@pytest.mark.parametrize("odd", [0, math.nan, 10**12, b"x", [1]])
@pytest.mark.parametrize(("name", "begin"), GRIDS)
def test_a_campaign_names_the_argument(name, begin, odd, tmp_path):
    with pytest.raises(TypeError, match=f"^{name}: "):
        begin(odd, tmp_path)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("odd", [0, [], {}, b"x", 1.5])
def test_a_simulation_names_the_argument(odd, run):
    for name in ("engine", "version", "feature_gates"):
        with pytest.raises(TypeError, match=f"^{name}: "):
            dralab.simulate(SCENARIO, **{name: odd})
    with pytest.raises(TypeError, match=r"^progress: "):
        dralab.simulate(SCENARIO, progress=odd)
    with pytest.raises(TypeError, match=r"^folder: "):
        run.report(odd)
    with pytest.raises(TypeError, match=r"^name: "):
        run.meaning(odd)


def test_an_unknown_number_lists_those_that_there_are(run):
    with pytest.raises(KeyError, match=r"'wait_men' is not a number of a run; known: .*wait"):
        run.meaning("wait_men")


def test_an_empty_folder_is_not_the_current_one(run, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ValueError, match=r"folder: the path is empty; '\.' is the current"):
        run.report("")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("odd", [math.nan, math.inf, "x", True, [1]])
def test_moves_are_a_whole_number(lab, odd):
    with pytest.raises(TypeError, match=r"^max_moves: "):
        lab.defragment(max_moves=odd)
    with pytest.raises(ValueError, match=r"^max_moves: -1 is less than 0"):
        lab.defragment(max_moves=-1)


def test_unknown_names_are_refused_though_nothing_waits(lab):
    with pytest.raises(dralab.UnknownObject, match="no node 'n9'"):
        lab.allocate(node="n9")
    with pytest.raises(dralab.UnknownObject, match="'h1000'"):
        lab.plan("h1000")
    for nothing in ([], {}):
        with pytest.raises(dralab.BadInput, match="patch: holds no object"):
            lab.what_if(patch=nothing)


def test_a_pod_without_a_name_is_an_error_of_the_scenario():
    scenario = {**SCENARIO, "workload": {"pods": [{"name": "", "cpu": 1, "duration": "1m"}]}}
    with pytest.raises(dralab.InputError, match="name or generateName is required"):
        dralab.simulate(scenario)


def test_a_full_disk_is_told_with_the_folder(run, tmp_path):
    (tmp_path / "tasks.csv").symlink_to("/dev/full")
    with pytest.raises(OSError, match="No space left on device") as caught:
        run.report(tmp_path)
    assert caught.value.filename == str(tmp_path)


def test_a_full_disk_is_told_with_the_folder_of_a_campaign(tmp_path):
    grid = dralab.campaign(SCENARIO, "fgd", seeds=[1], workers=1)
    (tmp_path / "runs.csv").symlink_to("/dev/full")
    with pytest.raises(OSError, match="No space left on device") as caught:
        grid.report(tmp_path)
    assert caught.value.filename == str(tmp_path)
