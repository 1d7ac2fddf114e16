"""What clients are told of an object whose stored state is damaged: its name, and no lies."""

import json
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from dralab.apiserver.http.application import Application
from dralab.apiserver.http.messages import HttpRequest, HttpResponse
from dralab.apiserver.storage.files import FILE
from dralab.apiserver.storage.sqlite import SqliteStore
from dralab.apiserver.verbs.assembly import new_resources
from dralab.kernel.clock import ManualClock
from dralab.kernel.randomness import Randomness

MAPS = "/api/v1/namespaces/default/configmaps"
START = 1_700_000_000_000_000_000
FLIP = "UPDATE log SET value = CAST(replace(value, 'v', 'w') AS BLOB) WHERE "


def opened(directory: Path) -> Application:
    return Application(new_resources(SqliteStore(directory), ManualClock(START), Randomness(1)))


@pytest.fixture
def application(tmp_path: Path) -> Iterator[Application]:
    """A server with the maps a, b and c, of which b is damaged."""
    first = opened(tmp_path)
    for name in "abc":
        body = {"metadata": {"name": name, "finalizers": ["example.org/wait"] * (name == "b")}}
        assert ask(first, "POST", MAPS, {**body, "data": {"v": "v"}})[0] == 201
    first.resources.context.store.close()
    with closing(sqlite3.connect(tmp_path / FILE)) as db, db:
        db.execute(FLIP + "resource = 'configmaps' AND name = 'b'")
    application = opened(tmp_path)
    yield application
    application.resources.context.store.close()


def answer(application: Application, method: str, url: str, body=None) -> HttpResponse:
    path, _, query = url.partition("?")
    data = b"" if body is None else json.dumps(body).encode()
    headers = {} if body is None else {"content-type": "application/json"}
    found = application.handle(
        HttpRequest(method=method, path=path, query=query, headers=headers, body=data)
    )
    assert isinstance(found, HttpResponse)
    return found


def ask(application: Application, method: str, url: str, body=None):
    found = answer(application, method, url, body)
    return found.status, json.loads(found.content)


def listed(application: Application, url: str = MAPS) -> tuple[list[str], list[str]]:
    found = answer(application, "GET", url)
    assert found.status == 200
    names = [item["metadata"]["name"] for item in json.loads(found.content)["items"]]
    return names, [value for key, value in found.headers if key == "Warning"]


WARNING = '299 - "configmaps \\"b\\" in namespace \\"default\\" is damaged and omitted"'
REVISIONED = {"metadata": {"name": "b"}, "data": {"v": "new"}}


@pytest.mark.parametrize(
    ("method", "url", "body"),
    [
        ("GET", f"{MAPS}/b", None),
        ("PUT", f"{MAPS}/b", REVISIONED),
        ("POST", MAPS, REVISIONED),
        ("DELETE", f"{MAPS}/b", {"preconditions": {"uid": "x"}}),
        ("GET", f"{MAPS}?fieldSelector=metadata.name%3Db", None),
    ],
)
def test_a_damaged_object_is_named(application, method, url, body):
    status, told = ask(application, method, url, body)
    assert (status, told["reason"]) == (500, "StorageReadError")
    assert told["details"] == {"name": "b", "kind": "configmaps"}
    assert 'configmaps "b" in namespace "default" cannot be read' in told["message"]


def test_a_list_serves_all_others_and_warns(application):
    assert listed(application) == (["a", "c"], [WARNING])
    assert listed(application, "/api/v1/configmaps") == (["a", "c"], [WARNING])
    assert listed(application, "/api/v1/namespaces/kube-system/configmaps") == ([], [])


def test_a_damaged_object_can_be_deleted_whatever_it_was_waiting_for(application):
    status, told = ask(application, "DELETE", f"{MAPS}/b")
    assert (status, told["status"]) == (200, "Success")
    assert listed(application) == (["a", "c"], [])
    assert ask(application, "GET", f"{MAPS}/b")[0] == 404
    assert ask(application, "POST", MAPS, REVISIONED)[0] == 201


def test_a_dry_run_leaves_a_damaged_object(application):
    assert ask(application, "DELETE", f"{MAPS}/b?dryRun=All")[0] == 200
    assert listed(application)[1] == [WARNING]


def test_deleting_a_collection_takes_damaged_objects_with_it(application):
    assert ask(application, "DELETE", f"{MAPS}?labelSelector=x%3Dy")[0] == 200
    assert listed(application) == (["a", "c"], [WARNING])
    assert ask(application, "DELETE", MAPS)[0] == 200
    assert listed(application) == ([], [])


def test_a_server_starts_though_a_namespace_of_its_own_is_damaged(tmp_path):
    opened(tmp_path).resources.context.store.close()
    with closing(sqlite3.connect(tmp_path / FILE)) as db, db:
        db.execute(
            "UPDATE log SET value = x'00' WHERE resource = 'namespaces' AND name = 'default'"
        )
    application = opened(tmp_path)
    status, told = ask(application, "GET", "/api/v1/namespaces/default")
    assert (status, told["reason"]) == (500, "StorageReadError")
    assert ask(application, "GET", "/api/v1/namespaces/kube-system")[0] == 200
    application.resources.context.store.close()
