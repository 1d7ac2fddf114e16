"""Requests that a kube-apiserver 1.36.2 refused, with its words."""

import json
import re
from pathlib import Path
from typing import Any, NamedTuple

FILE = Path(__file__).with_name("apiserver") / "conformance/refusals-v1.36.jsonl"
NAMESPACE = {"metadata": {"name": "q"}}


class Refused(NamedTuple):
    """A request and the answer to it."""

    method: str
    target: str
    headers: dict[str, str]
    body: bytes
    code: int
    message: str


def refusals():
    """Return all, in the order in which they were recorded."""
    return [_refused(json.loads(line)) for line in FILE.read_text().splitlines()]


def _refused(row: dict[str, Any]) -> Refused:
    method, _, target = row["ask"].partition(" ")
    body = row.get("body")
    content = (
        b"" if body is None else (body if isinstance(body, str) else json.dumps(body)).encode()
    )
    headers = {"Accept": "application/json"}
    if body is not None:
        headers["Content-Type"] = row.get("type", "application/json")
    headers |= row.get("headers", {})
    return Refused(method, target, headers, content, row["code"], row["message"])


def compared(refused: Refused, code: int, body: bytes, *, ordered: bool = True) -> str:
    """Return how an answer differs from the recorded one; nothing if it does not.

    A real server lists the problems of the entries of a map in no order.
    """
    try:
        message = json.loads(body).get("message")
    except ValueError:
        message = None
    if (code, message) == (refused.code, refused.message):
        return ""
    if (
        not ordered
        and message
        and (code, _words(message)) == (refused.code, _words(refused.message))
    ):
        return ""
    return (
        f"{refused.method} {refused.target} {refused.body[:300]!r}\n"
        f"  recorded {refused.code} {refused.message}\n  answered {code} {message}"
    )


def _words(message: str) -> list[str]:
    return sorted(re.split(r"[][, ]+", message))
