"""The registry of kinds, beside the discovery of a real server."""

import json
from pathlib import Path

import pytest

from dralab.api.kinds import ALL_VERBS, Kinds, kind_of

DISCOVERY = (
    Path(__file__).parents[2] / ".." / "shared/testdata/apiserver/discovery-v1.36.json"
).resolve()


def recorded() -> list[dict]:
    if not DISCOVERY.exists():
        pytest.skip("the recorded discovery of a real server is not beside this checkout")
    return json.loads(DISCOVERY.read_text())["resources"]


def test_every_resource_of_a_real_server_is_known_with_the_same_facts():
    kinds = Kinds.standard(also=())
    resources = recorded()
    assert len(resources) > 60
    for there in resources:
        kind = kinds.find(there["group"], there["version"], there["resource"])
        subresources = [
            {"name": sub.name, "kind": sub.kind, "verbs": list(sub.verbs)}
            | ({"group": sub.group, "version": sub.version} if sub.group else {})
            for _, sub in sorted(kind.subresources.items())
        ]
        expected = sorted(there.get("subresources", []), key=lambda sub: sub["name"])
        assert {
            "kind": kind.kind,
            "scope": "Namespaced" if kind.namespaced else "Cluster",
            "singular": kind.singular,
            "verbs": list(kind.verbs),
            "shortNames": list(kind.short_names),
            "categories": list(kind.categories),
            "subresources": subresources,
        } == {
            "kind": there["kind"],
            "scope": there["scope"],
            "singular": there["singular"],
            "verbs": there["verbs"],
            "shortNames": there.get("shortNames", []),
            "categories": there.get("categories", []),
            "subresources": expected,
        }


def test_a_default_server_serves_nothing_more_than_a_real_one():
    there = {(r["group"], r["version"], r["resource"]) for r in recorded()}
    assert {(k.group, k.version, k.plural) for k in Kinds.standard(also=())} == there


def test_versions_on_request_are_served_on_request():
    without = Kinds.standard(also=())
    some = Kinds.standard(also=["resource.k8s.io/v1beta1"])
    everything = Kinds.standard()
    assert without.get("resource.k8s.io", "v1beta1", "resourceclaims") is None
    assert some.get("resource.k8s.io", "v1beta1", "resourceclaims")
    assert some.get("resource.k8s.io", "v1beta2", "resourceclaims") is None
    assert everything.versions("resource.k8s.io") == ["v1", "v1beta2", "v1beta1", "v1alpha3"]
    assert everything.find("scheduling.k8s.io", "v1alpha2", "podgroups").kind == "PodGroup"


def test_versions_of_one_collection_share_a_store():
    kinds = Kinds.standard()
    claims = {
        kinds.find("resource.k8s.io", version, "resourceclaims").hub
        for version in ("v1", "v1beta1", "v1beta2")
    }
    assert claims == {"resource.k8s.io/resourceclaims"}
    assert {k.group for k in kinds if k.hub == "events"} == {"", "events.k8s.io"}


def test_a_kind_can_come_and_go():
    kinds = Kinds.standard()
    before = kinds.changes
    foo = kind_of(
        {"group": "x.io", "version": "v1", "kind": "Foo", "plural": "foos", "namespaced": True}
    )
    kinds.add(foo)
    assert kinds.changes > before
    assert kinds.of_object("x.io/v1", "Foo") is kinds.get("x.io", "v1", "foos") is foo
    assert foo.verbs == ALL_VERBS
    assert kinds.groups()[-1] == "x.io"
    kinds.remove("x.io", "v1", "foos")
    assert "x.io" not in kinds.groups()
    assert kinds.of_object("x.io/v1", "Foo") is None
