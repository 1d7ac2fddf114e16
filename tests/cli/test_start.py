"""What a start imports: counted, because a time says more about the machine than about the code."""

import subprocess
import sys

import pytest

SCRIPT = """
import sys
before = set(sys.modules)
import dralab
alone = set(sys.modules) - before
from dralab.cli.main import main
main(["--help"], standalone_mode=False)
print(*sorted(alone), file=sys.stderr)
print(*sorted(set(sys.modules) - before), file=sys.stderr)
"""


@pytest.fixture(scope="module")
def started():
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT], capture_output=True, text=True, check=True, timeout=150
    )
    assert "A dry lab for Kubernetes devices" in done.stdout
    return [set(line.split()) for line in done.stderr.splitlines()]


def test_python_m_takes_no_module_of_the_folder_for_pythons_own(tmp_path):
    for name in ("select", "json", "socket"):
        (tmp_path / f"{name}.py").write_text("raise SystemExit('not Python's own')")
    done = subprocess.run(
        [sys.executable, "-m", "dralab", "help", "schema", "dst"],
        cwd=tmp_path, capture_output=True, text=True, check=False, timeout=150,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")


def test_the_package_alone_imports_nothing_of_its_own(started):
    alone, _ = started
    assert {name for name in alone if name.startswith("dralab")} == {"dralab"}
    # 29 with CPython 3.11, all of them for `typing`.
    assert len(alone) <= 45


def test_help_imports_the_table_of_commands_and_click_alone(started):
    _, shown = started
    assert {name for name in shown if name.startswith("dralab")} == {
        "dralab", "dralab.cli", "dralab.cli.errors", "dralab.cli.main",
    }  # fmt: skip
    own = {name.partition(".")[0] for name in shown} - {"click", "dralab"}
    assert own <= set(sys.stdlib_module_names)
    # Each of these costs some milliseconds, and help needs none.
    late = {"asyncio", "json", "logging", "http", "ssl", "subprocess", "concurrent", "difflib"}
    assert own & late == set()
    assert len(shown) <= 130
