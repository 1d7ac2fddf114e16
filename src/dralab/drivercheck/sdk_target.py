"""A driver written with the SDK, in this process: for tests that take milliseconds.

It can be killed like a process: afterwards, its threads end with `Killed` at their next write.
"""

import contextlib
import socket
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from dralab.contracts.cdi import CdiSpec
from dralab.contracts.cdi_cache import FileDirectory
from dralab.contracts.wire import SocketError
from dralab.drivercheck.rules import CheckNeed
from dralab.drivercheck.targets import Places, TargetError, Usage
from dralab.drivers.checkpoint import CheckpointedClaim, DriverFileCheckpoint
from dralab.drivers.driver import Driver
from dralab.drivers.hosted_plugin import HostedPlugin
from dralab.drivers.publishing import SlicePublisher
from dralab.drivers.sockets import SocketServer
from dralab.kernel.clock import SECOND
from dralab.kernel.randomness import Randomness
from dralab.runtime.kubeconfig import read
from dralab.runtime.live import LiveEngine
from dralab.runtime.manager import Manager
from dralab.runtime.remote import RemoteClient

MEND_AFTER: Final = SECOND // 10


class Killed(BaseException):
    """The process was killed: its threads must stop."""


@dataclass(slots=True)
class Life:
    """Whether an instance is alive; its parts ask before each write."""

    alive: bool = True

    def check(self) -> None:
        """Raise Killed if the instance is dead."""
        if not self.alive:
            raise Killed


class MortalDirectory(FileDirectory):
    """A directory of CDI files that a dead driver cannot change."""

    def __init__(self, path: Path, life: Life) -> None:
        super().__init__(path)
        self.life = life

    def write(self, name: str, spec: CdiSpec) -> None:
        """Write a spec."""
        self.life.check()
        super().write(name, spec)
        self.life.check()

    def remove(self, name: str) -> None:
        """Remove a spec."""
        self.life.check()
        super().remove(name)
        self.life.check()


class MortalCheckpoint(DriverFileCheckpoint):
    """A checkpoint that a dead driver cannot change."""

    def __init__(self, path: Path, life: Life) -> None:
        super().__init__(path)
        self.life = life

    def save(self, claims: Mapping[str, CheckpointedClaim]) -> None:
        """Keep the claims."""
        self.life.check()
        super().save(claims)
        self.life.check()


@dataclass(slots=True, kw_only=True)
class Parts:
    """The parts of a driver: a test replaces one by a part that breaks a rule."""

    driver: Callable[[str], Driver]
    plugin: type[HostedPlugin] = HostedPlugin
    server: type[SocketServer] = SocketServer
    publisher: type[SlicePublisher] = SlicePublisher
    directory: type[MortalDirectory] = MortalDirectory
    checkpoint: type[MortalCheckpoint] = MortalCheckpoint
    client: type[RemoteClient] = RemoteClient
    # Called when an instance is asked to stop; by default it does so properly.
    stop: "Callable[[SdkInstance], int | None] | None" = None
    # Called before an instance starts to serve.
    before: "Callable[[SdkInstance], None] | None" = None
    usage: Callable[["SdkInstance"], Usage] = field(default=lambda _: Usage(0, 0, 0))


@dataclass(frozen=True, slots=True)
class SdkTarget:
    """A driver class as a target: each start makes its parts anew."""

    parts: Parts
    title: str = ""
    more: frozenset[CheckNeed] = frozenset()

    @property
    def name(self) -> str:
        """Its name in reports."""
        return self.title or getattr(self.parts.driver, "__name__", "a driver")

    @property
    def offers(self) -> frozenset[CheckNeed]:
        """All needs except an older version and a health hook."""
        own = {
            CheckNeed.RESTART, CheckNeed.API, CheckNeed.INSTANCES, CheckNeed.USAGE,
            CheckNeed.BOOT_ID, CheckNeed.CLOCK, CheckNeed.CDI_PLACE,
        }  # fmt: skip
        return frozenset(own) | self.more

    def start(self, places: Places, pod_uid: str = "") -> "SdkInstance":
        """Start the driver. TargetError."""
        return SdkInstance(self.parts, places, pod_uid)


class SdkInstance:
    """A running driver: its client, engine, publisher and sockets."""

    group = 0  # it ends with this process

    def __init__(self, parts: Parts, places: Places, pod_uid: str) -> None:
        self.parts, self.places, self.pod_uid = parts, places, pod_uid
        self.life = Life()
        self.code = parts.driver(places.node)
        self.client = parts.client(read(places.kubeconfig))
        # First of all: the checkpoint says what is prepared.
        state = places.plugins / self.code.name / "checkpoint.json"
        directory = parts.directory(places.cdi, self.life)
        self.hosted = parts.plugin(
            self.code, self.client, directory, parts.checkpoint(state, self.life)
        )
        told = type(self.code).health is not Driver.health
        self.server = parts.server(self.hosted, places.root, pod_uid=pod_uid, health=told)
        self.engine = LiveEngine(name="driver")
        manager = self.manager = Manager(self.engine, self.client, Randomness.from_system())
        self.publisher = parts.publisher(
            manager, mend_after=MEND_AFTER, driver=self.code.name, node=places.node
        )
        self.publisher.publish(self.code)
        try:
            if parts.before is not None:
                parts.before(self)
            self.server.start()
        except SystemExit:
            self.kill()
            return
        except (SocketError, OSError) as error:
            raise TargetError(str(error)) from error
        self.engine.soon(manager.start)
        self.engine.start()

    @property
    def running(self) -> bool:
        """Whether it runs."""
        return self.life.alive

    def stop(self, patience: float) -> int | None:
        """End it properly."""
        del patience
        if self.parts.stop is not None:
            return self.parts.stop(self)
        return self.end()

    def end(self) -> int:
        """Remove the sockets, finish what is under way, and end."""
        self.server.stop()
        self._silence()
        self.life.alive = False
        return 0

    def kill(self) -> None:
        """End it at once, in the middle of its work; its sockets stay."""
        if not self.life.alive:
            return
        self.life.alive = False
        self.client.close()
        self._silence()
        for server in self.server.servers:
            server.stop(0).wait()
        for path in (self.server.endpoint, self.server.registration):
            _leave_behind(path)

    def output(self) -> str:
        """Return an empty text: it writes to this process's output."""
        return ""

    def usage(self) -> Usage | None:
        """Return the usage that the parts report."""
        return self.parts.usage(self)

    def _silence(self) -> None:
        self.manager.stop()
        self.engine.stop()
        self.client.close()


def _leave_behind(path: Path) -> None:
    """Leave a socket without a listener, as a killed process does."""
    path.unlink(missing_ok=True)
    with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX) as stale:
        stale.bind(str(path))


def of(driver: Callable[[str], Driver], **parts: Any) -> SdkTarget:
    """Return a target of a driver class, with parts replaced."""
    return SdkTarget(Parts(driver=driver, **parts))


__all__: Sequence[str] = ("Killed", "Parts", "SdkInstance", "SdkTarget", "of")
