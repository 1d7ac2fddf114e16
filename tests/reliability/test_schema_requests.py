"""Requests for everything in the server's OpenAPI document, by chance, and what must hold of each.

Every answer is whole, is a Status or an object, and comes without a fault or a long hold of the
loop. What was stored reads back; a refusal, a dry run and a read change nothing.

A round is a fresh server and 500 requests of one seed, so a failure names all that it needs:

    DRALAB_REQUESTS=200000 pytest -m conformance tests/reliability/test_schema_requests.py
"""

import asyncio
import gc
import json
import os
import random
import sys
from collections import Counter
from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pytest
import yaml

from dralab.apiserver.http.connections.asgi import AsgiApp, AsgiLimits
from dralab.apiserver.http.messages import HttpRequest
from dralab.apiserver.protobuf import MAGIC
from dralab.apiserver.server import ApiServer
from dralab.apiserver.storage import MemoryStore
from dralab.kernel.randomness import Randomness
from reliability.faultless import is_fault
from reliability.schema_requests import JSON, Operation, Request, Requests, operations
from reliability.valid_objects import WIDGETS
from watchdog import Watchdog, watched

REQUESTS = int(os.environ.get("DRALAB_REQUESTS", "5000"))
FIRST = int(os.environ.get("DRALAB_FIRST_ROUND", "0"))
ROUND = 500
DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
HANG = 120.0  # seconds until a request counts as never answered, on a machine however busy
# What is written to these changes what becomes of later requests, so it does not stay.
REACHING = (
    "admissionregistration.k8s.io", "apiregistration.k8s.io", "flowcontrol.apiserver.k8s.io",
)  # fmt: skip
ON_NODES = ("log", "exec", "attach", "portforward")
# Their status is written by the server itself, after the answer.
COMPLETED = ("CustomResourceDefinition", "ValidatingAdmissionPolicy")


class Answer:
    """What came back for a request."""

    def __init__(self) -> None:
        self.status = 0
        self.media = ""
        self.parts: list[bytes] = []
        self.streams = False

    @property
    def body(self) -> bytes:
        return b"".join(self.parts)


