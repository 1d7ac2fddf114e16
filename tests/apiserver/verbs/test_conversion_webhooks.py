"""Conversion webhooks: the versions of a custom resource, as another program converts them."""

import json
import threading
from urllib.request import Request, urlopen

import pytest

from admissions import MERGE, ask
from dralab.apiserver.server import ApiServer
from dralab.apiserver.storage import Key, MemoryStore
from dralab.apiserver.verbs.kinds.conversion_webhooks import KeptConversions
from dralab.cluster import Cluster
from dralab.kernel.clock import ManualClock
from dralab.kernel.randomness import Randomness
from dralab.runtime.client import Resource
from dralab.runtime.local import LocalClient
from webhookserver import WebhookServer

CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
FIGS = "/apis/x.io/{}/namespaces/default/figs"
ONE, TWO = FIGS.format("v1"), FIGS.format("v2")
FIELDS = {"v1": "size", "v2": "length"}


@pytest.fixture
def hook():
    server = WebhookServer()
    server.answers["/convert"] = converted
    yield server
    server.close()


@pytest.fixture
def server(hook):
    clock = ManualClock(1_800_000_000 * 10**9)
    found = ApiServer(MemoryStore(), clock=clock, randomness=Randomness(1))
    code, made = ask(found, "POST", CRDS, definition(hook))
    assert (code, made["warnings"]) == (201, [])
    yield found
    found.close()


def definition(hook):
    def version(name):
        properties = {"spec": {"type": "object", "properties": {FIELDS[name]: {"type": "integer"}}}}
        schema = {"openAPIV3Schema": {"type": "object", "properties": properties}}
        return {
            "name": name, "served": True, "storage": name == "v1", "schema": schema,
            "selectableFields": [{"jsonPath": f".spec.{FIELDS[name]}"}],
        }  # fmt: skip

    webhook = {"clientConfig": hook.client("/convert"), "conversionReviewVersions": ["v1"]}
    return {
        "metadata": {"name": "figs.x.io"},
        "spec": {
            "group": "x.io",
            "scope": "Namespaced",
            "names": {"plural": "figs", "singular": "fig", "kind": "Fig"},
            "versions": [version("v1"), version("v2")],
            "conversion": {"strategy": "Webhook", "webhook": webhook},
        },
    }


def converted(request):
    """Rename the field of each object."""
    found, wanted = [], request["desiredAPIVersion"]
    for obj in request["objects"]:
        numbers = list((obj.get("spec") or {}).values())
        spec = {FIELDS[wanted.partition("/")[2]]: number for number in numbers}
        found.append({**obj, "apiVersion": wanted, "spec": spec})
    return {"result": {"status": "Success"}, "convertedObjects": found}


def fig(version, name="f", **spec):
    return {
        "apiVersion": f"x.io/{version}",
        "kind": "Fig",
        "metadata": {"name": name},
        "spec": spec,
    }


def test_the_service_of_a_conversion_has_the_port_of_https(server):
    service = {"namespace": "hooks", "name": "mine", "path": "/convert"}
    client = {"clientConfig": {"url": None, "service": service}}
    change = {"spec": {"conversion": {"webhook": client}}}
    code, found = ask(server, "PATCH", f"{CRDS}/figs.x.io", change, MERGE)
    assert code == 200, found
    given = found["spec"]["conversion"]["webhook"]["clientConfig"]["service"]
    assert given == {**service, "port": 443}


def test_an_object_is_read_and_written_in_every_version(server, hook):
    assert ask(server, "POST", ONE, fig("v1", size=4))[0] == 201
    code, found = ask(server, "GET", f"{TWO}/f")
    assert (code, found["apiVersion"], found["spec"]) == (200, "x.io/v2", {"length": 4})
    code, found = ask(server, "PATCH", f"{TWO}/f", {"spec": {"length": 5}}, MERGE)
    assert (code, found["spec"]) == (200, {"length": 5})
    assert ask(server, "GET", f"{ONE}/f")[1]["spec"] == {"size": 5}
    code, found = ask(server, "POST", TWO, fig("v2", "g", length=7))
    assert (code, found["spec"]) == (201, {"length": 7})
    assert ask(server, "GET", f"{ONE}/g")[1]["spec"] == {"size": 7}


