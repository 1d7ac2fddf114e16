"""The structured flavour of the fake driver: in-tree parameters, slices, a node's model, sharing."""

import pytest

from dralab.components.nodes import FAKE_NODE
from dralab.contracts.plugin import ClaimRef
from dralab.drivers.classic.named_resources import chosen, resources
from dralab.drivers.classic.plugin import ClassicPlugin
from dralab.drivers.fake.demo import DRIVER, children, model_of, parents
from dralab.runtime.resources import (
    ALLOCATION_STATES,
    CLAIM_PARAMETERS,
    CLASSIC_CLAIMS,
    CLASSIC_CLASSES,
    EVENTS,
    FAKE_PARAMETERS,
    NAMED_SLICES,
    NAMESPACES,
)
from fakelab import EXAMPLES, ClassicLab, StructuredLab

OTHER = f"{FAKE_NODE}2"
PARENTS = parents(FAKE_NODE)
TEST7 = (EXAMPLES / "53-fake-driver-structured/fake-test7.yaml").read_text()


@pytest.mark.parametrize(
    ("node", "model"),
    [(FAKE_NODE, "ULTRA_10"), (OTHER, "ULTRA_100"), ("n1", "ULTRA_100"), ("node-0", "ULTRA_100")],
)
def test_the_model_of_a_node_comes_from_its_name(node, model):
    assert model_of(node) == model


@pytest.mark.parametrize("make", [ClassicLab, StructuredLab], ids=["beside classic", "alone"])
def test_the_seventh_demonstration(make):
    lab = make()
    lab.create(TEST7)
    lab.wait(40)
    [pod] = lab.pods("test7").values()
    assert pod["status"]["phase"] == "Running"
    wanted = [child for parent in PARENTS[:4] for child in children(parent, 2)]
    assert lab.devices("test7", "pod0") == wanted

    [made] = lab.client.list(CLAIM_PARAMETERS, "test7").items
    [original] = lab.client.list(FAKE_PARAMETERS, "test7").items
    assert made["metadata"]["name"].startswith("resource-claim-parameters-")
    assert made["metadata"]["ownerReferences"] == [
        {
            "apiVersion": f"{DRIVER}/v1alpha1",
            "kind": "FakeClaimParameters",
            "name": "multiple-fakes",
            "uid": original["metadata"]["uid"],
            "blockOwnerDeletion": True,
        }
    ]
    assert made["generatedFrom"] == {
        "apiGroup": DRIVER, "kind": "FakeClaimParameters", "name": "multiple-fakes",
    }  # fmt: skip
    assert made["shareable"] is True
    [asked] = made["driverRequests"]
    assert asked["driverName"] == DRIVER
    assert asked["vendorParameters"] == original["spec"]
    selector = 'attributes.string["model"] == "ULTRA_10"'
    assert asked["requests"] == [{"namedResources": {"selector": selector}}] * 4

    [claim] = lab.client.list(CLASSIC_CLAIMS, "test7").items
    uid, status = claim["metadata"]["uid"], claim["status"]
    assert claim["metadata"]["finalizers"] == ["dra.k8s.io/delete-protection"]
    assert status["driverName"] == DRIVER
    [handle] = status["allocation"]["resourceHandles"]
    assert handle["structuredData"]["nodeName"] == FAKE_NODE
    assert handle["structuredData"]["vendorClaimParameters"] == original["spec"]
    names = [each["namedResources"]["name"] for each in handle["structuredData"]["results"]]
    assert names == [parent.lower() for parent in PARENTS[:4]]
    spec = lab.state()["spec"]
    assert spec["allocatedClaims"][uid]["fake"]["devices"] == [
        {"uuid": parent, "split": 2} for parent in PARENTS[:4]
    ]
    assert spec["preparedDevices"][uid]["fake"]["devices"] == [
        {"uuid": child, "parentUUID": parent}
        for parent in PARENTS[:4]
        for child in children(parent, 2)
    ]
    lab.remove("test7")
    assert set(lab.state()["spec"]) == {"allocatableDevice"}
    assert not lab.client.list(CLASSIC_CLAIMS).items
    assert not lab.client.list(CLAIM_PARAMETERS).items


