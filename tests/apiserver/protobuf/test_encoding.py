"""Answers in protobuf: byte for byte those that a real server gave, and readable by the decoder."""

import base64
import copy
import json
from pathlib import Path

import pytest

from dralab.api.kinds import Kinds
from dralab.apiserver.http.encodings.protobuf_answers import KeptMessages
from dralab.apiserver.protobuf import decode
from dralab.apiserver.protobuf.encoding import encode, frame, has_message, varint, writer_of
from dralab.apiserver.storage import Key

SHARED = Path(__file__).parents[3] / "../shared/testdata"
ANSWERS = SHARED / "kubernetes-protobuf/answers-v1.36.json"
# The server gave another answer the second time: its definition was established meanwhile.
CHANGED = ("customresourcedefinitions", "/apis/ex.com")


def recorded():
    if not ANSWERS.exists():
        pytest.skip("the recorded answers are not beside this checkout")
    return json.loads(ANSWERS.read_text())


def test_objects_lists_and_errors_are_written_as_a_real_server_writes_them():
    compared = 0
    for answer in recorded():
        if "json" not in answer or any(part in answer["request"] for part in CHANGED):
            continue
        wanted = base64.b64decode(answer["protobuf"])
        if "deviceclasses" in answer["request"]:  # which keeps the client's spaces in raw JSON
            wanted = wanted.replace(b'{"a": 1, "b": ["x"]}', b'{"a":1,"b":["x"]}')
            assert len(encode(answer["json"])) == len(wanted)
            assert decode(encode(answer["json"])) == answer["json"]
            continue
        assert encode(answer["json"]) == wanted, answer["request"]
        compared += 1
    assert compared == 26


def test_a_bookmark_is_framed_as_a_real_server_frames_it():
    (watched,) = [one for one in recorded() if one["what"] == "protobuf watch frames"]
    annotations = {"k8s.io/initial-events-end": "true"}
    bookmark = {
        "kind": "ConfigMap",
        "apiVersion": "v1",
        "metadata": {"resourceVersion": "232", "annotations": annotations},
    }
    assert frame("BOOKMARK", encode(bookmark)) == base64.b64decode(watched["bytes"])


def test_every_kind_can_be_written():
    kinds = list(Kinds.standard())
    assert len(kinds) > 50
    for kind in kinds:
        assert has_message(kind.api_version, kind.kind), kind.kind
        assert decode(encode({"apiVersion": kind.api_version, "kind": kind.kind}))


def test_numbers():
    assert varint(0) == b"\x00"
    assert varint(127) == b"\x7f"
    assert varint(128) == b"\x80\x01"
    assert len(varint(-1)) == 10


def test_long_texts_negative_numbers_and_absent_pointers():
    pod = {"metadata": {"name": "x" * 200}, "spec": {"priority": -5, "containers": []}}
    value = {"apiVersion": "v1", "kind": "Pod", **pod}
    found = decode(encode(value))
    assert found["metadata"]["name"] == "x" * 200
    assert found["spec"]["priority"] == -5
    assert "terminationGracePeriodSeconds" not in found["spec"]


def test_schemas_with_their_unions():
    schema = {
        "type": "object",
        "additionalProperties": {"type": "string"},
        "properties": {
            "a": {"type": "array", "items": {"type": "integer", "maximum": 1.5}},
            "b": {"x-kubernetes-preserve-unknown-fields": True, "default": {"c": [1, None]}},
        },
    }
    version = {"name": "v1", "served": True, "storage": True}
    version["schema"] = {"openAPIV3Schema": schema}
    value = {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": "as.example.com"},
        "spec": {"group": "example.com", "versions": [version]},
    }
    found = decode(encode(value))["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    assert found == schema


def test_what_has_no_message_is_not_written():
    with pytest.raises(KeyError):
        writer_of("example.com/v1", "Widget")


def test_the_oldest_messages_are_dropped():
    kept = KeptMessages(limit=1000)
    for number in range(10):
        kept.add(("v1", Key("pods", "", f"p{number}"), number), b"x" * 200)
    assert kept.size <= 1000
    assert kept.find(("v1", Key("pods", "", "p0"), 0)) is None
    assert kept.find(("v1", Key("pods", "", "p9"), 9)) == b"x" * 200
    kept.clear()
    assert (kept.size, kept.find(("v1", Key("pods", "", "p9"), 9))) == (0, None)


def test_parts_that_are_alike_have_their_own_bytes():
    def pod(value):
        container = {"name": "c", "image": "i", "env": [{"name": "A", "value": value}]}
        return {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": "p"},
            "spec": {"containers": [container]},
        }

    one, other = pod("1"), pod("2")
    first = encode(one)
    assert encode(other) != first
    assert encode(copy.deepcopy(one)) == first
    # A caller may change what it had written.
    one["spec"]["containers"][0]["env"][0]["value"] = "2"
    assert encode(one) == encode(other)
    assert decode(encode(one)) == decode(encode(other)) != decode(first)