def test_a_field_selector_names_the_fields_of_the_version_asked_for(server, hook):
    for name, size in (("a", 1), ("b", 2), ("c", 2)):
        assert ask(server, "POST", ONE, fig("v1", name, size=size))[0] == 201
    calls = len(hook.asked)
    chosen = "?fieldSelector=spec.length%3D2"
    _, found = ask(server, "GET", f"{TWO}{chosen}")
    assert [each["metadata"]["name"] for each in found["items"]] == ["b", "c"]
    assert len(hook.asked) == calls + 1
    _, page = ask(server, "GET", f"{TWO}{chosen}&limit=1")
    assert [each["metadata"]["name"] for each in page["items"]] == ["b"]
    more = page["metadata"]["continue"]
    _, page = ask(server, "GET", f"{TWO}{chosen}&limit=1&continue={more}")
    assert [each["metadata"]["name"] for each in page["items"]] == ["c"]
    _, found = ask(server, "GET", f"{ONE}?fieldSelector=spec.size%3D1")
    assert [each["metadata"]["name"] for each in found["items"]] == ["a"]
    assert ask(server, "GET", f"{TWO}?fieldSelector=spec.size%3D1")[0] == 400


def test_a_watch_selects_by_the_fields_of_its_version(server, hook):
    client, two = LocalClient(server.resources, server.hub), Resource("x.io", "v2", "figs")
    assert ask(server, "POST", ONE, fig("v1", "a", size=1))[0] == 201
    revision = client.list(two).revision
    watch = client.watch(two, revision=revision, field_selector="spec.length=2")
    seen = []
    for change in (
        {"spec": {"size": 2}},
        {"metadata": {"labels": {"x": "y"}}},
        {"spec": {"size": 3}},
        {"spec": {"size": 4}},
    ):
        assert ask(server, "PATCH", f"{ONE}/a", change, MERGE)[0] == 200
        event = watch.next(timeout=0)
        seen.append(event and (event.type, event.object["spec"]))
    two_long = {"length": 2}
    assert seen == [("ADDED", two_long), ("MODIFIED", two_long), ("DELETED", two_long), None]


def test_a_client_in_this_process_reads_every_version(server, hook):
    for name in "ab":
        assert ask(server, "POST", ONE, fig("v1", name, size=1))[0] == 201
    client, two = LocalClient(server.resources, server.hub), Resource("x.io", "v2", "figs")
    assert client.get(two, "a", "default")["spec"] == {"length": 1}
    found = client.list(two)
    assert [each["spec"] for each in found.items] == [{"length": 1}] * 2
    watch = client.watch(two, revision=found.revision)
    hook.answers["/convert"] = lambda _: (500, b"boom")
    assert ask(server, "POST", ONE, fig("v1", "c", size=3))[0] == 201
    event = watch.next(timeout=0)
    assert (event.type, event.object["code"]) == ("ERROR", 500)
    assert event.object["message"].startswith("conversion webhook for x.io/v1, Kind=Fig failed")


def test_a_list_is_converted_in_one_call_and_then_known(server, hook):
    for name in "abc":
        assert ask(server, "POST", ONE, fig("v1", name, size=1))[0] == 201
    assert hook.asked == [], "nobody has asked for another version"
    for _ in range(2):
        items = ask(server, "GET", TWO)[1]["items"]
        assert [item["spec"] for item in items] == [{"length": 1}] * 3
    ((_, asked),) = hook.asked
    assert (asked["desiredAPIVersion"], len(asked["objects"])) == ("x.io/v2", 3)
    assert ask(server, "PATCH", f"{ONE}/a", {"spec": {"size": 2}}, MERGE)[0] == 200
    assert ask(server, "GET", f"{TWO}/a")[1]["spec"] == {"length": 2}
    assert len(hook.asked) == 2, "a write converts ahead"


def answer_with(uid, request):
    response = {"uid": uid, **converted(request)}
    review = {"apiVersion": "apiextensions.k8s.io/v1", "kind": "ConversionReview"}
    return json.dumps({**review, "response": response}).encode()


def deep(parts):
    """An object of so many objects within one another."""
    return {"a": deep(parts - 1)} if parts else {}


