"""Checks of NodePrepareResources with claims that can't be prepared.

Each of them is refused, and it is an error of that claim alone: the other claims of the call are
prepared.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from dralab.drivercheck.bench import Bench
from dralab.drivercheck.catalog import (
    KEP,
    LIBRARY,
    MUST,
    PLUGIN_PROTO,
    SHOULD,
    TYPES,
    Catalog,
    Level,
)
from dralab.drivercheck.devices import ClaimUnderTest, Published
from dralab.drivercheck.rules import NotApplicable, fail, require
from dralab.drivercheck.sockets import DriverCallError
from dralab.values.json_types import JsonDict

catalog: Final = Catalog("prepare")
NONSENSE: Final[JsonDict] = {"apiVersion": "nonsense.dralab.dev/v0", "kind": "Nonsense"}
OTHER_DRIVER: Final = "other.example.com"


@dataclass(frozen=True, slots=True, kw_only=True)
class BadClaim:
    """A kind of claim that a driver has to refuse; `alone` is the level of the second rule."""

    id: str
    what: str
    make: Callable[[Bench, Published], ClaimUnderTest]
    sentence: str
    source: str
    level: Level = MUST
    alone: Level | None = SHOULD


def config_of(bench: Bench, parameters: JsonDict, driver: str = "") -> JsonDict:
    """Return an entry of an allocation's config with opaque parameters."""
    name = driver or str(bench.slices()[0]["spec"]["driver"])
    return {"source": "FromClaim", "opaque": {"driver": name, "parameters": parameters}}


def _replaced(bench: Bench, device: Published) -> ClaimUnderTest:
    """Return a claim that was deleted and created again: the call has the old UID."""
    old = bench.claim(device)
    bench.forget_claim(old)
    bench.claim(device, name=old.ref.name)
    return old


def _unallocated(bench: Bench, device: Published) -> ClaimUnderTest:
    del device
    return bench.claim(allocated=False)


def _missing(bench: Bench, device: Published) -> ClaimUnderTest:
    claim = bench.claim(device)
    bench.forget_claim(claim)
    return claim


def _unknown_device(bench: Bench, device: Published) -> ClaimUnderTest:
    missing = Published(device.pool, "no-such-device", {"name": "no-such-device"})
    return bench.claim(missing)


def _bad_config(bench: Bench, device: Published) -> ClaimUnderTest:
    return bench.claim(device, configs=[config_of(bench, NONSENSE)])


BAD_CLAIMS: Final = (
    BadClaim(
        id="prepare.wrong-uid",
        what="a claim that was replaced",
        make=_replaced,
        sentence="A claim that was deleted and created again under its name is refused: "
        "the UID differs.",
        source=f"{LIBRARY}: claim <namespace>/<name> got replaced",
    ),
    BadClaim(
        id="prepare.unallocated",
        what="a claim without an allocation",
        make=_unallocated,
        sentence="A claim without an allocation is refused.",
        source=f"{LIBRARY}: claim <namespace>/<name> not allocated",
    ),
    BadClaim(
        id="prepare.missing",
        what="a claim that does not exist",
        make=_missing,
        sentence="A claim that does not exist is refused.",
        source=f"{LIBRARY}: retrieve claim <namespace>/<name>",
        alone=None,
    ),
    BadClaim(
        id="prepare.unknown-device",
        what="a claim for an unknown device",
        make=_unknown_device,
        sentence="A claim whose device the driver does not have is refused.",
        source=f"{KEP}: slices may be older than the hardware; a container must not start "
        "without its device",
        alone=MUST,
    ),
    BadClaim(
        id="prepare.bad-config",
        what="a claim with the parameters nonsense.dralab.dev/v0, Nonsense,",
        make=_bad_config,
        sentence="Opaque parameters of the driver that it does not understand are refused.",
        source=f"{TYPES}: OpaqueDeviceConfiguration.parameters: the driver validates them",
        level=SHOULD,
    ),
)


def _add_checks(bad: BadClaim) -> None:
    @catalog.check(bad.level, bad.source, id=bad.id, sentence=bad.sentence)
    def refused(bench: Bench) -> None:
        require_refusal(bench, bad.make(bench, bench.free(1)[0]), bad.what)

    if bad.alone is None:
        return

    @catalog.check(
        bad.alone,
        f"{PLUGIN_PROTO}: NodePrepareResourceResponse.error is per claim",
        id=f"{bad.id}-alone",
        sentence=f"In a call with another claim, only {bad.what.rstrip(',')} is refused.",
    )
    def alone(bench: Bench) -> None:
        first, second = bench.free(2)
        good, wrong = bench.claim(first), bad.make(bench, second)
        try:
            found = bench.call_prepare(good, wrong)
        except DriverCallError as error:
            fail(f"{bad.what} makes the whole call fail, also for the other claim: {error}")
        answer = found.get(good.uid)
        if answer is None:
            fail(f"beside {bad.what}, the other claim is not answered")
        require(not answer.error, f"beside {bad.what}, the other claim is refused: {answer.error}")


def require_refusal(bench: Bench, claim: ClaimUnderTest, what: str) -> None:
    """Require that a claim is refused. CheckFailed: it is prepared."""
    require(bench.refusal(claim, of=claim), f"{what} was prepared without an error")


for _bad in BAD_CLAIMS:
    _add_checks(_bad)


@catalog.check(MUST, f"{TYPES}: OpaqueDeviceConfiguration.driver")
def foreign_config(bench: Bench) -> None:
    """Opaque parameters of other drivers are ignored."""
    config = config_of(bench, NONSENSE, OTHER_DRIVER)
    bench.prepare(bench.claim(*bench.free(1), configs=[config]))


@catalog.check(
    SHOULD, f"{KEP}: the last line of defence, after a force-deletion or a fault of the scheduler"
)
def exclusive(bench: Bench) -> None:
    """A device that another claim holds is refused."""
    device = unshared(bench)
    bench.prepare(bench.claim(device))
    require_refusal(bench, bench.claim(device), f"a second claim for {device.name}")


@catalog.check(MUST, f"{LIBRARY}; the kubelet tries the pod again, with the same claim")
def after_failure(bench: Bench) -> None:
    """A claim that could not be prepared can be prepared later."""
    [device] = bench.free(1)
    claim = refused_claim(bench)
    bench.allocate(claim, device)
    bench.prepare(claim)


def refused_claim(bench: Bench) -> ClaimUnderTest:
    """Return a claim that the driver refused, because it has no allocation. NotApplicable."""
    claim = bench.claim(allocated=False)
    if not bench.refusal(claim, of=claim):
        raise NotApplicable("a claim without an allocation is not refused")
    return claim


def unshared(bench: Bench) -> Published:
    """Return a device that one claim alone may hold. NotApplicable: there is none."""
    device = next((each for each in bench.free(1) if not each.shared), None)
    if device is None:
        raise NotApplicable("all devices may be shared")
    return device
