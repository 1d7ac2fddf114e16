"""CBOR where its gate is on: what kube-apiserver 1.36.2 answered with CBORServingAndStorage."""

import base64
import http.client
import json
from pathlib import Path

import pytest

from apiserver.verbs.asking import Asked
from dralab.api.resource.features import with_gates
from dralab.apiserver.http.encodings.cbor_messages import bytes_of
from dralab.cluster import Cluster, Options
from dralab.values import cbor

SHARED = Path(__file__).parents[4] / "shared" / "testdata"
ANSWERS = SHARED / "kubernetes-protobuf/answers-v1.36.json"
MAPS = "/api/v1/namespaces/default/configmaps"
MAP = {
    "apiVersion": "v1",
    "kind": "ConfigMap",
    "metadata": {"name": "a"},
    "data": {"x": "y"},
    "binaryData": {"z": "cQ=="},
}
CBOR = "application/cbor"


@pytest.fixture
def ask():
    asked = Asked()
    asked.application.requests.speaks_cbor = True

    def ask(method, url, body=None, *, accept=CBOR, media=CBOR):
        data = cbor.dumps(body) if isinstance(body, (dict, list)) else body
        answer = asked.full(method, url, data, accept=accept, content_type=media)
        kind = dict(answer.headers)["Content-Type"]
        value = (cbor.loads if kind == CBOR else json.loads)(answer.content)
        return answer.status, kind, value

    return ask


@pytest.mark.skipif(not ANSWERS.exists(), reason="the recorded answers are not there")
def test_what_a_real_server_writes_is_written_byte_by_byte():
    answers = [each for each in json.loads(ANSWERS.read_text()) if "cbor" in each]
    assert len(answers) > 25
    for each in answers:
        golden = base64.b64decode(each["cbor"])
        value = cbor.loads(golden)
        # Its maps are in no order, which reading keeps.
        assert cbor.dumps(value, bytes_of(value)) == golden, each["request"]
        # The definition was established between the two answers.
        if "ex.com" not in each["request"]:
            assert value == each["json"], each["request"]


def test_objects_go_in_and_out(ask):
    status, media, made = ask("POST", MAPS, MAP)
    assert (status, media) == (201, CBOR)
    assert made["binaryData"] == {"z": "cQ=="}
    assert ask("GET", f"{MAPS}/a", accept="application/json")[2] == made
    assert ask("GET", MAPS)[2]["items"][0]["metadata"] == made["metadata"]
    wanted = f"{CBOR};as=PartialObjectMetadata;v=v1;g=meta.k8s.io"
    assert ask("GET", f"{MAPS}/a", accept=wanted)[2]["kind"] == "PartialObjectMetadata"
    gone = {"apiVersion": "v1", "kind": "DeleteOptions", "propagationPolicy": "Background"}
    status, media, value = ask("DELETE", f"{MAPS}/a", gone)
    assert (status, media, value["status"]) == (200, CBOR, "Success")


def test_bytes_are_bytes_in_both_directions(ask):
    whole = cbor.dumps(MAP, {"binaryData": {"*": True}})
    assert b"\xd6Aq" in whole
    assert ask("POST", MAPS, whole)[2]["binaryData"] == {"z": "cQ=="}


def test_an_apply_patch_may_be_cbor(ask):
    patch = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}, "data": {"p": "q"}}
    url, media = f"{MAPS}/a?fieldManager=m", "application/apply-patch+cbor"
    status, _, made = ask("PATCH", url, patch, media=media)
    assert (status, made["data"]) == (201, {"p": "q"})
    assert made["metadata"]["managedFields"][0]["operation"] == "Apply"
    status, kind, refused = ask("PATCH", url, b"\xff", media=media)
    assert (status, kind) == (400, CBOR)
    assert refused["message"] == 'error decoding YAML: cbor: unexpected "break" code'


