"""The cases of Kubernetes' end-to-end suite for DRA about the server (1.36).

test/e2e/dra/dra.go: "CRUD Tests", and those of "control plane" that are not about scheduling.
"""

import copy

import pytest

from dralab.api.status import ApiError
from dralab.apiserver.access.users import User
from dralab.runtime.local import LocalClient
from dralab.runtime.resources import (
    CLAIM_TEMPLATES,
    CLAIMS,
    CLASSES,
    NAMESPACES,
    POOL_STATUS_REQUESTS,
    SLICES,
    Resource,
)
from suitelab import NAME, SuiteLab

LABEL = {"metadata": {"labels": {"test.dra.example.com": "test"}}}


def slice_of(**more):
    pool = {"name": "cluster", "generation": 1, "resourceSliceCount": 1}
    return {"driver": NAME, "pool": pool, "nodeName": "no-such-node", **more}


REQUESTS = {"devices": {"requests": [{"name": "req-0", "exactly": {"deviceClassName": NAME}}]}}
NEVER = {"selectors": [{"cel": {"expression": "1 == 0"}}]}
KINDS = {
    "DeviceClass": (
        CLASSES,
        {"selectors": [{"cel": {"expression": "false"}}]},
        {"spec": NEVER},
    ),
    "ResourceClaim": (CLAIMS, REQUESTS, LABEL),
    "ResourceClaimTemplate": (CLAIM_TEMPLATES, {"spec": REQUESTS}, LABEL),
    "ResourcePoolStatusRequest": (POOL_STATUS_REQUESTS, {"driver": NAME}, LABEL),
    "ResourceSlice": (SLICES, slice_of(), {"spec": slice_of(devices=[{"name": "device-0"}])}),
}


@pytest.mark.parametrize(("of", "spec", "change"), KINDS.values(), ids=KINDS)
def test_crud(of, spec, change):
    """Create, get, list, watch, update, patch in each form, delete, delete as a collection."""
    client = SuiteLab(0, drivers=0).client
    namespace = "default" if of.namespaced else ""
    before = client.list(of, namespace)
    watch = client.watch(of, namespace, revision=before.revision)

    def make(name):
        return client.create(of, {"metadata": {"name": name}, "spec": spec}, namespace)

    made = make("one")
    assert client.get(of, "one", namespace) == made
    assert [item["metadata"]["name"] for item in client.list(of, namespace).items] == ["one"]
    changed = copy.deepcopy(made)
    changed["metadata"].setdefault("labels", {})["more"] = "yes"
    assert client.update(of, changed)["metadata"]["labels"] == {"more": "yes"}
    named = {"apiVersion": made["apiVersion"], "kind": made["kind"]}
    applied = {**change, **named, "metadata": {**change.get("metadata", {}), "name": "one"}}
    for patch, options in [
        (change, {"type": "strategic"}),
        (change, {"type": "merge"}),
        (applied, {"type": "apply", "field_manager": "me", "force": True}),
    ]:
        found = client.patch(of, "one", patch, namespace, **options)
        for part, wanted in change.items():
            held = found[part]["labels"] if part == "metadata" else found[part]
            expected = wanted["labels"] if part == "metadata" else wanted
            assert expected.items() <= held.items()
    patch = [{"op": "add", "path": "/metadata/labels/last", "value": "1"}]
    assert client.patch(of, "one", patch, namespace, type="json")["metadata"]["labels"]["last"]
    client.delete(of, "one", namespace)
    make("two")
    client.delete_collection(of, namespace)
    assert list(client.list(of, namespace).items) == []
    seen = []
    while (event := watch.next(0)) is not None:
        seen.append((event.type, event.object["metadata"]["name"]))
    assert seen[0] == ("ADDED", "one")
    assert seen[-3:] == [("DELETED", "one"), ("ADDED", "two"), ("DELETED", "two")]
    assert {kind for kind, _ in seen[1:-3]} == {"MODIFIED"}


