"""Each help that is said to be enough is carried out on the objects: then the pod fits."""

from collections import Counter
from collections.abc import Iterable
from pathlib import Path

import pytest

import remedies
from builders import DRIVER, claim, device, device_class, pod, pool, request, taint, worker
from clusters import random_cluster
from dralab.cli.objects import manifests
from dralab.explanation.answers import answers
from dralab.scheduling.model import ClusterModel
from dralab.scheduling.snapshot import Snapshot
from dralab.web.capacity_answers import replaced
from dralab.web.remedies import tried
from ourverdicts import is_tried
from stockverdicts import as_stored

# Of a gang several pods have to be helped.
LEFT_OUT = frozenset({"group"})


def applied(seeds: Iterable[int]) -> tuple[Counter[str], list[str]]:
    """Carry out the helps of all waiting pods: how many of each kind, and which did not help."""
    counted: Counter[str] = Counter()
    failing: list[str] = []
    for seed in seeds:
        cluster = random_cluster(seed, without=LEFT_OUT)
        for each in cluster.waiting():
            name = each["metadata"]["name"]
            objects = [as_stored(item) for item in cluster.alone(name)]
            told = remedies.explained(objects, name) if is_tried(each) else None
            if told is None or told["fits"]:
                continue
            counted["pods"] += 1
            for help_ in told["helps"]:
                if not help_["fitsNow"]:
                    counted["later"] += 1
                    continue
                for what, model in remedies.after(objects, help_):
                    counted[help_["kind"]] += 1
                    if not remedies.fits(model, name):
                        failing.append(f"cluster {seed}, {name}, {told['code']}: {what}")
    return counted, failing


@pytest.mark.thorough
def test_helps_of_some_clusters_help():
    counted, failing = applied((*range(0, 50, 2), 138, 144))
    assert not failing, failing
    assert {"wait", "node", "add"} <= counted.keys()


def test_claims_that_tolerate_the_same_taint_each_get_their_list():
    claims = [claim(name, request("r"), namespace="default") for name in ("c1", "c2")]
    marked = [device(name, taints=[taint("faulty")]) for name in ("d1", "d2")]
    nodes = [worker("n1"), *pool("n1", *marked, node="n1")]
    waiting = pod("p", claims={"a": "c1", "b": "c2"})
    classes = [device_class("gpu", f'device.driver == "{DRIVER}"')]
    objects = [as_stored(item) for item in (*classes, *nodes, *claims, waiting)]
    told = remedies.explained(objects, "p")
    [several] = [each for each in told["helps"] if each["kind"] == "several"]
    assert [each["patch"][0]["path"].endswith("/tolerations") for each in several["parts"]] == [
        True,
        True,
    ]
    assert [remedies.fits(model, "p") for _, model in remedies.after(objects, several)] == [True]


@pytest.mark.conformance
def test_helps_of_many_clusters_help():
    counted, failing = applied(range(2400))
    assert not failing, failing
    assert counted["pods"] > 2000
    assert {"wait", "node", "value", "count", "drop", "move", "preempt", "spelling", "tolerate",
            "add", "several"} <= counted.keys()  # fmt: skip


def test_changes_that_are_enough_together_are_tried_together_on_the_page():
    scene = Path(__file__).parents[1] / "cli" / "scenes" / "count-and-cordoned.yaml"
    objects = [item.object for item in manifests([str(scene)]).objects]
    cluster = Snapshot(objects)
    pending = cluster.pending()
    (told,) = answers(cluster, pending, pending)
    (help_,) = told["helps"]
    assert [part["kind"] for part in help_["parts"]] == ["node", "count"]
    found = tried(help_, cluster)
    model = ClusterModel(replaced(objects, found.objects))
    assert not remedies.fits(ClusterModel(objects), "train")
    for change in found.changes:
        change.apply(model)
    assert remedies.fits(model, "train")


def test_a_help_that_is_not_enough_says_what_is_lacking():
    scene = Path(__file__).parents[1] / "cli" / "scenes" / "no-class-and-taint.yaml"
    objects = [item.object for item in manifests([str(scene)]).objects]
    cluster = Snapshot(objects)
    pending = cluster.pending()
    (told,) = answers(cluster, pending, pending)
    (help_,) = told["helps"]
    assert (help_["kind"], help_["fitsNow"]) == ("spelling", False)
    assert help_["lacking"] == [{"reason": "node(s) had untolerated taint {team: ml}", "nodes": 1}]
