"""Checks of NodeUnprepareResources: it succeeds, and leaves nothing behind."""

from dataclasses import replace
from typing import Final

from dralab.drivercheck.bench import Bench
from dralab.drivercheck.catalog import KEP, KUBELET, MUST, PLUGIN_PROTO, SHOULD, Catalog
from dralab.drivercheck.cdi_ids import own_ids, require_gone, require_resolved
from dralab.drivercheck.groups.bad_claims import refused_claim
from dralab.drivercheck.rules import NotApplicable, fail, require
from dralab.drivercheck.sockets import DriverCallError

catalog: Final = Catalog("unprepare")
UNKNOWN_UID: Final = "99999999-0000-4000-8000-000000000000"


@catalog.check(MUST, f"{KUBELET}: the pod stays Terminating until then")
def prepared(bench: Bench) -> None:
    """A prepared claim with several devices is unprepared without an error."""
    claim = bench.claim(*bench.free(min(2, len(bench.devices()))))
    bench.prepare(claim)
    bench.unprepare(claim)


@catalog.check(
    MUST, f"{KEP}: NodeUnprepareResources must be idempotent; the kubelet calls it to be sure"
)
def unknown(bench: Bench) -> None:
    """Unpreparing a claim that was never prepared is not an error."""
    bench.unprepare(bench.claim(*bench.free(1)))


@catalog.check(MUST, f"{KEP}: NodeUnprepareResources must be idempotent")
def again(bench: Bench) -> None:
    """Unpreparing a claim twice is not an error."""
    claim = bench.claim(*bench.free(1))
    bench.prepare(claim)
    bench.unprepare(claim)
    bench.unprepare(claim)


@catalog.check(MUST, f"{KUBELET}: claims of vanished pods; the object may be gone by then")
def claim_gone(bench: Bench) -> None:
    """A claim whose object is deleted can be unprepared: the call has all that is needed."""
    claim = bench.claim(*bench.free(1))
    bench.prepare(claim)
    bench.forget_claim(claim)
    bench.unprepare(claim)


@catalog.check(
    MUST, f"{KEP}: what prepare made ready is given back; stale devices conflict with new ones"
)
def cdi_removed(bench: Bench) -> None:
    """The CDI devices of the claim are gone afterwards."""
    claim = bench.claim(*bench.free(1))
    ids = own_ids(bench, claim)
    bench.unprepare(claim)
    require_gone(bench, ids, "after the call")


@catalog.check(MUST, f"{KEP}: claims are independent of each other")
def others_kept(bench: Bench) -> None:
    """Other claims stay prepared."""
    first, second = (bench.claim(device) for device in bench.free(2))
    bench.prepare(first)
    kept = bench.prepare(second)
    before = bench.resolved(kept)
    bench.unprepare(first)
    require_resolved(bench, before, kept, "since another claim was unprepared")


@catalog.check(
    MUST, f"{PLUGIN_PROTO}: Claim.uid; a claim may be deleted and created again under its name"
)
def by_uid(bench: Bench) -> None:
    """A claim is unprepared by its UID: one of the same name and another UID stays prepared."""
    claim = bench.claim(*bench.free(1))
    result = bench.prepare(claim)
    before = bench.resolved(result)
    bench.call_unprepare(replace(claim, ref=replace(claim.ref, uid=UNKNOWN_UID)))
    require_resolved(bench, before, result, "since another UID was unprepared")


@catalog.check(MUST, f"{KUBELET}: the scheduler gives the device to the next pod")
def device_again(bench: Bench) -> None:
    """The device can be prepared for another claim afterwards."""
    [device] = bench.free(1)
    first, second = bench.claim(device), bench.claim(device)
    bench.prepare(first)
    bench.unprepare(first)
    bench.prepare(second)


@catalog.check(MUST, f"{KUBELET}: named claims outlive their pods")
def claim_again(bench: Bench) -> None:
    """The same claim can be prepared again afterwards: another pod may use it."""
    claim = bench.claim(*bench.free(1))
    before = bench.resolved(bench.prepare(claim))
    bench.unprepare(claim)
    require_resolved(bench, before, bench.prepare(claim), "the second time")


@catalog.check(MUST, f"{KUBELET}: unprepare is called for every claim that was tried")
def failed_prepare(bench: Bench) -> None:
    """A claim whose prepare failed can be unprepared."""
    bench.unprepare(refused_claim(bench))


@catalog.check(MUST, f"{KUBELET}: a node's update lies between the two calls")
def other_version(bench: Bench) -> None:
    """A claim that was prepared by one version of the service can be unprepared by another."""
    versions = bench.plugin.plugin_versions
    if len(versions) < 2:
        raise NotApplicable("the driver offers one version")
    first, claim = (bench.claim(*bench.free(1)) for _ in range(2))
    ids = own_ids(bench, first)
    bench.unprepare(first)
    if ids & set(bench.cdi().devices):
        raise NotApplicable("NodeUnprepareResources leaves CDI devices in any version")
    bench.forget_claim(first)
    ids = own_ids(bench, claim)
    other = next(each for each in versions if each != bench.version)
    try:
        bench.call_unprepare(claim, version=other)
    except DriverCallError as error:
        if error.code == "UNIMPLEMENTED":
            raise NotApplicable(f"{other} is not served") from error
        fail(f"{other}: {error}")
    require_gone(bench, ids, f"after NodeUnprepareResources of {other}")


@catalog.check(SHOULD, f"{KEP}: what prepare made ready is given back")
def nothing_left(bench: Bench) -> None:
    """No file is left of claims that came and went."""
    devices = bench.free(2)
    before: set[str] | None = None
    for number, device in enumerate((devices[0], *devices)):
        # The first claim may bring files that stay, such as a checkpoint.
        before = bench.files() if number == 1 else before
        claim = bench.claim(device)
        bench.prepare(claim)
        bench.unprepare(claim)
        bench.forget_claim(claim)
    left = sorted(bench.files() - (before or set()))
    require(not left, f"left behind: {', '.join(left)}")
