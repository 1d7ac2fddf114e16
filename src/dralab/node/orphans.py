"""Ends processes with this process, even if it is killed: by the script `orphan_guard`."""

import contextlib
import subprocess
import sys
import threading
from collections.abc import Iterable
from pathlib import Path
from typing import Final

SCRIPT: Final = Path(__file__).with_name("orphan_guard.py")


class OrphanGuard:
    """Kills registered processes and removes registered directories if this process vanishes.

    The guard is a separate process, which starts with the first of them. Any thread may call.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._process: subprocess.Popen[str] | None = None
        self._closed = False

    def watch(self, group: int, *, there: bool = True) -> None:
        """Add or remove a process group."""
        self._tell(f"{'+' if there else '-'}{group}", begin=there)

    def cover(self, directories: Iterable[Path] = (), *, controls: Iterable[Path] = ()) -> None:
        """Add directories, with the processes that run below them, and control groups."""
        for each in directories:
            self._tell(f"={each}")
        for each in controls:
            self._tell(f"&{each}")

    def close(self) -> None:
        """End the guard, which ends what is left."""
        with self._lock:
            process, self._process = self._process, None
            self._closed = True
        if process is not None:
            with contextlib.suppress(OSError):
                if process.stdin is not None:
                    process.stdin.close()
            process.wait()

    def _tell(self, line: str, *, begin: bool = True) -> None:
        with self._lock:
            if self._process is None:
                if not begin or self._closed:
                    return
                self._process = subprocess.Popen(  # noqa: S603 - our own file
                    [sys.executable, "-I", "-S", str(SCRIPT)],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.DEVNULL,
                    start_new_session=True,
                    text=True,
                )
            with contextlib.suppress(OSError):  # the guard itself was killed
                if self._process.stdin is not None:
                    self._process.stdin.write(f"{line}\n")
                    self._process.stdin.flush()
