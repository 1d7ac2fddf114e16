"""The checks, one module for each group, all in one catalog (`CHECKS`)."""

from collections.abc import Sequence
from typing import Final

from dralab.drivercheck.catalog import Check
from dralab.drivercheck.groups import (
    crash,
    faults,
    health,
    load,
    prepare,
    registration,
    slices,
    unprepare,
)

MODULES: Final = (registration, slices, prepare, unprepare, crash, health, faults, load)

CHECKS: Final[Sequence[Check]] = [check for module in MODULES for check in module.catalog.checks]
