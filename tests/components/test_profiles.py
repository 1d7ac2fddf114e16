"""Profiles: older generations served beside today's API, or in its place."""

import orjson
import pytest

from dralab.api.status import ApiError
from dralab.cluster import Cluster, Options
from dralab.components import profiles
from dralab.runtime.client import Resource
from dralab.runtime.kubeconfig import read
from dralab.runtime.remote import RemoteClient
from dralab.runtime.resources import (
    CLASSIC_CLAIMS,
    FAKE_PARAMETERS,
    NAMESPACES,
    RESOURCE_QUOTAS,
)

POOLS = Resource("devmgmtproto.k8s.io", "v1alpha1", "devicepools", namespaced=False)
CLASSES = Resource("devmgmtproto.k8s.io", "v1alpha1", "deviceclasses", namespaced=False)
CLAIMS = Resource("devmgmtproto.k8s.io", "v1alpha1", "deviceclaims")
TODAY = Resource("resource.k8s.io", "v1", "deviceclasses", namespaced=False)
EVOLUTION = Resource("resource.k8s.io", "v1alpha2", "deviceclasses", namespaced=False)
PODS = Resource("", "v1", "pods")


def pool(name="pool", **spec):
    return {
        "apiVersion": "devmgmtproto.k8s.io/v1alpha1",
        "kind": "DevicePool",
        "metadata": {"name": name},
        "spec": {"driver": "toys", "devices": [{"name": "d"}], **spec},
    }


@pytest.fixture(scope="module")
def client():
    with Cluster() as cluster:
        yield cluster.client


@pytest.mark.parametrize(
    ("names", "message"),
    [
        (["v1", "evolution"], "resource.k8s.io/v1alpha3"),
        (["evolution", "classic"], "resource.k8s.io/v1alpha2"),
        (["v2"], 'unknown profile "v2"; known: v1, k8srm, evolution, classic'),
    ],
)
def test_profiles_that_exclude_each_other_say_which_version_they_share(names, message):
    with pytest.raises(profiles.ProfileError, match=message):
        profiles.checked(names)


def test_k8srm_is_always_served(client):
    made = client.create(POOLS, pool())
    assert made["metadata"]["generation"] == 1
    assert client.get(POOLS, "pool")["spec"]["driver"] == "toys"


def test_an_invalid_document_is_refused_with_its_field(client):
    wrong = pool("wrong", devices=[{"name": "d", "attributes": [{"name": "a"}]}])
    with pytest.raises(
        ApiError, match=r"spec.devices\[0\].attributes\[0\].*exactly one of"
    ) as caught:
        client.create(POOLS, wrong)
    assert caught.value.code == 422


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ({"claims": [{"deviceClass": ["gpu"]}]}, r"spec.claims\[0\].deviceClass"),
        ({"claims": [{"deviceClass": "toy", "requests": ["count"]}]}, r"claims\[0\].requests"),
        ({"claims": [{"deviceClass": "toy", "matchAttributes": "model"}]}, "matchAttributes"),
        ({"claims": [{"oneOf": []}]}, r"spec.claims\[0\].oneOf: .*at least one is required"),
        ({"claims": [{"deviceClass": "toy", "configs": [{"name": "x"}]}]}, "configs.0..apiVersion"),
        ({"claims": [{"deviceClass": "toy", "count": 0}]}, r"spec.claims\[0\].count"),
        ({}, "spec.devices: .*is required"),
    ],
)
def test_a_claim_of_the_go_documentations_form_is_checked_by_the_server(client, spec, message):
    claim = {
        "apiVersion": "devmgmtproto.k8s.io/v1alpha1",
        "kind": "DeviceClaim",
        "metadata": {"name": "bad"},
    }
    with pytest.raises(ApiError, match=message) as caught:
        client.create(CLAIMS, claim | {"spec": spec}, "default")
    assert caught.value.code == 422


def test_a_quota_bounds_the_devices_of_a_class_and_claims_with_admin_access(client):
    client.create(NAMESPACES, {"metadata": {"name": "tenant"}})
    hard = {
        "gpu.deviceclass.devmgmtproto.k8s.io/devices": "2",
        "adminaccess.devmgmtproto.k8s.io/deviceclaims": "0",
    }
    quota = {"metadata": {"name": "devices"}, "spec": {"hard": hard}}
    made = client.create(RESOURCE_QUOTAS, quota, "tenant")
    # What the controller writes first.
    status = {"hard": hard, "used": dict.fromkeys(hard, "0")}
    client.update(RESOURCE_QUOTAS, {**made, "status": status}, subresource="status")

    def create(name, **detail):
        claim = {"apiVersion": "devmgmtproto.k8s.io/v1alpha1", "kind": "DeviceClaim"}
        spec = {"claims": [{"deviceClass": "gpu", **detail}]}
        client.create(CLAIMS, claim | {"metadata": {"name": name}, "spec": spec}, "tenant")

    create("two", requests={"count": 2})
    with pytest.raises(ApiError, match="exceeded quota: devices, requested: gpu"):
        create("more")
    with pytest.raises(ApiError, match="exceeded quota: devices, requested: adminaccess"):
        create("admin", deviceClass="other", adminAccess=True)
    with pytest.raises(ApiError, match="must be a quantity"):
        create("wrong", requests={"count": "x"})


def test_legacy_spellings_are_stored_as_they_are(client):
    old = {
        "apiVersion": "devmgmtproto.k8s.io/v1alpha1",
        "kind": "DeviceClass",
        "metadata": {"name": "Old"},
        "spec": {"driver": "toys"},
    }
    assert client.create(CLASSES, old)["spec"] == {"driver": "toys"}


