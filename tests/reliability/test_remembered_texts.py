"""What a client sends once and is refused for is not kept by any cache of the server."""

import gc
import tracemalloc
from contextlib import suppress

import orjson
import pytest

from dralab.api.status import ApiError
from dralab.apiserver.http.messages import HttpRequest
from dralab.apiserver.server import ApiServer
from dralab.apiserver.storage import MemoryStore

MAPS = "/api/v1/namespaces/default/configmaps"
LARGE, ROUNDS = 200_000, 5  # characters of one text, and how many of each come


def body(text, **metadata):
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c", **metadata}}


def post(path, value, **headers):
    given = {"content-type": "application/json", **headers}
    return HttpRequest(method="POST", path=path, headers=given, body=orjson.dumps(value))


def node(text):
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": "n"},
        "status": {"capacity": {"cpu": text}},
    }


def a_slice(text):
    device = {"name": text, "attributes": {text: {"version": text}}}
    pool = {"name": text, "generation": 1, "resourceSliceCount": 1}
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceSlice",
        "metadata": {"name": "s"},
        "spec": {"driver": text, "nodeName": "n", "pool": pool, "devices": [device]},
    }


PLACES = {
    "a label": lambda text: post(MAPS, body(text, labels={text: "v"})),
    "a value of a label": lambda text: post(MAPS, body(text, labels={"k": text})),
    "an annotation": lambda text: post(MAPS, body(text, annotations={text: "v"})),
    "a name": lambda text: post(MAPS, body(text, name=text)),
    "a prefix of names": lambda text: post(MAPS, body(text, name="", generateName=text)),
    "a finalizer": lambda text: post(MAPS, body(text, finalizers=[text])),
    "a version and a kind": lambda text: post(
        MAPS, {**body(text), "apiVersion": text, "kind": text}
    ),
    "a time": lambda text: post(MAPS, body(text, deletionTimestamp=text)),
    "a quantity": lambda text: post("/api/v1/nodes", node(text)),
    "a slice": lambda text: post("/apis/resource.k8s.io/v1/resourceslices", a_slice(text)),
    "Accept": lambda text: HttpRequest(method="GET", path=MAPS, headers={"accept": text}),
    "Content-Type": lambda text: post(MAPS, body(text), **{"content-type": text}),
    "Host": lambda text: HttpRequest(method="GET", path=MAPS, headers={"host": text}),
    "Authorization": lambda text: HttpRequest(
        method="GET", path=MAPS, headers={"authorization": f"Bearer {text}"}
    ),
    "the path": lambda text: HttpRequest(method="GET", path=f"{MAPS}/{text}"),
    "a group": lambda text: HttpRequest(method="GET", path=f"/apis/{text}/v1/{text}"),
    "the query": lambda text: HttpRequest(method="GET", path=MAPS, query=text),
    "a selector of labels": lambda text: HttpRequest(
        method="GET", path=MAPS, query=f"labelSelector=a%3D{text[:50_000]}"
    ),
    "a selector of fields": lambda text: HttpRequest(
        method="GET", path=MAPS, query=f"fieldSelector=metadata.name%3D{text}"
    ),
    "continue": lambda text: HttpRequest(method="GET", path=MAPS, query=f"continue={text}"),
}


@pytest.mark.parametrize("request_of", PLACES.values(), ids=PLACES)
def test_a_large_text_is_not_kept(request_of):
    server = ApiServer(MemoryStore())
    texts = [f"{number}-" + "x" * LARGE for number in range(ROUNDS + 1)]

    def ask(text):
        asked = request_of(text)
        with suppress(ApiError):
            server.admit(asked)
        server.handle(asked)

    def kept():
        gc.collect()
        return tracemalloc.get_traced_memory()[0]

    gc.collect()
    gc.freeze()  # else each collection looks at all that other tests left
    tracemalloc.start()
    try:
        ask(texts[0])
        before = kept()
        for text in texts[1:]:
            ask(text)
        assert kept() - before < LARGE
    finally:
        tracemalloc.stop()
