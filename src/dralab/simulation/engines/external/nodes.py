"""Nodes of a run with external schedulers, as their kubelets and the node controller write them."""

from collections.abc import Collection
from typing import Final

from dralab.apiserver.storage import Key
from dralab.cluster import Cluster
from dralab.kernel.clock import rfc3339_micro
from dralab.objects.taints import taints_of
from dralab.runtime.resources import LEASES, NODES
from dralab.simulation.engines import objects

LEASE_NAMESPACE: Final = "kube-node-lease"
LEASES_KEPT_AT: Final = "coordination.k8s.io/leases"
DURATION: Final = 40  # seconds, the kubelet's


class ServedNodes:
    """The nodes. With `heartbeats` (nanoseconds) they renew leases, and a controller notices.

    Without, this is the node controller, too, and knows at once when a node goes down.
    """

    def __init__(self, cluster: Cluster, heartbeats: int) -> None:
        self._cluster = cluster
        self._every = heartbeats
        self._beaten: int | None = None
        self._names: list[str] = []

    @property
    def report(self) -> bool:
        """Whether nodes report that they are up, so that a controller notices when they don't."""
        return bool(self._every)

    def begin(self, name: str, now: int) -> None:
        """Let a node report from now on."""
        if not self._every:
            return
        self._names.append(name)
        spec = {"holderIdentity": name, "leaseDurationSeconds": DURATION}
        body = {"metadata": {"name": name}, "spec": {**spec, "renewTime": rfc3339_micro(now)}}
        self._cluster.client.create(LEASES, body, LEASE_NAMESPACE)
        self._beaten = now

    def beat(self, now: int, down: Collection[str]) -> None:
        """Renew the leases of the nodes that are up, if it is time."""
        if self._beaten is None or now - self._beaten < self._every:
            return
        self._beaten = now
        for name in self._names:
            if name not in down:
                self._renew(name, now)

    def _renew(self, name: str, now: int) -> None:
        store, key = self._cluster.server.store, Key(LEASES_KEPT_AT, LEASE_NAMESPACE, name)
        stored = store.get(key)
        if stored is not None:
            value = stored.value
            metadata = {k: v for k, v in value["metadata"].items() if k != "resourceVersion"}
            spec = {**value["spec"], "renewTime": rfc3339_micro(now)}
            store.update(key, {**value, "metadata": metadata, "spec": spec})

    def lose(self, name: str, now: int) -> None:
        """A node goes down."""
        if not self._every:
            self._write(name, now, up=False)

    def restore(self, name: str, now: int) -> None:
        """A node is up again."""
        if self._every:
            self._renew(name, now)
        self._write(name, now, up=True)

    def _write(self, name: str, now: int, *, up: bool) -> None:
        client = self._cluster.client
        node = client.get(NODES, name)
        if not self._every:
            lost = objects.taints_of_a_lost_node(now)
            kept = [taint for taint in taints_of(node) if taint["key"] != objects.UNREACHABLE]
            client.patch(NODES, name, {"spec": {"taints": [*kept, *([] if up else lost)] or None}})
        status = {"conditions": [objects.condition_of(now, up=up)]}
        client.patch(NODES, name, {"status": status}, subresource="status")
