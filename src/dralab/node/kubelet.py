"""One node: its plugins, claims, CDI files, pods and addresses."""

from collections.abc import Callable, Iterable, Sequence
from typing import Protocol

from dralab.apiserver.access.users import NODE_PREFIX
from dralab.contracts.cdi_cache import CdiCache, CdiDirectory, MemoryDirectory
from dralab.contracts.plugin import Plugin
from dralab.kernel.clock import Clock
from dralab.node.admission import PodAdmission
from dralab.node.checkpoint import NodeCheckpoint
from dralab.node.claims import ClaimsOfNode
from dralab.node.containers import ContainerRuntime
from dralab.node.mount_namespaces import NodePaths
from dralab.node.named_slices import NamedSlices
from dralab.node.network.sandbox import PodNetwork, Sandbox
from dralab.node.node_context import ContainerHooks
from dralab.node.node_spec import NodeSpec
from dralab.node.plugins import Plugins
from dralab.node.pods import PodLife
from dralab.node.resolv_conf import ClusterDns
from dralab.node.service_links import service_variables
from dralab.objects.metadata import NamespacedName, key_of, uid_of
from dralab.runtime.cache import Cache
from dralab.runtime.client import Client
from dralab.runtime.engine import T, TimerHandle
from dralab.runtime.events import EventRecorder
from dralab.runtime.manager import Manager
from dralab.runtime.queue import WorkQueue
from dralab.values.json_types import JsonDict, JsonObject


class StreamEndpoint(Protocol):
    """The endpoint of a node for logs and exec: `endpoint.Endpoint`."""

    address: tuple[str, int]

    def publish(self, client: Client, node: JsonDict) -> None:
        """Publish the credentials that the server needs. ApiError."""
        ...


class KubeletHost(Protocol):
    """What nodes share: `kubelets.Kubelets`."""

    manager: Manager
    runtime: ContainerRuntime
    recorder: EventRecorder
    node_cache: Cache
    services: Cache | None
    queue: WorkQueue[NamespacedName]
    pods: Cache
    named_slices: NamedSlices


class Kubelet:
    """One node, with what its pods need of it."""

    def __init__(
        self,
        kubelets: KubeletHost,
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