WRONG = "the object provided is unrecognized (must be of type ConfigMap): unable to determine "
BODIES = "application/json, application/yaml, application/vnd.kubernetes.protobuf, application/cbor"
STREAMS = "application/json;stream=watch, application/vnd.kubernetes.protobuf;stream=watch"


@pytest.mark.parametrize(
    ("method", "url", "body", "forms", "answer"),
    [
        (
            "POST", MAPS, b"\xff\xff", {},
            (400, CBOR, WRONG + 'group/version/kind: cbor: unexpected "break" code (ffff)'),
        ),
        ("POST", MAPS, b"", {}, (400, CBOR, WRONG + "group/version/kind: EOF (<empty>)")),
        (
            "POST", MAPS, bytes.fromhex("d9d9f7a2416101416102"), {},
            (
                400, CBOR, WRONG + 'group/version/kind: cbor: found duplicate map key "a" at map '
                "element index 1 (d9d9f7a2416101416102)",
            ),
        ),
        (
            "POST", MAPS, b"{}", {"media": "application/x"},
            (
                415, CBOR, "the body of the request was in an unknown format - accepted media "
                f"types include: {BODIES}",
            ),
        ),
        (
            "GET", MAPS, None, {"accept": "application/x"},
            (
                406, "application/json", "406: Not Acceptable\n\nAvailable representations: "
                f"{BODIES}, {STREAMS}, application/cbor-seq",
            ),
        ),
        (
            "GET", f"{MAPS}/a", None, {"accept": f"{CBOR}-seq"},
            (
                406, "application/json",
                f"406: Not Acceptable\n\nAvailable representations: {BODIES}",
            ),
        ),
        (
            "GET", f"{MAPS}?watch=1", None, {"accept": f"{CBOR}-seq"},
            (
                406, "application/json",
                f"only the following media types are accepted: {BODIES}",
            ),
        ),
        (
            "GET", MAPS, None, {"accept": f"{CBOR};as=Table;v=v1;g=meta.k8s.io"},
            (
                406, "application/json",
                f"only the following media types are accepted: {BODIES}",
            ),
        ),
        (
            "PATCH", f"{MAPS}/a", b"\xa0", {"media": "application/merge-patch+cbor"},
            (415, CBOR, "415: Unsupported Media Type"),
        ),
    ],
)  # fmt: skip
def test_a_refusal_has_a_real_servers_words(ask, method, url, body, forms, answer):
    status, media, value = ask(method, url, body, **forms)
    assert (status, media, value["message"]) == answer


def test_without_its_gate_there_is_no_cbor():
    ask = Asked()
    status, refused = ask("GET", MAPS, accept=CBOR)
    assert (status, "cbor" in refused["message"]) == (406, False)
    status, refused = ask("POST", MAPS, cbor.dumps(MAP), content_type=CBOR)
    assert (status, "application/cbor" in refused["message"]) == (415, False)


def test_a_watch_is_a_cbor_sequence():
    gates = with_gates("CBORServingAndStorage=true")
    with Cluster(Options(features=gates, service_accounts=False)) as cluster:
        for name in ("a", "b"):
            body = MAP | {"metadata": {"name": name, "namespace": "default"}}
            cluster.server.resources.create(
                cluster.server.resources.kind("", "v1", "configmaps"), body, "default"
            )
        connection = http.client.HTTPConnection(cluster.url.removeprefix("http://"))
        query = "watch=1&timeoutSeconds=1&resourceVersion=1"
        connection.request("GET", f"{MAPS}?{query}", headers={"Accept": CBOR})
        answer = connection.getresponse()
        assert answer.headers["Content-Type"] == "application/cbor-seq"
        events = answer.read().split(b"\xd9\xd9\xf7\xa2Fobject\xd9\xd9\xf7")[1:]
        connection.close()
    found = [cbor.loads(b"\xa2Fobject" + each) for each in events]
    assert [(e["type"], e["object"]["metadata"]["name"]) for e in found] == [
        ("ADDED", "a"),
        ("ADDED", "b"),
    ]
    assert b"\xd6Aq" in events[0]
