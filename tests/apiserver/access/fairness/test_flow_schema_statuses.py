"""A FlowSchema says in its status whether its priority level exists."""

import pytest

from apiserver.verbs.asking import Asked
from dralab.apiserver.verbs.upkeep.flow_schema_statuses import FlowSchemaStatuses

FLOW = "/apis/flowcontrol.apiserver.k8s.io/v1"
LEVEL = {
    "metadata": {"name": "l"},
    "spec": {"type": "Limited", "limited": {"limitResponse": {"type": "Reject"}}},
}


@pytest.fixture
def ask():
    found = Asked()
    found("POST", f"{FLOW}/flowschemas", schema("before"))
    FlowSchemaStatuses(found.resources.context).follow()
    return found


def schema(name):
    spec = {"priorityLevelConfiguration": {"name": "l"}, "matchingPrecedence": 5}
    return {"metadata": {"name": name}, "spec": spec}


def dangling(ask, name):
    (found,) = ask("GET", f"{FLOW}/flowschemas/{name}")[1]["status"]["conditions"]
    assert found.pop("lastTransitionTime")
    assert found.pop("type") == "Dangling"
    return tuple(found.values())


def test_the_status_follows_the_level(ask):
    named = 'This FlowSchema references the PriorityLevelConfiguration object named "l"'
    missing = ("True", "NotFound", f"{named} but there is no such object")
    there = ("False", "Found", f"{named} and it exists")
    assert dangling(ask, "before") == missing
    assert ask("POST", f"{FLOW}/prioritylevelconfigurations", LEVEL)[0] == 201
    assert dangling(ask, "before") == there
    assert ask("POST", f"{FLOW}/flowschemas", schema("after"))[0] == 201
    assert dangling(ask, "after") == there
    assert ask("DELETE", f"{FLOW}/prioritylevelconfigurations/l")[0] == 200
    assert dangling(ask, "before") == dangling(ask, "after") == missing


def test_a_status_that_is_right_is_not_written_again(ask):
    before = ask("GET", f"{FLOW}/flowschemas/before")[1]["metadata"]["resourceVersion"]
    ask.merge(f"{FLOW}/flowschemas/before", {"metadata": {"labels": {"a": "b"}}})
    after = ask("GET", f"{FLOW}/flowschemas/before")[1]["metadata"]["resourceVersion"]
    assert int(after) == int(before) + 1
