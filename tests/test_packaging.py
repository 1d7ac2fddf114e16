"""What others start dralab with: the GitHub action, CI examples, krew, Homebrew, the container.

Their hosts are not here. Checked is what can be: the forms, the commands, and the scripts' effects.
"""

import importlib.util
import os
import re
import shlex
import subprocess
import sys
import tarfile
import tomllib
from io import BytesIO
from pathlib import Path

import click
import pytest
import yaml

from dralab import __version__
from dralab.cli.main import main

ROOT = Path(__file__).parents[1]
ACTION = ROOT / ".github/actions/setup-dralab/action.yml"
CI = ROOT / "examples/70-ci"
KREW = ROOT / "packaging/krew"
BIN = Path(sys.executable).parent


@pytest.fixture(scope="module")
def release():
    spec = importlib.util.spec_from_file_location("release_tool", ROOT / "tools/release.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def scripts():
    """Yield where a script stands and its text: of the action, and of both examples."""
    for step in yaml.safe_load(ACTION.read_text())["runs"]["steps"]:
        if "run" in step:
            yield "action.yml", step["run"]
    for job in yaml.safe_load((CI / "github-workflow.yml").read_text())["jobs"].values():
        for step in job["steps"]:
            if "run" in step:
                yield "github-workflow.yml", step["run"]
    gitlab = yaml.safe_load((CI / "gitlab-ci.yml").read_text())
    for job in gitlab.values():
        if isinstance(job, dict):
            for line in [*job.get("script", ()), *job.get("before_script", ())]:
                yield "gitlab-ci.yml", line


def commands():
    for where, script in scripts():
        for line in script.replace("\\\n", " ").splitlines():
            for words in re.findall(r"(?:^|nohup |\s)(dralab [a-z][^>|&)]*)", line):
                yield where, shlex.split(words)[1:]


def test_every_script_is_a_text():
    # `key: value` inside of an unquoted line of YAML makes it a mapping.
    found = list(scripts())
    assert {where for where, _ in found} == {"action.yml", "github-workflow.yml", "gitlab-ci.yml"}
    assert all(isinstance(script, str) for _, script in found)


def test_their_commands_and_options_exist():
    seen = []
    for where, words in commands():
        command, path = main, []
        while isinstance(command, click.Group):
            name = words.pop(0)
            path.append(name)
            command = command.get_command(click.Context(command), name)
            assert command is not None, (where, path)
        seen.append((where, " ".join(path)))
        known = {option for each in command.params for option in [*each.opts, *each.secondary_opts]}
        own = words[: words.index("--")] if "--" in words else words
        for word in own:
            if word.startswith("-"):
                assert word in known, (where, path, word)
    for where in ("github-workflow.yml", "gitlab-ci.yml"):
        assert {(where, "driver check"), (where, "dst run"), (where, "validate")} <= set(seen)
    assert ("action.yml", "up") in seen


def test_no_input_of_the_action_becomes_code():
    action = yaml.safe_load(ACTION.read_text())
    used = set()
    for step in action["runs"]["steps"]:
        assert "${{" not in step.get("run", "")
        if "run" in step:
            assert step["shell"] == "bash"
        used |= set(re.findall(r"inputs\.([\w-]+)", yaml.safe_dump(step)))
    assert used == set(action["inputs"])


@pytest.mark.conformance
def test_the_action_starts_a_cluster_for_the_steps_that_follow(tmp_path):
    step = next(
        s for s in yaml.safe_load(ACTION.read_text())["runs"]["steps"] if s.get("id") == "cluster"
    )
    files = {name: str(tmp_path / name) for name in ("GITHUB_ENV", "GITHUB_OUTPUT", "GITHUB_PATH")}
    environment = os.environ | files | {
        "PATH": f"{BIN}{os.pathsep}{os.environ['PATH']}",
        "RUNNER_TEMP": str(tmp_path),
        "ARGUMENTS": "--nodes 1 --driver gpu $(touch " + str(tmp_path / "broken") + ")",
        "HOME": str(tmp_path),
    }  # fmt: skip
    wrong = subprocess.run(
        ["bash", "-e", "-c", step["run"]],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert wrong.returncode == 1, "the words of an input are not run"
    assert not (tmp_path / "broken").exists()
    environment["ARGUMENTS"] = "--nodes 1 --driver gpu"
    # The runner waits for the script alone, so what it starts goes on.
    started = f"{step['run']}\necho pid $!"
    done = subprocess.run(
        ["bash", "-e", "-c", started], env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    pid = int(re.search(r"^pid (\d+)$", done.stdout, re.MULTILINE)[1])
    try:
        kubeconfig = re.search(
            r"^KUBECONFIG=(.*)$", Path(files["GITHUB_ENV"]).read_text(), re.MULTILINE
        )[1]
        shown = subprocess.run(
            [str(BIN / "dralab"), "top", "--kubeconfig", kubeconfig],
            capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert "gpu.example.com" in shown.stdout, shown.stderr
    finally:
        os.kill(pid, 15)


def test_the_files_for_package_managers_are_filled(release):
    krew = yaml.safe_load(release.filled((KREW / "dra.yaml").read_text(), "ab12"))
    assert krew["kind"] == "Plugin"
    assert krew["spec"]["version"] == f"v{__version__}"
    assert len(krew["spec"]["shortDescription"]) <= 50
    (platform,) = krew["spec"]["platforms"]
    assert platform["uri"].endswith(f"/kubectl-dra-{__version__}.tar.gz")
    assert platform["sha256"] == "ab12"
    formula = release.filled((ROOT / "packaging/homebrew/dralab.rb").read_text(), "ab12")
    assert 'sha256 "ab12"' in formula
    assert "@" not in re.sub(r"python@3\.\d+", "", formula)
    opened = re.findall(r"^\s*(?:class|def|test do)\b", formula, re.MULTILINE)
    assert len(opened) == len(re.findall(r"^\s*end$", formula, re.MULTILINE)) == 3


def test_the_archive_for_krew_is_the_same_twice(release, tmp_path):
    made = [release.archive([KREW / "kubectl-dra", ROOT / "LICENSE"], 1_700_000_000) for _ in "ab"]
    assert made[0] == made[1]
    with tarfile.open(fileobj=BytesIO(made[0])) as tar:
        assert [(each.name, each.mode) for each in tar] == [
            ("kubectl-dra", 0o755),
            ("LICENSE", 0o644),
        ]


@pytest.mark.parametrize("way", ["installed", "uv", "neither"])
def test_the_plugin_of_krew_runs_what_there_is(way, tmp_path):
    store, there = tmp_path / "store", tmp_path / "bin"
    store.mkdir(), there.mkdir()
    (store / "kubectl-dra").write_bytes((KREW / "kubectl-dra").read_bytes())
    (store / "kubectl-dra").chmod(0o755)
    (store / "dralab-1.2.3-py3-none-any.whl").touch()
    (there / "kubectl-dra").symlink_to(store / "kubectl-dra")  # as krew does: it calls itself not
    programs = {"installed": ("dralab", "kubectl-dra"), "uv": ("uvx",), "neither": ()}[way]
    own = tmp_path / "own"
    own.mkdir()
    for name in programs:
        (own / name).write_text(f'#!/bin/sh\necho {name} "$@"\n')
        (own / name).chmod(0o755)
    done = subprocess.run(
        ["/bin/sh", str(there / "kubectl-dra"), "why", "a pod"],
        env={"PATH": f"{there}:{own}:/usr/bin:/bin"}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    told = {
        "installed": "kubectl-dra why a pod\n",
        "uv": f"uvx --quiet --from {store}/dralab-1.2.3-py3-none-any.whl kubectl-dra why a pod\n",
        "neither": "",
    }
    assert done.stdout == told[way]
    assert done.returncode == (2 if way == "neither" else 0)


def test_charts_and_examples_name_the_version_there_is():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert project["version"] == __version__
    chart = yaml.safe_load((ROOT / "charts/dralab/Chart.yaml").read_text())
    assert chart["appVersion"] == chart["version"] == __version__
    for name in ("github-workflow.yml", "gitlab-ci.yml"):
        assert set(re.findall(r"@v([\d.]+\d)$", (CI / name).read_text(), re.MULTILINE)) <= {
            __version__
        }
