"""`dralab up`, `apiserver`, `backup` and `restore` as users run them: as processes."""

import json
import os
import signal
import socket
import ssl
import stat
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from dralab.apiserver.http.connections import tls
from dralab.cli.main import main
from dralab.kernel.clock import WallClock
from dralab.runtime.kubeconfig import read

DRALAB = [sys.executable, "-m", "dralab"]


class Process:
    """A running server."""

    def __init__(self, *arguments: str, home: Path) -> None:
        environment = {**os.environ, "XDG_DATA_HOME": str(home)}
        self.process = subprocess.Popen(
            [*DRALAB, *arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=environment,
        )
        assert self.process.stdout is not None
        self.ready = self.process.stdout.readline()
        self.url = self.ready.removeprefix("ready: ").strip()
        given = dict(pairwise(arguments))
        data = given.get("--data", str(home / "dralab" / "cluster"))
        self.kubeconfig = Path(given.get("--kubeconfig", f"{data}/kubeconfig"))

    def ask(self, path: str, body: Any = None) -> Any:
        """Ask as the kubeconfig says."""
        access = read(self.kubeconfig)
        data = None if body is None else json.dumps(body).encode()
        headers = {"Content-Type": "application/json"}
        if access.token:
            headers["Authorization"] = f"Bearer {access.token}"
        request = urllib.request.Request(access.server + path, data, headers)
        trusting = ssl.create_default_context(cadata=access.ca) if access.ca else None
        with urllib.request.urlopen(request, context=trusting) as answer:
            return json.load(answer)

    def stop(self, number: int = signal.SIGTERM) -> tuple[int, str]:
        self.process.send_signal(number)
        _, errors = self.process.communicate(timeout=150)
        return self.process.returncode, errors


class Starter:
    def __init__(self, home: Path) -> None:
        self.home = home
        self.started: list[Process] = []

    def __call__(self, *arguments: str) -> Process:
        self.started.append(Process(*arguments, home=self.home))
        return self.started[-1]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Starter]:
    starter = Starter(tmp_path / "home")
    yield starter
    for one in starter.started:
        if one.process.poll() is None:
            one.process.kill()
            one.process.communicate()


def run(*arguments: str) -> tuple[int, str, str]:
    found = subprocess.run(
        [*DRALAB, *arguments], capture_output=True, text=True, timeout=150, check=False
    )
    return found.returncode, found.stdout, found.stderr


CONFIGMAPS = "/api/v1/namespaces/default/configmaps"


def names(server: Process) -> list[str]:
    return [item["metadata"]["name"] for item in server.ask(CONFIGMAPS)["items"]]


def test_a_server_says_when_it_is_ready_and_stops_cleanly(start: Starter, tmp_path: Path) -> None:
    file = tmp_path / "kubeconfig"
    server = start(
        "apiserver", "--listen", "127.0.0.1:0", "--data", ":memory:", "--kubeconfig", str(file)
    )
    assert server.ready.startswith("ready: https://127.0.0.1:")
    assert server.url in file.read_text()
    assert server.ask("/version")["major"] == "1"
    code, errors = server.stop()
    assert code == 0
    assert "plain" not in errors
    assert f"try: kubectl --kubeconfig {file} get namespaces" in errors
    assert "Traceback" not in errors


@pytest.mark.thorough
def test_ctrl_c_is_a_clean_stop_too_and_objects_stay(start: Starter, tmp_path: Path) -> None:
    place = tmp_path / "home" / "dralab" / "cluster"
    server = start("apiserver", "--listen", "127.0.0.1:0")
    server.ask(CONFIGMAPS, {"metadata": {"name": "a"}})
    assert (place / "kubeconfig").exists()
    assert server.stop(signal.SIGINT)[0] == 0
    server = start("apiserver", "--listen", "127.0.0.1:0", "--durability", "relaxed")
    assert names(server) == ["a"]
    code, _, errors = run("apiserver", "--listen", "127.0.0.1:0", "--data", str(place))
    assert (code, errors) == (
        2,
        f"Error: the data directory {place} is in use by another server\n",
    )


