"""Checks of NodePrepareResources: the devices of an answer, repeated calls, names and CDI."""

from typing import Final

from dralab.contracts.cdi import DEVICE_NAME, NAME
from dralab.contracts.plugin import PreparedDevice, PrepareResult
from dralab.drivercheck.bench import Bench
from dralab.drivercheck.catalog import (
    KEP,
    KUBELET,
    LIBRARY,
    MUST,
    PLUGIN_PROTO,
    SHOULD,
    TYPES,
    Catalog,
)
from dralab.drivercheck.cdi_ids import require_resolved
from dralab.drivercheck.check_node import OTHER_NAMESPACE
from dralab.drivercheck.devices import ClaimUnderTest
from dralab.drivercheck.groups.bad_claims import OTHER_DRIVER, unshared
from dralab.drivercheck.rules import NotApplicable, fail, require
from dralab.drivercheck.sockets import DriverCallError

catalog: Final = Catalog("prepare")
# The longest name that a claim can have, and a pod's name within it.
LONG_NAME: Final = "claim-" + "x" * 57 + (".part-" + "y" * 50) * 3
BATCH: Final = 6


def _require_devices(claim: ClaimUnderTest, result: PrepareResult) -> None:
    wanted = sorted((str(each["pool"]), str(each["device"])) for each in claim.results)
    found = sorted((device.pool, device.device) for device in result.devices)
    require(found == wanted, f"the claim has {wanted}, and the answer {found}")


@catalog.check(MUST, f"{PLUGIN_PROTO}: Device.pool_name, device_name", id="prepare.devices")
def prepared_devices(bench: Bench) -> None:
    """An allocated claim is prepared: the answer has its devices, with pool and name, and no
    other.
    """
    claim = bench.claim(*bench.free(1))
    _require_devices(claim, bench.prepare(claim))


@catalog.check(MUST, f"{KEP}: a claim has up to 32 results")
def several_devices(bench: Bench) -> None:
    """A claim with two requests gets the devices of both."""
    claim = bench.claim(*bench.free(2))
    _require_devices(claim, bench.prepare(claim))


@catalog.check(
    MUST, f"{PLUGIN_PROTO}: Device.request_names; a container gets the devices of its request"
)
def request_names(bench: Bench) -> None:
    """request_names of a device name the request that it was allocated for, or nothing."""
    claim = bench.claim(*bench.free(2))
    requests = {(e["pool"], e["device"]): e["request"] for e in claim.results}
    for device in bench.prepare(claim).devices:
        wanted = requests.get((device.pool, device.device))
        require(
            not device.requests or wanted is None or device.requests == (wanted,),
            f"{device.device} is of the request {wanted}, and request_names is {device.requests}",
        )


@catalog.check(
    MUST, f"{LIBRARY}: everything from the slash on is cut off; the kubelet knows no alternatives"
)
def subrequests(bench: Bench) -> None:
    """For a result of a subrequest, request/alternative, request_names has the request alone."""
    claim = bench.claim(*bench.free(1), alternative="second-best")
    for device in bench.prepare(claim).devices:
        require(
            all("/" not in name for name in device.requests),
            f"request_names of {device.device} is {device.requests}: no container refers to that",
        )


@catalog.check(
    MUST, f"{KUBELET}: after an update a kubelet may use another version for a prepared claim"
)
def versions_agree(bench: Bench) -> None:
    """All versions of the service prepare a claim in the same way."""
    versions = bench.plugin.plugin_versions
    if len(versions) < 2:
        raise NotApplicable("the driver offers one version")
    claim = bench.claim(*bench.free(1))
    bench.prepare(claim)
    answers = []
    for version in versions:
        try:
            answers.append(bench.call_prepare(claim, version=version).get(claim.uid))
        except DriverCallError as error:
            if error.code == "UNIMPLEMENTED":
                raise NotApplicable(f"{version} is not served") from error
            raise
    require(
        answers[0] == answers[1],
        f"{versions[0]} answers {answers[0]}, and {versions[1]} {answers[1]}",
    )