def test_pods_keep_their_device_claims(client):
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "p", "namespace": "default"},
        "spec": {
            "containers": [{"name": "c", "image": "i", "devices": [{"name": "d"}]}],
            "deviceClaims": {"devices": [{"name": "d", "class": "Old"}]},
        },
    }
    spec = client.create(PODS, pod)["spec"]
    assert spec["deviceClaims"] == {"devices": [{"name": "d", "class": "Old"}]}
    assert spec["containers"][0]["devices"] == [{"name": "d"}]


def test_evolution_serves_its_own_meaning_of_the_group():
    with Cluster(Options(profiles=("evolution",))) as cluster:
        body = {
            "apiVersion": "resource.k8s.io/v1alpha2",
            "kind": "DeviceClass",
            "metadata": {"name": "c"},
            "requirements": [{"deviceSelector": "device.driverName == 'x'"}],
        }
        assert cluster.client.create(EVOLUTION, body)["requirements"]
        body["metadata"] = {"name": "bad"}
        body["requirements"] = [{"deviceSelector": "1 + 1"}]
        with pytest.raises(ApiError, match="must evaluate to bool"):
            cluster.client.create(EVOLUTION, body)
        with pytest.raises(ApiError, match="could not find"):
            cluster.client.list(TODAY)


def test_kinds_that_kubernetes_had_built_in_take_strategic_patches_and_custom_ones_do_not():
    with Cluster(Options(profiles=("v1", "classic"))) as cluster:
        client = RemoteClient(read(cluster.kubeconfig))
        claim = {
            "apiVersion": "resource.k8s.io/v1alpha2",
            "kind": "ResourceClaim",
            "metadata": {"name": "c"},
            "spec": {"resourceClassName": "x"},
        }
        client.create(CLASSIC_CLAIMS, claim, "default")
        for number in range(2):
            user = {"resource": "pods", "name": f"p{number}", "uid": f"u{number}"}
            patch = {"status": {"reservedFor": [user]}}
            client.patch(
                CLASSIC_CLAIMS, "c", patch, "default", type="strategic", subresource="status"
            )
        users = client.get(CLASSIC_CLAIMS, "c", "default")["status"]["reservedFor"]
        assert sorted(user["name"] for user in users) == ["p0", "p1"]
        wish = {
            "apiVersion": "fake.resource.3-shake.com/v1alpha1",
            "kind": "FakeClaimParameters",
            "metadata": {"name": "w"},
            "spec": {"count": 1},
        }
        client.create(FAKE_PARAMETERS, wish, "default")
        with pytest.raises(ApiError, match="unknown format"):
            client.patch(FAKE_PARAMETERS, "w", {"spec": {"count": 2}}, "default", type="strategic")
        client.close()


def test_openapi_describes_the_claims_of_pods_so_that_clients_can_patch_them(client):
    from dralab.apiserver.http import openapi

    with Cluster() as cluster:
        kinds = cluster.server.resources.kinds
        core = openapi.places(kinds)["api/v1"]
    for found in (
        openapi.version3("api/v1", core, "v1.36.2")["components"]["schemas"],
        openapi.version2(kinds, "v1.36.2")["definitions"],
    ):
        claims = found["io.k8s.api.core.v1.PodSpec"]["properties"]["deviceClaims"]
        assert set(claims["properties"]) == {"devices", "claimName", "template"}
        assert claims["x-kubernetes-patch-strategy"] == "replace"
        container = found["io.k8s.api.core.v1.Container"]["properties"]
        assert container["devices"]["items"]["properties"]["name"]["type"] == "string"


def test_a_pod_cannot_ask_for_devices_in_two_ways(client):
    both = {"claimName": "a", "devices": [{"name": "d", "class": "c"}]}
    pod = {"metadata": {"name": "both"}, "spec": {"containers": [{"name": "c", "image": "i"}]}}
    pod["spec"]["deviceClaims"] = both
    with pytest.raises(ApiError, match="one of devices, claimName and template is required"):
        client.create(PODS, pod, "default")
    pod["spec"]["deviceClaims"] = [{"name": "early", "claimName": "a"}]
    assert client.create(PODS, pod, "default")["spec"]["deviceClaims"][0]["claimName"] == "a"


def test_k8srm_takes_numbers_in_config_maps_and_says_how_they_are_read():
    def asked(*names):
        with Cluster(Options(profiles=names)) as cluster:
            scope = cluster.server.resources.context.scope()
            kind = cluster.server.resources.kind("", "v1", "configmaps")
            body = {"metadata": {"name": "vlan"}, "data": {"vlanID": 2000}}
            stored = cluster.server.resources.create(kind, body, "default", scope)
            return orjson.loads(stored.encoded)["data"], scope.warnings

    data, warnings = asked("v1", "k8srm")
    assert data == {"vlanID": "2000"}
    assert warnings == ['data.vlanID: a number or bool, read as the string "2000"']
    with pytest.raises(ApiError, match="cannot unmarshal number"):
        asked("v1")


def test_k8srm_takes_fields_in_any_case_and_says_how_they_are_read(client):
    body = {
        "apiVersion": "devmgmtproto.k8s.io/v1alpha1",
        "kind": "DeviceClass",
        "metadata": {"name": "cased"},
        "spec": {"definition": {"Driver": "toys"}},
    }
    assert client.create(CLASSES, body)["spec"] == {"definition": {"driver": "toys"}}
