"""Suites of other repositories, unmodified: built from their Go modules, run, and read.

`DRALAB_CONTROLLER_RUNTIME_CLIENT`, `…_CACHE` and `…_ENVTEST` name what
`tools/build_clients.py` has built. Otherwise a suite is built here, if there is Go, in some minutes.
"""

import json
import os
import runpy
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
BUILD = ROOT / "tools" / "build_clients.py"
SUITES = runpy.run_path(str(BUILD))["SUITES"]


def suite(name, folders):
    """Return the program of a suite; skip where it can be neither found nor built."""
    variable, _, _ = SUITES[name]
    if given := os.environ.get(variable):
        return Path(given)
    if shutil.which("go") is None:
        pytest.skip(f"no Go toolchain, and {variable} names no suite")
    place = folders.mktemp(name)
    command = [sys.executable, str(BUILD), str(place), name]
    built = subprocess.run(command, capture_output=True, text=True, check=False)
    if built.returncode:
        pytest.skip(f"{name} does not build here: {built.stderr[-300:]}")
    return place / name


def folder_of(name):
    """Return the folder of a suite's sources, where its test data is; skip without Go."""
    if shutil.which("go") is None:
        pytest.skip("no Go toolchain to find the sources of the suite")
    _, package, module = SUITES[name]
    path, _, version = module.partition(" ")
    command = ["go", "mod", "download", "-json", f"{path}@{version}"]
    done = subprocess.run(command, cwd=ROOT.parent, capture_output=True, text=True, check=True)
    return Path(json.loads(done.stdout)["Dir"]) / package.removeprefix(path).lstrip("/")


def run(program, folder, report, *arguments, **variables):
    """Run a suite; return its tests by name, with "passed" or the reason of the failure."""
    done = subprocess.run(
        [str(program), f"--ginkgo.json-report={report}", *arguments],
        cwd=folder,
        env=os.environ | variables,
        capture_output=True,
        text=True,
        check=False,
    )
    if not report.exists():
        raise AssertionError(f"no report was written:\n{done.stdout[-3000:]}{done.stderr[-3000:]}")
    return results(report)


def results(report):
    """Return what a report of ginkgo says of each test that ran."""
    found = {}
    for each in json.loads(report.read_text())[0]["SpecReports"] or ():
        if each["LeafNodeType"] == "It" and each["State"] not in {"skipped", "pending"}:
            name = " ".join([*(each["ContainerHierarchyTexts"] or ()), each["LeafNodeText"]])
            why = (each.get("Failure") or {}).get("Message", "")
            found[name] = "passed" if each["State"] == "passed" else why or each["State"]
    return found


def failures(found):
    """Return the tests that did not pass, with the first line of the reason."""
    return {name: why.partition("\n")[0] for name, why in found.items() if why != "passed"}
