"""How a driver under test is run: its directories and its process."""

import contextlib
import os
import shlex
import signal
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Protocol

from dralab.drivercheck.node_view import BOOT_ID, command_with, offered
from dralab.drivercheck.rules import CheckNeed
from dralab.files.reading import read_end
from dralab.node.mount_namespaces import static_cdi_of

PROCESS_NEEDS: Final = frozenset(
    {CheckNeed.RESTART, CheckNeed.API, CheckNeed.USAGE, CheckNeed.CDI_PLACE}
)


class TargetError(Exception):
    """The driver can't be started; the text says why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Places:
    """The parameters of a driver: the node's name, a kubeconfig, the kubelet's directories."""

    node: str
    root: Path
    kubeconfig: Path
    cdi: Path
    boot_id: Path = BOOT_ID
    clock_offset: int = 0  # of the node's clock to the machine's, in nanoseconds

    @property
    def static_cdi(self) -> Path:
        """What `/etc/cdi` is for the driver of a chart; `cdi` is its `/var/run/cdi`."""
        return static_cdi_of(self.root)

    @property
    def nri(self) -> Path:
        """The NRI socket of the node's runtime, which is `/var/run/nri/nri.sock` for a chart."""
        return self.root / "nri" / "nri.sock"

    @property
    def registry(self) -> Path:
        """Where registration sockets are put."""
        return self.root / "plugins_registry"

    @property
    def plugins(self) -> Path:
        """Where each driver has a directory."""
        return self.root / "plugins"

    def words(self, pod_uid: str = "") -> dict[str, str]:
        """Return the placeholders of a command with their values."""
        return {
            "node": self.node,
            "root": str(self.root),
            "kubeconfig": str(self.kubeconfig),
            "cdi": str(self.cdi),
            "registry": str(self.registry),
            "plugins": str(self.plugins),
            "pod_uid": pod_uid,
        }

    def variables(self, pod_uid: str = "") -> dict[str, str]:
        """Return the environment variables that drivers commonly read."""
        return {
            "NODE_NAME": self.node,
            "KUBECONFIG": str(self.kubeconfig),
            "KUBELET_ROOT": str(self.root),
            "CDI_ROOT": str(self.cdi),
            "KUBELET_REGISTRAR_DIRECTORY_PATH": str(self.registry),
            "KUBELET_PLUGINS_DIRECTORY_PATH": str(self.plugins),
            "POD_UID": pod_uid,
        }


@dataclass(frozen=True, slots=True)
class Usage:
    """The resources of a process: resident memory in bytes, open descriptors, threads."""

    memory: int
    descriptors: int
    threads: int


class RunningDriver(Protocol):
    """A running driver."""

    @property
    def running(self) -> bool:
        """Whether it runs."""
        ...

    @property
    def group(self) -> int:
        """Its process group; 0 if it has none of its own."""
        ...

    def stop(self, patience: float) -> int | None:
        """Ask it to end (SIGTERM); return its exit code, None if it runs on after `patience` s."""
        ...

    def kill(self) -> None:
        """End it at once (SIGKILL); returns when it is gone."""
        ...

    def output(self) -> str:
        """Return the last lines that it wrote."""
        ...

    def usage(self) -> Usage | None:
        """Return its memory, descriptors and threads; None if unknown."""
        ...


class DriverTarget(Protocol):
    """A driver that can be started any number of times."""

    @property
    def name(self) -> str:
        """Its name in reports."""
        ...

    @property
    def offers(self) -> frozenset[CheckNeed]:
        """What checks may need of it."""
        ...

    def start(self, places: Places, pod_uid: str = "") -> RunningDriver:
        """Start it. TargetError."""
        ...


