"""A disk that is full: writes are refused with the reason, reads go on, the data stay."""

import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

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
    assert refusals[0][2].startswith("the store takes no writes: cannot use ")
    assert names(host) == stored
    process.send_signal(signal.SIGTERM)
    _, errors = process.communicate(timeout=20)
    assert process.returncode == 0
    assert "Traceback" not in errors
    with ServerProcess(tmp_path / "data") as again:
        assert names(again.host) == stored
