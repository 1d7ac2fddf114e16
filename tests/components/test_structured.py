"""Structured parameters of classic DRA, without any driver: the scheduler and the controllers."""

import pytest

from builders import worker
from dralab.api.status import ApiError
from dralab.components import control_plane, profiles
from dralab.runtime.resources import (
    CLAIM_PARAMETERS,
    CLASS_PARAMETERS,
    CLASSIC_CLAIMS,
    CLASSIC_CLASSES,
    NAMED_SLICES,
    NODES,
    PODS,
    SCHEDULING_CONTEXTS,
)
from labs import Lab

V = "resource.k8s.io/v1alpha2"
DRIVER = "d.example.com"


def obj(kind, name, **more):
    namespaced = kind not in {"ResourceClass", "ResourceSlice"}
    metadata = {"name": name} | ({"namespace": "default"} if namespaced else {})
    return {"apiVersion": V, "kind": kind, "metadata": metadata, **more}


def resource_class(**more):
    return obj("ResourceClass", "c", driverName=DRIVER, structuredParameters=True, **more)


def devices(node, **models):
    """A slice; each device has a model."""
    instances = [
        {"name": name, "attributes": [{"name": "model", "string": model}]}
        for name, model in models.items()
    ]
    content = {"nodeName": node, "driverName": DRIVER, "namedResources": {"instances": instances}}
    return obj("ResourceSlice", f"{node}-s", **content)


def claim(name, parameters=None, **more):
    """A claim; its parameters are named in full, or those in tree by their name alone."""
    if isinstance(parameters, str):
        kind = "ResourceClaimParameters"
        parameters = {"apiGroup": "resource.k8s.io", "kind": kind, "name": parameters}
    spec = {"resourceClassName": "c", **more}
    return obj(
        "ResourceClaim", name, spec=spec | ({"parametersRef": parameters} if parameters else {})
    )


def model(name):
    return {"namedResources": {"selector": f'attributes.string["model"] == "{name}"'}}


def asks(name, *requests, **more):
    content = {"driverName": DRIVER, "requests": list(requests), **more.pop("driver", {})}
    return obj("ResourceClaimParameters", name, driverRequests=[content], **more)


def pod(name, *claims):
    entries = {f"e{number}": each for number, each in enumerate(claims)}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {
            "resourceClaims": [
                {"name": entry, "source": {"resourceClaimName": each}}
                for entry, each in entries.items()
            ],
            "containers": [
                {
                    "name": "ctr",
                    "image": "busybox",
                    "resources": {"claims": [{"name": entry} for entry in entries]},
                }
            ],
        },
    }


class StructuredLab(Lab):
    def __init__(self, *slices, class_=None):
        super().__init__()
        profiles.install(self.api.resources, ("v1", "classic"))
        control_plane.assemble(self.manager, kinds=self.api.resources.kinds)
        self.add(CLASSIC_CLASSES, class_ or resource_class())
        for each in slices:
            self.add(NODES, worker(each["nodeName"]))
            self.client.patch(NODES, each["nodeName"], {"spec": {"taints": None}})
            self.add(NAMED_SLICES, each)
        self.start()

    def node_of(self, name):
        return self.client.get(PODS, name, "default")["spec"].get("nodeName")

    def why(self, name):
        conditions = self.client.get(PODS, name, "default")["status"].get("conditions") or ()
        return next((c["message"] for c in conditions if c["type"] == "PodScheduled"), None)

    def claim(self, name):
        return self.client.get(CLASSIC_CLAIMS, name, "default")

    def given(self, name):
        handles = self.claim(name)["status"]["allocation"]["resourceHandles"]
        return [
            each["namedResources"]["name"]
            for handle in handles
            for each in handle["structuredData"]["results"]
        ]

    def end(self, name):
        self.client.delete(PODS, name, "default", options={"gracePeriodSeconds": 0})
        self.wait(2)


