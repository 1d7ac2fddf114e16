"""Pages that readers follow: their files, their commands, and what these print.

A yaml or python block whose first line is `# NAME` is a file. A console block has commands after
`$ `, each with its output: `…` in it stands for any text. `cd` to a directory that the page has not
made means one of the checkout. A command that ends in ` &` is left
running until the reader closes the page.
"""

import os
import re
import shlex
import signal
import subprocess
import sys
from contextlib import ExitStack, contextmanager
from pathlib import Path

CHECKOUT = Path(__file__).parents[1]
BLOCK = re.compile(r"^```(console|yaml|python)\n(.*?)^```", re.MULTILINE | re.DOTALL)


def steps(page):
    """Yield the files of a page with their texts, and its commands with what they print."""
    for kind, text in BLOCK.findall(page.read_text(encoding="utf-8")):
        if kind != "console":
            yield "file", text.partition("\n")[0].removeprefix("# "), text
            continue
        for part in re.split(r"^\$ ", text, flags=re.MULTILINE)[1:]:
            command, _, output = part.partition("\n")
            yield "command", command, output


def pattern(told):
    """Return an expression for an output: `…` is any text, and runs of spaces are alike."""
    lines = [
        ".*".join(r"\s+".join(map(re.escape, part.split())) for part in line.split("…"))
        for line in told.splitlines()
        if line.strip()
    ]
    return re.compile(r"\s*".join(f"{line}\\s*" for line in lines), re.DOTALL)


class Reader:
    """Someone who types what a page says, in a directory of their own."""

    def __init__(self, folder, stack):
        path = f"{os.path.dirname(sys.executable)}{os.pathsep}{os.environ['PATH']}"  # noqa: PTH120
        self.folder = folder
        self.env = os.environ | {"PATH": path, "COLUMNS": "160"}
        self._stack = stack

    def write(self, name, text):
        (self.folder / name).write_text(text)

    def type(self, command):
        """Run a command; return its output, and what it says beside."""
        if command.startswith("cd "):
            inside = self.folder / command[3:]
            self.folder = inside if inside.exists() else CHECKOUT / command[3:]
            return "", ""
        if command.startswith("export "):
            name, _, value = command[7:].partition("=")
            self.env[name] = str(self.folder / value)
            return "", ""
        if command.endswith(" &"):
            return self._stack.enter_context(self._running(command[:-2])), ""
        done = subprocess.run(
            ["bash", "-c", command], cwd=self.folder, env=self.env, capture_output=True,
            text=True, timeout=150, check=False,
        )  # fmt: skip
        return done.stdout, done.stderr

    @contextmanager
    def _running(self, command):
        """Start a server; its output is its first line."""
        # The usual port may be another server's.
        server = subprocess.Popen(
            [*shlex.split(command), "--listen", "127.0.0.1:0"], cwd=self.folder, env=self.env,
            stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
        )  # fmt: skip
        try:
            yield server.stdout.readline()
        finally:
            server.send_signal(signal.SIGINT)
            assert server.wait(30) == 0
            server.stdout.close()


def follow(page, folder):
    """Do what a page says; return how many commands printed what it shows. AssertionError."""
    ran = 0
    with ExitStack() as stack:
        reader = Reader(folder, stack)
        for kind, name, text in steps(page):
            if kind == "file":
                reader.write(name, text)
                continue
            output, beside = reader.type(name)
            shown = "127.0.0.1:…" if name.endswith(" &") else None
            told = re.sub(r"127\.0\.0\.1:\d+", shown, text) if shown else text
            assert pattern(told).fullmatch(output), (name, output, beside)
            ran += 1
    return ran
