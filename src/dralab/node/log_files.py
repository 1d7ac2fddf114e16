"""Containers' logs as files, where the node is too far from the server for `kubectl logs`.

The paths and lines are those that a kubelet's container runtime writes:
`<namespace>_<pod>_<uid>/<container>/<run>.log`, each line with its time and stream.
"""

from collections.abc import Callable
from pathlib import Path

from dralab.kernel.clock import rfc3339_micro
from dralab.node.containers import Container, ContainerRuntime, ContainerStart, Exit
from dralab.node.logs import Log


class RuntimeWithLogFiles:
    """Another runtime, whose containers' lines also go into files below a directory."""

    def __init__(self, runtime: ContainerRuntime, directory: Path) -> None:
        self.runtime = runtime
        self.directory = directory
        self.name = runtime.name
        self.version = runtime.version
        self.ports_at = runtime.ports_at

    def start(self, start: ContainerStart, ended: Callable[[Exit], None]) -> Container:
        """Start a container; StartError."""
        pod = f"{start.namespace}_{start.pod}_{start.pod_uid}"
        folder = self.directory / pod / start.name
        folder.mkdir(parents=True, exist_ok=True)
        _Copy(start.log, folder / f"{len(list(folder.iterdir()))}.log")
        return self.runtime.start(start, ended)

    def forget(self, pod_uid: str) -> None:
        """Remove what a pod shared; its logs stay."""
        self.runtime.forget(pod_uid)


class _Copy:
    """Copies what a log gets; only the log holds on to it."""

    def __init__(self, log: Log, path: Path) -> None:
        self.log = log
        self.path = path
        self._read = 0
        path.touch()
        log.listen(self._more)

    def _more(self) -> None:
        lines, self._read = self.log.read(self._read)
        with self.path.open("a", encoding="utf-8") as file:
            file.writelines(f"{rfc3339_micro(when)} stdout F {line}\n" for when, line in lines)
