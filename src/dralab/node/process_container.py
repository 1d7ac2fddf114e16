"""One run of a container as a process, with the commands that run in it."""

import contextlib
import os
import signal
import subprocess
import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Final, Protocol

from dralab.kernel.clock import SECOND
from dralab.node.cgroups import ContainerGroup, ControlGroups
from dralab.node.container_volumes import (
    below,
    link_mounts,
    message_file,
    namespace_of,
)
from dralab.node.containers import (
    START_ERROR,
    ContainerExit,
    ContainerStart,
    ContainerStartError,
    ExecSession,
)
from dralab.node.cpu_lists import cpus_of
from dralab.node.exec_commands import CommandProcess, ProcessInput
from dralab.node.images import Mapped, in_folder
from dralab.node.mount_namespaces import NOT_STARTED, NodePaths, joining
from dralab.node.process_launch import (
    CommandLaunch,
    confined,
    environment_beside,
    inside,
    limits_of,
)
from dralab.node.termination_messages import read_message
from dralab.runtime.engine import Engine, TimerHandle
from dralab.values.json_types import JsonObject

# containerd: longer lines are cut into parts.
LONGEST_LINE: Final = 16 * 1024
# How long output may trail behind the end of a process (a child may still hold the pipe).
TRAILING: Final = 2.0
# Commands of a container whose clients are gone: each has a process and some threads.
MOST_UNATTENDED: Final = 32
MOST_COMMANDS: Final = 256  # of clients, in one container at a time


class ContainerHost(Protocol):
    """What a container needs of its runtime: `process_runtime.ProcessRuntime`."""

    engine: Engine
    groups: ControlGroups | None
    paths: Callable[[str], NodePaths] | None
    service: dict[str, str]

    def watch(self, group: int, *, there: bool = True) -> None:
        """Add or remove a process group that is killed if this process ends."""
        ...

    def forget_container(self, container: "ProcessContainer") -> None:
        """Forget a container that has ended."""
        ...


