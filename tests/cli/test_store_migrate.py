"""A store that one release of Kubernetes wrote and another one opens."""

import json
import urllib.request
from contextlib import ExitStack

import pytest
from click.testing import CliRunner

from dralab.api.status import ApiError
from dralab.apiserver.storage.etcd.address import EtcdAddress
from dralab.cli.main import main
from dralab.cluster import Cluster, Options
from dralab.runtime.client import Resource

OLD_GROUPS = Resource("scheduling.k8s.io", "v1alpha2", "podgroups")
GROUPS = Resource("scheduling.k8s.io", "v1beta1", "podgroups")
CLAIMS = Resource("resource.k8s.io", "v1beta1", "resourceclaims")
GROUP = {"metadata": {"name": "g"}, "spec": {"schedulingPolicy": {"gang": {"minCount": 2}}}}
REQUEST = {"name": "r", "deviceClassName": "gpu", "capacity": {"requests": {"memory": "1Gi"}}}
CLAIM = {"metadata": {"name": "c"}, "spec": {"devices": {"requests": [REQUEST]}}}


def opened(place, version):
    if isinstance(place, EtcdAddress):
        return Cluster(Options(store=place, version=version))
    return Cluster(Options(data=place, version=version, durability="relaxed"))


def served(cluster, path):
    """Return an object as HTTP clients get it: components in the process reach any version."""
    with urllib.request.urlopen(cluster.url + path) as response:
        return json.load(response)


@pytest.fixture
def stack():
    with ExitStack() as found:
        yield found


@pytest.fixture(params=["files", "etcd"])
def store(request, tmp_path, stack):
    place = tmp_path / "lab"
    if request.param == "etcd":
        pytest.importorskip("grpc")
        from fakeetcd import FakeEtcd

        place = EtcdAddress.read(stack.enter_context(FakeEtcd()).url)
    with opened(place, "1.36") as cluster:
        cluster.client.create(OLD_GROUPS, GROUP, "default")
        cluster.client.create(CLAIMS, CLAIM, "default")
    return place


def migrate(place, version, *more):
    where = ["--data", str(place)]
    if isinstance(place, EtcdAddress):
        where = ["--store", f"etcd://{','.join(place.endpoints)}?prefix={place.prefix}"]
    words = ["store", "migrate", *where, "--kubernetes-version", version, *more]
    result = CliRunner().invoke(main, words)
    assert result.exit_code == 0
    return result.stdout.splitlines()


def test_a_newer_release_reads_objects_in_its_own_versions(store):
    with opened(store, "1.37") as cluster:
        path = "/apis/scheduling.k8s.io/v1beta1/namespaces/default/podgroups"
        found = served(cluster, f"{path}/g")
        assert (found["apiVersion"], found["spec"]["schedulingPolicy"]) == (
            "scheduling.k8s.io/v1beta1",
            GROUP["spec"]["schedulingPolicy"],
        )
        (item,) = served(cluster, path)["items"]
        assert item["spec"] == found["spec"]
        with pytest.raises(ApiError):
            cluster.client.get(Resource("scheduling.k8s.io", "v1", "podgroups"), "g", "default")


def test_an_older_release_reads_objects_without_what_it_does_not_have(store):
    path = "/apis/resource.k8s.io/v1beta1/namespaces/default/resourceclaims/c"
    for version, has in (("1.33", False), ("1.36", True)):
        with opened(store, version) as cluster:
            (request,) = served(cluster, path)["spec"]["devices"]["requests"]
            assert ("capacity" in request) is has


def test_migrate_says_what_it_would_do_and_does_it_when_told(store):
    becomes = (
        "1 x scheduling.k8s.io/podgroups: scheduling.k8s.io/v1alpha2 becomes "
        "scheduling.k8s.io/v1beta1"
    )
    assert migrate(store, "1.37") == [becomes]
    assert migrate(store, "1.33") == [
        "1 x resource.k8s.io/resourceclaims: resource.k8s.io/v1, without "
        "spec.devices.requests[0].exactly.capacity",
        "1 x scheduling.k8s.io/podgroups: scheduling.k8s.io/v1alpha2 is not served, and stays",
    ]
    assert migrate(store, "1.37", "--apply") == [becomes]
    assert migrate(store, "1.37") == []
    with opened(store, "1.37") as cluster:
        assert not cluster.server.resources.context.rules.outdated
        assert cluster.client.get(GROUPS, "g", "default")["spec"] == GROUP["spec"]
