"""The fake driver's demonstrations, as the original documents them, in all flavours."""

import pytest

from dralab.components.nodes import FAKE_NODE
from dralab.drivers.classic.plugin import ClassicPlugin
from dralab.drivers.fake.demo import DRIVER, children, parents
from dralab.runtime.resources import CLAIMS, CLASSIC_CLAIMS, EVENTS
from fakelab import ClassicLab, StructuredLab, TodayLab

PARENTS = parents(FAKE_NODE)
LABS = pytest.mark.parametrize(
    "make", [ClassicLab, StructuredLab, TodayLab], ids=["classic", "structured", "today"]
)
FLAVOURS = pytest.mark.parametrize(
    "make", [ClassicLab, StructuredLab], ids=["classic", "structured"]
)


@LABS
def test_the_first_four_demonstrations_take_all_devices_of_a_node(make):
    lab = make()
    lab.apply(1, 2, 3, 4)
    one, two = lab.devices("test1", "pod0"), lab.devices("test1", "pod1")
    assert len(one) == len(two) == 1
    assert one != two
    shared = lab.devices("test2", "pod0", "ctr0")
    assert shared == lab.devices("test2", "pod0", "ctr1")
    named = lab.devices("test3", "pod0")
    assert named == lab.devices("test3", "pod1")
    four = lab.devices("test4", "pod0")
    assert len(four) == 4
    assert sorted([*one, *two, *shared, *named, *four]) == sorted(PARENTS)


@LABS
def test_split_devices_are_the_children_of_their_parents(make):
    lab = make()
    lab.apply(5)
    wanted = [child for parent in PARENTS[:4] for child in children(parent, 2)]
    assert lab.devices("test5", "pod0") == wanted


def test_devices_of_a_model_are_asked_for_in_todays_words_too():
    lab = TodayLab()
    lab.apply(7)
    wanted = [child for parent in PARENTS[:4] for child in children(parent, 2)]
    assert lab.devices("test7", "pod0") == wanted


@LABS
def test_two_replicas_take_all_devices_in_twenty_parts_each(make):
    lab = make()
    lab.apply(6)
    pods = list(lab.pods("test6"))
    assert len(pods) == 2
    found = [name for pod in pods for name in lab.devices("test6", pod, "ctr")]
    assert len(set(found)) == 40
    assert set(found) == {child for parent in PARENTS for child in children(parent, 5)}


@FLAVOURS
def test_the_nodes_state_shows_what_is_given_and_prepared_and_goes_back(make):
    lab = make()
    before = lab.state()
    assert before["status"] == "Ready"
    assert [d["fake"]["uuid"] for d in before["spec"]["allocatableDevice"]] == PARENTS
    assert set(before["spec"]) == {"allocatableDevice"}
    lab.apply(1, 3)
    state = lab.state()["spec"]
    assert len(state["allocatedClaims"]) == len(state["preparedDevices"]) == 3
    (shared,) = [
        c for c in lab.client.list(CLASSIC_CLAIMS).items if len(c["status"]["reservedFor"]) == 2
    ]
    assert shared["metadata"]["name"] == "shared-fake"
    lab.remove("test1", "test3")
    after = lab.state()
    assert after["spec"] == before["spec"]
    assert not lab.client.list(CLASSIC_CLAIMS).items
    (kubelet,) = lab.kubelets.nodes.values()
    (left,) = kubelet.directory.texts()
    assert left.endswith("_common.yaml")


@FLAVOURS
def test_split_devices_outlive_the_restart_of_their_driver(make):
    lab = make()
    lab.apply(5)
    (kubelet,) = lab.kubelets.nodes.values()
    before = lab.state()["spec"]
    assert all(
        "parentUUID" in d for d in next(iter(before["preparedDevices"].values()))["fake"]["devices"]
    )
    kubelet.directory.clear()
    again = ClassicPlugin(FAKE_NODE, lab.client, kubelet.directory)
    again.start()
    assert lab.state()["spec"] == before
    assert len(kubelet.directory.texts()) == 2


@FLAVOURS
def test_a_ninth_pod_waits_until_a_device_is_given_back(make):
    lab = make()
    lab.apply(1, 2, 3, 4)
    manifest = (lab.folder / "fake-test2.yaml").read_text().replace("test2", "ninth")
    lab.create(manifest)
    lab.wait(60)
    assert lab.pods("ninth")["pod0"]["status"]["phase"] == "Pending"
    lab.remove("test1")
    lab.wait(60)
    assert len(lab.devices("ninth", "pod0")) == 1


@pytest.mark.parametrize("bad", ["count: 0", "count: 4\n  split: -1"])
def test_a_bad_parameter_is_told_and_the_pod_waits(bad):
    lab = ClassicLab()
    lab.create((lab.folder / "fake-test4.yaml").read_text().replace("count: 4", bad))
    lab.wait(60)
    assert lab.pods("test4")["pod0"]["status"]["phase"] == "Pending"
    events = [e for e in lab.client.list(EVENTS, "test4").items if e["reason"] == "Failed"]
    assert any(bad.split()[-2].rstrip(":") in e["message"] for e in events)


def test_nobody_is_placed_on_a_node_that_is_not_ready():
    lab = ClassicLab()
    (kubelet,) = lab.kubelets.nodes.values()
    plugin = kubelet.plugins.get(DRIVER)
    plugin.stop()
    lab.apply(1)
    assert {pod["status"]["phase"] for pod in lab.pods("test1").values()} == {"Pending"}
    plugin.write_status("Ready")
    lab.wait(90)
    assert {pod["status"]["phase"] for pod in lab.pods("test1").values()} == {"Running"}


def test_today_nothing_is_left_when_all_is_deleted():
    lab = TodayLab()
    lab.apply(1, 3, 5)
    lab.remove("test1", "test3", "test5")
    assert not lab.client.list(CLAIMS).items
    (kubelet,) = lab.kubelets.nodes.values()
    (left,) = kubelet.directory.texts()
    assert left.endswith("_common.yaml")
