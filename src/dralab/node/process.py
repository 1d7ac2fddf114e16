"""Containers as processes of this machine. Only where the operator asked for it.

The container's command runs in a process group of its own, with its environment and nothing of
this process's; images become commands by a map. There is no isolation: whoever may create pods
may run commands as the user of this process.
"""

import contextlib
import os
import resource
import shutil
import signal
import subprocess
import tempfile
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final

from dralab.kernel.clock import SECOND
from dralab.node.containers import Container, ContainerStart, Exit, StartError
from dralab.runtime.engine import Engine, Timer
from dralab.values import quantity

EXEC_SECONDS: Final = 300


class ProcessRuntime:
    """Runs containers as local processes. `images` maps an image to the command that stands for it.

    A value may use `{root}`: the directory of this runtime, where pods have theirs.
    """

    name = "dralab-process"
    version = "1.0.0"

    def __init__(
        self, engine: Engine, images: Mapping[str, str] | None = None, root: Path | None = None
    ) -> None:
        self.engine = engine
        self.images = dict(images or {})
        self._own = root is None
        self.root = root or Path(tempfile.mkdtemp(prefix="dralab-pods-"))

    def close(self) -> None:
        """Remove the pods' directories."""
        if self._own:
            shutil.rmtree(self.root, ignore_errors=True)

    def start(self, start: ContainerStart, ended: Callable[[Exit], None]) -> Container:
        """Start a process. StartError: there is no such command."""
        return ProcessContainer(self, start, ended)

    def argv(self, start: ContainerStart) -> list[str]:
        """Return what is run for a container. StartError: nobody says."""
        mapped = self.images.get(start.image) or self.images.get(start.image.rpartition(":")[0])
        words = [word.replace("{root}", str(self.root)) for word in (mapped or "").split()]
        if start.argv:
            program = start.argv[0].rpartition("/")[2]
            if words and words[0].rpartition("/")[2] == program:
                return [*words, *start.argv[1:]]
            return list(start.argv)
        if not words:
            raise StartError(
                f'the container has no command, and image "{start.image}" is mapped to none: '
                f"--image {start.image}=COMMAND"
            )
        return words


class ProcessContainer:
    """One process group."""

    real = True

    def __init__(
        self, runtime: ProcessRuntime, start: ContainerStart, ended: Callable[[Exit], None]
    ) -> None:
        self.engine = runtime.engine
        self.start = start
        self._ended = ended
        self._killer: Timer | None = None
        self._directory = runtime.root / start.pod_uid / start.name
        self._directory.mkdir(parents=True, exist_ok=True)
        self.env = {
            "PATH": os.environ.get("PATH", "/usr/bin:/bin"),
            "HOME": str(self._directory),
            **{key: value for key, value in start.config.env.items() if key != "PATH"},
        }
        memory = start.limits.get("memory")
        limit = int(quantity.parse(memory)) if memory else None
        argv = runtime.argv(start)
        try:
            self._process = subprocess.Popen(  # noqa: S603 - the operator asked for processes
                argv,
                cwd=self._cwd(),
                env=self.env,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                preexec_fn=(lambda: _limit(limit)) if limit else None,  # noqa: PLW1509 - only setrlimit
            )
        except OSError as error:
            why = (error.strerror or str(error)).lower()
            raise StartError(f'cannot run "{argv[0]}": {why}') from error
        threading.Thread(target=self._read, name=f"log-{start.name}", daemon=True).start()

    def stop(self, grace: float) -> None:
        """Send TERM, and KILL to the whole group after the grace period."""
        if self._process.poll() is None:
            self._signal(signal.SIGTERM)
        if self._killer is None:
            self._killer = self.engine.after(
                int(max(grace, 0) * SECOND), lambda: self._signal(signal.SIGKILL)
            )

    def run(self, argv: Sequence[str], output: Callable[[int, bytes], None]) -> int:
        """Run a command with the container's environment. StartError."""
        if self._process.poll() is not None:
            raise StartError("the container does not run")
        try:
            done = subprocess.run(  # noqa: S603 - the operator asked for processes
                list(argv),
                cwd=self._cwd(),
                env=self.env,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                timeout=EXEC_SECONDS,
                check=False,
            )
        except OSError as error:
            raise StartError(
                f'exec: "{argv[0]}": {(error.strerror or "failed").lower()}'
            ) from error
        except subprocess.TimeoutExpired:
            return 124
        for channel, data in ((1, done.stdout), (2, done.stderr)):
            if data:
                output(channel, data)
        return done.returncode if done.returncode >= 0 else 128 - done.returncode

    def _cwd(self) -> str:
        there = self.start.working_dir
        return there if there and Path(there).is_dir() else str(self._directory)

    def _signal(self, number: int) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, number)

    def _read(self) -> None:
        assert self._process.stdout is not None  # noqa: S101 - PIPE was asked for
        clock = self.engine.clock
        with self._process.stdout as stream:
            for raw in stream:
                self.start.log.write(clock.now(), raw.decode(errors="replace").rstrip("\n"))
        code = self._process.wait()
        # What the command left running in its group ends with it.
        self._signal(signal.SIGKILL)
        self.start.log.end()
        code = code if code >= 0 else 128 - code
        exit_ = Exit(code, "Completed" if code == 0 else "Error")
        self.engine.soon(lambda: self._over(exit_))

    def _over(self, exit_: Exit) -> None:
        if self._killer is not None:
            self._killer.cancel()
        self._ended(exit_)


def _limit(size: int) -> None:
    resource.setrlimit(resource.RLIMIT_AS, (size, size))