@pytest.mark.parametrize(("model", "node"), [("ULTRA_10", FAKE_NODE), ("ULTRA_100", OTHER)])
def test_a_model_leads_to_the_node_that_has_it(model, node):
    lab = StructuredLab(FAKE_NODE, OTHER)
    lab.create(TEST7.replace("ULTRA_10", model))
    lab.wait(40)
    assert lab.pods("test7")["pod0"]["spec"]["nodeName"] == node


def test_a_model_that_nobody_has_leaves_the_pod_pending():
    lab = StructuredLab()
    lab.create(TEST7.replace("ULTRA_10", "ULTRA_1"))
    lab.wait(40)
    [pod] = lab.pods("test7").values()
    [condition] = [c for c in pod["status"]["conditions"] if c["type"] == "PodScheduled"]
    assert condition["message"] == (
        "0/1 nodes are available: resourceclaim cannot be allocated for the node (unsuitable)."
    )


def test_each_node_has_a_slice_with_its_devices_and_their_model():
    lab = ClassicLab(FAKE_NODE, OTHER)
    found = {obj["nodeName"]: obj for obj in lab.client.list(NAMED_SLICES).items}
    assert set(found) == {FAKE_NODE, OTHER}
    for node, obj in found.items():
        assert obj["metadata"]["generateName"] == f"{node}-{DRIVER}-"
        assert [{"namedResources": obj["namedResources"]}] == resources(node, parents(node))
    first = found[FAKE_NODE]["namedResources"]["instances"][0]
    assert first == {
        "name": PARENTS[0].lower(),
        "attributes": [
            {"name": "uuid", "string": PARENTS[0]},
            {"name": "model", "string": "ULTRA_10"},
        ],
    }


@pytest.mark.parametrize(
    ("spec", "count", "selector"),
    [
        ({}, 1, "true"),
        ({"count": 3}, 3, "true"),
        ({"selector": {}}, 1, "true"),
        ({"selector": {"model": 'a"b'}}, 1, 'attributes.string["model"] == "a\\"b"'),
    ],
)
def test_what_parameters_mean_in_tree(spec, count, selector):
    lab = ClassicLab()
    lab.create(parameters(spec))
    [made] = lab.client.list(CLAIM_PARAMETERS, "default").items
    assert (
        made["driverRequests"][0]["requests"]
        == [{"namedResources": {"selector": selector}}] * count
    )


def parameters(spec):
    return {
        "apiVersion": f"{DRIVER}/v1alpha1",
        "kind": "FakeClaimParameters",
        "metadata": {"name": "p", "namespace": "default"},
        "spec": spec,
    }


def test_the_translation_follows_what_it_was_made_from():
    lab = ClassicLab()
    lab.create(parameters({"count": 1}))
    [before] = lab.client.list(CLAIM_PARAMETERS, "default").items
    lab.client.patch(FAKE_PARAMETERS, "p", {"spec": {"count": 2}}, "default")
    lab.wait(1)
    [after] = lab.client.list(CLAIM_PARAMETERS, "default").items
    assert after["metadata"]["uid"] == before["metadata"]["uid"]
    assert len(after["driverRequests"][0]["requests"]) == 2
    lab.client.delete(CLAIM_PARAMETERS, after["metadata"]["name"], "default")
    lab.wait(1)
    [again] = lab.client.list(CLAIM_PARAMETERS, "default").items
    assert again["driverRequests"] == after["driverRequests"]
    lab.client.delete(FAKE_PARAMETERS, "p", "default")
    lab.wait(60)
    assert not lab.client.list(CLAIM_PARAMETERS, "default").items


def test_of_two_translations_one_is_left():
    lab = ClassicLab()
    lab.create(parameters({"count": 2}))
    [made] = lab.client.list(CLAIM_PARAMETERS, "default").items
    metadata = {
        "generateName": "resource-claim-parameters-",
        "namespace": "default",
        "ownerReferences": made["metadata"]["ownerReferences"],
    }
    lab.create({**made, "metadata": metadata})
    lab.wait(1)
    [left] = lab.client.list(CLAIM_PARAMETERS, "default").items
    assert left["driverRequests"] == made["driverRequests"]


