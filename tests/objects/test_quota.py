"""What counts against a ResourceQuota: amounts and scopes, as upstream's evaluators have them."""

import pytest

from dralab.objects.quota import selects, usage

GOLD = "gold.storageclass.storage.k8s.io"


def claim(*, status=None, annotations=None, size="1Gi", **spec):
    return {
        "metadata": {"name": "c", "annotations": annotations or {}},
        "spec": {"resources": {"requests": {"storage": size}}} | spec,
        "status": status or {},
    }


def test_storage_counts_by_its_class_too():
    assert usage("persistentvolumeclaims", "", claim(storageClassName="gold")) == {
        "count/persistentvolumeclaims": 1,
        "persistentvolumeclaims": 1,
        "requests.storage": 2**30,
        f"{GOLD}/requests.storage": 2**30,
        f"{GOLD}/persistentvolumeclaims": 1,
    }
    older = claim(annotations={"volume.beta.kubernetes.io/storage-class": "gold"})
    assert usage("persistentvolumeclaims", "", older)[f"{GOLD}/persistentvolumeclaims"] == 1


def test_a_claim_uses_what_it_has_until_it_is_smaller():
    shrinking = claim(status={"allocatedResources": {"storage": "3Gi"}})
    assert usage("persistentvolumeclaims", "", shrinking)["requests.storage"] == 3 * 2**30


@pytest.mark.parametrize(
    ("type_", "more", "count"),
    [
        ("ClusterIP", {}, 0),
        ("NodePort", {}, 2),
        ("LoadBalancer", {}, 2),
        ("LoadBalancer", {"allocateLoadBalancerNodePorts": False}, 1),
    ],
)
def test_a_service_uses_the_node_ports_that_it_gets(type_, more, count):
    ports = [{"port": 1, "nodePort": 30000}, {"port": 2}]
    service = {"metadata": {"name": "s"}, "spec": {"type": type_, "ports": ports} | more}
    assert usage("services", "", service)["services.nodeports"] == count


@pytest.mark.parametrize(
    ("operator", "values", "names"),
    [
        ("In", ["gold"], {"has", "had", "awaits"}),
        ("NotIn", ["gold"], {"none", "had", "other"}),
        ("Exists", [], {"has", "had", "awaits", "other"}),
        ("DoesNotExist", [], {"none"}),
    ],
)
def test_a_scope_of_attributes_classes_looks_at_all_that_a_claim_names(operator, values, names):
    target = {"targetVolumeAttributesClassName": "gold"}
    claims = {
        "none": claim(),
        "has": claim(volumeAttributesClassName="gold"),
        "had": claim(
            volumeAttributesClassName="silver", status={"currentVolumeAttributesClassName": "gold"}
        ),
        "awaits": claim(status={"modifyVolumeStatus": target}),
        "other": claim(volumeAttributesClassName="silver"),
    }
    scope = {"scopeName": "VolumeAttributesClass", "operator": operator, "values": values}
    spec = {"scopeSelector": {"matchExpressions": [scope]}}
    found = {
        name for name, each in claims.items() if selects(spec, "persistentvolumeclaims", "", each)
    }
    assert found == names
    assert not selects(spec, "pods", "", {"metadata": {}, "spec": {}})


@pytest.mark.parametrize(
    ("term", "crosses"),
    [
        ({"topologyKey": "t"}, False),
        ({"topologyKey": "t", "namespaces": ["a"]}, True),
        ({"topologyKey": "t", "namespaceSelector": {}}, True),
    ],
)
@pytest.mark.parametrize("sort", ["podAffinity", "podAntiAffinity"])
@pytest.mark.parametrize("preferred", [False, True])
def test_a_pod_crosses_namespaces_by_any_of_its_terms(term, crosses, sort, preferred):
    how = "preferred" if preferred else "required"
    terms = [{"weight": 1, "podAffinityTerm": term}] if preferred else [term]
    affinity = {sort: {f"{how}DuringSchedulingIgnoredDuringExecution": terms}}
    pod = {"metadata": {"name": "namespaces"}, "spec": {"affinity": affinity}}
    spec = {"scopes": ["CrossNamespacePodAffinity"]}
    assert selects(spec, "pods", "", pod) is crosses


@pytest.mark.parametrize(
    ("spec", "used"),
    [
        ({"devices": [{"name": "x", "allOf": [{"class": "gpu", "requests": {"devices": 2}}]}]}, {"gpu": 2}),
        ({"devices": [{"name": "x", "class": "gpu"}, {"name": "y", "class": "gpu"}]}, {"gpu": 2}),
        ({"claims": [{"deviceClass": "gpu", "requests": {"count": "3", "memory": "1Gi"}}]}, {"gpu": 3}),
        ({"claims": [{"oneOf": [{"deviceClass": "a"}, {"deviceClass": "a", "count": 4}, {"deviceClass": "b"}]}]}, {"a": 4, "b": 1}),
        ({"deviceClass": "gpu", "minDeviceCount": 2, "requests": []}, {"gpu": 2}),
        ({"claims": [{"deviceType": "gpu"}]}, {}),
    ],
)  # fmt: skip
def test_a_claim_of_k8srm_uses_devices_of_its_classes_whatever_its_form(spec, used):
    found = usage("deviceclaims", "devmgmtproto.k8s.io", {"metadata": {"name": "c"}, "spec": spec})
    suffix = ".deviceclass.devmgmtproto.k8s.io/devices"
    assert {k.removesuffix(suffix): v for k, v in found.items() if k.endswith(suffix)} == used
    assert found["adminaccess.devmgmtproto.k8s.io/deviceclaims"] == 0


def test_a_claim_of_k8srm_with_admin_access_counts_as_such():
    detail = {"class": "gpu", "adminAccess": True}
    spec = {"devices": [{"name": "x", "oneOf": [{"class": "a"}, detail]}]}
    found = usage("deviceclaims", "devmgmtproto.k8s.io", {"metadata": {"name": "c"}, "spec": spec})
    assert found["adminaccess.devmgmtproto.k8s.io/deviceclaims"] == 1
