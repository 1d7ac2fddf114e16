"""Assembles nodes and drivers: kubelets on one manager, drivers in the same process."""

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol

from dralab.api.releases import MIXED, version_of
from dralab.api.resource.features import DECLARED, DEFAULT_1_36, RESOURCE_HEALTH, Features
from dralab.api.status import ignoring
from dralab.components import older_parts, roles
from dralab.components.roles import RolesHost
from dralab.kernel.clock import Clock
from dralab.kernel.extras import require
from dralab.kernel.randomness import Randomness
from dralab.runtime.client import Client
from dralab.runtime.live import LiveEngine
from dralab.runtime.manager import Manager
from dralab.runtime.resources import (
    CLASSES,
    CLASSIC_CLASSES,
    NAMESPACES,
    SLICES,
    STORAGE_CLASSES,
)
from dralab.values.json_types import JsonDict
from dralab.values.records import dataclass

if TYPE_CHECKING:
    from dralab.drivers.driver import Driver
    from dralab.drivers.publishing import SlicePublisher
    from dralab.drivers.stand_in import StandIn
    from dralab.node.containers import ContainerRuntime
    from dralab.node.kubelet import Kubelet
    from dralab.node.kubelets import Kubelets
    from dralab.node.mount_namespaces import NodePaths
    from dralab.node.network.cluster_network import ClusterNetwork
    from dralab.node.node_spec import NodeSpec
    from dralab.node.process_runtime import ProcessRuntime
    from dralab.node.resolv_conf import ClusterDns
    from dralab.node.simulated_runtime import Program

logger = logging.getLogger(__name__)
# With the fake driver alone there is one node, of the name that its documentation shows.
FAKE_NODE: Final = "fake-dra-driver-cluster-worker"
SIMULATED: Final = "simulated"
PROCESS: Final = "process"
# The user that reads all nodes and writes shared objects; a node writes as itself.
NODES_USER: Final = "system:serviceaccount:kube-system:dralab-nodes"


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeOptions:
    """Which nodes to run, and their drivers and runtime.

    Nodes may be `named` one by one. Where `nodes` is None there is one, or as many as the fleet's
    shape has. `drivers` are names of built-in ones, or classes of your own; those that an older
    generation has in their place run with `classic`. With `root` each node has a directory
    there, named like it, in which real drivers find it as they find a kubelet: `plugins_registry`,
    `plugins`, `cdi`, and its checkpoint. With `namespaces` and a root,
    containers that are processes have mount namespaces, in which the node's paths are those of its
    directory. With a `network`, which its owner starts and ends, pods have networks of their
    own, and ask `dns` for names.
    """

    nodes: int | None = None
    fleet: str = ""
    drivers: Sequence["str | type[Driver]"] = ()
    runtime: str = SIMULATED
    classic: bool = False
    images: Mapping[str, Sequence[str]] = field(default_factory=dict)
    seed: int = 0
    root: Path | None = None
    named: Sequence[str] = ()
    namespaces: bool = False
    network: "ClusterNetwork | None" = None
    dns: "ClusterDns | None" = None

    def __bool__(self) -> bool:
        return bool(self.nodes or self.named or self.fleet or self.drivers)


class NodesHost(RolesHost, Protocol):
    """What nodes need from a cluster."""

    def client_of(self, user: str) -> Client:
        """Return a client that may do what a user may."""
        ...

    @property
    def pods_url(self) -> str:
        """Where programs in pods find the cluster."""
        ...

    @property
    def kubeconfig(self) -> Path:
        """A kubeconfig file for programs that run in pods."""
        ...

    @property
    def kept(self) -> Path:
        """The directory of files that belong to the stored objects."""
        ...

    clock: Clock
    seed: int | None


