"""Classic DRA whole: claims from templates, the talk of scheduler and driver, and taking back."""

from itertools import permutations

import pytest

from builders import worker
from dralab.api.status import ApiError
from dralab.components import control_plane, profiles
from dralab.drivers.classic.controller import FINALIZER, NAMESPACE, ClassicController
from dralab.prototypes.classic.fake import DriverError, DriverParameters
from dralab.runtime.resources import (
    ALLOCATION_STATES,
    CLASSIC_CLAIMS,
    CLASSIC_CLASSES,
    CLASSIC_TEMPLATES,
    EVENTS,
    FAKE_CLASS_PARAMETERS,
    FAKE_PARAMETERS,
    NAMESPACES,
    NODES,
    PODS,
    SCHEDULING_CONTEXTS,
)
from labs import Lab

V = "resource.k8s.io/v1alpha2"


def resource_class(name="fake.3-shake.com", **more):
    return {
        "apiVersion": V,
        "kind": "ResourceClass",
        "metadata": {"name": name},
        "driverName": "fake.resource.3-shake.com",
        **more,
    }


def claim_spec(parameters=None):
    spec = {"resourceClassName": "fake.3-shake.com"}
    if parameters:
        spec["parametersRef"] = {
            "apiGroup": "fake.resource.3-shake.com",
            "kind": "FakeClaimParameters",
            "name": parameters,
        }
    return spec


def named(kind, name, **more):
    return {
        "apiVersion": V,
        "kind": kind,
        "metadata": {"name": name, "namespace": "default"},
        **more,
    }


def template(name="t", parameters=None):
    return named("ResourceClaimTemplate", name, spec={"spec": claim_spec(parameters)})


def parameters(name, **spec):
    return {
        "apiVersion": "fake.resource.3-shake.com/v1alpha1",
        "kind": "FakeClaimParameters",
        "metadata": {"name": name, "namespace": "default"},
        "spec": spec,
    }


def state(node, count=8, status="Ready"):
    return {
        "apiVersion": "nas.fake.resource.3-shake.com/v1alpha1",
        "kind": "NodeAllocationState",
        "metadata": {"name": node, "namespace": NAMESPACE},
        "spec": {
            "allocatableDevice": [
                {"fake": {"uuid": f"FAKE-{node}-{i}", "name": "LATEST-FAKE-MODEL"}}
                for i in range(count)
            ]
        },
        "status": status,
    }


def pod(name, *entries, source=None):
    source = source or {"resourceClaimTemplateName": "t"}
    names = entries or ("fake",)
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {
            "resourceClaims": [{"name": entry, "source": source} for entry in names],
            "containers": [
                {
                    "name": "ctr0",
                    "image": "busybox",
                    "resources": {"claims": [{"name": entry} for entry in names]},
                }
            ],
        },
    }


class ClassicLab(Lab):
    def __init__(self, *nodes, classes=None, without=()):
        super().__init__()
        profiles.install(self.api.resources, ("v1", "classic"))
        self.scheduler = control_plane.assemble(
            self.manager, kinds=self.api.resources.kinds, without=without
        )
        self.driver = ClassicController(self.manager)
        space = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}}
        self.add(NAMESPACES, space)
        self.add(CLASSIC_CLASSES, *([resource_class()] if classes is None else classes))
        for node in nodes:
            self.add(NODES, worker(node))
            self.client.patch(NODES, node, {"spec": {"taints": None}})
            self.add(ALLOCATION_STATES, state(node))
        self.start()

    def node_of(self, name):
        return self.client.get(PODS, name, "default")["spec"].get("nodeName")

    def why(self, name):
        conditions = self.client.get(PODS, name, "default")["status"].get("conditions") or ()
        return next((c["message"] for c in conditions if c["type"] == "PodScheduled"), None)

    def claims(self):
        return list(self.client.list(CLASSIC_CLAIMS, "default").items)

    def held(self, node):
        spec = self.client.get(ALLOCATION_STATES, node, NAMESPACE)["spec"]
        claims = (spec.get("allocatedClaims") or {}).values()
        return [device for claim in claims for device in claim["fake"]["devices"]]

    def events(self, kind):
        found = self.client.list(EVENTS, "default").items
        return [e for e in found if e["involvedObject"]["kind"] == kind and e["type"] == "Warning"]


