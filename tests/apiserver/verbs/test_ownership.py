"""Whose fields are whose after writes that are not applies, and what reviews say of themselves."""

import pytest

from apiserver.verbs.asking import Asked

MAPS = "/api/v1/namespaces/default/configmaps"


@pytest.fixture
def ask() -> Asked:
    return Asked()


def owners(obj):
    return {
        entry["manager"]: sorted(entry["fieldsV1"].get("f:data", {}))
        for entry in obj["metadata"]["managedFields"]
    }


def test_a_change_takes_the_fields_that_it_changes(ask):
    one = {"metadata": {"name": "a"}, "data": {"k": "1", "l": "1"}}
    _, made = ask("POST", f"{MAPS}?fieldManager=first", one)
    assert owners(made) == {"first": [".", "f:k", "f:l"]}
    made["data"]["l"] = "2"
    _, changed = ask("PUT", f"{MAPS}/a?fieldManager=second", made)
    assert owners(changed) == {"first": [".", "f:k"], "second": ["f:l"]}


def test_a_write_that_changes_nothing_takes_nothing(ask):
    one = {"metadata": {"name": "a"}, "data": {"k": "1"}}
    _, made = ask("POST", f"{MAPS}?fieldManager=first", one)
    assert ask("PUT", f"{MAPS}/a?fieldManager=second", made)[1] == made


def test_a_review_of_oneself_has_a_time_and_others_have_owners(ask):
    _, mine = ask("POST", "/apis/authentication.k8s.io/v1/selfsubjectreviews", {})
    assert set(mine["metadata"]) == {"creationTimestamp"}
    attributes = {"resourceAttributes": {"verb": "get", "resource": "pods"}}
    path = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
    _, access = ask("POST", path, {"spec": attributes})
    assert set(access["metadata"]) == {"managedFields"}
