"""Additional commands in a container, `kubectl exec` and probes; and the input of processes."""

import contextlib
import fcntl
import os
import signal
import struct
import subprocess
import termios
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import IO

from dralab.node.containers import ContainerStartError, ExecSession

Output = Callable[[int, bytes], None]
TIMED_OUT = 124


class ProcessInput:
    """The input of a process, by a pipe or a terminal (our side); thread-safe."""

    def __init__(self, pipe: IO[bytes] | None, terminal: int | None) -> None:
        self._pipe, self._terminal = pipe, terminal
        self._writing = threading.Lock()  # held while the process does not read
        self._sizing = threading.Lock()

    def take(self, data: bytes | None) -> None:
        """Take input; None ends it."""
        with self._writing, contextlib.suppress(OSError, ValueError):
            if self._terminal is not None:
                os.write(self._terminal, data if data is not None else b"\x04")
            elif self._pipe is not None:
                if data is None:
                    self._pipe.close()
                else:
                    self._pipe.write(data)
                    self._pipe.flush()

    def resize(self, width: int, height: int) -> None:
        """Set the size of the terminal."""
        with self._sizing, contextlib.suppress(OSError):
            if self._terminal is not None:
                size = struct.pack("HHHH", height, width, 0, 0)
                fcntl.ioctl(self._terminal, termios.TIOCSWINSZ, size)

    def close(self) -> None:
        """Close it: the process is over."""
        with self._writing, self._sizing, contextlib.suppress(OSError, ValueError):
            if self._terminal is not None:
                os.close(self._terminal)
                self._terminal = None
            if self._pipe is not None:
                self._pipe.close()


class CommandProcess:
    """One command as its own process group; `terminal` is (ours, its).

    It goes on where its client leaves; `left` is called then.
    """

    def __init__(
        self,
        words: Sequence[str],
        cwd: Path,
        env: Mapping[str, str],
        output: Output,
        *,
        session: ExecSession,
        terminal: tuple[int, int] | None,
        left: "Callable[[CommandProcess], None]" = lambda _command: None,
    ) -> None:
        self._output = output
        self.is_attended = True
        self.goes_on = False  # without its client, which is gone
        self._handing = 0  # chunks that a reader of the output has not taken yet
        pipe = subprocess.PIPE
        theirs = terminal[1] if terminal is not None else None
        given = pipe if session.stdin else subprocess.DEVNULL
        if terminal is not None:
            env = {"TERM": "xterm", **env}
        try:
            self._process = subprocess.Popen(  # noqa: S603 - what the operator opted into
                words,
                cwd=cwd,
                env={**env, "TERM": env.get("TERM", "xterm")} if terminal else dict(env),
                stdin=given if theirs is None else theirs,
                stdout=theirs if theirs is not None else pipe,
                stderr=theirs if theirs is not None else pipe,
                start_new_session=True,
            )
        except (OSError, ValueError) as error:
            if terminal is not None:
                os.close(terminal[0])
            raise ContainerStartError(f"exec: {error}") from error
        ours = terminal[0] if terminal is not None else None
        self._input = ProcessInput(self._process.stdin, ours)
        sources = [
            (channel, stream.fileno())
            for channel, stream in ((1, self._process.stdout), (2, self._process.stderr))
            if stream is not None
        ]
        if ours is not None:
            sources = [(1, ours)]
        self._readers = [
            threading.Thread(target=self._read, args=source, daemon=True) for source in sources
        ]
        for reader in self._readers:
            reader.start()

        def leave() -> None:
            self.is_attended = False
            left(self)

        session.connect(self._input.take, self._input.resize, leave)

    @property
    def group(self) -> int:
        """Its process group."""
        return self._process.pid

    def wait(self, timeout: float | None = None) -> int:
        """Wait for its end; return its exit code, 124 where it took longer than `timeout` s."""
        code = TIMED_OUT
        with contextlib.suppress(subprocess.TimeoutExpired):
            found = self._process.wait(timeout)
            code = 128 - found if found < 0 else found
        if code == TIMED_OUT:
            self.kill()
            self._process.wait()
        for reader in self._readers:
            # A child in the background may hold the pipe; `kubectl exec` does not wait for it.
            reader.join(1)
            while reader.is_alive() and self._handing:
                reader.join(0.1)
        for stream in (self._process.stdout, self._process.stderr):
            if stream is not None and not any(each.is_alive() for each in self._readers):
                with contextlib.suppress(OSError):
                    stream.close()
        self._input.close()
        return code

    def kill(self) -> None:
        """End it now."""
        if self._process.returncode is None:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self._process.pid, signal.SIGKILL)

    def _read(self, channel: int, descriptor: int) -> None:
        # A terminal whose other side is closed answers with EIO instead of an end.
        with contextlib.suppress(OSError):
            while data := os.read(descriptor, 32 * 1024):
                self._handing += 1
                try:
                    self._output(channel, data)
                finally:
                    self._handing -= 1
