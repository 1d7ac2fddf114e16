"""`/ui` of an API server: the page for all, the answers for those who may list the objects."""

import pytest

from builders import obj
from dralab.apiserver.access.authentication.settings import AuthenticationSettings
from dralab.apiserver.access.authentication.tokens import TokenTable
from dralab.apiserver.access.users import User
from dralab.apiserver.server import ApiServer
from dralab.apiserver.storage import MemoryStore
from dralab.kernel.clock import ManualClock
from dralab.runtime.local import LocalClient
from dralab.runtime.resources import CONFIG_MAPS, NODES
from dralab.web.beside_api import AppWithPage
from dralab.web.sources import ListedSource
from web.pages import PageClient

TOKENS = {
    "t-admin": User(name="root"),
    "t-jane": User(name="jane", groups=("team-a",)),
}


def server_with(**options):
    server = ApiServer(MemoryStore(), clock=ManualClock(10**18), **options)
    LocalClient(server.resources, server.hub).create(NODES, obj("Node", "n1", api="v1"))
    return server


@pytest.fixture
def guarded():
    settings = AuthenticationSettings(tokens=[TokenTable(TOKENS)])
    app = AppWithPage(server_with(authentication=settings, authorization=["RBAC"]))
    yield PageClient(app)
    app.close()


@pytest.fixture
def plain():
    app = AppWithPage(server_with())
    yield PageClient(app)
    app.close()


def test_the_page_needs_no_token_and_its_questions_do(guarded):
    assert guarded.ask("/ui")[0] == 200
    assert guarded.ask("/ui/data/fleet")[0] == 401
    assert guarded.ask("/ui/data/fleet", token="wrong")[0] == 401
    status, found = guarded.json("/ui/data/fleet", token="t-admin")
    assert (status, found["nodes"]["name"]) == (200, ["n1"])


def test_a_user_sees_what_the_user_may_list(guarded):
    status, found = guarded.json("/ui/data/fleet", token="t-jane")
    assert (status, found["reason"]) == (403, "Forbidden")
    assert 'User "jane" cannot list resource "nodes"' in found["message"]
    # What an administrator was answered before is not given to others.
    assert guarded.json("/ui/data/fleet", token="t-admin")[0] == 200
    assert guarded.json("/ui/data/fleet", token="t-jane")[0] == 403


def test_who_may_list_the_objects_may_follow_them(guarded):
    assert guarded.ask("/ui/data/changes", token="t-admin")[0] == 200
    assert guarded.ask("/ui/data/changes", token="t-jane")[0] == 403
    assert guarded.ask("/ui/data/changes")[0] == 401


def test_a_page_of_others_is_refused(guarded, plain):
    foreign = {"origin": "https://evil.example"}
    assert guarded.ask("/ui/data/fleet", token="t-admin", sec_fetch_site="cross-site")[0] == 200
    for path in ("/ui", "/ui/data/fleet", "/ui/data/changes"):
        assert plain.ask(path, **foreign)[0] == 403
        assert plain.ask(path, host="rebound.example:8000")[0] == 403
        assert plain.ask(path, sec_fetch_site="cross-site")[0] == 403
    assert guarded.ask("/ui", **foreign)[0] == 403


def test_the_api_is_there_as_before(plain):
    assert plain.json("/api/v1/nodes/n1")[1]["metadata"]["name"] == "n1"
    assert plain.ask("/ui2")[0] == 404


def test_changes_of_what_the_page_shows_are_told_and_no_others(plain):
    server = plain.app.served
    source = ListedSource(LocalClient(server.resources, server.hub), server.resources.context.store)
    told = []
    stop = source.follow(lambda: told.append(1))
    client = LocalClient(server.resources, server.hub)
    client.create(CONFIG_MAPS, {"metadata": {"name": "m"}}, "default")
    assert told == []
    client.create(NODES, obj("Node", "n2", api="v1"))
    assert told == [1]
    stop()
    client.delete(NODES, "n2")
    assert told == [1]


def test_the_page_follows_the_store(plain):
    version = plain.json("/ui/data/fleet")[1]["version"]
    assert plain.json(f"/ui/data/fleet?have={version}")[1] == {"version": version, "same": True}
    plain.app.served.resources.context.clock.advance(10**12)
    client = LocalClient(plain.app.served.resources, plain.app.served.hub)
    client.create(NODES, obj("Node", "n2", api="v1"))
    assert plain.json(f"/ui/data/fleet?have={version}")[1]["nodes"]["name"] == ["n1", "n2"]
