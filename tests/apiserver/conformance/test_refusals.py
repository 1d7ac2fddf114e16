"""Refused requests are refused in the words of a real server."""

import json

from dralab.apiserver.conformance.senders import TOKEN, InProcess, Question
from refusals import NAMESPACE, compared, refusals

ACCESS = {"Authorization": f"Bearer {TOKEN}"}


def test_what_a_real_server_refused_is_refused_in_its_words():
    server = InProcess()
    head = {**ACCESS, "Content-Type": "application/json"}
    made = server.send(
        Question(
            method="POST",
            target="/api/v1/namespaces",
            headers=head,
            body=json.dumps(NAMESPACE).encode(),
        )
    )
    assert made.status == 201
    rows, different = refusals(), []
    for row in rows:
        asked = Question(
            method=row.method, target=row.target, headers={**row.headers, **ACCESS}, body=row.body
        )
        reply = server.send(asked)
        different.append(compared(row, reply.status, reply.body))
    assert len(rows) > 500
    assert "\n".join(filter(None, different)) == ""
