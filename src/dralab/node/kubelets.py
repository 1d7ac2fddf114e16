"""The kubelets of any number of nodes, on one manager: one cache of pods, one queue.

Each node has its own lease, status, plugins, claims, CDI files and pods.
"""

import logging
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any, Final, Protocol

from dralab.api.status import ApiError
from dralab.apiserver.access.users import NODE_PREFIX
from dralab.contracts.cdi_cache import CdiCache, CdiDirectory, MemoryDirectory
from dralab.contracts.plugin import Plugin
from dralab.kernel.clock import SECOND, Clock, rfc3339_micro
from dralab.node.admission import PodAdmission
from dralab.node.checkpoint import NodeCheckpoint
from dralab.node.claims import ClaimsOfNode
from dralab.node.container_runs import RunningContainer
from dralab.node.containers import ContainerRuntime
from dralab.node.mount_namespaces import NodePaths
from dralab.node.named_slices import NamedSlices
from dralab.node.network.pod_ranges import with_pod_range
from dralab.node.network.sandbox import PodNetwork, Sandbox
from dralab.node.node_context import ContainerHooks
from dralab.node.node_spec import NodeSpec
from dralab.node.node_status import VERSION, address_of, lacks_amounts, status_of_node
from dralab.node.plugins import Plugins
from dralab.node.pods import PodLife
from dralab.node.resizing import CONDITIONS as RESIZES
from dralab.node.resolv_conf import ClusterDns
from dralab.node.service_links import service_variables
from dralab.objects.conditions import condition_of, is_true
from dralab.objects.conditions import with_condition as replaced
from dralab.objects.metadata import NamespacedName, is_deleting, key_of, status_of, uid_of
from dralab.objects.pods import FINISHED, is_finished
from dralab.objects.taints import taints_of
from dralab.runtime.client import Client, amend
from dralab.runtime.engine import T, TimerHandle
from dralab.runtime.manager import Manager
from dralab.runtime.resources import LEASES, NODES, PODS, SERVICES, SLICES
from dralab.values.json_types import JsonDict, JsonObject

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


class StreamEndpoint(Protocol):
    """The endpoint of a node for logs and exec: `endpoint.Endpoint`."""

    address: tuple[str, int]

    def publish(self, client: Client, node: JsonDict) -> None:
        """Publish the credentials that the server needs. ApiError."""
        ...


