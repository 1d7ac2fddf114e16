"""Each help that is said to be enough is carried out on the objects: then the pod fits."""

from collections import Counter
from collections.abc import Iterable

import pytest

import remedies
from builders import DRIVER, claim, device, device_class, pod, pool, request, taint, worker
from clusters import random_cluster
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
