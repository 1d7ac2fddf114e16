"""`dralab ui`: who may ask, and what an attacker on this machine or in the browser gets."""

import json
import logging

import pytest

from dralab.kernel.clock import ManualClock
from dralab.web.desk import Desk
from dralab.web.own_server import PageApp
from dralab.web.sources import FixedSource, UnreadableClusterError
from web.pages import PageClient, cluster


@pytest.fixture
def codes():
    return []


@pytest.fixture
def app(codes):
    app = PageApp(Desk(FixedSource(cluster()), ManualClock(), "a lab", live=True), codes.append)
    yield app
    app.close()


@pytest.fixture
def client(app):
    return PageClient(app)


@pytest.fixture
def token(app, client):
    status, found = client.json("/ui/session", method="POST", body={"code": app.code})
    assert status == 200
    return found["token"]


def test_the_page_needs_no_token_and_may_not_be_framed(client):
    status, headers, content = client.ask("/ui")
    assert status == 200
    assert b"<!doctype html>" in content
    assert "frame-ancestors 'none'" in headers["content-security-policy"]
    assert headers["x-frame-options"] == "DENY"
    assert "set-cookie" not in headers


@pytest.mark.parametrize(
    "path", ["about", "changes", "fleet", "waiting", "story", "explain", "run", "none"]
)
def test_a_question_needs_the_token(client, path):
    assert client.ask(f"/ui/data/{path}")[0] == 401
    assert client.ask(f"/ui/data/{path}", token="guessed")[0] == 401
    assert client.ask(f"/ui/data/{path}?token=guessed")[0] == 401


def test_a_code_opens_the_page_once(app, client, codes):
    code = app.code
    status, found = client.json("/ui/session", method="POST", body={"code": code})
    assert status == 200
    status, again = client.json("/ui/session", method="POST", body={"code": code})
    assert status == 401
    assert "newest one" in again["message"]
    assert codes == [app.code] != [code]
    assert client.json("/ui/data/about", token=found["token"])[1]["title"] == "a lab"


@pytest.mark.parametrize(
    "body", [b"", b"[]", b"{}", b"not JSON", b'{"code": null}', b'{"code": ["x"]}']
)
def test_no_other_body_opens_the_page(client, codes, body):
    status, _, content = client.ask(
        "/ui/session", method="POST", body=body, content_type="application/json"
    )
    assert status in {400, 401}
    assert b"token" not in content
    assert not codes


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"host": "rebound.example:8000"}, 403),
        ({"origin": "https://evil.example"}, 403),
        ({"origin": "http://127.0.0.1:9999"}, 403),
        ({"sec_fetch_site": "cross-site"}, 403),
        ({"sec_fetch_site": "same-site"}, 403),
        ({"origin": "http://127.0.0.1:8000", "sec_fetch_site": "same-origin"}, 200),
    ],
)
@pytest.mark.parametrize("path", ["/ui", "/ui/data/about", "/ui/data/changes"])
def test_pages_of_others_are_refused_even_with_the_token(client, token, path, headers, status):
    assert client.ask(path, token=token, **headers)[0] == status


def test_a_form_of_another_page_cannot_ask_anything(client, token):
    body = b'{"changes": [{"remove": "n1"}]}'
    status, _, _ = client.ask(
        "/ui/data/what-if", method="POST", body=body, token=token, content_type="text/plain"
    )
    assert status == 415


@pytest.mark.parametrize(
    "path",
    ["/", "/api/v1/pods", "/ui2", "/uix/data/about", "/ui/data", "/ui/data/fleet/x", "/ui/../etc"],
)
def test_there_is_nothing_else(client, token, path):
    assert client.ask(path, token=token)[0] == 404


def test_a_question_has_one_method(client, token):
    assert client.ask("/ui/data/fleet", method="DELETE", token=token)[0] == 405
    assert client.ask("/ui/data/moves", token=token)[0] == 405
    assert client.ask("/ui", method="POST", body={}, token=token)[0] == 405


def test_a_page_is_told_to_look_by_a_stream_that_has_no_content(client, token):
    status, headers, content = client.ask("/ui/data/changes", token=token)
    assert (status, content) == (200, b"event: look\ndata:\n\n")
    assert headers["content-type"] == "text/event-stream"
    assert headers["cache-control"] == "no-store"
    assert client.ask("/ui/data/changes", method="POST", body={}, token=token)[0] == 405
    assert client.ask(f"/ui/data/changes?token={token}")[0] == 401


def test_a_snapshot_has_no_stream():
    app = PageApp(Desk(FixedSource(cluster()), ManualClock(), "a lab", live=False))
    client = PageClient(app)
    token = client.json("/ui/session", method="POST", body={"code": app.code})[1]["token"]
    assert client.ask("/ui/data/changes", token=token)[0] == 404
    app.close()


def test_a_long_body_is_refused(client, token):
    status, _, _ = client.ask("/ui/data/what-if", method="POST", body=b" " * 70_000, token=token)
    assert status == 413


def test_what_is_not_there_is_not_found_and_is_named(client, token):
    status, found = client.json("/ui/data/story?kind=pod&namespace=ml&name=%3Cb%3E", token=token)
    assert (status, found["message"]) == (404, "pod ml/<b> not found")


def test_answers_are_json_that_no_browser_takes_for_a_page(client, token):
    _, headers, _ = client.ask("/ui/data/fleet", token=token)
    assert headers["content-type"] == "application/json"
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["cache-control"] == "no-store"


class BrokenSource:
    """Refuses to be read, as a cluster does for a user without rights."""

    def __init__(self, error):
        self.error = error

    def revision(self):
        return None

    def read(self):
        raise self.error


@pytest.mark.parametrize(("code", "status"), [(403, 403), (401, 401), (502, 503)])
def test_a_cluster_that_cannot_be_read_says_so(code, status):
    source = BrokenSource(UnreadableClusterError("cannot list pods: forbidden", code))
    app = PageApp(Desk(source, ManualClock(), "a lab", live=True))
    client = PageClient(app)
    token = client.json("/ui/session", method="POST", body={"code": app.code})[1]["token"]
    found = client.json("/ui/data/fleet", token=token)
    assert (found[0], found[1]["message"]) == (status, "cannot list pods: forbidden")
    app.close()


def test_a_defect_is_answered_and_logged(caplog):
    app = PageApp(Desk(BrokenSource(ZeroDivisionError()), ManualClock(), "a lab", live=True))
    client = PageClient(app)
    token = client.json("/ui/session", method="POST", body={"code": app.code})[1]["token"]
    with caplog.at_level(logging.ERROR):
        status, _, content = client.ask("/ui/data/fleet", token=token)
    assert (status, json.loads(content)["message"]) == (500, "Internal Server Error")
    assert "a question of the page failed" in caplog.text
    app.close()