# --- again and again ---------------------------------------------------------------------------


@catalog.check(
    MUST, f"{KUBELET}: a kubelet that restarts prepares again; {KEP}: the call must be idempotent"
)
def again(bench: Bench) -> None:
    """A claim that is prepared already gets the same answer again."""
    claim = bench.claim(*bench.free(1))
    first = bench.prepare(claim)
    second = bench.prepare(claim, on=bench.connect(bench.plugin.address))
    require(
        _sorted(first) == _sorted(second),
        f"the first answer is {_sorted(first)}, the second {_sorted(second)}",
    )


def _sorted(result: PrepareResult) -> list[PreparedDevice]:
    return sorted(result.devices, key=lambda each: (each.pool, each.device, each.share_id))


@catalog.check(
    MUST, "kubernetes/kubernetes#141433: /var/run/cdi is empty after a reboot, checkpoints are not"
)
def again_restores(bench: Bench) -> None:
    """Preparing a claim again writes CDI files that are lost."""
    if bench.surroundings is not None:
        raise NotApplicable("the bench deletes no files of a machine that others use")
    claim = bench.claim(*bench.free(1))
    before = bench.resolved(bench.prepare(claim))
    if not before:
        raise NotApplicable("the driver returns no CDI ids")
    for path in bench.places.cdi.iterdir():
        path.unlink()
    require_resolved(bench, before, bench.prepare(claim), "after the CDI files were deleted")


@catalog.check(MUST, f"{TYPES}: DeviceRequestAllocationResult.driver")
def foreign_results(bench: Bench) -> None:
    """In a claim with devices of several drivers, each driver prepares its own."""
    other = {"request": "rx", "driver": OTHER_DRIVER, "pool": "other", "device": "other-0"}
    devices = bench.prepare(bench.claim(*bench.free(1), more=[other])).devices
    found = [(device.pool, device.device) for device in devices]
    require(("other", "other-0") not in found, f"the answer has a device of {OTHER_DRIVER}")


@catalog.check(MUST, f"{TYPES}: DeviceRequestAllocationResult.adminAccess; KEP-5018")
def admin_access(bench: Bench) -> None:
    """A claim with adminAccess is prepared for a device that another claim holds."""
    device = unshared(bench)
    bench.prepare(bench.claim(device))
    bench.prepare(bench.claim(device, admin=True))


@catalog.check(MUST, f"{PLUGIN_PROTO}: Device.share_id; KEP-5075: consumable capacity")
def shares(bench: Bench) -> None:
    """Two claims may have shares of one device, and share_id tells them apart."""
    device = next((each for each in bench.devices() if each.shared), None)
    if device is None:
        raise NotApplicable("no device allows multiple allocations")
    if bench.version != "v1.DRAPlugin":
        raise NotApplicable(f"{bench.version} knows no share_id")
    for claim in (bench.claim(device), bench.claim(device)):
        wanted = str(claim.results[0]["shareID"])
        found = {each.share_id for each in bench.prepare(claim).devices}
        require(found == {wanted}, f"the shareID is {wanted}, and the answer has {found}")


# --- names ---------------------------------------------------------------------------------------


@catalog.check(MUST, f"{PLUGIN_PROTO}: Claim.namespace, uid, name")
def same_name(bench: Bench) -> None:
    """Claims of the same name in two namespaces are told apart."""
    first, second = bench.free(2)
    one = bench.claim(first, name="same-name")
    other = bench.claim(second, name="same-name", namespace=OTHER_NAMESPACE)
    for claim in (one, other):
        found = [device.device for device in bench.prepare(claim).devices]
        wanted = [str(each["device"]) for each in claim.results]
        require(
            found == wanted,
            f"{claim.ref.namespace}/{claim.ref.name} has {wanted}, and the answer {found}",
        )


@catalog.check(MUST, "Kubernetes: names have up to 253 characters; file names made of them may not")
def long_name(bench: Bench) -> None:
    """A claim with a name of over 200 characters is prepared."""
    bench.prepare(bench.claim(*bench.free(1), name=LONG_NAME))


