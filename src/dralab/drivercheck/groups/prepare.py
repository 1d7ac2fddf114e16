"""Checks of NodePrepareResources: answers, the claims that are refused, and CDI."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Final

from dralab.contracts.cdi import DEVICE_NAME, NAME
from dralab.contracts.plugin import PreparedDevice, PrepareResult
from dralab.drivercheck.bench import OTHER_NAMESPACE, Bench
from dralab.drivercheck.catalog import MUST, SHOULD, Catalog
from dralab.drivercheck.devices import ClaimUnderTest, Published
from dralab.drivercheck.rules import NotApplicable, fail, require
from dralab.drivercheck.sockets import DriverCallError
from dralab.values.json_types import JsonDict

catalog: Final = Catalog()
PROTO: Final = "k8s.io/kubelet/pkg/apis/dra/v1/api.proto"
KUBELET: Final = "kubernetes/pkg/kubelet/cm/dra/manager.go"
LIBRARY: Final = "k8s.io/dynamic-resource-allocation/kubeletplugin/draplugin.go"
KEP: Final = "KEP-4381"
TYPES: Final = "k8s.io/api/resource/v1/types.go"
OTHER_DRIVER: Final = "other.example.com"
# The longest name that a claim can have, and a pod's name within it.
LONG_NAME: Final = "claim-" + "x" * 57 + (".part-" + "y" * 50) * 3
BATCH: Final = 6


def devices_of(result: PrepareResult) -> list[tuple[str, str]]:
    """Return the devices of an answer as pairs of pool and name, sorted."""
    return sorted((device.pool, device.device) for device in result.devices)


def wanted_of(claim: ClaimUnderTest) -> list[tuple[str, str]]:
    """Return the devices that a claim was allocated, as pairs of pool and name, sorted."""
    return sorted((str(each["pool"]), str(each["device"])) for each in claim.results)


def config_of(bench: Bench, parameters: JsonDict, driver: str = "") -> JsonDict:
    """Return an entry of an allocation's config with opaque parameters."""
    name = driver or str(bench.slices()[0]["spec"]["driver"])
    return {"source": "FromClaim", "opaque": {"driver": name, "parameters": parameters}}


NONSENSE: Final[JsonDict] = {"apiVersion": "nonsense.dralab.dev/v0", "kind": "Nonsense"}


@catalog.check(
    "prepare.devices", MUST,
    "An allocated claim is prepared: the answer has its devices, with pool and name, and no other.",
    f"{PROTO}: Device.pool_name, device_name",
)  # fmt: skip
def prepared_devices(bench: Bench) -> None:
    claim = bench.claim(*bench.free(1))
    found = bench.prepare(claim)
    require(
        devices_of(found) == wanted_of(claim),
        f"the claim has {wanted_of(claim)}, and the answer {devices_of(found)}",
    )


@catalog.check(
    "prepare.every-claim", MUST,
    "Every claim of a call is answered.",
    f"{KUBELET}: NodePrepareResources skipped <n> ResourceClaims",
)  # fmt: skip
def every_claim(bench: Bench) -> None:
    claims = [bench.claim(device) for device in bench.free(2)]
    found = bench.call_prepare(*claims)
    missing = [claim.ref.name for claim in claims if claim.uid not in found]
    require(not missing, f"the answer skips {', '.join(missing)}")


@catalog.check(
    "prepare.no-other-claim", MUST,
    "No claim is answered that was not asked for.",
    f"{KUBELET}: NodePrepareResources returned result for unknown claim UID",
)  # fmt: skip
def no_other_claim(bench: Bench) -> None:
    claim = bench.claim(*bench.free(1))
    others = sorted(set(bench.call_prepare(claim)) - {claim.uid})
    require(not others, f"the answer has the unknown claim UIDs {', '.join(others)}")


