"""The event, what-if and the page tell one number, however large the fleet is."""

import re

import pytest

from crowded import flat, gpu_node, holder, waiter
from dralab.capacity.page_words import PageWords
from dralab.explanation.answers import ReasonWriter
from dralab.explanation.diagnose import diagnose
from dralab.explanation.why import why
from dralab.scheduling.model import ClusterModel
from dralab.scheduling.snapshot import Snapshot


def large_fleet():
    """More nodes than one would like to look at; only the last has six GPUs."""
    nodes = [gpu_node(f"small-{number:03d}", 2) for number in range(510)]
    return flat(*nodes, gpu_node("zz-big", 6), waiter("train", 8))


def mixed_fleet():
    """Nodes of two to seven GPUs; of some of them one is held."""
    groups = []
    for number in range(40):
        groups.append(gpu_node(f"n{number:02d}", 2 + number % 6))
        if number % 6 != 5 or number > 5:
            groups.append(holder(f"p{number}", f"n{number:02d}", number % 2))
    return flat(*groups, waiter("train", 8))


def told(objects):
    """What the event, what-if and the page say of the pod that waits."""
    model = ClusterModel(objects)
    (pod,) = model.waiting
    refusal = model.try_pod(pod)
    cluster = Snapshot(objects)
    pending = next(each for each in cluster.pending() if each.name == "train")
    return {
        "event": ReasonWriter(lambda: 0)(refusal, model.state),
        "what-if": PageWords(model)(refusal).text,
        "page": why(cluster, cluster.refreshed(pending)).page(),
    }


@pytest.mark.parametrize(
    ("fleet", "count"), [(large_fleet, 6), (mixed_fleet, 7)], ids=["large", "mixed"]
)
def test_all_tell_the_same_number(fleet, count):
    for name, text in told(fleet()).items():
        assert re.findall(r"ask for (\d+) devices", text) == [str(count)], (name, text)


@pytest.mark.thorough
def test_with_few_questions_a_smaller_number_is_not_told_for_the_largest():
    groups = []
    for number in range(60):
        groups.append(gpu_node(f"n{number:02d}", 3 + number % 5))
        groups += [holder(f"p{number}-{at}", f"n{number:02d}", at) for at in range(number % 3)]
    cluster = Snapshot(flat(*groups, waiter("train", 8)))
    pending = next(each for each in cluster.pending() if each.name == "train")
    nodes = cluster.candidates(pending)
    told = set()
    for questions in range(60, 120):
        found = diagnose(cluster.problem(pending), nodes, questions=questions)
        told |= {each.number for each in found.helps if each.kind == "count"}
    assert told == {7}
