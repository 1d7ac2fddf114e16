"""Changes of a cluster: nodes are added, removed, cordoned or tainted; pods end.

Each change is applied to a model and returns the pods that lose their place. Names that are not
there are `UnknownName`: a question about a node that does not exist has no answer.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any, Final, Protocol

from dralab.fleet import rendering, shapes
from dralab.fleet.model import SampleFleet
from dralab.objects.claims import results_of
from dralab.objects.metadata import NamespacedName, controller_of, metadata_of, spec_of
from dralab.objects.taints import NO_EXECUTE, taints_of, untolerated
from dralab.scheduling.copies import NEW, copies, put
from dralab.scheduling.model import ClusterModel
from dralab.scheduling.pods import PodInfo
from dralab.scheduling.state import PodPlacement
from dralab.values import patches
from dralab.values.json_types import JsonDict, JsonObject
from dralab.values.near_names import did_you_mean
from dralab.values.records import dataclass

REQUIRED: Final = "requiredDuringSchedulingIgnoredDuringExecution"


class UnknownName(ValueError):  # noqa: N818 - it says what happened
    """A change names something that does not exist; `known` are the names that do."""

    def __init__(self, kind: str, name: str, known: Iterable[str]) -> None:
        super().__init__(f"no {kind} {name!r}{did_you_mean(name, list(known))}")


class SupposedChange(Protocol):
    """One change of a cluster."""

    def apply(self, model: ClusterModel) -> list[PodInfo]:
        """Change the model; return the displaced pods, as waiting ones."""
        ...


@dataclass(frozen=True, slots=True)
class AddNodes:
    """Nodes of a known shape, or copies of an existing node, with their devices."""

    like: str
    count: int

    def apply(self, model: ClusterModel) -> list[PodInfo]:
        """Add the nodes; no pod is displaced."""
        for item in self.objects(model):
            put(model, item)
        return []

    def objects(self, model: ClusterModel) -> list[JsonDict]:
        """Return what comes with the nodes. UnknownName."""
        one = copies if model.node(self.like) is not None else of_shape
        return list(one(model, self.like, self.count))


@dataclass(frozen=True, slots=True)
class RemoveNode:
    """A node is removed, with its devices."""

    name: str

    def apply(self, model: ClusterModel) -> list[PodInfo]:
        """Remove the node; its pods are displaced, those of DaemonSets end."""
        node_named(model, self.name)
        leaving = displaced(model, model.on(self.name))
        for name in [
            name
            for name, item in model.slices.items()
            if spec_of(item).get("nodeName") == self.name
        ]:
            model.put_slice(name, None)
        model.remove_node(self.name)
        return leaving


@dataclass(frozen=True, slots=True)
class Cordon:
    """A node takes no new pods."""

    name: str

    def apply(self, model: ClusterModel) -> list[PodInfo]:
        """Cordon the node; its pods stay."""
        node_named(model, self.name)
        model.cordon(self.name)
        return []


@dataclass(frozen=True, slots=True)
class Uncordon:
    """A node takes new pods again."""

    name: str

    def apply(self, model: ClusterModel) -> list[PodInfo]:
        """Uncordon the node; no pod is displaced."""
        node_named(model, self.name)
        model.uncordon(self.name)
        return []


@dataclass(frozen=True, slots=True)
class MovePod:
    """A pod is created again for one node, before the waiting pods are scheduled."""

    key: NamespacedName
    node: str

    def apply(self, model: ClusterModel) -> list[PodInfo]:
        """Move the pod; it is returned if it does not fit there."""
        node_named(model, self.node)
        running = {each.pod.key: each.pod for each in model.running.values()}
        waiting = {pod.key: pod for pod in model.waiting}
        if self.key in waiting:
            model.put_waiting(model.info(bound_to(waiting[self.key].obj, self.node)))
            return []
        if self.key not in running:
            raise UnknownName("pod", str(self.key), map(str, (*running, *waiting)))
        unbound = model.take_away(running[self.key].uid)
        model.evicted.add(unbound.uid)
        pod = model.info(bound_to(unbound.obj, self.node))
        decided = model.try_pod(pod)
        if not isinstance(decided, PodPlacement):
            return [pod]
        model.place(decided)
        return []


@dataclass(frozen=True, slots=True)
class Taint:
    """A node gets a taint."""

    name: str
    taint: Mapping[str, Any]

    def apply(self, model: ClusterModel) -> list[PodInfo]:
        """Taint the node; NoExecute displaces pods that do not tolerate it for ever."""
        node = node_named(model, self.name)
        taints = [*taints_of(node), dict(self.taint)]
        model.put_node({**node, "spec": {**spec_of(node), "taints": taints}})
        if self.taint["effect"] != NO_EXECUTE:
            return []
        return displaced(
            model,
            [each for each in model.on(self.name) if not _stays(each.pod, self.taint)],
        )


@dataclass(frozen=True, slots=True)
class Without:
    """A pod, or all pods of a workload, end: `kind` in lower case, such as `pod` or `job`."""

    kind: str
    key: NamespacedName

    def apply(self, model: ClusterModel) -> list[PodInfo]:
        """Remove the pods; they are not created again."""
        ending = [
            pod
            for pod in (*[each.pod for each in model.running.values()], *model.waiting)
            if self._is_meant(model, pod)
        ]
        if not ending:
            known = [str(pod.key) for pod in model.waiting]
            known += [str(each.pod.key) for each in model.running.values()]
            raise UnknownName(self.kind, str(self.key), known if self.kind == "pod" else ())
        gone = {pod.uid for pod in ending}
        for uid in gone & model.running.keys():
            model.take_away(uid)
        model.stop_waiting(gone)
        return []

    def _is_meant(self, model: ClusterModel, pod: PodInfo) -> bool:
        if pod.key.namespace != self.key.namespace:
            return False
        if self.kind == "pod":
            return pod.key.name == self.key.name
        return any(
            (kind.lower(), name) == (self.kind, self.key.name)
            for kind, name in controllers(model, pod.obj)
        )


@dataclass(frozen=True, slots=True)
class UpgradeDriver:
    """A driver is replaced node by node: pods with its devices leave the node meanwhile.

    So it is with drivers whose devices cannot be in use then, such as GPU kernel modules. Nodes
    with the fewest pods come first; `at_once` of them are upgraded together. A node that is done
    serves again.
    """

    driver: str
    at_once: int = 1

    def apply(self, model: ClusterModel) -> list[PodInfo]:
        """Upgrade all nodes; return the pods that have no node in the end, and record the moves."""
        mine = [item for item in model.slices.values() if item["spec"]["driver"] == self.driver]
        if not mine:
            drivers = {item["spec"]["driver"] for item in model.slices.values()}
            raise UnknownName("driver", self.driver, sorted(drivers))
        by_node: dict[str, list[JsonDict]] = {}
        for item in mine:
            by_node.setdefault(item["spec"].get("nodeName") or "", []).append(item)
        nodes = sorted(by_node, key=lambda name: (len(self._users(model, name)), name))
        homeless: list[PodInfo] = []
        for at in range(0, len(nodes), self.at_once):
            batch = nodes[at : at + self.at_once]
            for name in batch:
                homeless += displaced(model, self._users(model, name))
            for name in batch:
                for item in by_node[name]:
                    model.put_slice(item["metadata"]["name"], None)
            decided = model.run(homeless)
            homeless = [pod for pod in homeless if not isinstance(decided[pod.uid], PodPlacement)]
            model.interrupted.update(pod.uid for pod in homeless)
            for name in batch:
                for item in by_node[name]:
                    model.put_slice(item["metadata"]["name"], item)
            decided = model.run(homeless)
            homeless = [pod for pod in homeless if not isinstance(decided[pod.uid], PodPlacement)]
        return homeless

    def _users(self, model: ClusterModel, node: str) -> list[PodPlacement]:
        """Return the pods on a node that have devices of the driver; without a node, all pods."""
        among = model.on(node) if node else model.in_order(model.running.values())
        return [
            each
            for each in among
            if any(
                result["driver"] == self.driver
                for plan in each.plans
                for result in results_of(plan.allocation)
            )
        ]


def patched(objects: Iterable[JsonDict], changed: Iterable[JsonDict]) -> Iterator[JsonDict]:
    """Yield objects with others merged into those of the same kind and name; new ones come last.

    As `kubectl patch --type merge`: lists are replaced, null removes a field.
    """
    waiting = {_identity(item): item for item in changed}
    for item in objects:
        patch = waiting.pop(_identity(item), None)
        yield item if patch is None else patches.merge_patch(item, patch)
    yield from waiting.values()


def of_shape(model: ClusterModel, shape: str, count: int) -> Iterator[JsonDict]:
    """Yield the objects of new nodes of a shape; UnknownName lists what is known."""
    try:
        sample = shapes.sample(shape, nodes=count)
    except shapes.UnknownShape:
        known = [*shapes.names(), *model.state.table.row_of]
        raise UnknownName("shape or node", shape, known) from None
    prefix = NEW
    while any(f"{prefix}{node.name}" in model.state.table.row_of for node in sample.nodes):
        prefix += NEW
    sample = _renamed(sample, prefix)
    yield from rendering.nodes(sample)
    classes = model.state.demands.classes
    for item in rendering.v1(sample):
        if item["kind"] != "DeviceClass" or item["metadata"]["name"] not in classes:
            yield item


def devices_of_one(model: ClusterModel, like: str) -> int:
    """Return how many devices each node has that is added like a node or shape. UnknownName."""
    one = copies if model.node(like) is not None else of_shape
    return sum(
        len(spec_of(item).get("devices") or ())
        for item in one(model, like, 1)
        if item["kind"] == "ResourceSlice"
    )


def bound_to(pod: JsonObject, node: str) -> JsonDict:
    """Return a pod that may run on one node alone, bound as the pods of DaemonSets are."""
    spec = dict(spec_of(pod))
    affinity = dict(spec.get("affinity") or {})
    rules = dict(affinity.get("nodeAffinity") or {})
    wanted = rules.get(REQUIRED) or {}
    field = {"key": "metadata.name", "operator": "In", "values": [node]}
    terms = [
        {**term, "matchFields": [*(term.get("matchFields") or ()), field]}
        for term in wanted.get("nodeSelectorTerms") or [{}]
    ]
    rules[REQUIRED] = {"nodeSelectorTerms": terms}
    spec["affinity"] = {**affinity, "nodeAffinity": rules}
    return {**pod, "spec": spec}


def displaced(model: ClusterModel, placements: Iterable[PodPlacement]) -> list[PodInfo]:
    """Remove pods from their nodes; return those that a controller creates again, as waiting pods.

    Pods of DaemonSets belong to their node and end with it.
    """
    found = []
    for each in placements:
        pod = model.take_away(each.pod.uid)
        model.evicted.add(pod.uid)
        if not of_daemon_set(pod.obj):
            found.append(pod)
    return found


def of_daemon_set(pod: JsonObject) -> bool:
    """Return whether a pod belongs to its node: a DaemonSet's, or one of the kubelet's own."""
    owner = controller_of(pod)
    return owner is not None and owner["kind"] in {"DaemonSet", "Node"}


def controllers(model: ClusterModel, obj: JsonObject) -> Iterator[tuple[str, str]]:
    """Yield kind and name of an object's controller, of the controller's controller, and so on.

    A ReplicaSet that is not among the objects is taken to be its Deployment's, by its name.
    """
    owner = controller_of(obj)
    while owner is not None:
        kind, name = str(owner["kind"]), str(owner["name"])
        yield kind, name
        found = model.objects.named(kind, NamespacedName(metadata_of(obj)["namespace"], name))
        if found is None and kind == "ReplicaSet":
            yield "Deployment", name.rpartition("-")[0]
        owner = None if found is None else controller_of(found)


def node_named(model: ClusterModel, name: str) -> JsonDict:
    """Return a node; UnknownName: there is none of that name."""
    node = model.node(name)
    if node is None:
        raise UnknownName("node", name, model.state.table.row_of)
    return node


def _stays(pod: PodInfo, taint: JsonObject) -> bool:
    for_ever = [each for each in pod.tolerations if each.get("tolerationSeconds") is None]
    return untolerated(for_ever, [taint], {NO_EXECUTE}) is None


def _renamed(sample: SampleFleet, prefix: str) -> SampleFleet:
    return SampleFleet(
        nodes=tuple(replace(node, name=f"{prefix}{node.name}") for node in sample.nodes),
        pools=tuple(
            replace(
                pool, name=f"{prefix}{pool.name}", node=f"{prefix}{pool.node}" if pool.node else ""
            )
            for pool in sample.pools
        ),
    )


def _identity(item: JsonObject) -> tuple[str, str, str]:
    metadata = metadata_of(item)
    return str(item.get("kind")), metadata.get("namespace") or "default", str(metadata.get("name"))
