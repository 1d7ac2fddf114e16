"""The sysfs and procfs of a sample's node agree with the slices of that node."""

import os
from functools import cache
from pathlib import Path

import pytest

from dralab.fleet import shapes
from dralab.fleet.sysfs import _listed, _mask, tree, write

BUS = "resource.kubernetes.io/pciBusID"
NUMA = "resource.kubernetes.io/numaNode"
ROOT = "resource.kubernetes.io/pcieRoot"


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """Return the sample of a shape and the directory with the tree of its node, each made once."""

    @cache
    def make(shape):
        place = tmp_path_factory.mktemp(shape)
        sample = shapes.sample(shape, nodes=1)
        found = tree(sample, sample.nodes[0])
        assert write(found, place) == len(found.files) + len(found.links)
        return sample, place

    return make


def text(place, *parts):
    return place.joinpath(*parts).read_text().rstrip("\n")


@pytest.mark.parametrize("shape", ["h100", "sriov", "fpga"])
def test_each_bus_id_of_a_slice_is_a_pci_function_with_its_numa_node_and_root(shape, made):
    sample, place = made(shape)
    bus = place / "sys" / "bus" / "pci" / "devices"
    seen = 0
    for pool in sample.pools:
        for device in pool.devices:
            function = (bus / device.attributes[BUS]).resolve()
            assert text(function, "numa_node") == str(device.attributes[NUMA])
            assert device.attributes[ROOT] in function.parts
            seen += 1
    assert seen > 5


def test_links_lead_somewhere_and_stay_in_sys(made):
    _, place = made("h100")
    links = [path for path in (place / "sys").rglob("*") if path.is_symlink()]
    assert len(links) > 500
    for path in links:
        target = os.path.normpath(path.parent / path.readlink())
        assert target.startswith(str(place / "sys")), path
        # A driver's directory holds its devices.
        assert Path(target).exists() or "drivers" in target, path


def test_virtual_functions_know_their_card(made):
    _, place = made("sriov")
    bus = place / "sys" / "bus" / "pci" / "devices"
    assert text(bus, "0000:12:00.0", "sriov_totalvfs") == "16"
    assert (bus / "0000:12:00.0" / "virtfn0").resolve() == (bus / "0000:12:00.1").resolve()
    assert (bus / "0000:12:02.0" / "physfn").resolve() == (bus / "0000:12:00.0").resolve()
    interface = place / "sys" / "class" / "net" / "nic0v15" / "device"
    assert interface.resolve() == (bus / "0000:12:02.0").resolve()


def test_no_two_cards_of_a_node_have_one_bus_id():
    for shape in shapes.names():
        sample = shapes.sample(shape, nodes=1)
        units = {
            (
                pool.driver,
                device.unit,
                device.name if "vf" in device.name else "",
            ): device.attributes[BUS]
            for pool in sample.pools
            for device in pool.devices
            if BUS in device.attributes
        }
        assert len(set(units.values())) == len(units), shape


def test_cpus_and_memory_are_shared_by_the_numa_nodes(made):
    _, place = made("h100")
    system = place / "sys" / "devices" / "system"
    assert text(system, "node", "online") == "0-1"
    assert text(system, "node", "node1", "cpulist") == "48-95,144-191"
    assert text(system, "cpu", "cpu50", "topology", "thread_siblings_list") == "50,146"
    assert "Node 0 MemTotal: 1073741824 kB" in text(system, "node", "node0", "meminfo")
    assert "195 nvidia" in text(place, "proc", "devices")


def test_masks_have_the_bits_of_lists():
    for cpus, count in (([0], 1), ([0, 1, 2, 32], 40), ([63], 64), (range(0, 192, 5), 192)):
        words = _mask(cpus, count).split(",")
        assert len(words) == -(-count // 32)
        value = int("".join(words), 16)
        assert [bit for bit in range(count) if value >> bit & 1] == list(cpus), _listed(cpus)
