"""The processes of external schedulers: start, watch, stop."""

import base64
import os
import signal
import subprocess
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Protocol

from dralab.api.yaml_documents import single
from dralab.cluster import Cluster
from dralab.files.reading import read_end
from dralab.kernel.clock import SECOND, WallClock
from dralab.node.orphans import OrphanGuard
from dralab.scenarios.errors import DecisionError
from dralab.virtualtime import ProgramStartError

GRACE: Final = 10.0
RUNNABLE: Final = ("R", "D")
LAST_OUTPUT: Final = 800  # bytes
LOOK: Final = 0.005  # seconds between looks whether one has ended

CONFIGURATION: Final = """apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
leaderElection:
  leaderElect: false
clientConnection:
  kubeconfig: {kubeconfig}
  contentType: application/json
  qps: 10000
  burst: 10000
profiles:
- schedulerName: {name}
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class SchedulerCommand:
    """How to start the scheduler that answers to a name (`spec.schedulerName`).

    In the words `{kubeconfig}`, `{server}`, `{port}`, `{config}` (a KubeSchedulerConfiguration
    without leader election) and `{serviceaccount}` (a folder with token, ca.crt and namespace) are
    replaced. The environment has KUBECONFIG and SERVER (host and port), and where the server asks
    for a token KUBERNETES_SERVICE_HOST and KUBERNETES_SERVICE_PORT.
    """

    name: str
    words: Sequence[str]


class Process(Protocol):
    """A process that leads a group of its own."""

    @property
    def pid(self) -> int:
        """Its number."""
        ...

    def poll(self) -> int | None:
        """Return its exit code, as subprocess has it; None while it runs."""
        ...


class Launcher(Protocol):
    """Starts processes: in real time, or under a clock."""

    def start(
        self, words: Sequence[str], environment: Mapping[str, str], folder: Path, log: int
    ) -> Process:
        """Start one; OSError or ProgramStartError if that can't be done."""
        ...

    def wait(self, processes: Sequence[Process], seconds: float) -> bool:
        """Wait until all have ended; False after so many real seconds."""
        ...

    def kill(self, process: Process) -> None:
        """End one at once, and wait for it."""
        ...


class RealTimeLauncher:
    """Starts processes that run in real time."""

    def start(
        self, words: Sequence[str], environment: Mapping[str, str], folder: Path, log: int
    ) -> Process:
        """Start one; OSError if that can't be done."""
        return subprocess.Popen(  # noqa: S603 - the scheduler that the user names
            words,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            env=environment,
            cwd=folder,
            # Ctrl-C is for us: we end it, when what it decided has been taken in.
            start_new_session=True,
        )

    def wait(self, processes: Sequence[Process], seconds: float) -> bool:
        """Wait until all have ended; False after so many seconds."""
        clock, pause = WallClock(), threading.Event()
        end = clock.now() + seconds * SECOND
        while any(one.poll() is None for one in processes):
            if clock.now() > end:
                return False
            pause.wait(LOOK)
        return True

    def kill(self, process: Process) -> None:
        """End one at once, and wait for it."""
        _signal(process, signal.SIGKILL)
        self.wait([process], GRACE)


@dataclass(slots=True)
class SchedulerProcess:
    """A process and where it writes."""

    command: SchedulerCommand
    process: Process
    log: Path

    def last_output(self) -> str:
        """Return the end of its output."""
        return read_end(self.log, LAST_OUTPUT).decode(errors="replace").strip() or "none"


