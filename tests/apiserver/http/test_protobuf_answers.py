"""What clients get that ask for protobuf: objects, lists, errors, watches, and what has no message."""

import pytest

from apiserver.verbs.asking import Asked
from dralab.apiserver.http.messages import HttpRequest, WatchStream
from dralab.apiserver.protobuf import decode
from dralab.apiserver.storage import Key

MAPS = "/api/v1/namespaces/default/configmaps"
PROTOBUF = "application/vnd.kubernetes.protobuf"
BOTH = f"{PROTOBUF},application/json"
DEFINITION = {
    "metadata": {"name": "widgets.example.com"},
    "spec": {
        "group": "example.com",
        "scope": "Namespaced",
        "names": {"plural": "widgets", "kind": "Widget"},
        "versions": [
            {
                "name": "v1",
                "served": True,
                "storage": True,
                "schema": {"openAPIV3Schema": {"type": "object"}},
            }
        ],
    },
}
WIDGETS = "/apis/example.com/v1/namespaces/default/widgets"


@pytest.fixture
def ask():
    return Asked()


def content_type(answer):
    return dict(answer.headers)["Content-Type"]


def read(answer, status=200):
    assert (answer.status, content_type(answer)) == (status, PROTOBUF)
    return decode(answer.content)


def test_what_is_created_read_listed_and_deleted(ask):
    body = {"metadata": {"name": "a"}, "data": {"k": "v"}}
    made = read(ask.full("POST", MAPS, body, accept=BOTH), 201)
    found = read(ask.full("GET", f"{MAPS}/a", accept=BOTH))
    assert found == made
    assert found == ask("GET", f"{MAPS}/a")[1]
    listed = read(ask.full("GET", f"{MAPS}?limit=1", accept=BOTH))
    plain = ask("GET", f"{MAPS}?limit=1")[1]
    assert listed["kind"] == "ConfigMapList"
    assert listed["metadata"] == plain["metadata"]
    assert [item["metadata"]["uid"] for item in listed["items"]] == [found["metadata"]["uid"]]
    gone = read(ask.full("DELETE", f"{MAPS}/a", accept=BOTH))
    assert (gone["kind"], gone["status"]) == ("Status", "Success")
    missing = read(ask.full("GET", f"{MAPS}/a", accept=PROTOBUF), 404)
    assert missing["reason"] == "NotFound"


def test_a_change_is_not_hidden_by_what_was_kept(ask):
    ask("POST", MAPS, {"metadata": {"name": "a"}, "data": {"k": "v"}})
    assert read(ask.full("GET", f"{MAPS}/a", accept=PROTOBUF))["data"] == {"k": "v"}
    ask.merge(f"{MAPS}/a", {"data": {"k": "w"}})
    assert read(ask.full("GET", f"{MAPS}/a", accept=PROTOBUF))["data"] == {"k": "w"}
    dry = ask.full(
        "PUT", f"{MAPS}/a?dryRun=All", {"metadata": {"name": "a"}, "data": {}}, accept=PROTOBUF
    )
    assert "data" not in read(dry)
    assert read(ask.full("GET", f"{MAPS}/a", accept=PROTOBUF))["data"] == {"k": "w"}


def test_other_versions_are_converted(ask):
    spec = {
        "maxReplicas": 3,
        "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "d"},
    }
    path = "/apis/autoscaling/v2/namespaces/default/horizontalpodautoscalers"
    ask("POST", path, {"metadata": {"name": "h"}, "spec": spec})
    old = read(ask.full("GET", f"{path.replace('v2', 'v1')}/h", accept=PROTOBUF))
    assert old["apiVersion"] == "autoscaling/v1"
    assert old["spec"]["maxReplicas"] == 3


