"""The parts of uvicorn that the server overrides or sets, which uvicorn does not document."""

import inspect
import re
import tomllib
from importlib.metadata import version
from pathlib import Path

import pytest
import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle
from uvicorn.protocols.websockets.wsproto_impl import WSProtocol
from uvicorn.server import ServerState

from dralab.apiserver.http.connections.serving import _LimitedProtocol, _Server
from dralab.apiserver.http.connections.websocket_connections import LimitedSocket

ROOT = Path(__file__).parents[3]
# What is overridden is called by uvicorn, so it has to be there, with the same parameters.
OWN = {"__init__", "__module__", "__doc__", "__firstlineno__", "__static_attributes__"}
NEW = {"go_on", "look"}  # which nothing of uvicorn calls
# What is read or set of a request under way.
CYCLE = {
    "body", "chunked_encoding", "default_headers", "disconnected", "flow", "keep_alive",
    "message_event", "more_body", "on_response", "response_complete", "response_started", "scope",
    "transport", "waiting_for_100_continue",
}  # fmt: skip


def bounds():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    (found,) = (each for each in project["dependencies"] if each.startswith("uvicorn"))
    bound = re.fullmatch(r"uvicorn>=(\d+)\.(\d+),<(\d+)\.(\d+)", found)
    assert bound is not None, "private parts are overridden: both bounds are needed"
    numbers = [int(each) for each in bound.groups()]
    return tuple(numbers[:2]), tuple(numbers[2:])


def test_the_installed_version_is_one_that_was_tested():
    lowest, next_ = bounds()
    installed = tuple(int(part) for part in version("uvicorn").split(".")[:2])
    assert lowest <= installed < next_


@pytest.mark.parametrize(
    ("own", "base"),
    [
        (_LimitedProtocol, HttpToolsProtocol),
        (_Server, uvicorn.Server),
        (LimitedSocket, WSProtocol),
    ],
    ids=["HTTP", "server", "WebSocket"],
)
def test_what_is_overridden_is_a_part_of_uvicorn(own, base):
    names = {name for name in vars(own) if name not in OWN | NEW}
    assert names or own is LimitedSocket
    for name in names:
        assert hasattr(base, name), f"uvicorn calls no {name}"
        ours, theirs = (inspect.signature(getattr(each, name)) for each in (own, base))
        assert len(ours.parameters) == len(theirs.parameters), name


def test_a_request_under_way_has_the_parts_that_answers_need():
    source = inspect.getsource(RequestResponseCycle)
    assert {name for name in CYCLE if f"self.{name}" not in source} == set()
    assert {"connections", "tasks"} <= set(vars(ServerState()))