@pytest.mark.thorough
def test_a_copy_of_a_running_server_can_be_restored(start: Starter, tmp_path: Path) -> None:
    data, copy, new = (str(tmp_path / name) for name in ("data", "copy.db", "new"))
    server = start("apiserver", "--listen", "127.0.0.1:0", "--data", data)
    server.ask(CONFIGMAPS, {"metadata": {"name": "a"}})
    code, revision, _ = run("store", "backup", copy, "--data", data)
    assert code == 0
    server.ask(CONFIGMAPS, {"metadata": {"name": "b"}})
    code, ahead, errors = run("store", "restore", copy, "--data", new)
    assert code == 0
    assert int(ahead) > int(revision)
    assert f"dralab up --data {new}" in errors
    again = start("apiserver", "--listen", "127.0.0.1:0", "--data", new)
    assert names(again) == ["a"]
    assert run("store", "restore", copy, "--data", data)[0] == 2
    assert run("store", "backup", copy, "--data", data)[0] == 2
    note = tmp_path / "note.txt"
    note.write_text("no database")
    code, out, errors = run("store", "restore", str(note), "--data", str(tmp_path / "newer"))
    assert (code, out) == (1, "")
    assert errors.count("\n") == 1
    assert str(note) in errors
    assert list((tmp_path / "newer").iterdir()) == []


def test_a_port_that_was_asked_for_and_is_taken_is_an_error(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        where = f"127.0.0.1:{taken.getsockname()[1]}"
        code, out, errors = run("apiserver", "--listen", where, "--data", ":memory:")
    assert (code, out) == (2, "")
    assert errors.startswith(f"Error: {where} is in use by process {os.getpid()} (")
    assert errors.endswith("): stop it or choose another address with --listen\n")
    assert errors.count("\n") == 1


@pytest.mark.parametrize("text", ["nowhere", "127.0.0.1:", "127.0.0.1:99999", ":80"])
def test_a_bad_address_is_bad_input(text: str) -> None:
    code, _, errors = run("apiserver", "--listen", text, "--data", ":memory:")
    assert code == 2
    assert f"'{text}' is not ADDR:PORT, such as 127.0.0.1:55441" in errors


def test_a_directory_that_cannot_be_used_is_one_line(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("precious")
    code, _, errors = run("apiserver", "--listen", "127.0.0.1:0", "--data", str(file))
    assert code == 2
    assert errors == f"Error: cannot use the data directory {file}: file exists\n"
    assert file.read_text() == "precious"


@pytest.mark.thorough
def test_a_kubeconfig_that_cannot_be_written_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    target = tmp_path / "file" / "kubeconfig"
    code, _, errors = run(
        "apiserver", "--listen", "127.0.0.1:0", "--data", ":memory:", "--kubeconfig", str(target)
    )
    assert code == 2
    assert errors.startswith(f"Error: cannot write the kubeconfig {target}: ")
    assert errors.count("\n") == 1


@pytest.mark.thorough
@pytest.mark.parametrize("command", ["up", "apiserver"])
def test_nobody_comes_without_the_token_of_the_kubeconfig(
    start: Starter, tmp_path: Path, command: str
) -> None:
    data = tmp_path / "data"
    server = start(command, "--listen", "127.0.0.1:0", "--data", str(data))
    access = read(server.kubeconfig)
    assert access.server == server.url
    assert access.ca == (data / "tls" / "ca.crt").read_text()
    assert access.token == (data / "tls" / "token").read_text()
    assert len(access.token) > 30
    for secret in (server.kubeconfig, *(data / "tls").glob("*.key"), data / "tls" / "token"):
        assert stat.S_IMODE(secret.stat().st_mode) == 0o600
    trusting = ssl.create_default_context(cadata=access.ca)
    for headers in ({}, {"Authorization": "Bearer guessed"}):
        request = urllib.request.Request(f"{server.url}/api/v1/secrets", headers=headers)
        with pytest.raises(urllib.error.HTTPError) as caught:
            urllib.request.urlopen(request, context=trusting)
        caught.value.close()
        assert caught.value.code == 401
    assert server.ask("/api/v1/secrets")["kind"] == "SecretList"
    assert server.stop()[0] == 0
    again = start(command, "--listen", "127.0.0.1:0", "--data", str(data))
    assert read(again.kubeconfig).token == access.token
    assert read(again.kubeconfig).ca == access.ca


def test_a_token_that_is_given_is_the_only_one(start: Starter, tmp_path: Path) -> None:
    data, file = tmp_path / "data", tmp_path / "token"
    file.write_text("mine\n")
    options = ("--data", str(data), "--token-file", str(file), "--event-ttl", "90s")
    server = start("apiserver", "--listen", "127.0.0.1:0", *options)
    assert read(server.kubeconfig).token == "mine"
    assert server.ask("/version")["major"] == "1"
    assert not (data / "tls" / "token").exists()


def test_plain_asks_for_nothing_and_says_so(start: Starter, tmp_path: Path) -> None:
    data = str(tmp_path / "data")
    server = start("up", "--plain", "--empty", "--listen", "127.0.0.1:0", "--data", data)
    assert server.ready.startswith("ready: http://127.0.0.1:")
    assert read(server.kubeconfig).token == ""
    assert server.ask("/version")["major"] == "1"
    assert not (tmp_path / "data" / "tls").exists()
    code, errors = server.stop()
    assert code == 0
    assert "plain HTTP without a token: every program on this machine has full access" in errors


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (["up", "--plain", "--runtime", "process"], "--runtime process lets clients run commands"),
        (["up", "--plain", "--listen", "0.0.0.0:0"], "on loopback only, not on 0.0.0.0"),
        (["apiserver", "--plain", "--listen", "[::]:0"], "on loopback only, not on ::"),
        (["apiserver", "--plain", "--token-file", "x"], "--token-file needs TLS"),
        (["up", "--plain", "--authorization-mode", "RBAC"], "--authorization-mode needs TLS"),
        (["apiserver", "--authorization-mode", "Rbac"], "'Rbac' is not a mode; the modes are"),
        (["apiserver", "--authorization-mode", "RBAC,RBAC"], "'RBAC' is given twice"),
        (["up", "--token-file", "/dev/null"], "/dev/null: it is a device, not a regular file"),
        (["up", "--token-file", "/no/file"], "cannot read the token file /no/file: no such file"),
        (["up", "--event-ttl", "soon"], "'soon' is not a duration such as 90s"),
        (["up", "--event-ttl", "0"], "'0' is shorter than a second"),
    ],
)
def test_what_strangers_could_use_is_refused(arguments: list[str], why: str) -> None:
    refused = CliRunner().invoke(main, [*arguments, "--data", ":memory:"])
    assert (refused.exit_code, refused.stdout) == (2, "")
    assert why in refused.stderr


