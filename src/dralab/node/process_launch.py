"""How a container's process is launched: its command line, limits, CPUs and namespaces.

A shell sets the limits and becomes the command: `preexec_fn` is not safe beside threads.
"""

import contextlib
import os
import re
import shutil
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

import orjson

from dralab.node.containers import (
    ContainerStartError,
    ProgramNotFound,
)
from dralab.node.mount_namespaces import with_environment
from dralab.node.network.sandbox import Sandbox
from dralab.values import quantity
from dralab.values.records import dataclass

NAME_OF_SHELL: Final = re.compile("[A-Za-z_][A-Za-z0-9_]*")
LAUNCH: Final = ("/bin/sh", "-c", '{limits}exec "$@"', "sh")


@dataclass(frozen=True, slots=True)
class CommandLaunch:
    """What the commands of a container are launched with.

    `added` sets the variables that a shell would drop; `limits` are words of the shell.
    """

    path: str
    directory: Path
    added: Sequence[str]
    limits: str

    def words(
        self, argv: Sequence[str], launcher: Sequence[str] = (), terminal: str = ""
    ) -> list[str]:
        """Return the command line of a command. ProgramNotFound."""
        name = argv[0] if argv else ""
        if launcher:
            known: str | None = name  # it may be in what is mounted: the launcher looks
        elif "/" in name and not name.startswith("/"):
            known = shutil.which(str(self.directory / name))
        else:
            known = shutil.which(name, path=self.path)
        if known is None:
            where = (
                "no such program" if "/" in name else f"executable file not found in {self.path}"
            )
            raise ProgramNotFound(f'exec: "{name}": {where}')
        prepare = self.limits
        if terminal:
            # The leader of a session that opens a terminal controls it.
            prepare += f"exec <{terminal} >{terminal} 2>&1; "
        shell, flag, script, zero = LAUNCH
        return [shell, flag, script.format(limits=prepare), zero, *self.added, *launcher, *argv]


@contextlib.contextmanager
def confined(cpus: Collection[int]) -> Iterator[None]:
    """Restrict this thread, and the processes that it starts, to some CPUs.

    CPUs that this machine does not have confine nothing.
    """
    if not cpus or not hasattr(os, "sched_setaffinity"):
        yield
        return
    before = os.sched_getaffinity(0)
    with contextlib.suppress(OSError):
        os.sched_setaffinity(0, cpus)
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


@contextlib.contextmanager
def inside(sandbox: Sandbox) -> Iterator[None]:
    """Start this thread's processes in a pod's namespaces. ContainerStartError."""
    with contextlib.ExitStack() as back:
        if sandbox.namespaces is not None:
            try:
                back.enter_context(sandbox.namespaces.entered())
            except OSError as error:
                raise ContainerStartError(f"no namespace: {error.strerror}") from error
        yield


def environment_beside(env: Mapping[str, str], file: Path) -> list[str]:
    """Return the command prefix that sets variables that a shell would drop.

    Kubernetes allows names such as `data-1`, of which shells know nothing.
    """
    dropped = {name: value for name, value in env.items() if not NAME_OF_SHELL.fullmatch(name)}
    if not dropped:
        return []
    file.write_bytes(orjson.dumps(dropped))
    return with_environment(file)


def limits_of(limits: Mapping[str, str], *, memory: bool = True) -> str:
    """Return the shell's words for a container's limits; they hold for each process alone.

    Without `memory` that is limited elsewhere.

    >>> limits_of({"memory": "64Mi", "cpu": "1"})
    'ulimit -c 0; ulimit -d 65536; '
    """
    text = "ulimit -c 0; "
    # Data, not address space: run times reserve far more of the latter than they use.
    for name, flag, unit in (("memory", "d", 1024), ("ephemeral-storage", "f", 512)):
        if name in limits and (memory or name != "memory"):
            amount = int(quantity.parse(str(limits[name]))) // unit
            text += f"ulimit -{flag} {max(1, amount)}; "
    return text
