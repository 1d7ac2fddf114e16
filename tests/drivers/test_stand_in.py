"""A stand-in prepares what a claim's allocation names, and forgets it again."""

from dralab.contracts.cdi_cache import MemoryDirectory
from dralab.contracts.plugin import ClaimRef
from dralab.drivers.stand_in import StandIn


def ref(data):
    return ClaimRef("default", "c", "uid-1", {"data": data})


def test_each_device_is_a_variable_of_its_own():
    directory = MemoryDirectory()
    plugin = StandIn("gpu.example.com/dra", "n1", directory)
    data = '{"results": [{"deviceName": "d0", "requestName": "big-one"}, {"deviceName": "d1"}]}'
    [answer] = plugin.prepare([ref(data)]).values()
    assert answer.error == ""
    assert [(each.requests, each.device) for each in answer.devices] == [
        (("big-one",), "d0"),
        ((), "d1"),
    ]
    assert plugin.prepare([ref(data)])["uid-1"] == answer  # again and again
    [text] = directory.texts().values()
    assert "DEVICE_BIG_ONE=gpu.example.com/dra/n1/d0" in text
    assert "DEVICE_1=gpu.example.com/dra/n1/d1" in text
    assert plugin.unprepare([ref(data)]) == {"uid-1": ""}
    assert directory.texts() == {}


def test_a_claim_without_devices_needs_no_file():
    directory = MemoryDirectory()
    plugin = StandIn("toys", "n1", directory)
    assert plugin.prepare([ClaimRef("default", "c", "uid-1")])["uid-1"].devices == ()
    assert directory.texts() == {}
    assert plugin.health() == ()