def test_a_name_of_the_operator_is_in_the_certificate(start: Starter, tmp_path: Path) -> None:
    data = str(tmp_path / "data")
    names = ("--accept-hosts", "lab.example, other.example")
    server = start("apiserver", "--listen", "127.0.0.1:0", "--data", data, *names)
    trusting = ssl.create_default_context(cadata=read(server.kubeconfig).ca)
    address = ("127.0.0.1", int(server.url.rpartition(":")[2]))
    for name in ("lab.example", "other.example", "localhost"):
        with socket.create_connection(address) as plain:
            trusting.wrap_socket(plain, server_hostname=name).close()


def test_a_certificate_of_the_operator_is_served(start: Starter, tmp_path: Path) -> None:
    made = tls.certificate(tmp_path / "theirs", WallClock().now())
    chain = tmp_path / "chain.pem"
    chain.write_text(made.certificate.read_text() + made.ca.read_text())
    files = ("--tls-cert-file", str(chain), "--tls-private-key-file", str(made.key))
    given = ("--secure-port", "0", "--service-cluster-ip-range", "10.7.0.0/24")
    server = start("apiserver", "--data", ":memory:", *files, *given,
                   "--kubeconfig", str(tmp_path / "k"))  # fmt: skip
    service = server.ask("/api/v1/namespaces/default/services/kubernetes")
    assert service["spec"]["clusterIP"] == "10.7.0.1"
    assert read(server.kubeconfig).ca == chain.read_text()