def test_a_claims_life_from_allocation_to_release():
    lab = StructuredLab(devices("n0", a="x", b="x"))
    lab.add(CLASSIC_CLAIMS, claim("one"))
    lab.add(PODS, pod("p", "one"))
    lab.wait(1)
    assert lab.node_of("p") == "n0"
    held = lab.claim("one")
    assert held["metadata"]["finalizers"] == ["dra.k8s.io/delete-protection"]
    assert held["status"]["driverName"] == DRIVER
    assert [user["name"] for user in held["status"]["reservedFor"]] == ["p"]
    allocation = held["status"]["allocation"]
    assert allocation["shareable"] is True
    [term] = allocation["availableOnNodes"]["nodeSelectorTerms"]
    assert term["matchExpressions"] == [
        {"key": "kubernetes.io/hostname", "operator": "In", "values": ["n0"]}
    ]
    assert allocation["resourceHandles"] == [
        {
            "driverName": DRIVER,
            "structuredData": {"nodeName": "n0", "results": [{"namedResources": {"name": "a"}}]},
        }
    ]
    assert not lab.client.list(SCHEDULING_CONTEXTS, "default").items
    lab.end("p")
    free = lab.claim("one")
    assert "finalizers" not in free["metadata"] or not free["metadata"]["finalizers"]
    assert not {"allocation", "driverName", "reservedFor"} & set(free.get("status") or {})


def test_a_deleted_claim_goes_when_its_last_user_has_gone():
    lab = StructuredLab(devices("n0", a="x"))
    lab.add(CLASSIC_CLAIMS, claim("one"))
    lab.add(PODS, pod("p", "one"))
    lab.wait(1)
    lab.client.delete(CLASSIC_CLAIMS, "one", "default")
    lab.wait(2)
    assert lab.given("one") == ["a"]
    lab.end("p")
    with pytest.raises(ApiError, match="not found"):
        lab.claim("one")


def test_an_immediate_claim_is_allocated_for_its_first_pod_and_stays_so():
    lab = StructuredLab(devices("n0", a="x"))
    lab.add(CLASSIC_CLAIMS, claim("one", allocationMode="Immediate"))
    lab.add(PODS, pod("p", "one"))
    lab.wait(1)
    assert lab.node_of("p") == "n0"
    lab.end("p")
    assert lab.given("one") == ["a"]
    lab.client.delete(CLASSIC_CLAIMS, "one", "default")
    lab.wait(2)
    with pytest.raises(ApiError, match="not found"):
        lab.claim("one")


def test_claims_of_one_pod_never_share_a_device():
    lab = StructuredLab(devices("n0", a="x"), devices("n1", a="x", b="x"))
    lab.add(CLASSIC_CLAIMS, claim("one"), claim("two"))
    lab.add(PODS, pod("p", "one", "two"))
    lab.wait(1)
    assert lab.node_of("p") == "n1"
    assert sorted([*lab.given("one"), *lab.given("two")]) == ["a", "b"]


def test_two_entries_may_name_one_claim():
    lab = StructuredLab(devices("n0", a="x"))
    lab.add(CLASSIC_CLAIMS, claim("one"))
    lab.add(PODS, pod("p", "one", "one"))
    lab.wait(1)
    assert lab.node_of("p") == "n0"


def test_a_device_is_had_by_one_claim_until_it_is_released():
    lab = StructuredLab(devices("n0", a="x"))
    lab.add(CLASSIC_CLAIMS, claim("one"), claim("two"))
    lab.add(PODS, pod("p", "one"))
    lab.wait(1)
    lab.add(PODS, pod("q", "two"))
    lab.wait(1)
    assert lab.why("q") == (
        "0/1 nodes are available: resourceclaim cannot be allocated for the node (unsuitable)."
    )
    lab.end("p")
    assert lab.node_of("q") == "n0"


@pytest.mark.parametrize(("shareable", "node"), [(True, "n0"), (False, None)])
def test_a_claim_has_several_users_where_its_parameters_say_so(shareable, node):
    lab = StructuredLab(devices("n0", a="x"))
    lab.add(CLAIM_PARAMETERS, asks("p", model("x"), shareable=shareable))
    lab.add(CLASSIC_CLAIMS, claim("one", "p"))
    lab.add(PODS, pod("first", "one"))
    lab.wait(1)
    lab.add(PODS, pod("second", "one"))
    lab.wait(1)
    assert lab.node_of("second") == node


