"""Plugins over real sockets: registration, versions, preparing, errors."""

import tempfile
from pathlib import Path

import pytest

from dralab.contracts.plugin import ClaimRef, DeviceHealth, PluginError, Prepared, PreparedDevice
from dralab.node.plugins import Plugins
from dralab.runtime.simulated import SimulatedEngine

grpc = pytest.importorskip("grpc", reason="the extra [grpc] is not installed")
wire = pytest.importorskip("dralab.contracts.wire")
sockets = pytest.importorskip("dralab.node.sockets")

REF = ClaimRef("default", "c", "uid-1")


class Fixed:
    """A plugin that answers what it was told to."""

    driver = "gpu.example.com"

    def __init__(self):
        self.calls = []
        self.failure = ""

    def prepare(self, claims):
        self.calls.append(("prepare", tuple(claims)))
        if self.failure:
            raise PluginError(self.failure)
        device = PreparedDevice(
            requests=("r",), pool="n1", device="gpu-0", cdi_ids=("a/b=c",), share_id="s"
        )
        return {ref.uid: Prepared(devices=(device,)) for ref in claims}

    def unprepare(self, claims):
        self.calls.append(("unprepare", tuple(claims)))
        return {ref.uid: "" for ref in claims}

    def health(self):
        return [DeviceHealth(pool="n1", device="gpu-0", health="Healthy")]


@pytest.fixture
def root():
    with tempfile.TemporaryDirectory(prefix="k") as name:
        yield Path(name)


def served(root, plugin, **options):
    server = wire.PluginServer(
        plugin, endpoint=root / "p" / "dra.sock", registration=root / "r" / "x-reg.sock", **options
    )
    server.start()
    return server


def registered(root):
    plugins = Plugins()
    found = sockets.PluginSockets(SimulatedEngine(), root / "r", plugins)
    found.reconcile()
    return found, plugins


@pytest.mark.parametrize(
    "versions", [("v1.DRAPlugin",), ("v1beta1.DRAPlugin",), ("v9.X", "v1.DRAPlugin")]
)
def test_a_plugin_is_registered_and_prepares(root, versions):
    plugin, told = Fixed(), []
    server = served(
        root, plugin, versions=versions, registered=lambda good, why: told.append((good, why))
    )
    found, plugins = registered(root)
    try:
        assert told == [(True, "")]
        remote = plugins.get("gpu.example.com")
        (device,) = remote.prepare([REF])["uid-1"].devices
        assert (device.requests, device.pool, device.device, device.cdi_ids) == (
            ("r",),
            "n1",
            "gpu-0",
            ("a/b=c",),
        )
        assert device.share_id == ("s" if "v1.DRAPlugin" in versions else "")
        assert remote.unprepare([REF]) == {"uid-1": ""}
        assert plugin.calls == [("prepare", (REF,)), ("unprepare", (REF,))]
    finally:
        found.stop()
        server.stop()


def test_a_plugin_that_fails_is_told_as_an_rpc_error(root):
    plugin = Fixed()
    plugin.failure = "get resource claims: claim default/c got replaced"
    server = served(root, plugin)
    found, plugins = registered(root)
    try:
        with pytest.raises(
            PluginError, match="rpc error: code = Unknown desc = get resource claims"
        ):
            plugins.get("gpu.example.com").prepare([REF])
    finally:
        found.stop()
        server.stop()


def test_versions_that_nobody_knows_are_refused_with_the_kubelets_words(root):
    told = []
    server = served(
        root,
        Fixed(),
        versions=("v9.DRAPlugin",),
        registered=lambda good, why: told.append((good, why)),
    )
    found, plugins = registered(root)
    try:
        assert plugins.get("gpu.example.com") is None
        (good, why) = told[0]
        assert not good
        assert (
            "none of services supported by the plugin (v9.DRAPlugin) are supported by the kubelet"
            in why
        )
    finally:
        found.stop()
        server.stop()


def test_a_stopped_plugin_is_deregistered_and_leaves_no_socket(root):
    server = served(root, Fixed())
    found, plugins = registered(root)
    server.stop()
    assert list(root.rglob("*.sock")) == []
    found.reconcile()
    assert plugins.get("gpu.example.com") is None
    found.stop()


def test_a_path_that_no_socket_can_have_is_refused(root):
    long = root / ("x" * 120)
    with pytest.raises(ValueError, match="too long for a socket"):
        wire.PluginServer(Fixed(), endpoint=long, registration=root / "a")
