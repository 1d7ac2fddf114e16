"""Completion of commands and options in the shell, as the guide to installation sets it up."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

GUIDE = Path(__file__).parents[2] / "docs/guides/install.md"
SHELLS = ("bash", "zsh", "fish")


def asked(words, *, shell="bash", current=None):
    """Return what completion offers after some words, as the shell's script asks for it."""
    environment = os.environ | {
        "_DRALAB_COMPLETE": f"{shell}_complete",
        "COMP_WORDS": " ".join(words),
        "COMP_CWORD": str(len(words) - 1 if current is None else current),
    }
    done = subprocess.run(
        [str(Path(sys.executable).with_name("dralab"))],
        env=environment, capture_output=True, text=True, check=True,
    )  # fmt: skip
    return [line.partition(",")[2] for line in done.stdout.splitlines()]


def test_commands_and_options_are_completed():
    assert asked(["dralab", "sim"]) == ["simulate"]
    assert "--runtime" in asked(["dralab", "up", "--ru"])


@pytest.mark.parametrize("shell", SHELLS)
def test_the_guide_says_how_each_shell_gets_it(shell):
    assert f"_DRALAB_COMPLETE={shell}_source dralab" in GUIDE.read_text()


@pytest.mark.conformance
@pytest.mark.parametrize("shell", SHELLS)
def test_a_shell_completes_a_command(shell):
    program = shutil.which(shell) or pytest.skip(f"no {shell} on the PATH")
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    script = {
        "bash": 'eval "$(_DRALAB_COMPLETE=bash_source dralab)"; COMP_WORDS=(dralab sim); COMP_CWORD=1;'
        " $(complete -p dralab | sed 's/.*-F \\([^ ]*\\).*/\\1/') dralab sim dralab; echo ${COMPREPLY[@]}",
        "zsh": 'autoload -Uz compinit; compinit -u; eval "$(_DRALAB_COMPLETE=zsh_source dralab)";'
        " whence _dralab_completion > /dev/null && echo simulate",
        "fish": "_DRALAB_COMPLETE=fish_source dralab | source; complete -C 'dralab sim'",
    }[shell]
    done = subprocess.run(
        [program, "-c", script],
        env=os.environ | {"PATH": path},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout.split()[:1] == ["simulate"], done.stderr
