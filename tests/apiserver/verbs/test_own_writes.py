"""No policy or webhook of a user is asked about what the server writes for itself."""

import pytest

from admissions import GROUP, ask
from builders import pod as new_pod
from dralab.apiserver.server import ApiServer
from dralab.apiserver.storage import Key, MemoryStore
from dralab.apiserver.verbs.upkeep.own_objects import RENEWAL, OwnAddress
from dralab.apiserver.verbs.upkeep.policy_statuses import PolicyStatuses
from dralab.kernel.clock import ManualClock
from dralab.kernel.randomness import Randomness

PODS = "/api/v1/namespaces/default/pods"
CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
EVERYTHING = {
    "apiGroups": ["*"],
    "apiVersions": ["*"],
    "operations": ["*"],
    "resources": ["*/*"],
}
DENIES = {
    "metadata": {"name": "deny"},
    "spec": {
        "matchConstraints": {
            "resourceRules": [EVERYTHING],
            "excludeResourceRules": [{**EVERYTHING, "resources": ["pods/eviction", "pods"]}],
        },
        "validations": [{"expression": "false", "message": "nothing is allowed"}],
    },
}


def started(store, clock):
    server = ApiServer(store, clock=clock, randomness=Randomness(1), service_network="10.0.0.0/16")
    server.publish(OwnAddress(host="192.0.2.7", port=6443, machine="m", network="10.0.0.0/16"))
    return server


def denying(server):
    """Deny every write but that of pods from now on."""
    bound = {
        "metadata": {"name": "deny"},
        "spec": {"policyName": "deny", "validationActions": ["Deny"]},
    }
    for plural, body in (("ies", DENIES), ("ybindings", bound)):
        status, found = ask(server, "POST", f"{GROUP}/validatingadmissionpolic{plural}", body)
        assert status == 201, found
    refused, found = ask(server, "POST", "/api/v1/namespaces", {"metadata": {"name": "x"}})
    assert (refused, "nothing is allowed" in found["message"]) == (422, True)


@pytest.fixture
def clock():
    return ManualClock(1_800_000_000 * 10**9)


@pytest.fixture
def server(clock):
    return started(MemoryStore(), clock)


def keys(server):
    found = server.resources.context.store
    return {item.key for name in found.resources() for item in found.list(name).items}


def test_a_server_starts_on_a_store_in_which_everything_is_denied(server, clock):
    denying(server)
    store, before = server.resources.context.store, keys(server)
    mine = {"deny", "validatingadmissionpolicies"}
    gone = [key for key in before if key.name not in mine and key.resource != "leases"]
    for key in gone:
        store.delete(key)
    again = started(store, clock)
    assert keys(again) == before, "its namespaces, classes, roles, services, its configuration"


def test_the_lease_is_renewed(server, clock):
    denying(server)
    store = server.resources.context.store

    def leases():
        return [item.revision for item in store.list("coordination.k8s.io/leases").items]

    before = leases()
    clock.advance(RENEWAL)
    server.tick()
    assert before
    assert leases() > before


def test_a_definition_is_established_and_takes_its_objects_along(server):
    version = {
        "name": "v1",
        "served": True,
        "storage": True,
        "schema": {"openAPIV3Schema": {"type": "object"}},
    }
    value = {
        "metadata": {"name": "foos.x.io"},
        "spec": {
            "group": "x.io",
            "scope": "Cluster",
            "names": {"plural": "foos", "kind": "Foo"},
            "versions": [version],
        },
    }
    foo = {"apiVersion": "x.io/v1", "kind": "Foo", "metadata": {"name": "a"}}
    exempt = {**EVERYTHING, "resources": ["customresourcedefinitions"]}
    denied = DENIES["spec"]["matchConstraints"]
    spared = {**denied, "excludeResourceRules": [exempt]}
    body = {**DENIES, "spec": {**DENIES["spec"], "matchConstraints": spared}}
    bound = {"policyName": "deny", "validationActions": ["Deny"]}
    ask(server, "POST", f"{GROUP}/validatingadmissionpolicies", body)
    url = f"{GROUP}/validatingadmissionpolicybindings"
    made, _ = ask(server, "POST", CRDS, value)
    assert made == 201
    assert ask(server, "POST", "/apis/x.io/v1/foos", foo)[0] == 201
    ask(server, "POST", url, {"metadata": {"name": "deny"}, "spec": bound})
    assert ask(server, "DELETE", "/apis/x.io/v1/foos/a")[0] == 422
    later = {
        **value,
        "metadata": {"name": "bars.x.io"},
        "spec": {**value["spec"], "names": {"plural": "bars", "kind": "Bar"}},
    }
    assert ask(server, "POST", CRDS, later)[0] == 201
    conditions = ask(server, "GET", f"{CRDS}/bars.x.io")[1]["status"]["conditions"]
    assert {each["type"]: each["status"] for each in conditions}["Established"] == "True"
    assert ask(server, "DELETE", f"{CRDS}/foos.x.io")[0] == 200
    server.tick()
    assert ask(server, "GET", f"{CRDS}/foos.x.io")[0] == 404
    assert server.resources.context.store.get(Key("x.io/foos", "", "a")) is None


def test_an_eviction_is_noted_in_its_budget(server):
    pod = new_pod("p")
    pod["metadata"] = {"name": "p", "labels": {"app": "a"}}
    pod["spec"]["nodeName"] = "n"
    assert ask(server, "POST", PODS, pod)[0] == 201
    ready = {"type": "Ready", "status": "True"}
    status = {"status": {"phase": "Running", "conditions": [ready]}}
    media = "application/merge-patch+json"
    assert ask(server, "PATCH", f"{PODS}/p/status", status, media)[0] == 200
    budgets = "/apis/policy/v1/namespaces/default/poddisruptionbudgets"
    spec = {"minAvailable": 0, "selector": {"matchLabels": {"app": "a"}}}
    assert ask(server, "POST", budgets, {"metadata": {"name": "b"}, "spec": spec})[0] == 201
    allowed = {
        "observedGeneration": 1,
        "disruptionsAllowed": 1,
        "currentHealthy": 1,
        "desiredHealthy": 0,
        "expectedPods": 1,
    }
    code, found = ask(server, "PATCH", f"{budgets}/b/status", {"status": allowed}, media)
    assert code == 200, found
    denying(server)
    evicts = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "p"}}
    code, found = ask(server, "POST", f"{PODS}/p/eviction", evicts)
    assert code == 201, found
    assert ask(server, "GET", f"{budgets}/b")[1]["status"]["disruptionsAllowed"] == 0


def test_the_status_of_a_policy_is_written(server):
    denying(server)
    PolicyStatuses(server.resources.context).check("deny")
    found = ask(server, "GET", f"{GROUP}/validatingadmissionpolicies/deny")[1]
    assert found["status"]["observedGeneration"] == 1
