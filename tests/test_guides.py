"""The tests that guides tell people to write are green."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

pytest_plugins = ["pytester"]

GUIDES = Path(__file__).parents[1] / "docs/guides"
BLOCK = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("number", [0, pytest.param(1, marks=pytest.mark.thorough)])
def test_the_tests_of_the_guide_to_testing_pass(number, tmp_path):
    blocks = BLOCK.findall((GUIDES / "test-with-dralab.md").read_text())
    if "import kubernetes" in blocks[number]:
        pytest.importorskip("kubernetes")
    script = tmp_path / f"test_guide_{number}.py"
    script.write_text(blocks[number])
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(script)],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_clock_and_the_port_of_the_guide_to_testing_work(pytester):
    pytest.importorskip("lightkube")
    blocks = BLOCK.findall((GUIDES / "test-with-dralab.md").read_text())
    clock, conftest, ported = blocks[2:5]
    assert "own_cluster" in conftest
    pytester.makepyfile(test_clock=clock)
    folder = pytester.mkdir("e2e")
    (folder / "conftest.py").write_text(conftest)
    (folder / "test_ported.py").write_text(ported)
    result = pytester.runpytest_inprocess("-p", "no:cacheprovider", "-p", "no:timeout")
    result.assert_outcomes(passed=2)


def test_each_case_of_kubernetes_dra_suites_has_its_test():
    named = re.findall(r"`(test_\w+)`", (GUIDES / "dra-suites.md").read_text(encoding="utf-8"))
    folders = ("apiserver/access/authorization", "drivers", "node")
    sources = [
        path for folder in folders for path in (Path(__file__).parent / folder).glob("test_*.py")
    ]
    there = {
        name
        for path in sources
        for name in re.findall(r"def (test_\w+)", path.read_text(encoding="utf-8"))
    }
    assert len(named) > 6
    assert set(named) <= there
    suite = (Path(__file__).parent / "drivers").glob("test_dra_suite_*.py")
    assert sum(path.read_text(encoding="utf-8").count("\ndef test_") for path in suite) > 75
