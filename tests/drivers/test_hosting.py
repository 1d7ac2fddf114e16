"""What a driver written with the SDK promises about claims that want the same device."""

import pytest

from dralab import SimulatedCluster
from dralab.contracts.plugin import ClaimRef
from dralab.drivers.checkpoint import DriverFileCheckpoint
from dralab.drivers.driver import ContainerEdits, Driver
from dralab.drivers.hosted_plugin import HostedPlugin
from dralab.runtime.resources import CLAIMS


class Lamps(Driver):
    name = "lamps.example.com"

    def devices(self):
        return [{"name": f"lamp-{n}"} for n in range(2)]

    def edits(self, claim, result):
        return ContainerEdits(env=(f"LAMP={result.device}",))


class Room:
    """A driver on one node, and claims that somebody has allocated."""

    def __init__(self, path):
        self.lab = SimulatedCluster(nodes=("n1",))
        self.client = self.lab.client
        [kubelet] = self.lab.kubelets.nodes.values()
        self.directory, self.path = kubelet.directory, path
        self.begin()

    def begin(self):
        checkpoint = DriverFileCheckpoint(self.path / "checkpoint.json")
        self.plugin = HostedPlugin(Lamps("n1"), self.client, self.directory, checkpoint)

    def claim(self, name, device="lamp-0", **more):
        requests = [{"name": "r", "exactly": {"deviceClassName": "x"}}]
        body = {"metadata": {"name": name}, "spec": {"devices": {"requests": requests}}}
        made = self.client.create(CLAIMS, body, "default")
        result = {"request": "r", "driver": Lamps.name, "pool": "n1", "device": device, **more}
        made["status"] = {"allocation": {"devices": {"results": [result]}}}
        self.client.update(CLAIMS, made, subresource="status")
        return ClaimRef("default", name, made["metadata"]["uid"])

    def prepare(self, *refs):
        return [self.plugin.prepare([ref])[ref.uid].error for ref in refs]


@pytest.fixture
def room(tmp_path):
    return Room(tmp_path)


WHY = "prepare failed: device n1/lamp-0 is held by claim default/a"


def test_a_device_of_another_claim_is_refused_also_after_a_restart(room):
    a, b = room.claim("a"), room.claim("b")
    assert room.prepare(a, a) == ["", ""]
    assert room.prepare(b)[0].endswith(WHY)
    room.begin()
    assert room.prepare(b)[0].endswith(WHY)
    assert room.prepare(a, room.claim("c", "lamp-1")) == ["", ""]
    room.plugin.unprepare([a])
    assert room.prepare(b) == [""]


def test_both_of_one_call_cannot_have_it(room):
    a, b = room.claim("a"), room.claim("b")
    answers = room.plugin.prepare([a, b])
    assert answers[a.uid].error == ""
    assert answers[b.uid].error.endswith(WHY)


def test_a_defect_that_one_claim_shows_is_an_error_of_that_claim(room, monkeypatch):
    a, b = room.claim("a"), room.claim("b", "lamp-1")
    whole = room.plugin.code.prepare

    def prepare(claim):
        if claim.ref.uid == a.uid:
            raise KeyError("colour")
        return whole(claim)

    monkeypatch.setattr(room.plugin.code, "prepare", prepare)
    answers = room.plugin.prepare([a, b])
    assert answers[a.uid].error.endswith(f"for claim {a.uid}: KeyError: 'colour'")
    assert answers[b.uid].error == ""


@pytest.mark.parametrize(
    "more", [{"adminAccess": True}, {"shareID": "0a0a0a0a-0b0b-4c0c-8d0d-0e0e0e0e0e0e"}]
)
def test_what_is_shared_or_looked_at_is_not_refused(room, more):
    assert room.prepare(room.claim("a"), room.claim("b", **more)) == ["", ""]


@pytest.mark.parametrize("gone", ["deleted", "released"])
def test_what_a_claim_no_longer_has_is_taken_over(room, gone):
    a = room.claim("a")
    room.prepare(a)
    if gone == "deleted":
        room.client.delete(CLAIMS, "a", "default")
    else:
        stored = room.client.get(CLAIMS, "a", "default")
        room.client.update(CLAIMS, {**stored, "status": {}}, subresource="status")
    b = room.claim("b")
    assert room.prepare(b) == [""]
    assert not [name for name in room.directory.entries() if a.uid in name]
