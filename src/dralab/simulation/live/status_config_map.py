"""The ConfigMap in which cluster-autoscaler says how its node groups are.

Source: cluster-autoscaler 1.36 (`clusterstate/api/types.go`, `clusterstate/clusterstate.go`,
`clusterstate/utils/status.go`).
"""

from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime
from typing import Final

from dralab.api.status import ApiError
from dralab.apiserver.http.encodings.yaml_text import dump
from dralab.kernel.clock import SECOND, from_rfc3339
from dralab.objects.conditions import is_true
from dralab.objects.metadata import NamespacedName, metadata_of
from dralab.runtime.client import amend
from dralab.runtime.manager import Manager
from dralab.runtime.resources import CONFIG_MAPS, NODES
from dralab.simulation.engines.autoscaling.cluster_autoscaler import ClusterAutoscaler
from dralab.values.json_types import JsonDict

NAME: Final = "cluster-autoscaler-status"
NAMESPACE: Final = "kube-system"
UPDATED: Final = "cluster-autoscaler.kubernetes.io/last-updated"
CLUSTER: Final = ""
# More nodes than this and than this part of them are not ready: the cluster is unhealthy.
UNREADY: Final = 3
UNREADY_PART: Final = 0.45
# A node that is younger may not have started yet.
START: Final = 900 * SECOND


class StatusConfigMap:
    """Writes what became of each look at the cluster."""

    def __init__(self, manager: Manager, of: Callable[[], ClusterAutoscaler]) -> None:
        self._manager = manager
        self._of = of
        self._recorder = manager.recorder("cluster-autoscaler")
        self._maps = manager.cache(CONFIG_MAPS)
        self._nodes = manager.cache(NODES)
        self._queue = manager.queue("autoscaler/status", self._write)
        # The status of each part of the cluster or of a group, and since when.
        self._since: dict[tuple[str, str], tuple[str, str]] = {}
        self.look()

    def look(self) -> None:
        """Write it soon."""
        self._queue.add(NAME)

    def tell(self, reason: str, message: str) -> None:
        """Record an event about the ConfigMap."""
        held = self._maps.get(NamespacedName(NAMESPACE, NAME))
        if held is not None:
            self._recorder.event(held, "ConfigMap", reason, message)

    def _write(self, _: str) -> None:
        status = self._status(self._of())
        moment = _go_time(self._of().events.now())
        text = dump({**status, "time": moment}).decode()
        notes = {UPDATED: moment}
        held = self._maps.get(NamespacedName(NAMESPACE, NAME))
        client = self._manager.client
        if held is None:
            body = {"metadata": {"name": NAME, "annotations": notes}, "data": {"status": text}}
            try:
                client.create(CONFIG_MAPS, body, NAMESPACE)
            except ApiError as error:
                if error.reason != "AlreadyExists":
                    raise
                held = client.get(CONFIG_MAPS, NAME, NAMESPACE)
        if held is not None:

            def change(latest: JsonDict) -> bool:
                metadata = latest["metadata"]
                metadata["annotations"] = (metadata.get("annotations") or {}) | notes
                latest["data"] = (latest.get("data") or {}) | {"status": text}
                return True

            amend(client, CONFIG_MAPS, held, change)

    # --- what it says -------------------------------------------------------------------------

    def _status(self, autoscaler: ClusterAutoscaler) -> JsonDict:
        groups = [self._group(autoscaler, name) for name in sorted(autoscaler.machines.pools)]
        machines = autoscaler.machines.here.values()
        names = [metadata_of(node)["name"] for node in self._nodes]
        counts = self._counts(names, sum(each.up is None for each in machines))
        unready = counts["registered"]["unready"]["total"]
        bad = unready > UNREADY and unready > UNREADY_PART * len(names)
        busy = any(each["scaleUp"]["status"] == "InProgress" for each in groups)
        candidates = len(autoscaler.candidates)
        return {
            "autoscalerStatus": "Running",
            "clusterWide": {
                "health": {
                    **self._part(CLUSTER, "health", "Unhealthy" if bad else "Healthy"),
                    "nodeCounts": counts,
                },
                "scaleUp": self._part(CLUSTER, "scaleUp", "InProgress" if busy else "NoActivity"),
                "scaleDown": self._scale_down(CLUSTER, candidates),
            },
            "nodeGroups": groups,
        }

    def _group(self, autoscaler: ClusterAutoscaler, name: str) -> JsonDict:
        machines = [each for each in autoscaler.machines.here.values() if each.pool == name]
        pool = autoscaler.machines.pools[name]
        failed = autoscaler.left_alone(name) > autoscaler.events.now()
        busy = any(each.ready is None for each in machines)
        told = {"errorCode": "timeout", "errorMessage": f"Scale-up timed out for node group {name}"}
        up = "InProgress" if busy else "Backoff" if failed else "NoActivity"
        return {
            "name": name,
            "health": {
                **self._part(name, "health", "Healthy"),
                "nodeCounts": self._counts(
                    [each.name for each in machines if each.up is not None],
                    sum(each.up is None for each in machines),
                ),
                "cloudProviderTarget": len(machines),
                "minSize": pool.least,
                "maxSize": pool.most,
            },
            "scaleUp": {
                **self._part(name, "scaleUp", up),
                "backoffInfo": told if up == "Backoff" else {},
            },
            "scaleDown": self._scale_down(
                name, sum(each.name in autoscaler.candidates for each in machines)
            ),
        }

    def _scale_down(self, name: str, candidates: int) -> JsonDict:
        part = self._part(name, "scaleDown", "CandidatesPresent" if candidates else "NoCandidates")
        return {**part, "candidates": candidates} if candidates else part

    def _part(self, name: str, part: str, status: str) -> JsonDict:
        now = self._manager.now()
        known, since = self._since.get((name, part), ("", now))
        since = since if known == status else now
        self._since[name, part] = status, since
        return {"status": status, "lastProbeTime": now, "lastTransitionTime": since}

    def _counts(self, names: Iterable[str], unregistered: int) -> JsonDict:
        """Return how many nodes there are, and how many of them can run pods."""
        found = [self._nodes.get(NamespacedName("", name)) for name in names]
        nodes = [node for node in found if node is not None]
        ready, late = self._by_readiness(nodes)
        return {
            "longUnregistered": 0,
            "unregistered": unregistered,
            "registered": {
                "total": len(nodes),
                "ready": ready,
                "notStarted": len(nodes) - ready - late,
                "suspended": 0,
                "unready": {"total": late, "resourceUnready": 0},
            },
        }

    def _by_readiness(self, nodes: Sequence[JsonDict]) -> tuple[int, int]:
        """Return how many nodes are ready, and how many of the others have had time to start."""
        others = [node for node in nodes if not is_true(node, "Ready")]
        now = self._of().events.now()
        late = sum(
            from_rfc3339(metadata_of(node)["creationTimestamp"]) + START <= now for node in others
        )
        return len(nodes) - len(others), late


def _go_time(moment: int) -> str:
    """Return a time as Go prints it: 2006-01-02 15:04:05.999999999 -0700 MST."""
    text = datetime.fromtimestamp(moment // SECOND, UTC).strftime("%Y-%m-%d %H:%M:%S")
    part = f".{moment % SECOND:09}".rstrip("0").rstrip(".")
    return f"{text}{part} +0000 UTC"
