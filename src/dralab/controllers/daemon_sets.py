"""DaemonSets: one pod on every eligible node.

Source: kube-controller-manager's daemon controller: a pod is tied to its node by node affinity and
placed by the scheduler; it tolerates the taints of troubled nodes.
"""

from collections.abc import Sequence
from copy import deepcopy
from functools import partial
from typing import Any, Final

from dralab.api.core.workloads import template_generation
from dralab.api.status import ApiError
from dralab.controllers.daemon_surge import excess, surge_plan
from dralab.controllers.revisions import Revisions
from dralab.controllers.workloads import (
    OwnedObjects,
    PodControl,
    each,
    enqueue_owner,
    percentage,
    pod_from_template,
    serves,
    write_status,
)
from dralab.kernel.clock import SECOND
from dralab.objects.metadata import (
    NamespacedName,
    is_deleting,
    key_of,
    labels_of,
    spec_of,
    status_of,
)
from dralab.objects.nodes import required_affinity, selects
from dralab.objects.pods import is_finished, is_ready
from dralab.objects.taints import NO_EXECUTE, REPELLING, taints_of, untolerated
from dralab.runtime.manager import Manager
from dralab.runtime.resources import DAEMON_SETS, NODES, PODS
from dralab.values import labels
from dralab.values.json_types import JsonDict

HASH: Final = "controller-revision-hash"
GENERATION: Final = "pod-template-generation"
# util.AddOrUpdateDaemonPodTolerations
TOLERATED: Final = (
    ("node.kubernetes.io/not-ready", "NoExecute"),
    ("node.kubernetes.io/unreachable", "NoExecute"),
    ("node.kubernetes.io/disk-pressure", "NoSchedule"),
    ("node.kubernetes.io/memory-pressure", "NoSchedule"),
    ("node.kubernetes.io/pid-pressure", "NoSchedule"),
    ("node.kubernetes.io/unschedulable", "NoSchedule"),
)
NETWORK: Final = ("node.kubernetes.io/network-unavailable", "NoSchedule")


