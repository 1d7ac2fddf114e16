"""The termination message of a container.

Source: kubelet 1.36 (`getTerminationMessage`, and the limits in `pkg/kubelet/container`).
"""

from dataclasses import replace
from pathlib import Path
from typing import Final

from dralab.files.reading import read_end
from dralab.node.container_runs import MOST_TOLD, RunningContainer
from dralab.node.containers import ContainerExit

MOST_OF_POD: Final = 12 * 1024  # characters, shared by the containers of a pod
MOST_OF_LOG: Final = 2048  # bytes
MOST_LINES: Final = 80
DEFAULT_PATH: Final = "/dev/termination-log"


def read_message(path: Path) -> str:
    """Return the end of a container's termination message file; empty if missing."""
    try:
        return read_end(path, MOST_TOLD).decode(errors="replace")
    except OSError:
        return ""


def with_message(exit: ContainerExit, each: RunningContainer) -> ContainerExit:
    """Return an exit with the last lines of the log, if the container failed and asks for it."""
    wanted = each.spec.get("terminationMessagePolicy") == "FallbackToLogsOnError"
    if exit.message or exit.code == 0 or not wanted:
        return exit
    lines, _ = each.log.read()
    text = "\n".join(line for _, line in lines[-MOST_LINES:])
    text += "\n" if lines and not each.log.unfinished else ""
    return replace(exit, message=text.encode()[-MOST_OF_LOG:].decode(errors="ignore"))
