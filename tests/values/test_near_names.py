"""What is said of a name that does not exist."""

import pytest
from click.testing import CliRunner

from dralab.cli.main import main
from dralab.simulation.scenario.schedulers import BUILT_IN, EXTERNAL, FOR, unknown_scheduler
from dralab.values.near_names import did_you_mean, near_names


@pytest.mark.parametrize(
    ("name", "near"),
    [
        ("fgdd", ["fgd"]),
        ("FGD", ["fgd"]),
        ("las-2d", ["rounds:las-2d"]),
        ("max-min", ["rounds:max-min"]),
        ("allocation:packs", ["allocation:pack"]),
    ],
)
def test_a_mistyped_scheduler_is_answered_with_the_nearest(name, near):
    assert near_names(name, BUILT_IN)[: len(near)] == near
    told = unknown_scheduler(name)
    assert told.startswith(f"{name!r} is not one of the {len(BUILT_IN) + 1} names; did you mean ")
    assert told.endswith("? See `dralab simulate schedulers`, or give file.py:Class")


def test_nothing_is_suggested_for_what_is_like_nothing():
    assert not did_you_mean("zzz", BUILT_IN)


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["reproduce", "gavl"], "'gavel'; did you mean 'gavel'?"),
        (["incident", "typo-in-drivr"], "did you mean 'typo-in-driver' or"),
        (["generate", "h10"], "unknown shape \"h10\"; did you mean 'h100'"),
        (["up", "--fleet", "h10"], "did you mean 'h100'"),
        (["allocate", "-f", "x", "--policy", "packk"], "did you mean 'pack'?"),
        (["simulate", "scheduler"], "No such command 'scheduler'; did you mean 'schedulers'"),
        (["explain", "--code", "DRA99"], "did you mean 'DRA"),
    ],
)
def test_commands_ask_which_name_was_meant(arguments, told):
    result = CliRunner().invoke(main, arguments)
    assert result.exit_code == 2
    assert told in result.stderr


def test_all_schedulers_are_listed():
    result = CliRunner().invoke(main, ["simulate", "schedulers"])
    assert [line.split()[0] for line in result.stdout.splitlines()[1:]] == [n for n, _ in FOR]
    assert {name for name, _ in FOR} == {*BUILT_IN, EXTERNAL}