@catalog.check(
    "prepare.no-claims", MUST,
    "A call without claims is answered without claims.",
    f"{PROTO}: NodePrepareResourcesRequest.claims is a list; health checks of drivers do it",
)  # fmt: skip
def no_claims(bench: Bench) -> None:
    try:
        found = bench.connection.prepare(bench.version, [])
    except DriverCallError as error:
        fail(f"a call without claims failed: {error}")
    require(not found, f"a call without claims is answered with {', '.join(found)}")


@catalog.check(
    "prepare.several-devices", MUST,
    "A claim with two requests gets the devices of both.",
    f"{KEP}: a claim has up to 32 results",
)  # fmt: skip
def several_devices(bench: Bench) -> None:
    claim = bench.claim(*bench.free(2))
    found = bench.prepare(claim)
    require(
        devices_of(found) == wanted_of(claim),
        f"the claim has {wanted_of(claim)}, and the answer {devices_of(found)}",
    )


@catalog.check(
    "prepare.request-names", MUST,
    "request_names of a device name the request that it was allocated for, or nothing.",
    f"{PROTO}: Device.request_names; the kubelet gives a container the devices of its request",
)  # fmt: skip
def request_names(bench: Bench) -> None:
    claim = bench.claim(*bench.free(2))
    requests = {(e["pool"], e["device"]): e["request"] for e in claim.results}
    for device in bench.prepare(claim).devices:
        wanted = requests.get((device.pool, device.device))
        require(
            not device.requests or wanted is None or device.requests == (wanted,),
            f"{device.device} is of the request {wanted}, and request_names is {device.requests}",
        )


@catalog.check(
    "prepare.subrequests", MUST,
    "For a result of a subrequest, request/alternative, request_names has the request alone.",
    f"{LIBRARY}: everything from the slash on is cut off; the kubelet knows no alternatives",
)  # fmt: skip
def subrequests(bench: Bench) -> None:
    claim = bench.claim(*bench.free(1), alternative="second-best")
    for device in bench.prepare(claim).devices:
        require(
            all("/" not in name for name in device.requests),
            f"request_names of {device.device} is {device.requests}: no container refers to that",
        )


@catalog.check(
    "prepare.versions-agree", MUST,
    "All versions of the service prepare a claim in the same way.",
    f"{KUBELET}: after an update a kubelet may use another version for a prepared claim",
)  # fmt: skip
def versions_agree(bench: Bench) -> None:
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
    "prepare.again", MUST,
    "A claim that is prepared already gets the same answer again.",
    f"{KUBELET}: a kubelet that restarts prepares again; {KEP}: the call must be idempotent",
)  # fmt: skip
def again(bench: Bench) -> None:
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
    "prepare.again-restores", MUST,
    "Preparing a claim again writes CDI files that are lost.",
    "kubernetes/kubernetes#141433: /var/run/cdi is empty after a reboot, checkpoints are not",
)  # fmt: skip
def again_restores(bench: Bench) -> None:
    if bench.surroundings is not None:
        raise NotApplicable("the bench deletes no files of a machine that others use")
    claim = bench.claim(*bench.free(1))
    before = bench.resolved(bench.prepare(claim))
    if not before:
        raise NotApplicable("the driver returns no CDI ids")
    for path in bench.places.cdi.iterdir():
        path.unlink()
    missing = before - bench.resolved(bench.prepare(claim))
    require(not missing, f"{', '.join(sorted(missing))} can't be resolved: the file is not back")


@catalog.check(
    "prepare.after-failure", MUST,
    "A claim that could not be prepared can be prepared later.",
    f"{KUBELET}: the pod is tried again, with the same claim",
)  # fmt: skip
def after_failure(bench: Bench) -> None:
    [device] = bench.free(1)
    claim = bench.claim(allocated=False)
    if not bench.refusal(claim, of=claim):
        raise NotApplicable("a claim without an allocation is not refused")
    bench.allocate(claim, device)
    bench.prepare(claim)


# --- claims that can't be prepared -------------------------------------------------------------


def _refused(bench: Bench, claim: ClaimUnderTest, what: str) -> None:
    require(bench.refusal(claim, of=claim), f"{what} was prepared without an error")


