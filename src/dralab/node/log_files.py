"""Containers' logs as files, for a node in a separate process: they outlive the process.

The paths and lines are those that a kubelet's container runtime writes:
`<namespace>_<pod>_<uid>/<container>/<run>.log`, each line with its time and stream. What is
older than the last 10 MiB of a run goes, and all of a pod when the pod is gone.
"""

import contextlib
import io
import shutil
import threading
from collections.abc import Callable, Collection, Iterator, Mapping
from pathlib import Path
from typing import Final

from dralab.files.reading import open_file
from dralab.kernel.clock import from_rfc3339, rfc3339_micro
from dralab.node.containers import (
    Container,
    ContainerExit,
    ContainerRuntime,
    ContainerStart,
    VolumeFile,
)
from dralab.node.logs import ContainerLog

LARGEST: Final = 10 * 1024 * 1024  # kubelet: containerLogMaxSize
OLDER: Final = ".older"


class RuntimeWithLogFiles:
    """Another runtime, whose containers' lines also go into files below a directory."""

    def __init__(
        self, runtime: ContainerRuntime, directory: Path, *, largest: int = LARGEST
    ) -> None:
        self.runtime = runtime
        self.directory = directory
        self.largest = largest
        self.name = runtime.name
        self.version = runtime.version
        self.ports_at = runtime.ports_at

    def start(self, start: ContainerStart, ended: Callable[[ContainerExit], None]) -> Container:
        """Start a container; ContainerStartError."""
        pod = f"{start.namespace}_{start.pod}_{start.pod_uid}"
        folder = self.directory / pod / start.name
        folder.mkdir(parents=True, exist_ok=True)
        _Copy(start.log, folder / f"{len(_runs(folder))}.log", self.largest)
        return self.runtime.start(start, ended)

    def listens(self, pod_uid: str, port: int) -> bool | None:
        """Return whether a connection to a port can lead to the pod alone."""
        return self.runtime.listens(pod_uid, port)

    def refresh_files(
        self, pod_uid: str, volume: str, files: Callable[[], Mapping[str, VolumeFile]]
    ) -> None:
        """Replace the contents of a volume."""
        self.runtime.refresh_files(pod_uid, volume, files)

    def forget_pod(self, pod_uid: str) -> None:
        """Remove a deleted pod's shared files and its logs."""
        for folder in self.directory.glob(f"*_{pod_uid}"):
            shutil.rmtree(folder, ignore_errors=True)
        self.runtime.forget_pod(pod_uid)

    def forget_all_but(self, pod_uids: Collection[str]) -> None:
        """Remove the logs of pods that were deleted while the node's process was down."""
        for folder in self.directory.glob("*_*_*"):
            if folder.name.rpartition("_")[2] not in pod_uids:
                shutil.rmtree(folder, ignore_errors=True)

    def kept(self, pod_uid: str, container: str, *, previous: bool = False) -> ContainerLog | None:
        """Return the log of a container's last run, or of the one before, from its files."""
        for folder in self.directory.glob(f"*_{pod_uid}"):
            runs = _runs(folder / container)
            at = -2 if previous else -1
            if len(runs) >= -at:
                return _read(runs[at])
        return None


class _Copy:
    """Copies a log's lines; only the log refers to it."""

    def __init__(self, log: ContainerLog, path: Path, largest: int) -> None:
        self.log = log
        self.path = path
        self._largest = largest
        self._read = 0
        self._turn = threading.Lock()  # a run's lines and its end come from different threads
        path.touch()
        log.listen(self._more)

    def _more(self) -> None:
        # The folder is gone with its pod: the log is not needed any more.
        with self._turn, contextlib.suppress(FileNotFoundError):
            lines, self._read = self.log.read(self._read)
            with self.path.open("a", encoding="utf-8") as file:
                file.writelines(f"{rfc3339_micro(when)} stdout F {line}\n" for when, line in lines)
                full = file.tell() > self._largest // 2
            if full:
                self.path.replace(self.path.with_name(self.path.name + OLDER))
                self.path.touch()


def _runs(folder: Path) -> list[Path]:
    """Return the files of a container's runs, the last one last."""
    return sorted(folder.glob("*.log"), key=lambda path: int(path.stem))


def _read(path: Path) -> ContainerLog:
    log = ContainerLog()
    for when, line in _lines(path):
        log.write(when, line)
    log.end()
    return log


def _opened(path: Path) -> io.TextIOWrapper:
    return io.TextIOWrapper(open_file(path), encoding="utf-8", errors="replace")


def _lines(path: Path) -> Iterator[tuple[int, str]]:
    for each in (path.with_name(path.name + OLDER), path):
        with contextlib.suppress(FileNotFoundError), _opened(each) as file:
            for text in file:
                # A process that was killed may have written half a line.
                when, _, rest = text.rstrip("\n").partition(" ")
                with contextlib.suppress(ValueError):
                    yield from_rfc3339(when), rest.removeprefix("stdout F ")
