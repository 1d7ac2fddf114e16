"""Whole answers over ASGI."""

import asyncio
from collections.abc import Sequence

import pytest

from dralab.apiserver.http.connections.sending import SLICE, Message, respond
from dralab.apiserver.http.messages import HttpResponse


def sent(body: bytes | Sequence[bytes]) -> list[Message]:
    messages: list[Message] = []

    async def send(message: Message) -> None:
        messages.append(message)

    asyncio.run(respond(HttpResponse(status=200, headers=(), body=body), {}, send))
    return messages


@pytest.mark.parametrize(
    "body",
    [b"", b"a", b"a" * SLICE, b"ab" * SLICE, b"abc" * SLICE + b"d", [b"a" * 3, b"bc" * SLICE]],
)
def test_a_long_answer_is_sent_in_slices(body: bytes | Sequence[bytes]) -> None:
    begin, *rest = sent(body)
    whole = body if isinstance(body, bytes) else b"".join(body)
    assert (b"content-length", b"%d" % len(whole)) in begin["headers"]
    assert b"".join(message["body"] for message in rest) == whole
    assert max(len(message["body"]) for message in rest) <= SLICE
    assert [message.get("more_body", False) for message in rest] == [True] * (len(rest) - 1) + [
        False
    ]
