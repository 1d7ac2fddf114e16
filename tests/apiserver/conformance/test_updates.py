"""Updates, patches, applies and deletions are answered as by a real server.

`updates-v1.36.jsonl` has what a kube-apiserver 1.36.2 answered to the last of a few writes to one
object. `@RV` and `@UID` in what is sent stand for what the object had after the write before.
"""

import json
from pathlib import Path

from dralab.apiserver.conformance.senders import TOKEN, InProcess, Question
from recorded_values import comparable
from refusals import NAMESPACE

FILE = Path(__file__).with_name("updates-v1.36.jsonl")


def sent(server, step, known):
    method, _, target = step["ask"].partition(" ")
    body = json.dumps(step["body"]) if "body" in step else ""
    for name, value in known.items():
        body = body.replace(json.dumps(name), json.dumps(value))
    headers = {
        "Authorization": f"Bearer {TOKEN}",
        "User-Agent": "qq/1",
        "Accept": step.get("accept", "application/json"),
        "Content-Type": step.get("type", "application/json"),
    }
    question = Question(method=method, target=target, headers=headers, body=body.encode())
    return server.send(question)


def answer_of(reply, recorded):
    """Return what the row has of an answer, as this server gave it."""
    body = comparable(reply.json())
    found = {"code": int(reply.status)}
    if "warning" in reply.headers:
        found["warning"] = reply.headers["warning"]
    if "causes" in recorded:
        causes = (body.get("details") or {}).get("causes") or ()
        found["causes"] = sorted(f"{each.get('field', '')}: {each['message']}" for each in causes)
    elif reply.status >= 400:
        found["message"] = body.get("message")
    else:
        found["answer"] = body
    return found


def in_order(answer):
    """Return an answer with its owners of fields in an order of their own.

    Those of one second come in no order that a recording could tell.
    """
    meta = (answer.get("answer") or {}).get("metadata") or {}
    if entries := meta.get("managedFields"):
        names = ("manager", "operation", "subresource")
        meta["managedFields"] = sorted(
            entries, key=lambda entry: [entry.get(name, "") for name in names]
        )
    return answer


def test_writes_to_an_object_are_answered_as_by_a_real_server():
    server = InProcess()
    space = {"ask": "POST /api/v1/namespaces", "body": json.loads(json.dumps(NAMESPACE))}
    assert sent(server, space, {}).status == 201
    rows = [json.loads(line) for line in FILE.read_text().splitlines()]
    assert len(rows) > 50
    different = []
    for row in rows:
        *before, last = row.pop("steps")
        known = {}
        for step in before:
            reply = sent(server, step, known)
            assert reply.status < 300, (step, reply.json())
            meta = reply.json()["metadata"]
            known = {"@RV": meta["resourceVersion"], "@UID": meta["uid"]}
        found, recorded = answer_of(sent(server, last, known), row), comparable(row)
        if in_order(found) != in_order(recorded):
            shown = json.dumps(last)[:300]
            different.append(f"{shown}\n  recorded {recorded}\n  answered {found}")
    assert "\n".join(different) == ""
