"""`dralab incident`: the list, hints, and a cluster that is served, mended and judged."""

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from dralab.cli.main import main
from dralab.components import incidents
from dralab.runtime.kubeconfig import read
from dralab.runtime.remote import RemoteClient

NAME = "typo-in-driver"


def test_it_lists_the_incidents():
    text = CliRunner().invoke(main, ["incident"]).output
    found = json.loads(CliRunner().invoke(main, ["incident", "-o", "json"]).output)

    assert [each["name"] for each in found] == incidents.names()
    assert f"{NAME} (level 1)\n  Since the class for trainings was rewritten" in text


def test_it_prints_as_many_hints_as_are_asked_for():
    result = CliRunner().invoke(main, ["incident", NAME, "--hint", "2"])

    assert result.output.splitlines() == list(incidents.read(NAME).hints[:2])


def test_an_unknown_name_is_refused():
    result = CliRunner().invoke(main, ["incident", "nothing"])

    assert result.exit_code == 2
    assert "'nothing' is not one of the" in result.output
    assert "See `dralab incident`" in result.output


@pytest.mark.parametrize("options", [["--check"], ["--hint", "1"]])
def test_nothing_is_checked_without_a_name(options):
    result = CliRunner().invoke(main, ["incident", *options])

    assert result.exit_code == 2
    assert f"{options[0]} needs NAME" in result.output


@pytest.mark.thorough
def test_a_served_cluster_is_judged(tmp_path: Path):
    kubeconfig = tmp_path / "kubeconfig"
    command = [sys.executable, "-m", "dralab", "incident", NAME, "--kubeconfig", str(kubeconfig)]
    check = [*command, "--check"]
    with subprocess.Popen(
        [*command, "--listen", "127.0.0.1:0"], stdout=subprocess.PIPE, text=True
    ) as serving:
        assert serving.stdout is not None
        try:
            lines = [next(serving.stdout), next(serving.stdout)]
            before = subprocess.run(check, capture_output=True, text=True, check=False)
            incidents.perform(
                incidents.read(NAME).solution, RemoteClient(read(kubeconfig)), lambda _: None
            )
            after = subprocess.run(check, capture_output=True, text=True, check=False)
        finally:
            serving.send_signal(signal.SIGINT)

    assert lines[0].strip() == incidents.read(NAME).report.strip()
    assert lines[1].startswith("ready: https://")
    assert (before.returncode, before.stdout) == (1, "the pod ml/train does not run\n")
    assert "check again in a minute" in before.stderr
    assert (after.returncode, after.stdout) == (0, "mended\n")
