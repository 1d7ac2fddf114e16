"""What uvicorn's WebSockets need of the server that they are used with, which it does not document."""

import inspect
import re
import tomllib
from importlib.metadata import version
from pathlib import Path

from uvicorn.protocols.websockets.wsproto_impl import WSProtocol

from dralab.apiserver.http.connections.asgi import AsgiApp
from dralab.apiserver.http.connections.exchanges import ServedConnections
from dralab.apiserver.server import ApiServer
from dralab.apiserver.storage import MemoryStore

ROOT = Path(__file__).parents[3]


def bounds():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    (found,) = (each for each in project["dependencies"] if each.startswith("uvicorn"))
    bound = re.fullmatch(r"uvicorn>=(\d+)\.(\d+),<(\d+)\.(\d+)", found)
    assert bound is not None, "private parts are used: both bounds are needed"
    numbers = [int(each) for each in bound.groups()]
    return tuple(numbers[:2]), tuple(numbers[2:])


def test_the_installed_version_is_one_that_was_tested():
    lowest, next_ = bounds()
    installed = tuple(int(part) for part in version("uvicorn").split(".")[:2])
    assert lowest <= installed < next_


def test_a_websocket_needs_no_more_of_a_server_than_it_is_given():
    source = inspect.getsource(WSProtocol)
    used = set(re.findall(r"server_state\.(\w+)", source))
    assert used
    assert used <= set(vars(ServedConnections(AsgiApp(ApiServer(MemoryStore())))))
    assert not hasattr(WSProtocol, "look")  # which the server calls
    assert {"shutdown", "transport"} <= {*vars(WSProtocol), *re.findall(r"self\.(\w+)", source)}
