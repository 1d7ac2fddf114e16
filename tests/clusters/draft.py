"""A cluster in the making: its chance, its objects, and the small pieces of a pod."""

import random
from collections.abc import Sequence
from typing import TypeVar

from builders import obj, pod
from dralab.values.json_types import JsonDict

MI = 1024**2
ZONE, HOST = "topology.kubernetes.io/zone", "kubernetes.io/hostname"
DONGLE, EXTENDED = "example.com/dongle", "example.com/gpu"
IMAGES = {"small:1": 10 * MI, "web:1": 300 * MI, "model:1": 900 * MI}
NOW = "2026-01-01T00:00:00Z"
# What keeps no pod from a node.
PREFERENCES = frozenset(
    {"prefer-taint", "preferred-nodes", "preferred-pods", "soft-spread", "running-wish", "image"}
)
T = TypeVar("T")
Place = tuple[str, str]
"""A device: its pool and its name."""


class Draft:
    """The objects so far; `features` names what occurs in them."""

    def __init__(self, seed: int, without: frozenset[str]) -> None:
        self.seed = seed
        self.without = without
        self.objects: list[JsonDict] = []
        self.features: set[str] = set()
        self._chance = random.Random(f"clusters/{seed}")
        # Every other cluster has few obstacles: there, what pods prefer decides.
        self.calm = seed % 2 == 1
        self.zones: list[str] = self.choice([["a", "b"], ["a", "b", "c"], ["a"]])
        # What pods on nodes can have, by node: whole devices, shared ones, partitions.
        self.free: dict[str, list[Place]] = {}
        self.shared: dict[str, list[Place]] = {}
        self.parts: dict[str, list[Place]] = {}

    def of(self, kind: str) -> list[JsonDict]:
        return [item for item in self.objects if item["kind"] == kind]

    def add(self, *objects: JsonDict) -> None:
        self.objects += objects

    def choice(self, among: Sequence[T]) -> T:
        return self._chance.choice(among)

    def weighted(self, weights: dict[str, int]) -> str:
        kinds = {name: weight for name, weight in weights.items() if name not in self.without}
        return self._chance.choices(list(kinds), list(kinds.values()))[0]

    def one_in(self, number: int) -> bool:
        return self._chance.randrange(number) == 0

    def some(self, name: str, number: int) -> bool:
        """One in so many; noted as a feature where it comes out so."""
        if self.calm and name not in PREFERENCES:
            number *= 4
        found = self.one_in(number) and name not in self.without
        if found:
            self.features.add(name)
        return found

    def app(self) -> str:
        return self.choice(["web", "db", "job"])

    def pod(self, name: str) -> JsonDict:
        """A pod with requests, labels and a priority."""
        requests = {
            "cpu": self.choice(["100m", "500m", "1", "1500m", "2"]),
            "memory": self.choice(["64Mi", "512Mi", "1Gi", "3Gi"]),
        }
        for resource in ("cpu", "memory"):
            if self.some(f"no-{resource}", 8):
                del requests[resource]
        labels = {"app": self.app(), "tier": self.choice(["x", "y"])}
        made = pod(
            name,
            requests=requests or None,
            labels=labels,
            priority=self.choice([0, 0, 10, 100]),
        )
        made["spec"]["containers"][0]["image"] = self.choice(list(IMAGES))
        return made

    def wish(self) -> JsonDict:
        """A preference for pods of an app, or against them."""
        where = self.choice([HOST, ZONE])
        return {"weight": self.choice([1, 30, 100]), "podAffinityTerm": term(self.app(), where)}


def term(app: str, key: str) -> JsonDict:
    return {"labelSelector": {"matchLabels": {"app": app}}, "topologyKey": key}


def affinity(made: JsonDict, kind: str, terms: list[JsonDict], *, preferred: bool = False) -> None:
    name = "preferred" if preferred else "required"
    part = made["spec"].setdefault("affinity", {}).setdefault(kind, {})
    part.setdefault(f"{name}DuringSchedulingIgnoredDuringExecution", []).extend(terms)


def port(made: JsonDict, number: int) -> None:
    made["spec"]["containers"][0]["ports"] = [{"containerPort": number, "hostPort": number}]


def mount(made: JsonDict, name: str) -> None:
    volume = {"name": name, "persistentVolumeClaim": {"claimName": name}}
    made["spec"].setdefault("volumes", []).append(volume)


def ask_extended(made: JsonDict, resource: str, count: int) -> None:
    parts = made["spec"]["containers"][0].setdefault("resources", {})
    for name in ("requests", "limits"):
        parts.setdefault(name, {})[resource] = str(count)


def use(made: JsonDict, *names: str) -> None:
    """Let a pod use claims."""
    made["spec"]["resourceClaims"] = [
        {"name": f"d{number}", "resourceClaimName": name} for number, name in enumerate(names)
    ]


def delete(made: JsonDict) -> None:
    """Let an object be in deletion: its finalizer keeps it."""
    made["metadata"]["finalizers"] = ["example.com/kept"]
    made["metadata"]["deletionTimestamp"] = NOW


def named_in(kind: str, name: str, api: str, **parts: object) -> JsonDict:
    """An object in the namespace of the pods."""
    return obj(kind, name, namespace="default", api=api, **parts)


def rule(key: str, *values: str, operator: str = "In") -> JsonDict:
    return {"key": key, "operator": operator} | ({"values": list(values)} if values else {})


def matching(*rules: JsonDict, fields: str = "matchExpressions") -> JsonDict:
    """A node selector of one term."""
    return {"nodeSelectorTerms": [{fields: list(rules)}]}
