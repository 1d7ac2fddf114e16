"""Random clusters for questions of placement: nodes, pods, devices and volumes, several causes at once.

`random_cluster(7)` is the same cluster every time. Its objects are valid for an API server; pods on
nodes hold what their claims say. `features` names what occurs, so that a test can ask whether the
generator makes what it promises.
"""

import copy
import random
from dataclasses import dataclass, field
from typing import Any

from builders import (
    DRIVER,
    ask,
    claim,
    counter_set,
    device,
    device_class,
    first_of,
    obj,
    pod,
    pool,
    request,
    taint,
    worker,
)
from dralab.objects.claims import claim_names
from dralab.values.json_types import JsonDict

GI = 1024**3
MI = 1024**2
ZONE, HOST = "topology.kubernetes.io/zone", "kubernetes.io/hostname"
DONGLE, EXTENDED = "example.com/dongle", "example.com/gpu"
NETWORK = "net.example.com"
IMAGES = {"small:1": 10 * MI, "web:1": 300 * MI, "model:1": 900 * MI}
FINALIZER = "example.com/kept"
# What a waiting pod may ask for besides devices, and how often one in so many does.
PARTS = {
    "node-selector": 5,
    "node-affinity": 6,
    "preferred-nodes": 4,
    "tolerations": 3,
    "affinity": 6,
    "anti-affinity": 6,
    "preferred-pods": 4,
    "spread": 5,
    "soft-spread": 5,
    "host-port": 6,
    "dongle": 8,
    "volume": 6,
    "volume-missing": 40,
    "init": 6,
    "image": 4,
    "overhead": 10,
    "pod-level": 12,
    "key-of-own": 12,
    "other-namespaces": 10,
    "node-number": 12,
}
# What keeps no pod from a node.
PREFERENCES = frozenset(
    {"prefer-taint", "preferred-nodes", "preferred-pods", "soft-spread", "running-wish", "image"}
)
# Why a pod is not tried at all.
HELD = {"gated": 20, "other-scheduler": 25, "deleted": 30}
DEVICES = {
    "none": 8,
    "one": 5,
    "two": 3,
    "matched": 2,
    "model": 2,
    "first-available": 2,
    "all": 1,
    "capacity": 2,
    "two-claims": 2,
    "template": 2,
    "extended": 3,
    "partition": 2,
    "network": 2,
    "no-class": 1,
    "no-claim": 1,
    "claim-deleted": 1,
    "claim-held": 2,
    "bad-selector": 1,
    "admin": 1,
}
# What kube-scheduler does only with feature gates that are off in 1.36, or not at all.
GATED = frozenset({"group"})


@dataclass
class RandomCluster:
    """The objects of a cluster, and what occurs in them."""

    seed: int
    objects: list[JsonDict] = field(default_factory=list)
    features: set[str] = field(default_factory=set)

    def of(self, kind: str) -> list[JsonDict]:
        return [item for item in self.objects if item["kind"] == kind]

    def waiting(self) -> list[JsonDict]:
        return [item for item in self.of("Pod") if not item["spec"].get("nodeName")]

    def alone(self, name: str) -> list[JsonDict]:
        """The objects with one waiting pod: the others, and what is only theirs, are left out."""
        kept = next(item for item in self.waiting() if item["metadata"]["name"] == name)
        group = _group_of(kept)
        gone = [
            item
            for item in self.waiting()
            if item is not kept and not (group and _group_of(item) == group)
        ]
        unused = {claim for item in gone for claim in _claims_of(item)} - {
            claim for item in self.of("Pod") if item not in gone for claim in _claims_of(item)
        }
        return copy.deepcopy(
            [
                item
                for item in self.objects
                if item not in gone
                and not (item["kind"] == "ResourceClaim" and item["metadata"]["name"] in unused)
            ]
        )


def random_cluster(seed: int, *, without: frozenset[str] = frozenset()) -> RandomCluster:
    """Make a cluster; `without` names parts and kinds of devices that are left out."""
    return _Maker(seed, without).made


