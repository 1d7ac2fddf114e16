"""Nodes: taints from conditions, status Unknown when the lease expires, taint eviction.

Sources: kube-controller-manager's node-lifecycle and taint-eviction controllers. A node without a
lease never had a kubelet: its conditions are taken as they are.
"""

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from dralab.controllers import disruptions
from dralab.kernel.clock import SECOND, from_rfc3339
from dralab.objects.conditions import condition_of, condition_status, with_condition
from dralab.objects.metadata import NamespacedName, is_deleting, key_of, spec_of, status_of
from dralab.objects.nodes import is_unschedulable
from dralab.objects.pods import is_finished, is_ready
from dralab.objects.taints import leaves_at, taints_of
from dralab.runtime.client import amend
from dralab.runtime.manager import Manager
from dralab.runtime.resources import LEASES, NODES, PODS
from dralab.values.json_types import JsonDict, JsonObject

Taint = tuple[str, str, str]
LEASE_NAMESPACE: Final = "kube-node-lease"
# --node-monitor-grace-period since 1.32.
GRACE: Final = 50 * SECOND
NOT_READY: Final = "node.kubernetes.io/not-ready"
UNREACHABLE: Final = "node.kubernetes.io/unreachable"
CORDONED: Final = "node.kubernetes.io/unschedulable"
# Condition → status that taints → taint (NoSchedule).
PRESSURES: Final = (
    ("MemoryPressure", "True", "node.kubernetes.io/memory-pressure"),
    ("DiskPressure", "True", "node.kubernetes.io/disk-pressure"),
    ("PIDPressure", "True", "node.kubernetes.io/pid-pressure"),
    ("NetworkUnavailable", "True", "node.kubernetes.io/network-unavailable"),
)
OURS: Final = frozenset({NOT_READY, UNREACHABLE, CORDONED, *(item[2] for item in PRESSURES)})
REPORTED: Final = ("Ready", "MemoryPressure", "DiskPressure", "PIDPressure")


class SignOfLife(NamedTuple):
    """What a kubelet wrote last, and when it was observed.

    Its own times are compared with each other only: its clock may differ from this one.
    """

    renewed: str
    ready: tuple[str, str]
    seen_at: int


