"""Process groups that end with this process, even if it is killed: by the script `orphan_guard`."""

import contextlib
import subprocess
import sys
import threading
from pathlib import Path
from typing import Final

SCRIPT: Final = Path(__file__).with_name("orphan_guard.py")


class OrphanGuard:
    """Kills the groups it was told of, and removes a directory, if this process vanishes.

    The guard is a separate process, which starts with the first group. Any thread may call.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._process: subprocess.Popen[str] | None = None
        self._closed = False

    def watch(self, group: int, directory: Path | None, *, there: bool = True) -> None:
        """Add or remove a process group; the first call says which directory is removed."""
        with self._lock:
            if self._process is None:
                if not there or self._closed:
                    return
                self._process = subprocess.Popen(  # noqa: S603 - our own file
                    [
                        sys.executable,
                        "-I",
                        "-S",
                        str(SCRIPT),
                        *([str(directory)] if directory else []),
                    ],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.DEVNULL,
                    start_new_session=True,
                    text=True,
                )
            with contextlib.suppress(OSError):  # the guard itself was killed
                if self._process.stdin is not None:
                    self._process.stdin.write(f"{'+' if there else '-'}{group}\n")
                    self._process.stdin.flush()

    def close(self) -> None:
        """End the guard, which kills the groups that are left."""
        with self._lock:
            process, self._process = self._process, None
            self._closed = True
        if process is not None:
            with contextlib.suppress(OSError):
                if process.stdin is not None:
                    process.stdin.close()
            process.wait()
