"""The autoscaler of `dralab up`: what it does not go with, and what is wrong with its file."""

import pytest
from click.testing import CliRunner

from dralab.cli.up import up

START = ["--data", ":memory:", "--plain", "--autoscaler", "cluster-autoscaler"]


@pytest.mark.parametrize(
    ("flags", "problem"),
    [
        (["--autoscaler-config", "FILE"], "--autoscaler-config needs --autoscaler"),
        ([*START, "--root", "."], "adds simulated nodes: omit --runtime process and --root"),
        ([*START, "--api", "k8srm"], "needs v1 among those of --api"),
        ([*START, "--without", "nodes"], "adds nodes, which --without leaves out"),
    ],
)
def test_what_an_autoscaler_does_not_go_with_is_refused(flags, problem, tmp_path):
    file = tmp_path / "file.yaml"
    file.write_text("pools: []\n")
    found = CliRunner().invoke(up, [str(file) if each == "FILE" else each for each in flags])
    assert found.exit_code == 2
    assert problem in found.output


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("autoscaler: {cluster-autoscaler: {scan: soon}}", "autoscaler.cluster-autoscaler.scan"),
        ("autoscaler: karpenter", "is not cluster-autoscaler, which runs"),
        ("workload: {}", "workload: is unknown; known: autoscaler, pools"),
        ("pools: [{name: a, cpu: 4, drivers: [mine.py:Mine]}]", "is code of yours"),
    ],
)
def test_what_is_wrong_with_its_file_is_said(text, problem, tmp_path):
    file = tmp_path / "file.yaml"
    file.write_text(text)
    found = CliRunner().invoke(up, [*START, "--autoscaler-config", str(file)])
    assert found.exit_code != 0
    assert problem in found.output
    assert str(file) in found.output
