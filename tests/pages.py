"""Pages that readers follow: their files, their commands, and what these print.

A yaml or python block whose first line is `# NAME` is a file. A diff block whose first line is
`--- NAME` changes a file, at the one place that has its context. A console block has commands after
`$ `, each with its output: `…` in it stands for any text. `cd` to a directory that the page has not
made means one of the checkout. A command that ends in ` &` is left running until the reader closes
the page.
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
BLOCK = re.compile(r"^```(console|diff|yaml|python)\n(.*?)^```", re.MULTILINE | re.DOTALL)


def steps(page):
    """Yield the files and changes of a page with their texts, and its commands with what they print."""
    for kind, text in BLOCK.findall(page):
        if kind != "console":
            name, _, body = text.partition("\n")
            yield ("change", name[4:], body) if kind == "diff" else ("file", name[2:], text)
            continue
        for part in re.split(r"^\$ ", text, flags=re.MULTILINE)[1:]:
            command, _, output = part.partition("\n")
            yield "command", command, output


def recipes():
    """Return the recipes of CONTRIBUTING by their titles."""
    page = (CHECKOUT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    section = page.partition("## Five recipes")[2].partition("\n## ")[0]
    _, *parts = re.split(r"^### (.+)$", section, flags=re.MULTILINE)
    return dict(zip(parts[::2], parts[1::2], strict=True))


def changed(text, diff):
    """Return a text after a change. AssertionError: its context does not stand there once."""
    lines = [(line[:1].strip(), line[1:]) for line in diff.splitlines(keepends=True)]
    before = "".join(line for sign, line in lines if sign != "+")
    after = "".join(line for sign, line in lines if sign != "-")
    assert before, "a change needs a line of context"
    parts = re.split(f"^{re.escape(before)}", text, flags=re.MULTILINE)
    assert len(parts) == 2, f"stands there {len(parts) - 1} times:\n{before}"
    return after.join(parts)


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

    def __init__(self, folder, stack, **env):
        path = f"{os.path.dirname(sys.executable)}{os.pathsep}{os.environ['PATH']}"  # noqa: PTH120
        self.folder = folder
        self.env = os.environ | {"PATH": path, "COLUMNS": "160", **env}
        self._stack = stack

    def write(self, name, text):
        (self.folder / name).write_text(text)

    def change(self, name, diff):
        path = self.folder / name
        path.write_text(changed(path.read_text(encoding="utf-8"), diff), encoding="utf-8")

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


def follow(page, folder, **env):
    """Do what a page says; return how many commands printed what it shows. AssertionError."""
    ran = 0
    with ExitStack() as stack:
        reader = Reader(folder, stack, **env)
        for kind, name, text in steps(page):
            if kind != "command":
                (reader.write if kind == "file" else reader.change)(name, text)
                continue
            output, beside = reader.type(name)
            shown = "127.0.0.1:…" if name.endswith(" &") else None
            told = re.sub(r"127\.0\.0\.1:\d+", shown, text) if shown else text
            assert pattern(told).fullmatch(output), (name, output, beside)
            ran += 1
    return ran
