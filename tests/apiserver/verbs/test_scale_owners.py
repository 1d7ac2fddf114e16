"""Who owns the replicas of an object after writes to its Scale, as a kube-apiserver 1.36.2 says."""

import json

import pytest

from dralab.apiserver.conformance.senders import TOKEN, InProcess, Question

DEPLOYMENTS = "/apis/apps/v1/namespaces/q/deployments"
SPEC = {
    "replicas": 1,
    "selector": {"matchLabels": {"a": "b"}},
    "template": {
        "metadata": {"labels": {"a": "b"}},
        "spec": {"containers": [{"name": "c", "image": "x"}]},
    },
}
APPLY = "application/apply-patch+yaml"


@pytest.fixture
def server():
    found = InProcess()
    ask(found, "POST", "/api/v1/namespaces", {"metadata": {"name": "q"}})
    body = {"metadata": {"name": "d"}, "spec": SPEC}
    assert ask(found, "POST", f"{DEPLOYMENTS}?fieldManager=maker", body)[0] == 201
    return found


def ask(server, method, target, body=None, form="application/json"):
    headers = {"Authorization": f"Bearer {TOKEN}", "Content-Type": form}
    data = b"" if body is None else json.dumps(body).encode()
    reply = server.send(Question(method=method, target=target, headers=headers, body=data))
    return int(reply.status), reply.json()


def scaled(server, method, query, replicas, form="application/json"):
    body = {"apiVersion": "autoscaling/v1", "kind": "Scale", "metadata": {"name": "d"}}
    if replicas is not None:
        body["spec"] = {"replicas": replicas}
    code, found = ask(server, method, f"{DEPLOYMENTS}/d/scale?{query}", body, form)
    return found.get("message", code)


def owners(server):
    entries = ask(server, "GET", f"{DEPLOYMENTS}/d")[1]["metadata"]["managedFields"]
    return [
        (entry["manager"], entry["operation"], entry.get("subresource"))
        for entry in entries
        if "f:replicas" in entry["fieldsV1"].get("f:spec", {})
    ]


def test_a_writer_of_the_scale_takes_the_number_from_its_owner(server):
    assert owners(server) == [("maker", "Update", None)]
    assert scaled(server, "PUT", "fieldManager=p", 2) == 200
    assert owners(server) == [("p", "Update", "scale")]
    entries = ask(server, "GET", f"{DEPLOYMENTS}/d")[1]["metadata"]["managedFields"]
    assert [entry["manager"] for entry in entries if "time" not in entry] == ["p"]


def test_an_apply_to_the_scale_conflicts_with_other_owners(server):
    words = "Apply failed with 1 conflict: conflict with "
    assert scaled(server, "PATCH", "fieldManager=m1", 3, APPLY) == (
        f'{words}"maker" using autoscaling/v1: .spec.replicas'
    )
    assert scaled(server, "PATCH", "fieldManager=m1&force=true", 3, APPLY) == 200
    assert scaled(server, "PATCH", "fieldManager=m2", 3, APPLY) == 200
    assert owners(server) == [("m1", "Apply", "scale"), ("m2", "Apply", "scale")]
    assert scaled(server, "PATCH", "fieldManager=m2", 4, APPLY) == (
        f'{words}"m1" with subresource "scale": .spec.replicas'
    )
    assert scaled(server, "PATCH", "fieldManager=m1", None, APPLY) == 200
    assert owners(server) == [("m2", "Apply", "scale")]