class Nodes:
    """Nodes as a part of a cluster."""

    def __init__(self, wanted: NodeOptions) -> None:
        """Refuse options that this installation cannot run. MissingExtraError."""
        if wanted.root is not None:
            require("grpc", "a node whose drivers are programs of their own (--root)")
        self.wanted = wanted
        self.engine: LiveEngine | None = None
        self.manager: Manager | None = None
        self.kubelets: Kubelets | None = None
        self.runtime: ProcessRuntime | None = None
        self._features: Features = frozenset()
        # What to do when a node that was added has registered, by its name.
        self._joined: dict[str, Callable[[Kubelet], None]] = {}

    def add_node(self, spec: "NodeSpec", joined: "Callable[[Kubelet], None]") -> None:
        """Run one more node, from any thread; `joined` is called once it has registered."""

        def begin() -> None:
            if self.kubelets is not None:
                self._joined[spec.name] = joined
                equip(add(self.kubelets, spec, None), self._features)

        if self.engine is not None:
            self.engine.soon(begin)

    def remove_node(self, name: str) -> None:
        """Run a node no more, from any thread; its objects are left to others."""

        def end() -> None:
            self._joined.pop(name, None)
            if self.kubelets is not None:
                self.kubelets.remove_node(name)

        if self.engine is not None:
            self.engine.soon(end)

    def start(self, cluster: NodesHost) -> None:
        """Start, with a running server. ValueError: strangers could run commands there."""
        from dralab.node.kubelet_pages import KubeletPages

        if self.wanted.runtime == PROCESS and cluster.server.application.authentication.is_open:
            raise ValueError("runtime `process` needs a server that requires a token: use TLS")
        roles.install_for(cluster, older_parts.served(cluster.server.resources.kinds))
        randomness = Randomness.from_system() if cluster.seed is None else Randomness(cluster.seed)
        engine = self.engine = LiveEngine(name="dralab-nodes", clock=cluster.clock, workers=4)
        manager = self.manager = Manager(
            engine, cluster.client_of(NODES_USER), randomness, client_of=cluster.client_of
        )
        if self.wanted.runtime == PROCESS:
            from dralab.node.cgroups import ControlGroups
            from dralab.node.mount_namespaces import service_of
            from dralab.node.process_runtime import ProcessRuntime

            root = self.wanted.root

            def places(node: str) -> dict[str, str]:
                found = {"KUBECONFIG": str(cluster.kubeconfig)}
                return found | (places_of(root.absolute() / node) if root is not None else {})

            paths = None
            if self.wanted.namespaces and root is not None:
                paths = partial(paths_of, root)
            service = service_of(cluster.pods_url)
            groups = ControlGroups.found() if paths is not None else None
            self.runtime = ProcessRuntime(
                engine, self.wanted.images, places, paths, service, groups=groups
            )
        kubelets = self.kubelets = assemble(
            manager,
            self.wanted,
            runtime=self.runtime,
            features=cluster.server.features,
            release=cluster.server.resources.kinds.release,
            also=[self._storage(manager, cluster)],
        )
        self._features = cluster.server.features
        equipped = kubelets.on_node

        def on_node(kubelet: "Kubelet") -> None:
            equipped(kubelet)
            if (joined := self._joined.get(kubelet.name)) is not None:
                joined(kubelet)

        kubelets.on_node = on_node
        # Logs, commands and ports: the server asks here first.
        cluster.server.nodes.here.append(KubeletPages(kubelets))
        engine.soon(manager.start)
        engine.start()

    def _storage(self, manager: Manager, cluster: NodesHost) -> JsonDict:
        """Set up volumes as the runtime needs them; return the default class."""
        from dralab.controllers.volume_folders import ACCOUNT, FOLDERS, VolumeFolders, default_class
        from dralab.controllers.volumes import PRETEND

        if self.runtime is None:
            return default_class(PRETEND)
        VolumeFolders(manager.acting_as(ACCOUNT), cluster.kept / "volumes")
        return default_class(FOLDERS)

    def stop(self) -> None:
        """End; containers that are processes end too."""
        if self.manager is not None:
            self.manager.stop()
        if self.engine is not None:
            self.engine.stop()
        # From here on, containers that end are not restarted.
        if self.runtime is not None:
            self.runtime.stop()
        if self.kubelets is not None:
            self.kubelets.stop()
        self.engine = self.manager = self.kubelets = self.runtime = None


