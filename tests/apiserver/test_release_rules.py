"""Rules that changed with a release, as real servers of each say them."""

import json

import pytest
from tests.api.test_releases import RELEASES, recorded

from dralab.api.kinds import Kinds
from dralab.api.resource.features import default_of, with_gates
from dralab.apiserver.access.authorization.reconciliation import expected
from dralab.apiserver.http.messages import HttpRequest
from dralab.apiserver.server import ApiServer
from dralab.apiserver.storage import MemoryStore

CONFIG_MAPS = "/api/v1/namespaces/default/configmaps"
BINDINGS = "/apis/rbac.authorization.k8s.io/v1/namespaces/default/rolebindings"


def server_of(release, **more):
    return ApiServer(MemoryStore(), kinds=Kinds.standard(also=(), release=release), **more)


def sent(server, method, path, body=None, query=""):
    data = json.dumps(body).encode() if body is not None else b""
    headers = {"content-type": "application/json"}
    request = HttpRequest(method=method, path=path, query=query, headers=headers, body=data)
    found = server.handle(request).body
    return json.loads(found if isinstance(found, bytes) else b"".join(found))


@pytest.mark.parametrize(
    ("release", "text"),
    [
        ("1.36", 'metadata.ownerReferences.uid: Invalid value: "": must not be empty'),
        ("1.37", "metadata.ownerReferences[0].uid: Required value: must not be empty"),
    ],
)
def test_errors_about_owners_name_which_one_as_of_1_37(release, text):
    owner = {"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": ""}
    made = {"metadata": {"name": "a", "ownerReferences": [owner]}}
    assert text in sent(server_of(release), "POST", CONFIG_MAPS, made)["message"]
    server = server_of(release)
    sent(server, "POST", CONFIG_MAPS, {"metadata": {"name": "a"}})
    assert text in sent(server, "PUT", f"{CONFIG_MAPS}/a", made)["message"]


@pytest.mark.parametrize(
    ("release", "text"), [("1.36", "cannot change roleRef"), ("1.37", "field is immutable")]
)
def test_a_changed_role_reference_is_refused_in_the_words_of_a_release(release, text):
    server = server_of(release)
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "a"}
    made = {"metadata": {"name": "b"}, "roleRef": role}
    sent(server, "POST", BINDINGS, made)
    answer = sent(server, "PUT", f"{BINDINGS}/b", {**made, "roleRef": {**role, "name": "c"}})
    assert answer["message"].endswith(text)


def test_watches_do_not_begin_with_all_objects_where_the_gate_is_off():
    query = "watch=1&sendInitialEvents=true"
    wrong = sent(server_of("1.33"), "GET", CONFIG_MAPS, query=query)["message"]
    assert "unless the WatchList feature gate is enabled" in wrong
    wrong = sent(server_of("1.34"), "GET", CONFIG_MAPS, query=query)["message"]
    assert "WatchList" not in wrong


@pytest.mark.parametrize("release", RELEASES)
def test_a_cluster_begins_with_the_roles_of_its_release(release):
    there = recorded(release)["bootstrap"]
    mine = expected(release)
    for plural, name in (
        ("flowschemas", "flowschemas"),
        ("prioritylevelconfigurations", "prioritylevels"),
    ):
        assert {each["metadata"]["name"] for each in mine[plural]} == set(there[name])
    for plural in ("clusterroles", "clusterrolebindings"):
        assert {each["metadata"]["name"] for each in mine[plural]} == set(there[plural])
    if release == "1.37":
        rules = recorded(release)["clusterRoleRules"]
        assert {each["metadata"]["name"]: each["rules"] for each in mine["clusterroles"]} == rules


def test_roles_for_devices_come_with_the_gate_where_a_release_has_it_off():
    def names(features):
        return {each["metadata"]["name"] for each in expected("1.33", features)["clusterroles"]}

    on = default_of("1.33") | {"DynamicResourceAllocation"}
    assert names(on) - names(default_of("1.33")) == {"system:controller:resource-claim-controller"}