class Kubelet:
    """One node, with what its pods need of it."""

    def __init__(
        self,
        kubelets: "Kubelets",
        spec: NodeSpec,
        number: int,
        *,
        directories: Sequence[CdiDirectory] | None = None,
        checkpoint: NodeCheckpoint | None = None,
    ) -> None:
        manager = kubelets.manager
        self.spec = spec
        self.name = spec.name
        own = manager.acting_as(f"{NODE_PREFIX}{spec.name}")
        self.client = own.client
        self.kubelets = kubelets
        self.number = number
        self.ip = f"10.{128 + number // 250 // 250}.{number // 250 % 250}.{number % 250 + 1}"
        self.plugins = Plugins()
        self.directories = list(directories or [MemoryDirectory()])
        self.cdi = CdiCache(self.directories)
        self.claims = ClaimsOfNode(manager.engine, self.client, self.plugins, checkpoint)
        self.runtime: ContainerRuntime = kubelets.runtime
        # Features that it has and a scheduler has to know of.
        self.declared: tuple[str, ...] = ()
        self.hooks: ContainerHooks | None = None
        self.network: PodNetwork | None = None
        self.dns: ClusterDns | None = None
        self.recorder = kubelets.recorder if own is manager else own.recorder("kubelet")
        self.claims.on_conflict = lambda pod, text: self.recorder.event(
            pod, "Pod", "DeviceStillInUse", text, type="Warning"
        )
        self.pods: dict[str, PodLife] = {}
        self.admission = PodAdmission(self.client, self.name, kubelets.node_cache, self._is_over)
        # When the slices of drivers that are gone will be deleted.
        self.wipes: dict[str, TimerHandle] = {}
        # What is known of the sockets of drivers, where the node has some (`Registrar.listing`).
        self.plugin_sockets: Callable[[], Sequence[JsonDict]] = list
        # Where containers' mount namespaces have the node's paths.
        self.paths = NodePaths()
        self._addresses = 0
        self.announced = False
        # Where the server finds what its pods say, for a node in a separate process.
        self.endpoint: StreamEndpoint | None = None

    @property
    def clock(self) -> Clock:
        """The node's time."""
        return self.kubelets.manager.engine.clock

    @property
    def directory(self) -> CdiDirectory:
        """Where drivers write CDI files: the directory that wins."""
        return self.directories[-1]

    def serve(self, endpoint: StreamEndpoint) -> None:
        """Give the node an endpoint of its own."""
        self.endpoint = endpoint
        self.ip = endpoint.address[0]

    def join(self, network: PodNetwork, dns: ClusterDns | None) -> None:
        """Give the node's pods networks of their own, and a name server."""
        self.network, self.dns = network, dns
        self.ip = network.ip

    def register(self, plugin: Plugin) -> None:
        """Register a driver in this process for the node."""
        self.plugins.register(plugin)

    def amounts(self) -> JsonObject:
        """Return what the node has for pods."""
        return self.spec.amounts()

    def beside(self, pod: JsonDict) -> Iterable[JsonObject]:
        """Return the specifications of the other pods here, with what they are allocated."""
        return [life.allocated() for life in self.pods.values() if life.uid != uid_of(pod)]

    def links(self, pod: JsonDict) -> dict[str, str]:
        """Return the Service variables of a pod's containers."""
        return service_variables(self.kubelets.services or (), pod)

    def _is_over(self, uid: str) -> bool:
        life = self.pods.get(uid)
        return life is None or life.at_rest()

    def wake(self, pod: JsonDict) -> None:
        """Queue a pod."""
        self.kubelets.queue.add(key_of(pod))

    def wake_after(self, pod: JsonDict, delay: int) -> None:
        """Queue a pod in `delay` nanoseconds."""
        self.kubelets.queue.add_after(key_of(pod), delay)

    def gave_back(self, pod_uid: str, problem: str) -> None:
        """Record that the claims of a vanished pod are unprepared, or the error."""
        node = {"metadata": {"name": self.name, "uid": self.name}}
        whose = f"the claims of pod {pod_uid}, which no longer exists"
        if problem:
            text = f"Failed to unprepare {whose}: {problem}"
            reason = "FailedUnprepareDynamicResources"
            self.recorder.event(node, "Node", reason, text, type="Warning")
            return
        self.recorder.event(node, "Node", "UnpreparedStaleClaims", f"Unprepared {whose}")

    def wake_all(self) -> None:
        """Queue all pods, after a change of a driver."""
        for life in self.pods.values():
            self.wake(life.pod)

    def offload(self, work: Callable[[], T], done: Callable[[T | Exception], None]) -> None:
        """Run work that takes real time beside the events, then `done` as one of them."""
        self.kubelets.manager.engine.offload(work, done)

    def later(self, delay: int, action: Callable[[], None]) -> None:
        """Do something in `delay` nanoseconds."""
        self.kubelets.manager.engine.after(delay, action)

    def sandbox_of(self, pod: JsonDict, ip: str) -> Sandbox:
        """Return a pod's sandbox. SandboxError.

        Without a network addresses repeat after 60,000 pods of one node.
        """
        if self.network is not None:
            return self.network.add_pod(pod)
        if ip:
            return Sandbox(ip)
        self._addresses += 1
        third, fourth = divmod(self._addresses, 250)
        return Sandbox(f"10.{self.number % 120}.{third % 250}.{fourth + 1}")

    def forget_sandbox(self, uid: str) -> None:
        """Note that a pod has ended: its address may be given to another."""
        if self.network is not None:
            self.network.forget_pod(uid)


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
        kubelet = Kubelet(
            self, spec, len(self.nodes), directories=directories, checkpoint=checkpoint
        )
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
            for life in kubelet.pods.values():
                for each in life.containers:
                    if each.container is not None and getattr(each.container, "real", False):
                        each.container.stop(0)

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
        key = key_of(pod)
        options = {"gracePeriodSeconds": 0, "preconditions": {"uid": uid_of(pod)}}
        try:
            client = self.nodes[pod["spec"]["nodeName"]].client
            client.delete(PODS, key.name, key.namespace, options=options)
        except ApiError as error:
            if error.reason not in {"NotFound", "Conflict"}:
                raise

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
        try:
            node = client.get(NODES, spec.name)
        except ApiError as error:
            if error.reason != "NotFound":
                raise
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