class ProcessContainer:
    """One run of a container."""

    real = True

    def __init__(
        self,
        runtime: ContainerHost,
        start: ContainerStart,
        program: Mapped,
        directory: Path,
        *,
        told: Mapping[str, str],
        ended: Callable[[ContainerExit], None],
    ) -> None:
        self.runtime, self.start, self.directory = runtime, start, directory
        self.sandbox = start.sandbox
        self._ended = ended
        self._killer: TimerHandle | None = None
        self._lock = threading.Lock()
        self._commands: set[CommandProcess] = set()
        self._beginning = 0
        self._killed = False
        self._over = threading.Event()
        self._env = {
            "HOME": str(directory),
            "TMPDIR": str(directory),
            **(runtime.service if runtime.paths is not None else {}),
            **start.config.env,
            # Last: what the pod says of places is true inside a container, which this is not. In a
            # mount namespace it is, and the server is found as in a cluster.
            **(told if runtime.paths is None else {}),
            "DRALAB_ROOT": str(directory),
        }
        self._folder = program.folder
        if program.folder:
            self._env["PATH"] = f"{program.folder}:{self._env.get('PATH', '')}".rstrip(":")
        self._cwd = below(directory, start.working_dir)
        self._launcher: Sequence[str] = ()
        self._group: ContainerGroup | None = None
        if runtime.paths is None:
            link_mounts(start, directory)
            self._cwd.mkdir(parents=True, exist_ok=True)
            with contextlib.suppress(OSError):
                message_file(start, directory, None).parent.mkdir(parents=True, exist_ok=True)
        else:
            self._cwd = directory
            if start.privileges.user:
                # Another user cannot go where the container's own directory is.
                self._env |= {"HOME": "/", "TMPDIR": "/tmp"}  # noqa: S108
            self._group = self._new_group()
            self._launcher = namespace_of(
                start,
                runtime.paths(start.node),
                directory,
                image=program.files,
                groups=self._group.launcher_settings() if self._group is not None else None,
            )
        self._launch = CommandLaunch(
            self._env.get("PATH", ""),
            self._cwd,
            environment_beside(self._env, directory / "environment.json"),
            limits_of(start.limits, memory=self._group is None),
        )
        self._cpus: Collection[int] = ()
        with contextlib.suppress(ValueError):  # what is not a list of CPUs confines nothing
            self._cpus = cpus_of(start.cpus)
        self._attached: list[Callable[[int, bytes], None]] = []
        ours, theirs = os.openpty() if start.tty else (None, None)
        given = subprocess.PIPE if start.stdin else subprocess.DEVNULL
        name = os.ttyname(theirs) if theirs is not None else ""
        env = self._env if theirs is None else {"TERM": "xterm", **self._env}
        try:
            with confined(self._cpus), inside(self.sandbox):
                self._process = subprocess.Popen(  # noqa: S603 - what the operator opted into
                    self._launch.words(program.argv, self._launcher, name),
                    cwd=self._cwd,
                    env=env,
                    stdin=given if theirs is None else theirs,
                    stdout=subprocess.PIPE if theirs is None else theirs,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,
                )
        except (OSError, ValueError, ContainerStartError) as error:
            self._forget_group()
            if ours is not None:
                os.close(ours)
            if isinstance(error, ContainerStartError):
                raise
            raise ContainerStartError(f'exec: "{program.argv[0]}": {error}') from error
        finally:
            if theirs is not None:
                os.close(theirs)
        self._terminal = ours
        self._input = ProcessInput(self._process.stdin, ours)
        runtime.watch(self._process.pid)

    def resize(self, resources: JsonObject) -> str:
        """Apply other resources; return "" or why that is impossible."""
        return self._group.apply(resources) if self._group is not None else ""

    def set_cpus(self, cpus: Collection[int]) -> str:
        """Restrict it and its future children to CPUs; "" or why that is impossible."""
        self._cpus = cpus
        try:
            os.sched_setaffinity(self._process.pid, cpus)
        except (OSError, AttributeError) as error:
            return f"not applied: this machine has no CPUs {sorted(cpus)}: {error}"
        return ""

    @property
    def pid(self) -> int:
        """The number of its first process."""
        return self._process.pid

    def groups(self) -> set[int]:
        """Return its sessions: its own, and those of the commands that run in it."""
        with self._lock:
            return {self._process.pid, *(each.group for each in self._commands)}

    def begin(self) -> None:
        """Collect its output and wait for its end."""
        reader = threading.Thread(target=self._read, name="container-log", daemon=True)
        reader.start()
        threading.Thread(
            target=self._await, args=(reader,), name="container-wait", daemon=True
        ).start()

    def stop(self, grace: float) -> None:
        """Send SIGTERM, and SIGKILL after `grace` seconds."""
        if grace <= 0:
            self.kill()
            return
        self.terminate()
        if self._killer is None:
            self._killer = self.runtime.engine.after(int(grace * SECOND), self.kill)

    def terminate(self) -> None:
        """Ask it to end."""
        self._signal(signal.SIGTERM)

    def kill(self) -> None:
        """End it and the commands in it now."""
        self._signal(signal.SIGKILL)

    def wait(self, seconds: float) -> bool:
        """Wait until it has ended, with a timeout; return whether it has."""
        return self._over.wait(seconds)

    def run(
        self,
        argv: Sequence[str],
        output: Callable[[int, bytes], None],
        session: ExecSession | None = None,
        timeout: float | None = None,
    ) -> int:
        """Run a command with its environment, directory and limits; ContainerStartError."""
        if self._over.is_set():
            raise ContainerStartError("the container is not running")
        with self._lock:
            # A client that has gone is not always noticed: what it sent waits to be read.
            known = len(self._commands) + self._beginning
            if session is not None and known >= MOST_COMMANDS:
                raise ContainerStartError(f"{MOST_COMMANDS} commands run in the container already")
            self._beginning += 1
        command = None
        session = session or ExecSession()
        terminal = None
        try:
            terminal = os.openpty() if session.tty else None
            launcher = joining(self._process.pid, self.directory) if self._launcher else ()
            if self._folder and argv:
                argv = [in_folder(self._folder, argv[0]), *argv[1:]]
            words = self._launch.words(argv, launcher, os.ttyname(terminal[1]) if terminal else "")
            with confined(self._cpus), inside(self.sandbox):
                command = CommandProcess(
                    words,
                    self._cwd,
                    self._env,
                    output,
                    session=session,
                    terminal=terminal,
                    left=self._left,
                )
        finally:
            if terminal is not None:
                os.close(terminal[1])
            with self._lock:
                self._beginning -= 1
                if command is not None:
                    self._commands.add(command)
                too_late = self._killed
        if too_late:
            command.kill()
        elif not command.is_attended:
            self._left(command)
        self.runtime.watch(command.group)
        try:
            return command.wait(timeout)
        finally:
            with self._lock:
                self._commands.discard(command)
            self.runtime.watch(command.group, there=False)

    def attach(
        self, output: Callable[[int, bytes], None], session: ExecSession
    ) -> Callable[[], None]:
        """Forward its output from now on, and a client's input; returns how to stop.

        The first client that leaves, or ends its input, ends that of the container where it
        is to be given once (containerd: StdinOnce, for what is no terminal).
        """
        once = self.start.stdin_once and not self.start.tty

        def take(data: bytes | None) -> None:
            if data is not None or once:
                self._input.take(data)

        def forget() -> None:
            with self._lock, contextlib.suppress(ValueError):
                self._attached.remove(output)

        with self._lock:
            self._attached.append(output)
        session.connect(take, self._input.resize, lambda: None)
        return forget

    def _left(self, command: CommandProcess) -> None:
        """Keep a command running whose client is gone, as a kubelet does; end it if too many."""
        with self._lock:
            if command not in self._commands or command.goes_on:
                return  # one that begins is judged once it counts
            others = sum(each.goes_on for each in self._commands)
            command.goes_on = others < MOST_UNATTENDED
        if not command.goes_on:
            command.kill()

    def _signal(self, number: signal.Signals) -> None:
        with self._lock:
            commands = list(self._commands) if number == signal.SIGKILL else []
            # A command that is started at this moment is ended when it is added.
            self._killed = self._killed or number == signal.SIGKILL
            # Asked under the lock: once it is waited for, the number may be another's.
            if self._process.returncode is None:
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.killpg(self._process.pid, number)
        for each in commands:
            each.kill()

    def _read(self) -> None:
        pipe, source = self._process.stdout, self._terminal
        if pipe is not None:
            source = pipe.fileno()
        if source is None:
            return
        clock, log = self.runtime.engine.clock, self.start.log
        rest = b""
        # A terminal whose other side is closed answers with EIO instead of an end.
        with contextlib.suppress(OSError, ValueError), pipe or contextlib.nullcontext():
            while data := os.read(source, LONGEST_LINE):
                with self._lock:
                    attached = list(self._attached)
                for output in attached:
                    output(1, data)
                *lines, rest = (rest + data).split(b"\n")
                for line in lines:
                    log.write(clock.now(), self._cut(line).decode(errors="replace"))
                rest = self._cut(rest)
        if rest:
            log.write(clock.now(), rest.decode(errors="replace"), whole=False)
        self._input.close()

    def _cut(self, line: bytes) -> bytes:
        """Write all but the last part of an overlong line; return that part."""
        clock, log = self.runtime.engine.clock, self.start.log
        while len(line) >= LONGEST_LINE:
            log.write(clock.now(), line[:LONGEST_LINE].decode(errors="replace"), whole=False)
            line = line[LONGEST_LINE:]
        return line

    def _await(self, reader: threading.Thread) -> None:
        pid = self._process.pid
        # Not collected yet: its number, which is also the group's, cannot be used again.
        os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
        # As in a container, nothing outlives the first process.
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(pid, signal.SIGKILL)
        self.runtime.watch(pid, there=False)
        with self._lock:
            code = self._process.wait()
            commands = list(self._commands)
            self._killed = True
        for each in commands:
            each.kill()
        reader.join(TRAILING)
        code = 128 - code if code < 0 else code
        reason = "Completed" if code == 0 else "Error"
        if code and self._group is not None and self._group.was_out_of_memory():
            reason = "OOMKilled"
        self._forget_group()
        self.start.log.end()
        said = read_message(message_file(self.start, self.directory, self.runtime.paths))
        if self._launcher and (why := read_message(self.directory / NOT_STARTED)):
            code, reason, said = START_ERROR.code, START_ERROR.reason, why
        self.runtime.forget_container(self)
        self._over.set()
        found = ContainerExit(code, reason, said)
        self.runtime.engine.soon(lambda: self._tell(found))

    def _tell(self, found: ContainerExit) -> None:
        if self._killer is not None:
            self._killer.cancel()
        self._ended(found)

    def _new_group(self) -> ContainerGroup | None:
        if self.runtime.groups is None:
            return None
        try:
            group = self.runtime.groups.create(self.start.pod_uid, self.start.name)
        except OSError as error:
            raise ContainerStartError(f"no control group: {error}") from error
        if problem := group.apply(self.start.resources):
            group.remove()
            raise ContainerStartError(problem)
        return group

    def _forget_group(self) -> None:
        if self._group is not None:
            self._group.remove()
