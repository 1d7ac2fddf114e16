"""One small client beside eight that send bodies made to take long.

    python -m benchmarks.hostile_bodies [NAME…]

Each of eight connections sends the same body again and again, as large as a server takes it; beside
them another client gets a namespace 20 times a second. Printed are what its gets take, and what one
of the bodies costs the server in CPU time. The budget is 250 ms of the loop and of the
interpreter's lock.
"""

import http.client
import json
import multiprocessing
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from dralab.values.json_syntax import MOST_VALUES

CLIENTS: Final = 8
GETS: Final = 200
PAUSE: Final = 0.05  # seconds between two gets
SIZE: Final = 3 * 1024 * 1024 - 1024  # a little less than the longest body
CUSTOM: Final = "/apis/example.com/v1/namespaces/default/widgets"
MAPS: Final = "/api/v1/namespaces/default/configmaps"
PODS: Final = "/api/v1/namespaces/default/pods"
JSON: Final = "application/json"
Body = tuple[str, str, str, bytes]  # method, path, media type


def widget(parts: bytes, end: bytes = b"]", begin: bytes = b"[") -> bytes:
    """Return a custom object that holds parts, which may be anything."""
    head = b'{"apiVersion":"example.com/v1","kind":"Widget","metadata":{"name":"w"},"x":'
    return head + begin + parts + end + b"}"


