"""The page of first steps, followed with the real kubectl: its commands print what it says."""

import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[2] / "docs" / "first-steps.md"
BLOCK = re.compile(r"^```(console|yaml)\n(.*?)^```", re.MULTILINE | re.DOTALL)
pytestmark = [
    pytest.mark.conformance,
    pytest.mark.skipif(not shutil.which("kubectl"), reason="no kubectl on the PATH"),
]


def steps():
    """Yield the commands of the page with what they print, and the files that it shows."""
    for kind, text in BLOCK.findall(PAGE.read_text(encoding="utf-8")):
        if kind == "yaml":
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


def test_a_newcomer_sees_what_the_page_says(tmp_path):
    found = list(steps())
    up = found.pop(0)
    assert up[1].startswith("dralab up ")
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    env = os.environ | {"PATH": path, "KUBECONFIG": str(tmp_path / "lab.kubeconfig")}
    server = subprocess.Popen(
        [*shlex.split(up[1]), "--listen", "127.0.0.1:0"],
        cwd=tmp_path,
        env=env,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    ran = 0
    try:
        assert server.stdout.readline().startswith("ready: https://127.0.0.1:")
        for kind, name, text in found:
            if kind == "file":
                (tmp_path / name).write_text(text)
            elif not name.startswith("export "):
                done = subprocess.run(
                    ["bash", "-c", name],
                    cwd=tmp_path,
                    env=env,
                    capture_output=True,
                    text=True,
                    timeout=60,
                    check=False,
                )
                assert pattern(text).fullmatch(done.stdout), (name, done.stdout, done.stderr)
                ran += 1
    finally:
        server.send_signal(signal.SIGINT)
        assert server.wait(30) == 0
        server.stdout.close()
    assert ran >= 8