def _alone(bench: Bench, bad: Callable[[Bench, Published], ClaimUnderTest], what: str) -> None:
    """Require that a bad claim of a call leaves the good one alone."""
    first, second = bench.free(2)
    good, wrong = bench.claim(first), bad(bench, second)
    try:
        found = bench.call_prepare(good, wrong)
    except DriverCallError as error:
        fail(f"{what} makes the whole call fail, also for the other claim: {error}")
    answer = found.get(good.uid)
    require(answer is not None, f"beside {what}, the other claim is not answered")
    if answer is not None:
        require(not answer.error, f"beside {what}, the other claim is refused: {answer.error}")


def _replaced(bench: Bench, device: Published) -> ClaimUnderTest:
    """Return a claim that was deleted and created again: the call has the old UID."""
    old = bench.claim(device)
    bench.forget_claim(old)
    bench.claim(device, name=old.ref.name)
    return old


def _unallocated(bench: Bench, device: Published) -> ClaimUnderTest:
    del device
    return bench.claim(allocated=False)


def _unknown_device(bench: Bench, device: Published) -> ClaimUnderTest:
    missing = Published(device.pool, "no-such-device", {"name": "no-such-device"})
    return bench.claim(missing)


def _bad_config(bench: Bench, device: Published) -> ClaimUnderTest:
    return bench.claim(device, configs=[config_of(bench, NONSENSE)])


@catalog.check(
    "prepare.wrong-uid", MUST,
    "A claim that was deleted and created again under its name is refused: the UID differs.",
    f"{LIBRARY}: claim <namespace>/<name> got replaced",
)  # fmt: skip
def wrong_uid(bench: Bench) -> None:
    _refused(bench, _replaced(bench, bench.free(1)[0]), "the UID of a claim that was replaced")


@catalog.check(
    "prepare.wrong-uid-alone", SHOULD,
    "A claim with another UID is an error of that claim alone.",
    f"{PROTO}: NodePrepareResourceResponse.error is per claim",
)  # fmt: skip
def wrong_uid_alone(bench: Bench) -> None:
    _alone(bench, _replaced, "a claim that was replaced")


@catalog.check(
    "prepare.unallocated", MUST,
    "A claim without an allocation is refused.",
    f"{LIBRARY}: claim <namespace>/<name> not allocated",
)  # fmt: skip
def unallocated(bench: Bench) -> None:
    _refused(bench, bench.claim(allocated=False), "a claim without an allocation")


@catalog.check(
    "prepare.unallocated-alone", SHOULD,
    "A claim without an allocation is an error of that claim alone.",
    f"{PROTO}: NodePrepareResourceResponse.error is per claim",
)  # fmt: skip
def unallocated_alone(bench: Bench) -> None:
    _alone(bench, _unallocated, "a claim without an allocation")


@catalog.check(
    "prepare.missing", MUST,
    "A claim that does not exist is refused.",
    f"{LIBRARY}: retrieve claim <namespace>/<name>",
)  # fmt: skip
def missing_claim(bench: Bench) -> None:
    claim = bench.claim(*bench.free(1))
    bench.forget_claim(claim)
    _refused(bench, claim, "a claim that does not exist")


@catalog.check(
    "prepare.unknown-device", MUST,
    "A claim whose device the driver does not have is refused.",
    f"{KEP}: slices may be older than the hardware; a container must not start without its device",
)  # fmt: skip
def unknown_device(bench: Bench) -> None:
    _refused(bench, _unknown_device(bench, bench.free(1)[0]), "a claim for an unknown device")


@catalog.check(
    "prepare.unknown-device-alone", MUST,
    "An unknown device is an error of its claim alone.",
    f"{PROTO}: NodePrepareResourceResponse.error is per claim",
)  # fmt: skip
def unknown_device_alone(bench: Bench) -> None:
    _alone(bench, _unknown_device, "a claim for an unknown device")