def test_subresources(ask):
    spec = {"selector": {"matchLabels": {"a": "b"}}}
    spec["template"] = {
        "metadata": {"labels": {"a": "b"}},
        "spec": {"containers": [{"name": "c", "image": "x"}]},
    }
    path = "/apis/apps/v1/namespaces/default/deployments"
    ask("POST", path, {"metadata": {"name": "d"}, "spec": spec})
    scale = read(ask.full("GET", f"{path}/d/scale", accept=PROTOBUF))
    assert (scale["kind"], scale["spec"]) == ("Scale", {"replicas": 1})


def test_custom_resources_have_no_message(ask):
    definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
    assert ask("POST", definitions, DEFINITION)[0] == 201
    body = {"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": "w"}}
    ask("POST", WIDGETS, body)
    assert content_type(ask.full("GET", WIDGETS, accept=BOTH)) == "application/json"
    refused = read(ask.full("GET", WIDGETS, accept=PROTOBUF), 406)
    assert refused["reason"] == "NotAcceptable"
    partial = f"{PROTOBUF};as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"
    listed = read(ask.full("GET", WIDGETS, accept=partial))
    assert listed["kind"] == "PartialObjectMetadataList"
    assert [item["metadata"]["name"] for item in listed["items"]] == ["w"]


def frames_of(data):
    while data:
        size = int.from_bytes(data[:4], "big")
        yield data[4 : 4 + size]
        data = data[4 + size :]


def test_events_of_a_watch_are_frames(ask):
    ask("POST", MAPS, {"metadata": {"name": "a"}})
    path, query = MAPS, "watch=1&resourceVersion=1"
    request = HttpRequest(method="GET", path=path, query=query, headers={"accept": BOTH})
    stream = ask.application.handle(request)
    assert isinstance(stream, WatchStream)
    assert dict(stream.headers)["Content-Type"] == f"{PROTOBUF};stream=watch"
    stored = ask.store.get(Key("configmaps", "default", "a"))
    one, two = frames_of(
        stream.encoder.event("ADDED", stored) + stream.encoder.event("MODIFIED", stored)
    )
    assert one[2:7] == b"ADDED"
    assert decode(one[one.index(b"k8s\x00") :])["metadata"]["name"] == "a"
    assert two[2:10] == b"MODIFIED"
    assert b"9" in stream.encoder.bookmark(9)


def test_what_leaves_a_selection_hides_no_change_from_others(ask):
    """It is shown as it was, at the revision of the change, to those who selected it."""
    ask("POST", MAPS, {"metadata": {"name": "a", "labels": {"tier": "front"}}})
    query = "watch=1&labelSelector=tier%3Dfront&resourceVersion=1"
    request = HttpRequest(method="GET", path=MAPS, query=query, headers={"accept": BOTH})
    stream = ask.application.handle(request)
    before = ask.store.get(Key("configmaps", "default", "a"))
    ask.merge(f"{MAPS}/a", {"metadata": {"labels": {"tier": "back"}}})
    after = ask.store.get(Key("configmaps", "default", "a"))
    (frame,) = frames_of(stream.encoder.event("DELETED", before.restamped(after.revision)))
    gone = decode(frame[frame.index(b"k8s\x00") :])["metadata"]
    now = read(ask.full("GET", f"{MAPS}/a", accept=BOTH))["metadata"]
    assert gone["resourceVersion"] == now["resourceVersion"]
    assert (gone["labels"], now["labels"]) == ({"tier": "front"}, {"tier": "back"})


def test_a_watch_from_too_long_ago_ends_with_a_frame(ask):
    for number in range(3):
        ask("POST", MAPS, {"metadata": {"name": f"a{number}"}})
    ask.store.compact(ask.store.revision)
    url = f"{MAPS}?watch=1&resourceVersion=1"
    answer = ask.full("GET", url, accept=PROTOBUF)
    assert content_type(answer) == f"{PROTOBUF};stream=watch"
    (frame,) = frames_of(answer.content)
    assert frame[2:7] == b"ERROR"
    assert decode(frame[frame.index(b"k8s\x00") :])["reason"] == "Expired"
