"""The cases about sockets of the kubelet's own DRA suite (test/e2e_node/dra_test.go, 1.36.2)."""

import tempfile
from pathlib import Path

import pytest

from dralab.contracts.plugin import ClaimRef, DeviceHealth, PreparedDevice, PrepareResult
from dralab.kernel.clock import SECOND
from dralab.node.plugins import Plugins
from dralab.runtime.live import LiveEngine
from waiting import PATIENCE, until

grpc = pytest.importorskip("grpc", reason="the extra dralab[grpc] is not installed")

from dralab.contracts import wire  # noqa: E402 - after the check above
from dralab.drivers.sockets import (  # noqa: E402
    SocketServer,
    _health_handler,
    _plugin_handler,
    _registration_handler,
    _version,
)
from dralab.node.sockets import Registrar  # noqa: E402

DRIVER = "test-driver.cdi.k8s.io"
REF = ClaimRef("ns", "claim", "uid-1")
LISTENING = "00010000"


class Driver:
    """A plugin that is ready at once, and healthy."""

    driver = DRIVER

    def __init__(self):
        self.calls = []

    def prepare(self, claims):
        self.calls.append("prepare")
        device = PreparedDevice(requests=(), pool="p", device="d", cdi_ids=())
        return {ref.uid: PrepareResult(devices=(device,)) for ref in claims}

    def unprepare(self, claims):
        self.calls.append("unprepare")
        return {ref.uid: "" for ref in claims}

    def health(self):
        return [DeviceHealth(pool="p", device="d", health="Healthy")]


class Server(SocketServer):
    """Serves its two sockets apart, or both services on one; may fail at registration."""

    look_every = 0.02
    common = False
    failing = ""

    def register(self):
        handlers = [_registration_handler(self)]
        self._serve(self.registration, [*handlers, *self.services()] if self.common else handlers)

    def services(self):
        found = [_plugin_handler(_version(name), self) for name in self.versions]
        return [*found, *(_health_handler(name, self) for name in wire.HEALTH_SERVICES)]

    def serve(self):
        if not self.common:
            self._serve(self.endpoint, self.services())

    def info(self):
        if self.failing == "GetInfo":
            raise RuntimeError("simulated GetInfo failure")
        found = super().info()
        if self.common:
            found.endpoint = str(self.registration)
        return found

    def on_status_reported(self, status):
        if self.failing == "NotifyRegistrationStatus":
            raise RuntimeError("simulated NotifyRegistrationStatus failure")
        super().on_status_reported(status)


