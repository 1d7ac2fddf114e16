"""Checks of NodeUnprepareResources: it always succeeds, and leaves nothing behind."""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Final

from dralab.drivercheck.bench import Bench
from dralab.drivercheck.catalog import MUST, SHOULD, Catalog
from dralab.drivercheck.devices import ClaimUnderTest
from dralab.drivercheck.rules import NotApplicable, fail, require
from dralab.drivercheck.sockets import DriverCallError

catalog: Final = Catalog()
PROTO: Final = "k8s.io/kubelet/pkg/apis/dra/v1/api.proto"
KUBELET: Final = "kubernetes/pkg/kubelet/cm/dra/manager.go"
KEP: Final = "KEP-4381"
NOBODY: Final = "99999999-0000-4000-8000-000000000000"


def own_ids(bench: Bench, claim: ClaimUnderTest) -> set[str]:
    """Prepare a claim and return the CDI ids that it brought: those that were not there before."""
    before = set(bench.cdi().devices)
    found = bench.prepare(claim)
    return {name for device in found.devices for name in device.cdi_ids} - before


@catalog.check(
    "unprepare.prepared", MUST,
    "A prepared claim with several devices is unprepared without an error.",
    f"{KUBELET}: the pod stays Terminating until then",
)  # fmt: skip
def prepared(bench: Bench) -> None:
    claim = bench.claim(*bench.free(min(2, len(bench.devices()))))
    bench.prepare(claim)
    bench.unprepare(claim)


@catalog.check(
    "unprepare.every-claim", MUST,
    "Every claim of a call is answered.",
    f"{KUBELET}: NodeUnprepareResources skipped <n> ResourceClaims",
)  # fmt: skip
def every_claim(bench: Bench) -> None:
    claims = [bench.claim(device) for device in bench.free(2)]
    for claim in claims:
        bench.prepare(claim)
    found = bench.call_unprepare(*claims)
    missing = [claim.ref.name for claim in claims if claim.uid not in found]
    require(not missing, f"the answer skips {', '.join(missing)}")


@catalog.check(
    "unprepare.no-other-claim", MUST,
    "No claim is answered that was not asked for.",
    f"{KUBELET}: NodeUnprepareResources returned result for unknown claim UID",
)  # fmt: skip
def no_other_claim(bench: Bench) -> None:
    claim = bench.claim(*bench.free(1))
    bench.prepare(claim)
    others = sorted(set(bench.call_unprepare(claim)) - {claim.uid})
    require(not others, f"the answer has the unknown claim UIDs {', '.join(others)}")


@catalog.check(
    "unprepare.no-claims", MUST,
    "A call without claims is answered without claims.",
    f"{PROTO}: NodeUnprepareResourcesRequest.claims is a list",
)  # fmt: skip
def no_claims(bench: Bench) -> None:
    try:
        found = bench.connection.unprepare(bench.version, [])
    except DriverCallError as error:
        fail(f"a call without claims failed: {error}")
    require(not found, f"a call without claims is answered with {', '.join(found)}")


@catalog.check(
    "unprepare.unknown", MUST,
    "Unpreparing a claim that was never prepared is not an error.",
    f"{KEP}: NodeUnprepareResources must be idempotent; the kubelet calls it to be sure",
)  # fmt: skip
def unknown(bench: Bench) -> None:
    bench.unprepare(bench.claim(*bench.free(1)))


@catalog.check(
    "unprepare.again", MUST,
    "Unpreparing a claim twice is not an error.",
    f"{KEP}: NodeUnprepareResources must be idempotent",
)  # fmt: skip
def again(bench: Bench) -> None:
    claim = bench.claim(*bench.free(1))
    bench.prepare(claim)
    bench.unprepare(claim)
    bench.unprepare(claim)


@catalog.check(
    "unprepare.claim-gone", MUST,
    "A claim whose object is deleted can be unprepared: the call has all that is needed.",
    f"{KUBELET}: claims of vanished pods; the object may be gone by then",
)  # fmt: skip
def claim_gone(bench: Bench) -> None:
    claim = bench.claim(*bench.free(1))
    bench.prepare(claim)
    bench.forget_claim(claim)
    bench.unprepare(claim)


