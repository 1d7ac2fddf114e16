"""The unmodified dra-example-driver, a Go program, under `dralab node`."""

import pytest

import exampledriver
from dralab.api.status import ApiError
from dralab.drivers.catalog import device_class
from dralab.runtime.resources import CLAIMS, CLASSES, EVENTS, PODS, SLICES
from processes import Processes

pytestmark = [
    pytest.mark.conformance,
    pytest.mark.skipif(exampledriver.BINARY is None, reason=exampledriver.MISSING),
]
DRIVER = exampledriver.NAME


@pytest.fixture
def lab():
    pytest.importorskip("grpc", reason="the extra dralab[grpc] is not installed")
    with Processes() as running:
        running.node("n1")
        running.client.create(CLASSES, device_class(DRIVER))
        yield running
        print(running.said("go") if "go" in running.running else "")  # noqa: T201 - of a failure


def start(lab):
    exampledriver.start(lab, "n1")


def slices(lab):
    return lab.client.list(SLICES, field_selector=f"spec.driver={DRIVER},spec.nodeName=n1").items


def gone(lab):
    try:
        lab.client.get(PODS, "job", "default")
    except ApiError as error:
        return error.reason == "NotFound"
    return False


def test_a_pod_gets_a_device_and_gives_it_back(lab):
    start(lab)
    (found,) = lab.until(lambda: slices(lab), "go")
    assert [device["name"] for device in found["spec"]["devices"]] == ["gpu-0", "gpu-1"]
    assert found["metadata"]["ownerReferences"][0]["name"] == "n1"
    lab.create_pod()
    lab.until(lambda: lab.phase() == "Running")
    (claim,) = lab.client.list(CLAIMS).items
    (result,) = claim["status"]["allocation"]["devices"]["results"]
    (told,) = claim["status"]["devices"]
    uuids = {d["name"]: d["attributes"]["uuid"] for d in found["spec"]["devices"]}
    assert told["data"]["uuid"] == uuids[result["device"]]
    seen = lab.until(lambda: lab.environment().get("KUBERNETES_NODE_NAME") and lab.environment())
    number = result["device"].removeprefix("gpu-")
    assert seen["DRA_RESOURCE_DRIVER_NAME"] == DRIVER
    assert seen[f"GPU_DEVICE_{number}"] == result["device"]
    assert seen[f"GPU_DEVICE_{number}_SHARING_STRATEGY"] == "TimeSlicing"
    assert seen[f"GPU_DEVICE_GPU_{number}_RESOURCE_CLAIM"] == claim["metadata"]["uid"]
    assert len(lab.cdi()) == 1
    lab.client.delete(PODS, "job", "default")
    lab.until(lambda: gone(lab))
    assert lab.cdi() == []
    lab.until(lambda: not lab.client.list(CLAIMS).items)
    assert "UnprepareResourceClaims is called" in lab.said("go")
    assert lab.stop("go") == 0
    assert not list((lab.root / "k" / "plugins_registry").iterdir())


def test_a_killed_driver_loses_its_slices_and_publishes_again(lab):
    start(lab)
    lab.until(lambda: slices(lab), "go")
    lab.create_pod()
    lab.until(lambda: lab.phase() == "Running")
    before = slices(lab)[0]["metadata"]["uid"]
    lab.kill("go")
    # The sockets are still there; 30 s after the last connection broke the slices are not.
    assert list((lab.root / "k" / "plugins_registry").iterdir())
    lab.until(lambda: not slices(lab))
    lab.client.delete(PODS, "job", "default")
    lab.until(lambda: "DRA driver gpu.example.com" in told(lab) or "Unavailable" in told(lab))
    start(lab)
    (after,) = lab.until(lambda: slices(lab), "go")
    assert after["metadata"]["uid"] != before
    lab.until(lambda: gone(lab))
    assert lab.cdi() == []


def told(lab):
    """Return the messages of all events."""
    return " ".join(event["message"] for event in lab.client.list(EVENTS, "default").items)


def test_a_claim_stays_prepared_while_the_node_begins_again(lab):
    start(lab)
    lab.until(lambda: slices(lab), "go")
    lab.create_pod()
    lab.until(lambda: lab.phase() == "Running")
    lab.kill("node")
    lab.node("n1")
    # A new kubelet takes away what it does not know to be true; the driver waits 30 s.
    lab.until(lambda: slices(lab), "go")
    lab.until(lambda: lab.said("go").count("PrepareResourceClaims is called") >= 2)
    assert len(lab.cdi()) == 1
    lab.client.delete(PODS, "job", "default")
    lab.until(lambda: gone(lab))
    assert lab.cdi() == []