@dataclass(frozen=True, slots=True)
class CommandTarget:
    """A driver as a command: `{node}`, `{kubeconfig}` and so on in it are replaced.

    >>> target = CommandTarget(("./driver", "--node={node}", "--uid={pod_uid}"))
    >>> CheckNeed.INSTANCES in target.offers
    True
    """

    command: Sequence[str]
    env: Mapping[str, str] = field(default_factory=dict)
    title: str = ""
    more: frozenset[CheckNeed] = frozenset()

    @property
    def name(self) -> str:
        """Its name in reports."""
        return self.title or shlex.join(self.command)

    @property
    def offers(self) -> frozenset[CheckNeed]:
        """What checks may need of it."""
        texts = [*self.command, *self.env.values()]
        told = any("{pod_uid}" in text for text in texts)
        known = PROCESS_NEEDS | self.more | offered()
        return known | {CheckNeed.INSTANCES} if told else known

    def start(self, places: Places, pod_uid: str = "") -> "ProcessInstance":
        """Start the command in its own session. TargetError."""
        words = places.words(pod_uid)
        command = command_with(
            [filled(word, words) for word in self.command], places.boot_id, places.clock_offset
        )
        own = {key: filled(value, words) for key, value in self.env.items()}
        log = places.root / "driver.log"
        try:
            with log.open("ab") as output:
                process = subprocess.Popen(  # noqa: S603 - the command under test
                    command,
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=output,
                    env={**os.environ, **places.variables(pod_uid), **own},
                    start_new_session=True,
                )
        except OSError as error:
            raise TargetError(f"{command[0]} can't be started: {error.strerror}") from error
        return ProcessInstance(process, log)


class ProcessInstance:
    """A driver as a process; its children are in its session and end with it."""

    def __init__(self, process: "subprocess.Popen[bytes]", log: Path) -> None:
        self.process = process
        self.log = log
        self.start = log.stat().st_size

    @property
    def running(self) -> bool:
        """Whether it runs."""
        return self.process.poll() is None

    @property
    def group(self) -> int:
        """Its process group: the command leads a session."""
        return self.process.pid

    def stop(self, patience: float) -> int | None:
        """Send SIGTERM; return the exit code, None where it runs on."""
        self.process.terminate()
        try:
            return self.process.wait(patience)
        except subprocess.TimeoutExpired:
            return None

    def kill(self) -> None:
        """Send SIGKILL to it and its children."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()

    def output(self) -> str:
        """Return the last lines that it wrote."""
        return last_lines(self.log, self.start)

    def usage(self) -> Usage | None:
        """Return its memory, descriptors and threads, from /proc."""
        return usage_of(self.process.pid)


class RunningInstance:
    """A driver that was started elsewhere: it is left alone."""

    running = True
    group = 0

    def stop(self, patience: float) -> int | None:
        """Leave it running, because it was started elsewhere."""
        del patience
        return None

    def kill(self) -> None:
        """Leave it running, because it was started elsewhere."""

    def output(self) -> str:
        """Return an empty text: its output is elsewhere."""
        return ""

    def usage(self) -> Usage | None:
        """Return None: the process is not known."""
        return None


@dataclass(frozen=True, slots=True)
class SocketTarget:
    """A driver that runs already, found by its registration socket."""

    socket: Path

    @property
    def name(self) -> str:
        """Its name in reports."""
        return str(self.socket)

    @property
    def offers(self) -> frozenset[CheckNeed]:
        """Nothing: the bench can call it, but neither start nor stop it."""
        return frozenset()

    def start(self, places: Places, pod_uid: str = "") -> RunningInstance:
        """Return the driver that runs."""
        del places, pod_uid
        return RunningInstance()


def filled(text: str, words: Mapping[str, str]) -> str:
    """Return a word of a command with its placeholders replaced."""
    for name, value in words.items():
        text = text.replace(f"{{{name}}}", value)
    return text


def last_lines(log: Path, start: int) -> str:
    """Return the last lines of a log, of what was written after `start` bytes."""
    lines = read_end(log, 4_000, start).decode(errors="replace").splitlines()
    return "\n".join(lines[-20:])


def usage_of(pid: int) -> Usage | None:
    """Return the usage of a process, from /proc; None if it is gone."""
    place = Path(f"/proc/{pid}")
    try:
        status = (place / "status").read_text()
        fields = dict(line.split(":", 1) for line in status.splitlines() if ":" in line)
        memory = int(fields["VmRSS"].split()[0]) * 1024
        threads = int(fields["Threads"])
        return Usage(memory, len(list((place / "fd").iterdir())), threads)
    except (OSError, KeyError, ValueError):
        return None