class NodeLifecycle:
    """Keeps the taints of nodes, and evicts pods that do not tolerate them."""

    def __init__(self, manager: Manager) -> None:
        self.manager = manager
        self.client = manager.client
        self.nodes = manager.cache(NODES)
        self.leases = manager.cache(LEASES)
        self.pods = manager.cache(PODS)
        self.pods.index("node", lambda pod: [pod["spec"].get("nodeName") or ""])
        self.recorder = manager.recorder("node-controller")
        self.evictions = manager.recorder("taint-eviction-controller")
        self._signs: dict[str, SignOfLife] = {}
        # When each taint was first seen here: `kubectl taint` does not say since when it holds.
        self._seen: dict[str, dict[Taint, int]] = {}
        self.queue = manager.queue("node-lifecycle", self.reconcile)
        self.pod_queue = manager.queue("taint-eviction", self.sync_pod)
        self.nodes.subscribe(self._node)
        self.leases.subscribe(self._lease)
        self.pods.subscribe(self._pod)

    def _node(self, old: JsonDict | None, new: JsonDict | None) -> None:
        if new is None:
            if old is not None:
                self._seen.pop(old["metadata"]["name"], None)
                self._signs.pop(old["metadata"]["name"], None)
            return
        self.queue.add(key_of(new))
        self._see(new)
        self._notice(new)
        if old is None or _taints(old) != _taints(new) or _ready(old) != _ready(new):
            for pod in self.pods.find("node", new["metadata"]["name"]):
                self.pod_queue.add(key_of(pod))

    def _see(self, node: JsonDict) -> None:
        """Record the start of each NoExecute taint: its own time, or now."""
        name = node["metadata"]["name"]
        known, now = self._seen.get(name, {}), self.manager.engine.clock.now()
        self._seen[name] = {
            (key := _identity(taint)): from_rfc3339(taint["timeAdded"])
            if taint.get("timeAdded")
            else known.get(key, now)
            for taint in _taints(node)
            if taint.get("effect") == "NoExecute"
        }

    def _lease(self, old: JsonDict | None, new: JsonDict | None) -> None:
        lease = new if new is not None else old
        if lease is None or lease["metadata"].get("namespace") != LEASE_NAMESPACE:
            return
        node = self.nodes.get(NamespacedName("", lease["metadata"]["name"]))
        if node is not None:
            self._notice(node)
        # A renewal of a healthy node changes nothing: the timer of its last look finds it.
        if node is not None and (old is None or new is None or _ready(node) == "Unknown"):
            self.queue.add(key_of(node))

    def _pod(self, old: JsonDict | None, new: JsonDict | None) -> None:
        node = "" if new is None else new["spec"].get("nodeName")
        if new is not None and node and (old is None or _placement(old) != _placement(new)):
            self.pod_queue.add(key_of(new))

    def _notice(self, node: JsonDict) -> None:
        """Note when a kubelet gave its last sign of life: a renewed lease, a new condition."""
        name = node["metadata"]["name"]
        lease = self.leases.get(NamespacedName(LEASE_NAMESPACE, name))
        renewed = str(spec_of(lease).get("renewTime") or "") if lease is not None else ""
        reported = condition_of(node, "Ready") or {}
        ready = (str(reported.get("status") or ""), str(reported.get("lastHeartbeatTime") or ""))
        known = self._signs.get(name)
        now = self.manager.engine.clock.now()
        if known is None or renewed > known.renewed:
            self._signs[name] = SignOfLife(renewed, ready, now)
        elif ready != known.ready:
            # "Unknown" is written here, not by the kubelet.
            seen_at = known.seen_at if ready[0] == "Unknown" else now
            self._signs[name] = SignOfLife(known.renewed, ready, seen_at)

    # --- nodes

    def reconcile(self, key: NamespacedName) -> int | None:
        """Update a node by its lease and conditions; look again when the lease runs out."""
        node = self.nodes.get(key)
        if node is None:
            return None
        left = self._time_left(key.name)
        if left is not None and left <= 0 and _ready(node) != "Unknown":
            node = self._mark_unknown(node)
        self._taint(node)
        return left if left is not None and left > 0 else None

    def _time_left(self, name: str) -> int | None:
        """Return how long a kubelet may stay silent; None if none renews a lease."""
        sign = self._signs.get(name)
        lease = self.leases.get(NamespacedName(LEASE_NAMESPACE, name))
        if sign is None or lease is None or not sign.renewed:
            return None
        return sign.seen_at + GRACE - self.manager.engine.clock.now()

    def _mark_unknown(self, node: JsonDict) -> JsonDict:
        now = self.manager.now()
        status = status_of(node)
        conditions = list(status.get("conditions") or ())
        for type_ in REPORTED:
            held = condition_of(node, type_) or {}
            unknown = {
                **held,
                "type": type_,
                "status": "Unknown",
                "reason": "NodeStatusUnknown",
                "message": "Kubelet stopped posting node status.",
            }
            conditions = with_condition(conditions, unknown, now=now)
        body = {**node, "status": {**status, "conditions": conditions}}
        told = self.client.update(NODES, body, subresource="status")
        self.nodes.learn(told)
        self.recorder.event(
            node,
            "Node",
            "NodeNotReady",
            f"Node {node['metadata']['name']} status is now: NodeNotReady",
        )
        return told

    def _mark_pod(self, pod: JsonDict, node: JsonDict) -> None:
        """Mark a pod as not ready with its node; the kubelet reverts it."""
        if not is_ready(pod) or _ready(node) in {"", "True"}:
            return
        condition = {
            "type": "Ready",
            "status": "False",
            "reason": "NodeNotReady",
            "message": "",
            "lastTransitionTime": self.manager.now(),
        }
        disruptions.mark(self.client, pod, condition)

    def _taint(self, node: JsonDict) -> None:
        wanted = _wanted(node)

        def change(latest: JsonDict) -> bool:
            spec = latest.setdefault("spec", {})
            held = spec.get("taints") or []
            kept = [
                taint
                for taint in held
                if taint["key"] not in OURS or (taint["key"], taint["effect"]) in wanted
            ]
            known = {(taint["key"], taint["effect"]) for taint in kept}
            new = [
                {"key": key, "effect": effect, "timeAdded": self.manager.now()}
                for key, effect in wanted
                if (key, effect) not in known
            ]
            if len(kept) == len(held) and not new:
                return False
            if kept or new:
                spec["taints"] = [*kept, *new]
            else:
                spec.pop("taints", None)
            return True

        self.nodes.learn(amend(self.client, NODES, node, change))

    # --- pods

    def sync_pod(self, key: NamespacedName) -> int | None:
        """Mark a pod of a node that is not ready, and delete one whose time on it is over."""
        pod = self.pods.get(key)
        if pod is None or is_deleting(pod) or is_finished(pod):
            return None
        node = self.nodes.get(NamespacedName("", pod["spec"].get("nodeName") or ""))
        if node is None:
            return None
        self._mark_pod(pod, node)
        when = _leaves(pod, node, self._seen.get(key_of(node).name, {}))
        if when is None:
            return None
        left = when - self.manager.engine.clock.now()
        if left > 0:
            return left
        self.evictions.event(pod, "Pod", "TaintManagerEviction", f"Marking for deletion Pod {key}")
        why = "Taint manager: deleting due to NoExecute taint"
        condition = disruptions.target("DeletionByTaintManager", why, self.manager.now())
        disruptions.evict(self.client, pod, condition)
        return None


