"""Drivers that send nonsense, too much or nothing: the node and other drivers go on."""

import socket
import tempfile
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import pytest

from dralab.contracts.cdi import CdiError
from dralab.contracts.cdi_cache import LARGEST_FILE, CdiCache, ContainerConfig, FileDirectory
from dralab.contracts.plugin import (
    ClaimRef,
    DeviceHealth,
    PluginError,
    PreparedDevice,
    PrepareResult,
)
from dralab.drivers.hosted_plugin import HostedPlugin
from dralab.kernel.clock import SECOND
from dralab.node.plugins import Plugins
from dralab.runtime.live import LiveEngine
from suitelab import SuiteLab
from waiting import PATIENCE, until

grpc = pytest.importorskip("grpc", reason="the extra dralab[grpc] is not installed")

from dralab.contracts import wire  # noqa: E402 - after the check above
from dralab.node.sockets import Registrar  # noqa: E402

REF = ClaimRef("ns", "claim", "uid-1")
SPEC = """
cdiVersion: 0.5.0
kind: vendor.com/gpu
devices: [{name: one, containerEdits: {env: [A=1]}}]
"""


@pytest.fixture
def root():
    with tempfile.TemporaryDirectory(prefix="dralab") as name:
        yield Path(name)


@pytest.fixture
def registrar(root):
    """With one worker: whoever occupies it would stop everything."""
    engine = LiveEngine(name="kubelet", workers=1)
    found = Registrar(engine, Plugins(), root / "plugins_registry", look_every=SECOND // 50)
    found.start()
    engine.start()
    yield found
    found.stop()
    engine.stop()


class Served:
    """A plugin made of raw answers: bytes, or a function of the call's context."""

    def __init__(self, root):
        self.root, self.servers, self.told = root, [], []

    def serve(self, name, *, info=None, dra=None, health=None, file=""):
        file = file or name
        endpoint = self.root / f"{file}.sock"
        text = wire.registration().PluginInfo(
            type=wire.PLUGIN_TYPE,
            name=name,
            endpoint=str(endpoint),
            supported_versions=["v1.DRAPlugin"],
        )
        for key, value in (info or {}).items():
            setattr(text, key, value)
        raw = text if isinstance(info, bytes) else text.SerializeToString()
        self._server(
            self.root / "plugins_registry" / f"{file}-reg.sock",
            wire.REGISTRATION_SERVICE,
            {"GetInfo": lambda _r, _c: raw, "NotifyRegistrationStatus": self._notified},
        )
        service = wire.PLUGIN_SERVICES["v1.DRAPlugin"]
        self._server(endpoint, service, {"NodePrepareResources": dra} if dra else {}, health)

    def _notified(self, request, _context):
        status = wire.registration().RegistrationStatus.FromString(request)
        self.told.append(status.error)
        return b""

    def _server(self, path, service, methods, health=None):
        path.parent.mkdir(exist_ok=True)
        server = grpc.server(ThreadPoolExecutor(4))
        handlers = {n: grpc.unary_unary_rpc_method_handler(m) for n, m in methods.items()}
        found = [grpc.method_handlers_generic_handler(service, handlers)]
        if health is not None:
            stream = {"NodeWatchResources": grpc.unary_stream_rpc_method_handler(health)}
            found.append(grpc.method_handlers_generic_handler(wire.HEALTH_SERVICES[0], stream))
        server.add_generic_rpc_handlers(tuple(found))
        server.add_insecure_port(wire.address(str(path)))
        server.start()
        self.servers.append(server)


@pytest.fixture
def served(root):
    found = Served(root)
    yield found
    for server in found.servers:
        server.stop(None)


@pytest.mark.parametrize(
    ("info", "says"),
    [
        ({"name": "../../etc/x"}, 'invalid DRA driver name "../../etc/x": '),
        ({"name": "a.com,spec.nodeName=other"}, "invalid DRA driver name"),
        ({"name": ""}, 'invalid DRA driver name "": '),
        ({"name": "a" * 64}, "must be no more than 63 characters"),
        ({"endpoint": "../dra.sock"}, '"../dra.sock" is not an absolute path'),
        ({"endpoint": "/" + "x" * 5000}, "a Unix socket path may have at most 107 bytes"),
    ],
)
def test_a_registration_that_cannot_be_right_is_refused_and_told(registrar, served, info, says):
    served.serve("gpu.example.com", info=info)
    (text,) = until(lambda: served.told[:1])
    assert says in text
    assert len(text) < 1400
    until(lambda: says in "".join(registrar.problems.values()))
    assert registrar.plugins.drivers == []


def test_who_never_answers_keeps_no_other_driver_from_registering(registrar, served, root):
    (root / "plugins_registry").mkdir(exist_ok=True)
    silent = []
    for number in range(3):
        listener = socket.socket(socket.AF_UNIX)
        listener.bind(str(root / "plugins_registry" / f"a{number}.sock"))
        listener.listen()
        silent.append(listener)
    served.serve("gpu.example.com")
    # The silent ones come first, and each has ten seconds.
    until(lambda: registrar.plugins.reachable("gpu.example.com"))
    for each in silent:
        each.close()


def test_a_socket_without_a_listener_fails_at_once(registrar, root):
    (root / "plugins_registry").mkdir(exist_ok=True)
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(root / "plugins_registry" / "stale.sock"))
    until(lambda: "Connection refused" in "".join(registrar.problems.values()))


