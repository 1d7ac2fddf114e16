"""`/statusz` and `/flagz`: for people who look for a fault."""

import pytest

from dralab.apiserver.http.messages import HttpRequest
from dralab.apiserver.server import ApiServer
from dralab.apiserver.storage import MemoryStore
from dralab.kernel.clock import SECOND, ManualClock
from dralab.kernel.randomness import Randomness


@pytest.fixture
def clock():
    return ManualClock(1_800_000_000 * SECOND)


@pytest.fixture
def server(clock):
    return ApiServer(MemoryStore(), clock=clock, randomness=Randomness(1))


def get(server, path, accept="*/*"):
    answer = server.handle(HttpRequest(method="GET", path=path, headers={"accept": accept}))
    return answer.status, answer.content.decode()


def test_a_server_says_since_when_it_runs_and_which_pages_it_has(server, clock):
    clock.advance_to(clock.now() + 3725 * SECOND)
    status, text = get(server, "/statusz")
    assert status == 200
    assert "\nkube-apiserver statusz\nWarning: This endpoint is not meant to be" in text
    assert "\nStarted: 2027-01-15T08:00:00Z\nUp: 1 hr 02 min 05 sec\n" in text
    assert "\nEmulation version: 1.36\n" in text
    assert "\nPaths: /flagz /healthz /livez /metrics /readyz /statusz /version\n" in text


def test_a_server_says_with_which_options_it_was_started(server):
    server.application.pages.component.flags = {"data": "/d", "all-versions": "true"}
    status, text = get(server, "/flagz")
    assert (status, text.splitlines()[-2:]) == (200, ["all-versions=true", "data=/d"])


@pytest.mark.parametrize("path", ["/statusz", "/flagz"])
@pytest.mark.parametrize(
    ("accept", "status"),
    [
        ("text/plain", 200),
        ("application/json, text/*;q=0.5", 200),
        ("text/plain; charset=UTF-8", 200),
        ("application/json", 406),
        ("text/plain; version=1", 406),
    ],
)
def test_they_are_text_alone(server, path, accept, status):
    found, text = get(server, path, accept)
    assert found == status
    if status == 406:
        assert text == "media type not acceptable, must be: text/plain\n"


def test_both_are_listed(server):
    assert '"/flagz"' in get(server, "/")[1]
    assert '"/statusz"' in get(server, "/")[1]
