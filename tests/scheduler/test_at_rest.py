"""Whatever happens: nothing is overcommitted, and who still waits really fits nowhere."""

import random

import pytest

from builders import claim, device, device_class, pod, pool, request, worker
from dralab.objects.requests import base_units
from dralab.objects.taints import tolerates
from dralab.runtime.resources import CLAIMS, CLASSES, NODES, PODS, SLICES
from dralab.scheduler.scheduler import Scheduler
from labs import Lab
from smallselectors import SmallEnvironment

GPU = "gpu.example.com"
CORDON = {"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"}
TAINT = {"key": "k", "value": "v", "effect": "NoSchedule"}


class SchedulingScene:
    """A cluster to which things happen, and what anybody can see of it from outside."""

    def __init__(self, seed):
        self.dice = random.Random(seed)
        self.lab = Lab()
        self.scheduler = Scheduler(self.lab.manager, SmallEnvironment())
        self.count = 0
        self.lab.server.add(CLASSES, device_class("gpu"))
        for _ in range(2):
            self.new_node()
        self.lab.start()

    # --- what happens

    def step(self):
        happens = self.dice.choice(
            [self.new_pod] * 9
            + [self.end_pod, self.end_pods, self.end_pods]
            + [self.new_node, self.lose_node, self.taint, self.cordon, self.grow, self.late_claim]
        )
        happens()
        self.lab.wait(15)

    def new_node(self):
        self.count += 1
        name = f"n{self.count}"
        labels = {"zone": self.dice.choice("ab")}
        self.lab.server.add(
            NODES, worker(name, cpu=str(self.dice.randint(1, 2)), pods="5", labels=labels)
        )
        if self.dice.random() < 0.8:
            self.new_slice(name)

    def new_slice(self, name):
        devices = [
            device(f"d{i}", model=self.dice.choice("ab")) for i in range(self.dice.randint(1, 3))
        ]
        self.lab.server.add(SLICES, *pool(name, *devices, node=name))

    def lose_node(self):
        names = self.lab.names(NODES)
        if len(names) > 1:
            name = self.dice.choice(names)
            for obj in self.lab.server.all(PODS):
                if obj["spec"].get("nodeName") == name:
                    self.remove(obj)
            if name in self.lab.names(SLICES):
                self.lab.server.delete(SLICES, name)
            self.lab.server.delete(NODES, name)

    def taint(self):
        name = self.dice.choice(self.lab.names(NODES))
        taints = self.dice.choice([[TAINT], []])
        self.lab.server.patch(NODES, name, {"spec": {"taints": taints}})

    def cordon(self):
        name = self.dice.choice(self.lab.names(NODES))
        self.lab.server.patch(NODES, name, {"spec": {"unschedulable": self.dice.random() < 0.4}})

    def grow(self):
        name = self.dice.choice(self.lab.names(NODES))
        before = int(self.lab.get(NODES, name)["status"]["allocatable"]["cpu"])
        offer = {"cpu": str(before + self.dice.randint(0, 2)), "memory": "8Gi", "pods": "9"}
        self.lab.set_status(NODES, name, allocatable=offer)
        if name not in self.lab.names(SLICES):
            self.new_slice(name)

    def new_pod(self):
        self.count += 1
        name = f"p{self.count}"
        if self.dice.random() < 0.5:
            # Many are alike: they wait as one kind.
            self.lab.server.add(PODS, pod(name, requests={"cpu": "1"}))
            return
        more = {}
        if self.dice.random() < 0.3:
            more["nodeSelector"] = {"zone": self.dice.choice("ab")}
        if self.dice.random() < 0.3:
            more["tolerations"] = [{"operator": "Exists"}]
        claims = None
        if self.dice.random() < 0.6:
            claims = {"g": f"c-{name}"}
            if self.dice.random() < 0.2 and self.lab.names(CLAIMS):
                claims = {"g": self.dice.choice(self.lab.names(CLAIMS))}
            elif self.dice.random() < 0.8:
                self.add_claim(f"c-{name}")
        wanted = {"cpu": self.dice.choice(["500m", "1", "2"])}
        self.lab.server.add(PODS, pod(name, claims=claims, requests=wanted, **more))

    def add_claim(self, name):
        model = self.dice.choice(["a", "b", None])
        selectors = [f'device.attributes["{GPU}"].model == "{model}"'] if model else []
        wanted = request("r", "gpu", *selectors, count=self.dice.choice([1, 1, 2]))
        self.lab.server.add(CLAIMS, claim(name, wanted, namespace="default"))

    def late_claim(self):
        known = set(self.lab.names(CLAIMS))
        for obj in self.lab.server.all(PODS):
            for entry in obj["spec"].get("resourceClaims") or ():
                if entry["resourceClaimName"] not in known:
                    self.add_claim(entry["resourceClaimName"])
                    return

    def end_pod(self):
        pods = self.lab.server.all(PODS)
        if pods:
            self.remove(self.dice.choice(pods))

    def end_pods(self):
        """Several at once: then several of one kind can follow."""
        for _ in range(3):
            self.end_pod()

    def remove(self, obj):
        name = obj["metadata"]["name"]
        self.lab.server.delete(PODS, name, "default", options={"gracePeriodSeconds": 0})
        for held in self.lab.server.all(CLAIMS):
            status = held.get("status") or {}
            left = [user for user in status.get("reservedFor", ()) if user["name"] != name]
            if len(left) != len(status.get("reservedFor", ())):
                status = {**status, "reservedFor": left} if left else {}
                self.lab.server.update(CLAIMS, {**held, "status": status}, subresource="status")

    # --- what must hold

    def check(self):
        nodes = {obj["metadata"]["name"]: obj for obj in self.lab.server.all(NODES)}
        pods = self.lab.server.all(PODS)
        free = {name: self.offer(obj) for name, obj in nodes.items()}
        for obj in pods:
            place = obj["spec"].get("nodeName")
            if place:
                free[place] = [a - b for a, b in zip(free[place], (self.cpu(obj), 1), strict=True)]
        for name, left in free.items():
            assert min(left) >= 0, f"{name} is overcommitted: {left}"
        held = [
            (item["pool"], item["device"])
            for obj in self.lab.server.all(CLAIMS)
            for item in self.results(obj)
        ]
        assert len(held) == len(set(held)), "a device was given twice"
        for obj in pods:
            if not obj["spec"].get("nodeName"):
                where = [name for name in nodes if self.fits(obj, nodes[name], free[name], held)]
                assert not where, f"{obj['metadata']['name']} would fit on {where}"

    def offer(self, node):
        offer = node["status"]["allocatable"]
        return [base_units("cpu", offer["cpu"]), int(offer["pods"])]

    def cpu(self, obj):
        return base_units("cpu", obj["spec"]["containers"][0]["resources"]["requests"]["cpu"])

    def results(self, obj):
        status = obj.get("status") or {}
        return (status.get("allocation") or {}).get("devices", {}).get("results", [])

    def fits(self, obj, node, free, held):
        spec, metadata = obj["spec"], node["metadata"]
        cordon = [CORDON] if node["spec"].get("unschedulable") else []
        for taint in [*cordon, *(node["spec"].get("taints") or ())]:
            if not tolerates(spec.get("tolerations") or (), taint):
                return False
        if any(metadata["labels"].get(k) != v for k, v in (spec.get("nodeSelector") or {}).items()):
            return False
        if free[0] < self.cpu(obj) or free[1] < 1:
            return False
        claims = {item["metadata"]["name"]: item for item in self.lab.server.all(CLAIMS)}
        for entry in spec.get("resourceClaims") or ():
            wanted = claims.get(entry["resourceClaimName"])
            if wanted is None:
                return False
            given = self.results(wanted)
            if given:
                return {item["pool"] for item in given} == {metadata["name"]}
            [asked] = wanted["spec"]["devices"]["requests"]
            [offered] = [
                item["spec"]["devices"]
                for item in self.lab.server.all(SLICES)
                if item["metadata"]["name"] == metadata["name"]
            ] or [[]]
            expressions = asked["exactly"].get("selectors") or ()
            suitable = [
                each
                for each in offered
                if (metadata["name"], each["name"]) not in held
                and all(
                    f'"{each["attributes"]["model"]["string"]}"' in selector["cel"]["expression"]
                    for selector in expressions
                )
            ]
            return len(suitable) >= asked["exactly"]["count"]
        return True


@pytest.mark.parametrize("seed", range(12))
def test_at_rest_nothing_is_overcommitted_and_nobody_waits_who_fits(seed):
    world = SchedulingScene(seed)
    placed = waited = 0
    for _ in range(80):
        world.step()
        world.check()
        pods = world.lab.server.all(PODS)
        placed += sum(bool(obj["spec"].get("nodeName")) for obj in pods)
        waited += sum(not obj["spec"].get("nodeName") for obj in pods)
    assert placed
    assert waited