def test_what_vendors_say_is_handed_on():
    class_ = resource_class(
        parametersRef={
            "apiGroup": "resource.k8s.io",
            "kind": "ResourceClassParameters",
            "namespace": "default",
            "name": "k",
        }
    )
    lab = StructuredLab(devices("n0", a="x", b="y"), class_=class_)
    vendor = [{"driverName": DRIVER, "parameters": {"of": "class"}}]
    filters = [{"driverName": DRIVER, **model("y")}]
    lab.add(
        CLASS_PARAMETERS,
        obj("ResourceClassParameters", "k", vendorParameters=vendor, filters=filters),
    )
    request = {
        "namedResources": {"selector": "true"},
        "vendorParameters": {"of": "request"},
    }
    lab.add(CLAIM_PARAMETERS, asks("p", request, driver={"vendorParameters": {"of": "claim"}}))
    lab.add(CLASSIC_CLAIMS, claim("one", "p"))
    lab.add(PODS, pod("p", "one"))
    lab.wait(1)
    [handle] = lab.claim("one")["status"]["allocation"]["resourceHandles"]
    assert handle["structuredData"] == {
        "nodeName": "n0",
        "vendorClassParameters": {"of": "class"},
        "vendorClaimParameters": {"of": "claim"},
        "results": [
            {"vendorRequestParameters": {"of": "request"}, "namedResources": {"name": "b"}}
        ],
    }


FOREIGN = {"apiGroup": DRIVER, "kind": "Wish", "name": "w"}


def test_parameters_are_found_by_what_they_were_made_from():
    lab = StructuredLab(devices("n0", a="x", b="y"))
    lab.add(CLASSIC_CLAIMS, claim("one", FOREIGN))
    lab.add(PODS, pod("p", "one"))
    lab.wait(1)
    assert lab.why("p") == (
        "0/1 nodes are available: generated claim parameters for Wish.d.example.com default/w "
        "not found."
    )
    lab.add(CLAIM_PARAMETERS, asks("other", model("x"), generatedFrom={**FOREIGN, "name": "v"}))
    lab.add(CLAIM_PARAMETERS, asks("mine", model("y"), generatedFrom=FOREIGN))
    lab.wait(1)
    assert lab.given("one") == ["b"]


@pytest.mark.parametrize(
    ("given", "reference", "why"),
    [
        ([], "p", "claim parameters default/p not found"),
        (
            [asks("p1", generatedFrom=FOREIGN), asks("p2", generatedFrom=FOREIGN)],
            FOREIGN,
            "multiple generated claim parameters for Wish.d.example.com default/w found: "
            "default/p1, default/p2",
        ),
        (
            [asks("p", {"namedResources": {"selector": 'attributes.string["none"] == ""'}})],
            "p",
            "checking structured parameters failed: no such key: none",
        ),
    ],
)
def test_a_pod_waits_and_says_what_is_wrong_with_parameters(given, reference, why):
    lab = StructuredLab(devices("n0", a="x"))
    lab.add(CLAIM_PARAMETERS, *given)
    lab.add(CLASSIC_CLAIMS, claim("one", reference))
    lab.add(PODS, pod("p", "one"))
    lab.wait(1)
    assert lab.why("p") == f"0/1 nodes are available: {why}."


def test_a_selector_that_is_none_is_refused_by_the_server():
    lab = StructuredLab()
    with pytest.raises(ApiError, match=r"driverRequests\[0\].requests\[0\].namedResources"):
        lab.add(CLAIM_PARAMETERS, asks("p", {"namedResources": {"selector": "()"}}))


def test_a_pod_goes_where_a_class_lets_it():
    term = {"matchExpressions": [{"key": "zone", "operator": "In", "values": ["b"]}]}
    class_ = resource_class(suitableNodes={"nodeSelectorTerms": [term]})
    lab = StructuredLab(devices("n0", a="x"), devices("n1", a="x"), class_=class_)
    lab.client.patch(NODES, "n1", {"metadata": {"labels": {"zone": "b"}}})
    lab.add(CLASSIC_CLAIMS, claim("one"))
    lab.add(PODS, pod("p", "one"))
    lab.wait(1)
    assert lab.node_of("p") == "n1"
