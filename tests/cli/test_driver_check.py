"""`dralab driver check` and `dralab driver checks`: their options, and how a run ends."""

import json
import os
import subprocess
import sys
from functools import partialmethod
from pathlib import Path

import pytest
from click.testing import CliRunner

from dralab.cli.main import main
from dralab.drivercheck.rules import CheckLimits
from waiting import until

pytest.importorskip("grpc", reason="the extra dralab[grpc] is not installed")


def run(*arguments):
    return CliRunner().invoke(main, ["driver", *arguments])


HELM = """#!/bin/sh
echo "$@" >> {log}
{end}
"""


@pytest.mark.parametrize(
    ("end", "says"),
    [
        ("echo 'Error: set the value token' >&2; exit 1", "Error: set the value token"),
        ("echo 'kind: ConfigMap'", "it has no DaemonSet"),
    ],
)
def test_a_chart_is_rendered_by_helm_for_the_version_of_the_bench(tmp_path, monkeypatch, end, says):
    helm, log = tmp_path / "helm", tmp_path / "log"
    helm.write_text(HELM.format(log=log, end=end))
    helm.chmod(0o755)
    monkeypatch.setenv("DRALAB_HELM", str(helm))
    (tmp_path / "chart").mkdir()
    result = run("check", "--chart", str(tmp_path / "chart"))
    assert result.exit_code == 2
    assert says in result.stderr
    words = log.read_text().split()
    assert words[:2] == ["template", "check"]
    assert words[words.index("--kube-version") + 1].startswith("v1.36")
    assert words[words.index("--namespace") + 1] != "default"
    assert "resource.k8s.io/v1" in words


def test_the_checks_are_listed_with_level_and_rule():
    table = run("checks", "--only", "registration.type").output.splitlines()
    assert table[0].split() == ["ID", "LEVEL", "RULE"]
    assert table[1].split(maxsplit=2) == [
        "registration.type", "MUST", "GetInfo answers the type DRAPlugin.",
    ]  # fmt: skip
    found = json.loads(run("checks", "-o", "json").output)
    groups = dict.fromkeys(each["group"] for each in found)
    assert list(groups) == [
        "registration", "slices", "prepare", "unprepare", "crash", "health", "faults", "load",
    ]  # fmt: skip
    assert len(found) >= 100
    assert all(each["source"] and each["level"] in {"MUST", "SHOULD"} for each in found)


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ([], "Missing argument 'TARGET'"),
        (["gpu", "--only", "crush"], "'crush' names no check"),
        (["--only", "crash", "--skip", "crash.*", "gpu"], "leave no check"),
        (["--env", "X", "gpu"], "'X' is not NAME=VALUE"),
        (["no-such-driver"], "neither a program, nor a socket, nor one of fake, gpu"),
        (["--node", "n1", "gpu"], "are for a driver's socket"),
        (["--health-hook", "", "--previous", "no-such-driver", "gpu"], "neither a program"),
    ],
)
def test_what_cannot_be_checked_is_refused(arguments, text):
    found = run("check", *arguments)
    assert found.exit_code == 2
    assert text in found.output


@pytest.mark.parametrize(
    ("target", "last"),
    [
        (
            [sys.executable, "-c", "print('no GPU here'); raise SystemExit(3)"],
            "the driver ends at its start; last output: no GPU here",
        ),
        (["nosuch:Thing"], "last output: Error: Invalid value for NAME: No module named 'nosuch'"),
        (["json:JSONDecoder"], "is not a subclass of dralab.drivers.driver.Driver"),
    ],
)
def test_a_driver_that_ends_at_its_start_is_one_line(target, last, tmp_path):
    found = run("check", "--write", str(tmp_path / "junit.xml"), "--", *target)
    assert found.exit_code == 2
    (line,) = found.output.splitlines()
    assert line.startswith("Error: ")
    assert line.endswith(last)
    assert list(tmp_path.iterdir()) == []


def test_a_driver_without_a_socket_is_one_line(monkeypatch):
    monkeypatch.setattr(CheckLimits, "__init__", partialmethod(CheckLimits.__init__, ready=0.5))
    found = run("check", "--", sys.executable, "-c", "import time; time.sleep(300)")
    assert found.exit_code == 2
    assert "no registration socket below " in found.output
    assert found.output.endswith("/plugins_registry after 0.5 s\n")


@pytest.mark.thorough
def test_reports_are_written_of_a_driver_that_keeps_a_rule(tmp_path):
    reports = {ending: tmp_path / f"report.{ending}" for ending in ("xml", "md", "json", "svg")}
    options = [word for path in reports.values() for word in ("--write", str(path))]
    found = run("check", "--only", "registration.type", "--workers", "1", *options, "gpu")
    assert found.exit_code == 0, found.output
    assert "conformant: 1 of 1 MUST" in found.output
    document = json.loads(reports["json"].read_text())
    assert [each["outcome"] for each in document["checks"]] == ["passed"]
    assert all(path.stat().st_size for path in reports.values())


@pytest.mark.conformance
def test_a_check_that_is_killed_leaves_no_driver_and_no_files(tmp_path):
    script = "import os, sys, time; print(os.getpid(), flush=True); time.sleep(300)"
    command = [sys.executable, "-m", "dralab", "driver", "check", "--workers", "1"]
    only = ["--only", "registration.type", "--", sys.executable, "-c", script]
    variables = {**os.environ, "TMPDIR": str(tmp_path)}
    with subprocess.Popen([*command, *only], env=variables) as check:
        pids = until(
            lambda: [p.read_text() for p in tmp_path.rglob("driver.log") if p.stat().st_size]
        )
        check.kill()
    until(lambda: not alive(int(pids[0])))
    until(lambda: not list(tmp_path.glob("dc-*")))


def alive(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False
