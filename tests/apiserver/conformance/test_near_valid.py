"""Objects that are nearly valid are answered as by a real server: refusals, warnings, defaults.

`near-valid-v1.36.jsonl` has what a kube-apiserver 1.36.2 answered to dry runs of objects of
each kind with one to three fields changed at random.
"""

import json
from pathlib import Path

from dralab.apiserver.conformance.senders import TOKEN, InProcess, Question
from refusals import NAMESPACE

FILE = Path(__file__).with_name("near-valid-v1.36.jsonl")
HEADERS = {
    "Authorization": f"Bearer {TOKEN}",
    "Accept": "application/json",
    "Content-Type": "application/json",
}
OWN = ("uid", "resourceVersion", "creationTimestamp", "managedFields")


def asked(server, method, target, body, kind="application/json"):
    headers = {**HEADERS, "Content-Type": kind}
    text = body if isinstance(body, str) else json.dumps(body)
    return server.send(Question(method=method, target=target, headers=headers, body=text.encode()))


def test_nearly_valid_objects_are_answered_as_by_a_real_server():
    server = InProcess()
    made = asked(server, "POST", "/api/v1/namespaces", NAMESPACE)
    assert made.status == 201
    rows = [json.loads(line) for line in FILE.read_text().splitlines()]
    assert len(rows) > 100
    different = []
    for row in rows:
        method, _, target = row["ask"].partition(" ")
        kind = row.get("type", "application/json")
        reply = asked(server, method, target, row["body"], kind)
        found = {"code": reply.status, "warning": reply.headers.get("warning")}
        found |= answer_of(reply.json() or {}, reply.status)
        recorded = {
            part: row.get(part)
            for part in ("code", "warning", "message", "answer")
            if part in found
        }
        if found != recorded:
            shown = json.dumps(row["body"])[:300]
            different.append(f"{row['ask']} {shown}\n  recorded {recorded}\n  answered {found}")
    assert "\n".join(different) == ""


def answer_of(body, status):
    """Return the message of a refusal, or an object without what is its own."""
    if status >= 400:
        return {"message": body.get("message")}
    for part in OWN:
        body.get("metadata", {}).pop(part, None)
    return {"answer": body}
