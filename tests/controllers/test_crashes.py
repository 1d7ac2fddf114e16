"""Parts that die between any two writes: afterwards nothing is given twice and nothing leaks."""

import random

import pytest

from builders import device, device_class, pod, pool, request
from dralab.allocation.selectors import CelSelectorCompiler
from dralab.controllers import registry
from dralab.kernel.randomness import Randomness
from dralab.runtime.manager import Manager
from dralab.runtime.resources import CLAIM_TEMPLATES, CLAIMS, CLASSES, PODS, SLICES
from dralab.runtime.simulated import SimulatedEngine
from dralab.scheduler.scheduler import Scheduler
from labs import Lab


class Killed(BaseException):
    """The process is gone; what it had in mind is gone with it."""


class Mortal:
    """A client whose process is killed before or after its n-th write."""

    WRITES = ("create", "update", "patch", "delete", "post")

    def __init__(self, client, fuse, *, after):
        self.client, self.fuse, self.after = client, fuse, after

    def __getattr__(self, name):
        found = getattr(self.client, name)
        if name not in self.WRITES:
            return found

        def write(*args, **options):
            self.fuse -= 1
            if self.fuse == 0 and not self.after:
                raise Killed
            try:
                return found(*args, **options)
            finally:
                if self.fuse == 0:
                    raise Killed

        return write


def parts(lab, client, seed):
    """A fresh process: scheduler and the controllers that pods with claims need."""
    engine = SimulatedEngine()
    engine.clock.advance_to(lab.engine.clock.now())
    manager = Manager(engine, client, Randomness(seed))
    for name in (
        "resourceclaim-controller",
        "garbage-collector-controller",
        "node-lifecycle-controller",
        "pod-garbage-collector-controller",
    ):
        registry.CONTROLLERS[name](manager)
    Scheduler(manager, CelSelectorCompiler())
    manager.start()
    return engine, manager


def check(lab):
    """No device has two claims, unless pods share the claim."""
    holders = {}
    for obj in lab.all(CLAIMS):
        allocation = (obj.get("status") or {}).get("allocation") or {}
        for item in allocation.get("devices", {}).get("results", ()):
            key = item["pool"], item["device"]
            assert key not in holders, f"{key} was given to {holders[key]} and to {obj}"
            holders[key] = obj["metadata"]["name"]
        names = {user["name"] for user in (obj.get("status") or {}).get("reservedFor", ())}
        assert len(names) <= 1
    return holders


@pytest.mark.thorough
@pytest.mark.parametrize("seed", range(4))
def test_devices_survive_parts_that_are_killed_at_any_write(seed):
    dice = random.Random(seed)
    lab = Lab()
    lab.add(CLASSES, device_class("gpu"))
    for number in range(3):
        name = f"n{number}"
        lab.add_node(name)
        lab.add(SLICES, *pool(name, *(device(f"d{i}") for i in range(2)), node=name))
    template = {"spec": {"devices": {"requests": [request("r")]}}}
    lab.add(
        CLAIM_TEMPLATES,
        {
            "apiVersion": "resource.k8s.io/v1",
            "kind": "ResourceClaimTemplate",
            "metadata": {"name": "t", "namespace": "default"},
            "spec": template,
        },
    )
    total, born, done, crashes = 30, 0, set(), 0
    client = Mortal(lab.client, dice.randint(1, 40), after=bool(dice.randint(0, 1)))
    engine, manager = parts(lab, client, seed)
    for _ in range(400):
        if len(done) == total:
            break
        while born < total and len(lab.all(PODS)) < 8:
            made = pod(f"p{born}")
            made["spec"]["resourceClaims"] = [{"name": "g", "resourceClaimTemplateName": "t"}]
            lab.add(PODS, made)
            born += 1
        lab.engine.clock.advance(dice.randint(1, 12) * 10**9)
        try:
            engine.run(lab.engine.clock.now())
        except Killed:
            crashes += 1
            manager.stop()
            client = Mortal(lab.client, dice.randint(1, 60), after=bool(dice.randint(0, 1)))
            engine, manager = parts(lab, client, seed * 1000 + crashes)
        check(lab)
        for obj in lab.all(PODS):
            name = obj["metadata"]["name"]
            if obj["spec"].get("nodeName") and dice.random() < 0.5:
                lab.end_pod(name)
                lab.delete(PODS, name, gracePeriodSeconds=0)
                done.add(name)
    lab.engine.clock.advance(120 * 10**9)
    client.fuse = -1
    engine.run(lab.engine.clock.now())
    assert len(done) == total, "every pod ran and ended"
    assert crashes > 5
    assert lab.all(CLAIMS) == [], "no claim is left over"