@catalog.check(
    "prepare.bad-config", SHOULD,
    "Opaque parameters of the driver that it does not understand are refused.",
    f"{TYPES}: OpaqueDeviceConfiguration.parameters: the driver validates them",
)  # fmt: skip
def bad_config(bench: Bench) -> None:
    claim = _bad_config(bench, bench.free(1)[0])
    _refused(bench, claim, "a claim with the parameters nonsense.dralab.dev/v0, Nonsense,")


@catalog.check(
    "prepare.bad-config-alone", SHOULD,
    "Wrong parameters are an error of their claim alone.",
    f"{PROTO}: NodePrepareResourceResponse.error is per claim",
)  # fmt: skip
def bad_config_alone(bench: Bench) -> None:
    _alone(bench, _bad_config, "a claim with wrong parameters")


@catalog.check(
    "prepare.foreign-config", MUST,
    "Opaque parameters of other drivers are left to them.",
    f"{TYPES}: OpaqueDeviceConfiguration.driver",
)  # fmt: skip
def foreign_config(bench: Bench) -> None:
    config = config_of(bench, NONSENSE, OTHER_DRIVER)
    bench.prepare(bench.claim(*bench.free(1), configs=[config]))


@catalog.check(
    "prepare.foreign-results", MUST,
    "In a claim with devices of several drivers, each driver prepares its own.",
    f"{TYPES}: DeviceRequestAllocationResult.driver",
)  # fmt: skip
def foreign_results(bench: Bench) -> None:
    other = {"request": "rx", "driver": OTHER_DRIVER, "pool": "other", "device": "other-0"}
    found = devices_of(bench.prepare(bench.claim(*bench.free(1), more=[other])))
    require(("other", "other-0") not in found, f"the answer has a device of {OTHER_DRIVER}")


@catalog.check(
    "prepare.exclusive", SHOULD,
    "A device that another claim holds is refused.",
    f"{KEP}: the last line of defence, after a force-deletion or a fault of the scheduler",
)  # fmt: skip
def exclusive(bench: Bench) -> None:
    device = _unshared(bench)
    first, second = bench.claim(device), bench.claim(device)
    bench.prepare(first)
    _refused(bench, second, f"a second claim for {device.name}")


def _unshared(bench: Bench) -> Published:
    device = next((each for each in bench.free(1) if not each.shared), None)
    if device is None:
        raise NotApplicable("every device may be shared")
    return device


@catalog.check(
    "prepare.admin-access", MUST,
    "A claim with adminAccess is prepared for a device that another claim holds.",
    f"{TYPES}: DeviceRequestAllocationResult.adminAccess; KEP-5018",
)  # fmt: skip
def admin_access(bench: Bench) -> None:
    device = _unshared(bench)
    bench.prepare(bench.claim(device))
    bench.prepare(bench.claim(device, admin=True))


@catalog.check(
    "prepare.shares", MUST,
    "Two claims may have shares of one device, and share_id tells them apart.",
    f"{PROTO}: Device.share_id; KEP-5075: consumable capacity",
)  # fmt: skip
def shares(bench: Bench) -> None:
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


@catalog.check(
    "prepare.same-name", MUST,
    "Claims of the same name in two namespaces are told apart.",
    f"{PROTO}: Claim.namespace, uid, name",
)  # fmt: skip
def same_name(bench: Bench) -> None:
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


@catalog.check(
    "prepare.long-name", MUST,
    "A claim with a name of over 200 characters is prepared.",
    "Kubernetes: names have up to 253 characters; file names made of them may not",
)  # fmt: skip
def long_name(bench: Bench) -> None:
    bench.prepare(bench.claim(*bench.free(1), name=LONG_NAME))


# --- CDI -----------------------------------------------------------------------------------------


def _ids(result: PrepareResult) -> list[str]:
    return [name for device in result.devices for name in device.cdi_ids]


def _with_ids(bench: Bench) -> tuple[ClaimUnderTest, PrepareResult]:
    claim = bench.claim(*bench.free(1))
    found = bench.prepare(claim)
    if not _ids(found):
        raise NotApplicable("the driver returns no CDI ids")
    return claim, found


