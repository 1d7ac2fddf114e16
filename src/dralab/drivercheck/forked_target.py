"""Drivers written with the SDK, as processes that are forked from one with all imports.

A Python process takes half a second to import what a driver needs, and a check of crashes starts
dozens of them. Each is still a process of its own, with signals and an exit code.
"""

import multiprocessing
import os
import signal
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from multiprocessing.process import BaseProcess
from pathlib import Path

from dralab.drivercheck.node_view import offered, show_boot_id
from dralab.drivercheck.rules import CheckNeed
from dralab.drivercheck.targets import PROCESS_NEEDS, Places, Usage, filled, last_lines, usage_of


@dataclass(frozen=True, slots=True)
class ForkedTarget:
    """A driver as a function of arguments, in which `{node}` and so on are replaced.

    `main` is a function of a module; `preloaded` are the modules that it imports.
    """

    main: Callable[[Sequence[str]], None]
    arguments: Sequence[str]
    preloaded: Sequence[str] = ()
    env: Mapping[str, str] = field(default_factory=dict)
    title: str = ""
    more: frozenset[CheckNeed] = frozenset()

    @property
    def name(self) -> str:
        """Its name in reports."""
        return self.title or " ".join(self.arguments)

    @property
    def offers(self) -> frozenset[CheckNeed]:
        """What checks may need: a driver of the SDK takes a pod UID."""
        return PROCESS_NEEDS | self.more | {CheckNeed.INSTANCES} | offered(clock=False)

    def start(self, places: Places, pod_uid: str = "") -> "ForkedInstance":
        """Start the driver in a session of its own."""
        words = places.words(pod_uid)
        own = {key: filled(value, words) for key, value in self.env.items()}
        log = places.root / "driver.log"
        log.touch()
        context = multiprocessing.get_context("forkserver")
        context.set_forkserver_preload(["__main__", *self.preloaded])
        process = context.Process(
            target=_run,
            args=(
                self.main,
                [filled(word, words) for word in self.arguments],
                places.variables(pod_uid) | own,
                str(log),
                places.boot_id,
            ),
            daemon=True,  # it ends with this process
        )
        process.start()
        return ForkedInstance(process, log)


class ForkedInstance:
    """A forked driver."""

    def __init__(self, process: BaseProcess, log: Path) -> None:
        self.process = process
        self.log = log
        self.start = log.stat().st_size

    @property
    def running(self) -> bool:
        """Whether it runs."""
        return self.process.exitcode is None

    @property
    def group(self) -> int:
        """Its process group: the new process leads a session."""
        return self.process.pid or 0

    def stop(self, patience: float) -> int | None:
        """Send SIGTERM; return the exit code, None where it runs on."""
        if self.process.pid is not None:
            with suppress(ProcessLookupError):
                os.kill(self.process.pid, signal.SIGTERM)
        self.process.join(patience)
        return self.process.exitcode

    def kill(self) -> None:
        """Send SIGKILL."""
        self.process.kill()
        self.process.join()

    def output(self) -> str:
        """Return the last lines that it wrote."""
        return last_lines(self.log, self.start)

    def usage(self) -> Usage | None:
        """Return its memory, descriptors and threads, from /proc."""
        return usage_of(self.process.pid or 0)


def _run(
    main: Callable[[Sequence[str]], None],
    arguments: Sequence[str],
    variables: Mapping[str, str],
    log: str,
    boot_id: Path,
) -> None:
    """Run the driver in the new process."""
    os.setsid()
    show_boot_id(boot_id)
    with open(log, "ab") as output:  # noqa: PTH123 - its descriptor is all that is needed
        os.dup2(output.fileno(), 1)
        os.dup2(output.fileno(), 2)
    os.environ.update(variables)
    main(arguments)
