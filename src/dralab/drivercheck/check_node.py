"""The node of a driver under test: a client and the kubelet's directories.

By default it has an API server and a directory of its own, so that several nodes work side by
side. With `CheckedNode` it is a node that exists already.
"""

import itertools
import shutil
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Self

from dralab import __version__
from dralab.api.status import ApiError
from dralab.cluster import Cluster
from dralab.drivercheck.gate import Gate
from dralab.drivercheck.targets import Places, RunningDriver
from dralab.drivercheck.transcript import Transcript
from dralab.node.nri.plugins import NriPlugins
from dralab.node.orphans import OrphanGuard
from dralab.runtime.client import Client
from dralab.runtime.resources import NAMESPACES, NODES

NODE: Final = "dralab-check-node"
NAMESPACE: Final = "dralab-check"
OTHER_NAMESPACE: Final = "dralab-check-2"


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckedNode:
    """A cluster and a node that exist already, for a driver that runs there."""

    client: Client
    node: str
    socket: Path
    cdi: Sequence[Path]


class NoContainers:
    """The NRI socket of a node without pods: some drivers exit if they cannot register."""

    def state(self) -> tuple[list[Any], list[Any]]:
        """Return no pods and no containers."""
        return [], []

    def update(self, plugin: str, updates: Any) -> list[Any]:  # noqa: ARG002 - as NriHost has it
        """Return the updates, which can't be made."""
        return list(updates)

    def evict(self, plugin: str, evictions: Any) -> None:
        """Stop nothing."""


class CheckNode:
    """A node for one driver. Use it as a context: nothing of it is left afterwards.

    `gate` logs the driver's requests; None in surroundings, whose server is not ours.
    """

    client: Client
    places: Places
    cdi_paths: Sequence[Path]

    def __init__(self, surroundings: CheckedNode | None, transcript: Transcript, seed: int) -> None:
        self.files: RunFiles | None = None  # of the run; without one, the node has its own
        self.surroundings = surroundings
        self.transcript = transcript
        self.seed = seed
        self.gate: Gate | None = None
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        if self.surroundings is None:
            self._make()
        else:
            self._find(self.surroundings)
        for name in (NAMESPACE, OTHER_NAMESPACE):
            labels = {"resource.kubernetes.io/admin-access": "true"}
            with suppress(ApiError):  # there since an earlier run
                self.client.create(NAMESPACES, {"metadata": {"name": name, "labels": labels}})
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def _make(self) -> None:
        if self.files is None:
            self.files = self._stack.enter_context(RunFiles())
        place = self.files.directory()
        self._stack.callback(shutil.rmtree, place, ignore_errors=True)
        cluster = self._stack.enter_context(Cluster(seed=self.seed, edge=self._edge))
        self.client = cluster.client
        self.places = Places(
            node=NODE, root=place / "k", kubeconfig=cluster.kubeconfig, cdi=place / "cdi"
        )
        self.cdi_paths = [self.places.static_cdi, self.places.cdi]
        for path in (self.places.registry, self.places.plugins, *self.cdi_paths):
            path.mkdir(parents=True)
        self.client.create(NODES, {"metadata": {"name": NODE}})
        runtime = NriPlugins(self.places.nri, NoContainers(), ("dralab", __version__))
        runtime.start()
        self._stack.callback(runtime.stop)

    def _edge(self, served: Any) -> Gate:
        self.gate = Gate(served, self.transcript)
        return self.gate

    def _find(self, found: CheckedNode) -> None:
        self.client = found.client
        self.cdi_paths = list(found.cdi)
        self.places = Places(
            node=found.node,
            root=found.socket.parent.parent,
            kubeconfig=Path(),
            cdi=self.cdi_paths[-1],
        )
        self._stack.callback(self._delete_namespaces)

    def _delete_namespaces(self) -> None:
        for name in (NAMESPACE, OTHER_NAMESPACE):
            with suppress(ApiError):
                self.client.delete(NAMESPACES, name)


class RunFiles:
    """The directory and the processes of a run; they go with this process, even if it is killed.

    Use it as a context. Any thread may call.
    """

    def __init__(self) -> None:
        self._orphans = OrphanGuard()
        self._numbers = itertools.count()

    def __enter__(self) -> Self:
        self._directory = Path(tempfile.mkdtemp(prefix="dc-"))
        self._orphans.cover([self._directory])
        return self

    def __exit__(self, *_: object) -> None:
        self._orphans.close()
        shutil.rmtree(self._directory, ignore_errors=True)

    def directory(self) -> Path:
        """Create a directory for one bench. Its path is short: sockets are in it."""
        found = self._directory / str(next(self._numbers))
        found.mkdir()
        return found

    def started(self, driver: RunningDriver) -> None:
        """Record a process that has to end with this one."""
        if driver.group:
            self._orphans.watch(driver.group)

    def ended(self, driver: RunningDriver) -> None:
        """Record that a process has ended: its pid may be reused."""
        if driver.group:
            self._orphans.watch(driver.group, there=False)