def assemble(
    manager: Manager,
    wanted: NodeOptions,
    programs: Mapping[str, "Program"] | None = None,
    runtime: "ContainerRuntime | None" = None,
    features: Features = DEFAULT_1_36,
    *,
    release: str = MIXED,
    also: Sequence[JsonDict] = (),
) -> "Kubelets":
    """Put nodes and their drivers on a manager, live or simulated; also create objects `also`."""
    from dralab.drivers.publishing import SlicePublisher
    from dralab.node.kubelets import Kubelets
    from dralab.node.simulated_runtime import SimulatedRuntime

    kubelets = Kubelets(
        manager,
        runtime or SimulatedRuntime(manager.engine, programs),
        version=version_of(release),
    )
    publisher = SlicePublisher(manager)
    sockets: list[Any] = []
    found = _described(wanted)

    older = _older_drivers(wanted)
    serving = [each.start(manager) for each in older]

    def on_node(kubelet: "Kubelet") -> None:
        for serve in serving:
            serve(kubelet)
        for driver in found.get(kubelet.name, ()):
            install(kubelet, driver, publisher)
        if wanted.root is not None:
            if wanted.namespaces:
                kubelet.paths = paths_of(wanted.root, kubelet.name)
            listen(kubelet, wanted.root / kubelet.name, sockets)

    kubelets.listeners = sockets
    kubelets.on_node = on_node
    objects = [*_classes(found), *_shared_slices(wanted), *also]
    objects += [item for each in older for item in each.objects]

    def create(index: int) -> int | None:
        _create(manager.client, objects[index])
        return None

    # A queue tries again what a server that has only begun refuses.
    queue = manager.queue("nodes/objects", create)
    for index in range(len(objects)):
        queue.add(index)
    for spec in _specs(wanted):
        root = wanted.root / spec.name if wanted.root is not None else None
        kubelet = add(kubelets, spec, root)
        equip(kubelet, features)
        if wanted.network is not None:
            kubelet.join(wanted.network.add_node(spec.name), wanted.dns)
    return kubelets


def equip(kubelet: "Kubelet", features: Features) -> None:
    """Give a node the feature gates that are on, and stand-ins for drivers that do not run."""
    kubelet.claims.of_containers.reports_health = RESOURCE_HEALTH in features
    kubelet.declared = tuple(DECLARED & features)

    def stand_in(driver: str) -> "StandIn":
        from dralab.drivers.stand_in import StandIn

        return StandIn(driver, kubelet.name, kubelet.directory)

    kubelet.plugins.new_stand_in = stand_in


def install(kubelet: "Kubelet", driver: "Driver", publisher: "SlicePublisher") -> None:
    """Run a driver in this process for a node, and publish its devices."""
    from dralab.drivers.hosted_plugin import HostedPlugin

    plugin = HostedPlugin(driver, kubelet.client, kubelet.directory)
    kubelet.register(plugin)
    publisher.publish(driver)


def add(kubelets: "Kubelets", spec: "NodeSpec", root: Path | None) -> "Kubelet":
    """Add a node, with its own directory where there is one."""
    from dralab.contracts.cdi_cache import FileDirectory
    from dralab.node.checkpoint import NodeFileCheckpoint
    from dralab.node.mount_namespaces import static_cdi_of

    if root is None:
        return kubelets.add_node(spec)
    # A driver may start as soon as the cluster says that it is ready.
    make_directories(root)
    return kubelets.add_node(
        spec,
        directories=[FileDirectory(path) for path in (static_cdi_of(root), root / "cdi")],
        checkpoint=NodeFileCheckpoint(root / "dra_manager_state"),
    )


def make_directories(root: Path) -> None:
    """Make the directories of drivers' sockets below a kubelet's root."""
    for name in ("plugins_registry", "plugins"):
        (root / name).mkdir(parents=True, exist_ok=True)


def places_of(root: Path) -> dict[str, str]:
    """Return the variables by which a driver in a pod finds its node."""
    return {"KUBELET_ROOT": str(root), "CDI_ROOT": str(root / "cdi")}


def paths_of(root: Path, node: str) -> "NodePaths":
    """Return where a node's paths are, for its containers' mount namespaces."""
    from dralab.node.mount_namespaces import NodePaths

    return NodePaths.of(root / node, root / node / "cdi")


def listen(kubelet: "Kubelet", root: Path, sockets: list[Any], nri: Path | None = None) -> None:
    """Let drivers register with a node by their sockets. Needs the extra `[grpc]`.

    Also those for Kubernetes up to 1.30, where the server has the slices of that time. NRI plugins
    connect to the socket `nri`, or to `nri/nri.sock` below the root.
    """
    from dralab.contracts import wire
    from dralab.node.nri.hooks import NodeHooks
    from dralab.node.old_sockets import OldSocketPlugin
    from dralab.node.pod_resources import PodResources
    from dralab.node.sockets import Registrar

    engine, slices = kubelet.kubelets.manager.engine, kubelet.kubelets.named_slices

    def old(driver: str, endpoint: str) -> OldSocketPlugin:
        plugin = OldSocketPlugin(driver, endpoint, engine.clock)
        plugin.on_resources = partial(slices.set_devices, kubelet.name, driver)
        return plugin

    others = {wire.OLD: old} if slices.served() else {}
    found = Registrar(engine, kubelet.plugins, root / "plugins_registry", others=others)
    found.here = kubelet.paths.here
    found.on_health = kubelet.wake_all
    found.on_call = kubelet.claims.metrics.call
    kubelet.plugin_sockets = found.listing
    sockets.append(found)
    found.start()
    hooks = NodeHooks(kubelet, nri or root / "nri" / "nri.sock")
    for more in (PodResources(kubelet, root), hooks):
        try:
            more.start()
        except wire.SocketError as error:
            logger.warning("node %s: a socket is missing: %s", kubelet.name, error)
        else:
            sockets.append(more)
    kubelet.hooks = hooks


