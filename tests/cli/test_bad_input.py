"""Whatever file a command is given, it says in one line what is wrong, and ends with code 2."""

import os

import pytest
from click.testing import CliRunner

from dralab.cli.main import main

FILES = {
    "missing": None,
    "binary": bytes(range(128, 256)) * 4,
    "deep": b"[" * 20_000,
    "truncated": b"apiVersion: v1\nmetadata: {name: x\n",
    "huge number": b"a: " + b"9" * 10_000,
    "several documents": b"[]\n---\n[]\n",
}
COMMANDS = [
    "conformance cel",
    "conformance apiserver",
    "conformance allocator",
    "cel device.driver --attributes",
    "schedule --kubeconfig",
    "scheduler --kubeconfig",
    "schedule --nodes FILE --claim",
    "allocate -f",
    "explain -f",
    "schedule -f",
    "validate -f",
    "convert --to v1 -f",
    "partitions -f",
    "simulate run",
    "simulate batsim --workload",
    "campaign",
]


def run(*arguments):
    return CliRunner().invoke(main, list(arguments))


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("command", COMMANDS)
def test_a_file_that_cannot_be_used_is_bad_input(command, name, tmp_path):
    file = tmp_path / "input.yaml"
    if FILES[name] is not None:
        file.write_bytes(FILES[name])
    words = [str(file) if word == "FILE" else word for word in command.split()]
    result = run(*words, str(file))
    assert result.exit_code == 2, result.output
    assert isinstance(result.exception, SystemExit)
    assert result.stdout == ""
    assert "Error: " in result.stderr


def test_a_yaml_file_that_breaks_off_is_named_with_its_line(tmp_path):
    file = tmp_path / "kubeconfig"
    file.write_bytes(FILES["truncated"])
    result = run("scheduler", "--kubeconfig", str(file))
    assert f"{file}:3: is no YAML" in result.stderr


def test_an_unknown_fleet_is_bad_input_and_the_known_ones_are_listed():
    result = run("up", "--fleet", "abacus", "--data", ":memory:")
    assert result.exit_code == 2
    assert 'unknown shape "abacus"; known shapes: a100' in result.stderr


def test_a_copy_that_is_not_there_cannot_be_restored(tmp_path):
    result = run("restore", str(tmp_path / "none.db"), "--data", str(tmp_path / "new"))
    assert result.exit_code == 2
    assert "none.db" in result.stderr


def test_what_the_machine_refuses_is_one_line(monkeypatch):
    def refuse(*_, **__):
        raise OSError(28, os.strerror(28))

    monkeypatch.setattr("dralab.cli.generate.click.echo", refuse)
    result = run("generate", "h100")
    assert result.exit_code == 1
    assert result.exception is None or isinstance(result.exception, SystemExit)
    assert "No space left on device" in result.stderr
