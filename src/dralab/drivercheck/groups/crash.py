"""Checks of crashes, restarts and updates: what a driver has to restore and to clean up."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any, Final

from dralab.contracts.plugin import PrepareResult
from dralab.drivercheck.bench import Bench
from dralab.drivercheck.catalog import KEP, KUBELET, LIBRARY, MUST, REBOOT, SHOULD, TYPES, Catalog
from dralab.drivercheck.cdi_ids import own_ids, require_gone, require_resolved
from dralab.drivercheck.devices import ClaimUnderTest, Published
from dralab.drivercheck.gate import SLICES_PATH
from dralab.drivercheck.rules import CheckFailed, CheckNeed, NotApplicable, fail, require
from dralab.drivercheck.sockets import DriverCallError, is_served
from dralab.drivercheck.targets import DriverTarget
from dralab.files.reading import read
from dralab.kernel.clock import SECOND
from dralab.runtime.resources import SLICES

catalog: Final = Catalog("crash", needs=[CheckNeed.RESTART], fresh=True)
OLD_POD: Final = "11111111-0000-4000-8000-000000000001"
DAY: Final = 24 * 3_600 * SECOND
NEW_POD: Final = "11111111-0000-4000-8000-000000000002"


@catalog.check(MUST, f"{LIBRARY}: a stale socket is removed before listening")
def stale_sockets(bench: Bench) -> None:
    """After SIGKILL a driver starts again although its old sockets are there."""
    bench.start(devices=False)
    bench.kill()
    bench.launch()
    bench.register()
    bench.ping(bench.connection)


@catalog.check(
    MUST, f"{KUBELET}: containers of a running pod are created again with the same CDI ids"
)
def prepared(bench: Bench) -> None:
    """A claim that was prepared before a crash gets the same answer afterwards."""
    claim, result = _prepared(bench)
    bench.crash()
    before, after = sorted(result.cdi_ids), sorted(bench.prepare(claim).cdi_ids)
    require(before == after, f"the CDI ids were {before}, now {after}")


@catalog.check(MUST, f"{KUBELET}: the pod may end while the driver is down")
def unprepare(bench: Bench) -> None:
    """A claim that was prepared before a crash can be unprepared afterwards, and nothing is
    left.
    """
    bench.start()
    claim = bench.claim(*bench.free(1))
    own = own_ids(bench, claim)
    bench.crash()
    bench.unprepare(claim)
    require_gone(bench, own, "after a crash and an unprepare")


@catalog.check(SHOULD, f"{KEP}: a driver's checkpoint; what is prepared must outlive the process")
def exclusive(bench: Bench) -> None:
    """After a crash, a device that a claim holds is refused to others."""
    bench.start()
    device = next((each for each in bench.free(1) if not each.shared), None)
    if device is None:
        raise NotApplicable("every device may be shared")
    bench.prepare(bench.claim(device))
    if not _refuses(bench, device):
        raise NotApplicable("it does not refuse them before a crash either")
    bench.crash()
    require(_refuses(bench, device), f"{device.name} was prepared for a second claim")


def _refuses(bench: Bench, device: Published) -> bool:
    other = bench.claim(device)
    return bool(bench.refusal(other, of=other))


@catalog.check(
    MUST, f"{KUBELET}: the call is repeated until it succeeds; here at random moments", long=True
)
def during_prepare(bench: Bench) -> None:
    """A driver that is killed while it prepares a claim can prepare it afterwards."""
    for claim in _killed_during(bench, "prepare"):
        bench.restart()
        _complete(bench, claim)
        bench.unprepare(claim)
        bench.forget_claim(claim)


@catalog.check(
    MUST, f"{KUBELET}: the call is repeated until it succeeds; here at random moments", long=True
)
def during_unprepare(bench: Bench) -> None:
    """A driver that is killed while it unprepares a claim can unprepare it afterwards."""
    for claim in _killed_during(bench, "unprepare"):
        bench.restart()
        bench.unprepare(claim)
        bench.forget_claim(claim)
    _complete(bench, bench.claim(*bench.free(1)))


def _killed_during(bench: Bench, verb: str) -> Iterator[ClaimUnderTest]:
    """Kill the driver at random moments of a call, again and again; yield the call's claim."""
    bench.start()
    [device] = bench.free(1)
    usual = _seconds_of(bench, device)[verb]
    moments = bench.randomness.stream(f"crash.during-{verb}")
    for _ in range(bench.limits.crash_points):
        claim = bench.claim(device)
        if verb == "unprepare":
            bench.prepare(claim)
        call = bench.connection.start_call(bench.version, verb.capitalize(), [claim.ref])
        bench.wait(moments.uniform(0.0, 1.5) * usual)
        bench.kill()
        call.cancel()
        yield claim