def test_parameters_that_ask_for_nothing_leave_an_event_and_no_translation():
    lab = ClassicLab()
    lab.create(parameters({"count": 0}))
    assert not lab.client.list(CLAIM_PARAMETERS, "default").items
    [event] = [e for e in lab.client.list(EVENTS, "default").items if e["reason"] == "Failed"]
    assert event["involvedObject"]["kind"] == "FakeClaimParameters"
    assert "spec.count must be 1 or more" in event["message"]


# --- two flavours on one node ---------------------------------------------------------------------


def test_what_classic_claims_hold_is_not_offered_to_the_scheduler():
    lab = ClassicLab()
    lab.apply(1, 2, 3)
    [obj] = lab.client.list(NAMED_SLICES).items
    assert len(obj["namedResources"]["instances"]) == 4
    lab.create(TEST7)
    lab.wait(40)
    held = {device for pod in ("pod0", "pod1") for device in lab.devices("test1", pod)}
    mine = {each["parentUUID"] for each in prepared(lab, "test7")}
    assert len(mine) == 4
    assert not mine & held
    lab.remove("test1", "test2", "test3", "test7")
    [obj] = lab.client.list(NAMED_SLICES).items
    assert len(obj["namedResources"]["instances"]) == 8


def test_what_the_scheduler_gave_no_classic_claim_gets():
    lab = ClassicLab()
    lab.create(TEST7)
    lab.apply(4)
    assert not set(lab.devices("test4", "pod0")) & set(PARENTS[:4])
    lab.apply(1)
    assert {pod["status"]["phase"] for pod in lab.pods("test1").values()} == {"Pending"}
    lab.remove("test7")
    assert {pod["status"]["phase"] for pod in lab.pods("test1").values()} == {"Running"}


def prepared(lab, namespace):
    [claim] = lab.client.list(CLASSIC_CLAIMS, namespace).items
    return lab.state()["spec"]["preparedDevices"][claim["metadata"]["uid"]]["fake"]["devices"]


# --- the plugin by itself -------------------------------------------------------------------------


def handle(*devices, **vendor):
    results = [{"namedResources": {"name": device.lower()}} for device in devices]
    data = {"nodeName": FAKE_NODE, "results": results, "vendorClaimParameters": vendor}
    return {"driverName": DRIVER, "structuredData": data}


class Alone:
    """A plugin whose kubelet is the test, and real claims for it to find."""

    def __init__(self):
        self.lab = ClassicLab()
        [kubelet] = self.lab.kubelets.nodes.values()
        self.plugin = kubelet.plugins.get(DRIVER)
        self.directory = kubelet.directory

    def claim(self, name, *devices, **vendor):
        spec = {"resourceClassName": "fake.3-shake.com"}
        [claim] = self.lab.create(
            {
                "apiVersion": "resource.k8s.io/v1alpha2",
                "kind": "ResourceClaim",
                "metadata": {"name": name, "namespace": "default"},
                # Nobody gives such a claim anything: its class is not there.
                "spec": spec | {"resourceClassName": "elsewhere"},
            }
        )
        given = handle(*devices, **vendor)
        status = {"driverName": DRIVER, "allocation": {"resourceHandles": [given]}}
        self.lab.client.update(CLASSIC_CLAIMS, {**claim, "status": status}, subresource="status")
        return ClaimRef("default", name, claim["metadata"]["uid"], given)


def test_a_claim_that_fails_leaves_the_others_alone():
    alone = Alone()
    good = alone.claim("good", PARENTS[0])
    bad = alone.claim("bad", PARENTS[1], "FAKE-nobody")
    answer = alone.plugin.prepare([bad, good])
    assert 'requested Fake does not exist: "FAKE-nobody"' in answer[bad.uid].error
    assert [device.device for device in answer[good.uid].devices] == [PARENTS[0]]
    assert set(alone.lab.state()["spec"]["allocatedClaims"]) == {good.uid}