@pytest.fixture
def lab():
    return ClassicLab("n0")


def test_two_pods_of_one_template_get_devices_of_their_own(lab):
    lab.add(CLASSIC_TEMPLATES, template())
    lab.add(PODS, pod("pod0"), pod("pod1"))
    lab.wait(2)
    assert lab.node_of("pod0") == lab.node_of("pod1") == "n0"
    assert {d["uuid"] for d in lab.held("n0")} == {"FAKE-n0-0", "FAKE-n0-1"}
    for claim in lab.claims():
        assert claim["metadata"]["finalizers"] == [FINALIZER]
        assert claim["status"]["driverName"] == "fake.resource.3-shake.com"
        assert claim["status"]["allocation"]["shareable"] is True
        assert len(claim["status"]["reservedFor"]) == 1
    assert not lab.client.list(SCHEDULING_CONTEXTS, "default").items


def test_a_named_claim_is_shared_by_pods(lab):
    lab.add(CLASSIC_CLAIMS, named("ResourceClaim", "shared", spec=claim_spec()))
    source = {"resourceClaimName": "shared"}
    lab.add(PODS, pod("pod0", source=source), pod("pod1", source=source))
    lab.wait(40)
    assert lab.node_of("pod0") == lab.node_of("pod1") == "n0"
    [claim] = lab.claims()
    assert {user["name"] for user in claim["status"]["reservedFor"]} == {"pod0", "pod1"}
    assert len(lab.held("n0")) == 1


def test_split_devices_say_into_how_many_parts(lab):
    lab.add(FAKE_PARAMETERS, parameters("four", count=4, split=2))
    lab.add(CLASSIC_TEMPLATES, template(parameters="four"))
    lab.add(PODS, pod("pod0"))
    lab.wait(2)
    assert lab.node_of("pod0") == "n0"
    assert [d["split"] for d in lab.held("n0")] == [2, 2, 2, 2]


def test_devices_come_back_when_their_pod_is_gone_and_the_next_pod_gets_them(lab):
    lab.add(FAKE_PARAMETERS, parameters("all", count=8))
    lab.add(CLASSIC_TEMPLATES, template(parameters="all"))
    lab.add(PODS, pod("pod0"))
    lab.wait(2)
    lab.add(PODS, pod("pod1"))
    lab.wait(2)
    assert lab.node_of("pod0") == "n0"
    assert lab.node_of("pod1") is None
    assert lab.why("pod1") == "0/1 nodes are available: excluded by the resource driver."
    options = {"gracePeriodSeconds": 0}
    lab.client.delete(PODS, "pod0", "default", options=options)
    lab.wait(2)
    assert lab.node_of("pod1") == "n0"
    [claim] = lab.claims()
    assert claim["status"]["reservedFor"][0]["name"] == "pod1"
    lab.client.delete(PODS, "pod1", "default", options=options)
    lab.wait(2)
    assert lab.claims() == []
    assert lab.held("n0") == []


def test_the_driver_sends_a_pod_to_the_node_that_has_devices():
    lab = ClassicLab("n0", "n1", "n2")
    for node in ("n0", "n2"):
        full = lab.client.get(ALLOCATION_STATES, node, NAMESPACE)
        lab.client.update(ALLOCATION_STATES, {**full, "status": "NotReady"})
    lab.add(CLASSIC_TEMPLATES, template())
    lab.add(PODS, pod("pod0", "one", "two"))
    lab.wait(5)
    assert lab.node_of("pod0") == "n1"
    assert len(lab.held("n1")) == 2


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ({"count": 0}, "count=0; spec.count must be 1 or more"),
        ({"count": -1}, "count=-1; spec.count must be 1 or more"),
        ({"split": -2}, "split=-2; spec.split must be 0 or more"),
        ({"split": 10**9}, "split=1000000000; spec.split must be 1024 or less"),
        (None, 'error getting FakeClaim called "wrong" in namespace "default"'),
    ],
)
def test_what_the_driver_refuses_is_an_event_on_the_context(lab, spec, message):
    if spec is not None:
        lab.add(FAKE_PARAMETERS, parameters("wrong", **spec))
    lab.add(CLASSIC_TEMPLATES, template(parameters="wrong"))
    lab.add(PODS, pod("pod0"))
    lab.wait(2)
    assert lab.node_of("pod0") is None
    event = lab.events("PodSchedulingContext")[0]
    assert event["reason"] == "Failed"
    assert event["source"]["component"] == "resource driver fake.resource.3-shake.com"
    assert event["message"].startswith("pod claim fake: ")
    assert message in event["message"]
    assert event["message"] in [each["message"] for each in lab.events("Pod")]