LIES = {
    "too deep": (
        lambda r: {
            "result": {"status": "Success"},
            "convertedObjects": [{**each, "spec": deep(400)} for each in r["objects"]],
        },
        "json parse error: exceeded max depth",
    ),
    "too many parts": (
        lambda r: {"result": {"status": "Success"}, "convertedObjects": [[]] * 1_100_000},
        "has more than 1000000 objects, lists and items",
    ),
    "too few": (
        lambda r: {"result": {"status": "Success"}, "convertedObjects": []},
        "returned 0 objects, expected 1",
    ),
    "a refusal": (
        lambda r: {"result": {"status": "Failed", "message": "not today"}},
        "failed: not today",
    ),
    "another name": (
        lambda r: {
            "result": {"status": "Success"},
            "convertedObjects": [
                {
                    **r["objects"][0],
                    "apiVersion": "x.io/v2",
                    "metadata": {**r["objects"][0]["metadata"], "name": "other"},
                }
            ],
        },
        "returned invalid object: must have the same name: f != other",
    ),
    "another version": (
        lambda r: {"result": {"status": "Success"}, "convertedObjects": r["objects"]},
        "invalid groupVersion (expected x.io/v2, received x.io/v1)",
    ),
    "a kind alone": (
        lambda r: b'{"kind":"ConversionReview"}',
        "Kind=ConversionReview, got /, Kind=ConversionReview",
    ),
    "an older review": (
        lambda r: b'{"apiVersion":"apiextensions.k8s.io/v1beta1","kind":"ConversionReview"}',
        "converting (v1beta1.ConversionReview) to (v1.ConversionReview): unknown conversion",
    ),
    "no uid": (
        lambda r: answer_with(None, r),
        'expected response.uid="',
    ),
    "a wrong uid": (
        lambda r: answer_with("other", r),
        '", got "other"',
    ),
    "an error": (
        lambda r: (500, b"boom"),
        'failed: an error on the server ("unknown") has prevented the request from succeeding',
    ),
    "another kind": (
        lambda r: {
            "result": {"status": "Success"},
            "convertedObjects": [{**r["objects"][0], "apiVersion": "x.io/v2", "kind": "Pear"}],
        },
        "returned invalid object at index 0: invalid kind (expected Fig, received Pear)",
    ),
    "no object": (
        lambda r: {"result": {"status": "Success"}, "convertedObjects": [5]},
        "json: cannot unmarshal number into Go value of type map[string]interface {}",
    ),
    "no JSON": (
        lambda r: b"<html>",
        "failed: couldn't get version/kind; json parse error: json: cannot unmarshal string into",
    ),
}


@pytest.mark.parametrize("lie", LIES)
def test_a_webhook_that_lies_is_told_of_and_changes_nothing(server, hook, lie):
    assert ask(server, "POST", ONE, fig("v1", size=4))[0] == 201
    hook.answers["/convert"], words = LIES[lie]
    code, found = ask(server, "GET", f"{TWO}/f")
    assert code == 500
    if lie != "no object":
        assert found["message"].startswith("conversion webhook for x.io/v1, Kind=Fig ")
    assert words in found["message"]
    code, _ = ask(server, "POST", TWO, fig("v2", "g", length=7))
    assert code == 500
    assert ask(server, "GET", f"{ONE}/g")[0] == 404
    assert ask(server, "PATCH", f"{ONE}/f", {"spec": {"size": 5}}, MERGE)[0] == 200


def test_only_labels_and_annotations_of_the_metadata_are_the_webhooks(server, hook):
    def relabelled(request):
        answer = converted(request)
        for obj in answer["convertedObjects"]:
            obj["metadata"] = {
                **obj["metadata"],
                "labels": {"by": "webhook"},
                "finalizers": ["x.io/hold"],
            }
        return answer

    hook.answers["/convert"] = relabelled
    assert ask(server, "POST", ONE, fig("v1", size=4))[0] == 201
    metadata = ask(server, "GET", f"{TWO}/f")[1]["metadata"]
    assert metadata["labels"] == {"by": "webhook"}
    assert "finalizers" not in metadata


def test_objects_stay_in_the_version_that_they_were_stored_in(server, hook):
    """Only the webhook could change it; without objects, a definition has its way."""
    for name, there in (("with", True), ("without", False)):
        if there:
            assert ask(server, "POST", ONE, fig("v1", size=4))[0] == 201
        body = definition(hook)
        for each in body["spec"]["versions"]:
            each["storage"] = each["name"] == "v2"
        assert ask(server, "PATCH", f"{CRDS}/figs.x.io", body, MERGE)[0] == 200
        assert ask(server, "POST", TWO, fig("v2", "g", length=7))[0] == 201
        kept = server.store.get(Key("x.io/figs", "default", "g")).value
        assert kept["apiVersion"] == ("x.io/v1" if there else "x.io/v2"), name
        for path, spec in ((ONE, {"size": 7}), (TWO, {"length": 7})):
            assert ask(server, "GET", f"{path}/g")[1]["spec"] == spec
        for gone in "fg":
            ask(server, "DELETE", f"{ONE}/{gone}")
        assert ask(server, "PATCH", f"{CRDS}/figs.x.io", definition(hook), MERGE)[0] == 200