def many(part: bytes, size: int = SIZE) -> bytes:
    """Return as many copies of a part as a body has room for."""
    return b",".join([part] * (size // (len(part) + 1)))


def allowed(part: bytes) -> bytes:
    """Return as many copies of a part as values are allowed."""
    each = 1 + part.count(b"{") + part.count(b"[") + part.count(b",")
    return b",".join([part] * ((MOST_VALUES - 20) // each))


def pod(spec: bytes) -> bytes:
    """Return a pod with parts of its specification."""
    return b'{"metadata":{"name":"p"},"spec":{' + spec + b"}}"


def labels() -> bytes:
    """Return an object whose labels are all invalid."""
    found = b",".join(b'"!%d":""' % number for number in range(SIZE // 13))
    return b'{"metadata":{"name":"m","labels":{' + found + b"}}}"


def cbor(item: bytes) -> bytes:
    """Return a list without an end of so many items."""
    return b"\xd9\xd9\xf7\x9f" + item * (SIZE - 8)


BODIES: Final[dict[str, Callable[[], Body]]] = {
    "keys given twice": lambda: (
        "POST", f"{CUSTOM}?fieldValidation=Strict", JSON, widget(many(b'{"a":1,"a":2}')),
    ),
    "empty maps": lambda: ("POST", CUSTOM, JSON, widget(many(b"{}"))),
    "lists in lists": lambda: ("POST", CUSTOM, JSON, widget(many(b"[[[[[[[[]]]]]]]]"))),
    "a syntax error at the end": lambda: ("POST", CUSTOM, JSON, widget(many(b"{}"), b"")),
    "empty containers": lambda: ("POST", PODS, JSON, pod(b'"containers":[' + many(b"{}") + b"]")),
    "keys given twice, as many as allowed": lambda: (
        "POST", f"{CUSTOM}?fieldValidation=Strict", JSON, widget(allowed(b'{"a":1,"a":2}')),
    ),
    "empty maps, as many as allowed": lambda: ("POST", CUSTOM, JSON, widget(allowed(b"{}"))),
    "lists in lists, as many as allowed": lambda: (
        "POST", CUSTOM, JSON, widget(allowed(b"[[[[[[[[]]]]]]]]")),
    ),
    "empty containers, as many as allowed": lambda: (
        "POST", PODS, JSON, pod(b'"containers":[' + allowed(b"{}") + b"]"),
    ),
    "apply of empty maps, as many as allowed": lambda: (
        "PATCH", f"{CUSTOM}/w?fieldManager=m", "application/apply-patch+yaml",
        widget(allowed(b"{}")),
    ),
    "invalid labels": lambda: ("POST", MAPS, JSON, labels()),
    "CBOR of empty maps": lambda: ("POST", CUSTOM, "application/cbor", cbor(b"\xa0")),
    "YAML of short items": lambda: (
        "POST", CUSTOM, "application/yaml",
        b"apiVersion: example.com/v1\nkind: Widget\nmetadata: {name: w}\nx:\n" + b"- a\n" * 70_000,
    ),
    "apply of empty maps": lambda: (
        "PATCH", f"{CUSTOM}/w?fieldManager=m", "application/apply-patch+yaml", widget(many(b"{}")),
    ),
    "a definition of many fields": lambda: (
        "POST", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", JSON,
        json.dumps(definition("others", 80_000)).encode(),
    ),
}  # fmt: skip


def definition(plural: str, fields: int = 0) -> dict[str, object]:
    """Return the definition of a kind that takes anything."""
    schema: dict[str, object] = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    if fields:
        schema["properties"] = {f"a{number}": {"type": "object"} for number in range(fields)}
    version = {"name": "v1", "served": True, "storage": True}
    kind = "Widget" if plural == "widgets" else "Other"
    return {
        "metadata": {"name": f"{plural}.example.com"},
        "spec": {
            "group": "example.com",
            "scope": "Namespaced",
            "names": {"plural": plural, "kind": kind},
            "versions": [{**version, "schema": {"openAPIV3Schema": schema}}],
        },
    }


def start() -> tuple[subprocess.Popen[str], str]:
    """Start a server of its own process; return it and its URL."""
    command = [sys.executable, "-m", "dralab", "apiserver", "--plain", "--listen", "127.0.0.1:0"]
    command += ["--data", ":memory:", "--feature-gates", "CBORServingAndStorage=true"]
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )
    assert process.stdout is not None
    return process, process.stdout.readline().removeprefix("ready: ").strip()


def send(connection: http.client.HTTPConnection, body: Body) -> int:
    """Send a request; return the status of its answer."""
    method, path, media, data = body
    connection.request(method, path, data, {"Content-Type": media})
    answer = connection.getresponse()
    answer.read()
    return answer.status


def send_on(url: str, body: Body) -> None:
    """Send the same body again and again."""
    connection = http.client.HTTPConnection(urlsplit(url).netloc)
    while True:
        try:
            send(connection, body)
        except (OSError, http.client.HTTPException):
            connection.close()


def gets(url: str, count: int) -> list[float]:
    """Return how long gets of a namespace take, in milliseconds, sorted."""
    connection = http.client.HTTPConnection(urlsplit(url).netloc)
    return sorted(_timed(connection) for _ in range(count))


def _timed(connection: http.client.HTTPConnection) -> float:
    time.sleep(PAUSE)
    began = time.perf_counter()
    send(connection, ("GET", "/api/v1/namespaces/default", JSON, b""))
    return (time.perf_counter() - began) * 1e3


def cpu(pid: int) -> float:
    """Return the seconds of CPU time of a process."""
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def measured(name: str) -> str:
    """Return the row of a kind of body; of none if it is empty."""
    process, url = start()
    connection = http.client.HTTPConnection(urlsplit(url).netloc)
    clients: list[multiprocessing.Process] = []
    try:
        definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
        send(connection, ("POST", definitions, JSON, json.dumps(definition("widgets")).encode()))
        status = cost = ""
        if name:
            body = BODIES[name]()
            before = cpu(process.pid)
            status = str(send(connection, body))
            cost = f"{(cpu(process.pid) - before) * 1e3:.0f}"
            clients = [
                multiprocessing.Process(target=send_on, args=(url, body), daemon=True)
                for _ in range(CLIENTS)
            ]
        for client in clients:
            client.start()
        time.sleep(1)
        found = gets(url, GETS)
    finally:
        for client in clients:
            client.kill()
            client.join()
        process.kill()
        process.wait()
    return (
        f"| {name or 'none'} | {status} | {cost} | {_of(found, 0.5):.1f} | {_of(found, 0.99):.1f} |"
    )


def _of(found: list[float], share: float) -> float:
    return found[min(int(len(found) * share), len(found) - 1)]


def main() -> None:
    """Measure and print."""
    print(f"load {os.getloadavg()[0]:.1f}")
    print("| body | answer | CPU, ms | p50 of a neighbour's get, ms | p99, ms |")
    print("|---|---|---|---|---|")
    for name in ["", *(sys.argv[1:] or BODIES)]:
        print(measured(name), flush=True)


if __name__ == "__main__":
    main()