def plugin_of(registrar, driver):
    until(lambda: registrar.plugins.reachable(driver))
    return registrar.plugins.get(driver)


def test_an_endpoint_in_another_mount_namespace_is_found_below_the_node(registrar, served, root):
    registrar.here = lambda path: path.replace("/var/lib/kubelet", str(root))
    served.serve("gpu.example.com", info={"endpoint": "/var/lib/kubelet/gpu.example.com.sock"})
    assert plugin_of(registrar, "gpu.example.com").endpoint == f"{root}/gpu.example.com.sock"


def test_garbage_instead_of_an_answer_is_an_error_of_the_call(registrar, served):
    served.serve("gpu.example.com", dra=lambda _r, _c: b"\xff\xff\xff\xff")
    with pytest.raises(PluginError, match="rpc error: code = Internal"):
        plugin_of(registrar, "gpu.example.com").prepare([REF])


def test_a_driver_that_closes_in_the_middle_of_a_message_loses_its_call_alone(
    registrar, served, root
):
    """After half of a frame of HTTP/2; another driver answers all the while."""
    over = threading.Event()

    def half(listener):
        while not over.is_set():
            with suppress(OSError):  # nobody called within the listener's timeout
                connection, _ = listener.accept()
                with connection:
                    connection.recv(4096)
                    connection.sendall(bytes((0, 0, 6, 4, 0, 0)))  # of the nine bytes of a head

    served.serve("half.example.com", info={"endpoint": str(root / "half.sock")}, file="h")
    answer = wire.version("v1.DRAPlugin").prepare_response({"uid-1": PrepareResult()})
    served.serve("good.example.com", dra=lambda _r, _c: answer.SerializeToString())
    with socket.socket(socket.AF_UNIX) as listener, ThreadPoolExecutor(1) as threads:
        listener.bind(str(root / "half.sock"))
        listener.listen()
        listener.settimeout(0.05)
        threads.submit(half, listener)
        until(lambda: len(registrar.plugins.drivers) == 2)
        with pytest.raises(PluginError, match="rpc error: code = Unavailable"):
            registrar.plugins.get("half.example.com").prepare([REF])
        assert plugin_of(registrar, "good.example.com").prepare([REF])["uid-1"].error == ""
        over.set()


def test_an_answer_of_many_megabytes_is_refused(registrar, served):
    served.serve("gpu.example.com", dra=lambda _r, _c: b"\x0a" * 5_000_000)
    with pytest.raises(PluginError, match="code = ResourceExhausted"):
        plugin_of(registrar, "gpu.example.com").prepare([REF])


def test_an_error_text_of_many_kilobytes_is_shortened(registrar, served):
    def long(_request, context):
        context.abort(grpc.StatusCode.UNKNOWN, "\x1b" + "x" * 5000)

    served.serve("gpu.example.com", dra=long)
    with pytest.raises(PluginError) as caught:
        plugin_of(registrar, "gpu.example.com").prepare([REF])
    assert len(str(caught.value)) < 1100
    assert "\x1b" not in str(caught.value)


def test_the_error_of_a_claim_is_shortened_and_printable(registrar, served):
    found = wire.version("v1.DRAPlugin").messages.NodePrepareResourcesResponse()
    found.claims["uid-1"].error = "broken\n\x1b[31m" + "x" * 100_000
    raw = found.SerializeToString()
    served.serve("gpu.example.com", dra=lambda _r, _c: raw)
    error = plugin_of(registrar, "gpu.example.com").prepare([REF])["uid-1"].error
    assert error.startswith("broken ?[31mxxx")
    assert len(error) < 1100


