"""The servers of a test session: created when a test first needs them, emptied for each test."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from ipaddress import IPv4Network
from typing import TYPE_CHECKING, Any, Final, Self

import pytest

from dralab.api.releases import parse
from dralab.cluster import Cluster, Component, Options
from dralab.pytest_plugin.settings import ClusterSettings
from dralab.runtime.cluster_clock import ClusterClock

if TYPE_CHECKING:
    from dralab.apiserver.verbs.kinds.outgoing_calls import OutgoingSettings
    from dralab.components.nodes import NodeOptions

# Of servers that are not used at the moment: each has threads and a socket.
MOST_KEPT: Final = 4


class Servers:
    """The servers that tests share, one for each combination of settings."""

    def __init__(self) -> None:
        self._kept: dict[ClusterSettings, tuple[Cluster, ExitStack]] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        while self._kept:
            self._kept.popitem()[1][1].close()

    @contextmanager
    def serving(self, settings: ClusterSettings) -> Iterator[Cluster]:
        """Provide an empty cluster whose components have started and settled."""
        if settings.server == "test":
            with cluster_of(settings) as cluster:
                clock_of(cluster).settle()
                yield cluster
            return
        kept = self._kept.pop(settings, None)
        if kept is None:
            while len(self._kept) >= MOST_KEPT:
                self._kept.pop(next(iter(self._kept)))[1].close()
            stack = ExitStack()
            kept = stack.enter_context(cluster_of(settings)), stack
        else:
            kept[0].reset()
        self._kept[settings] = kept  # the last one is the one used last
        if settings.components:
            clock_of(kept[0]).settle()
        yield kept[0]


def cluster_of(settings: ClusterSettings) -> Cluster:
    """Return a cluster with these settings; entering starts it, or fails the test."""
    try:
        components = list(_components(settings)) if settings.components else []
        clock = ClusterClock(settings.start, running=settings.clock == "running")
        outgoing = _outgoing(settings.services)
        version = parse(settings.version) if settings.version else ""
    except ValueError as error:
        pytest.fail(f"dralab: {error}", pytrace=False)
    options = Options(
        version=version,
        tls=settings.tls,
        authorization=settings.authorization,
        mount_tokens=settings.components,
        own_objects=settings.components,
        outgoing=outgoing,
    )
    return Cluster(options, components=components, clock=clock, seed=settings.seed)


def clock_of(cluster: Cluster) -> ClusterClock:
    """Return the clock of a cluster of `cluster_of`."""
    assert isinstance(cluster.clock, ClusterClock)  # noqa: S101 - `cluster_of` made it
    return cluster.clock


def _outgoing(services: tuple[str, ...]) -> "OutgoingSettings | None":
    """Return where the server may call beside its defaults. ValueError."""
    if not services:
        return None
    from dralab.apiserver.outgoing.targets import read_service
    from dralab.apiserver.verbs.kinds.outgoing_calls import OutgoingSettings

    return OutgoingSettings(services=[read_service(text) for text in services])


def _components(settings: ClusterSettings) -> Iterator[Component]:
    from dralab.components.control_plane import ControlPlane
    from dralab.components.nodes import NodeOptions, Nodes
    from dralab.fleet import shapes
    from dralab.node.images import image_map

    if settings.fleet and settings.fleet not in shapes.names():
        known = ", ".join(shapes.names())
        raise ValueError(f"fleet has no shape {settings.fleet!r}; known: {known}")
    network = IPv4Network(settings.load_balancers) if settings.load_balancers else None
    yield ControlPlane(without=settings.without, alone=True, load_balancers=network)
    if "nodes" in settings.without:
        return
    if settings.images and settings.runtime != "process":
        raise ValueError("images need the runtime `process`")
    wanted = NodeOptions(
        nodes=None if settings.fleet else settings.nodes,
        fleet=settings.fleet,
        drivers=settings.drivers,
        runtime=settings.runtime,
        images=image_map(settings.images),
    )
    yield Nodes(wanted)
    if settings.system_pods:
        yield SystemPods(wanted)


@dataclass(frozen=True, slots=True)
class SystemPods:
    """The pods of kube-system, which exist from the start of a cluster."""

    wanted: "NodeOptions"

    def start(self, cluster: Any) -> None:
        """Create them on a running server."""
        from dralab.components import system_pods
        from dralab.components.nodes import first_name

        system_pods.load(cluster.client, first_name(self.wanted))

    def stop(self) -> None:
        """Nothing runs that could end."""
