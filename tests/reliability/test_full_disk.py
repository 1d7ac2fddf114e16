"""A disk that is full: writes are refused with the reason, reads go on, the data stay."""

import contextlib
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import IO, Any

import pytest

from reliability.processes import Connection, ServerProcess

PATH = "/api/v1/namespaces/default/configmaps"
LIMITED = """
import resource
resource.setrlimit(resource.RLIMIT_FSIZE, (2_000_000, 2_000_000))
from dralab.cli.main import main
main()
"""


def names(host: str) -> list[str]:
    connection = Connection(host)
    status, listing = connection.ask("GET", PATH)
    connection.close()
    assert status == 200
    return [item["metadata"]["name"] for item in listing["items"]]


@pytest.mark.thorough
def test_a_full_disk_refuses_writes_and_loses_nothing(tmp_path: Path) -> None:
    arguments = [
        "apiserver",
        "--plain",
        "--listen",
        "127.0.0.1:0",
        "--data",
        str(tmp_path / "data"),
    ]
    process = subprocess.Popen(
        [sys.executable, "-c", LIMITED, *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    host = process.stdout.readline().removeprefix("ready: http://").strip()
    connection = Connection(host)
    stored, refusals = [], []
    for index in range(50):
        body: Any = {"metadata": {"name": f"c{index:02}"}, "data": {"x": "x" * 50_000}}
        status, answer = connection.ask("POST", PATH, body)
        if status == 201:
            stored.append(f"c{index:02}")
        else:
            refusals.append((status, answer["reason"], answer["message"]))
    connection.close()
    assert len(stored) > 10
    assert {refusal[:2] for refusal in refusals} == {(503, "ServiceUnavailable")}
    assert refusals[0][2].startswith("the store does not accept writes: cannot use ")
    assert names(host) == stored
    process.send_signal(signal.SIGTERM)
    _, errors = process.communicate(timeout=150)
    assert process.returncode == 0
    assert "Traceback" not in errors
    with ServerProcess(tmp_path / "data") as again:
        assert names(again.host) == stored


# Two servers, one after the other, on a small disk that only they see.
SMALL_DISK = """
mount -t tmpfs -o size=48m tmpfs "$1"
for turn in 1 2; do
    "$2" -m dralab apiserver --plain --listen 127.0.0.1:0 --data "$1/data" &
    echo "pid: $!"
    wait "$!"
done
"""


def has_small_disks() -> bool:
    try:
        return not subprocess.run(
            ["unshare", "-rm", "mount", "-t", "tmpfs", "tmpfs", "/mnt"], check=False,
            capture_output=True,
        ).returncode  # fmt: skip
    except FileNotFoundError:
        return False


@pytest.mark.thorough
@pytest.mark.skipif(not has_small_disks(), reason="this system lets users mount no tmpfs")
def test_on_a_full_disk_deletions_work_and_so_does_a_restart(tmp_path: Path) -> None:
    servers = subprocess.Popen(
        ["unshare", "-rm", "sh", "-c", SMALL_DISK, "sh", str(tmp_path), sys.executable],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        start_new_session=True,
    )
    assert servers.stdout is not None
    try:
        process, host = started(servers.stdout)
        connection = Connection(host)
        stored = filled(connection)
        assert len(stored) > 20
        for name in stored[:5]:
            assert connection.ask("DELETE", f"{PATH}/{name}")[0] == 200
        connection.close()
        os.kill(process, signal.SIGKILL)
        process, host = started(servers.stdout)
        assert names(host) == stored[5:]
        connection = Connection(host)
        for name in stored[5:]:
            assert connection.ask("DELETE", f"{PATH}/{name}")[0] == 200
        assert len(filled(connection)) > 20  # there is room again
        connection.close()
        os.kill(process, signal.SIGTERM)
        assert servers.wait(20) == 0
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(servers.pid, signal.SIGKILL)  # the shell, and the server that it waits for
        servers.wait()
        servers.stdout.close()


def started(output: IO[str]) -> tuple[int, str]:
    """Return the process and the address of the server that starts now."""
    process, ready = output.readline(), output.readline()
    assert ready.startswith("ready: http://"), ready
    return int(process.removeprefix("pid: ")), ready.removeprefix("ready: http://").strip()


def filled(connection: Connection) -> list[str]:
    """Create objects until one is refused; return their names."""
    stored = []
    for index in range(2_000):
        body: Any = {"metadata": {"name": f"c{index:04}"}, "data": {"x": "x" * 50_000}}
        status, answer = connection.ask("POST", PATH, body)
        if status == 503:
            assert answer["reason"] == "ServiceUnavailable"
            return stored
        assert status == 201
        stored.append(f"c{index:04}")
    raise AssertionError("the disk has no end")