def _wanted(node: JsonDict) -> list[tuple[str, str]]:
    """Return the taints that a node's conditions ask for: key and effect."""
    found: list[tuple[str, str]] = []
    ready = _ready(node)
    if ready == "Unknown":
        found += [(UNREACHABLE, "NoSchedule"), (UNREACHABLE, "NoExecute")]
    elif ready != "True":
        found += [(NOT_READY, "NoSchedule")]
        if ready == "False":
            found += [(NOT_READY, "NoExecute")]
    for type_, status, key in PRESSURES:
        if (condition_of(node, type_) or {}).get("status") == status:
            found.append((key, "NoSchedule"))
    if is_unschedulable(node):
        found.append((CORDONED, "NoSchedule"))
    return found


def _leaves(pod: JsonDict, node: JsonDict, since: Mapping[Taint, int]) -> int | None:
    """Return when a pod must leave a node, by its taints' start times; None if it may stay."""
    taints = [(taint, since.get(_identity(taint), 0)) for taint in _taints(node)]
    return leaves_at(pod["spec"].get("tolerations") or (), taints, _bound_at(pod))


def _bound_at(pod: JsonDict) -> int:
    """Return when a pod came to its node: its binding, else its creation."""
    bound = condition_of(pod, "PodScheduled") or {}
    when = bound.get("lastTransitionTime") if bound.get("status") == "True" else None
    when = when or pod["metadata"].get("creationTimestamp")
    return from_rfc3339(when) if when else 0


def _identity(taint: JsonObject) -> Taint:
    return taint["key"], taint.get("value") or "", taint["effect"]


def _placement(pod: JsonDict) -> tuple[Any, Any]:
    return pod["spec"].get("nodeName"), pod["spec"].get("tolerations")


def _ready(node: JsonDict) -> str:
    return condition_status(node, "Ready")


def _taints(node: JsonDict) -> list[JsonObject]:
    return list(taints_of(node))
