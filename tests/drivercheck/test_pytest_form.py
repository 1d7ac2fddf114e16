"""`driver_conformance(...)`: the checks as tests of somebody else's suite."""

import sys
from pathlib import Path

import pytest

pytest.importorskip("grpc", reason="the extra dralab[grpc] is not installed")

sys.path.insert(0, str(Path(__file__).parent))

from referencedriver import LIMITS, Lamps

from dralab.pytest_plugin import driver_conformance


class Nameless(Lamps):
    """Its devices are nobody's."""

    def devices(self):
        return ()

    def inventory(self):
        return super().inventory()[1:]  # without the counters that devices consume


ONLY = ["registration.type", "slices.counters-defined", "crash.upgrade", "slices.counters-suffice"]
test_a_good_driver = driver_conformance(Lamps, only=["registration.type"], limits=LIMITS)


def test_each_check_passes_fails_or_is_skipped_on_its_own():
    test = driver_conformance(Nameless, only=ONLY, skip=["slices.counters-suffice"], limits=LIMITS)
    [mark] = [each for each in test.pytestmark if each.name == "parametrize"]
    assert set(mark.args[1]) == set(ONLY[:3])
    test("registration.type")
    with pytest.raises(pytest.fail.Exception, match="does not define"):
        test("slices.counters-defined")
    with pytest.raises(pytest.skip.Exception, match="an older version is needed"):
        test("crash.upgrade")