class DaemonSets:
    """Creates pods where they are missing, deletes them where they do not belong."""

    def __init__(self, manager: Manager) -> None:
        self.manager = manager
        self.sets = manager.cache(DAEMON_SETS)
        self.nodes = manager.cache(NODES)
        self.owned = OwnedObjects(manager, PODS, kind="DaemonSet", api_version="apps/v1")
        self.revisions = Revisions(manager, kind="DaemonSet")
        recorder = manager.recorder("daemonset-controller")
        self.recorder = recorder
        self.control = PodControl(manager, recorder, kind="DaemonSet", api_version="apps/v1")
        self.queue = manager.queue("daemonsets", self.reconcile)
        self.sets.subscribe(each(self.queue.add))
        self.owned.cache.subscribe(enqueue_owner(self.owned, self.queue.add, self.sets))
        self.nodes.subscribe(self._node)

    def _node(self, old: JsonDict | None, new: JsonDict | None) -> None:
        if old is not None and new is not None and _matters(old) == _matters(new):
            return
        for daemon_set in self.sets:
            self.queue.add(key_of(daemon_set))

    def reconcile(self, key: NamespacedName) -> int | None:
        """Create and delete a set's pods, and write its status."""
        daemon_set = self.sets.get(key)
        if daemon_set is None:
            return None
        name = self.revisions.current(daemon_set)
        revision = name.rpartition("-")[2]
        failure: ApiError | None = None
        if not is_deleting(daemon_set):
            try:
                self._place(daemon_set, revision)
                self._roll(daemon_set, revision)
            except ApiError as error:
                failure = error
        again = self._tell(daemon_set, revision)
        self.revisions.delete_old_revisions(daemon_set, {name})
        if failure is not None:
            raise failure
        return again

    # --- pods

    def _by_node(self, daemon_set: JsonDict) -> dict[str, list[JsonDict]]:
        found: dict[str, list[JsonDict]] = {}
        for pod in self.owned.owned_by(daemon_set):
            found.setdefault(_node_of(pod), []).append(pod)
        return found

    def _place(self, daemon_set: JsonDict, revision: str) -> None:
        pods = self._by_node(daemon_set)
        surges = self._most(daemon_set, "maxSurge", 1) > 0
        for node in sorted(self.nodes, key=key_of):
            name = node["metadata"]["name"]
            should_run, may_stay = wants(daemon_set, node)
            mine = pods.get(name, [])
            alive = self._without_finished(daemon_set, mine)
            # With a surge the next pod does not wait until the last one has ended.
            if should_run and not alive and (surges or not any(map(is_deleting, mine))):
                self.control.create(daemon_set, self._body(daemon_set, name, revision))
            elif not may_stay:
                for pod in alive:
                    self.control.delete(daemon_set, pod)
            elif surges:
                for pod in excess(
                    alive, partial(_is_of, revision), partial(self._is_available, daemon_set)
                ):
                    self.control.delete(daemon_set, pod)
            elif len(alive) > 1:
                alive.sort(key=lambda pod: (not pod["spec"].get("nodeName"), key_of(pod)))
                for pod in alive[1:]:
                    self.control.delete(daemon_set, pod)
        known = {node["metadata"]["name"] for node in self.nodes}
        for name, strays in pods.items():
            if name not in known:
                for pod in strays:
                    if not is_deleting(pod):
                        self.control.delete(daemon_set, pod)

    def _without_finished(self, daemon_set: JsonDict, pods: Sequence[JsonDict]) -> list[JsonDict]:
        """Delete finished pods, and return the others."""
        alive = []
        for pod in pods:
            if is_deleting(pod):
                continue
            if not is_finished(pod):
                alive.append(pod)
                continue
            if status_of(pod).get("phase") == "Failed":
                self.recorder.event(
                    daemon_set,
                    "DaemonSet",
                    "FailedDaemonPod",
                    f"Found failed daemon pod {key_of(pod)} on node {_node_of(pod)}, "
                    "will try to kill it",
                    type="Warning",
                    api_version="apps/v1",
                )
            self.control.delete(daemon_set, pod)
        return alive

    def _roll(self, daemon_set: JsonDict, revision: str) -> None:
        """Replace outdated pods, as far as maxUnavailable or maxSurge allows."""
        strategy = daemon_set["spec"].get("updateStrategy") or {}
        if strategy.get("type") == "OnDelete":
            return
        by_node = self._by_node(daemon_set)
        wanted = {node["metadata"]["name"]: wants(daemon_set, node)[0] for node in self.nodes}
        number = sum(wanted.values())
        surge = self._most(daemon_set, "maxSurge", number)
        if surge:
            plan = surge_plan(
                by_node,
                wanted,
                surge,
                partial(_is_of, revision),
                partial(self._is_available, daemon_set),
            )
            for pod in plan.deleted:
                self.control.delete(daemon_set, pod)
            for node in plan.nodes:
                self.control.create(daemon_set, self._body(daemon_set, node, revision))
            return
        pods = [pod for mine in by_node.values() for pod in mine]
        most = max(1, self._most(daemon_set, "maxUnavailable", number, 1))
        away = number - sum(self._is_available(daemon_set, pod) for pod in pods)
        for pod in sorted(pods, key=key_of):
            if is_deleting(pod) or _is_of(revision, pod):
                continue
            if self._is_available(daemon_set, pod):
                if away >= most:
                    continue
                away += 1
            self.control.delete(daemon_set, pod)

    def _most(self, daemon_set: JsonDict, limit: str, number: int, default: int = 0) -> int:
        """Return a limit of the rolling update for so many pods."""
        rolling = (daemon_set["spec"].get("updateStrategy") or {}).get("rollingUpdate") or {}
        return percentage(rolling.get(limit, default), number, up=True)

    def _is_available(self, daemon_set: JsonDict, pod: JsonDict) -> bool:
        return serves(pod, daemon_set, self.manager.engine.clock.now())

    def _body(self, daemon_set: JsonDict, node: str, revision: str) -> JsonDict:
        key = key_of(daemon_set)
        body = pod_from_template(
            daemon_set["spec"]["template"],
            reference=self.owned.reference(daemon_set),
            namespace=key.namespace,
            generateName=f"{key.name}-",
        )
        body["metadata"].setdefault("labels", {}).update(
            {HASH: revision, GENERATION: str(template_generation(daemon_set))}
        )
        spec = body["spec"]
        affinity = deepcopy(spec.get("affinity") or {})
        required = affinity.setdefault("nodeAffinity", {}).setdefault(
            "requiredDuringSchedulingIgnoredDuringExecution", {"nodeSelectorTerms": [{}]}
        )
        here = {"key": "metadata.name", "operator": "In", "values": [node]}
        for term in required["nodeSelectorTerms"]:
            term["matchFields"] = [here]
        spec["affinity"] = affinity
        spec["tolerations"] = _tolerations(spec)
        return body

    # --- status

    def _tell(self, daemon_set: JsonDict, revision: str) -> int | None:
        pods = self._by_node(daemon_set)
        counts = dict.fromkeys(("wanted", "there", "misplaced", "ready", "available", "updated"), 0)
        for node in self.nodes:
            should_run, _ = wants(daemon_set, node)
            mine = [pod for pod in pods.get(node["metadata"]["name"], ()) if not is_deleting(pod)]
            counts["wanted"] += should_run
            if not mine:
                continue
            if not should_run:
                counts["misplaced"] += 1
                continue
            pod = min(mine, key=lambda one: one["metadata"].get("creationTimestamp", ""))
            counts["there"] += 1
            counts["ready"] += is_ready(pod)
            counts["available"] += self._is_available(daemon_set, pod)
            counts["updated"] += _is_of(revision, pod)
        status: dict[str, Any] = {
            "desiredNumberScheduled": counts["wanted"],
            "currentNumberScheduled": counts["there"],
            "numberMisscheduled": counts["misplaced"],
            "numberReady": counts["ready"],
            "updatedNumberScheduled": counts["updated"] or None,
            "numberAvailable": counts["available"] or None,
            "numberUnavailable": counts["wanted"] - counts["available"] or None,
            "observedGeneration": daemon_set["metadata"].get("generation", 0),
        }
        write_status(self.manager, self.sets, daemon_set, status)
        min_ready_seconds = daemon_set["spec"].get("minReadySeconds") or 0
        waiting = counts["ready"] > counts["available"]
        return min_ready_seconds * SECOND if waiting and min_ready_seconds else None