@dataclass(slots=True)
class SchedulerProcesses:
    """All schedulers; without a command they are started by hand, and unknown here."""

    commands: Sequence[SchedulerCommand]
    folder: Path
    cluster: Cluster
    launcher: Launcher
    running: list[SchedulerProcess] = field(default_factory=list)
    orphans: OrphanGuard = field(default_factory=OrphanGuard)  # they end with us, killed or not

    def start(self, command: SchedulerCommand) -> SchedulerProcess:
        """Start one; DecisionError if that cannot be done."""
        place = self.cluster.kubeconfig.parent
        values = self._values(place, command.name)
        try:
            words = [word.format(**values) for word in command.words]
        except (KeyError, IndexError, ValueError) as error:
            known = ", ".join(f"{{{name}}}" for name in sorted(values))
            raise DecisionError(
                f"external.command: {error} is unknown; known: {known}", scheduler=command.name
            ) from None
        log = place / f"{command.name}.log"
        with log.open("ab") as file:
            try:
                process = self.launcher.start(
                    words, self._environment(values), self.folder, file.fileno()
                )
            except (OSError, ProgramStartError) as error:
                problem = error.reason if isinstance(error, ProgramStartError) else error.strerror
                raise DecisionError(
                    f"cannot be started: {problem}: {words[0]}", scheduler=command.name
                ) from None
        self.orphans.watch(process.pid)
        return SchedulerProcess(command, process, log)

    def _environment(self, values: Mapping[str, str]) -> Mapping[str, str]:
        server = values["server"].split("://", 1)[1]
        found = {k: v for k, v in os.environ.items() if not k.startswith("KUBERNETES_SERVICE_")}
        found |= {"KUBECONFIG": values["kubeconfig"], "SERVER": server}
        if self.cluster.token:
            # What a pod finds of its cluster: a program that sees this expects TLS and a token.
            host, _, port = server.rpartition(":")
            found |= {"KUBERNETES_SERVICE_HOST": host.strip("[]"), "KUBERNETES_SERVICE_PORT": port}
        return found

    def _values(self, place: Path, name: str) -> Mapping[str, str]:
        configuration = place / f"{name}.yaml"
        text = CONFIGURATION.format(kubeconfig=self.cluster.kubeconfig, name=name)
        configuration.write_text(text, encoding="utf-8")
        return {
            "kubeconfig": str(self.cluster.kubeconfig),
            "server": self.cluster.url,
            "config": str(configuration),
            "port": self.cluster.url.rsplit(":", 1)[-1],
            "serviceaccount": str(self._service_account(place)),
        }

    def _service_account(self, place: Path) -> Path:
        """Write the service account files of a pod; without TLS only the namespace."""
        folder = place / "serviceaccount"
        folder.mkdir(exist_ok=True)
        (folder / "namespace").write_text("default", encoding="utf-8")
        if self.cluster.token:
            described = single(self.cluster.kubeconfig.read_text(encoding="utf-8"))
            ca = described["clusters"][0]["cluster"]["certificate-authority-data"]
            (folder / "ca.crt").write_bytes(base64.b64decode(ca))
            token = folder / "token"
            token.touch(mode=0o600)
            token.write_text(self.cluster.token, encoding="utf-8")
        return folder

    def trouble(self) -> str:
        """Return how a scheduler ended by itself; empty if all run."""
        for one in self.running:
            if (code := one.process.poll()) is not None:
                how = f"by signal {-code}" if code < 0 else f"with exit code {code}"
                words = one.last_output()
                return f"{one.command.name} ended {how}; last output: {words}"
        return ""

    def at_work(self) -> bool:
        """Whether some thread of the schedulers is runnable: then none is silent.

        Known where there is a /proc (Linux); elsewhere the answer is no.
        """
        waiting = [one.process.pid for one in self.running]
        while waiting:
            for task in _tasks(waiting.pop()):
                # After the name, which may hold anything in its brackets, comes the state.
                if _read(task / "stat").rpartition(") ")[2][:1] in RUNNABLE:
                    return True
                waiting += map(int, _read(task / "children").split())
        return False

    def revive(self) -> int:
        """Restart schedulers that have ended; return how many."""
        ended = [one for one in self.running if one.process.poll() is not None]
        for one in ended:
            self.orphans.watch(one.process.pid, there=False)
            self.running[self.running.index(one)] = self.start(one.command)
        return len(ended)

    def stop(self) -> None:
        """End them and their children with SIGTERM, then with SIGKILL."""
        processes = [one.process for one in self.running]
        for process in processes:
            _signal(process, signal.SIGTERM)
        if not self.launcher.wait(processes, GRACE):
            for process in processes:
                self.launcher.kill(process)
        self.orphans.close()


@contextmanager
def started(
    commands: Sequence[SchedulerCommand], folder: Path, cluster: Cluster, launcher: Launcher
) -> Iterator[SchedulerProcesses]:
    """Run the schedulers inside; a DecisionError gets their last output."""
    found = SchedulerProcesses(commands, folder, cluster, launcher)
    try:
        for command in commands:
            found.running.append(found.start(command))
        yield found
    except DecisionError as error:
        if not found.running or "last output" in error.problem:
            raise
        told = "; ".join(f"{one.command.name}: {one.last_output()}" for one in found.running)
        words = f"{error.problem}; last output: {told}"
        raise DecisionError(words, scheduler=error.file) from None
    finally:
        found.stop()


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""  # it has just ended


def _tasks(pid: int) -> list[Path]:
    try:
        return list(Path(f"/proc/{pid}/task").iterdir())
    except OSError:
        return []


def _signal(process: Process, number: signal.Signals) -> None:
    """Signal the process group of a running process."""
    if process.poll() is None:
        try:
            os.killpg(process.pid, number)
        except ProcessLookupError:
            os.kill(process.pid, number)
