"""The bench of a driver under test: its process, its claims, and the kubelet's calls.

Each bench has a server, a node and a root directory of its own, so that benches work side by side.
"""

import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final, Self, TypeVar

from dralab.contracts.cdi_cache import CdiCache, FileDirectory
from dralab.contracts.plugin import ClaimRef, PrepareResult
from dralab.drivercheck.check_node import CheckedNode, CheckNode
from dralab.drivercheck.claim_bench import ClaimBench
from dralab.drivercheck.devices import ClaimUnderTest, Published, pools_of
from dralab.drivercheck.gate import Gate
from dralab.drivercheck.rules import CheckFailed, CheckLimits, NotApplicable, Shared, require
from dralab.drivercheck.sockets import (
    DriverCallError,
    DriverConnection,
    PluginInfo,
    is_served,
    sockets_in,
)
from dralab.drivercheck.targets import DriverTarget, Places, RunningDriver
from dralab.drivercheck.transcript import Transcript
from dralab.kernel.clock import SECOND, WallClock
from dralab.kernel.randomness import Randomness
from dralab.node.mount_namespaces import NodePaths
from dralab.objects.slices import newest_of

T = TypeVar("T")
# Makes a device, by its name, healthy or not.
HealthHook = Callable[[Places, str, bool], None]
LOOK_EVERY: Final = 0.01  # seconds


