"""What a kubelet does about the slices of drivers that are gone."""

import pytest

from dralab import SimulatedCluster
from dralab.api.status import ApiError
from dralab.drivers.fake.gpu import FakeGpus
from dralab.kernel.clock import SECOND
from dralab.node.node_spec import NodeSpec
from dralab.runtime.resources import SLICES


@pytest.fixture
def lab():
    made = SimulatedCluster(nodes=["n1"], drivers=[FakeGpus])
    assert made.client.list(SLICES).items
    # The driver itself does nothing about it.
    made.publisher.forget_driver(made.drivers[0])
    return made


def test_slices_go_when_the_last_connection_has_been_down_for_30_seconds(lab):
    plugins = lab.kubelets.nodes["n1"].plugins
    plugin = plugins.get("gpu.example.com")
    plugins.connection(plugin, up=False)
    lab.wait(29)
    assert lab.client.list(SLICES).items
    lab.wait(2)
    assert not lab.client.list(SLICES).items
    assert plugins.get("gpu.example.com") is plugin


def test_a_driver_that_comes_back_has_its_30_seconds_anew(lab):
    plugins = lab.kubelets.nodes["n1"].plugins
    plugin = plugins.get("gpu.example.com")
    for up in (False, True, False):
        plugins.connection(plugin, up=up)
        lab.wait(12)
    assert lab.client.list(SLICES).items
    plugins.deregister(plugin)
    lab.wait(19)
    assert not lab.client.list(SLICES).items


def test_another_instance_that_is_connected_keeps_them(lab):
    kubelet = lab.kubelets.nodes["n1"]
    old = kubelet.plugins.get("gpu.example.com")

    class Newer:
        driver = "gpu.example.com"

    new = Newer()
    kubelet.register(new)
    assert kubelet.plugins.get("gpu.example.com") is new
    kubelet.plugins.connection(new, up=False)
    assert kubelet.plugins.get("gpu.example.com") is old
    kubelet.plugins.connection(new, up=True)
    kubelet.plugins.deregister(old)
    lab.wait(60)
    assert lab.client.list(SLICES).items
    assert kubelet.plugins.get("gpu.example.com") is new


def test_a_starting_node_deletes_its_slices_and_its_drivers_publish_theirs():
    lab = SimulatedCluster(nodes=())
    pool = {"generation": 1, "resourceSliceCount": 1}
    for name, node in (("of-n1", "n1"), ("of-others", "n2")):
        spec = {"driver": "gone.example.com", "nodeName": node, "pool": {"name": node, **pool}}
        spec["devices"] = [{"name": "d"}]
        lab.client.create(SLICES, {"metadata": {"name": name}, "spec": spec})
    lab.drivers.append(FakeGpus("n1"))
    lab.kubelets.add_node(NodeSpec(name="n1"))
    lab.wait(5)
    drivers = {
        one["metadata"]["name"]: one["spec"]["driver"] for one in lab.client.list(SLICES).items
    }
    assert "of-n1" not in drivers
    assert sorted(drivers.values()) == ["gone.example.com", "gpu.example.com"]


def test_a_deletion_that_fails_is_tried_again_ever_later(lab, monkeypatch):
    tries = []

    def refuse(resource, *, field_selector):
        tries.append((lab.now, resource, field_selector))
        raise ApiError("ServiceUnavailable", "not now")

    monkeypatch.setattr(lab.client, "delete_collection", refuse)
    lab.kubelets.wipe(lab.kubelets.nodes["n1"])
    lab.wait(60)
    start = tries[0][0]
    assert [(when - start) // SECOND for when, _, _ in tries] == [0, 1, 3, 7, 15, 31]
    assert {what[1:] for what in tries} == {(SLICES, "spec.nodeName=n1")}
    monkeypatch.undo()
    lab.wait(40)
    assert not lab.client.list(SLICES).items


def test_a_driver_that_registered_and_never_connected_loses_its_slices(lab):
    kubelet = lab.kubelets.nodes["n1"]
    old = kubelet.plugins.get("gpu.example.com")

    class Deaf:
        driver = "gpu.example.com"

    new = Deaf()
    kubelet.plugins.register(new, connected=False)
    assert kubelet.plugins.get("gpu.example.com") is old, "it is preferred although it is deaf"
    kubelet.plugins.deregister(old)
    lab.wait(20)
    # Registering again gains it no time.
    kubelet.plugins.deregister(new)
    kubelet.plugins.register(new, connected=False)
    lab.wait(9)
    assert lab.client.list(SLICES).items
    lab.wait(2)
    assert not lab.client.list(SLICES).items


def test_a_driver_has_30_seconds_to_connect_for_the_first_time(lab):
    kubelet = lab.kubelets.nodes["n1"]
    kubelet.plugins.deregister(kubelet.plugins.get("gpu.example.com"))

    class Slow:
        driver = "gpu.example.com"

    new = Slow()
    kubelet.plugins.register(new, connected=False)
    lab.wait(29)
    kubelet.plugins.connection(new, up=True)
    lab.wait(60)
    assert lab.client.list(SLICES).items
