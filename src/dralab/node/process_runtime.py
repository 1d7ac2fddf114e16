"""Containers as processes on this machine: opt-in, only for trusted pods.

A container is its command in its own process group and session, with its own environment and
nothing from the server's, in its own directory that is removed afterwards. It shares the machine's
files, processes and user: this runtime isolates nothing (see the guide on runtimes). The network
is the machine's too, or that of the pod's sandbox.
Mounts are symbolic links below that directory, `$DRALAB_ROOT`, or at their paths in a mount
namespace of the container's own (`mount_namespaces`).
"""

import os
import shutil
import tempfile
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final

from dralab.files.owned import OwnedDirectory, sweep
from dralab.kernel.clock import SECOND
from dralab.node.cgroups import ControlGroups
from dralab.node.container_volumes import (
    MEMORY,
    SHARED_MEMORY,
    forget_volumes,
    refresh,
)
from dralab.node.containers import (
    Container,
    ContainerExit,
    ContainerStart,
    ContainerStartError,
    VolumeFile,
)
from dralab.node.images import Mapped, mapped, with_image_volumes
from dralab.node.listening_ports import reaches_only
from dralab.node.mount_namespaces import NodePaths
from dralab.node.orphans import OrphanGuard
from dralab.node.process_container import TRAILING, ProcessContainer
from dralab.runtime.engine import Engine

# What is left for a clean end when the server stops.
LAST_GRACE: Final = 2.0


class ProcessRuntime:
    """Runs commands as processes; `images` maps images to programs.

    `told` is put into the environment of containers whose image is in the map: they are the
    operator's own programs, and a driver needs to know where its server and its node are.
    """

    name = "dralab-process"
    version = "1.0.0"
    ports_at = "127.0.0.1"

    def __init__(
        self,
        engine: Engine,
        images: Mapping[str, Sequence[str]] | None = None,
        told: Callable[[str], Mapping[str, str]] = lambda _node: {},
        paths: Callable[[str], NodePaths] | None = None,
        service: Mapping[str, str] | None = None,
        *,
        groups: ControlGroups | None = None,
    ) -> None:
        self.engine = engine
        # Where limits hold for a container as a whole; None: they hold for each process.
        self.groups = groups
        # Of a node, by its name; None: containers have no mount namespaces.
        self.paths = paths
        # The variables by which programs in pods find the server, beside their account's token.
        self.service = dict(service or {})
        self.images = dict(images or {})
        self.told = told
        self._lock = threading.Lock()
        for place in (None, SHARED_MEMORY):
            sweep(place)
        self._orphans = OrphanGuard()
        if groups is not None:
            self._orphans.cover(controls=groups.directories)
        self._root: OwnedDirectory | None = None
        self._memory: OwnedDirectory | None = None
        self._running: dict[str, set[ProcessContainer]] = {}

    def start(self, start: ContainerStart, ended: Callable[[ContainerExit], None]) -> Container:
        """Start a container. ContainerStartError: there is no command, or no such program."""
        start = with_image_volumes(start, self.images)
        found = mapped(start, self.images)
        program = found or Mapped(start.argv)
        if program.files and (self.paths is None or os.getuid() != 0):
            raise ContainerStartError(
                f'the files of image "{start.image}" can be shown at their paths only with '
                "--mount-namespaces and as root: map it to a folder of programs, /FOLDER/"
            )
        if not program.argv:
            raise ContainerStartError(
                f'image "{start.image}" has no command on this machine: give the container a '
                f"`command`, or `--image-map {start.image}=COMMAND` to the server"
            )
        told = {} if found is None else self.told(start.node)
        directory = self._directory(start)
        try:
            container = ProcessContainer(self, start, program, directory, told=told, ended=ended)
        except ContainerStartError:
            shutil.rmtree(directory, ignore_errors=True)
            raise
        with self._lock:
            self._running.setdefault(start.pod_uid, set()).add(container)
        container.begin()
        return container

    def listens(self, pod_uid: str, port: int) -> bool | None:
        """Return whether a connection to a port can lead to the pod's processes alone."""
        with self._lock:
            running = list(self._running.get(pod_uid, ()))
        groups = {group for each in running for group in each.groups()}
        apart = [each.pid for each in running if each.start.sandbox.namespaces is not None]
        network = f"{apart[0]}/net" if apart else "net"
        return reaches_only(port, groups, network=network)

    def refresh_files(
        self, pod_uid: str, volume: str, files: Callable[[], Mapping[str, VolumeFile]]
    ) -> None:
        """Replace the contents of a volume. ContainerStartError."""
        with self._lock:
            running = [each.start for each in self._running.get(pod_uid, ())]
            root = self._root
        if root is not None and running:
            refresh(root.path / pod_uid, volume, files, running[0].privileges.fs_group)

    def forget_pod(self, pod_uid: str) -> None:
        """Remove the directory of a pod that is gone, and with it its volumes."""
        if self._root is not None:
            forget_volumes(self._root.path / pod_uid)
            shutil.rmtree(self._root.path / pod_uid, ignore_errors=True)

    def stop(self) -> None:
        """End running containers with a short grace period, and remove their files."""
        with self._lock:
            running = [each for group in self._running.values() for each in group]
            directories = [each for each in (self._root, self._memory) if each is not None]
            self._root = self._memory = None
        for each in running:
            each.terminate()
        clock = self.engine.clock
        deadline = clock.now() + int(LAST_GRACE * SECOND)
        for each in running:
            each.wait(max(0, deadline - clock.now()) / SECOND)
            each.kill()
        for each in running:
            each.wait(TRAILING)
        self._orphans.close()
        if self.groups is not None:
            self.groups.close()
        for owned in directories:
            owned.close()

    def watch(self, group: int, *, there: bool = True) -> None:
        """Add or remove a process group that is killed if this process ends."""
        self._orphans.watch(group, there=there)

    def forget_container(self, container: "ProcessContainer") -> None:
        """Forget a container; volumes of its pod stay until `forget_pod`."""
        shutil.rmtree(container.directory, ignore_errors=True)
        uid = container.start.pod_uid
        with self._lock:
            group = self._running.get(uid, set())
            group.discard(container)
            if not group:
                self._running.pop(uid, None)

    def _directory(self, start: ContainerStart) -> Path:
        with self._lock:
            if self._root is None:
                self._root = OwnedDirectory.new("pods")
                owned = [self._root.path]
                if SHARED_MEMORY.is_dir():
                    self._memory = OwnedDirectory.new("pods", SHARED_MEMORY)
                    (self._root.path / MEMORY).symlink_to(self._memory.path)
                    owned.append(self._memory.path)
                self._orphans.cover(owned)
            pod = self._root.path / start.pod_uid
        pod.mkdir(mode=0o700, exist_ok=True)
        return Path(tempfile.mkdtemp(prefix=f"{start.name}-", dir=pod))