def test_more_devices_than_any_node_has_are_said_on_the_pod(lab):
    lab.add(FAKE_PARAMETERS, parameters("wrong", count=99))
    lab.add(CLASSIC_TEMPLATES, template(parameters="wrong"))
    lab.add(PODS, pod("pod0"))
    lab.wait(2)
    messages = [each["message"] for each in lab.events("Pod")]
    where = 'FakeClaim called "wrong" in namespace "default"'
    text = f"pod claim fake: {where}: count=99; no node has more than 8 of the devices"
    assert text in messages
    # Today's controller leaves the claim to that of classic DRA.
    assert not [each for each in messages if "not found" in each]


def test_without_the_profile_an_entry_with_a_source_is_refused():
    lab = Lab()
    with pytest.raises(ApiError, match="must specify one of"):
        lab.add(PODS, pod("pod0"))


def test_a_reader_of_the_state_finds_it_by_its_short_singular(lab):
    kinds = lab.api.resources.kinds
    kind = kinds.find("nas.fake.resource.3-shake.com", "v1alpha1", "nodeallocationstates")
    assert kind.singular == "nas"
    assert "status" not in kind.subresources


def test_what_one_pod_was_promised_no_other_is_before_it_is_allocated(lab):
    one, other = lab.add(
        CLASSIC_CLAIMS,
        named("ResourceClaim", "one", spec=claim_spec()),
        named("ResourceClaim", "other", spec=claim_spec()),
    )
    found = lab.driver.allocations
    assert found.unsuitable([("a", one, DriverParameters(count=1))], ["n0"]) == {"a": []}
    assert found.unsuitable([("b", other, DriverParameters(count=8))], ["n0"]) == {"b": ["n0"]}
    assert found.unsuitable([("b", other, DriverParameters(count=7))], ["n0"]) == {"b": []}
    for claim in (one, other):
        found.allocate(claim, "n0")
    names = [device["uuid"] for device in lab.held("n0")]
    assert len(names) == len(set(names)) == 8


@pytest.mark.thorough
def test_pods_that_wait_do_not_make_other_nodes_look_full():
    lab = ClassicLab("n0", "n1", "n2", "n3")
    lab.add(CLASSIC_TEMPLATES, template())
    names = [f"pod{number}" for number in range(32)]
    lab.add(PODS, *map(pod, names))
    lab.wait(10)
    assert all(map(lab.node_of, names))
    assert all(len(lab.held(f"n{number}")) == 8 for number in range(4))


def test_the_driver_allocates_and_reserves_in_one_write(lab):
    [claim] = lab.add(CLASSIC_CLAIMS, named("ResourceClaim", "one", spec=claim_spec()))
    lab.driver.allocations.unsuitable([("a", claim, DriverParameters())], ["n0"])
    owner = {"metadata": {"name": "p", "namespace": "default", "uid": "u"}}
    lab.driver._allocate(claim, "n0", owner)
    status = lab.client.get(CLASSIC_CLAIMS, "one", "default")["status"]
    assert status["reservedFor"] == [{"resource": "pods", "name": "p", "uid": "u"}]


# --- the driver sees things in any order ----------------------------------------------------------


