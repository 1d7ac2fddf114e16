"""A kubelet and a driver that meet over real sockets."""

import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from dralab.contracts.plugin import (
    ClaimRef,
    DeviceHealth,
    PluginError,
    PreparedDevice,
    PrepareResult,
)
from dralab.kernel.clock import SECOND
from dralab.node.plugins import Plugins
from dralab.runtime.live import LiveEngine
from waiting import PATIENCE, until

grpc = pytest.importorskip("grpc", reason="the extra dralab[grpc] is not installed")

from dralab.contracts import old_wire, wire  # noqa: E402 - after the check above
from dralab.drivers.sockets import SocketServer  # noqa: E402
from dralab.node.old_sockets import OldSocketPlugin  # noqa: E402
from dralab.node.sockets import Registrar, _Socket  # noqa: E402

REF = ClaimRef("ns", "claim", "uid-1")
DEVICE = PreparedDevice(
    requests=("gpu",), pool="n1", device="gpu-0", cdi_ids=("k8s.x/y=z", "a/b=c"), share_id="s"
)


class Told:
    """A plugin that answers what it is told to."""

    driver = "gpu.example.com"

    def __init__(self):
        self.calls = []
        self.error = ""
        self.healths = [DeviceHealth(pool="n1", device="gpu-0", health="Healthy", message="fine")]

    def prepare(self, claims):
        self.calls.append(("prepare", list(claims)))
        if self.error:
            raise PluginError(self.error)
        return {ref.uid: PrepareResult(devices=(DEVICE,)) for ref in claims}

    def unprepare(self, claims):
        self.calls.append(("unprepare", list(claims)))
        return {ref.uid: "still in use" if ref.name == "busy" else "" for ref in claims}

    def health(self):
        return self.healths


@pytest.fixture
def short_path():
    """A directory for sockets: their paths have at most 107 bytes."""
    with tempfile.TemporaryDirectory(prefix="dralab") as name:
        yield Path(name)


