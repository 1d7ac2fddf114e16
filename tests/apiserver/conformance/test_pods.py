"""Pods, and templates of pods, are judged as a kube-apiserver 1.36.2 judged them.

Each row shows a rule or a warning that no row before it shows: random pods were sent to the real
server as dry runs. The order of what is wrong is left out, since a map has none there.
"""

import json
from pathlib import Path

import pytest

from dralab.apiserver.conformance.senders import TOKEN, InProcess, Question
from refusals import NAMESPACE

ROWS = [
    json.loads(line)
    for line in Path(__file__).with_name("pods-v1.36.jsonl").read_text().splitlines()
]
HEAD = {"Authorization": f"Bearer {TOKEN}", "Content-Type": "application/json"}


@pytest.fixture(scope="module")
def send():
    server = InProcess()

    def send(target, body):
        asked = Question(method="POST", target=target, headers=HEAD, body=json.dumps(body).encode())
        return server.send(asked)

    assert send("/api/v1/namespaces", NAMESPACE).status == 201
    account = {"metadata": {"name": "default"}}
    assert send("/api/v1/namespaces/q/serviceaccounts", account).status in {201, 409}
    return send


def test_what_is_wrong_with_a_pod_is_told_as_a_real_server_tells_it(send):
    rows, different = [row for row in ROWS if "causes" in row], []
    for row in rows:
        reply = send(f"{row['target']}?dryRun=All", row["body"])
        details = json.loads(reply.body).get("details") or {}
        told = sorted(f"{each['field']}: {each['message']}" for each in details.get("causes", ()))
        if (reply.status, told) != (422, row["causes"]):
            different.append((row, reply.status, told))
    assert len(rows) > 300
    assert different == []


def test_a_client_is_warned_of_pods_as_by_a_real_server(send):
    rows, different = [row for row in ROWS if "warning" in row], []
    for row in rows:
        reply = send(f"{row['target']}?dryRun=All", row["body"])
        told = next((text for name, text in reply.headers.items() if name.lower() == "warning"), "")
        if (reply.status, told) != (201, row["warning"]):
            different.append((row, reply.status, told))
    assert len(rows) > 10
    assert different == []