@pytest.mark.parametrize("order", list(permutations(["names", "claim", "class", "context"])))
def test_whatever_the_driver_sees_last_it_allocates_at_once(order):
    lab = ClassicLab("n0", classes=(), without=("scheduler", "controllers"))
    [owner] = lab.add(PODS, pod("pod0"))
    reference = {
        "apiVersion": "v1",
        "kind": "Pod",
        "name": "pod0",
        "uid": owner["metadata"]["uid"],
        "controller": True,
    }
    names = {"status": {"resourceClaimStatuses": [{"name": "fake", "resourceClaimName": "c"}]}}
    context = named("PodSchedulingContext", "pod0", spec={"selectedNode": "n0"})
    context["metadata"]["ownerReferences"] = [reference]
    steps = {
        "names": lambda: lab.client.patch(PODS, "pod0", names, "default", subresource="status"),
        "claim": lambda: lab.add(CLASSIC_CLAIMS, named("ResourceClaim", "c", spec=claim_spec())),
        "class": lambda: lab.add(CLASSIC_CLASSES, resource_class()),
        "context": lambda: lab.add(SCHEDULING_CONTEXTS, context),
    }
    for step in order:
        assert not lab.held("n0")
        steps[step]()
        lab.wait(1)
    [claim] = lab.claims()
    assert "allocation" in claim["status"]
    assert len(lab.held("n0")) == 1


# --- immediate allocation -------------------------------------------------------------------------


def immediate(name, parameters=None):
    spec = claim_spec(parameters) | {"allocationMode": "Immediate"}
    return named("ResourceClaim", name, spec=spec)


def test_an_immediate_claim_gets_its_devices_before_anybody_needs_them():
    lab = ClassicLab("n0", "n1")
    full = lab.client.get(ALLOCATION_STATES, "n0", NAMESPACE)
    lab.client.update(ALLOCATION_STATES, {**full, "status": "NotReady"})
    lab.add(FAKE_PARAMETERS, parameters("two", count=2, split=3))
    lab.add(CLASSIC_CLAIMS, immediate("now", "two"))
    lab.wait(1)
    [claim] = lab.claims()
    assert claim["metadata"]["finalizers"] == [FINALIZER]
    assert claim["status"]["driverName"] == "fake.resource.3-shake.com"
    assert "reservedFor" not in claim["status"]
    assert [d["split"] for d in lab.held("n1")] == [3, 3]
    lab.add(PODS, pod("pod0", source={"resourceClaimName": "now"}))
    lab.wait(1)
    assert lab.node_of("pod0") == "n1"
    assert not lab.client.list(SCHEDULING_CONTEXTS, "default").items


def test_an_immediate_claim_keeps_its_devices_until_it_is_deleted(lab):
    lab.add(CLASSIC_CLAIMS, immediate("now"))
    lab.add(PODS, pod("pod0", source={"resourceClaimName": "now"}))
    lab.wait(1)
    lab.client.delete(PODS, "pod0", "default", options={"gracePeriodSeconds": 0})
    lab.wait(2)
    [claim] = lab.claims()
    assert "reservedFor" not in claim["status"]
    assert len(lab.held("n0")) == 1
    lab.client.delete(CLASSIC_CLAIMS, "now", "default")
    lab.wait(2)
    assert lab.claims() == []
    assert lab.held("n0") == []


def test_an_immediate_claim_waits_for_devices_and_says_so(lab):
    lab.add(FAKE_PARAMETERS, parameters("all", count=8))
    lab.add(CLASSIC_CLAIMS, immediate("one"))
    lab.wait(1)
    lab.add(CLASSIC_CLAIMS, immediate("all", "all"))
    lab.wait(1)
    event = lab.events("ResourceClaim")[0]
    assert event["reason"] == "Failed"
    assert event["message"] == "no node has enough free devices: 8"
    lab.client.delete(CLASSIC_CLAIMS, "one", "default")
    lab.wait(60)
    assert len(lab.held("n0")) == 8


def test_an_immediate_claim_goes_only_where_its_class_lets_it():
    term = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n1"]}]}
    only = resource_class(suitableNodes={"nodeSelectorTerms": [term]})
    lab = ClassicLab("n0", "n1", classes=[only])
    lab.add(CLASSIC_CLAIMS, immediate("now"))
    lab.wait(1)
    assert len(lab.held("n1")) == 1


