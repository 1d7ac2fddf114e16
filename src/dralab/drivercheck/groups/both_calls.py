"""Checks of NodePrepareResources and NodeUnprepareResources: which claims an answer has."""

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Final

from dralab.drivercheck.bench import Bench
from dralab.drivercheck.catalog import KUBELET, MUST, PLUGIN_PROTO, Catalog
from dralab.drivercheck.devices import ClaimUnderTest
from dralab.drivercheck.rules import fail, require
from dralab.drivercheck.sockets import DriverCallError

catalog: Final = Catalog()
AT_ONCE: Final = 4


def _add_checks(verb: str) -> None:
    """Add the checks of one call, whose verb is prepare or unprepare."""
    method = f"Node{verb.capitalize()}Resources"

    @catalog.check(
        MUST, f"{KUBELET}: {method} skipped <n> ResourceClaims", id=f"{verb}.every-claim"
    )
    def every_claim(bench: Bench) -> None:
        """Every claim of a call is answered."""
        claims = _claims(bench, verb, 2)
        found = _answers(bench, verb, *claims)
        missing = [claim.ref.name for claim in claims if claim.uid not in found]
        require(not missing, f"the answer skips {', '.join(missing)}")

    @catalog.check(
        MUST,
        f"{KUBELET}: {method} returned result for unknown claim UID",
        id=f"{verb}.no-other-claim",
    )
    def no_other_claim(bench: Bench) -> None:
        """Only the claims of the call are answered."""
        [claim] = _claims(bench, verb, 1)
        others = sorted(set(_answers(bench, verb, claim)) - {claim.uid})
        require(not others, f"the answer has the unknown claim UIDs {', '.join(others)}")

    @catalog.check(
        MUST,
        f"{PLUGIN_PROTO}: {method}Request.claims is a list; drivers send it as a health check",
        id=f"{verb}.no-claims",
    )
    def no_claims(bench: Bench) -> None:
        """A call without claims is answered without claims."""
        try:
            found = _answers(bench, verb)
        except DriverCallError as error:
            fail(f"a call without claims failed: {error}")
        require(not found, f"a call without claims is answered with {', '.join(found)}")

    @catalog.check(
        MUST, f"{KUBELET}: several pods start and end at the same time", id=f"{verb}.parallel"
    )
    def parallel(bench: Bench) -> None:
        """Calls for different claims at the same time all succeed."""
        claims = _claims(bench, verb, AT_ONCE)
        with ThreadPoolExecutor(AT_ONCE) as pool:
            list(pool.map(bench.prepare if verb == "prepare" else bench.unprepare, claims))


def _claims(bench: Bench, verb: str, count: int) -> list[ClaimUnderTest]:
    """Return claims that are ready for a call."""
    claims = [bench.claim(device) for device in bench.free(count)]
    if verb == "unprepare":
        for claim in claims:
            bench.prepare(claim)
    return claims


def _answers(bench: Bench, verb: str, *claims: ClaimUnderTest) -> Mapping[str, object]:
    if verb == "prepare":
        return bench.call_prepare(*claims)
    return bench.call_unprepare(*claims)


_add_checks("prepare")
_add_checks("unprepare")
