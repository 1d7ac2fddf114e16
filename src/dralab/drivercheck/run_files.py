"""What a run leaves on the machine, and how it goes: a directory, and the drivers' processes."""

import itertools
import shutil
import tempfile
from pathlib import Path
from typing import Self

from dralab.drivercheck.targets import RunningDriver
from dralab.node.orphans import OrphanGuard


class RunFiles:
    """The directory and the processes of a run; they go with this process, even if it is killed.

    Use it as a context. Any thread may call.
    """

    def __init__(self) -> None:
        self._orphans = OrphanGuard()
        self._numbers = itertools.count()

    def __enter__(self) -> Self:
        self._directory = Path(tempfile.mkdtemp(prefix="dc-"))
        self._orphans.cover([self._directory])
        return self

    def __exit__(self, *_: object) -> None:
        self._orphans.close()
        shutil.rmtree(self._directory, ignore_errors=True)

    def directory(self) -> Path:
        """Create a directory for one bench. Its path is short: sockets are in it."""
        found = self._directory / str(next(self._numbers))
        found.mkdir()
        return found

    def started(self, driver: RunningDriver) -> None:
        """Note a process that has to end with this one."""
        if driver.group:
            self._orphans.watch(driver.group)

    def ended(self, driver: RunningDriver) -> None:
        """Note that a process has ended: its number may soon be another's."""
        if driver.group:
            self._orphans.watch(driver.group, there=False)
