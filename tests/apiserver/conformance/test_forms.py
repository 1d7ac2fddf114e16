"""Requests of other forms than plain writes are answered as by a real server.

`forms-v1.36.jsonl` has what a kube-apiserver 1.36.2 answered: to custom resources, subresources,
lists, deletions, wrong options and media types, discovery. Its first line is what was made before.
"""

import json
from pathlib import Path

from dralab.apiserver.conformance.senders import TOKEN, InProcess, Question
from recorded_values import comparable
from refusals import NAMESPACE

FILE = Path(__file__).with_name("forms-v1.36.jsonl")


def asked(server, step):
    method, _, target = step["ask"].partition(" ")
    body = step.get("body")
    headers = {
        "Authorization": f"Bearer {TOKEN}",
        "User-Agent": "qq/1",
        "Accept": step.get("accept", "application/json"),
    }
    if body is not None:
        headers["Content-Type"] = step.get("type", "application/json")
    text = "" if body is None else body if isinstance(body, str) else json.dumps(body)
    question = Question(method=method, target=target, headers=headers, body=text.encode())
    return server.send(question)


def answer_of(reply):
    """Return what a row has of an answer."""
    found = {"code": int(reply.status)}
    if "warning" in reply.headers:
        found["warning"] = reply.headers["warning"]
    body = reply.json()
    if body is None:
        return found | {"text": comparable(reply.body.decode("latin1"))}
    causes = (body.get("details") or {}).get("causes") or ()
    if reply.status >= 400 and causes:
        shown = [f"{each.get('field', '')}: {each['message']}" for each in causes]
        return found | {"causes": sorted(shown)}
    if reply.status >= 400:
        return found | {"message": comparable(body.get("message"))}
    return found | {"answer": comparable(body)}


def test_requests_of_other_forms_are_answered_as_by_a_real_server():
    server = InProcess()
    made, *rows = [json.loads(line) for line in FILE.read_text().splitlines()]
    space = {"ask": "POST /api/v1/namespaces", "body": NAMESPACE}
    for step in (space, *made["before"]):
        assert asked(server, step).status == 201, step
    assert len(rows) > 50
    different = []
    for row in rows:
        step = {name: row.pop(name) for name in ("ask", "body", "type", "accept") if name in row}
        found = answer_of(asked(server, step))
        if found != row:
            shown = json.dumps(step)[:300]
            different.append(f"{shown}\n  recorded {row}\n  answered {found}")
    assert "\n".join(different) == ""