class Node:
    """A kubelet's registrar over a directory, which can begin anew."""

    def __init__(self, root):
        self.root, self.servers = root, []
        self.begin()

    def begin(self):
        self.engine = LiveEngine(name="kubelet", workers=4)
        self.plugins = Plugins()
        registry = self.root / "plugins_registry"
        self.registrar = Registrar(self.engine, self.plugins, registry, look_every=SECOND // 50)
        self.registrar.start()
        self.engine.start()

    def end(self):
        self.registrar.stop()
        self.engine.stop()

    def restart(self):
        self.end()
        self.begin()

    def server(self, plugin=None, *, common=False, failing=""):
        found = Server(plugin or Driver(), self.root)
        found.common, found.failing = common, failing
        found.directory.mkdir(parents=True, exist_ok=True)  # for its lock
        self.servers.append(found)
        return found

    def start(self, **options):
        found = self.server(**options)
        found.serve()
        found.register()
        return found

    def plugin(self):
        return until(lambda: self.plugins.get(DRIVER))


def connections(path):
    """Return how many connections a socket has accepted and still has."""
    lines = [line.split() for line in Path("/proc/net/unix").read_text().splitlines()]
    own = [words for words in lines if words[-1] == str(path)]
    return sum(words[3] != LISTENING for words in own)


@pytest.fixture
def node():
    with tempfile.TemporaryDirectory(prefix="dralab") as name:
        found = Node(Path(name))
        yield found
        for server in found.servers:
            server.stop()
        found.end()


def test_must_register_after_kubelet_restart(node):
    server = node.start()
    assert server.registered.wait(PATIENCE)
    server.registered.clear()
    node.restart()
    assert server.registered.wait(PATIENCE)


def test_must_register_after_plugin_restart(node):
    node.start().stop()
    assert node.start().registered.wait(PATIENCE)


@pytest.mark.parametrize("call", ["GetInfo", "NotifyRegistrationStatus"])
def test_must_recover_and_register_after_failure(node, call):
    server = node.start(failing=call)
    until(lambda: node.registrar.problems)
    assert node.plugins.get(DRIVER) is None
    server.failing = ""
    assert server.registered.wait(PATIENCE)
    assert node.plugin()


both = pytest.mark.parametrize("common", [False, True], ids=["2 sockets", "1 common socket"])


@both
def test_must_be_functional_when_plugin_starts_to_listen_after_registration(node, common):
    server = node.server(common=common)
    server.register()
    assert server.registered.wait(PATIENCE)
    server.serve()
    plugin = node.plugin()
    until(lambda: plugin.connected)
    assert plugin.prepare([REF])["uid-1"].devices


@both
def test_must_be_functional_after_service_reconnect(node, common):
    server = node.start(common=common)
    plugin = node.plugin()
    until(lambda: plugin.connected)
    plugin.prepare([REF])
    # As after SIGKILL: nobody listens; what is at the path is another matter.
    server.servers[0].stop(0).wait()
    # With one socket the node may notice first that the registration is gone, and drop the plugin.
    until(lambda: not plugin.connected or node.plugins.get(DRIVER) is not plugin)
    again = node.server(common=common)
    if common:
        again.register()
        plugin = until(lambda: (p := node.plugins.get(DRIVER)) is not plugin and p)
    else:
        again.serve()
    until(lambda: plugin.connected)
    assert plugin.unprepare([REF]) == {"uid-1": ""}
    assert again.plugin.calls == ["unprepare"]


@pytest.mark.parametrize("socket", ["registration", "endpoint"])
def test_must_report_grpc_serving_error(node, socket):
    server = SocketServer(Driver(), node.root)
    place = node.root / "file"
    place.write_text("not a directory")
    setattr(server, socket, place / "x.sock")
    try:
        with pytest.raises(wire.SocketError, match="cannot be served"):
            server.start()
    finally:
        place.unlink()
        server.stop()


def test_must_use_one_grpc_connection_for_all_service_calls(node):
    server = node.server()
    server.register()
    assert server.registered.wait(PATIENCE)
    server.serve()
    plugin = node.plugin()
    until(lambda: plugin.connected)
    for _ in range(2):
        plugin.prepare([REF])
        plugin.unprepare([REF])
        assert connections(server.endpoint) == 1


@both
def test_slices_must_be_removed_if_plugin_stops_after_registration(node, common):
    changes = []
    node.plugins.changed = lambda driver, there: changes.append((driver, there))
    server = node.start(common=common)
    until(lambda: (DRIVER, True) in changes)
    server.stop()
    # From here on the 30 s run after which a node deletes the slices (test_dra_node_suite.py).
    until(lambda: changes[-1] == (DRIVER, False))


@both
def test_slices_must_not_be_removed_if_plugin_restarts_quickly_enough(node, common):
    changes = []
    node.plugins.changed = lambda driver, there: changes.append((driver, there))
    server = node.start(common=common)
    until(lambda: (DRIVER, True) in changes)
    server.stop()
    until(lambda: changes[-1] == (DRIVER, False))
    node.start(common=common)
    # The node stops to wait for the end of the 30 s.
    until(lambda: changes[-1] == (DRIVER, True))


def test_must_use_one_grpc_connection_for_service_and_health_monitoring_calls(node):
    server = node.start()
    plugin = node.plugin()
    until(plugin.health)
    for _ in range(2):
        plugin.prepare([REF])
        plugin.unprepare([REF])
        assert connections(server.endpoint) == 1
