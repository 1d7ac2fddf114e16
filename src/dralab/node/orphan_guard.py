"""Kills processes whose server has died: a separate process that only waits for that.

It reads `+GROUP` and `-GROUP` from its standard input, which closes when the server ends in any
way. Then it kills the remaining groups and removes the directory that it was given, if any. It
imports nothing from dralab, so that it starts at once.
"""

import contextlib
import os
import shutil
import signal
import sys
from collections.abc import Iterable


def watch(lines: Iterable[str]) -> None:
    """Kill the process groups that are left when the lines end."""
    groups: set[int] = set()
    for line in lines:
        group = int(line[1:])
        if line.startswith("+"):
            groups.add(group)
        else:
            groups.discard(group)
    for group in groups:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(group, signal.SIGKILL)


if __name__ == "__main__":
    for each in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(each, signal.SIG_IGN)
    watch(sys.stdin)
    for directory in sys.argv[1:]:
        shutil.rmtree(directory, ignore_errors=True)
