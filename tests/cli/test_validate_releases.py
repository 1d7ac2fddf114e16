"""`dralab validate --kubernetes-version`: what a release would do with manifests."""

import json

import pytest
from click.testing import CliRunner

from dralab.cli.main import main

MANIFESTS = """
apiVersion: resource.k8s.io/v1
kind: ResourceClaim
metadata: {name: c}
spec: {devices: {requests: [{name: r, exactly: {deviceClassName: gpu}}]}}
---
apiVersion: resource.k8s.io/v1beta1
kind: ResourceClaim
metadata: {name: c1}
spec: {devices: {requests: [{name: r, deviceClassName: gpu, capacity: {requests: {a: "1"}}}]}}
---
apiVersion: v1
kind: Pod
metadata: {name: p, namespace: team}
spec:
  resourceClaims: [{name: d, resourceClaimName: c}]
  evictionResponders: [{name: example.com/a, priority: 10000}]
  containers: [{name: c, image: i}]
---
apiVersion: example.com/v1
kind: Foo
metadata: {name: x}
"""
CRD = """
---
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: foos.example.com}
spec:
  group: example.com
  scope: Namespaced
  names: {plural: foos, kind: Foo}
  versions:
  - name: v1
    served: true
    storage: true
    schema: {openAPIV3Schema: {type: object}}
"""


@pytest.fixture
def told(tmp_path):
    def verdicts(release, *more, text=MANIFESTS):
        file = tmp_path / "m.yaml"
        file.write_text(text)
        words = ["validate", "-f", str(file), "--kubernetes-version", release, "-o", "json", *more]
        result = CliRunner().invoke(main, words)
        found = [
            (each["object"], each["verdict"], each["field"], each["message"])
            for each in json.loads(result.stdout)
        ]
        return result.exit_code, found

    return verdicts


def test_a_version_that_is_not_served_is_refused_with_those_that_are(told):
    code, found = told("1.33")
    assert code == 1
    text = (
        "1.33 does not serve resource.k8s.io/v1 ResourceClaim: that is in 1.34 to 1.37; use "
        "resource.k8s.io/v1beta2, resource.k8s.io/v1beta1, resource.k8s.io/v1alpha3"
    )
    assert ("ResourceClaim c", "refused", "", text) in found
    assert [each for each in told("1.34")[1] if each[0] == "ResourceClaim c"] == []


@pytest.mark.parametrize(
    ("release", "field", "why"),
    [
        ("1.32", "spec.devices.requests[0].capacity", "1.32 has no such field"),
        (
            "1.34",
            "spec.devices.requests[0].capacity",
            "needs the feature gate DRAConsumableCapacity, off in 1.34",
        ),
        ("1.36", "spec.evictionResponders", "1.36 has no such field"),
        (
            "1.37",
            "spec.evictionResponders",
            "needs the feature gate EvictionRequestAPI, off in 1.37",
        ),
        (
            "1.33",
            "spec.resourceClaims",
            "needs the feature gate DynamicResourceAllocation, off in 1.33",
        ),
    ],
)
def test_what_a_release_drops_is_named_with_the_reason(told, release, field, why):
    dropped = {(path, text) for _, sort, path, text in told(release)[1] if sort == "dropped"}
    assert (field, why) in dropped


def test_gates_and_deprecations_are_those_of_the_release(told):
    _, found = told("1.37", "--feature-gates", "EvictionRequestAPI=true")
    assert not [each for each in found if each[1] == "dropped"]
    warned = {text for _, sort, _, text in found if sort == "warned"}
    assert warned == {
        "resource.k8s.io/v1beta1 ResourceClaim is deprecated in v1.35+, unavailable in v1.38+",
        "resource.k8s.io/v1beta1 is off by default: it needs "
        "--runtime-config=resource.k8s.io/v1beta1=true",
    }


def test_an_object_of_a_kind_that_nothing_defines_is_unknown_and_counts_if_strict(told):
    only = MANIFESTS.rpartition("---")[2]
    code, ((name, sort, _, _),) = told("1.36", text=only)
    assert (code, name, sort) == (0, "Foo x", "unknown")
    assert told("1.36", "--strict", text=only)[0] == 1
    assert told("1.36", "--strict", text=only + CRD) == (0, [])
