"""The CDI ids of prepared claims: which of them a runtime can resolve."""

from collections.abc import Set as AbstractSet

from dralab.contracts.plugin import PrepareResult
from dralab.drivercheck.bench import Bench
from dralab.drivercheck.devices import ClaimUnderTest
from dralab.drivercheck.rules import require


def own_ids(bench: Bench, claim: ClaimUnderTest) -> AbstractSet[str]:
    """Prepare a claim and return its CDI ids that did not exist before."""
    before = set(bench.cdi().devices)
    return bench.prepare(claim).cdi_ids - before


def require_gone(bench: Bench, ids: AbstractSet[str], when: str) -> None:
    """Require that no CDI id can be resolved. CheckFailed: one can, after `when`."""
    left = sorted(ids & set(bench.cdi().devices))
    require(not left, f"{when}, {', '.join(left)} can still be resolved")


def require_resolved(bench: Bench, ids: AbstractSet[str], result: PrepareResult, when: str) -> None:
    """Require that CDI ids of a claim can be resolved. CheckFailed: one can't, after `when`."""
    missing = sorted(ids - bench.resolved(result))
    require(not missing, f"{when}, {', '.join(missing)} can't be resolved")
