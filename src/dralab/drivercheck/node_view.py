"""Shows a driver another boot id or another clock than the machine's.

A bench can't reboot the machine or set its clock. It shows the driver another boot id, by a mount
in a namespace of the driver's own, and another time, by a virtual clock (`dralab.virtualtime`).
"""

import sys
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Final

from dralab.drivercheck.rules import CheckNeed
from dralab.kernel.clock import WallClock, rfc3339
from dralab.node.mount_launcher import bind_over
from dralab.node.mount_namespaces import binding, problem

BOOT_ID: Final = Path("/proc/sys/kernel/random/boot_id")


def command_with(command: Sequence[str], boot_id: Path, clock_offset: int) -> list[str]:
    """Return a command that runs with another boot id, and a clock that is off by nanoseconds."""
    found = list(command)
    if boot_id != BOOT_ID:
        found = [*binding(boot_id, BOOT_ID), *found]
    if clock_offset:
        start = rfc3339(WallClock().now() + clock_offset)
        clock = ["simulate", "program", "--start", start, "--speed", "1x", "--network", "--"]
        found = [sys.executable, "-m", "dralab", *clock, *found]
    return found


def show_boot_id(boot_id: Path) -> None:
    """Let this process, which has one thread, see another boot id from now on. OSError."""
    if boot_id != BOOT_ID:
        bind_over(str(boot_id), str(BOOT_ID))


@cache
def offered(*, clock: bool = True) -> frozenset[CheckNeed]:
    """Return which of the two this machine supports."""
    found = set()
    if not problem():
        found.add(CheckNeed.BOOT_ID)
    if clock and _has_virtual_clock():
        found.add(CheckNeed.CLOCK)
    return frozenset(found)


def _has_virtual_clock() -> bool:
    from dralab.virtualtime import ClockUnavailableError, Supervisor

    try:
        with Supervisor(start=WallClock().now()):
            return True
    except ClockUnavailableError:
        return False
