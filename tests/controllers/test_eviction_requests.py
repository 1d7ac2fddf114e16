"""EvictionRequests: whose turn it is, and how they end."""

import pytest

from builders import pod, worker
from dralab.api.resource.features import default_of
from dralab.controllers.eviction_requests import EvictionRequests
from dralab.controllers.eviction_steps import EVICTOR
from dralab.runtime.resources import DISRUPTION_BUDGETS, EVICTION_REQUESTS, EVICTIONS, NODES, PODS
from labs import Lab

MOVER, KEEPER = "move.example.com/pods", "keep.example.com/data"


@pytest.fixture
def lab():
    made = Lab(
        features=default_of("1.37") | {"EvictionRequestAPI", "GenericWorkload"}, release="1.37"
    )
    EvictionRequests(made.manager, made.api.resources.kinds)
    made.server.add(NODES, worker("n"))
    made.start()
    return made


def running(lab, name="p", *responders, **more):
    named = [{"name": each, "priority": 5000 - i} for i, each in enumerate(responders)]
    (made,) = lab.add(PODS, pod(name, nodeName="n", evictionResponders=named, **more))
    return made


def ask(lab, target, name="r", requester="ops.example.com/me"):
    spec = {
        "target": {"pod": {"name": target["metadata"]["name"], "uid": target["metadata"]["uid"]}},
        "requester": requester,
        "intent": "Eviction",
    }
    lab.add(EVICTION_REQUESTS, {"metadata": {"name": name, "namespace": "default"}, "spec": spec})
    lab.wait(1)


def withdraw(lab, name="r"):
    patch = {"spec": {"intent": "Withdrawn"}}
    lab.server.patch(EVICTION_REQUESTS, name, patch, "default", type="merge")
    lab.wait(1)


def eviction(lab):
    (found,) = lab.all(EVICTIONS)
    return found


def states(lab):
    return {each["name"]: each["state"] for each in eviction(lab)["status"]["targetResponders"]}


def respond(lab, name, **more):
    held = eviction(lab)
    told = [
        {**each, **more} if each["name"] == name else each for each in held["status"]["responders"]
    ]
    changed = {**held, "status": {**held["status"], "responders": told}}
    lab.server.update(EVICTIONS, changed, subresource="status")
    lab.wait(1)


def outcome(obj):
    return {each["type"]: (each["status"], each["reason"]) for each in obj["status"]["conditions"]}


def is_leaving(lab, name="p"):
    return all(
        each["metadata"]["name"] != name or "deletionTimestamp" in each["metadata"]
        for each in lab.all(PODS)
    )


def test_a_pod_without_responders_is_evicted_at_once(lab):
    ask(lab, running(lab))
    assert is_leaving(lab)
    assert states(lab) == {EVICTOR: "Active"}
    lab.server.delete(PODS, "p", "default", options={"gracePeriodSeconds": 0})
    lab.wait(1)
    assert states(lab) == {EVICTOR: "Completed"}
    for obj in (eviction(lab), lab.get(EVICTION_REQUESTS, "r")):
        assert outcome(obj)["TargetEvicted"] == ("True", "PodDeleted")


def test_responders_act_one_after_the_other_by_priority(lab):
    ask(lab, running(lab, "p", MOVER, KEEPER))
    assert states(lab) == {MOVER: "Active", KEEPER: "Inactive", EVICTOR: "Inactive"}
    assert not is_leaving(lab)
    respond(lab, MOVER, completionTime=lab.manager.now())
    assert states(lab) == {MOVER: "Completed", KEEPER: "Active", EVICTOR: "Inactive"}
    respond(lab, KEEPER, completionTime=lab.manager.now())
    assert states(lab)[EVICTOR] == "Active"
    assert is_leaving(lab)


def test_who_is_silent_for_20_minutes_is_passed_over(lab):
    ask(lab, running(lab, "p", MOVER))
    lab.wait(15 * 60)
    respond(lab, MOVER, heartbeatTime=lab.manager.now())
    lab.wait(15 * 60)
    assert states(lab)[MOVER] == "Active"
    lab.wait(6 * 60)
    assert states(lab) == {MOVER: "Interrupted", EVICTOR: "Active"}
    assert is_leaving(lab)


def test_an_eviction_that_nobody_wants_any_more_is_canceled(lab):
    target = running(lab, "p", MOVER)
    ask(lab, target)
    ask(lab, target, "r2", "other.example.com/you")
    assert len(lab.all(EVICTIONS)) == 1
    withdraw(lab)
    assert states(lab)[MOVER] == "Active"
    withdraw(lab, "r2")
    assert states(lab) == {MOVER: "Canceled", EVICTOR: "Inactive"}
    assert outcome(eviction(lab))["Failed"] == ("True", "CanceledDueToNoRequesters")
    assert {each["intent"] for each in eviction(lab)["status"]["requesters"]} == {"Withdrawn"}
    for name in ("r", "r2"):
        lab.server.delete(EVICTION_REQUESTS, name, "default")
    lab.wait(1)
    assert lab.all(EVICTIONS) == []


def test_a_budget_delays_the_last_responder(lab):
    budget = {"metadata": {"name": "b", "namespace": "default"}}
    spec = {"minAvailable": 1, "selector": {"matchLabels": {"app": "a"}}}
    lab.server.add(DISRUPTION_BUDGETS, {**budget, "spec": spec})
    ready = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}
    ask(lab, running(lab, "p", labels={"app": "a"}, status=ready))
    assert not is_leaving(lab)
    (told,) = eviction(lab)["status"]["responders"]
    assert "disruption" in told["message"]
    lab.server.delete(DISRUPTION_BUDGETS, "b", "default")
    lab.wait(11)
    assert is_leaving(lab)


def test_the_roles_are_labels(lab):
    ask(lab, running(lab, "p", MOVER), requester=MOVER)
    assert eviction(lab)["metadata"]["labels"] == {
        MOVER: "requester-responder", EVICTOR: "responder",
    }  # fmt: skip


def test_pods_of_groups_are_refused(lab):
    ask(lab, running(lab, "p", schedulingGroup={"podGroupName": "g"}))
    assert lab.all(EVICTIONS) == []
    assert outcome(lab.get(EVICTION_REQUESTS, "r"))["Failed"] == ("True", "EvictionInvalid")


def test_where_nobody_serves_requests_the_controller_rests():
    lab = Lab()
    EvictionRequests(lab.manager, lab.api.resources.kinds)
    lab.start()
    assert not [each for each in lab.server.log if each[1].startswith("eviction")]


def test_a_budget_may_delay_it_for_hours(lab):
    budget = {"metadata": {"name": "b", "namespace": "default"}}
    spec = {"minAvailable": 1, "selector": {"matchLabels": {"app": "a"}}}
    lab.server.add(DISRUPTION_BUDGETS, {**budget, "spec": spec})
    ready = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}
    ask(lab, running(lab, "p", labels={"app": "a"}, status=ready))
    lab.wait(2 * 60 * 60)
    assert states(lab) == {EVICTOR: "Active"}
    lab.server.delete(DISRUPTION_BUDGETS, "b", "default")
    lab.wait(11)
    assert is_leaving(lab)
