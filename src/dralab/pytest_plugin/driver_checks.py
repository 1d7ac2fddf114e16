"""The conformance checks of a DRA driver as tests of its own suite."""

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from dralab.drivercheck.rules import CheckLimits
    from dralab.drivercheck.runner import CheckResult
    from dralab.drivers.driver import Driver


def driver_conformance(
    target: "Sequence[str] | type[Driver]",
    *,
    only: Sequence[str] = (),
    skip: Sequence[str] = (),
    env: Mapping[str, str] | None = None,
    strict: bool = False,
    limits: "CheckLimits | None" = None,
) -> Callable[[str], None]:
    """Return a test of a DRA driver, with a parameter for each conformance check.

    `target` is the driver's command, as for `dralab driver check`, or a class of the SDK, which
    then runs in this process. `only` and `skip` are ids, groups or patterns. All checks run with
    the first test. A SHOULD that is not kept skips its test, unless `strict`.

        test_my_driver = driver_conformance(["./my-driver", "--node={node}"], skip=["load"])
    """
    from dralab.drivercheck import reports, sdk_target
    from dralab.drivercheck.bench import Bench
    from dralab.drivercheck.catalog import SHOULD, selected
    from dralab.drivercheck.groups import CHECKS
    from dralab.drivercheck.rules import Shared
    from dralab.drivercheck.runner import Outcome, Runner
    from dralab.drivercheck.targets import CommandTarget, DriverTarget

    left_out = {check.id for check in selected(CHECKS, skip)} if skip else set()
    checks = [check for check in selected(CHECKS, only) if check.id not in left_out]
    driver: DriverTarget = (
        sdk_target.of(target) if isinstance(target, type) else CommandTarget(target, env or {})
    )

    @cache
    def results() -> "Mapping[str, CheckResult]":
        shared = Shared()
        report = Runner(lambda: Bench(driver, limits=limits, shared=shared), checks).run()
        return {result.check.id: result for result in report.results}

    @pytest.mark.parametrize("check", [check.id for check in checks])
    def test_driver_conformance(check: str) -> None:
        result = results()[check]
        if result.outcome is Outcome.SKIPPED:
            pytest.skip(result.text)
        if result.outcome is not Outcome.PASSED:
            if result.check.level is SHOULD and not strict:
                pytest.skip(f"SHOULD: {result.text}")
            pytest.fail("\n".join(reports.failure_report(result)), pytrace=False)

    return test_driver_conformance
