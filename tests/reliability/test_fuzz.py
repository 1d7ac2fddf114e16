"""Bad requests by the thousand: each is refused by a Status, and the server stays what it was."""

import http.client
import json
import random
import socket
import string
from collections import Counter
from collections.abc import Callable
from typing import Any
from urllib.parse import quote

import pytest

from reliability.faultless import is_fault
from reliability.processes import Connection, ServerProcess

POD: dict[str, Any] = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"name": "p", "labels": {"a": "b"}},
    "spec": {
        "containers": [
            {
                "name": "c",
                "image": "i",
                "ports": [{"containerPort": 80}],
                "env": [{"name": "A", "value": "b"}],
                "resources": {"requests": {"cpu": "1", "memory": "1Gi"}},
            }
        ],
        "tolerations": [{"key": "k", "operator": "Exists"}],
    },
}
CLAIM: dict[str, Any] = {
    "apiVersion": "resource.k8s.io/v1",
    "kind": "ResourceClaim",
    "metadata": {"name": "c"},
    "spec": {
        "devices": {
            "requests": [
                {
                    "name": "r",
                    "exactly": {
                        "deviceClassName": "gpu",
                        "selectors": [{"cel": {"expression": "device.driver == 'x'"}}],
                    },
                }
            ],
            "constraints": [{"matchAttribute": "x.io/y", "requests": ["r"]}],
        }
    },
}
DEPLOYMENT: dict[str, Any] = {
    "apiVersion": "apps/v1",
    "kind": "Deployment",
    "metadata": {"name": "d"},
    "spec": {
        "replicas": 2,
        "selector": {"matchLabels": {"a": "b"}},
        "template": {"metadata": {"labels": {"a": "b"}}, "spec": POD["spec"]},
    },
}
CRD: dict[str, Any] = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {"name": "things.x.io"},
    "spec": {
        "group": "x.io",
        "names": {"plural": "things", "kind": "Thing"},
        "scope": "Namespaced",
        "versions": [
            {
                "name": "v1",
                "served": True,
                "storage": True,
                "schema": {"openAPIV3Schema": {"type": "object"}},
            }
        ],
    },
}
SLICE: dict[str, Any] = {
    "apiVersion": "resource.k8s.io/v1",
    "kind": "ResourceSlice",
    "metadata": {"name": "s"},
    "spec": {
        "driver": "x.io",
        "nodeName": "n",
        "pool": {"name": "p", "generation": 1, "resourceSliceCount": 1},
        "devices": [{"name": "d", "attributes": {"a": {"string": "b"}}}],
    },
}
BODIES = {
    "/api/v1/namespaces/default/pods": POD,
    "/apis/resource.k8s.io/v1/namespaces/default/resourceclaims": CLAIM,
    "/apis/resource.k8s.io/v1/resourceslices": SLICE,
    "/apis/apps/v1/namespaces/default/deployments": DEPLOYMENT,
    "/apis/apiextensions.k8s.io/v1/customresourcedefinitions": CRD,
}
ODD: list[Any] = [
    None, True, False, 0, -1, 1.5, 1e308, 2**63, -(2**70), "", "x", "é" * 300, "a" * 70_000, "\x00",
    "../..", [], [None], [[]], [[[[]]]], {}, {"": ""}, {"a": None}, "1Gi", "-1", "9e99", {"a": {"b": {}}},
    ["x", 1, {}], "2026-01-01T00:00:00Z", "\ud83d\ude00", "{{", "$patch", {"$patch": "delete"}, [{"name": None}],
]  # fmt: skip
PATCH_KINDS = [
    "application/json-patch+json",
    "application/merge-patch+json",
    "application/strategic-merge-patch+json",
    "application/apply-patch+yaml",
    "application/nonsense",
    "application/json",
    "",
]
Request = tuple[str, str, bytes | None, dict[str, str]]