class _Maker:
    def __init__(self, seed: int, without: frozenset[str]) -> None:
        self.chance = random.Random(f"clusters/{seed}")
        self.without = without
        # Every other cluster has few obstacles: there, what pods prefer decides.
        self.calm = seed % 2 == 1
        self.made = RandomCluster(seed)
        self.free: dict[str, list[tuple[str, str]]] = {}
        self.zones = self.chance.choice([["a", "b"], ["a", "b", "c"], ["a"]])
        self.classes()
        self.nodes()
        self.network()
        self.storage()
        for number in range(self.chance.choice([0, 2, 4, 6, 9])):
            self.running(f"run-{number}")
        for number in range(self.chance.choice([1, 2, 3, 4])):
            self.waits(f"wait-{number}")
        if self.one_in(8):
            self.group()

    # --- chance

    def one_in(self, number: int) -> bool:
        return self.chance.randrange(number) == 0

    def some(self, name: str, number: int) -> bool:
        """One in so many; noted as a feature where it comes out so."""
        if self.calm and name not in PREFERENCES:
            number *= 4
        found = self.one_in(number) and name not in self.without
        if found:
            self.made.features.add(name)
        return found

    def add(self, *objects: JsonDict) -> None:
        self.made.objects += objects

    # --- nodes and devices

    def classes(self) -> None:
        self.add(
            device_class("gpu", f'device.driver == "{DRIVER}"', extendedResourceName=EXTENDED),
            device_class("net", f'device.driver == "{NETWORK}"'),
            device_class(
                "part", f'device.driver == "{DRIVER}" && has(device.attributes["{DRIVER}"].part)'
            ),
        )

    def nodes(self) -> None:
        for number in range(self.chance.choice([4, 5, 6, 7] if self.calm else [1, 2, 3, 3, 4, 5])):
            name = f"n{number}"
            labels = {"disk": self.chance.choice(["ssd", "hdd"]), "rack": str(number % 3)}
            if not self.some("no-zone", 8):
                labels[ZONE] = self.chance.choice(self.zones)
            taints, more = [], {}
            if self.some("taint", 5):
                taints.append(taint("team", value=self.chance.choice(["red", "blue"])))
            if self.some("prefer-taint", 4):
                taints.append(taint("slow", "PreferNoSchedule"))
            if self.some("execute-taint", 12):
                taints.append(taint("leaving", "NoExecute"))
            if self.some("pressure", 12):
                taints.append(taint("node.kubernetes.io/memory-pressure"))
            if self.some("lost", 14):
                taints.append(taint("node.kubernetes.io/unreachable"))
                taints.append(taint("node.kubernetes.io/unreachable", "NoExecute"))
            if self.some("cordon", 10):
                more["unschedulable"] = True
                taints.append(taint("node.kubernetes.io/unschedulable"))
            made = worker(
                name,
                cpu=self.chance.choice(["2", "4", "8", "3500m"]),
                memory=self.chance.choice(["4Gi", "8Gi", "16Gi"]),
                pods=self.chance.choice(["110", "110", "2"]),
                labels=labels,
                taints=taints,
                extra={DONGLE: "2"} if self.some("dongles", 3) else {},
                **more,
            )
            made["status"]["images"] = [
                {"names": [image], "sizeBytes": size}
                for image, size in IMAGES.items()
                if self.one_in(2)
            ]
            self.add(made)
            if not self.some("no-devices", 5):
                self.devices(name)

    def devices(self, node: str) -> None:
        made, sets = [], []
        many = self.chance.choice([1, 2, 2, 3, 4])
        for number in range(many):
            more: JsonDict = {}
            capacity: JsonDict = {"memory": self.chance.choice(["40Gi", "80Gi"])}
            if self.some("shared-device", 8):
                more["allowMultipleAllocations"] = True
                capacity["memory"] = {
                    "value": "40Gi",
                    "requestPolicy": {"default": "10Gi", "validRange": {"min": "5Gi"}},
                }
            if self.some("binding-conditions", 25):
                more |= {
                    "bindsToNode": True,
                    "bindingConditions": ["example.com/attached"],
                    "bindingFailureConditions": ["example.com/broken"],
                }
            effect = self.chance.choice(["NoSchedule", "NoExecute"])
            marks = [taint("faulty", effect)] if self.some("device-taint", 8) else None
            made.append(
                device(
                    f"gpu-{number}",
                    model=self.chance.choice(["big", "small"]),
                    numa=number % 2,
                    capacity=capacity,
                    taints=marks,
                    more=more,
                )
            )
        if self.some("partitions", 4):
            sets = [counter_set("card", slots=4)]
            for number, slots in enumerate([2, 2, 1, 4]):
                made.append(
                    device(f"part-{number}", consumes={"card": {"slots": slots}}, part=slots)
                )
        slices = pool(node, *made, node=node, counters=sets or None)
        if self.some("incomplete-pool", 14):
            slices[0]["spec"]["pool"]["resourceSliceCount"] = len(slices) + 1
            for item in slices[1:]:
                item["spec"]["pool"]["resourceSliceCount"] = len(slices) + 1
        self.free[node] = [
            (node, item["name"])
            for item in made
            if "allowMultipleAllocations" not in item and "consumesCounters" not in item
        ]
        self.add(*slices)
        if self.some("taint-rule", 20):
            rule = {
                "deviceSelector": {"driver": DRIVER, "pool": node, "device": "gpu-0"},
                "taint": {**taint("maintenance"), "timeAdded": "2026-01-01T00:00:00Z"},
            }
            self.add(
                obj("DeviceTaintRule", f"{node}-rule", api="resource.k8s.io/v1beta2", spec=rule)
            )

    def network(self) -> None:
        if not self.some("network-devices", 2):
            return
        slices = pool("fabric", device("port-0"), device("port-1"), driver=NETWORK, node=None)
        spec = slices[0]["spec"]
        if self.some("selected-nodes", 2):
            spec.pop("allNodes")
            rule = {"key": ZONE, "operator": "In", "values": [self.zones[0]]}
            spec["nodeSelector"] = {"nodeSelectorTerms": [{"matchExpressions": [rule]}]}
        self.add(*slices)

    # --- volumes

    def storage(self) -> None:
        api = "storage.k8s.io/v1"
        self.add(
            obj("StorageClass", "now", api=api, provisioner="disk.example.com",
                volumeBindingMode="Immediate"),
            obj("StorageClass", "later", api=api, provisioner="disk.example.com",
                volumeBindingMode="WaitForFirstConsumer"),
            obj("StorageClass", "local", api=api, provisioner="kubernetes.io/no-provisioner",
                volumeBindingMode="WaitForFirstConsumer"),
        )  # fmt: skip
        zone = self.chance.choice(self.zones)
        rule = {"key": ZONE, "operator": "In", "values": [zone]}
        near = {"required": {"nodeSelectorTerms": [{"matchExpressions": [rule]}]}}
        self.add(
            *_bound_volume("zonal", near),
            *_bound_volume("single", {}, mode="ReadWriteOncePod"),
            _volume_claim("unbound", "now"),
            _volume_claim("provisioned", "later"),
            _volume_claim("local", "local"),
        )
        old = _bound_volume("labelled", {})
        old[0]["metadata"]["labels"] = {ZONE: self.chance.choice(self.zones)}
        self.add(*old)
        if self.one_in(2):
            host = {"key": HOST, "operator": "In", "values": ["n0"]}
            there = {"required": {"nodeSelectorTerms": [{"matchExpressions": [host]}]}}
            self.add(_volume("local-disk", there, storageClassName="local"))

    # --- pods on nodes

    def running(self, name: str) -> None:
        nodes = [item["metadata"]["name"] for item in self.made.of("Node")]
        node = self.chance.choice(nodes)
        made = self.bare(name)
        made["spec"]["nodeName"] = node
        made["status"] = {"phase": "Running"}
        if self.some("running-anti-affinity", 6):
            key = self.chance.choice([HOST, ZONE])
            _affinity(made, "podAntiAffinity", [_term(self.app(), key)])
        if self.some("running-affinity", 8):
            _affinity(made, "podAffinity", [_term(made["metadata"]["labels"]["app"], ZONE)])
        if self.some("running-wish", 6):
            wish = {
                "weight": self.chance.choice([1, 50]),
                "podAffinityTerm": _term(self.app(), ZONE),
            }
            kind = self.chance.choice(["podAffinity", "podAntiAffinity"])
            _affinity(made, kind, [wish], preferred=True)
        if self.some("running-port", 6):
            _port(made, self.chance.choice([8080, 9090]))
        if self.some("running-volume", 4):
            _mount(made, "single")
        if self.some("leaving-pod", 15):
            _delete(made)
        if self.some("other-namespace", 8):
            made["metadata"]["namespace"] = "other"
            self.add(made)
            return
        if self.some("finished", 15):
            made["status"] = {"phase": "Succeeded"}
        if self.some("resized", 10):
            # What the kubelet has given it so far counts, too.
            big = {"cpu": "2500m", "memory": "2Gi"}
            given = {"name": "main", "resources": {"requests": big}, "allocatedResources": big}
            made["status"]["containerStatuses"] = [given]
        free = self.free.get(node) or []
        if free and self.some("holder", 2):
            count = self.chance.choice([1, 1, 2])
            taken = [free.pop(0) for _ in range(min(count, len(free)))]
            self.hold(made, taken)
        self.add(made)

    def hold(self, holder: JsonDict, taken: list[tuple[str, str]]) -> None:
        """Let a pod on a node have devices by a claim of its own."""
        name = holder["metadata"]["name"]
        wire = claim(f"{name}-gpus", request("r", count=len(taken)), namespace="default")
        results = [
            {"request": "r", "driver": DRIVER, "pool": where, "device": device}
            for where, device in taken
        ]
        wire["metadata"]["uid"] = f"claim-{name}"
        holder["metadata"]["uid"] = f"pod-{name}"
        user = {"resource": "pods", "name": name, "uid": f"pod-{name}"}
        wire["status"] = {
            "allocation": {
                "devices": {"results": results},
                "nodeSelector": _only(holder["spec"]["nodeName"]),
                "allocationTimestamp": "2026-01-01T00:00:00Z",
            },
            "reservedFor": [user],
        }
        holder["spec"]["resourceClaims"] = [{"name": "gpus", "resourceClaimName": f"{name}-gpus"}]
        self.add(wire)

    def app(self) -> str:
        return self.chance.choice(["web", "db", "job"])

    def bare(self, name: str) -> JsonDict:
        """A pod with requests, labels and a priority."""
        requests = {
            "cpu": self.chance.choice(["100m", "500m", "1", "1500m", "2"]),
            "memory": self.chance.choice(["64Mi", "512Mi", "1Gi", "3Gi"]),
        }
        for resource in ("cpu", "memory"):
            if self.some(f"no-{resource}", 8):
                del requests[resource]
        made = pod(
            name,
            requests=requests or None,
            labels={"app": self.app(), "tier": self.chance.choice(["x", "y"])},
            priority=self.chance.choice([0, 0, 10, 100]),
        )
        made["spec"]["containers"][0]["image"] = self.chance.choice(list(IMAGES))
        return made

    # --- pods that wait

    def waits(self, name: str) -> None:
        made = self.bare(name)
        spec = made["spec"]
        if self.some("cannot-preempt", 2):
            spec["preemptionPolicy"] = "Never"
        for part, number in PARTS.items():
            if self.some(part, number):
                getattr(self, "with_" + part.replace("-", "_"))(made)
        for part, number in HELD.items():
            if self.some(part, number):
                getattr(self, "with_" + part.replace("-", "_"))(made)
        kinds = {name: weight for name, weight in DEVICES.items() if name not in self.without}
        kind = self.chance.choices(list(kinds), list(kinds.values()))[0]
        self.made.features.add(f"devices-{kind}")
        self.ask_for(kind, made)
        self.add(made)

    def with_node_selector(self, made: JsonDict) -> None:
        made["spec"]["nodeSelector"] = self.chance.choice(
            [
                {"disk": "ssd"},
                {"disk": "hdd"},
                {HOST: "n0"},
                {ZONE: self.zones[0]},
                {"disk": "tape"},
            ]
        )

    def with_node_affinity(self, made: JsonDict) -> None:
        rule = self.chance.choice(
            [
                {"key": "disk", "operator": "NotIn", "values": ["hdd"]},
                {"key": ZONE, "operator": "Exists"},
                {"key": ZONE, "operator": "In", "values": self.zones[:1]},
            ]
        )
        terms = [{"matchExpressions": [rule]}]
        if self.one_in(3):
            field = {"key": "metadata.name", "operator": "In", "values": ["n1"]}
            terms = [{"matchFields": [field]}]
            self.made.features.add("names-node")
        required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}
        made["spec"].setdefault("affinity", {}).setdefault("nodeAffinity", {}).update(required)

    def with_preferred_nodes(self, made: JsonDict) -> None:
        terms = [
            {
                "weight": self.chance.choice([1, 10, 77]),
                "preference": {
                    "matchExpressions": [{"key": key, "operator": "In", "values": [value]}]
                },
            }
            for key, value in (("disk", "ssd"), (ZONE, self.zones[-1]))
        ]
        chosen = {
            "preferredDuringSchedulingIgnoredDuringExecution": terms[: self.chance.choice([1, 2])]
        }
        made["spec"].setdefault("affinity", {}).setdefault("nodeAffinity", {}).update(chosen)

    def with_tolerations(self, made: JsonDict) -> None:
        made["spec"]["tolerations"] = self.chance.choice(
            [
                [{"key": "team", "operator": "Equal", "value": "red", "effect": "NoSchedule"}],
                [{"key": "team", "operator": "Exists"}, {"key": "slow", "operator": "Exists"}],
                [{"operator": "Exists"}],
                [{"key": "node.kubernetes.io/unschedulable", "operator": "Exists"}],
            ]
        )

    def with_affinity(self, made: JsonDict) -> None:
        _affinity(made, "podAffinity", [_term(self.app(), self.chance.choice([HOST, ZONE]))])

    def with_anti_affinity(self, made: JsonDict) -> None:
        _affinity(made, "podAntiAffinity", [_term(self.app(), self.chance.choice([HOST, ZONE]))])

    def with_preferred_pods(self, made: JsonDict) -> None:
        for kind in ("podAffinity", "podAntiAffinity"):
            if self.one_in(2):
                continue
            wish = {
                "weight": self.chance.choice([1, 30, 100]),
                "podAffinityTerm": _term(self.app(), self.chance.choice([HOST, ZONE])),
            }
            _affinity(made, kind, [wish], preferred=True)

    def with_spread(self, made: JsonDict) -> None:
        self.spread(made, "DoNotSchedule")

    def with_soft_spread(self, made: JsonDict) -> None:
        self.spread(made, "ScheduleAnyway")

    def spread(self, made: JsonDict, what: str) -> None:
        rule: JsonDict = {
            "maxSkew": self.chance.choice([1, 1, 2]),
            "topologyKey": self.chance.choice([HOST, ZONE]),
            "whenUnsatisfiable": what,
            "labelSelector": {"matchLabels": {"app": made["metadata"]["labels"]["app"]}},
        }
        if self.one_in(3):
            rule["nodeTaintsPolicy"] = "Honor"
        if self.one_in(4):
            rule["nodeAffinityPolicy"] = "Ignore"
        if what == "DoNotSchedule" and self.one_in(5):
            rule["minDomains"] = 3
        rules = made["spec"].setdefault("topologySpreadConstraints", [])
        if all(
            (item["topologyKey"], item["whenUnsatisfiable"]) != (rule["topologyKey"], what)
            for item in rules
        ):
            rules.append(rule)

    def with_host_port(self, made: JsonDict) -> None:
        _port(made, self.chance.choice([8080, 9090]))

    def with_dongle(self, made: JsonDict) -> None:
        _ask_extended(made, DONGLE, self.chance.choice([1, 2, 3]))

    def with_volume(self, made: JsonDict) -> None:
        names = ["zonal", "single", "labelled", "unbound", "provisioned", "local"]
        name = self.chance.choice([each for each in names if f"volume-{each}" not in self.without])
        self.made.features.add(f"volume-{name}")
        _mount(made, name)

    def with_volume_missing(self, made: JsonDict) -> None:
        _mount(made, "nowhere")

    def with_init(self, made: JsonDict) -> None:
        first = {"name": "init", "image": "web:1"}
        if self.one_in(2):
            first["resources"] = {"requests": {"cpu": "1200m"}}
        if self.one_in(2):
            first["restartPolicy"] = "Always"
        made["spec"]["initContainers"] = [first]

    def with_image(self, made: JsonDict) -> None:
        made["spec"]["containers"].append({"name": "second", "image": "model:1"})

    def with_overhead(self, made: JsonDict) -> None:
        made["spec"]["overhead"] = {"cpu": "250m", "memory": "120Mi"}

    def with_pod_level(self, made: JsonDict) -> None:
        """The pod itself requests something: of what it names, its containers do not count."""
        made["spec"]["resources"] = {"requests": {"cpu": self.chance.choice(["700m", "2500m"])}}

    def with_key_of_own(self, made: JsonDict) -> None:
        """A term that means pods with the same value of a label as the pod."""
        term = {"topologyKey": ZONE, "labelSelector": {}, "matchLabelKeys": ["tier"]}
        if self.one_in(2):
            term = {"topologyKey": HOST, "labelSelector": {}, "mismatchLabelKeys": ["tier"]}
        # A server writes the keys into the selector, and so do we.
        tier = made["metadata"]["labels"]["tier"]
        operator = "In" if "matchLabelKeys" in term else "NotIn"
        rule = {"key": "tier", "operator": operator, "values": [tier]}
        term["labelSelector"] = {"matchExpressions": [rule]}
        _affinity(made, "podAntiAffinity", [term])

    def with_other_namespaces(self, made: JsonDict) -> None:
        term = _term(self.app(), self.chance.choice([HOST, ZONE]))
        term |= self.chance.choice([{"namespaces": ["other"]}, {"namespaceSelector": {}}])
        _affinity(made, self.chance.choice(["podAffinity", "podAntiAffinity"]), [term])

    def with_node_number(self, made: JsonDict) -> None:
        operator = self.chance.choice(["Gt", "Lt"])
        rule = {"key": "rack", "operator": operator, "values": ["1"]}
        required = made["spec"].setdefault("affinity", {}).setdefault("nodeAffinity", {})
        required["requiredDuringSchedulingIgnoredDuringExecution"] = {
            "nodeSelectorTerms": [{"matchExpressions": [rule]}]
        }

    def with_gated(self, made: JsonDict) -> None:
        made["spec"]["schedulingGates"] = [{"name": "example.com/wait"}]

    def with_other_scheduler(self, made: JsonDict) -> None:
        made["spec"]["schedulerName"] = "another"

    def with_deleted(self, made: JsonDict) -> None:
        _delete(made)

    def ask_for(self, kind: str, made: JsonDict) -> None:
        """Let a pod ask for devices in one of the ways of `DEVICES`."""
        name = made["metadata"]["name"]
        tolerant = (
            {"tolerations": [{"key": "faulty", "operator": "Exists"}]}
            if self.some("device-toleration", 5)
            else {}
        )
        model = f'device.attributes["{DRIVER}"].?model.orValue("") == "big"'
        asked: Any = {
            "one": lambda: [request("r", **tolerant)],
            "two": lambda: [request("r", count=2, **tolerant)],
            "matched": lambda: [request("r", count=2), request("s")],
            "model": lambda: [request("r", "gpu", model)],
            "first-available": lambda: [
                first_of("r", big=ask("gpu", model, count=2), small=ask("gpu"))
            ],
            "all": lambda: [request("r", count="All")],
            "capacity": lambda: [request("r", capacity={"requests": {"memory": "30Gi"}})],
            "partition": lambda: [request("r", "part", count=self.chance.choice([1, 2]))],
            "network": lambda: [request("r", "net")],
            "no-class": lambda: [request("r", "nothing")],
            "claim-deleted": lambda: [request("r")],
            "bad-selector": lambda: [
                request("r", "gpu", f'device.attributes["{DRIVER}"].none > 1')
            ],
            "admin": lambda: [request("r", adminAccess=True)],
        }.get(kind, lambda: None)()
        if kind == "none":
            return
        if kind == "extended":
            _ask_extended(made, EXTENDED, self.chance.choice([1, 1, 2]))
            return
        if kind == "no-claim":
            made["spec"]["resourceClaims"] = [{"name": "d", "resourceClaimName": "nothing"}]
            return
        if kind == "claim-held":
            self.use_held(made)
            return
        if kind == "two-claims":
            wires = [claim(f"{name}-{n}", request("r"), namespace="default") for n in (1, 2)]
            self.add(*wires)
            made["spec"]["resourceClaims"] = [
                {"name": f"d{n}", "resourceClaimName": f"{name}-{n}"} for n in (1, 2)
            ]
            return
        if kind == "template":
            wire = claim(f"{name}-made", request("r", **tolerant), namespace="default")
            made["metadata"]["uid"] = f"pod-{name}"
            wire["metadata"]["ownerReferences"] = [
                {"apiVersion": "v1", "kind": "Pod", "name": name, "uid": f"pod-{name}",
                 "controller": True, "blockOwnerDeletion": True}
            ]  # fmt: skip
            wire["metadata"]["annotations"] = {"resource.kubernetes.io/pod-claim-name": "d"}
            template = obj("ResourceClaimTemplate", f"{name}-gpus", namespace="default")
            template["spec"] = {"spec": wire["spec"]}
            made["spec"]["resourceClaims"] = [
                {"name": "d", "resourceClaimTemplateName": f"{name}-gpus"}
            ]
            made["status"] = {
                "resourceClaimStatuses": [{"name": "d", "resourceClaimName": f"{name}-made"}]
            }
            self.add(template, wire)
            return
        match = f"{DRIVER}/numa" if kind == "matched" else None
        wire = claim(f"{name}-gpus", *asked, match=match, namespace="default")
        if kind == "admin":
            self.made.features.add("admin-namespace")
        if kind == "claim-deleted":
            _delete(wire)
        made["spec"]["resourceClaims"] = [{"name": "d", "resourceClaimName": f"{name}-gpus"}]
        self.add(wire)

    def use_held(self, made: JsonDict) -> None:
        """Let a pod use a claim that a pod on a node has; one of its own where there is none."""
        held = [
            item
            for item in self.made.of("ResourceClaim")
            if item["metadata"]["name"].startswith("run-")
        ]
        if not held:
            self.ask_for("one", made)
            return
        self.made.features.add("allocated-claim")
        name = self.chance.choice(held)["metadata"]["name"]
        made["spec"]["resourceClaims"] = [{"name": "d", "resourceClaimName": name}]

    def group(self) -> None:
        """Pods that start together or not at all."""
        if "group" in self.without:
            return
        self.made.features.add("group")
        count = self.chance.choice([2, 3])
        spec = {"schedulingPolicy": {"gang": {"minCount": count}}}
        self.add(
            obj(
                "PodGroup", "gang", namespace="default", api="scheduling.k8s.io/v1alpha2", spec=spec
            )
        )
        for number in range(count):
            made = self.bare(f"gang-{number}")
            made["spec"]["schedulingGroup"] = {"podGroupName": "gang"}
            made["spec"]["priority"] = 0
            self.add(made)


