"""Calls to drivers that devices can do without (KEP-5945): they are left out, also after a restart."""

import pytest

from dralab.api.resource.features import ALL
from dralab.components.nodes import equip
from dralab.node.node_spec import NodeSpec
from dralab.runtime.resources import NODES
from nodelab import NODE, NodeLab

EVERYTHING = ["*"]
NO_UNPREPARE = ["NodeUnprepareResources"]


@pytest.fixture
def lab(tmp_path):
    made = NodeLab(tmp_path, features=ALL)
    made.start()
    return made


@pytest.mark.parametrize(
    ("skips", "calls"),
    [((), [1, 1]), (NO_UNPREPARE, [1, 0]), (EVERYTHING, [0, 0])],
)
def test_a_driver_is_not_called_for_what_all_its_devices_skip(lab, skips, calls):
    driver = lab.driver()
    lab.pod(skips=skips)
    lab.wait(5)
    assert lab.phase() == "Succeeded"
    lab.delete(grace=0)
    assert [driver.count("prepare"), driver.count("unprepare")] == calls


def test_a_driver_that_is_never_called_need_not_run(lab):
    lab.pod(skips=EVERYTHING)
    lab.wait(5)
    assert lab.phase() == "Succeeded"


def test_what_is_skipped_outlives_a_restart(lab):
    driver = lab.driver()
    lab.pod(seconds=60, skips=NO_UNPREPARE)
    lab.restart()
    lab.delete(grace=0)
    assert driver.count("unprepare") == 0
    assert not lab.kubelet.claims.users()


def test_a_node_declares_what_it_can_leave_out(tmp_path):
    lab = NodeLab(tmp_path)
    inner = lab.kubelets.on_node
    lab.start()
    (node,) = lab.client.list(NODES).items
    assert "declaredFeatures" not in node["status"]
    lab.stop()
    lab.client.delete(NODES, NODE)
    lab.kubelets.on_node = inner
    kubelet = lab.kubelets.add_node(NodeSpec(name=NODE))
    equip(kubelet, frozenset({"DRAOptionalNodeOperations"}))
    lab.wait(2)
    (node,) = lab.client.list(NODES).items
    assert node["status"]["declaredFeatures"] == ["DRAOptionalNodeOperations"]
