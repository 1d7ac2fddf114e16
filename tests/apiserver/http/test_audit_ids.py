"""Audit-Id: every answer names its request, whether the server keeps an audit log or not."""

import asyncio
import uuid
from typing import Any

from dralab.apiserver.access.audit.ids import AuditIds
from dralab.apiserver.http.connections.asgi import AsgiApp, AsgiLimits
from dralab.apiserver.server import ApiServer
from dralab.apiserver.storage import MemoryStore
from dralab.kernel.randomness import Randomness


def answers(*asked: tuple[str, dict[str, str]]) -> list[dict[str, Any]]:
    """Return the heads of the answers to GETs of paths with headers, one after the other."""
    app = AsgiApp(ApiServer(MemoryStore()), AsgiLimits(timers=False))

    async def run() -> list[dict[str, Any]]:
        found = []
        for path, headers in asked:
            sent: list[Any] = []

            async def send(message: Any, sent: list[Any] = sent) -> None:
                sent.append(message)

            async def receive() -> dict[str, str]:
                return {"type": "http.disconnect"}

            place, _, query = path.partition("?")
            sending = {"host": "localhost", **headers}
            given = [(key.encode(), value.encode()) for key, value in sending.items()]
            scope = {
                "type": "http", "method": "GET", "path": place, "query_string": query.encode(),
                "headers": given,
            }  # fmt: skip
            await app(scope, receive, send)
            raw = sent[0]["headers"]
            found.append({"status": sent[0]["status"], "raw": raw, **dict(raw)})
        return found

    return asyncio.run(run())


def test_every_answer_has_an_id_of_its_own():
    found = answers(
        ("/api/v1/namespaces", {}),
        ("/api/v1/namespaces/none", {}),
        ("/api/v1/namespaces?watch=1", {}),
        ("/version", {"host": "elsewhere.example"}),  # refused before it is read
    )
    assert [each["status"] for each in found] == [200, 404, 200, 403]
    ids = [each[b"audit-id"].decode() for each in found]
    assert len(set(ids)) == 4
    assert {uuid.UUID(each).version for each in ids} == {4}


def test_a_client_may_choose_the_id():
    mine, long = answers(
        ("/version", {"audit-id": "my-request"}), ("/version", {"audit-id": "x" * 100})
    )
    assert mine[b"audit-id"] == b"my-request"
    assert long[b"audit-id"] == b"x" * 64
    assert [key for key, _ in mine["raw"]].count(b"audit-id") == 1


def test_an_id_that_would_break_the_head_is_replaced():
    ids = AuditIds(Randomness(1))
    assert uuid.UUID(ids.of({"audit-id": "a\r\nset-cookie: b"}))
