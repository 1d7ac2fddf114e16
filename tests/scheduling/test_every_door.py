"""Every door says the same of a waiting pod: the node, the devices, the reason."""

from collections.abc import Iterable
from pathlib import Path

import pytest

import doors
from clusters import random_cluster
from stockverdicts import as_stored

# The live scheduler binds such a pod once the volume controller has bound its volume; a server
# gives an administrator's access only in namespaces with a label.
LEFT_OUT = frozenset({"volume-local", "admin"})
# What is not true, by door and aspect: nothing. The test fails where a pair in it does not differ.
NOT_YET: set[tuple[str, str]] = set()


def found(place: Path, seeds: Iterable[int]) -> dict[tuple[str, str], list[str]]:
    """The pairs of door and aspect that differ, with the pods of which they do."""
    differing: dict[tuple[str, str], list[str]] = {}
    with doors.serving(place):
        for seed in seeds:
            cluster = random_cluster(seed, without=LEFT_OUT)
            for pod in cluster.waiting():
                name = pod["metadata"]["name"]
                objects = [as_stored(item) for item in cluster.alone(name)]
                for pair, what in doors.differences(place, objects, name).items():
                    differing.setdefault(pair, []).append(f"cluster {seed}, {name}: {what}")
    return differing


def judge(differing: dict[tuple[str, str], list[str]]) -> None:
    new = {pair: cases[:3] for pair, cases in differing.items() if pair not in NOT_YET}
    assert not new, f"doors that disagree: {new}"
    assert not (gone := NOT_YET - differing.keys()), f"true by now, take it out: {gone}"


SOME = (0, 1, 5, 23, 31, 125)


@pytest.mark.thorough
def test_doors_agree_on_some_clusters(tmp_path):
    # Of each pair that is not true yet there is a case.
    judge(found(tmp_path, SOME))


@pytest.mark.conformance
def test_doors_agree_on_many_clusters(tmp_path):
    judge(found(tmp_path, range(800)))