def _seconds_of(bench: Bench, device: Published) -> dict[str, float]:
    """Return how long the driver takes to prepare and to unprepare a claim, in seconds."""
    claim = bench.claim(device)
    begin = bench.clock.now()
    bench.prepare(claim)
    between = bench.clock.now()
    bench.unprepare(claim)
    end = bench.clock.now()
    bench.forget_claim(claim)
    return {"prepare": (between - begin) / SECOND, "unprepare": (end - between) / SECOND}


def _complete(bench: Bench, claim: ClaimUnderTest) -> None:
    """Prepare a claim, and require that its own CDI ids can be resolved."""
    result = bench.prepare(claim)
    if not result.cdi_ids:
        return
    for device in result.devices:
        missing = {device.cdi_ids[0]} - bench.resolved(result) if device.cdi_ids else set()
        require(not missing, f"after the crash, {', '.join(missing)} can't be resolved")


# --- checkpoints --------------------------------------------------------------------------------


@catalog.check(
    SHOULD, "a power failure during a write; a driver that does not start needs a person"
)
def checkpoint_damaged(bench: Bench) -> None:
    """With half a checkpoint, a driver starts, gives old claims back and prepares new ones."""
    _with_state(bench, lambda data: data[: len(data) // 2], "half of its bytes")


@catalog.check(
    SHOULD, "a file that was created and never synced has no bytes after a power failure"
)
def checkpoint_empty(bench: Bench) -> None:
    """With an empty checkpoint, a driver starts, gives old claims back and prepares new ones."""
    _with_state(bench, lambda _data: b"", "no bytes")


def _with_state(bench: Bench, change: Any, what: str) -> None:
    claim, _ = _prepared(bench)
    bench.kill()
    states = [p for p in bench.places.plugins.rglob("*") if p.is_file() and p.stat().st_size]
    if not states:
        raise NotApplicable("the driver keeps no file in its plugin directory")
    for path in states:
        bench.transcript.add("run", f"{path.name} has {what}")
        path.write_bytes(change(read(path)))
    bench.restart()
    bench.unprepare(claim)
    bench.forget_claim(claim)
    bench.prepare(bench.claim(*bench.free(1)))


@catalog.check(
    MUST,
    f"{KEP}: an update must not disturb running pods",
    needs=[CheckNeed.RESTART, CheckNeed.PREVIOUS],
)
def upgrade(bench: Bench) -> None:
    """Claims of an older version of the driver are prepared and unprepared by the newer one."""
    _handed_over(bench, bench.previous, bench.target)


@catalog.check(
    SHOULD, f"{KEP}: version skew and downgrade", needs=[CheckNeed.RESTART, CheckNeed.PREVIOUS]
)
def downgrade(bench: Bench) -> None:
    """Claims of the driver are prepared and unprepared by the older version: a rollback works."""
    _handed_over(bench, bench.target, bench.previous)


def _handed_over(bench: Bench, first: DriverTarget | None, second: DriverTarget | None) -> None:
    bench.start(target=first)
    claim = bench.claim(*bench.free(1))
    bench.prepare(claim)
    bench.kill()
    bench.restart(target=second)
    bench.prepare(claim)
    bench.unprepare(claim)


# --- reboots ------------------------------------------------------------------------------------


@catalog.check(MUST, REBOOT)
def reboot(bench: Bench) -> None:
    """After a reboot, which empties the CDI directory, a claim is prepared with all its files."""
    claim, result = _prepared(bench)
    before = bench.resolved(result)
    _reboot(bench)
    after = bench.prepare(claim)
    require_resolved(
        bench, before & after.cdi_ids, after, "after a reboot and a prepare that succeeded"
    )


@catalog.check(MUST, REBOOT)
def reboot_unprepare(bench: Bench) -> None:
    """After a reboot, a claim that was prepared before can be unprepared."""
    claim, _ = _prepared(bench)
    _reboot(bench)
    bench.unprepare(claim)


def _reboot(bench: Bench, *, boot_id: bool = False) -> None:
    """Restart the driver as after a reboot: without CDI files, perhaps with another boot id."""
    bench.kill()
    for path in bench.places.cdi.iterdir():
        path.unlink()
    if boot_id:
        file = bench.places.root / "boot_id"
        file.write_text(f"{bench.uuid('boots')}\n")
        bench.places = replace(bench.places, boot_id=file)
        bench.transcript.add("run", "the node has another boot id")
    bench.restart()


@catalog.check(
    MUST,
    f"{REBOOT}; drivers that keep the boot id in a checkpoint start with an empty one",
    needs=[CheckNeed.RESTART, CheckNeed.BOOT_ID],
)
def boot_id(bench: Bench) -> None:
    """After a reboot with another boot id, a claim is prepared with all its files, and
    unprepared.
    """
    bench.start()
    claim = bench.claim(*bench.free(1))
    own = own_ids(bench, claim)
    _reboot(bench, boot_id=True)
    again = bench.prepare(claim)
    if missing := sorted((own & again.cdi_ids) - bench.resolved(again)):
        _reboot(bench)
        if (own & again.cdi_ids) - bench.resolved(bench.prepare(claim)):
            raise NotApplicable("with the same boot id, files are missing too: crash.reboot")
        fail(f"after a reboot with another boot id, {', '.join(missing)} can't be resolved")
    bench.unprepare(claim)
    require_gone(bench, own, "after a reboot and an unprepare")


@catalog.check(
    MUST,
    "NTP sets the clock of a node that was off, or whose battery is empty, after its start",
    needs=[CheckNeed.RESTART, CheckNeed.CLOCK],
)
def clock(bench: Bench) -> None:
    """A driver starts with a clock set back or forward by a day; its claims are prepared again."""
    claim, _ = _prepared(bench)
    for days in (-1, 1):
        bench.kill()
        bench.places = replace(bench.places, clock_offset=days * DAY)
        bench.restart()
        bench.prepare(claim)
    bench.unprepare(claim)


@catalog.check(MUST, f"{KUBELET}: pods are force-deleted while nodes are down")
def claim_gone(bench: Bench) -> None:
    """A claim that was deleted while the driver was down can be unprepared."""
    claim, _ = _prepared(bench)
    bench.kill()
    bench.forget_claim(claim)
    bench.restart()
    bench.unprepare(claim)


@catalog.check(
    MUST,
    f"{TYPES}: ResourcePool; an incomplete pool is not used",
    needs=[CheckNeed.RESTART, CheckNeed.API],
)
def publishing(bench: Bench) -> None:
    """A driver that is killed while it publishes its slices completes the pool afterwards."""
    bench.launch()

    def first() -> bool:
        return any(c.writes and SLICES_PATH in c.path and c.status for c in bench.api.calls)

    try:
        bench.until(first, bench.limits.quiet, "it publishes no slice")
    except CheckFailed:
        bench.register()  # some drivers wait for the kubelet before they publish
        bench.until(first, bench.limits.ready, "it publishes no slice")
    bench.kill()
    bench.restart(devices=True)
    end = bench.clock.now() + int(bench.limits.repair * SECOND)
    while text := bench.settled(bench.incomplete):
        if bench.clock.now() < end:
            continue
        bench.kill()
        for one in bench.slices():
            bench.client.delete(SLICES, one["metadata"]["name"])
        bench.restart(devices=True)
        if bench.settled(bench.incomplete):
            raise NotApplicable("its pools are not complete without a crash either")
        fail(f"after a crash between two slices, {text}")


# --- stops and updates --------------------------------------------------------------------------


@catalog.check(
    MUST, f"{KEP}: drivers are updated while pods run; a container may start again at any time"
)
def stop_keeps_claims(bench: Bench) -> None:
    """A driver that is stopped (SIGTERM) leaves prepared claims as they are."""
    _, result = _prepared(bench)
    before = bench.resolved(result)
    bench.stop()
    require_resolved(bench, before, result, "since the driver was stopped")


@catalog.check(
    MUST,
    f"{LIBRARY}: RollingUpdate; the kubelet calls the instance that registered last",
    needs=[CheckNeed.INSTANCES],
)
def two_instances(bench: Bench) -> None:
    """A claim that the old instance has prepared is unprepared by the new one."""
    bench.start(OLD_POD)
    claim = bench.claim(*bench.free(1))
    own = own_ids(bench, claim)
    _second(bench)
    bench.unprepare(claim)
    require_gone(bench, own, "after the new instance unprepared the claim of the old one")


@catalog.check(MUST, f"{LIBRARY}: RollingUpdate; a seamless upgrade", needs=[CheckNeed.INSTANCES])
def update(bench: Bench) -> None:
    """When the old instance stops, the sockets of the new one stay."""
    bench.start(OLD_POD)
    _second(bench)
    old = bench.others[-1]
    old.stop(bench.limits.stop)
    new = bench.plugin
    require(is_served(new.socket), f"since the old instance stopped, {new.socket} is not served")
    try:
        bench.ping(bench.connect(new.address))
    except DriverCallError as error:
        fail(f"the new instance is not reachable since the old one stopped: {error}")


def _second(bench: Bench) -> None:
    """Start a new instance beside the old one, and let it be the registered one."""
    old = bench.plugin
    bench.launch(NEW_POD)
    try:
        bench.register(known=[old.socket])
    except CheckFailed as error:
        raise NotApplicable(f"the new instance has no socket of its own: {error}") from error


def _prepared(bench: Bench) -> tuple[ClaimUnderTest, PrepareResult]:
    """Start the driver and prepare a claim."""
    bench.start()
    claim = bench.claim(*bench.free(1))
    return claim, bench.prepare(claim)
