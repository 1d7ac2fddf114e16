"""What a driver under test sees of its node: another boot id, another clock."""

import subprocess

import pytest

from dralab.drivercheck.node_view import BOOT_ID, command_with, offered
from dralab.drivercheck.rules import CheckNeed
from dralab.kernel.clock import SECOND, WallClock

DAY = 24 * 3_600 * SECOND


def said(*command):
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


def test_a_command_stays_as_it_is_on_the_machines_own_node():
    assert command_with(["a", "b"], BOOT_ID, 0) == ["a", "b"]


@pytest.mark.conformance
@pytest.mark.skipif(CheckNeed.BOOT_ID not in offered(), reason="no mount namespaces here")
def test_a_command_sees_another_boot_id(tmp_path):
    (tmp_path / "id").write_text("another\n")
    before = BOOT_ID.read_text()
    assert said(*command_with(["cat", str(BOOT_ID)], tmp_path / "id", 0)) == "another"
    assert BOOT_ID.read_text() == before


@pytest.mark.conformance
@pytest.mark.skipif(CheckNeed.CLOCK not in offered(), reason="no virtual clock here")
@pytest.mark.parametrize("offset", [-DAY, DAY])
def test_a_command_sees_another_time(offset):
    now = WallClock().now() // SECOND
    shown = int(said(*command_with(["date", "+%s"], BOOT_ID, offset)))
    assert abs(shown - now - offset // SECOND) < 3_600