def test_objects_leave_a_version_that_is_gone(server, hook):
    """A client says that it has migrated all of them, and takes the version out."""
    assert ask(server, "POST", ONE, fig("v1", size=4))[0] == 201
    body = definition(hook)
    for each in body["spec"]["versions"]:
        each["storage"] = each["name"] == "v2"
    assert ask(server, "PATCH", f"{CRDS}/figs.x.io", body, MERGE)[0] == 200
    body["spec"]["versions"] = body["spec"]["versions"][1:]
    assert ask(server, "PATCH", f"{CRDS}/figs.x.io", body, MERGE)[0] == 422
    migrated = {"status": {"storedVersions": ["v2"]}}
    assert ask(server, "PATCH", f"{CRDS}/figs.x.io/status", migrated, MERGE)[0] == 200
    assert ask(server, "PATCH", f"{CRDS}/figs.x.io", body, MERGE)[0] == 200
    assert ask(server, "GET", f"{TWO}/f")[1]["spec"] == {"length": 4}
    assert ask(server, "POST", TWO, fig("v2", "g", length=7))[0] == 201
    kept = server.store.get(Key("x.io/figs", "default", "g")).value
    assert (kept["apiVersion"], kept["spec"]) == ("x.io/v2", {"length": 7})


def test_a_watch_sees_the_version_that_it_asks_for(hook):
    with Cluster(seed=1) as cluster:
        api = cluster.server
        assert ask(api, "POST", CRDS, definition(hook))[0] == 201
        assert ask(api, "POST", ONE, fig("v1", "a", size=1))[0] == 201
        found = []

        def write():
            body = json.dumps(fig("v1", "b", size=2)).encode()
            headers = {"Content-Type": "application/json", "User-Agent": "test"}
            urlopen(Request(f"{cluster.url}{ONE}", body, headers)).close()

        with urlopen(f"{cluster.url}{TWO}?watch=1") as answer:
            found.append(json.loads(answer.readline()))
            writer = threading.Thread(target=write)
            writer.start()
            found.append(json.loads(answer.readline()))
            writer.join()
        assert [each["type"] for each in found] == ["ADDED", "ADDED"]
        assert [each["object"]["spec"] for each in found] == [{"length": 1}, {"length": 2}]


def test_conversions_are_kept_up_to_a_number_and_a_size():
    kept = KeptConversions(most=3, most_bytes=500)
    small, large = {"spec": "x" * 50}, {"spec": "x" * 200}
    for number in range(5):
        kept.put(("ns", str(number), "v2"), {}, small)
    assert [bool(kept.get(("ns", str(number), "v2"))) for number in range(5)] == [0, 0, 1, 1, 1]
    for _ in range(4):
        kept.put(("ns", "2", "v2"), {}, small)
    assert len(kept.get(("ns", "2", "v2"))) == 2  # the last two states
    assert kept.size == 4 * len(json.dumps(small, separators=(",", ":")))
    for number in range(5, 8):
        kept.put(("ns", str(number), "v2"), {}, large)
    assert kept.size <= 500
    assert kept.get(("ns", "7", "v2"))
    kept.put(("ns", "8", "v2"), {}, {"spec": "x" * 1000})
    assert kept.get(("ns", "8", "v2")), "the newest is kept whatever its size"
    assert not kept.get(("ns", "7", "v2"))


def test_an_object_whose_conversion_was_forgotten_is_converted_again(server, hook, monkeypatch):
    webhook = server.resources.context.rules.webhooks["x.io/figs"]
    monkeypatch.setattr(webhook, "_kept", KeptConversions(most=2))
    for number in range(5):
        assert ask(server, "POST", ONE, fig("v1", f"f{number}", size=number))[0] == 201
    for number in range(5):
        assert ask(server, "GET", f"{TWO}/f{number}")[1]["spec"] == {"length": number}
