"""Thousands of broken patches: each gets an answer that blames the client, and none breaks the server."""

import copy
import json
import random

import pytest

from dralab.apiserver.http.messages import HttpRequest
from dralab.apiserver.server import ApiServer
from dralab.apiserver.storage import MemoryStore

CONTAINER = {
    "name": "c",
    "image": "i",
    "ports": [{"containerPort": 80}],
    "env": [{"name": "A", "value": "1"}],
}
POD = {"containers": [CONTAINER], "tolerations": [{"key": "x", "operator": "Exists"}]}
RACK = {
    "type": "object",
    "properties": {
        "n": {"type": "integer"},
        "parts": {
            "type": "array",
            "x-kubernetes-list-type": "map",
            "x-kubernetes-list-map-keys": ["k"],
            "items": {
                "type": "object",
                "required": ["k"],
                "properties": {"k": {"type": "string"}},
            },
        },
        "any": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
    },
}
DEFINITION = {
    "metadata": {"name": "racks.lab.example"},
    "spec": {
        "group": "lab.example",
        "scope": "Namespaced",
        "names": {"plural": "racks", "kind": "Rack"},
        "versions": [
            {
                "name": "v1",
                "served": True,
                "storage": True,
                "subresources": {"status": {}},
                "schema": {"openAPIV3Schema": {"type": "object", "properties": {"spec": RACK}}},
            }
        ],
    },
}
OBJECTS = {
    "/api/v1/namespaces/default/pods": ("v1", "Pod", POD),
    "/api/v1/namespaces/default/services": (
        "v1",
        "Service",
        {"selector": {"a": "b"}, "ports": [{"port": 80, "name": "x"}, {"port": 81, "name": "y"}]},
    ),
    "/apis/apps/v1/namespaces/default/deployments": (
        "apps/v1",
        "Deployment",
        {
            "selector": {"matchLabels": {"a": "b"}},
            "template": {"metadata": {"labels": {"a": "b"}}, "spec": POD},
        },
    ),
    "/apis/resource.k8s.io/v1/namespaces/default/resourceclaims": (
        "resource.k8s.io/v1",
        "ResourceClaim",
        {"devices": {"requests": [{"name": "r", "exactly": {"deviceClassName": "g"}}]}},
    ),
    "/apis/lab.example/v1/namespaces/default/racks": (
        "lab.example/v1",
        "Rack",
        {"n": 1, "parts": [{"k": "a"}], "any": {"q": [1, {"z": 2}]}},
    ),
}
JUNK = [
    None, True, 0, -1, 1.5, 1 << 70, "", "x", "é" * 3, [], {}, [None], [[]], [{}], [1, 1], ["a", "a"],
    {"a": None}, {"": {}}, {"$patch": "delete"}, {"$patch": "replace"}, {"$patch": "x"},
    [{"$patch": "delete"}], [{"$patch": "replace"}], {"$retainKeys": ["x"]}, {"$retainKeys": 1},
]  # fmt: skip
KEYS = [
    "$setElementOrder/containers", "$deleteFromPrimitiveList/finalizers", "$retainKeys", "$patch",
    "metadata", "spec", "status", "managedFields", "finalizers", "containers", "name", "x", "",
]  # fmt: skip
POINTERS = [
    "", "/", "kind", "/spec", "/status", "/metadata", "/metadata/name", "/metadata/labels/a",
    "/metadata/managedFields", "/metadata/managedFields/0", "/spec/containers/0",
    "/spec/containers/-", "/spec/containers/9", "/spec/x~1y", "/spec/containers/0/image",
]  # fmt: skip
TYPES = {
    "json": "application/json-patch+json",
    "merge": "application/merge-patch+json",
    "strategic": "application/strategic-merge-patch+json",
    "apply": "application/apply-patch+yaml",
}


class Storm:
    """Makes broken requests from a seed."""

    def __init__(self, seed):
        self.chance = random.Random(seed)
        self.server = ApiServer(MemoryStore())
        self.send("POST", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", DEFINITION)
        for path in OBJECTS:
            assert self.send("POST", path, whole(path)).status == 201

    def send(self, method, path, body, content_type="application/json", query=""):
        return self.server.handle(
            HttpRequest(
                method=method,
                path=path,
                query=query,
                headers={"content-type": content_type},
                body=json.dumps(body).encode(),
            )
        )

    def one(self):
        """Send one request; return its kind and the answer."""
        path = self.chance.choice(list(OBJECTS))
        kind = self.chance.choice([*TYPES, "put", "post"])
        query = self.chance.choice(["", "dryRun=All", "fieldValidation=Strict"])
        if kind == "post":
            body = self.broken(whole(path, name="two"))
            return kind, self.send("POST", path, body, query="dryRun=All")
        place = path + "/one" + self.chance.choice(["", "", "/status"])
        if kind == "put":
            answer = self.send("PUT", place, self.broken(whole(path)), query=query)
        else:
            body = self.operations() if kind == "json" else self.broken(whole(path))
            if kind == "apply":
                who = self.chance.choice(["ann", "bob", "kubectl"])
                query += f"&fieldManager={who}&force={self.chance.choice(['true', 'false'])}"
            answer = self.send("PATCH", place, body, TYPES[kind], query)
        if self.send("GET", f"{path}/one", None).status == 404:
            self.send("POST", path, whole(path))
        return kind, answer

    def junk(self):
        return copy.deepcopy(self.chance.choice(JUNK))

    def operations(self):
        names = ["add", "remove", "replace", "move", "copy", "test", "frob"]
        return [
            {
                "op": self.chance.choice(names),
                "path": self.chance.choice(POINTERS),
                "from": self.chance.choice(POINTERS),
                "value": self.junk(),
            }
            for _ in range(self.chance.randint(0, 4))
        ]

    def broken(self, value):
        for _ in range(self.chance.randint(1, 3)):
            holder, key = self.place_in(value)
            how = self.chance.random()
            if how < 0.5:
                holder[key] = self.junk()
            elif how < 0.7:
                del holder[key]
            elif isinstance(holder, dict):
                holder[self.chance.choice(KEYS)] = self.junk()
            else:
                holder.append(self.junk())
        return value

    def place_in(self, value):
        holder, key = value, "spec"
        value.setdefault("spec", {})
        while isinstance(value, (dict, list)) and value and self.chance.random() < 0.8:
            holder = value
            key = self.chance.choice(list(value)) if isinstance(value, dict) else -1
            value = value[key]
        return holder, key


def whole(path, name="one"):
    version, kind, spec = OBJECTS[path]
    metadata = {"name": name, "labels": {"a": "b"}}
    return copy.deepcopy({"apiVersion": version, "kind": kind, "metadata": metadata, "spec": spec})


@pytest.mark.parametrize("seed", range(4))
def test_every_broken_write_gets_an_answer_that_blames_the_client(seed):
    storm = Storm(seed)
    seen = set()
    for _ in range(400):
        kind, answer = storm.one()
        # A real server blames itself for some mistakes of clients, and has no reason for them.
        blamed = answer.status == 500 and b'"reason"' not in answer.content
        assert answer.status < 500 or blamed, (kind, answer.content[:300])
        seen.add((kind, answer.status // 100))
    # A storm of refusals alone would show little: each kind of write gets through as well.
    assert {(kind, 2) for kind in ("json", "merge", "strategic", "apply", "put", "post")} <= seen
    assert {(kind, 4) for kind in ("json", "merge", "strategic", "apply", "put", "post")} <= seen