def mutated(value: Any, rng: random.Random) -> Any:
    """Return an object in which one to three things are odd."""
    value = json.loads(json.dumps(value))
    for _ in range(rng.randint(1, 3)):
        node = value
        while True:
            if isinstance(node, dict) and node:
                key: Any = rng.choice(sorted(node))
            elif isinstance(node, list) and node:
                key = rng.randrange(len(node))
            else:
                break
            if rng.random() < 0.3 or not isinstance(node[key], (dict, list)):
                if isinstance(node, dict) and rng.random() < 0.2:
                    node[rng.choice(["", "metadata", "x" * 300, "$patch", key + "x"])] = node.pop(
                        key
                    )
                else:
                    node[key] = json.loads(json.dumps(rng.choice(ODD)))
                break
            node = node[key]
    return value


def text(rng: random.Random, most: int = 30) -> str:
    return "".join(rng.choice(string.printable + "é☃") for _ in range(rng.randrange(most)))


def bad_object(rng: random.Random) -> Request:
    path = rng.choice(sorted(BODIES))
    body = json.dumps(mutated(BODIES[path], rng)).encode()
    query = rng.choice(["", "?dryRun=All", "?fieldValidation=Strict&dryRun=All", "?dryRun=x"])
    return "POST", path + query, body, {"Content-Type": "application/json"}


def bad_put(rng: random.Random) -> Request:
    path = rng.choice(sorted(BODIES))
    body = json.dumps(mutated(BODIES[path], rng)).encode()
    tail = rng.choice(
        [
            "",
            "/status",
            "/scale",
            "/binding",
            "/eviction",
            "/finalize",
            "/" + quote(text(rng, 8), safe=""),
        ]
    )
    method = rng.choice(["PUT", "PUT", "POST", "DELETE"])
    return (
        method,
        f"{path}/{rng.choice(['p', 'base', 'c'])}{tail}",
        body,
        {"Content-Type": "application/json"},
    )


def bad_json(rng: random.Random) -> Request:
    path = rng.choice(sorted(BODIES))
    body = bytearray(json.dumps(BODIES[path]).encode())
    for _ in range(rng.randint(1, 10)):
        body[rng.randrange(len(body))] = rng.randrange(256)
    if rng.random() < 0.3:
        del body[rng.randrange(len(body)) :]
    kind = rng.choice(["application/json", "application/yaml", "application/json; charset=utf-16"])
    return "POST", path, bytes(body), {"Content-Type": kind}


def bad_protobuf(rng: random.Random) -> Request:
    path = rng.choice(sorted(BODIES))
    body = bytes(rng.randrange(256) for _ in range(rng.randrange(200)))
    if rng.random() < 0.8:
        kind = rng.choice([b"Pod", b"Deployment", b"DeleteOptions", b"X"])
        meta = b"\x0a\x02v1\x12" + bytes([len(kind)]) + kind
        inner = bytes([rng.choice([0x0A, 0x12, 0x1A, 0x08]), rng.randrange(256)]) + body[:60]
        raw = b"\x12" + bytes([min(len(inner), 127)]) + inner
        body = b"k8s\x00\x0a" + bytes([len(meta)]) + meta + raw
    method = rng.choice(["POST", "DELETE"])
    return method, path, body, {"Content-Type": "application/vnd.kubernetes.protobuf"}


def bad_patch(rng: random.Random) -> Request:
    patch: Any
    match rng.randrange(4):
        case 0:
            patch = [
                {
                    "op": rng.choice(["add", "remove", "replace", "move", "copy", "test", "x", 1]),
                    "path": rng.choice(
                        [
                            "/spec",
                            "/metadata/name",
                            "",
                            "x",
                            "/spec/containers/-1",
                            "/a~2",
                            1,
                            "/metadata/labels/~1",
                        ]
                    ),
                    "value": rng.choice(ODD),
                    "from": rng.choice(["/spec", "/spec/containers/0", "y", None]),
                }
                for _ in range(rng.randrange(4))
            ]
        case 1:
            patch = mutated(POD, rng)
        case 2:
            patch = rng.choice(ODD)
        case _:
            patch = {
                "metadata": {
                    rng.choice(
                        ["labels", "finalizers", "ownerReferences", "managedFields"]
                    ): rng.choice(ODD)
                },
                "spec": {
                    "containers": rng.choice(ODD),
                    "$setElementOrder/containers": rng.choice(ODD),
                    "$retainKeys": rng.choice(ODD),
                },
            }
    query = rng.choice(
        [
            "",
            "?fieldManager=m",
            "?fieldManager=m&force=true",
            "?fieldManager=" + "x" * 200,
            "?force=x",
        ]
    )
    tail = rng.choice(["", "", "/status", "/scale"])
    return (
        "PATCH",
        f"/api/v1/namespaces/default/pods/base{tail}{query}",
        json.dumps(patch).encode(),
        {"Content-Type": rng.choice(PATCH_KINDS)},
    )