PODS = "/api/v1/namespaces/default/pods"


def pod(**spec):
    return {
        "metadata": {"name": "p"},
        "spec": {"containers": [{"name": "c", "image": "i"}], **spec},
    }


def test_a_field_whose_gate_is_off_is_dropped_and_kept_where_it_is_in_use():
    made = pod(evictionResponders=[{"name": "example.com/a", "priority": 10000}])
    off = server_of("1.37")
    assert "evictionResponders" not in sent(off, "POST", PODS, made)["spec"]
    gates = with_gates("EvictionRequestAPI=true", release="1.37")
    on = server_of("1.37", features=gates)
    stored = sent(on, "POST", PODS, made)
    assert stored["spec"]["evictionResponders"] == made["spec"]["evictionResponders"]
    # The gate is switched off while an object uses it.
    again = ApiServer(on.store, kinds=Kinds.standard(also=(), release="1.37"))
    stored["metadata"]["labels"] = {"a": "b"}
    assert "evictionResponders" in sent(again, "PUT", f"{PODS}/p", stored)["spec"]


GROUP = {"schedulingGroup": {"podGroupName": "g"}}


def test_the_default_server_has_no_gangs_unless_the_gate_is_on():
    made = pod(**GROUP)
    assert "schedulingGroup" not in sent(ApiServer(MemoryStore()), "POST", PODS, made)["spec"]
    on = with_gates("GenericWorkload=true")
    stored = sent(ApiServer(MemoryStore(), features=on), "POST", PODS, made)
    assert stored["spec"]["schedulingGroup"] == GROUP["schedulingGroup"]


def test_pods_have_no_claims_where_devices_are_off():
    claims = [{"name": "d", "resourceClaimName": "c"}]
    container = {"name": "c", "image": "i", "resources": {"claims": [{"name": "d"}]}}
    made = pod(resourceClaims=claims, containers=[container])
    stored = sent(server_of("1.33"), "POST", PODS, made)["spec"]
    assert "resourceClaims" not in stored
    assert stored["containers"][0]["resources"] == {}
    on = with_gates("DynamicResourceAllocation=true", release="1.33")
    stored = sent(server_of("1.33", features=on), "POST", PODS, made)["spec"]
    assert stored["resourceClaims"] == claims
    assert sent(server_of("1.34"), "POST", PODS, made)["spec"]["resourceClaims"] == claims


@pytest.mark.parametrize(("release", "has"), [("1.34", False), ("1.36", True)])
def test_pods_get_the_topology_of_their_node_where_a_release_has_the_gate_on(release, has):
    server = server_of(release)
    labels = {"topology.kubernetes.io/zone": "z1", "kubernetes.io/hostname": "n"}
    sent(server, "POST", "/api/v1/nodes", {"metadata": {"name": "n", "labels": labels}})
    bound = {"metadata": {"name": "p"}, "target": {"kind": "Node", "name": "n"}}
    sent(server, "POST", PODS, pod())
    sent(server, "POST", f"{PODS}/p/binding", bound)
    direct = sent(server, "POST", PODS, {**pod(nodeName="n"), "metadata": {"name": "q"}})
    for found in (sent(server, "GET", f"{PODS}/p"), direct):
        zone = {"topology.kubernetes.io/zone": "z1"} if has else None
        assert found["metadata"].get("labels") == zone


NAMED = ("1a", "a")


@pytest.mark.parametrize(("release", "taken"), [("1.35", ["a"]), ("1.36", ["1a", "a"])])
def test_services_may_begin_with_a_digit_where_a_release_has_the_gate_on(release, taken):
    server, path = server_of(release), "/api/v1/namespaces/default/services"
    spec = {"ports": [{"port": 80}]}
    made = [sent(server, "POST", path, {"metadata": {"name": n}, "spec": spec}) for n in NAMED]
    assert [each["metadata"]["name"] for each in made if each["kind"] == "Service"] == taken
    path = "/apis/networking.k8s.io/v1/namespaces/default/ingresses"
    for name in NAMED:
        backend = {"service": {"name": name, "port": {"number": 80}}}
        found = sent(
            server,
            "POST",
            path,
            {"metadata": {"name": name}, "spec": {"defaultBackend": backend}},
        )
        assert (found["kind"] == "Ingress") is (name in taken)