def _group_of(made: JsonDict) -> str:
    return (made["spec"].get("schedulingGroup") or {}).get("podGroupName") or ""


def _claims_of(made: JsonDict) -> list[str]:
    return [item for item in claim_names(made) if item]


def _term(app: str, key: str) -> JsonDict:
    return {"labelSelector": {"matchLabels": {"app": app}}, "topologyKey": key}


def _affinity(made: JsonDict, kind: str, terms: list[JsonDict], *, preferred: bool = False) -> None:
    name = "preferred" if preferred else "required"
    part = made["spec"].setdefault("affinity", {}).setdefault(kind, {})
    part.setdefault(f"{name}DuringSchedulingIgnoredDuringExecution", []).extend(terms)


def _port(made: JsonDict, number: int) -> None:
    made["spec"]["containers"][0]["ports"] = [{"containerPort": number, "hostPort": number}]


def _ask_extended(made: JsonDict, resource: str, count: int) -> None:
    parts = made["spec"]["containers"][0].setdefault("resources", {})
    for name in ("requests", "limits"):
        parts.setdefault(name, {})[resource] = str(count)


def _delete(made: JsonDict) -> None:
    """Let an object be in deletion: its finalizer keeps it."""
    made["metadata"]["finalizers"] = [FINALIZER]
    made["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"


def _only(node: str) -> JsonDict:
    field = {"key": "metadata.name", "operator": "In", "values": [node]}
    return {"nodeSelectorTerms": [{"matchFields": [field]}]}


def _mount(made: JsonDict, name: str) -> None:
    made["spec"].setdefault("volumes", []).append(
        {"name": name, "persistentVolumeClaim": {"claimName": name}}
    )


def _volume(name: str, affinity: JsonDict, **more: Any) -> JsonDict:
    spec = {
        "capacity": {"storage": "10Gi"},
        "accessModes": ["ReadWriteOnce"],
        "persistentVolumeReclaimPolicy": "Retain",
        "volumeMode": "Filesystem",
        "csi": {"driver": "disk.example.com", "volumeHandle": name},
        **more,
    }
    return obj(
        "PersistentVolume",
        name,
        api="v1",
        spec=spec | ({"nodeAffinity": affinity} if affinity else {}),
        status={"phase": "Available"},
    )


def _volume_claim(name: str, storage: str, mode: str = "ReadWriteOnce") -> JsonDict:
    spec = {
        "accessModes": [mode],
        "storageClassName": storage,
        "volumeMode": "Filesystem",
        "resources": {"requests": {"storage": "5Gi"}},
    }
    status = {"phase": "Pending"}
    return obj(
        "PersistentVolumeClaim", name, api="v1", namespace="default", spec=spec, status=status
    )


def _bound_volume(name: str, affinity: JsonDict, mode: str = "ReadWriteOnce") -> list[JsonDict]:
    """A volume, and the claim that has it."""
    reference = {"kind": "PersistentVolumeClaim", "namespace": "default", "name": name, "uid": name}
    volume = _volume(
        f"pv-{name}", affinity, storageClassName="now", claimRef=reference, accessModes=[mode]
    )
    volume["status"] = {"phase": "Bound"}
    wire = _volume_claim(name, "now", mode)
    wire["spec"]["volumeName"] = f"pv-{name}"
    wire["metadata"]["uid"] = name
    wire["metadata"]["annotations"] = {"pv.kubernetes.io/bind-completed": "yes"}
    wire["status"] = {"phase": "Bound"}
    return [volume, wire]
