"""Checks of faults around a driver: the API server, the kubelet's calls, the disk."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Final

from dralab.contracts import wire
from dralab.contracts.plugin import ClaimRef
from dralab.drivercheck.bench import Bench
from dralab.drivercheck.catalog import KEP, KUBELET, MUST, PLUGIN_PROTO, SHOULD, Catalog
from dralab.drivercheck.devices import ClaimUnderTest
from dralab.drivercheck.gate import ApiFault, claim_reads, every, slice_writes
from dralab.drivercheck.rules import CheckNeed, NotApplicable, fail, require
from dralab.drivercheck.sockets import DriverCallError
from dralab.kernel.clock import SECOND

catalog: Final = Catalog("faults")
API: Final = "Kubernetes API conventions: what a client does on errors"
ROUNDS: Final = 4


# --- the API server -----------------------------------------------------------------------------


@catalog.check(
    SHOULD,
    f"{API}; nodes start before their control plane after a power failure",
    needs=[CheckNeed.RESTART, CheckNeed.API],
    fresh=True,
)
def api_gone_at_start(bench: Bench) -> None:
    """A driver that starts before the API server waits for it, and publishes then."""
    with bench.api.down():
        bench.launch()
        bench.wait(bench.limits.down)
    bench.register()
    bench.until(
        bench.devices, bench.limits.repair, "after the server came back, no device is there"
    )


@catalog.check(
    MUST,
    f"{KUBELET}: the call has 45 s; a container must not start without its devices",
    needs=[CheckNeed.API],
    long=True,
)
def api_gone(bench: Bench) -> None:
    """While the API server is gone, a claim is answered in time, and prepared only if it is
    known.
    """
    claim = bench.claim(*bench.free(1))
    with bench.api.down():
        _errs_or_prepares(bench, claim)
    _later(bench, lambda: bench.refusal(claim, of=claim), "after the server came back")


def _errs_or_prepares(bench: Bench, claim: ClaimUnderTest) -> None:
    try:
        found = bench.call_prepare(claim).get(claim.uid)
    except DriverCallError as error:
        require(error.code != "DEADLINE_EXCEEDED", f"no answer: {error}")
        return
    if found is not None and not found.error:
        names = {device.device for device in found.devices}
        wanted = {str(each["device"]) for each in claim.results}
        require(names == wanted, f"it was prepared without an error, with the devices {names}")


def _later(bench: Bench, refusal: Callable[[], str], when: str) -> None:
    """Require that a claim is not refused any more, at the latest within seconds."""
    end = bench.clock.now() + int(bench.limits.ready / 3 * SECOND)
    while text := refusal():
        require(bench.clock.now() < end, f"{when}, the claim is refused still: {text}")
        bench.wait(0.05)


@catalog.check(
    SHOULD,
    f"{KUBELET}: pods end while the control plane is away; the call has all that is needed",
    needs=[CheckNeed.API],
)
def api_gone_unprepare(bench: Bench) -> None:
    """A claim is unprepared while the API server is gone."""
    claim = bench.claim(*bench.free(1))
    bench.prepare(claim)
    with bench.api.down():
        bench.unprepare(claim)


@catalog.check(
    MUST, f"{KUBELET}: the call has 45 s, the server may take 10 of them", needs=[CheckNeed.API]
)
def api_slow(bench: Bench) -> None:
    """A claim is prepared in time on a slow API server."""
    with bench.api.fault(ApiFault(every, delay=bench.limits.slow)):
        bench.prepare(bench.claim(*bench.free(1)))


@catalog.check(
    MUST, f"{API}: 403; roles are often installed after the driver", needs=[CheckNeed.API]
)
def claim_forbidden(bench: Bench) -> None:
    """A claim that the driver may not read is refused, and prepared once it may."""
    _claim_fault(bench, 403)


@catalog.check(MUST, f"{API}: 500; {KUBELET}: the pod is tried again", needs=[CheckNeed.API])
def claim_error(bench: Bench) -> None:
    """After an internal error of the API server, the claim is prepared the next time."""
    _claim_fault(bench, 500)


def _claim_fault(bench: Bench, status: int) -> None:
    claim = bench.claim(*bench.free(1))
    with bench.api.fault(ApiFault(claim_reads, status=status)) as fault:
        _errs_or_prepares(bench, claim)
    if not fault.hits:
        raise NotApplicable("the driver reads no claim")
    _later(bench, lambda: bench.refusal(claim, of=claim), f"after {status} is over")


for _name, _status, _times, _why in (
    ("conflict", 409, 1, "409; another client was faster"),
    ("busy", 429, 1, "429 with Retry-After; API priority and fairness"),
    ("error", 500, 2, "500"),
):

    @catalog.check(
        MUST,
        f"{API}: {_why}",
        id=f"faults.slices-{_name}",
        sentence=f"A slice whose write is answered with {_status} is published in the end.",
        needs=[CheckNeed.RESTART, CheckNeed.API],
        fresh=True,
    )
    def slices_in_the_end(bench: Bench, status: int = _status, times: int = _times) -> None:
        _publish_in_spite_of(bench, status, times)


@catalog.check(
    SHOULD,
    f"{API}: 403; roles are often installed after the driver",
    needs=[CheckNeed.RESTART, CheckNeed.API],
    fresh=True,
)
def slices_forbidden(bench: Bench) -> None:
    """A driver that may not write slices goes on trying: it may be allowed soon."""
    _publish_in_spite_of(bench, 403, 0, bench.limits.down)


def _publish_in_spite_of(bench: Bench, status: int, times: int, seconds: float = 0.0) -> None:
    """Answer writes of slices with an error, at most `times` (0: all) and at least `seconds`."""
    with bench.api.fault(ApiFault(slice_writes, status=status, times=times)) as fault:
        bench.launch()
        bench.register()
        bench.until(lambda: fault.hits, bench.limits.ready, "it publishes no slice")
        bench.wait(seconds)
    bench.until(
        bench.devices, bench.limits.repair, f"after {status} for a write, no device is published"
    )


# --- the kubelet's calls ------------------------------------------------------------------------


@catalog.check(MUST, f"{KUBELET}: the call is repeated")
def cancelled(bench: Bench) -> None:
    """A claim whose call was broken off can be prepared: the kubelet may restart at any time."""
    claim = bench.claim(*bench.free(1))
    for number in range(ROUNDS):
        connection = bench.connect(bench.plugin.address)
        call = connection.start_call(bench.version, "Prepare", [claim.ref])
        bench.wait(0.01 * number)
        call.cancel()
        connection.close()
    _later(bench, lambda: bench.refusal(claim, of=claim), "after calls that were broken off")


@catalog.check(
    MUST, f"{KEP}: calls are idempotent; a kubelet that restarts repeats what is under way"
)
def duplicates(bench: Bench) -> None:
    """The same call several times at once gets the same answer each time."""
    claim = bench.claim(*bench.free(1))
    with ThreadPoolExecutor(ROUNDS) as pool:
        answers = list(pool.map(bench.prepare, [claim] * ROUNDS))
    ids = {frozenset(n for device in each.devices for n in device.cdi_ids) for each in answers}
    require(len(ids) == 1, f"the answers differ: {[sorted(each) for each in ids]}")


@catalog.check(MUST, f"{KUBELET}: pods come and go side by side")
def both_at_once(bench: Bench) -> None:
    """A claim is prepared while another is unprepared."""
    first, second = (bench.claim(device) for device in bench.free(2))
    for _ in range(ROUNDS):
        bench.prepare(first)
        with ThreadPoolExecutor(2) as pool:
            giving, taking = pool.submit(bench.unprepare, first), pool.submit(bench.prepare, second)
            giving.result()
            taking.result()
        bench.unprepare(second)
        for claim in (first, second):
            bench.forget_claim(claim)
        # The next round has claims of its own.
        first, second = (bench.claim(device) for device in bench.free(2))


@catalog.check(MUST, "gRPC: a server survives what clients send")
def malformed(bench: Bench) -> None:
    """A request that is not a message is refused, and the driver goes on."""
    path = f"/{wire.PLUGIN_SERVICES[bench.version]}/NodePrepareResources"
    code = bench.connection.raw(path, b"\xff\xff\xff\xff", bench.limits.notify)
    require(code != "OK", "a request of four bytes 0xff was answered with OK")
    _goes_on(bench, "a malformed request")


@catalog.check(MUST, f"{PLUGIN_PROTO}: Claim; empty fields are not on the wire")
def nameless(bench: Bench) -> None:
    """A claim without a name is refused, and the driver goes on."""
    connection = bench.connect(bench.plugin.address)
    try:
        found = connection.prepare(bench.version, [ClaimRef("", "", "")])
        require(
            all(answer.error for answer in found.values()),
            "a claim without name and UID was prepared",
        )
    except DriverCallError:
        pass  # the whole call may be refused
    _goes_on(bench, "a claim without a name")


def _goes_on(bench: Bench, what: str) -> None:
    try:
        bench.ping(bench.connect(bench.plugin.address))
    except DriverCallError as error:
        fail(f"since {what} the driver does not answer: {error}")


# --- the disk -----------------------------------------------------------------------------------


@catalog.check(
    MUST,
    "CDI: a container with unresolvable devices can't be created; an error can be read in events",
    needs=[CheckNeed.RESTART, CheckNeed.CDI_PLACE],
)
def cdi_unwritable(bench: Bench) -> None:
    """When CDI files can't be written, the claim is refused, and prepared once they can."""
    first = bench.claim(*bench.free(1))
    if not any(device.cdi_ids for device in bench.prepare(first).devices):
        raise NotApplicable("the driver returns no CDI ids")
    bench.unprepare(first)
    bench.forget_claim(first)
    place = bench.places.cdi
    aside = place.with_name("cdi-aside")
    claim = bench.claim(*bench.free(1))
    place.rename(aside)
    # A file in place of the directory: permissions would not stop a driver that is root.
    place.write_text("not a directory")
    try:
        text = bench.refusal(claim, of=claim)
    finally:
        place.unlink()
        aside.rename(place)
    require(text, "it was prepared without an error, although no CDI file could be written")
    _later(bench, lambda: bench.refusal(claim, of=claim), "after files can be written again")


@catalog.check(
    SHOULD,
    "CDI: /var/run/cdi is on a file system that is empty after each reboot",
    needs=[CheckNeed.RESTART, CheckNeed.CDI_PLACE],
)
def cdi_missing(bench: Bench) -> None:
    """A CDI directory that is missing is made."""
    place = bench.places.cdi
    aside = place.with_name("cdi-aside")
    claim = bench.claim(*bench.free(1))
    place.rename(aside)
    try:
        text = bench.refusal(claim, of=claim)
        require(not text, f"without the directory the claim is refused: {text}")
    finally:
        place.mkdir(exist_ok=True)
        for path in aside.iterdir():
            path.rename(place / path.name)
        aside.rmdir()