@catalog.check(
    "prepare.cdi-names", MUST,
    "CDI ids are qualified names: vendor/class=device.",
    "CDI specification: qualified device names; kubernetes/pkg/kubelet/cm/dra",
)  # fmt: skip
def cdi_names(bench: Bench) -> None:
    for name in _ids(_with_ids(bench)[1]):
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
    "prepare.cdi-resolved", MUST,
    "When the call is answered, each CDI id is in a file of the CDI directory.",
    "CDI: unresolvable CDI devices; the runtime reads the files right after the answer",
)  # fmt: skip
def cdi_resolved(bench: Bench) -> None:
    result = _with_ids(bench)[1]
    if errors := bench.cdi().errors:
        raise NotApplicable(f"CDI files are invalid: {', '.join(errors)}")
    missing = {name for name in _ids(result) if _qualified(name)} - bench.resolved(result)
    paths = ", ".join(map(str, bench.cdi_paths))
    require(not missing, f"{', '.join(sorted(missing))} is in no file of {paths}")


@catalog.check(
    "prepare.cdi-valid", MUST,
    "The CDI files are valid: known fields, kinds and versions, and no device twice.",
    "CDI specification 1.1.0; a runtime ignores an invalid file whole",
)  # fmt: skip
def cdi_valid(bench: Bench) -> None:
    _with_ids(bench)
    for path, error in bench.cdi().errors.items():
        fail(f"{path}: {error}")


@catalog.check(
    "prepare.cdi-of-claim", SHOULD,
    "Two claims have no claim-specific CDI device in common: a stale file can't do harm.",
    f"{KEP}: the claim's UID belongs into the names of CDI devices",
)  # fmt: skip
def cdi_of_claim(bench: Bench) -> None:
    device = _unshared(bench)
    first = bench.claim(device)
    one = set(_ids(bench.prepare(first)))
    bench.unprepare(first)
    second = bench.claim(device)
    other = set(_ids(bench.call_prepare(second).get(second.uid, PrepareResult())))
    if not one or not other:
        raise NotApplicable("the driver returns no CDI ids, or refuses the second claim")
    require(one - other, f"both claims get {', '.join(sorted(one))}")


@catalog.check(
    "prepare.cdi-own-first", SHOULD,
    "The first CDI id of a device belongs to it alone.",
    "kubernetes/pkg/kubelet/cm/dra/manager.go: by the first id the pod's status tells devices' "
    "health apart",
)  # fmt: skip
def cdi_own_first(bench: Bench) -> None:
    found = bench.prepare(bench.claim(*bench.free(2)))
    firsts = [device.cdi_ids[0] for device in found.devices if device.cdi_ids]
    require(
        len(set(firsts)) == len(firsts),
        f"the first id is {', '.join(sorted(set(firsts)))} for {len(firsts)} devices",
    )


# --- time ----------------------------------------------------------------------------------------


@catalog.check(
    "prepare.in-time", MUST,
    f"A call with {BATCH} claims is answered within 45 s.",
    f"{KUBELET}: the time-out of NodePrepareResources",
)  # fmt: skip
def in_time(bench: Bench) -> None:
    claims = [bench.claim(device) for device in bench.free(BATCH)]
    try:
        found = bench.call_prepare(*claims)
    except DriverCallError as error:
        fail(f"{len(claims)} claims in {bench.limits.call:g} s: {error}")
    failed = [found[claim.uid].error for claim in claims if claim.uid in found]
    require(not any(failed), f"claims were refused: {'; '.join(filter(None, failed))}")


@catalog.check(
    "prepare.parallel", MUST,
    "Calls for different claims at the same time all succeed.",
    f"{KUBELET}: pods start side by side",
)  # fmt: skip
def parallel(bench: Bench) -> None:
    claims = [bench.claim(device) for device in bench.free(4)]
    with ThreadPoolExecutor(len(claims)) as pool:
        list(pool.map(bench.prepare, claims))