class Bench(ClaimBench):
    """A node for one driver. Use it as a context: nothing of it is left afterwards."""

    def __init__(
        self,
        target: DriverTarget,
        *,
        limits: CheckLimits | None = None,
        seed: int = 0,
        surroundings: CheckedNode | None = None,
        previous: DriverTarget | None = None,
        health_hook: HealthHook | None = None,
        shared: Shared | None = None,
        paths: Callable[[Places], NodePaths] | None = None,
    ) -> None:
        super().__init__(Randomness(seed))
        self._paths = paths  # of a driver that has a mount namespace
        self.target = target
        self.previous = previous
        self.shared = shared or Shared()
        self._health_hook = health_hook
        self.limits = limits or CheckLimits()
        self.clock = WallClock()
        self.transcript = Transcript(self.clock)
        self.surroundings = surroundings
        self.instance: RunningDriver | None = None
        self.others: list[RunningDriver] = []
        self.info: PluginInfo | None = None
        self.unwanted_end = True  # where the driver ends, it was not the bench
        self.broken = ""  # why it can't be used for another check
        self._pause = threading.Event()
        self._connections: list[DriverConnection] = []
        self._main: DriverConnection | None = None
        self._touched: dict[str, ClaimRef] = {}
        self.node = CheckNode(surroundings, self.transcript, self.randomness.seed)

    def __enter__(self) -> Self:
        node = self.node.__enter__()
        self.client, self.places, self.cdi_paths = node.client, node.places, node.cdi_paths
        return self

    def __exit__(self, *_: object) -> None:
        self._hang_up()
        for instance in (self.instance, *self.others):
            if instance is not None:
                self._end(instance)
        self.node.__exit__()

    @property
    def api(self) -> Gate:
        """The driver's requests, with fault injection."""
        if self.node.gate is None:
            raise NotApplicable("the driver uses an API server of its own")
        return self.node.gate

    @property
    def has_health_hook(self) -> bool:
        """Whether devices can be made unhealthy."""
        return self._health_hook is not None

    # --- the driver's process -----------------------------------------------------------------

    def start(
        self, pod_uid: str = "", *, devices: bool = True, target: DriverTarget | None = None
    ) -> None:
        """Start the driver and register it, as a kubelet; wait until its devices are there.

        CheckFailed: it doesn't come up.
        """
        self.launch(pod_uid, target=target)
        self.register()
        if devices:
            self.until(self._published, self.limits.ready, "it publishes no device")
            self.settled(self.incomplete)

    def _published(self) -> list[Published]:
        refusal = "" if (found := self.devices()) else self.api.refusal_of_slices()
        require(not refusal, f"it publishes no device: the API refuses its slices: {refusal}")
        return found

    def launch(self, pod_uid: str = "", *, target: DriverTarget | None = None) -> RunningDriver:
        """Start the driver without registering it."""
        self.transcript.add("run", "the driver starts")
        self.unwanted_end = True
        if self.instance is not None and self.instance.running:
            self.others.append(self.instance)
        self.instance = (target or self.target).start(self.places, pod_uid)
        if self.node.files is not None:
            self.node.files.started(self.instance)
        return self.instance

    def register(self, *, known: Sequence[Path] = ()) -> PluginInfo:
        """Find the driver's registration socket, not one of `known`, and register it."""
        path = self.find_socket(known)
        connection = self.connect(path)
        try:
            self.info = connection.info(self.limits.ready)
            connection.notify(registered=True)
        except DriverCallError as error:
            raise CheckFailed(f"the registration at {path} failed: {error}") from error
        finally:
            connection.close()
        self._main = None
        # A service that comes late is not an error here: registration.service-first checks that.
        address = self.info.address
        self.until(lambda: is_served(address), self.limits.ready, f"{address} is not served")
        return self.info

    def find_socket(self, known: Sequence[Path] = ()) -> Path:
        """Return the registration socket with a listener, once there is one."""
        if self.surroundings is not None:
            return self.surroundings.socket
        # Hidden sockets too, which a kubelet ignores: registration.socket-name checks that.

        def found() -> Path | None:
            paths = [path for path in sockets_in(self.places.registry) if path not in known]
            return next((path for path in paths if is_served(path)), None)

        return self.until(found, self.limits.ready, "no socket below plugins_registry answers")

    def start_problem(self) -> str:
        """Return the reason that a started driver has no registration socket; empty if it has."""
        if self.surroundings is not None or self.instance is None:
            return ""
        ended = not self.instance.running  # asked first: what it says at its end belongs to it
        last = next(reversed(self.instance.output().split("\n")), "").strip()
        said = f"; last output: {last}" if last else ""
        if ended:
            return f"the driver ends at its start{said}"
        if not sockets_in(self.places.registry):
            ready = f"{self.limits.ready:g} s"
            return f"no registration socket below {self.places.registry} after {ready}{said}"
        return ""

    def restart(self, *, devices: bool = False, target: DriverTarget | None = None) -> None:
        """Start the driver again after its end; its files are kept, except sockets.

        Whether it starts in spite of stale sockets has a check of its own.
        """
        for path in self._sockets():
            if not is_served(path):
                path.unlink(missing_ok=True)
        self.start(devices=devices, target=target)

    def _sockets(self) -> list[Path]:
        return [*sockets_in(self.places.registry), *sockets_in(self.places.plugins)]

    def crash(self) -> None:
        """Kill the driver and start it again."""
        self.kill()
        self.restart()

    def kill(self) -> None:
        """Kill the driver (SIGKILL)."""
        self.transcript.add("run", "the driver is killed")
        self.unwanted_end = False
        self._hang_up()
        if self.instance is not None:
            self._end(self.instance)
        if self.places.clock_offset:
            # The driver is a child of the clock, and ends a moment after it.
            self.settled(lambda: "served" if any(map(is_served, self._sockets())) else "")

    def stop(self) -> int | None:
        """Stop the driver (SIGTERM); return its exit code, None where it does not end."""
        self.transcript.add("run", "the driver is told to stop")
        self.unwanted_end = False
        self._hang_up()
        code = self.instance.stop(self.limits.stop) if self.instance is not None else None
        if self.instance is not None and code is not None:
            self._forget_process(self.instance)
        self.transcript.add("run", f"its exit code is {code}")
        return code

    def _end(self, instance: RunningDriver) -> None:
        instance.kill()
        self._forget_process(instance)

    def _forget_process(self, instance: RunningDriver) -> None:
        if self.node.files is not None:
            self.node.files.ended(instance)

    # --- connections --------------------------------------------------------------------------

    def connect(self, path: str | Path) -> DriverConnection:
        """Return a new connection to a socket."""
        here = self._paths(self.places).here if self._paths is not None else str
        found = DriverConnection(str(path), self.transcript, self.limits, here)
        self._connections.append(found)
        return found

    @property
    def plugin(self) -> PluginInfo:
        """What the driver said at registration."""
        if self.info is None:
            raise CheckFailed("the driver is not registered")
        return self.info

    @property
    def connection(self) -> DriverConnection:
        """The connection to the service of the registered driver."""
        if self._main is None:
            self._main = self.connect(self.plugin.address)
        return self._main

    @property
    def version(self) -> str:
        """The version that a kubelet uses: the first offered that it knows."""
        known = self.plugin.plugin_versions
        return known[0] if known else "v1.DRAPlugin"

    def _hang_up(self) -> None:
        for connection in self._connections:
            connection.close()
        self._connections, self._main = [], None

    # --- the kubelet's calls ------------------------------------------------------------------

    def call_prepare(
        self, *claims: ClaimUnderTest, version: str = "", on: DriverConnection | None = None
    ) -> Mapping[str, PrepareResult]:
        """Call NodePrepareResources. DriverCallError."""
        for claim in claims:
            self._touched[claim.uid] = claim.ref
        connection = on or self.connection
        return connection.prepare(version or self.version, [claim.ref for claim in claims])

    def call_unprepare(
        self, *claims: ClaimUnderTest, version: str = "", on: DriverConnection | None = None
    ) -> Mapping[str, str]:
        """Call NodeUnprepareResources. DriverCallError."""
        connection = on or self.connection
        found = connection.unprepare(version or self.version, [claim.ref for claim in claims])
        for uid, error in found.items():
            if not error:
                self._touched.pop(uid, None)
        return found

    def prepare(
        self, claim: ClaimUnderTest, *, version: str = "", on: DriverConnection | None = None
    ) -> PrepareResult:
        """Prepare one claim. CheckFailed: it can't be prepared."""
        try:
            found = self.call_prepare(claim, version=version, on=on).get(claim.uid)
        except DriverCallError as error:
            raise CheckFailed(f"NodePrepareResources failed: {error}") from error
        if found is None:
            raise CheckFailed(f"NodePrepareResources skipped the claim {claim.ref.name}")
        require(not found.error, f"the claim {claim.ref.name} was not prepared: {found.error}")
        return found

    def set_health(self, device: str, *, healthy: bool) -> None:
        """Change a device's health by the hook. NotApplicable: there is no hook."""
        if self._health_hook is None:
            raise NotApplicable("no hook makes devices unhealthy")
        word = "healthy" if healthy else "unhealthy"
        self.transcript.add("run", f"{device} is made {word}")
        self._health_hook(self.places, device, healthy)

    def unprepare(
        self, claim: ClaimUnderTest, *, version: str = "", on: DriverConnection | None = None
    ) -> None:
        """Unprepare one claim. CheckFailed: it can't be unprepared."""
        try:
            found = self.call_unprepare(claim, version=version, on=on)
        except DriverCallError as error:
            raise CheckFailed(f"NodeUnprepareResources failed: {error}") from error
        require(claim.uid in found, f"NodeUnprepareResources skipped the claim {claim.ref.name}")
        text = found[claim.uid]
        require(not text, f"the claim {claim.ref.name} was not unprepared: {text}")

    def refusal(self, *claims: ClaimUnderTest, of: ClaimUnderTest) -> str:
        """Prepare claims and return why one is refused; empty if it is not."""
        try:
            found = self.call_prepare(*claims)
        except DriverCallError as error:
            return str(error)
        return found[of.uid].error if of.uid in found else ""

    # --- CDI ----------------------------------------------------------------------------------

    def cdi(self) -> CdiCache:
        """Return what a runtime sees in the CDI directories now."""
        return CdiCache([FileDirectory(path) for path in self.cdi_paths])

    def resolved(self, result: PrepareResult) -> set[str]:
        """Return the CDI ids of a prepared claim that a runtime can resolve."""
        known = set(self.cdi().devices)
        return set(result.cdi_ids & known)

    def ping(self, connection: DriverConnection) -> None:
        """Call the service. DriverCallError: there is no answer."""
        try:
            connection.unprepare(self.version, [])
        except DriverCallError as error:
            # Whether a call without claims succeeds: unprepare.no-claims.
            if error.code in {"UNAVAILABLE", "DEADLINE_EXCEEDED", "CANCELLED"}:
                raise

    def files(self) -> set[str]:
        """Return the files that the driver keeps: in the CDI directories and below `plugins`."""
        found = set()
        for place in (*self.cdi_paths, self.places.plugins):
            found |= {str(path) for path in place.rglob("*") if path.is_file()}
        return found

    # --- waiting, and the end of a check ------------------------------------------------------

    def until(self, condition: Callable[[], T | None], seconds: float, otherwise: str) -> T:
        """Wait for a condition and return its value. CheckFailed: `otherwise`, at the timeout."""
        end = self.clock.now() + int(seconds * SECOND)
        while True:
            found = condition()
            if found:
                return found
            if self.surroundings is None and self.instance is not None:
                self._still_runs(otherwise)
            if self.clock.now() >= end:
                raise CheckFailed(f"{otherwise} within {seconds:g} s{self._said()}")
            self.wait(LOOK_EVERY)

    def settled(self, problem: Callable[[], str]) -> str:
        """Wait until a problem is gone, or does not change any more; return the rest of it."""
        end = self.clock.now() + int(self.limits.settle * SECOND)
        while (text := problem()) and self.clock.now() < end:
            self.wait(LOOK_EVERY)
        return text

    def incomplete(self) -> str:
        """Return which pool is incomplete; empty if none is."""
        for pool, members in pools_of(self.slices()).items():
            newest = newest_of(members)
            counts = {one["spec"]["pool"]["resourceSliceCount"] for one in newest}
            if len(newest) not in counts:
                told = ", ".join(map(str, sorted(counts)))
                return f"the pool {pool} has {len(newest)} slices, and says that it has {told}"
        return ""

    def wait(self, seconds: float) -> None:
        """Wait so many seconds."""
        self._pause.wait(seconds)

    def _still_runs(self, otherwise: str) -> None:
        if self.instance is not None and not self.instance.running:
            raise CheckFailed(f"{otherwise}: the driver has ended{self._said()}")

    def _said(self) -> str:
        output = self.instance.output() if self.instance is not None else ""
        return f"; its last output:\n{output}" if output else ""

    def tidy(self) -> None:
        """Unprepare the claims that a check has left, and delete them."""
        refs = list(self._touched.values())
        self._touched = {}
        try:
            if refs:
                answers = self.connection.unprepare(self.version, refs)
                if any(answers.values()) or len(answers) < len(refs):
                    self.broken = "claims of the check can't be unprepared"
        except DriverCallError as error:
            self.broken = f"claims of the check can't be unprepared: {error}"
        self.forget_claims()
        for connection in self._connections:
            if connection is not self._main:
                connection.close()
        self._connections = [self._main] if self._main is not None else []