class World:
    """A server behind its ASGI edge, asked one request after the other."""

    def __init__(self, seed: int, every: Sequence[Operation]) -> None:
        self.store = MemoryStore()
        modes = ("Node", "RBAC") if seed % 2 else ()
        self.server = ApiServer(self.store, randomness=Randomness(seed), authorization=modes)
        self.edge = AsgiApp(self.server, AsgiLimits(timers=False))
        self.chance = random.Random(seed)
        self.requests = Requests(list(every), self.chance)
        self.watchdog: Watchdog | None = None
        self.runner = asyncio.Runner()
        self.seen: Counter[tuple[str, int]] = Counter()

    async def _ask(
        self,
        method: str,
        path: str,
        query: str = "",
        headers: dict[str, str] | None = None,
        body: bytes | None = None,
    ) -> Answer:
        """Send a request over ASGI; a stream is left once it has begun."""
        given = {"host": "127.0.0.1", "accept": JSON, **(headers or {})}
        if body is not None:
            given["content-length"] = str(len(body))
        scope = {
            "type": "http", "method": method, "path": path, "query_string": query.encode(),
            "headers": [(name.encode(), value.encode()) for name, value in given.items()],
        }  # fmt: skip
        answer, asked = Answer(), False
        began, gone = asyncio.Event(), asyncio.Event()

        async def receive() -> dict[str, Any]:
            nonlocal asked
            if not asked and body is not None:
                asked = True
                return {"type": "http.request", "body": body}
            await gone.wait()
            return {"type": "http.disconnect"}

        async def send(message: Any) -> None:
            if message["type"] == "http.response.start":
                answer.status = message["status"]
                told = {name.lower(): value.decode() for name, value in message["headers"]}
                answer.media = told.get(b"content-type", "")
                answer.streams = b"content-length" not in told and answer.status == 200
                if answer.streams:
                    began.set()
                return
            answer.parts.append(message["body"])
            if answer.streams and message["body"]:
                gone.set()

        async def leave() -> None:
            # A stream that has nothing to tell is left as well, a few turns of the loop later.
            await began.wait()
            for _ in range(20):
                await asyncio.sleep(0)
            gone.set()

        leaving = asyncio.create_task(leave())
        try:
            await asyncio.wait_for(self.edge(scope, receive, send), HANG)
        finally:
            leaving.cancel()
        return answer

    def ask(
        self,
        method: str,
        path: str,
        query: str = "",
        headers: dict[str, str] | None = None,
        body: bytes | None = None,
    ) -> Answer:
        """Send a request; what the test does between two is not done in the loop."""
        return self.runner.run(self._ask(method, path, query, headers, body))

    def round(self, count: int) -> None:
        """Ask as many requests and check what comes of each."""
        other = json.dumps({"metadata": {"name": "other"}}).encode()
        sent = {"content-type": JSON}
        self.ask("POST", "/api/v1/namespaces", headers=sent, body=other)
        self.ask("POST", DEFINITIONS, headers=sent, body=json.dumps(WIDGETS).encode())
        for _ in range(count):
            request = self.requests.next()
            before = self.store.revision
            answer = self.ask(
                request.method, unquote(request.path), request.query, dict(request.headers),
                request.body,
            )  # fmt: skip
            try:
                value = checked(request, answer)
                if self.watchdog is not None:
                    self.watchdog.check()
                self.check_changes(request, answer, before)
                self.read_back(request, answer, value)
            except Exception as error:
                raise AssertionError(f"{error!r}\n{shown(request)}\n{answer.status}"
                                     f" {answer.media} {answer.body[:1500]!r}") from error  # fmt: skip
            self.seen[request.operation.action, answer.status] += 1

    def check_changes(self, request: Request, answer: Answer, before: int) -> None:
        """Check that what must change nothing has changed nothing."""
        now = self.store.revision
        if request.method in ("GET", "HEAD", "OPTIONS"):
            assert now == before, "a read has changed something"
        if answer.status >= 400 and request.operation.action != "deletecollection":
            assert now == before, "a refused request has changed something"
        if "dryRun=All" in request.query and answer.status < 400:
            assert now == before, "a dry run has changed something"

    def read_back(self, request: Request, answer: Answer, value: Any) -> None:
        """Check that what was stored is what the answer said, and remember it."""
        operation, method = request.operation, request.method
        wrote = answer.status in (200, 201) and method in ("POST", "PUT", "PATCH")
        if not wrote or "dryRun" in request.query or answer.streams:
            return
        if not isinstance(value, dict) or value.get("kind") != operation.kind[2]:
            return
        if not (name := value.get("metadata", {}).get("name")) or "selfLink" in value:
            return
        if operation.subresource not in ("", "status"):
            return
        path = unquote(request.path)
        if operation.subresource:
            path = path.rpartition("/")[0]
        if method == "POST":
            path = f"{path.rstrip('/')}/{name}"
        again = self.ask("GET", path)
        if again.status in (404, 405):
            gone = "deletionTimestamp" in value["metadata"] or method == "POST"
            assert gone, f"what was stored is not there: {again.body[:300]!r}"
            return
        found = json.loads(again.body)
        if operation.kind[2] in COMPLETED:
            found, value = told(found), told(value)
        assert found == value, f"reads back as {again.body[:1500]!r}"
        if operation.kind[2] not in COMPLETED:
            self._put_back(path, found)
        if operation.kind[0] in REACHING or operation.kind[2] in ("ResourceQuota", "LimitRange"):
            gone = self.ask("DELETE", path)
            assert gone.status < 500, gone.body
        else:
            self.requests.keep(operation, found)

    def _put_back(self, path: str, found: dict[str, Any]) -> None:
        """Check that writing what was read changes nothing."""
        if self.chance.random() < 0.5:
            return
        before = self.store.revision
        headers = {"content-type": JSON}
        put = self.ask("PUT", path, headers=headers, body=json.dumps(found).encode())
        assert not is_fault(put.status, put.body), f"PUT of what was read: {put.body[:600]!r}"
        if put.status == 200:
            assert self.store.revision == before, f"PUT of what was read changed {put.body[:900]!r}"


def told(obj: dict[str, Any]) -> dict[str, Any]:
    """Return an object without what a server adds to it later."""
    metadata = obj["metadata"].items()
    kept = {key: part for key, part in metadata if key not in ("resourceVersion", "managedFields")}
    return {**obj, "metadata": kept, "status": None}


