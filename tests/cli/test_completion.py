"""Completion of commands and options in the shell, as the guide to installation sets it up.

What a shell makes of the Tab key is seen in a terminal: the line is completed, and then printed by
`echo`, which is put before it.
"""

import os
import pty
import re
import select
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from dralab.kernel.clock import SECOND, WallClock

GUIDE = Path(__file__).parents[2] / "docs/guides/install.md"
# How each shell is begun without the user's own files, and set up.
SHELLS = {
    "bash": (["bash", "--norc", "--noprofile", "-i"], ""),
    "zsh": (["zsh", "-f", "-i"], "autoload -Uz compinit; compinit -u; bindkey -e"),
    "fish": (["fish", "--no-config", "-i"], "fish_default_key_bindings"),
}
# Typed → completed.
LINES = {
    "dralab sim": "dralab simulate",
    "dralab simulate camp": "dralab simulate campaign",
    "dralab up --runt": "dralab up --runtime",
    "dralab up --runtime pro": "dralab up --runtime process",
    # An old spelling is not offered: what is left is a new one.
    "dralab sched": "dralab scheduler",
    "dralab plan mo": "dralab plan moves",
}
PATIENCE = 60


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
    assert asked(["dralab", "sched"]) == ["scheduler"]


def set_up(shell):
    """Return the line of the guide that sets completion up."""
    [line] = re.findall(
        rf"^.*_DRALAB_COMPLETE={shell}_source dralab.*$", GUIDE.read_text(), re.MULTILINE
    )
    return line.partition("     ")[0]


@pytest.mark.parametrize("shell", SHELLS)
def test_the_guide_says_how_each_shell_gets_it(shell):
    assert set_up(shell)


class Terminal:
    """A shell in a terminal of its own."""

    def __init__(self, arguments):
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        environment = os.environ | {"PATH": path, "TERM": "dumb", "PS1": "$ "}
        self.pid, self.handle = pty.fork()
        if self.pid == 0:
            os.execvpe(arguments[0], arguments, environment)  # noqa: S606 - a shell, for its Tab key
        self.seen = b""

    def type(self, keys):
        os.write(self.handle, keys.encode())

    def until(self, pattern):
        """Wait for a pattern in what is printed, and forget what came before its end."""
        clock = WallClock()
        end = clock.now() + PATIENCE * SECOND
        while not (match := re.search(pattern.encode(), self.seen)):
            ready, _, _ = select.select([self.handle], [], [], max(0, (end - clock.now()) / SECOND))
            assert ready, f"no {pattern!r} in {self.seen[-2000:]!r}"
            self.seen += os.read(self.handle, 65536)
        self.seen = self.seen[match.end() :]

    def close(self):
        os.kill(self.pid, 9)
        os.waitpid(self.pid, 0)
        os.close(self.handle)


@pytest.fixture
def terminal(request):
    arguments, begin = SHELLS[request.param]
    if shutil.which(arguments[0]) is None:
        pytest.skip(f"no {arguments[0]} on the PATH")
    found = Terminal(arguments)
    try:
        for line in filter(None, (begin, set_up(request.param))):
            found.type(f"{line}\n")
        found.type("echo be''gin\n")
        found.until(r"(?<!echo )begin")
        yield found
    finally:
        found.close()


@pytest.mark.conformance
@pytest.mark.parametrize("terminal", SHELLS, indirect=True)
def test_the_tab_key_completes_a_line(terminal):
    for typed, completed in LINES.items():
        terminal.type(f"{typed}\t\x01echo \x05\n")
        terminal.until(rf"[\r\n]{re.escape(completed)}\s*[\r\n]")
