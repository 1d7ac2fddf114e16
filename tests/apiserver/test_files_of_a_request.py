"""How many files of the package a request meets: who follows one reads so many."""

import json
import sys
from collections import Counter
from pathlib import Path

import dralab
from dralab.apiserver.http.messages import HttpRequest
from dralab.apiserver.server import ApiServer
from dralab.apiserver.storage import MemoryStore

BASE = f"{Path(dralab.__file__).parent}/"
DEPLOYMENTS = "/apis/apps/v1/namespaces/default/deployments"
MOST = 76


def deployment(name, image):
    container = {
        "name": "c",
        "image": image,
        "ports": [{"containerPort": 80}],
        "resources": {"requests": {"cpu": "100m"}},
    }
    template = {"metadata": {"labels": {"app": "a"}}, "spec": {"containers": [container]}}
    spec = {"replicas": 2, "selector": {"matchLabels": {"app": "a"}}, "template": template}
    return {"metadata": {"name": name, "labels": {"app": "a"}}, "spec": spec}


def met(server, body):
    """Return the files of the package that a POST calls into, and how often."""
    files = Counter()
    request = HttpRequest(
        method="POST",
        path=DEPLOYMENTS,
        headers={"content-type": "application/json"},
        body=json.dumps(body).encode(),
    )

    def called(frame, event, _):
        name = frame.f_code.co_filename
        if event == "call" and name.startswith(BASE):
            files[name.removeprefix(BASE)] += 1

    before = sys.getprofile()
    sys.setprofile(called)
    try:
        answer = server.handle(request)
    finally:
        sys.setprofile(before)
    assert answer.status == 201, answer.content
    return files


def test_a_deployment_that_is_created_meets_few_files():
    server = ApiServer(MemoryStore())
    met(server, deployment("first", "x"))  # what is made once
    files = met(server, deployment("second", "x"))
    assert len(files) <= MOST, "\n".join(f"{count:4} {name}" for name, count in files.items())