def wants(daemon_set: JsonDict, node: JsonDict) -> tuple[bool, bool]:
    """Return whether a set's pod should run on a node, and whether it may go on running there."""
    spec = daemon_set["spec"]["template"]["spec"]
    if spec.get("nodeName") not in {node["metadata"]["name"], None, ""}:
        return False, False
    if not selects(node, spec.get("nodeSelector") or {}, required_affinity(spec)):
        return False, False
    tolerations = _tolerations(spec)
    taints = taints_of(node)
    return (
        untolerated(tolerations, taints, REPELLING) is None,
        untolerated(tolerations, taints, {NO_EXECUTE}) is None,
    )


def _is_of(revision: str, pod: JsonDict) -> bool:
    return labels_of(pod).get(HASH) == revision


def _tolerations(spec: dict[str, Any]) -> list[dict[str, Any]]:
    found = list(spec.get("tolerations") or ())
    added = [*TOLERATED, NETWORK] if spec.get("hostNetwork") else list(TOLERATED)
    for key, effect in added:
        toleration = {"key": key, "operator": "Exists", "effect": effect}
        if toleration not in found:
            found.append(toleration)
    return found


def _node_of(pod: JsonDict) -> str:
    """Return the node a daemon pod is on, or is meant for."""
    if pod["spec"].get("nodeName"):
        name: str = pod["spec"]["nodeName"]
        return name
    required = required_affinity(pod["spec"]) or {}
    for term in required.get("nodeSelectorTerms") or ():
        for name in labels.nodes_named_by(term) or ():
            return name
    return ""


def _matters(node: JsonDict) -> tuple[Any, ...]:
    spec = spec_of(node)
    return node["metadata"].get("labels"), spec.get("taints"), spec.get("unschedulable")
