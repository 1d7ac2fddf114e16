"""`dralab help report` says what a maintainer asks first, and nothing that is private."""

import json

from click.testing import CliRunner

from dralab import __version__
from dralab.cli import help_report as module
from dralab.cli.main import main


def run(*arguments, env=None):
    done = CliRunner().invoke(main, ["help", "report", *arguments], env=env)
    assert done.exit_code == 0, done.output
    return done.stdout


def test_it_says_what_is_installed(tmp_path):
    tool = tmp_path / "kubectl"
    tool.write_text('#!/bin/sh\necho \'{"clientVersion": {"gitVersion": "v1.36.2"}}\'\n')
    tool.chmod(0o755)
    found = json.loads(run("-o", "json", env={"PATH": f"{tmp_path}:/usr/bin:/bin"}))
    assert found["dralab"] == __version__
    assert found["program kubectl"] == "v1.36.2"
    assert found["package click"] == module.installed("click")
    assert {"package ortools", "package grpcio"} <= set(found)


def test_values_of_variables_stay_here():
    text = run(env={"KUBECONFIG": "/home/jane/secret-place", "DRALAB_CACHE": "/srv/jane"})
    assert "DRALAB_CACHE" in text
    assert "KUBECONFIG" in text
    assert "jane" not in text


def test_a_program_that_does_not_answer_is_said_to(tmp_path, monkeypatch):
    tool = tmp_path / "helm"
    tool.write_text("not a program")
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert module.version_of("helm") == "did not answer"
    assert module.version_of("kubectl") == "not on the PATH"
    assert module.installed("no-such-package-at-all") == "not installed"
