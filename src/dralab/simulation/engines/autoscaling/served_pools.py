"""The nodes and pods of an API server, for the machines of pools."""

from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager

from dralab.api.status import ignoring
from dralab.capacity.changes import of_daemon_set
from dralab.objects.conditions import condition_of
from dralab.objects.metadata import key_of, metadata_of, status_of
from dralab.objects.pods import is_finished
from dralab.objects.taints import taints_of
from dralab.runtime.cache import Cache
from dralab.runtime.client import Client, Resource, amend
from dralab.runtime.reading import read_cluster
from dralab.runtime.resources import NODES, PODS
from dralab.scheduling.model import ClusterModel
from dralab.scheduling.pods import PodInfo
from dralab.simulation.workloads.openb import GpuNode
from dralab.values.json_types import JsonDict


class ServedPools:
    """What a `machines.PoolHost` does by the API alone; `pods` are known by node."""

    def __init__(self, client: Client, pods: Cache) -> None:
        self.client = client
        self.pods = pods

    def labels_of(self, node: GpuNode) -> Mapping[str, str]:
        """Return none: a server has no GPUs but devices."""
        del node
        return {}

    def taint(self, node: str, taint: JsonDict, *, add: bool) -> None:
        """Taint a node, or take the taint away."""

        def change(latest: JsonDict) -> bool:
            others = [each for each in taints_of(latest) if each["key"] != taint["key"]]
            latest.setdefault("spec", {})["taints"] = [*others, taint] if add else others
            return True

        amend(self.client, NODES, self.client.get(NODES, node), change)

    def evict(self, node: str) -> bool:
        """Ask each pod to leave: a budget may refuse."""
        pods = [
            pod
            for pod in self.pods.find("node", node)
            if not is_finished(pod) and not of_daemon_set(pod)
        ]
        for pod in sorted(pods, key=key_of):
            metadata = metadata_of(pod)
            name, namespace = metadata["name"], metadata["namespace"]
            body = {
                "apiVersion": "policy/v1",
                "kind": "Eviction",
                "metadata": {"name": name, "namespace": namespace},
            }
            with ignoring("NotFound", "TooManyRequests"):
                self.client.post(PODS, name, "eviction", body, namespace)
        return bool(pods)

    def delete_if_there(self, resource: Resource, name: str, namespace: str = "") -> None:
        """Delete an object that may be gone already."""
        with ignoring("NotFound"):
            self.client.delete(resource, name, namespace)

    @contextmanager
    def model(self, late: Collection[str]) -> Iterator[ClusterModel]:
        """Read the cluster."""
        objects = (
            item
            for item in read_cluster(self.client)
            if item["kind"] != "Node" or metadata_of(item)["name"] not in late
        )
        yield ClusterModel(objects, all_nodes=True)

    def is_unschedulable(self, pod: PodInfo) -> bool:
        """Return whether a pod's condition says so."""
        told = condition_of(pod.obj, "PodScheduled") or {}
        return (
            told.get("status") == "False"
            and told.get("reason") == "Unschedulable"
            and not status_of(pod.obj).get("nominatedNodeName")
        )