def bad_query(rng: random.Random) -> Request:
    names = ["labelSelector", "fieldSelector", "limit", "continue", "resourceVersion", "resourceVersionMatch", "timeoutSeconds",
             "sendInitialEvents", "allowWatchBookmarks", "pretty", "dryRun", "x"]  # fmt: skip
    values = ["a in (", "a notin b", "a=b=c", "!", "a,,b", "metadata.name", "spec.nodeName=x,status.phase!=", "-1", "1e9", "9" * 30, "abc",
              "true", "Exact", "NotOlderThan", "eyJ2IjoibWV0YS5rOHMuaW8vdjEifQ==", "null", "\\,\\", "a" * 2_000, "x.y/z/w=1"]  # fmt: skip
    pairs = [
        (rng.choice(names), rng.choice([*values, text(rng)])) for _ in range(rng.randint(1, 3))
    ]
    query = "&".join(f"{name}={quote(value)}" for name, value in pairs)
    if "sendInitialEvents" in query or rng.random() < 0.2:
        # A watch that is accepted must end at once for the next request to be answered.
        query = "&".join(part for part in query.split("&") if not part.startswith("timeoutSeconds"))
        query += "&watch=1&timeoutSeconds=1&resourceVersion=abc"
    return "GET", f"{rng.choice(sorted(BODIES))}?{query}", None, {}


def bad_path(rng: random.Random) -> Request:
    parts = ["api", "apis", "v1", "v2", "namespaces", "default", "pods", "x", "", "..", "%2e%2e", "%00", "%ff", "a" * 300, "resource.k8s.io",
             "watch", "openapi", "v3", "status", "log", "proxy", "version", "healthz", quote(text(rng, 6))]  # fmt: skip
    path = "/" + "/".join(rng.choice(parts) for _ in range(rng.randint(0, 8)))
    accept = rng.choice(
        [
            "*/*",
            "application/json",
            "text/html",
            "application/json;as=Table;v=v1;g=meta.k8s.io",
            "application/json;as=Nothing",
            "x",
            ";;,,",
            "application/json;q=x",
        ]
    )
    method = rng.choice(
        ["GET", "GET", "POST", "PUT", "DELETE", "PATCH", "OPTIONS", "HEAD", "TRACE"]
    )
    body = None if method in ("GET", "HEAD") else b"{}"
    return method, path, body, {"Accept": accept, "Content-Type": "application/json"}


def deep_or_large(rng: random.Random) -> Request:
    depth = rng.choice([200, 900, 2_000, 50_000])
    body = rng.choice(
        [
            b"[" * depth,
            b'{"a":' * depth + b"1" + b"}" * depth,
            b'{"metadata":{"name":"x"},"spec":' + b"[" * depth + b"]" * depth + b"}",
            json.dumps(
                {"metadata": {"name": "x", "labels": {f"k{i}": "v" * 60 for i in range(2_000)}}}
            ).encode(),
            json.dumps({"metadata": {"name": "x"}, "data": {"k": "v" * 2_000_000}}).encode(),
            b"a: &a [x,x,x]\nb: &b [*a,*a,*a]\nc: &c [*b,*b,*b]\nd: [*c,*c,*c]\n" * 3,
        ]
    )
    kind = rng.choice(["application/json", "application/yaml"])
    if kind == "application/yaml" and len(body) > 100_000:
        kind = "application/json"
    path = "/api/v1/namespaces/default/configmaps?dryRun=All"
    return "POST", path, body, {"Content-Type": kind}