@pytest.fixture
def kubelet(short_path):
    """Plugins of a node that looks into a directory."""
    engine = LiveEngine(name="kubelet", workers=4)
    plugins = Plugins()
    registrar = Registrar(engine, plugins, short_path / "plugins_registry", look_every=SECOND // 20)
    registrar.start()
    engine.start()
    yield registrar
    registrar.stop()
    engine.stop()


@pytest.fixture
def served(short_path):
    running = []

    def serve(plugin, **options):
        server = SocketServer(plugin, short_path, **options)
        running.append(server)
        server.start()
        return server

    yield serve
    for server in running:
        server.stop()


@pytest.mark.parametrize(
    ("versions", "spoken", "share"),
    [
        (("v1.DRAPlugin", "v1beta1.DRAPlugin"), "v1.DRAPlugin", "s"),
        (("v1beta1.DRAPlugin",), "v1beta1.DRAPlugin", ""),
        (("v1beta1.DRAPlugin", "v1.DRAPlugin"), "v1beta1.DRAPlugin", ""),
    ],
)
def test_a_driver_is_found_and_called_in_the_first_version_that_both_know(
    kubelet, served, versions, spoken, share
):
    driver = Told()
    server = served(driver, versions=versions)
    plugin = until(lambda: kubelet.plugins.get("gpu.example.com"))
    assert server.registered.wait(PATIENCE)
    assert plugin.version.name == spoken
    (answer,) = plugin.prepare([REF]).values()
    (device,) = answer.devices
    assert (device.requests, device.pool, device.device) == (("gpu",), "n1", "gpu-0")
    assert (device.cdi_ids, device.share_id) == (DEVICE.cdi_ids, share)
    busy = ClaimRef("ns", "busy", "uid-2")
    assert plugin.unprepare([REF, busy]) == {"uid-1": "", "uid-2": "still in use"}
    assert driver.calls == [("prepare", [REF]), ("unprepare", [REF, busy])]


def test_a_call_that_fails_as_a_whole_says_why(kubelet, served):
    driver = Told()
    driver.error = "get resource claims: claim ns/claim not allocated"
    served(driver)
    plugin = until(lambda: kubelet.plugins.get(driver.driver))
    with pytest.raises(PluginError) as caught:
        plugin.prepare([REF])
    assert str(caught.value) == f"rpc error: code = Unknown desc = {driver.error}"


def test_a_driver_whose_sockets_go_is_deregistered_and_comes_back(kubelet, served, short_path):
    changes = []
    kubelet.plugins.changed = lambda *change: changes.append(change)
    driver = Told()
    served(driver).stop()
    assert not (short_path / "plugins_registry" / "gpu.example.com-reg.sock").exists()
    server = served(driver)
    # Registered first, connected a moment later; the one before may have been connected, too.
    until(lambda: changes[-2:] == [("gpu.example.com", False), ("gpu.example.com", True)])
    server.stop()
    until(lambda: kubelet.plugins.get(driver.driver) is None)
    assert changes[-1] == ("gpu.example.com", False)
    served(driver)
    until(lambda: kubelet.plugins.get(driver.driver))


def test_a_new_instance_takes_over_from_an_old_one(kubelet, served):
    old, new = Told(), Told()
    first = served(old, pod_uid="1")
    until(lambda: kubelet.plugins.get(old.driver))
    served(new, pod_uid="2")
    until(lambda: kubelet.plugins.get(old.driver).endpoint.endswith("dra-2.sock"))
    kubelet.plugins.get(old.driver).prepare([REF])
    first.stop()
    kubelet.plugins.get(old.driver).unprepare([REF])
    assert [verb for verb, _ in new.calls] == ["prepare", "unprepare"]
    assert old.calls == []


def test_a_connection_that_breaks_counts_as_gone_though_the_socket_stays(kubelet, served):
    changes = []
    kubelet.plugins.changed = lambda *change: changes.append(change)
    server = served(Told())
    plugin = until(lambda: kubelet.plugins.get("gpu.example.com"))
    until(lambda: plugin.connected)
    # As after SIGKILL: nobody listens, the registration socket is still there.
    server.servers[0].stop(0).wait()
    until(lambda: [up for _, up in changes] == [False, True, False])
    assert kubelet.plugins.get("gpu.example.com") is plugin
    with pytest.raises(PluginError, match="code = Unavailable"):
        plugin.prepare([REF])


def test_health_is_reported_as_it_changes(kubelet, served):
    driver = Told()
    server = served(driver)
    plugin = until(lambda: kubelet.plugins.get(driver.driver))
    (one,) = until(plugin.health)
    assert (one.device, one.health, one.message) == ("gpu-0", "Healthy", "fine")
    driver.healths = [DeviceHealth(pool="n1", device="gpu-0", health="Unhealthy", timeout=5)]
    until(lambda: plugin.health()[0].health == "Unhealthy")
    assert kubelet.plugins.health_of(driver.driver, "n1", "gpu-0").timeout == 5
    server.stop()
    until(lambda: not plugin.health())


@pytest.mark.parametrize("service", wire.HEALTH_SERVICES)
def test_health_is_heard_from_drivers_of_either_generation(kubelet, served, monkeypatch, service):
    both = wire.HEALTH_SERVICES
    monkeypatch.setattr(wire, "HEALTH_SERVICES", (service,))
    driver = Told()
    server = served(driver)
    monkeypatch.setattr(wire, "HEALTH_SERVICES", both)
    plugin = until(lambda: kubelet.plugins.get(driver.driver))
    (one,) = until(plugin.health)
    assert one.health == "Healthy"
    assert until(server.registered.is_set)


def test_a_driver_with_health_offers_both_generations_of_it(short_path):
    server = SocketServer(Told(), short_path)
    offered = ["v1.DRAPlugin", "v1beta1.DRAPlugin"]
    offered += ["v1.DRAResourceHealth", "v1alpha1.DRAResourceHealth"]
    assert list(server.info().supported_versions) == offered


REFUSALS = [
    ([], "empty list of supported gRPC services (aka supported versions)"),
    (
        ["v9.DRAPlugin"],
        "none of services supported by the plugin (v9.DRAPlugin) are supported by the kubelet "
        "(v1.DRAPlugin, v1beta1.DRAPlugin)",
    ),
]


@pytest.mark.parametrize(("offered", "text"), REFUSALS, ids=["none", "unknown"])
def test_a_driver_that_speaks_nothing_known_is_told_so(kubelet, served, short_path, offered, text):
    told = []
    server = SocketServer(Told(), short_path, health=False)
    info = server.info()
    server.info = lambda: wire.registration().PluginInfo(
        type="DRAPlugin", name=info.name, endpoint=info.endpoint, supported_versions=offered
    )
    server.on_status = told.append
    server.start()
    try:
        until(lambda: told)
        assert told[0] == (
            "invalid supported gRPC versions of DRA driver plugin gpu.example.com at endpoint "
            f"{short_path}/plugins/gpu.example.com/dra.sock: {text}"
        )
        assert kubelet.plugins.drivers == []
        until(lambda: list(kubelet.problems.values()) == told[:1])
    finally:
        server.stop()


def test_a_plugin_of_another_type_is_refused(kubelet, short_path):
    from dralab.drivers import sockets

    told = []
    server = SocketServer(Told(), short_path)
    server.info = lambda: wire.registration().PluginInfo(type="CSIPlugin", name="disk")
    server.on_status_reported = told.append
    server._serve(server.registration, [sockets._registration_handler(server)])
    try:
        (status,) = until(lambda: told[:1])
        assert status.error.startswith("no handler registered for plugin type: CSIPlugin")
        assert not status.plugin_registered
    finally:
        server.stop()


def test_what_is_no_socket_or_hidden_is_left_alone(kubelet, short_path):
    (short_path / "plugins_registry" / "note-reg.sock").write_text("no socket")
    hidden = grpc.server(ThreadPoolExecutor(1))
    path = short_path / "plugins_registry" / ".gpu-reg.sock"
    hidden.add_insecure_port(f"unix:{path}")
    from dralab.node.sockets import _sockets

    assert path.exists()
    assert _sockets(short_path) == {}
    hidden.stop(0)


def test_a_path_that_is_too_long_for_a_socket_is_said_to_be(tmp_path):
    deep = tmp_path / ("x" * 100)
    with pytest.raises(wire.SocketError, match="at most 107 bytes"):
        SocketServer(Told(), deep).start()


# --- drivers for Kubernetes 1.27 to 1.30 ----------------------------------------------------------

MODELS = [
    {
        "namedResources": {
            "instances": [
                {
                    "name": "gpu-0",
                    "attributes": [
                        {"name": "model", "string": "A"},
                        {"name": "memory", "quantity": "40Gi"},
                        {"name": "ecc", "bool": False},
                        {"name": "slices", "int": 0},
                        {"name": "numa", "intSlice": {"ints": [0, 1]}},
                        {"name": "modes", "stringSlice": {"strings": ["x"]}},
                        {"name": "driver", "version": "1.2.3"},
                    ],
                },
                {"name": "gpu-1", "attributes": []},
            ]
        }
    }
]
STRUCTURED = {
    "structuredData": {
        "nodeName": "n1",
        "results": [
            {"namedResources": {"name": "gpu-0"}, "vendorRequestParameters": {"of": "request"}},
            {},
        ],
        "vendorClaimParameters": {"split": 2},
        "vendorClassParameters": {"of": "class"},
    }
}


@pytest.fixture
def old_kubelet(kubelet):
    kubelet.listed = []

    def old(driver, endpoint):
        plugin = OldSocketPlugin(driver, endpoint, kubelet.engine.clock)
        plugin.on_resources = lambda models: kubelet.listed.append((driver, models))
        return plugin

    kubelet.others = {wire.OLD: old}
    kubelet.versions = (*kubelet.versions, wire.OLD)
    return kubelet


def test_what_a_driver_lists_crosses_the_wire_unchanged():
    response = old_wire.resources_response(MODELS)
    again = type(response).FromString(response.SerializeToString())
    assert old_wire.resources_of(again) == MODELS


@pytest.mark.parametrize("handle", [None, {"data": "opaque"}, STRUCTURED])
def test_an_old_driver_is_told_what_the_allocation_says(old_kubelet, served, handle):
    driver = Told()
    served(driver, versions=[wire.OLD], health=False)
    plugin = until(lambda: old_kubelet.plugins.get(driver.driver))
    ref = ClaimRef("ns", "claim", "uid-1", handle)
    (answer,) = plugin.prepare([ref]).values()
    assert [device.cdi_ids for device in answer.devices] == [DEVICE.cdi_ids]
    assert plugin.unprepare([ref, ClaimRef("ns", "busy", "uid-2")]) == {
        "uid-1": "", "uid-2": "still in use",
    }  # fmt: skip
    assert [claims[0].handle for _, claims in driver.calls] == [handle, handle]


def test_an_old_driver_has_the_sockets_of_its_time(old_kubelet, served, short_path):
    server = served(Told(), versions=[wire.OLD], health=False)
    assert server.endpoint == short_path / "plugins/gpu.example.com/plugin.sock"
    assert server.registration == short_path / "plugins_registry/gpu.example.com.sock"


def test_what_an_old_driver_lists_is_heard_now_and_when_it_changes(old_kubelet, served):
    models = list(MODELS)
    served(Told(), versions=[wire.OLD], health=False, resources=lambda: list(models))
    until(lambda: old_kubelet.listed)
    models.clear()
    until(lambda: len(old_kubelet.listed) == 2)
    assert old_kubelet.listed == [("gpu.example.com", MODELS), ("gpu.example.com", [])]


def test_a_kubelet_of_today_refuses_an_old_driver(kubelet, served):
    told = []
    server = served(Told(), versions=[wire.OLD], health=False)
    server.on_status = told.append
    until(lambda: kubelet.problems)
    [problem] = kubelet.problems.values()
    assert "none of services supported by the plugin (1.0.0) are supported" in problem


def test_the_oldest_drivers_are_asked_claim_by_claim(old_kubelet, short_path):
    messages = old_wire.messages()
    calls = []

    def prepare(request, context):
        calls.append((request.claim_uid, request.resource_handle))
        if request.claim_name == "busy":
            context.abort(grpc.StatusCode.INTERNAL, "no")
        return messages.NodePrepareResourceResponse(cdi_devices=["a/b=c"])

    def unprepare(request, _context):
        calls.append(request.claim_uid)
        return messages.NodePrepareResourceResponse()

    server = SocketServer(Told(), short_path, versions=[wire.OLD], health=False)
    methods = {
        f"Node{verb}Resource": grpc.unary_unary_rpc_method_handler(
            action,
            request_deserializer=messages.NodeResourceRequest.FromString,
            response_serializer=lambda message: message.SerializeToString(),
        )
        for verb, action in (("Prepare", prepare), ("Unprepare", unprepare))
    }
    from dralab.drivers import sockets

    service = grpc.method_handlers_generic_handler(old_wire.OLDEST_SERVICE, methods)
    server._serve(server.endpoint, [service])
    server._serve(server.registration, [sockets._registration_handler(server)])
    try:
        plugin = until(lambda: old_kubelet.plugins.get("gpu.example.com"))
        busy = ClaimRef("ns", "busy", "uid-2")
        answer = plugin.prepare([ClaimRef("ns", "claim", "uid-1", {"data": "x"}), busy])
        assert [device.cdi_ids for device in answer["uid-1"].devices] == [("a/b=c",)]
        assert answer["uid-2"].error == "rpc error: code = Internal desc = no"
        assert plugin.unprepare([REF]) == {"uid-1": ""}
        assert calls == [("uid-1", "x"), ("uid-2", ""), "uid-1"]
    finally:
        server.stop()


def test_a_stop_while_sockets_come_and_go_closes_all(kubelet):
    closed = []

    class Closing:
        def close(self):
            closed.append(self)
            # As the engine's thread does, at this moment.
            kubelet._sockets[Path(f"/late-{len(closed)}")] = _Socket(Path("/late"), (0, 0))

    for name in ("/a", "/b"):
        kubelet._sockets[Path(name)] = _Socket(Path(name), (0, 0), plugin=Closing())
    kubelet.stop()
    assert len(closed) == 2
    kubelet._sockets.clear()
