"""What is written of a pod with claims on its way to running, and what is not worth a write."""

import pytest

from dralab import SimulatedCluster
from dralab.drivers.fake.gpu import FakeGpus
from dralab.kernel.clock import SECOND
from dralab.runtime.resources import CLAIM_TEMPLATES, EVENTS, PODS

EXACTLY = {"deviceClassName": "gpu.example.com"}
TEMPLATE = {
    "apiVersion": "resource.k8s.io/v1",
    "kind": "ResourceClaimTemplate",
    "metadata": {"name": "gpu", "namespace": "default"},
    "spec": {"spec": {"devices": {"requests": [{"name": "gpu", "exactly": EXACTLY}]}}},
}
POD = {
    "metadata": {"name": "p", "namespace": "default"},
    "spec": {
        "containers": [{"name": "c", "image": "x", "resources": {"claims": [{"name": "gpu"}]}}],
        "resourceClaims": [{"name": "gpu", "resourceClaimTemplateName": "gpu"}],
    },
}


@pytest.fixture
def lab():
    return SimulatedCluster(nodes=["n1"], drivers=[FakeGpus])


def states(lab, seconds):
    """Let a pod begin; return the states of its container, as watchers see them."""
    watch = lab.client.watch(PODS, revision=lab.client.list(PODS).revision)
    lab.client.create(PODS, POD, "default")
    lab.wait(seconds)
    found = []
    while (event := watch.next(0)) is not None:
        for each in event.object["status"].get("containerStatuses") or ():
            (state,) = each["state"]
            if [state] != found[-1:]:
                found.append(state)
    watch.close()
    return found


def complaints(lab):
    events = lab.client.list(EVENTS, "default").items
    return [event["message"] for event in events if event["reason"] == "FailedScheduling"]


def test_a_driver_that_answers_at_once_saves_a_status(lab):
    lab.client.create(CLAIM_TEMPLATES, TEMPLATE, "default")
    assert states(lab, 5) == ["running"]
    assert complaints(lab) == []


def test_a_driver_that_takes_its_time_is_waited_for_in_view(lab):
    lab.client.create(CLAIM_TEMPLATES, TEMPLATE, "default")
    at_once = lab.engine.offload

    def slowly(work, done, **lane):
        lab.engine.after(SECOND // 2, lambda: at_once(work, done, **lane))

    lab.engine.offload = slowly
    assert states(lab, 10) == ["waiting", "running"]


def test_a_claim_that_is_not_made_within_a_second_is_told(lab):
    lab.client.create(PODS, POD, "default")
    lab.wait(0.5)
    assert complaints(lab) == []
    lab.wait(1)
    (message,) = complaints(lab)
    assert 'pod "default/p": ResourceClaim not created yet. (DRA066)' in message
    lab.client.create(CLAIM_TEMPLATES, TEMPLATE, "default")
    lab.wait(60)
    assert lab.client.get(PODS, "p", "default")["status"]["phase"] == "Running"