KINDS: list[tuple[Callable[[random.Random], Request], int]] = [
    (bad_object, 30),
    (bad_put, 15),
    (bad_json, 12),
    (bad_protobuf, 10),
    (bad_patch, 15),
    (bad_query, 10),
    (bad_path, 12),
    (deep_or_large, 1),
]


def send(http_: http.client.HTTPConnection, request: Request) -> tuple[int, bytes]:
    method, path, body, headers = request
    http_.putrequest(method, path, skip_accept_encoding=True)
    for name, value in headers.items():
        http_.putheader(name, value)
    if body is not None:
        http_.putheader("Content-Length", str(len(body)))
    http_.endheaders(body)
    answer = http_.getresponse()
    return answer.status, answer.read()


def storm(server: ServerProcess, count: int, seed: int) -> Counter[int]:
    """Send bad requests; AssertionError where one is answered as no server may answer."""
    rng = random.Random(seed)
    makers, weights = zip(*KINDS, strict=True)
    statuses: Counter[int] = Counter()
    http_ = http.client.HTTPConnection(server.host, timeout=150)
    for _ in range(count):
        request = rng.choices(makers, weights)[0](rng)
        try:
            status, body = send(http_, request)
        except (http.client.InvalidURL, UnicodeEncodeError):
            continue  # the client does not send it
        except (http.client.HTTPException, ConnectionError) as error:
            raise AssertionError(f"{error!r} after {request!r:.600}") from error
        assert not is_fault(status, body), f"{status} {body[:300]!r} for {request!r:.600}"
        if status >= 400 and body[:1] == b"{":
            told = json.loads(body)
            assert told["status"] == "Failure"
            assert told["code"] == status
            assert told["message"]
        statuses[status] += 1
        if http_.sock is None:
            http_.connect()
    http_.close()
    return statuses


def sample(server: ServerProcess) -> None:
    connection = Connection(server.host)
    pod = {**POD, "metadata": {"name": "base"}}
    status, _ = connection.ask("POST", "/api/v1/namespaces/default/pods", pod)
    assert status in (201, 409)
    assert connection.ask("GET", "/api/v1/namespaces/default/pods/base")[0] == 200
    connection.close()


def raw_nonsense(server: ServerProcess, count: int, seed: int) -> None:
    """Send what is no HTTP at all, and leave in the middle of requests."""
    rng = random.Random(seed)
    whole = (
        b"POST /api/v1/namespaces/default/pods HTTP/1.1\r\nhost: localhost\r\ncontent-length: 50\r\n\r\n"
        + b"x" * 50
    )
    for _ in range(count):
        data = bytes(rng.randrange(256) for _ in range(rng.randrange(1, 200)))
        if rng.random() < 0.5:
            data = whole[: rng.randrange(len(whole))]
        with socket.create_connection(server.host.split(":"), timeout=150) as connection:  # type: ignore[arg-type]
            connection.sendall(data)
            if rng.random() < 0.3:
                connection.shutdown(socket.SHUT_WR)


@pytest.mark.thorough
def test_bad_requests_are_refused_and_nothing_else_happens() -> None:
    with ServerProcess(":memory:") as server:
        sample(server)
        statuses = storm(server, 1_500, seed=1)
        raw_nonsense(server, 50, seed=1)
        sample(server)
        refused = sum(times for status, times in statuses.items() if status >= 400)
        assert refused > 1_000
        assert {400, 404, 405, 415, 422} <= set(statuses)


@pytest.mark.conformance
def test_20_000_bad_requests_leave_no_trace_in_memory() -> None:
    with ServerProcess(":memory:") as server:
        sample(server)
        storm(server, 4_000, seed=2)  # caches fill
        before = server.resident()
        storm(server, 20_000, seed=3)
        raw_nonsense(server, 1_000, seed=3)
        sample(server)
        assert server.resident() < before + 40, "memory has grown"