def test_a_device_of_another_claim_is_refused_while_that_claim_is_there():
    alone = Alone()
    first = alone.claim("first", PARENTS[0])
    second = alone.claim("second", PARENTS[0])
    assert not alone.plugin.prepare([first])[first.uid].error
    answer = alone.plugin.prepare([second])
    assert f"still held by the claim with UID {first.uid}" in answer[second.uid].error
    alone.lab.client.delete(CLASSIC_CLAIMS, "first", "default")
    assert not alone.plugin.prepare([second])[second.uid].error
    assert set(alone.lab.state()["spec"]["allocatedClaims"]) == {second.uid}


def test_prepare_and_unprepare_may_be_repeated():
    alone = Alone()
    ref = alone.claim("one", PARENTS[0], split=2)
    first = alone.plugin.prepare([ref])
    assert alone.plugin.prepare([ref]) == first
    for _ in range(2):
        assert alone.plugin.unprepare([ref]) == {ref.uid: ""}
    assert set(alone.lab.state()["spec"]) == {"allocatableDevice"}


def test_what_a_plugin_wrote_it_takes_back_after_a_restart_too():
    alone = Alone()
    ref = alone.claim("one", PARENTS[0], split=2)
    alone.plugin.prepare([ref])
    again = ClassicPlugin(FAKE_NODE, alone.lab.client, alone.directory)
    again.start()
    assert len(alone.lab.state()["spec"]["preparedDevices"]) == 1
    # A kubelet that has begun again does not know what the allocation said.
    again.unprepare([ClaimRef("default", "one", ref.uid)])
    assert set(alone.lab.state()["spec"]) == {"allocatableDevice"}


def test_what_is_written_of_a_claim_that_is_gone_is_cleared_at_the_start():
    alone = Alone()
    ref = alone.claim("one", PARENTS[0])
    alone.plugin.prepare([ref])
    alone.lab.client.delete(CLASSIC_CLAIMS, "one", "default")
    ClassicPlugin(FAKE_NODE, alone.lab.client, alone.directory).start()
    assert set(alone.lab.state()["spec"]) == {"allocatableDevice"}
    [left] = alone.directory.texts()
    assert left.endswith("_common.yaml")


def test_a_structured_handle_names_devices_in_lower_case():
    given = handle("FAKE-1a", "FAKE-2b", split=3)["structuredData"]
    assert chosen(given) == [{"uuid": "FAKE-1a", "split": 3}, {"uuid": "FAKE-2b", "split": 3}]


def test_slices_go_with_their_driver_and_come_back_with_it():
    lab = ClassicLab()
    [kubelet] = lab.kubelets.nodes.values()
    plugin = kubelet.plugins.get(DRIVER)
    kubelet.plugins.deregister(plugin)
    lab.wait(40)
    assert not lab.client.list(NAMED_SLICES).items
    again = ClassicPlugin(FAKE_NODE, lab.client, kubelet.directory)
    again.on_resources = lambda models: lab.kubelets.named_slices.set_devices(
        FAKE_NODE, DRIVER, models
    )
    again.start()
    kubelet.register(again)
    lab.wait(1)
    assert len(lab.client.list(NAMED_SLICES).items) == 1


def test_the_slice_of_an_earlier_run_is_taken_over_or_replaced():
    lab = ClassicLab()
    [before] = lab.client.list(NAMED_SLICES).items
    lab.client.patch(NAMED_SLICES, before["metadata"]["name"], {"namedResources": None})
    lab.kubelets.named_slices.set_devices(FAKE_NODE, DRIVER, resources(FAKE_NODE, PARENTS[:2]))
    lab.wait(1)
    [after] = lab.client.list(NAMED_SLICES).items
    assert after["metadata"]["uid"] == before["metadata"]["uid"]
    assert len(after["namedResources"]["instances"]) == 2


def test_a_class_may_change_its_flavour_between_claims():
    lab = ClassicLab()
    lab.apply(1)
    lab.client.patch(CLASSIC_CLASSES, "fake.3-shake.com", {"structuredParameters": True})
    lab.apply(3)
    assert len({*lab.devices("test1", "pod0"), *lab.devices("test3", "pod0")}) == 2
    lab.remove("test1", "test3")
    assert set(lab.client.get(ALLOCATION_STATES, FAKE_NODE, "fake-system")["spec"]) == {
        "allocatableDevice"
    }
    assert "test1" not in {obj["metadata"]["name"] for obj in lab.client.list(NAMESPACES).items}
