"""Cleans up after a killed server: a separate process that waits for its end.

It reads lines from its standard input, which closes when the server ends in any way: `+GROUP` and
`-GROUP` are process groups, `=DIRECTORY` is a directory and `&DIRECTORY` one of the kernel's for a
control group. Then it kills the processes that are left, those that have left their group as well,
and removes the directories. It imports nothing from dralab, so that it starts at once.
"""

import contextlib
import os
import shutil
import signal
import sys
import time
from collections.abc import Iterable

TRIES = 50  # times that a control group is tried to be removed
BETWEEN = 0.01  # seconds
VARIABLE = b"DRALAB_ROOT="
"""In the environment of every process of a container: below which directory it runs."""


def guard(lines: Iterable[str]) -> None:
    """Read lines until the end; then end what they name."""
    groups: set[int] = set()
    directories: list[str] = []
    controls: list[str] = []
    for line in lines:
        kind, what = line[:1], line[1:].rstrip("\n")
        if kind == "+":
            groups.add(int(what))
        elif kind == "-":
            groups.discard(int(what))
        else:
            (directories if kind == "=" else controls).append(what)
    for group in groups:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(group, signal.SIGKILL)
    for _ in range(TRIES):
        if all(list(map(removed, controls))) and not _killed_below(directories):
            break
        time.sleep(BETWEEN)
    for each in directories:
        shutil.rmtree(each, ignore_errors=True)


def removed(control_group: "str | os.PathLike[str]") -> bool:
    """Kill the processes of a control group and of those below, and remove it; False: not yet."""
    try:
        with os.scandir(control_group) as entries:
            below = [entry.path for entry in entries if entry.is_dir(follow_symlinks=False)]
        for each in below:
            removed(each)
        for pid in pids(control_group):
            _kill(pid)
        os.rmdir(control_group)
    except FileNotFoundError:
        return True
    except OSError:
        return False
    return True


def pids(control_group: "str | os.PathLike[str]") -> "list[int]":
    """Return the processes of a control group that can be seen from here."""
    try:
        with open(os.path.join(control_group, "cgroup.procs"), encoding="ascii") as file:
            # Those of other PID namespaces are shown as 0, which would be this process's own group.
            return [pid for each in file.read().split() if (pid := int(each)) > 0]
    except OSError:
        return []


def _killed_below(directories: "list[str]") -> bool:
    """Kill processes that began below directories; return whether there were any."""
    marks = [VARIABLE + os.fsencode(each) + b"/" for each in directories]
    found = False
    for name in os.listdir("/proc") if marks and os.path.isdir("/proc") else ():
        if name.isdigit():
            try:
                with open(f"/proc/{name}/environ", "rb") as file:
                    variables = file.read().split(b"\0")
            except OSError:
                continue
            if any(each.startswith(mark) for each in variables for mark in marks):
                found = True
                _kill(int(name))
    return found


def _kill(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.kill(pid, signal.SIGKILL)


if __name__ == "__main__":
    for each in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(each, signal.SIG_IGN)
    guard(sys.stdin)