# --- CDI -----------------------------------------------------------------------------------------


def _with_ids(bench: Bench) -> PrepareResult:
    found = bench.prepare(bench.claim(*bench.free(1)))
    if not found.cdi_ids:
        raise NotApplicable("the driver returns no CDI ids")
    return found


@catalog.check(MUST, "CDI specification: qualified device names; kubernetes/pkg/kubelet/cm/dra")
def cdi_names(bench: Bench) -> None:
    """CDI ids are qualified names: vendor/class=device."""
    for name in sorted(_with_ids(bench).cdi_ids):
        require(_qualified(name), f"{name!r} is not vendor/class=device")


def _qualified(name: str) -> bool:
    kind, equals, device = name.partition("=")
    vendor, slash, class_ = kind.partition("/")
    return bool(
        equals
        and slash
        and NAME.fullmatch(vendor)
        and NAME.fullmatch(class_)
        and DEVICE_NAME.fullmatch(device)
    )


@catalog.check(
    MUST, "CDI: unresolvable CDI devices; the runtime reads the files right after the answer"
)
def cdi_resolved(bench: Bench) -> None:
    """When the call is answered, each CDI id is in a file of the CDI directory."""
    result = _with_ids(bench)
    if errors := bench.cdi().errors:
        raise NotApplicable(f"CDI files are invalid: {', '.join(errors)}")
    missing = {name for name in result.cdi_ids if _qualified(name)} - bench.resolved(result)
    paths = ", ".join(map(str, bench.cdi_paths))
    require(not missing, f"{', '.join(sorted(missing))} is in no file of {paths}")


@catalog.check(MUST, "CDI specification 1.1.0; a runtime ignores an invalid file whole")
def cdi_valid(bench: Bench) -> None:
    """The CDI files are valid: known fields, kinds and versions, and no device twice."""
    _with_ids(bench)
    for path, error in bench.cdi().errors.items():
        fail(f"{path}: {error}")


@catalog.check(SHOULD, f"{KEP}: the claim's UID belongs into the names of CDI devices")
def cdi_of_claim(bench: Bench) -> None:
    """Two claims have no claim-specific CDI device in common: a stale file can't do harm."""
    device = unshared(bench)
    first = bench.claim(device)
    one = bench.prepare(first).cdi_ids
    bench.unprepare(first)
    second = bench.claim(device)
    other = bench.call_prepare(second).get(second.uid, PrepareResult()).cdi_ids
    if not one or not other:
        raise NotApplicable("the driver returns no CDI ids, or refuses the second claim")
    require(one - other, f"both claims get {', '.join(sorted(one))}")


@catalog.check(
    SHOULD,
    "kubernetes/pkg/kubelet/cm/dra/manager.go: by the first id the pod's status tells devices' "
    "health apart",
)
def cdi_own_first(bench: Bench) -> None:
    """The first CDI id of a device belongs to it alone."""
    found = bench.prepare(bench.claim(*bench.free(2)))
    firsts = [device.cdi_ids[0] for device in found.devices if device.cdi_ids]
    require(
        len(set(firsts)) == len(firsts),
        f"the first id is {', '.join(sorted(set(firsts)))} for {len(firsts)} devices",
    )


# --- time ----------------------------------------------------------------------------------------


@catalog.check(
    MUST,
    f"{KUBELET}: the time-out of NodePrepareResources",
    sentence=f"A call with {BATCH} claims is answered within 45 s.",
)
def in_time(bench: Bench) -> None:
    claims = [bench.claim(device) for device in bench.free(BATCH)]
    try:
        found = bench.call_prepare(*claims)
    except DriverCallError as error:
        fail(f"{len(claims)} claims in {bench.limits.call:g} s: {error}")
    failed = [found[claim.uid].error for claim in claims if claim.uid in found]
    require(not any(failed), f"claims were refused: {'; '.join(filter(None, failed))}")