def test_words_of_rules_that_are_tags_are_those_of_a_release():
    made = {"metadata": {"name": "h"}, "spec": {"scaleTargetRef": {"kind": "K", "name": "n"}}}
    path = "/apis/autoscaling/v2/namespaces/default/horizontalpodautoscalers"
    for release, text in (("1.36", "Required value: must be set"), ("1.37", "Required value,")):
        assert text in sent(server_of(release), "POST", path, made)["message"]


CLAIMS = "/apis/resource.k8s.io/{}/namespaces/default/resourceclaims"


@pytest.mark.parametrize("version", ["v1alpha3", "v1beta1"])
def test_the_oldest_version_of_a_claim_is_as_v1beta1(version):
    server = ApiServer(MemoryStore(), kinds=Kinds.standard(release="1.32"))
    request = {"name": "r", "deviceClassName": "gpu"}
    made = {"metadata": {"name": "c"}, "spec": {"devices": {"requests": [request]}}}
    stored = sent(server, "POST", CLAIMS.format(version), made)
    assert stored["apiVersion"] == f"resource.k8s.io/{version}"
    for shown in ("v1alpha3", "v1beta1"):
        (each,) = sent(server, "GET", f"{CLAIMS.format(shown)}/c")["spec"]["devices"]["requests"]
        assert each == {**request, "allocationMode": "ExactCount", "count": 1}
    wrong = {**made, "spec": {"devices": {"requests": [{**request, "count": -1}]}}}
    answer = sent(server, "POST", CLAIMS.format(version), wrong)
    assert answer["details"]["causes"][0]["field"] == "spec.devices.requests[0].count"


@pytest.mark.parametrize("release", ["1.32", *RELEASES])
def test_every_collection_of_a_release_is_listed_and_described(release):
    server = ApiServer(MemoryStore(), kinds=Kinds.standard(release=release))
    kinds = [kind for kind in server.resources.kinds if "list" in kind.verbs]
    assert len(kinds) > 60
    for kind in kinds:
        found = sent(server, "GET", f"{kind.path}/{kind.plural}")
        assert (found["kind"], found["apiVersion"]) == (kind.list_kind, kind.api_version)
    for place in sent(server, "GET", "/openapi/v3")["paths"]:
        assert sent(server, "GET", f"/openapi/v3/{place}")["openapi"] == "3.0.0"


NEW = {
    "lifecycle.k8s.io/v1alpha1/evictionrequests": {"spec": {"target": {"pod": {"name": "p"}}}},
    "scheduling.k8s.io/v1alpha3/compositepodgroups": {"spec": {}},
    "scheduling.k8s.io/v1beta1/workloads": {"spec": {}},
    "storagemigration.k8s.io/v1/storageversionmigrations": {
        "spec": {"resource": {"group": "", "resource": "pods"}}
    },
}


@pytest.mark.parametrize("path", NEW)
def test_new_kinds_of_1_37_are_stored(path):
    server = ApiServer(MemoryStore(), kinds=Kinds.standard(release="1.37"))
    version, _, plural = path.rpartition("/")
    kind = server.resources.kinds.find(*version.split("/"), plural)
    where = (
        f"{kind.path}/namespaces/default/{plural}" if kind.namespaced else f"{kind.path}/{plural}"
    )
    stored = sent(server, "POST", where, {"metadata": {"name": "a"}, **NEW[path]})
    if stored["kind"] == "Status":  # what another change validates
        assert stored["reason"] == "Invalid"
    else:
        (listed,) = sent(server, "GET", where)["items"]
        assert listed["metadata"]["name"] == "a"
