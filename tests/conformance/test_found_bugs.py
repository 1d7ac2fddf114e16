"""Bugs planted in unmodified operators, as processes under faults: found within 100 seeds.

An operator on client-go (Go and its modules are needed) and one on kopf.
"""

import importlib.util
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

import sitescenarios
from dralab.testing.process import ProgramSpec
from dralab.testing.search import search
from dralab.testing.trial import expected_end
from dralab.virtualtime import unavailable
from siteoperators import Sites

HERE = Path(__file__).parent
SOURCE = HERE / "clientgo"
KOPF = HERE / "kopf_sites.py"
BUGS = ("stale-read", "no-recheck", "lost-finalizer", "requeue-storm", "orphan")
pytestmark = [
    pytest.mark.conformance,
    pytest.mark.timeout(900),
    pytest.mark.skipif(unavailable() is not None, reason=str(unavailable())),
]
needs_kopf = pytest.mark.skipif(
    importlib.util.find_spec("kopf") is None, reason="kopf is not installed"
)


@pytest.fixture(scope="session")
def operator(tmp_path_factory):
    """The operator on client-go, as a binary."""
    if shutil.which("go") is None:
        pytest.skip("Go is not installed")
    target = tmp_path_factory.mktemp("siteoperator") / "siteoperator"
    built = subprocess.run(
        ["go", "build", "-o", str(target), "./siteoperator"],
        cwd=SOURCE, capture_output=True, text=True, check=False,
    )  # fmt: skip
    if built.returncode:
        pytest.skip(f"the operator cannot be built: {built.stderr.strip().splitlines()[-1]}")
    return target


def scenario(*words):
    program = ProgramSpec(name="operator", command=words, cached_lists=True, folder=HERE)
    return replace(sitescenarios.scenario(Sites), name="sites", programs=[program])


def of_go(operator, *more):
    # Before 1.35 a first list could be old; since then client-go begins with a watch.
    gate = "KUBE_FEATURE_WatchListClient=false"
    return scenario("env", gate, str(operator), "--kubeconfig", "{kubeconfig}", *more)


def of_kopf(bug=""):
    kopf = (sys.executable, "-m", "kopf", "run", "--standalone", "-n", "default", str(KOPF))
    return scenario("env", f"BUG={bug}", *kopf)


@pytest.mark.parametrize("bug", BUGS)
def test_a_bug_of_an_operator_on_client_go_is_found(operator, bug, seeds):
    found = of_go(operator, "--bug", bug)
    assert search(found, expected_end(found), seeds(100), fail_fast=True).failures


def test_the_operator_on_client_go_raises_no_false_alarm(operator, seeds):
    found = of_go(operator)
    assert search(found, expected_end(found), seeds(100)).failures == {}


@needs_kopf
@pytest.mark.parametrize("bug", BUGS)
def test_a_bug_of_an_operator_on_kopf_is_found(bug, seeds):
    found = of_kopf(bug)
    assert search(found, expected_end(found), seeds(100), fail_fast=True).failures


@needs_kopf
def test_the_operator_on_kopf_raises_no_false_alarm(seeds):
    found = of_kopf()
    assert search(found, expected_end(found), seeds(30)).failures == {}
