"""The verbs through the application: what every kind can do."""

import json

import pytest

from dralab.api.kinds import Kinds
from dralab.apiserver.http.application import Application
from dralab.apiserver.http.messages import HttpRequest, HttpResponse, WatchStream
from dralab.apiserver.storage import MemoryStore
from dralab.apiserver.verbs.assembly import new_resources
from dralab.kernel.clock import ManualClock
from dralab.kernel.randomness import Randomness

MAPS = "/api/v1/namespaces/default/configmaps"


@pytest.fixture
def application() -> Application:
    clock = ManualClock(1_700_000_000_000_000_000)
    return Application(new_resources(MemoryStore(), clock, Randomness(1)))


def ask(application: Application, method: str, url: str, body=None, **headers: str):
    path, _, query = url.partition("?")
    data = b"" if body is None else json.dumps(body).encode()
    names = {name.replace("_", "-"): value for name, value in headers.items()}
    answer = application.handle(
        HttpRequest(method=method, path=path, query=query, headers=names, body=data)
    )
    assert isinstance(answer, HttpResponse)
    return answer.status, json.loads(answer.content)


def watch(application: Application, url: str) -> WatchStream:
    path, _, query = url.partition("?")
    answer = application.handle(HttpRequest(method="GET", path=path, query=query))
    assert isinstance(answer, WatchStream)
    return answer


def test_an_object_can_be_made_read_changed_and_deleted(application):
    status, made = ask(application, "POST", MAPS, {"metadata": {"name": "a"}, "data": {"x": "1"}})
    assert status == 201
    assert made["kind"] == "ConfigMap"
    assert ask(application, "GET", f"{MAPS}/a") == (200, made)
    made["data"] = {"x": "2"}
    status, changed = ask(application, "PUT", f"{MAPS}/a", made)
    assert status == 200
    assert int(changed["metadata"]["resourceVersion"]) > int(made["metadata"]["resourceVersion"])
    status, refused = ask(application, "PUT", f"{MAPS}/a", made)
    assert (status, refused["reason"]) == (409, "Conflict")
    status, gone = ask(application, "DELETE", f"{MAPS}/a")
    assert (status, gone["status"]) == (200, "Success")
    assert ask(application, "GET", f"{MAPS}/a")[0] == 404


def test_a_put_that_changes_nothing_writes_nothing(application):
    _, made = ask(application, "POST", MAPS, {"metadata": {"name": "a"}, "data": {"x": "1"}})
    before = application.resources.context.store.revision
    assert ask(application, "PUT", f"{MAPS}/a", made) == (200, made)
    assert application.resources.context.store.revision == before


def test_all_pages_of_a_list_show_the_state_of_the_first(application):
    for name in "abcde":
        ask(application, "POST", MAPS, {"metadata": {"name": name}})
    _, first = ask(application, "GET", f"{MAPS}?limit=2")
    ask(application, "DELETE", f"{MAPS}/c")
    ask(application, "POST", MAPS, {"metadata": {"name": "cc"}})
    token = first["metadata"]["continue"]
    assert first["metadata"]["remainingItemCount"] == 3
    _, second = ask(application, "GET", f"{MAPS}?limit=9&continue={token}")
    names = [item["metadata"]["name"] for item in first["items"] + second["items"]]
    assert names == list("abcde")
    assert second["metadata"]["resourceVersion"] == first["metadata"]["resourceVersion"]


def test_a_watch_sees_objects_enter_and_leave_its_selection(application):
    stream = watch(application, f"{MAPS}?watch=1&labelSelector=t%3D1")
    since = application.resources.context.store.revision
    _, made = ask(application, "POST", MAPS, {"metadata": {"name": "a"}})
    for labels in ({"t": "1"}, {"t": "1", "u": "2"}, {}):
        made["metadata"]["labels"] = labels
        _, made = ask(application, "PUT", f"{MAPS}/a", made)
    changes = application.resources.context.store.changes(since, "configmaps")
    seen = [stream.watching.seen(change) for change in changes]
    assert [event and event[0] for event in seen] == [None, "ADDED", "MODIFIED", "DELETED"]
    line = json.loads(stream.encoder.event(*seen[3]))
    # The state before, as of the revision of the change.
    assert line["object"]["metadata"]["labels"] == {"t": "1", "u": "2"}
    assert line["object"]["metadata"]["resourceVersion"] == made["metadata"]["resourceVersion"]


def test_equal_watches_share_their_work(application):
    one = watch(application, f"{MAPS}?watch=1&labelSelector=t%3D1")
    two = watch(application, f"{MAPS}?watch=true&labelSelector=t%3D1")
    assert one.watching.accepts is two.watching.accepts
    assert one.encoder == two.encoder
    assert hash(one.encoder) == hash(two.encoder)


def test_finalizers_hold_an_object_back(application):
    meta = {"name": "a", "finalizers": ["x.io/y"]}
    ask(application, "POST", MAPS, {"metadata": meta})
    status, marked = ask(application, "DELETE", f"{MAPS}/a")
    assert status == 200
    assert marked["metadata"]["deletionTimestamp"]
    marked["metadata"]["finalizers"] = []
    assert ask(application, "PUT", f"{MAPS}/a", marked)[0] == 200
    assert ask(application, "GET", f"{MAPS}/a")[0] == 404


def test_every_kind_that_can_be_listed_is_listed(application):
    kinds = [kind for kind in Kinds.standard() if "list" in kind.verbs]
    assert len(kinds) > 60
    for kind in kinds:
        status, found = ask(application, "GET", f"{kind.path}/{kind.plural}")
        assert (status, found["kind"], found["apiVersion"]) == (
            200,
            kind.list_kind,
            kind.api_version,
        )


def test_nobody_gets_in_without_a_token_where_tokens_are_asked_for():
    from dralab.apiserver.access.authentication.chain import Authentication
    from dralab.apiserver.access.authentication.tokens import TokenTable
    from dralab.apiserver.access.users import ADMIN

    resources = new_resources(MemoryStore(), ManualClock(), Randomness(1))
    application = Application(
        resources, authentication=Authentication(tokens=[TokenTable({"tok": ADMIN})])
    )
    assert ask(application, "GET", MAPS)[0] == 401
    assert ask(application, "GET", MAPS, authorization="Bearer nope")[0] == 401
    assert ask(application, "GET", MAPS, authorization="Bearer tok")[0] == 200


def test_a_secret_with_a_null_has_empty_bytes(application):
    value = {"metadata": {"name": "s"}, "data": {"a": None, "b": "Yg=="}}
    status, made = ask(application, "POST", "/api/v1/namespaces/default/secrets", value)
    assert (status, made["data"]) == (201, {"a": "", "b": "Yg=="})
    value = {"metadata": {"name": "c"}, "binaryData": {"a": None}}
    status, made = ask(application, "POST", "/api/v1/namespaces/default/configmaps", value)
    assert (status, made["binaryData"]) == (201, {"a": ""})
