"""How long answers in protobuf take: one pod, and lists of many, beside the same in JSON.

    python -m benchmarks.protobuf [--pods 10000]

In one process, without sockets; times are those of the processor. The first list encodes each pod,
later ones find them encoded (up to 32 MiB).
"""

import argparse
import time

import orjson

from benchmarks.board import record
from dralab.apiserver.http.messages import HttpRequest, HttpResponse
from dralab.apiserver.protobuf.encoding import encode
from dralab.apiserver.server import ApiServer
from dralab.apiserver.storage import MemoryStore

PODS = "/api/v1/namespaces/default/pods"
FORMS = {"JSON": "application/json", "protobuf": "application/vnd.kubernetes.protobuf"}


def pod(name: str) -> bytes:
    container = {
        "name": "c",
        "image": "registry.k8s.io/pause:3.9",
        "env": [{"name": "A", "value": "b"}],
        "resources": {
            "requests": {"cpu": "100m", "memory": "64Mi"},
            "limits": {"memory": "128Mi"},
        },
    }
    metadata = {"name": name, "labels": {"app": "a"}}
    spec = {"nodeName": "n1", "containers": [container]}
    return orjson.dumps({"metadata": metadata, "spec": spec})


def ask(server: ApiServer, method: str, path: str, accept: str, body: bytes = b"") -> bytes:
    request = HttpRequest(method=method, path=path, headers={"accept": accept}, body=body)
    answer = server.handle(request)
    if not isinstance(answer, HttpResponse) or answer.status >= 300:
        raise SystemExit(f"{method} {path}: {answer}")
    return answer.content


def main() -> None:
    """Measure, and print a line for each figure."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pods", type=int, default=10_000)
    wanted = parser.parse_args().pods
    server = ApiServer(MemoryStore())
    for number in range(wanted):
        ask(server, "POST", PODS, FORMS["JSON"], pod(f"p{number}"))
    one = orjson.loads(ask(server, "GET", f"{PODS}/p0", FORMS["JSON"]))
    encode(one)
    best = min(_timed(lambda: encode(one)) for _ in range(2_000))
    print(f"one pod: {best * 1e6:.0f} µs, {len(encode(one))} bytes")
    for form, accept in FORMS.items():
        times = []
        size = 0
        for _ in range(5):
            began = time.process_time()
            size = len(ask(server, "GET", PODS, accept))
            times.append((time.process_time() - began) * 1e3)
        first, later = times[0], min(times[1:])
        print(f"list of {wanted} pods, {form}: {first:.0f} ms, then {later:.0f} ms, {size} bytes")
        record(f"first list of {wanted} pods, {form}", first, "ms")
        record(f"later list of {wanted} pods, {form}", later, "ms")


def _timed(call: object) -> float:
    began = time.process_time()
    call()  # type: ignore[operator]  # a function without arguments
    return time.process_time() - began


if __name__ == "__main__":
    main()
