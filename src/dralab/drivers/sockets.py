"""Serves a driver on the sockets that a kubelet expects, dralab's or a real one.

`plugins/<driver>/dra.sock` is served first, then `plugins_registry/<driver>-reg.sock`, where the
kubelet finds it; what a killed process left behind is removed. Drivers for Kubernetes up to 1.30
have the names of that time, `plugin.sock` and `<driver>.sock`. Needs the extra `dralab[grpc]`.
"""

import fcntl
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from dralab.contracts import old_wire, wire
from dralab.contracts.plugin import DeviceHealth, Plugin, PluginError
from dralab.contracts.wire import SocketError
from dralab.kernel.clock import SECOND, Clock, WallClock

# Each watcher of health occupies one: there is one for each kubelet process.
WORKERS: Final = 8
LOOK_EVERY: Final = 1.0
# Well below the 30 s after which a kubelet takes a device's health for unknown.
REPORT_EVERY: Final = 10.0
GRACE: Final = 5.0


class SocketServer:
    """Serves one plugin on one node.

    `root` is the kubelet's directory, with `plugins` and `plugins_registry` below it. `pod_uid`
    gives this instance sockets of its own, so that an old and a new one overlap during an update.
    `health` is False if the driver has none to tell. `resources` are the named resources that a
    driver for Kubernetes up to 1.30 (`versions` is `1.0.0`) lists; they may change.
    """

    look_every = LOOK_EVERY
    report_every = REPORT_EVERY
    options: Sequence[tuple[str, Any]] = ()  # of gRPC's servers

    def __init__(
        self,
        plugin: Plugin,
        root: Path,
        *,
        versions: Sequence[str] = tuple(wire.PLUGIN_SERVICES),
        pod_uid: str = "",
        health: bool = True,
        resources: Callable[[], Sequence[Mapping[str, Any]]] | None = None,
        clock: Clock | None = None,
    ) -> None:
        wire.grpc()
        self.plugin = plugin
        self.versions = tuple(versions)
        self.tells_health = health
        self.resources = resources
        self.clock = clock or WallClock()
        middle = f"-{pod_uid}" if pod_uid else ""
        self.directory = root.absolute() / "plugins" / plugin.driver
        old = wire.OLD in self.versions
        self.endpoint = self.directory / f"{'plugin' if old else 'dra'}{middle}.sock"
        registry = root.absolute() / "plugins_registry"
        self.registration = registry / f"{plugin.driver}{middle}{'' if old else '-reg'}.sock"
        # Told, from a thread of the server, what the kubelet says: "" or why it refuses.
        self.on_status: Callable[[str], None] = lambda _error: None
        self.registered = threading.Event()
        self._stopping = threading.Event()
        self.servers: list[Any] = []  # gRPC's, of each socket

    def start(self) -> None:
        """Serve. SocketError: a socket cannot be made."""
        handlers = [_plugin_handler(_version(name), self) for name in self.versions]
        if self.tells_health:
            handlers += [_health_handler(service, self) for service in wire.HEALTH_SERVICES]
        self._serve(self.endpoint, handlers)
        self._serve(self.registration, [_registration_handler(self)])

    def stop(self) -> None:
        """Stop: refuse new calls, finish running ones, remove the sockets."""
        self._stopping.set()
        for path in (self.registration, self.endpoint):
            path.unlink(missing_ok=True)
        for server in reversed(self.servers):
            server.stop(GRACE).wait()
        self.servers = []

    def info(self) -> Any:
        """Return the information for the kubelet at registration."""
        offered = [*self.versions, *(wire.HEALTH_SERVICES if self.tells_health else ())]
        return wire.registration().PluginInfo(
            type=wire.PLUGIN_TYPE,
            name=self.plugin.driver,
            endpoint=str(self.endpoint),
            supported_versions=offered,
        )

    def on_status_reported(self, status: Any) -> None:
        """Take the kubelet's answer."""
        if status.plugin_registered:
            self.registered.set()
        self.on_status("" if status.plugin_registered else status.error)

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Lock out another instance of the driver on this node."""
        with (self.directory / "serialize.lock").open("a") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield

    def reports(self, active: Callable[[], bool]) -> Iterator[Any]:
        """Yield health reports: on changes, and often enough to stay valid."""
        told: Sequence[DeviceHealth] | None = None
        since = 0.0
        while active() and not self._stopping.is_set():
            found = list(self.plugin.health())
            if found != told or since >= self.report_every:
                told, since = found, 0.0
                yield wire.health_response(found, self.clock.now() // SECOND)
            self._stopping.wait(self.look_every)
            since += self.look_every

    def lists(self, active: Callable[[], bool]) -> Iterator[Any]:
        """Yield what the driver lists, first as it is and then whenever it has changed."""
        told: Sequence[Mapping[str, Any]] | None = None
        while active() and not self._stopping.is_set() and self.resources is not None:
            found = self.resources()
            if found != told:
                told = found
                yield old_wire.resources_response(found)
            self._stopping.wait(self.look_every)

    def _serve(self, path: Path, handlers: Sequence[Any]) -> None:
        target = wire.address(str(path))
        try:
            path.parent.mkdir(mode=0o750, parents=True, exist_ok=True)
            path.unlink(missing_ok=True)
            server = wire.grpc().server(
                ThreadPoolExecutor(WORKERS, f"{path.stem}-calls"), options=self.options
            )
            server.add_generic_rpc_handlers(tuple(handlers))
            server.add_insecure_port(target)
        except (OSError, RuntimeError) as error:
            raise SocketError(f"{path}: cannot be served: {error}") from error
        server.start()
        self.servers.append(server)


def _version(name: str) -> wire.PluginVersion:
    return old_wire.version() if name == wire.OLD else wire.version(name)


def _plugin_handler(version: wire.PluginVersion, server: SocketServer) -> Any:
    def prepare(request: Any, context: Any) -> Any:
        with server.alone(), _failing(context):
            return version.prepare_response(server.plugin.prepare(version.claims_of(request)))

    def unprepare(request: Any, context: Any) -> Any:
        with server.alone(), _failing(context):
            return version.unprepare_response(server.plugin.unprepare(version.claims_of(request)))

    messages = version.messages
    methods = {
        "NodePrepareResources": _unary(prepare, messages.NodePrepareResourcesRequest),
        "NodeUnprepareResources": _unary(unprepare, messages.NodeUnprepareResourcesRequest),
    }
    if server.resources is not None:

        def lists(_request: Any, context: Any) -> Iterator[Any]:
            return server.lists(context.is_active)

        methods["NodeListAndWatchResources"] = _stream(
            lists, messages.NodeListAndWatchResourcesRequest
        )
    return _handler(version.service, **methods)


@contextmanager
def _failing(context: Any) -> Iterator[None]:
    try:
        yield
    except PluginError as error:
        context.abort(wire.grpc().StatusCode.UNKNOWN, str(error))


def _registration_handler(server: SocketServer) -> Any:
    messages = wire.registration()

    def info(_request: Any, _context: Any) -> Any:
        return server.info()

    def notify(request: Any, context: Any) -> Any:
        server.on_status_reported(request)
        if not request.plugin_registered:
            # As the Go library answers.
            text = f"failed registration process: {request.error}"
            context.abort(wire.grpc().StatusCode.UNKNOWN, text)
        return messages.RegistrationStatusResponse()

    return _handler(
        wire.REGISTRATION_SERVICE,
        GetInfo=_unary(info, messages.InfoRequest),
        NotifyRegistrationStatus=_unary(notify, messages.RegistrationStatus),
    )


def _health_handler(service: str, server: SocketServer) -> Any:
    def watch(_request: Any, context: Any) -> Iterator[Any]:
        return server.reports(context.is_active)

    stream = _stream(watch, wire.health().NodeWatchResourcesRequest)
    return _handler(service, NodeWatchResources=stream)


def _handler(service: str, **methods: Any) -> Any:
    return wire.grpc().method_handlers_generic_handler(service, methods)


def _unary(action: Callable[[Any, Any], Any], request: Any) -> Any:
    return wire.grpc().unary_unary_rpc_method_handler(
        action, request_deserializer=request.FromString, response_serializer=_written
    )


def _stream(action: Callable[[Any, Any], Any], request: Any) -> Any:
    return wire.grpc().unary_stream_rpc_method_handler(
        action, request_deserializer=request.FromString, response_serializer=_written
    )


def _written(message: Any) -> bytes:
    data: bytes = message.SerializeToString()
    return data
