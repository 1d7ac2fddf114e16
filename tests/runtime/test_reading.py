"""What is read from a cluster: the kinds that decide about devices, whatever versions it serves."""

import pytest

from builders import device, device_class, pool
from dralab.api.resource.conversion import convert
from dralab.api.status import ApiError
from dralab.runtime.client import ObjectList
from dralab.runtime.reading import COLLECTIONS, ReadingError, read_cluster


class Server:
    """Lists, and nothing else: whoever asks for another verb fails."""

    def __init__(self, **lists):
        self.lists = {"v1/nodes": [], "v1/pods": []} | lists
        self.asked = []

    def list(self, resource, namespace=""):
        path = f"{resource.group}/{resource.version}/{resource.plural}".lstrip("/")
        self.asked.append(path)
        found = self.lists.get(path)
        if found is None:
            raise ApiError("NotFound", "the server could not find the requested resource")
        if isinstance(found, ApiError):
            raise found
        return ObjectList(found, "7")


def as_listed(*objects):
    return [{k: v for k, v in item.items() if k not in {"kind", "apiVersion"}} for item in objects]


def serving(version, **more):
    group = f"resource.k8s.io/{version}"
    kinds = ("resourceslices", "deviceclasses", "resourceclaims", "resourceclaimtemplates")
    return Server(**{f"{group}/{kind}": [] for kind in kinds} | more)


@pytest.mark.parametrize("version", ["v1", "v1beta2", "v1beta1"])
def test_objects_come_in_the_version_of_today_whichever_the_cluster_serves(version):
    (given,) = pool("gpus", device("d0", model="a"))
    older = convert(given, version)
    server = serving(version)
    server.lists[f"resource.k8s.io/{version}/resourceslices"] = as_listed(older)
    server.lists[f"resource.k8s.io/{version}/deviceclasses"] = as_listed(device_class("gpu"))
    read = list(read_cluster(server))
    assert read == [given, device_class("gpu")]


def test_every_kind_is_read_and_claims_last():
    server = serving("v1")
    list(read_cluster(server))
    assert {path.rpartition("/")[2] for path in server.asked} == {
        each.resource.plural for each in COLLECTIONS
    }
    assert server.asked[-1] == "resource.k8s.io/v1/resourceclaims"


def test_a_cluster_without_the_device_api_is_told_as_such():
    with pytest.raises(ReadingError, match=r"resourceslices: .*none of resource.k8s.io v1, v1beta"):
        list(read_cluster(Server()))


def test_a_list_that_is_forbidden_ends_the_reading_even_if_a_cluster_may_lack_it():
    refused = ApiError("Forbidden", 'podgroups is forbidden: User "jane" cannot list')
    server = serving("v1", **{"scheduling.k8s.io/v1alpha2/podgroups": refused})
    with pytest.raises(
        ReadingError, match='cannot list podgroups: podgroups is forbidden: User "j'
    ):
        list(read_cluster(server))


@pytest.mark.parametrize("item", [{}, [], "text", {"metadata": {}}, {"metadata": None}])
def test_an_answer_of_something_else_is_not_taken_for_objects(item):
    server = serving("v1")
    server.lists["v1/pods"] = [item]
    with pytest.raises(ReadingError, match="cannot list pods: the answer is not a list of objects"):
        list(read_cluster(server))


def test_what_may_not_be_listed_of_volumes_is_not_judged_and_said_once():
    refused = ApiError("Forbidden", "nothing to see")
    server = serving(
        "v1",
        **{
            "storage.k8s.io/v1/storageclasses": refused,
            "v1/namespaces": refused,
        },
    )
    told = []
    list(read_cluster(server, not_judged=told.append))
    assert told == ["volumes", "namespace selectors"]
    assert not any("persistentvolume" in path for path in server.asked)


def test_quotas_are_read_and_without_the_right_to_them_they_are_not_judged():
    quota = {"metadata": {"name": "q", "namespace": "a"}, "spec": {"hard": {"pods": "1"}}}
    server = serving("v1")
    server.lists["v1/resourcequotas"] = [quota]
    assert "ResourceQuota" in {item["kind"] for item in read_cluster(server)}
    server.lists["v1/resourcequotas"] = ApiError("Forbidden", "nothing to see")
    told = []
    assert "ResourceQuota" not in {
        item["kind"] for item in read_cluster(server, not_judged=told.append)
    }
    assert told == ["quotas"]
