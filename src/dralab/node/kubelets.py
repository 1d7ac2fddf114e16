"""The kubelets of any number of nodes, on one manager: one cache of pods, one queue.

Each node has its own lease, status, plugins, claims, CDI files and pods.
"""

import logging
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final

from dralab.api.status import ApiError
from dralab.contracts.cdi_cache import CdiDirectory
from dralab.kernel.clock import SECOND, rfc3339_micro
from dralab.node.checkpoint import NodeCheckpoint
from dralab.node.container_runs import RunningContainer
from dralab.node.containers import ContainerRuntime
from dralab.node.kubelet import Kubelet, StreamEndpoint
from dralab.node.named_slices import NamedSlices
from dralab.node.network.pod_ranges import with_pod_range
from dralab.node.node_spec import NodeSpec
from dralab.node.node_status import VERSION, address_of, lacks_amounts, status_of_node
from dralab.node.pods import PodLife
from dralab.node.resizing import CONDITIONS as RESIZES
from dralab.objects.conditions import condition_of, is_true
from dralab.objects.conditions import with_condition as replaced
from dralab.objects.metadata import NamespacedName, is_deleting, key_of, status_of, uid_of
from dralab.objects.pods import FINISHED, is_finished
from dralab.objects.taints import taints_of
from dralab.runtime.client import amend, delete_only, find
from dralab.runtime.manager import Manager
from dralab.runtime.resources import LEASES, NODES, PODS, SERVICES, SLICES
from dralab.values.json_types import JsonDict

logger = logging.getLogger(__name__)
LEASE_NAMESPACE: Final = "kube-node-lease"
RENEW: Final = 10 * SECOND  # kubelet: a quarter of the lease's 40 s
LEASE_SECONDS: Final = 40
RECONCILE: Final = 60 * SECOND
LONGEST_WIPE_DELAY: Final = 300 * SECOND
# kubelet: slices of a driver that is gone are deleted after this long.
WIPE_AFTER: Final = 30 * SECOND

# The taint of a new node (TaintNodesByCondition), and how long a controller has to take it away.
FIRST_TAINT: Final = {"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"}
ALONE_AFTER: Final = 3 * SECOND