def _older_drivers(wanted: NodeOptions) -> list[older_parts.OlderDriver]:
    return older_parts.drivers_of(("classic",) if wanted.classic else (), wanted.drivers)


def _sample(wanted: NodeOptions) -> Any:
    from dralab.fleet import shapes

    return shapes.sample(wanted.fleet, nodes=wanted.nodes, seed=wanted.seed)


def names(wanted: NodeOptions) -> list[str]:
    """Return the names of the nodes that are described by number alone."""
    if wanted.named:
        return list(wanted.named)
    if wanted.nodes is None and "fake" in wanted.drivers:
        return [FAKE_NODE]
    return [f"node-{number}" for number in range(1 if wanted.nodes is None else wanted.nodes)]


def count(wanted: NodeOptions) -> int:
    """Return how many nodes there will be."""
    return len(_specs(wanted))


def first_name(wanted: NodeOptions) -> str:
    """Return the name of the first node."""
    name: str = _specs(wanted)[0].name
    return name


def _specs(wanted: NodeOptions) -> list[Any]:
    from dralab.node.node_spec import NodeSpec

    if not wanted.fleet:
        return [NodeSpec(name=name) for name in names(wanted)]
    return [
        NodeSpec(name=node.name, cpu=node.cpu, memory=node.memory, labels=node.labels)
        for node in _sample(wanted).nodes
    ]


def _described(wanted: NodeOptions) -> dict[str, list["Driver"]]:
    """Return the drivers of each node."""
    from dralab.drivers.catalog import DRIVERS
    from dralab.drivers.driver import SliceOf
    from dralab.drivers.fake.sample import SampleDevices, SampleNetworkDevices

    found: dict[str, list[Driver]] = {}
    every = names(wanted)
    if wanted.fleet:
        from dralab.fleet import rendering

        sample = _sample(wanted)
        every = [node.name for node in sample.nodes]
        contents: dict[tuple[str, str], list[SliceOf]] = {}
        for obj in rendering.v1(sample):
            spec = obj["spec"]
            if obj["kind"] == "ResourceSlice":
                part = SliceOf(
                    devices=spec.get("devices") or (), counters=spec.get("sharedCounters") or ()
                )
                place = spec.get("nodeName", ""), spec["driver"]
                contents.setdefault(place, []).append(part)
        for (node, name), parts in contents.items():
            kind = SampleDevices if node else SampleNetworkDevices
            for each in [node] if node else every:
                found.setdefault(each, []).append(kind(each, name, parts))
    older = {each.instead_of for each in _older_drivers(wanted)}
    for kind_of in wanted.drivers:
        if kind_of in older:
            continue
        make = DRIVERS[kind_of] if isinstance(kind_of, str) else kind_of
        for node in every:
            found.setdefault(node, []).append(make(node))
    return found


def _shared_slices(wanted: NodeOptions) -> list[JsonDict]:
    """Return the slices of a fleet without a node: network-attached devices."""
    if not wanted.fleet:
        return []
    from dralab.fleet import rendering

    return [
        obj
        for obj in rendering.v1(_sample(wanted))
        if obj["kind"] == "ResourceSlice" and not obj["spec"].get("nodeName")
    ]


def _classes(found: Mapping[str, Sequence["Driver"]]) -> list[JsonDict]:
    from dralab.drivers.catalog import classes, device_class
    from dralab.drivers.fake.sample import SampleDevices

    first: dict[str, Driver] = {}
    for drivers in found.values():
        for driver in drivers:
            first.setdefault(driver.name, driver)
    return [
        obj
        for name, driver in sorted(first.items())
        for obj in ([device_class(name)] if isinstance(driver, SampleDevices) else classes(driver))
    ]


def _create(client: Client, obj: JsonDict) -> None:
    resources = {
        "DeviceClass": CLASSES,
        "ResourceClass": CLASSIC_CLASSES,
        "Namespace": NAMESPACES,
        "ResourceSlice": SLICES,
        "StorageClass": STORAGE_CLASSES,
    }
    with ignoring("AlreadyExists"):
        client.create(resources[obj["kind"]], obj)
