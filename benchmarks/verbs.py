"""What a write costs inside the server: no sockets, no disk.

    python -m benchmarks.verbs

One core, one pod of some 0.5 KB with two environment variables, a port, a volume and limits. The
baseline is what a create costs a kube-apiserver 1.36.2 with etcd (1,392/s on two shared cores with
16 connections, the client on the same cores; `benchmarks/apiserver.py` compares like with like).
"""

import time
from collections.abc import Callable

import orjson

from benchmarks.board import record
from dralab.api.decoding import decoder_of
from dralab.apiserver.http.messages import HttpRequest
from dralab.apiserver.server import ApiServer
from dralab.apiserver.storage import MemoryStore

BASELINE = 1e6 / 1392
COUNT = 3000
PODS = "/api/v1/namespaces/default/pods"
HEADERS = {"content-type": "application/json", "user-agent": "benchmark/1"}


def pod(number: int) -> bytes:
    container = {
        "name": "c",
        "image": "example.com/app:1.2",
        "ports": [{"containerPort": 80}],
        "env": [{"name": "A", "value": "1"}, {"name": "B", "value": "2"}],
        "resources": {
            "requests": {"cpu": "100m", "memory": "128Mi"},
            "limits": {"cpu": "1", "memory": "1Gi"},
        },
        "volumeMounts": [{"name": "v", "mountPath": "/v"}],
    }
    return orjson.dumps(
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": f"p-{number}", "labels": {"app": "x", "tier": "web"}},
            "spec": {"containers": [container], "volumes": [{"name": "v", "emptyDir": {}}]},
        }
    )


def timed(name: str, count: int, act: Callable[[int], object]) -> None:
    start = time.process_time()
    for number in range(count):
        act(number)
    each = (time.process_time() - start) / count * 1e6
    print(f"{name:34} {each:8.1f} µs   {BASELINE / each:7.1f} times as fast as a create there")
    record(f"verbs: {name}", each, "µs")


def main() -> None:
    server = ApiServer(MemoryStore())
    bodies = [pod(number) for number in range(COUNT)]
    decoder = decoder_of("v1", "Pod")
    assert decoder is not None
    decoder.decode(orjson.loads(bodies[0]))
    for warm in range(COUNT, COUNT + 300):
        server.handle(HttpRequest(method="POST", path=PODS, headers=HEADERS, body=pod(warm)))

    def ask(method: str, number: int, body: bytes = b"") -> None:
        path = PODS if method == "POST" else f"{PODS}/p-{number}"
        answer = server.handle(HttpRequest(method=method, path=path, headers=HEADERS, body=body))
        assert answer.status < 300

    timed("parse JSON", COUNT, lambda number: orjson.loads(bodies[number]))
    timed("parse and type", COUNT, lambda number: decoder.decode(orjson.loads(bodies[number])))
    timed("create", COUNT, lambda number: ask("POST", number, bodies[number]))
    timed("get", COUNT, lambda number: ask("GET", number))
    kind = server.resources.kind("", "v1", "pods")
    stored = [
        server.resources.context.own.live(kind, "default", f"p-{n}").encoded for n in range(COUNT)
    ]
    timed("put that changes nothing", COUNT, lambda number: ask("PUT", number, stored[number]))
    labelled = [each.replace(b'"tier":"web"', b'"tier":"new"') for each in stored]
    timed("put that changes a label", COUNT, lambda number: ask("PUT", number, labelled[number]))
    timed("delete", COUNT, lambda number: ask("DELETE", number))


if __name__ == "__main__":
    main()