@pytest.mark.parametrize("type", ["merge", "strategic", "json", "apply"])
def test_the_status_of_a_claim_is_patched_in_each_form(type):
    client = SuiteLab(0, drivers=0).client
    client.create(CLAIMS, {"metadata": {"name": "c"}, "spec": REQUESTS}, "default")
    named = {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim"}
    patch = {"status": {"allocation": {}}, "metadata": {"name": "c"}, **named}
    if type == "json":
        patch = [{"op": "add", "path": "/status/allocation", "value": {}}]
    options = {"field_manager": "me"} if type == "apply" else {}
    found = client.patch(CLAIMS, "c", patch, "default", type=type, subresource="status", **options)
    assert "allocation" in found["status"]


def test_creates_slices():
    """Ten slices of 128 devices, each as large as its limits allow."""
    many = {f"attribute{i}": {"string": "x" * 64} for i in range(16)}
    most = {f"capacity{i}": {"value": "1Gi"} for i in range(16)}
    devices = [
        {"name": f"device-{i}", "attributes": many, "capacity": most} for i in range(10 * 128)
    ]
    lab = SuiteLab([devices])
    lab.wait(10)
    parts = lab.slices()
    assert len(parts) == 10
    assert {one["spec"]["pool"]["resourceSliceCount"] for one in parts} == {10}
    assert sum(len(one["spec"]["devices"]) for one in parts) == len(devices)
    assert parts[0]["spec"]["devices"][0]["attributes"] == many


def test_validate_resource_claim_template_and_resource_claim_for_admin_access():
    lab = SuiteLab()
    request = lab.request("r", adminAccess=True)
    both = [lab.claim("c", request), lab.template("t", request)]
    words = "requires the `resource.kubernetes.io/admin-access: true` label on the containing"
    for each in both:
        with pytest.raises(ApiError, match=words):
            lab.create(each)
    label = {"metadata": {"labels": {"resource.kubernetes.io/admin-access": "true"}}}
    lab.client.patch(NAMESPACES, "default", label)
    assert len(lab.create(*both)) == 2


def test_truncates_the_name_of_a_generated_resource_claim():
    lab = SuiteLab()
    pod = lab.pod("p" * 63, inline=["t"])
    entry = "c" * 63
    pod["spec"]["resourceClaims"][0]["name"] = entry
    pod["spec"]["containers"][0]["resources"]["claims"][0]["name"] = entry
    lab.create(lab.template("t"), pod)
    assert lab.is_running("p" * 63)
    [claim] = lab.all(CLAIMS)
    assert len(claim["metadata"]["name"]) <= 63


def test_supports_count_of_resource_claims_in_a_resource_quota():
    lab = SuiteLab()
    name = "count/resourceclaims.resource.k8s.io"
    quota = {"metadata": {"name": "object-count", "namespace": "default"}}
    quota["spec"] = {"hard": {name: "1"}}
    lab.create(lab.claim("claim-0"), {"apiVersion": "v1", "kind": "ResourceQuota", **quota})
    held = lab.get("object-count", Resource("", "v1", "resourcequotas"))
    assert held["status"] == {"hard": {name: "1"}, "used": {name: "1"}}
    with pytest.raises(ApiError) as error:
        lab.create(lab.claim("claim-1"))
    assert (
        f"exceeded quota: object-count, requested: {name}=1, used: {name}=1, limited: {name}=1"
        in error.value.message
    )


def test_the_driver_can_update_the_status_of_devices_once_allocated():
    lab = SuiteLab()
    lab.create(lab.claim("c"), lab.pod("p", external=["c"]))
    [result] = lab.results("c")

    def status(number):
        condition = {"type": "a", "status": "True", "message": f"m{number}", "reason": "d"}
        return {
            **{part: result[part] for part in ("driver", "pool", "device")},
            "conditions": [{**condition, "lastTransitionTime": "2026-01-01T00:00:00Z"}],
            "data": {"foo": f"bar{number}"},
            "networkData": {
                "interfaceName": f"inf{number}",
                "ips": [f"10.9.8.{number}/24", f"2001:db8::{number}/64"],
                "hardwareAddress": "bc:1c:b6:3e:b8:25",
            },
        }

    for number in (1, 2):
        held = lab.get("c", CLAIMS)
        wanted = [status(number)]
        sent = {**held, "status": {**held["status"], "devices": wanted}}
        assert lab.client.update(CLAIMS, sent, subresource="status")["status"]["devices"] == wanted
        assert lab.get("c", CLAIMS)["status"]["devices"] == wanted


NODE_NAME = "authentication.kubernetes.io/node-name"
RULES = [
    {
        "apiGroups": ["resource.k8s.io"],
        "apiVersions": ["*"],
        "operations": ["CREATE", "UPDATE", "DELETE"],
        "resources": ["resourceslices"],
    }
]
POLICY = {
    "matchConstraints": {"resourceRules": RULES},
    "matchConditions": [
        {"name": "plugin", "expression": "request.userInfo.username == 'plugin'"},
    ],
    "variables": [
        {
            "name": "mine",
            "expression": f"request.userInfo.extra[?'{NODE_NAME}'][0].orValue('')",
        },
        {
            "name": "node",
            "expression": "(request.operation == 'DELETE' ? oldObject : object).spec.?nodeName"
            ".orValue('')",
        },
    ],
    "validations": [
        {
            "expression": "variables.mine != '' && variables.mine == variables.node",
            "messageExpression": '"this user running on node \'" + variables.mine + '
            "\"' may not modify \" + (variables.node == '' ? 'cluster resourceslices' : "
            '"resourceslices on node \'" + variables.node + "\'")',
        }
    ],
}


def test_must_apply_per_node_permission_checks():
    """By a policy like the test driver's: a plugin writes slices of its own node alone."""
    lab = SuiteLab(0, drivers=0)
    group, names = "admissionregistration.k8s.io", {"metadata": {"name": "slices-by-node"}}
    policies = Resource(group, "v1", "validatingadmissionpolicies", namespaced=False)
    lab.client.create(policies, {**names, "spec": POLICY})
    binding = {"policyName": "slices-by-node", "validationActions": ["Deny"]}
    bindings = Resource(group, "v1", "validatingadmissionpolicybindings", namespaced=False)
    lab.client.create(bindings, {**names, "spec": binding})

    def plugin(node):
        user = User(name="plugin", groups=("system:authenticated",), extra={NODE_NAME: (node,)})
        return LocalClient(lab.server.resources, lab.server.hub, user=user)

    real, fictional = plugin("node-0"), plugin("dra-fictional-node")
    cases = {
        "local": ({"nodeName": "dra-fictional-node"}, "resourceslices on node", [real]),
        "cluster": ({"nodeName": None, "allNodes": True}, "cluster", [real, fictional]),
    }
    for name, (where, words, strangers) in cases.items():
        spec = {key: value for key, value in slice_of(**where).items() if value is not None}
        body = {"metadata": {"name": name}, "spec": spec}
        allowed = [lab.client] + ([] if fictional in strangers else [fictional])
        for client in allowed:
            client.create(SLICES, body)
            client.delete(SLICES, name)
        held = lab.client.create(SLICES, body)
        for client in strangers:
            with pytest.raises(ApiError, match=f"may not modify {words}"):
                client.create(SLICES, body)
            with pytest.raises(ApiError, match=f"may not modify {words}"):
                client.update(SLICES, held)
            with pytest.raises(ApiError, match=f"may not modify {words}"):
                client.delete(SLICES, name)
        for client in allowed:
            held = client.update(SLICES, held)
        allowed[-1].delete(SLICES, name)