def test_what_was_given_and_not_told_is_told_and_not_given_again():
    lab = ClassicLab("n0", "n1", classes=())
    [claim] = lab.server.add(CLASSIC_CLAIMS, immediate("now"))
    lab.driver.allocations.unsuitable([("", claim, DriverParameters())], ["n1"])
    lab.driver.allocations.allocate(claim, "n1")
    lab.server.add(CLASSIC_CLASSES, resource_class())
    lab.wait(40)
    [claim] = lab.claims()
    [term] = claim["status"]["allocation"]["availableOnNodes"]["nodeSelectorTerms"]
    assert term["matchFields"][0]["values"] == ["n1"]
    assert not lab.held("n0")


# --- parameters of a class ------------------------------------------------------------------------


def class_with(kind="DeviceClassParameters", group="fake.resource.3-shake.com"):
    return resource_class(parametersRef={"apiGroup": group, "kind": kind, "name": "only"})


def selecting(*selectors):
    return {
        "apiVersion": "fake.resource.3-shake.com/v1alpha1",
        "kind": "DeviceClassParameters",
        "metadata": {"name": "only"},
        "spec": {"deviceSelector": [{"type": kind, "name": name} for kind, name in selectors]},
    }


@pytest.mark.parametrize(
    ("selectors", "node"),
    [
        ([("fake", "*")], "n0"),
        ([("fake", "LATEST-*")], "n0"),
        ([("other", "*"), ("fake", "LATEST-FAKE-MODEL")], "n0"),
        ([("fake", "OLDEST-*")], None),
        ([("other", "*")], None),
    ],
)
def test_the_parameters_of_a_class_select_devices_by_their_model(selectors, node):
    lab = ClassicLab("n0", classes=[class_with()])
    lab.add(FAKE_CLASS_PARAMETERS, selecting(*selectors))
    lab.add(CLASSIC_TEMPLATES, template())
    lab.add(PODS, pod("pod0"))
    lab.wait(2)
    assert lab.node_of("pod0") == node


@pytest.mark.parametrize(
    ("class_", "message"),
    [
        (class_with(), 'error getting DeviceClass called "only"'),
        (class_with(group="example.com"), "incorrect API group: example.com"),
        (class_with(kind="Other"), "unknown ResourceClass.ParametersRef.Kind: Other"),
    ],
)
def test_wrong_parameters_of_a_class_are_an_event(class_, message):
    lab = ClassicLab("n0", classes=[class_])
    lab.add(CLASSIC_TEMPLATES, template())
    lab.add(PODS, pod("pod0"))
    lab.wait(2)
    assert message in lab.events("PodSchedulingContext")[0]["message"]


# --- devices that the scheduler gave meanwhile ----------------------------------------------------


def test_a_promise_that_a_structured_claim_has_overtaken_is_made_anew(lab):
    [claim] = lab.add(CLASSIC_CLAIMS, named("ResourceClaim", "one", spec=claim_spec()))
    found = lab.driver.allocations
    wanted = [("a", claim, DriverParameters())]
    found.unsuitable(wanted, ["n0"])
    written = {
        "spec": {"allocatedClaims": {"other": {"fake": {"devices": [{"uuid": "FAKE-n0-0"}]}}}}
    }
    lab.client.patch(ALLOCATION_STATES, "n0", written, NAMESPACE)
    with pytest.raises(DriverError, match='"FAKE-n0-0" on node "n0" is allocated to another claim'):
        found.allocate(claim, "n0")
    assert found.unsuitable(wanted, ["n0"]) == {"a": []}
    found.allocate(claim, "n0")
    assert {device["uuid"] for device in lab.held("n0")} == {"FAKE-n0-0", "FAKE-n0-1"}


# --- whose pods -----------------------------------------------------------------------------------


def test_a_scheduler_that_rests_leaves_classic_pods_to_the_one_that_leads(lab):
    lab.scheduler.rest()
    lab.add(CLASSIC_TEMPLATES, template())
    lab.add(PODS, pod("pod0"))
    lab.wait(5)
    assert lab.node_of("pod0") is None
    lab.scheduler.lead()
    lab.wait(2)
    assert lab.node_of("pod0") == "n0"


def test_pods_of_another_scheduler_are_left_alone(lab):
    lab.add(CLASSIC_TEMPLATES, template())
    other = pod("pod0")
    other["spec"]["schedulerName"] = "another"
    lab.add(PODS, other)
    lab.wait(5)
    assert lab.node_of("pod0") is None
    assert lab.why("pod0") is None