def shown(request: Request) -> str:
    """Return a request as a reader can send it again."""
    return (
        f"{request.method} {request.path}?{request.query}\n{dict(request.headers)}\n"
        f"{(request.body or b'')[:3000]!r}"
    )


def checked(request: Request, answer: Answer) -> Any:
    """Return the value of an answer. AssertionError: no server may answer so."""
    status, body = answer.status, answer.body
    assert 200 <= status < 600, "there is no answer"
    media = answer.media.partition(";")[0]
    if request.method == "HEAD" or not body:
        assert status < 500 or is_elsewhere(request, status, body)
        return None
    if answer.streams:
        for line in body.splitlines() if media == JSON else ():
            event = json.loads(line)
            assert event["type"] in ("ADDED", "MODIFIED", "DELETED", "BOOKMARK", "ERROR")
            assert isinstance(event["object"], dict)
        return None
    if media == JSON:
        value = json.loads(body)
    elif media == "application/yaml":
        value = yaml.load(body, yaml.CSafeLoader)
    elif media.startswith("application/vnd.kubernetes.protobuf"):
        assert body.startswith(MAGIC)
        return None
    else:
        assert media.startswith("text/") or status < 400, f"neither a Status nor a text: {media}"
        assert status < 500
        return None
    if media == JSON:
        assert is_elsewhere(request, status, body) or not is_fault(status, body), "a fault"
    if status >= 400:
        assert value["kind"] == "Status"
        assert value["status"] == "Failure"
        assert value["code"] == status
        assert value["message"]
    return value


def is_elsewhere(request: Request, status: int, body: bytes) -> bool:
    """Whether the answer had to come from a node, or from behind a proxy, which are not here."""
    if status == 503:
        return "/proxy" in request.path
    if "/proxy" in request.path:
        return b"has no endpoint for its pods" in body
    return request.path.rpartition("/")[2] in ON_NODES and b"Internal Server Error" not in body


def every_operation() -> list[Operation]:
    server = ApiServer(MemoryStore())
    body = json.dumps(WIDGETS).encode()
    headers = {"content-type": JSON}
    made = server.handle(HttpRequest(method="POST", path=DEFINITIONS, headers=headers, body=body))
    assert made.status == 201

    def get(path: str) -> Any:
        return json.loads(server.handle(HttpRequest(method="GET", path=path)).content)  # type: ignore[union-attr]

    return list(operations(get))


def resident() -> int:
    """Return the memory of this process, in MiB."""
    [line] = [
        line
        for line in Path("/proc/self/status").read_text().splitlines()
        if line.startswith("VmRSS:")
    ]
    return int(line.split()[1]) // 1024


def run(
    seed: int, every: Sequence[Operation], count: int, *, timed: bool
) -> Counter[tuple[str, int]]:
    """Run one round, whose holds of the loop may be timed. AssertionError: what did not hold."""
    if timed:
        gc.collect()  # what earlier rounds left is not this server's to clear away
    world = World(seed, every)
    with watched(world.store) if timed else nullcontext() as world.watchdog:
        try:
            world.round(count)
        except AssertionError as error:
            raise AssertionError(f"round {seed}: {error}") from error
        finally:
            world.edge.close()
            world.runner.close()
    return world.seen


def test_requests_of_a_schema_are_answered_whole_and_change_what_they_say() -> None:
    every = every_operation()
    assert len(every) > 900
    seen = run(1, every, 120, timed=False)
    assert {201, 400, 404, 422} <= {status for _, status in seen}


@pytest.mark.conformance
def test_many_requests_of_a_schema() -> None:
    """DRALAB_REQUESTS says how many; DRALAB_FIRST_ROUND repeats a round that failed."""
    every = every_operation()
    seen: Counter[tuple[str, int]] = Counter()
    rounds = max(1, REQUESTS // ROUND)
    settled = 0
    for seed in range(FIRST, FIRST + rounds):
        seen += run(seed, every, ROUND, timed=True)
        if seed == FIRST + rounds // 4:
            settled = resident()
    by_status: Counter[int] = Counter()
    for (_, status), times in seen.items():
        by_status[int(status)] += times
    grown = resident() - settled
    sys.stdout.write(f"{by_status.total()} requests, {dict(sorted(by_status.items()))}\n")
    sys.stdout.write(f"{settled} MiB after a quarter of them, then {grown} MiB more\n")
    assert grown < 200, "what rounds leave in memory has grown"