def test_a_call_without_an_answer_keeps_nobody_else_waiting(registrar, served):
    over = threading.Event()

    def hang(_request, _context):
        over.wait(2 * PATIENCE)
        return b""

    served.serve("slow.example.com", dra=hang)
    plugin = plugin_of(registrar, "slow.example.com")
    engine, answered = registrar.engine, threading.Event()
    for _ in range(3):
        engine.offload(lambda: plugin.prepare([REF]), lambda _: None, lane="calls slow")
    engine.offload(lambda: 1, lambda _: answered.set())
    assert answered.wait(PATIENCE)
    over.set()


def test_a_flood_of_health_is_read_slowly_and_told_together(registrar, served):
    told, over = [], threading.Event()
    registrar.on_health = lambda: told.append(1)
    sent = []

    def flood(_request, _context):
        while not over.is_set() and len(sent) < 100_000:
            state = ("Healthy", "Unhealthy")[len(sent) % 2]
            one = DeviceHealth(pool="p", device="d", health=state, message="m" * 3000)
            sent.append(1)
            report = wire.health_response([one], 0)
            report.devices[0].message = "m" * 3000
            yield report.SerializeToString()

    served.serve("gpu.example.com", health=flood)
    plugin = plugin_of(registrar, "gpu.example.com")
    until(lambda: len(told) >= 2)
    # Read at twenty a second: a few hundred fit into the buffers in between.
    assert len(sent) < 5000
    assert len(plugin.health_of("p", "d").message) == 1024
    assert plugin.health_of("p", "other").health == "Unknown"
    over.set()


@pytest.fixture
def cdi(tmp_path):
    (tmp_path / "good.yaml").write_text(SPEC)
    return tmp_path


BAD = [
    ("not-text", lambda path: path.write_bytes(b"\xff\xfe"), "not UTF-8"),
    ("huge", lambda path: path.write_bytes(b" " * (LARGEST_FILE + 1)), "larger than 4194304 bytes"),
    ("garbage", lambda path: path.write_text("{"), "invalid spec"),
]


@pytest.mark.parametrize(("name", "write", "says"), BAD, ids=[name for name, _, _ in BAD])
def test_a_bad_file_of_one_driver_leaves_the_devices_of_others(cdi, name, write, says):
    write(cdi / f"{name}.yaml")
    cache = CdiCache([FileDirectory(cdi)])
    config = ContainerConfig()
    cache.inject(config, ["vendor.com/gpu=one"])
    assert config.env == {"A": "1"}
    assert says in cache.errors[str(cdi / f"{name}.yaml")]
    # Who misses a device learns of the file that may have it.
    with pytest.raises(CdiError, match=r"unresolvable CDI devices vendor.com/gpu=two \(rejected:"):
        cache.inject(config, ["vendor.com/gpu=two"])


def test_what_is_not_a_file_is_left_alone(cdi):
    import os

    os.mkfifo(cdi / "pipe.yaml")
    (cdi / "zero.yaml").symlink_to("/dev/zero")
    (cdi / "nowhere.yaml").symlink_to("missing")
    cache = CdiCache([FileDirectory(cdi)])
    assert (cache.devices, cache.errors) == (["vendor.com/gpu=one"], {})


def test_ids_that_cannot_be_resolved_do_not_fill_the_status_of_a_pod(monkeypatch):
    lab = SuiteLab()
    ids = tuple(f"vendor.com/gpu=\x1b[2J{number}" for number in range(10_000))
    device = PreparedDevice(requests=(), pool="node-0", device="device-00", cdi_ids=ids)

    def prepare(_plugin, claims):
        return {each.uid: PrepareResult(devices=(device,)) for each in claims}

    monkeypatch.setattr(HostedPlugin, "prepare", prepare)
    lab.create(lab.template("t"), lab.pod("p", inline=["t"]))
    [status] = lab.get("p")["status"]["containerStatuses"]
    waiting = status["state"]["waiting"]
    assert waiting["reason"] == "CreateContainerError"
    assert waiting["message"].startswith("CDI device injection failed: unresolvable CDI devices ")
    assert len(waiting["message"]) < 1100
    assert "\x1b" not in waiting["message"]