@catalog.check(
    "unprepare.cdi-removed", MUST,
    "The CDI devices of the claim are gone afterwards.",
    f"{KEP}: what prepare made ready is given back; stale devices conflict with new ones",
)  # fmt: skip
def cdi_removed(bench: Bench) -> None:
    claim = bench.claim(*bench.free(1))
    ids = own_ids(bench, claim)
    bench.unprepare(claim)
    left = sorted(ids & set(bench.cdi().devices))
    require(not left, f"{', '.join(left)} can still be resolved")


@catalog.check(
    "unprepare.others-kept", MUST,
    "Other claims stay prepared.",
    f"{KEP}: claims are independent of each other",
)  # fmt: skip
def others_kept(bench: Bench) -> None:
    first, second = (bench.claim(device) for device in bench.free(2))
    bench.prepare(first)
    kept = bench.prepare(second)
    before = bench.resolved(kept)
    bench.unprepare(first)
    missing = before - bench.resolved(kept)
    require(not missing, f"{', '.join(sorted(missing))} of another claim is gone")


@catalog.check(
    "unprepare.by-uid", MUST,
    "A claim is unprepared by its UID: one of the same name and another UID stays prepared.",
    f"{PROTO}: Claim.uid; a claim may be deleted and created again under its name",
)  # fmt: skip
def by_uid(bench: Bench) -> None:
    claim = bench.claim(*bench.free(1))
    result = bench.prepare(claim)
    before = bench.resolved(result)
    bench.call_unprepare(replace(claim, ref=replace(claim.ref, uid=NOBODY)))
    missing = before - bench.resolved(result)
    require(not missing, f"{', '.join(sorted(missing))} is gone: another UID was unprepared")


@catalog.check(
    "unprepare.device-again", MUST,
    "The device can be prepared for another claim afterwards.",
    f"{KUBELET}: the scheduler gives the device to the next pod",
)  # fmt: skip
def device_again(bench: Bench) -> None:
    [device] = bench.free(1)
    first, second = bench.claim(device), bench.claim(device)
    bench.prepare(first)
    bench.unprepare(first)
    bench.prepare(second)


@catalog.check(
    "unprepare.claim-again", MUST,
    "The same claim can be prepared again afterwards: another pod may use it.",
    f"{KUBELET}: named claims outlive their pods",
)  # fmt: skip
def claim_again(bench: Bench) -> None:
    claim = bench.claim(*bench.free(1))
    before = bench.resolved(bench.prepare(claim))
    bench.unprepare(claim)
    missing = before - bench.resolved(bench.prepare(claim))
    require(not missing, f"{', '.join(sorted(missing))} can't be resolved the second time")


@catalog.check(
    "unprepare.failed-prepare", MUST,
    "A claim whose prepare failed can be unprepared.",
    f"{KUBELET}: unprepare is called for every claim that was tried",
)  # fmt: skip
def failed_prepare(bench: Bench) -> None:
    claim = bench.claim(allocated=False)
    if not bench.refusal(claim, of=claim):
        raise NotApplicable("a claim without an allocation is not refused")
    bench.unprepare(claim)


@catalog.check(
    "unprepare.other-version", MUST,
    "A claim that was prepared by one version of the service can be unprepared by another.",
    f"{KUBELET}: a node's update lies between the two calls",
)  # fmt: skip
def other_version(bench: Bench) -> None:
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
    left = sorted(ids & set(bench.cdi().devices))
    require(not left, f"after NodeUnprepareResources of {other}, {', '.join(left)} is left")


@catalog.check(
    "unprepare.nothing-left", SHOULD,
    "No file is left of claims that came and went.",
    f"{KEP}: what prepare made ready is given back",
)  # fmt: skip
def nothing_left(bench: Bench) -> None:
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


@catalog.check(
    "unprepare.parallel", MUST,
    "Calls for different claims at the same time all succeed.",
    f"{KUBELET}: pods end side by side",
)  # fmt: skip
def parallel(bench: Bench) -> None:
    claims = [bench.claim(device) for device in bench.free(4)]
    for claim in claims:
        bench.prepare(claim)
    with ThreadPoolExecutor(len(claims)) as pool:
        list(pool.map(bench.unprepare, claims))
