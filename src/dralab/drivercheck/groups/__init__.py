"""The checks, in modules by group, all in one catalog (`CHECKS`)."""

from collections.abc import Sequence
from typing import Final

from dralab.drivercheck.catalog import GROUPS, Check
from dralab.drivercheck.groups import (
    bad_claims,
    both_calls,
    crash,
    faults,
    health,
    load,
    prepare,
    registration,
    slices,
    unprepare,
)

MODULES: Final = (
    registration, slices, prepare, bad_claims, unprepare, both_calls, crash, health, faults, load,
)  # fmt: skip

CHECKS: Final[Sequence[Check]] = sorted(
    (check for module in MODULES for check in module.catalog.checks),
    key=lambda check: GROUPS.index(check.group),
)
