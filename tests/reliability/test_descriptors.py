"""A server with more connections than it has descriptors for."""

import resource
import socket
import struct
import subprocess
import sys
from pathlib import Path

import pytest

from reliability.processes import Connection

LIMITED = """
import resource, runpy
resource.setrlimit(resource.RLIMIT_NOFILE, (100, 100))
runpy.run_module("dralab", run_name="__main__")
"""
CONFIGMAPS = "/api/v1/namespaces/default/configmaps"


@pytest.mark.thorough
@pytest.mark.parametrize("option", ["--plain", "--tls"])
def test_connections_that_ask_nothing_make_room_for_those_that_do(
    tmp_path: Path, option: str
) -> None:
    """Over TLS the connections do not even begin to talk: they count all the same."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < 400:
        pytest.skip("this process may not open enough connections itself")
    command = [sys.executable, "-c", LIMITED, "apiserver", option, "--listen", "127.0.0.1:0"]
    process = subprocess.Popen(
        [*command, "--data", str(tmp_path / "data")],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    url = process.stdout.readline().removeprefix("ready: ").strip()
    host = url.rpartition("/")[2]
    access = None
    if option == "--tls":
        from dralab.runtime.kubeconfig import read

        access = read(tmp_path / "data" / "kubeconfig")
    first = Connection(host, access=access)
    assert first.ask("GET", "/version")[0] == 200
    address = ("127.0.0.1", int(host.rpartition(":")[2]))
    many = [socket.create_connection(address, timeout=150) for _ in range(300)]
    # The oldest that asked nothing has been dropped; who asked is there, and so is the store.
    assert many[0].recv(1) == b""
    for number in range(5):
        body = {"metadata": {"name": f"c{number}"}}
        assert first.ask("POST", CONFIGMAPS, body)[0] == 201
        # Nobody has to wait for the end of the others.
        later = Connection(host, access=access)
        assert later.ask("GET", f"{CONFIGMAPS}/c{number}")[0] == 200
        later.close()
    for one in many:
        one.close()
    first.close()
    process.terminate()
    _, errors = process.communicate(timeout=150)
    assert process.returncode == 0
    assert not errors.count("new connections are closed at once")
    assert "Traceback" not in errors
    assert len(errors.splitlines()) < 10


@pytest.mark.thorough
def test_clients_that_leave_in_the_middle_of_answers_leave_no_lines(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "dralab", "apiserver", "--plain", "--listen", "127.0.0.1:0"]
    process = subprocess.Popen(
        [*command, "--data", str(tmp_path / "data")],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    host = process.stdout.readline().rpartition("/")[2].strip()
    first = Connection(host)
    body = {"metadata": {"name": "large"}, "data": {"a": "x" * 900_000}}
    assert first.ask("POST", CONFIGMAPS, body)[0] == 201
    address = ("127.0.0.1", int(host.rpartition(":")[2]))
    head = f"GET {CONFIGMAPS} HTTP/1.1\r\nHost: {host}\r\nUser-Agent: x\r\n\r\n".encode()
    for _ in range(20):
        with socket.create_connection(address) as one:
            one.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            one.sendall(head * 20)
    assert first.ask("GET", "/version")[0] == 200
    first.close()
    process.terminate()
    _, errors = process.communicate(timeout=150)
    assert process.returncode == 0
    assert len(errors.splitlines()) < 10