class Kubelets:
    """Runs kubelets: add nodes, then start the manager.

    Without `leases`, for simulations, nodes neither renew their leases nor delete their slices at
    the start: a simulation writes the lease of a node when it falls silent.
    """

    def __init__(
        self,
        manager: Manager,
        runtime: ContainerRuntime,
        *,
        only: str = "",
        wipe_after: int = WIPE_AFTER,
        leases: bool = True,
        version: str = VERSION,
    ) -> None:
        self.manager = manager
        self.version = version
        self.leases = leases
        self.runtime = runtime
        self.wipe_after = wipe_after
        self.nodes: dict[str, Kubelet] = {}
        self._numbers: dict[str, int] = {}
        self.recorder = manager.recorder("kubelet")
        selector = f"spec.nodeName={only}" if only else ""
        self.pods = manager.cache(PODS, field_selector=selector)
        # What is not a process reads no variables.
        self.services = manager.cache(SERVICES) if runtime.ports_at else None
        self.node_cache = manager.cache(
            NODES, field_selector=f"metadata.name={only}" if only else ""
        )
        self.pods.index("node", lambda pod: filter(None, [pod["spec"].get("nodeName")]))
        self.queue = manager.queue("kubelet/pods", self.sync)
        # The kubelet publishes the devices of drivers for Kubernetes 1.30.
        self.named_slices = NamedSlices(manager)
        self.beats = manager.queue("kubelet/leases", self.beat)
        self.stale = manager.queue("kubelet/claims", self.reconcile)
        self.pods.subscribe(self._changed)
        # What else ends with the nodes: the listeners of their plugins' sockets.
        self.listeners: Sequence[Any] = ()
        # Told when a node is there: drivers publish for it, listeners are opened.
        self.on_node: Callable[[Kubelet], None] = lambda _kubelet: None

    def add_node(
        self,
        spec: NodeSpec,
        *,
        directories: Sequence[CdiDirectory] | None = None,
        checkpoint: NodeCheckpoint | None = None,
    ) -> Kubelet:
        """Add a node; it is registered once the caches are synced."""
        # A node that comes again has the address that it had, and no other gets it meanwhile.
        number = self._numbers.setdefault(spec.name, len(self._numbers))
        kubelet = Kubelet(self, spec, number, directories=directories, checkpoint=checkpoint)
        self.nodes[spec.name] = kubelet
        self.beats.add(spec.name)
        if self.leases:
            self.stale.add(spec.name)
        for pod in self.pods.find("node", spec.name):
            self.queue.add(key_of(pod))
        return kubelet

    def stop(self) -> None:
        """End the containers that are separate processes, and close what listens."""
        for listener in self.listeners:
            listener.stop()
        for kubelet in self.nodes.values():
            _end_processes(kubelet)

    def remove_node(self, name: str) -> None:
        """Run a node no more; its objects are left to others."""
        kubelet = self.nodes.pop(name, None)
        if kubelet is not None:
            _end_processes(kubelet)

    def find_container(self, pod: JsonDict, container: str) -> RunningContainer | None:
        """Return a container of a pod that runs, or ran, here."""
        kubelet = self.nodes.get(pod["spec"].get("nodeName", ""))
        life = kubelet.pods.get(uid_of(pod)) if kubelet is not None else None
        return life.container(container) if life is not None else None

    # --- pods -----------------------------------------------------------------------------------

    def _changed(self, old: JsonDict | None, new: JsonDict | None) -> None:
        pod = new if new is not None else old
        if pod is not None and pod["spec"].get("nodeName") in self.nodes:
            if new is None:
                self._vanished(pod)
            self.queue.add(key_of(pod))

    def _vanished(self, pod: JsonDict) -> None:
        """Clean up after a pod that no longer exists."""
        kubelet = self.nodes[pod["spec"]["nodeName"]]
        life = kubelet.pods.get(uid_of(pod))
        kubelet.admission.forget(uid_of(pod))
        if life is None:
            # It ended before this process began, and may have left claims.
            self._forget(kubelet, uid_of(pod))
            return
        again = None if life.at_rest() else life.end(0)
        if life.at_rest():
            kubelet.pods.pop(life.uid, None)
            self._forget(kubelet, life.uid)
        else:
            delay = again or SECOND
            self.manager.engine.after(delay, lambda: self._vanished(pod))

    def _forget(self, kubelet: Kubelet, pod_uid: str) -> None:
        self.runtime.forget_pod(pod_uid)
        kubelet.forget_sandbox(pod_uid)
        if kubelet.hooks is not None:
            kubelet.hooks.removed(pod_uid)

    def sync(self, key: NamespacedName) -> int | None:
        """Do the next step of a pod."""
        pod = self.pods.get(key)
        if pod is None or pod["spec"].get("nodeName") not in self.nodes:
            return None
        kubelet = self.nodes[pod["spec"]["nodeName"]]
        life = kubelet.pods.get(uid_of(pod))
        if life is None:
            if is_finished(pod) and not kubelet.claims.holds(uid_of(pod)):
                if is_deleting(pod):
                    self._delete(pod)
                return None
            life = kubelet.pods[uid_of(pod)] = PodLife(kubelet, pod)
        again = life.sync(pod)
        if left := life.settling():
            return left if again is None else min(again, left)
        pod = self._tell(pod, life)
        if is_deleting(pod) and life.at_rest():
            self._delete(pod)
        return again

    def _tell(self, pod: JsonDict, life: PodLife) -> JsonDict:
        """Write what has changed of a pod's status."""
        held = status_of(pod)
        new = life.status()
        if is_finished(pod) and new["phase"] not in FINISHED:
            return pod
        told = {each["type"] for each in new["conditions"]}
        listed = [
            each
            for each in held.get("conditions") or ()
            if each["type"] in told or each["type"] not in RESIZES
        ]
        now = self.manager.now()
        for condition in new["conditions"]:
            known = condition_of({"status": {"conditions": listed}}, condition["type"])
            if known is None or any(known.get(k) != v for k, v in condition.items()):
                listed = replaced(listed, condition, now=now)
        wanted = {**held, **new, "conditions": listed}
        if wanted == held:
            return pod
        try:
            client = self.nodes[pod["spec"]["nodeName"]].client
            stored = client.update(PODS, {**pod, "status": wanted}, subresource="status")
        except ApiError as error:
            if error.reason == "NotFound":
                return pod
            if error.reason == "Conflict":
                # The pod in the cache is old: the watch brings the new one here.
                self.queue.add_after(key_of(pod), SECOND // 20)
                return pod
            raise
        self.pods.learn(stored)
        return stored

    def _delete(self, pod: JsonDict) -> None:
        delete_only(self.nodes[pod["spec"]["nodeName"]].client, PODS, pod, gracePeriodSeconds=0)

    def reconcile(self, name: str) -> int | None:
        """Unprepare claims of pods that vanished unseen, and report health that has become too old.

        Once a minute, the first time as soon as the pods are known (kubelet: reconcileLoop, and
        the period of a pod's sync).
        """
        kubelet = self.nodes.get(name)
        if kubelet is None:
            return None
        here = {uid_of(pod) for pod in self.pods.find("node", name)}
        kubelet.claims.reconcile(here | set(kubelet.pods), kubelet.gave_back)
        for uid in sorted(kubelet.claims.users() & set(kubelet.pods)):
            kubelet.wake(kubelet.pods[uid].pod)
        return RECONCILE

    # --- nodes ------------------------------------------------------------------------------------

    def beat(self, name: str) -> int | None:
        """Register a node, or renew its lease."""
        kubelet = self.nodes.get(name)
        if kubelet is None:
            return None
        client = kubelet.client
        if not self.leases:
            self._register(kubelet)
            return None
        now = rfc3339_micro(self.manager.engine.clock.now())
        try:
            client.patch(LEASES, name, {"spec": {"renewTime": now}}, LEASE_NAMESPACE)
        except ApiError as error:
            if error.reason != "NotFound":
                raise
            lease = {
                "apiVersion": "coordination.k8s.io/v1",
                "kind": "Lease",
                "metadata": {"name": name, "namespace": LEASE_NAMESPACE},
                "spec": {
                    "holderIdentity": name,
                    "leaseDurationSeconds": LEASE_SECONDS,
                    "renewTime": now,
                },
            }
            client.create(LEASES, lease, LEASE_NAMESPACE)
        self._register(kubelet)
        return RENEW

    def _register(self, kubelet: Kubelet) -> None:
        client, spec = kubelet.client, kubelet.spec
        node = find(client, NODES, spec.name)
        if node is None:
            node = client.create(NODES, spec.node())
            if self.leases:
                self.manager.engine.after(ALONE_AFTER, partial(self._untaint, spec.name))
        if kubelet.network is not None:
            node = with_pod_range(client, node, kubelet.network, self.manager.client)
        endpoint = kubelet.endpoint
        held = status_of(node)
        if (
            not is_true(node, "Ready")
            or (kubelet.network is not None and kubelet.ip != address_of(held))
            or not held.get("nodeInfo")
            or lacks_amounts(held)
            or (endpoint is not None and not kubelet.announced)
        ):
            if endpoint is not None:
                self._publish(kubelet, endpoint, node)
            status = status_of_node(
                node,
                spec.amounts(),
                self.runtime,
                ip=kubelet.ip,
                port=endpoint.address[1] if endpoint is not None else None,
                now=self.manager.now(),
                version=self.version,
                declared=kubelet.declared,
            )
            client.update(NODES, {**node, "status": status}, subresource="status")
        if not kubelet.announced:
            if self.leases:
                # Slices of before this start may be outdated: drivers publish them again (kubelet).
                self.wipe(kubelet)
            kubelet.plugins.changed = partial(self._plugin_changed, kubelet)
            self.on_node(kubelet)  # what fails there is retried with the node
            kubelet.announced = True

    def _publish(self, kubelet: Kubelet, endpoint: StreamEndpoint, node: JsonDict) -> None:
        """Tell the server how to reach the node; logs and exec need that."""
        try:
            endpoint.publish(kubelet.client, node)
        except ApiError as error:
            if error.reason != "Forbidden":
                raise
            text = f"kubectl logs, exec and port-forward will not reach this node: {error.message}"
            logger.warning("%s", text)
            self.recorder.event(node, "Node", "EndpointNotPublished", text, type="Warning")

    def _untaint(self, name: str) -> None:
        """Remove the initial not-ready taint, if no controller has done so.

        A kubelet leaves that to the node lifecycle controller; beside a server that is alone,
        the node would never get a pod.
        """

        def change(node: JsonDict) -> bool:
            held = taints_of(node)
            left = [taint for taint in held if taint != FIRST_TAINT]
            if len(left) == len(held) or not is_true(node, "Ready"):
                return False
            node["spec"]["taints"] = left
            return True

        def work() -> None:
            amend(self.manager.client, NODES, self.manager.client.get(NODES, name), change)

        self.manager.engine.offload(work, lambda _: None)

    def _plugin_changed(self, kubelet: Kubelet, driver: str, there: bool) -> None:  # noqa: FBT001 - the seam's shape
        self.manager.engine.soon(lambda: self._missed(kubelet, driver, there=there))

    def _missed(self, kubelet: Kubelet, driver: str, *, there: bool) -> None:
        if there:
            timer = kubelet.wipes.pop(driver, None)
            if timer is not None:
                timer.cancel()
            kubelet.wake_all()
            return

        def wipe() -> None:
            kubelet.wipes.pop(driver, None)
            self.wipe(kubelet, driver)

        # Registering again without connecting does not start the time again.
        if driver not in kubelet.wipes:
            kubelet.wipes[driver] = self.manager.engine.after(self.wipe_after, wipe)

    def wipe(self, kubelet: Kubelet, driver: str = "", again: int = SECOND) -> None:
        """Delete the slices of a driver that has not come back; without a name, of all drivers.

        As the kubelet does, in one request; what fails is tried `again` after that time, then after
        twice that, at most five minutes. (Whether its node exists is not asked before.)
        """
        if driver and kubelet.plugins.reachable(driver):
            return
        client = kubelet.client
        selector = f"spec.driver={driver}," if driver else ""
        try:
            self.named_slices.wipe(kubelet.name, driver)
            client.delete_collection(
                SLICES, field_selector=f"{selector}spec.nodeName={kubelet.name}"
            )
        except ApiError as error:
            if error.reason == "NotFound":
                return  # a server of before 1.31 has no such slices
            later = partial(self.wipe, kubelet, driver, min(2 * again, LONGEST_WIPE_DELAY))
            self.manager.engine.after(again, later)


def _end_processes(kubelet: Kubelet) -> None:
    for life in kubelet.pods.values():
        for each in life.containers:
            if each.container is not None and getattr(each.container, "real", False):
                each.container.stop(0)
