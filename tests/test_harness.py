"""The tests' own promises."""

from pathlib import Path

import pytest

pytest_plugins = ["pytester"]


def test_a_failed_test_leaves_no_process_behind(pytester: pytest.Pytester) -> None:
    pytester.makeconftest(Path(__file__).with_name("conftest.py").read_text())
    pytester.makepyfile("""
        import subprocess
        from pathlib import Path

        def test_fails():
            child = "sleep 600 & echo $! > inner; wait"
            process = subprocess.Popen(["sh", "-c", child])
            Path("outer").write_text(str(process.pid))
            while not (Path("inner").exists() and Path("inner").read_text().strip()):
                pass
            assert False
    """)
    result = pytester.runpytest_subprocess("-p", "no:cacheprovider")
    result.assert_outcomes(failed=1)
    for name in ("outer", "inner"):
        assert not alive(int((pytester.path / name).read_text()))


def alive(process: int) -> bool:
    """Return whether a process runs; one that is dead and not yet buried does not."""
    try:
        status = Path(f"/proc/{process}/stat").read_text()
    except OSError:
        return False
    return status.rpartition(")")[2].split()[0] != "Z"
