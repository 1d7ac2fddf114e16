"""Every door says the same of a waiting pod: the node, the devices, the reason."""

from collections.abc import Iterable
from pathlib import Path

import pytest

import doors
from builders import device, device_class, obj, pod, pool, worker
from clusters import random_cluster
from dralab.scheduling.model import ClusterModel
from dralab.scheduling.reasons import QUOTA_EXCEEDED, Reason
from dralab.scheduling.state import PodPlacement, Refusal
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
            for each in cluster.waiting():
                name = each["metadata"]["name"]
                objects = [as_stored(item) for item in cluster.alone(name)]
                for pair, what in doors.differences(place, objects, name).items():
                    differing.setdefault(pair, []).append(f"cluster {seed}, {name}: {what}")
    return differing


def judge(differing: dict[tuple[str, str], list[str]]) -> None:
    new = {pair: cases[:3] for pair, cases in differing.items() if pair not in NOT_YET}
    assert not new, f"doors that disagree: {new}"
    assert not (gone := NOT_YET - differing.keys()), f"true by now, take it out: {gone}"


def quota_for_claims(limit):
    """Nodes whose GPUs are an extended resource, and a quota on the claims of the namespace."""
    hard = {"hard": {"count/resourceclaims.resource.k8s.io": limit}}
    quota = obj("ResourceQuota", "few", namespace="default", api="v1", spec=hard)
    quota["status"] = hard | {"used": {"count/resourceclaims.resource.k8s.io": "0"}}
    gpus = device_class("gpu", extendedResourceName="example.com/gpu")
    return [worker("n1"), gpus, *pool("n1", device("a"), device("b"), node="n1"), quota]


def asking(name):
    return as_stored(pod(name, requests={"example.com/gpu": "1"}))


@pytest.mark.thorough
def test_doors_agree_on_a_quota_that_forbids_the_claim_for_extended_resources(tmp_path):
    objects = [*quota_for_claims("0"), asking("train")]
    assert doors.model(tmp_path, objects, "train").fits is False
    assert doors.explain(tmp_path, objects, "train").code == "DRA061"
    with doors.serving(tmp_path):
        assert not doors.differences(tmp_path, objects, "train")


def test_claims_for_extended_resources_count_towards_a_quota_as_they_are_made():
    model = ClusterModel([*quota_for_claims("1"), asking("one"), asking("two")])
    decided = model.run(model.waiting)
    fits = {uid: isinstance(each, PodPlacement) for uid, each in decided.items()}
    assert sorted(fits.values()) == [False, True]
    (refused,) = [each for each in decided.values() if isinstance(each, Refusal)]
    name = "count/resourceclaims.resource.k8s.io"
    assert refused.blocked == Reason(QUOTA_EXCEEDED, ("few", name, "1", "1", "1"))
    assert model.find_place(model.info(refused.pod.obj)) is None


SOME = (0, 1, 5, 23, 31, 125)


@pytest.mark.thorough
def test_doors_agree_on_some_clusters(tmp_path):
    # Of each pair that is not true yet there is a case.
    judge(found(tmp_path, SOME))


@pytest.mark.conformance
def test_doors_agree_on_many_clusters(tmp_path):
    judge(found(tmp_path, range(800)))
