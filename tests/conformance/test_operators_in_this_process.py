"""Operators on kopf and kr8s in this process: their planted bugs are found, and trials repeat."""

import hashlib
import importlib.util
import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

import sitescenarios
from dralab.testing.process import ProgramSpec
from dralab.testing.program_globals import ProgramFile
from dralab.testing.search import search
from dralab.testing.trial import expected_end, run_trial, schedule, systematic_schedules
from siteoperators import Sites

HERE = Path(__file__).parent
# Correct operators in kopf_corpus.py, by what of kopf they use.
MAINS = ("handlers", "two_handlers", "event", "timer", "daemon", "field", "status")
FILE = HERE / "asyncio_sites.py"
BUGS = ("stale-read", "no-recheck", "lost-finalizer", "requeue-storm", "orphan")
# kr8s warns of servers that are newer than itself.
warned = pytest.mark.filterwarnings("ignore::UserWarning")
pytestmark = [pytest.mark.conformance, pytest.mark.timeout(900), warned]
missing = [name for name in ("kopf", "kr8s") if importlib.util.find_spec(name) is None]
pytestmark.append(pytest.mark.skipif(bool(missing), reason=f"not installed: {missing}"))
on_both = pytest.mark.parametrize("on", ["kopf", "kr8s"])


def scenario(on, *, file=FILE, **changes):
    main = ProgramFile(file, f"{on}_main")
    program = ProgramSpec(name="operator", cached_lists=True, folder=HERE, file=main)
    return replace(sitescenarios.scenario(Sites), name=on, programs=[program], **changes)


@on_both
@pytest.mark.parametrize("bug", BUGS)
def test_a_bug_is_found(on, bug, seeds, monkeypatch):
    monkeypatch.setenv("BUG", bug)
    found = scenario(on)
    assert search(found, expected_end(found), seeds(100), fail_fast=True).failures


@on_both
def test_no_false_alarm_is_raised(on, seeds):
    found = scenario(on)
    assert search(found, expected_end(found), seeds(40)).failures == {}


@pytest.mark.parametrize("main", MAINS)
def test_no_false_alarm_is_raised_on_correct_operators_on_kopf(main, seeds):
    found = scenario(main, file=HERE / "kopf_corpus.py", checks=[])
    assert search(found, expected_end(found), seeds(100)).failures == {}


@pytest.mark.parametrize("main", MAINS)
def test_no_false_alarm_is_raised_where_each_place_has_its_fault(main):
    found = scenario(main, file=HERE / "kopf_corpus.py", checks=[])
    expected = expected_end(found)
    schedules = systematic_schedules(found, expected)
    assert schedules.unlike > 100
    result = search(found, expected, range(schedules.unlike), systematic=schedules)
    assert result.failures == {}


def told(on):
    """Return what happens in three seeds, in one line."""
    found = scenario(on)
    expected = expected_end(found)
    lines = []
    for seed in range(3):
        result = run_trial(found, expected, schedule(found, expected, seed), seed)
        entries = repr(result.history.entries).encode()
        lines.append([len(result.history.entries), hashlib.sha256(entries).hexdigest()])
    return json.dumps(lines)


@on_both
def test_a_trial_repeats_in_another_process(on):
    command = f"import test_operators_in_this_process as t; print(t.told({on!r}))"
    path = os.pathsep.join([str(HERE), str(HERE.parent)])
    outputs = {
        subprocess.run(
            [sys.executable, "-c", command], capture_output=True, text=True, check=True,
            env={**os.environ, "PYTHONPATH": path, "PYTHONHASHSEED": hashed},
        ).stdout.splitlines()[-1]
        for hashed in ("1", "2")
    }  # fmt: skip
    assert outputs == {told(on)}
