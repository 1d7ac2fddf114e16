"""Drivers behind Unix sockets: discovery, registration, calls, and disconnection.

Source of steps, texts and deadlines: kubelet 1.36, `pkg/kubelet/pluginmanager` and
`pkg/kubelet/cm/dra/plugin`. Needs the extra `dralab[grpc]`.
"""

import contextlib
import logging
import socket as socketlib
import stat
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Final

from dralab.contracts import wire
from dralab.contracts.plugin import (
    ClaimRef,
    DeviceHealth,
    PluginError,
    PrepareResult,
    readable,
)
from dralab.contracts.wire import SocketError
from dralab.kernel.clock import SECOND, Clock
from dralab.node.plugins import Plugins, RemotePlugin
from dralab.runtime.engine import Engine
from dralab.values.names import subdomain_problems
from dralab.values.records import dataclass

LOOK_EVERY: Final = SECOND
FIRST_BACK_OFF: Final = SECOND // 2
LONGEST_BACK_OFF: Final = 122 * SECOND
LONGEST_NAME: Final = 63  # resource.k8s.io: names of drivers
# In seconds, as gRPC has them.
DIAL: Final = 10.0
INFO: Final = 1.0
NOTIFY: Final = 5.0
CALL: Final = 45.0
HEALTH_AGAIN: Final = 5.0
CLOSES_AFTER: Final = 0.5
HEALTH_TIMEOUT: Final = 30
HEALTH_PAUSE: Final = 0.05
# Changes of health are told together, this long after the first.
HEALTH_SETTLES: Final = SECOND // 10
CHANNEL: Final = (
    # Go's servers refuse the escaped path that would stand here otherwise.
    ("grpc.default_authority", "localhost"),
    ("grpc.enable_http_proxy", 0),
    # A driver without calls for half an hour is still connected.
    ("grpc.client_idle_timeout_ms", 2**31 - 1),
    ("grpc.initial_reconnect_backoff_ms", 500),
    ("grpc.max_reconnect_backoff_ms", 1000),
)

logger = logging.getLogger(__name__)


class SocketPlugin(RemotePlugin):
    """A driver at the other end of a socket. Calls wait: make them beside the events."""

    def __init__(
        self, driver: str, endpoint: str, version: wire.PluginVersion, clock: Clock
    ) -> None:
        self.name = driver
        self.endpoint = endpoint
        self.version = version
        self.connected = False
        # Told, from any thread, when the connection or the health of a device has changed.
        self.on_connection: Callable[[bool], None] = lambda _connected: None
        self.on_health: Callable[[], None] = lambda: None
        # Told of each call: its method, its status as Go names it, its duration in nanoseconds.
        self.on_call: Callable[[str, str, int], None] = lambda _method, _status, _duration: None
        self._clock = clock
        self._health: dict[tuple[str, str], tuple[int, DeviceHealth]] = {}
        self._closed = threading.Event()
        self._asked = threading.Event()  # gRPC's thread has asked for the state once
        self._stream: Any = None
        self._opened = False
        self._idle = False
        self._channel = wire.grpc().insecure_channel(wire.address(endpoint), options=CHANNEL)

    @property
    def driver(self) -> str:
        """The driver's name."""
        return self.name

    def open(self) -> None:
        """Connect, and begin to listen for health."""
        self._opened = True
        self._channel.subscribe(self._connection, try_to_connect=True)
        threading.Thread(target=self._listen, name=f"health-{self.name}", daemon=True).start()

    def knock(self) -> None:
        """Reconnect, if the driver was gone and gRPC does not retry by itself."""
        if self._idle and not self._closed.is_set():
            self._idle = False
            self._asked.clear()
            self._channel.unsubscribe(self._connection)
            self._channel.subscribe(self._connection, try_to_connect=True)

    def close(self) -> None:
        """End the connection."""
        self._closed.set()
        if self._opened:
            # gRPC's thread fails where the channel is closed before its first question.
            self._asked.wait(DIAL)
        self._channel.unsubscribe(self._connection)
        if self._stream is not None:
            self._stream.cancel()
        # gRPC's thread looks at the channel once more before it sees, every 0.2 s, that it is not
        # needed any longer; it would fail where the channel is closed by then.
        closing = threading.Timer(CLOSES_AFTER, self._channel.close)
        closing.daemon = True
        closing.start()

    def prepare(self, claims: Sequence[ClaimRef]) -> Mapping[str, PrepareResult]:
        """Prepare claims. PluginError: no answer within 45 s."""
        found = self.version.prepared_of(self._call("Prepare", claims))
        return {
            uid: replace(one, error=readable(one.error)) if one.error else one
            for uid, one in found.items()
        }

    def unprepare(self, claims: Sequence[ClaimRef]) -> Mapping[str, str]:
        """Unprepare claims. PluginError: no answer within 45 s."""
        found = wire.unprepared_of(self._call("Unprepare", claims))
        return {uid: readable(error) for uid, error in found.items()}

    def health(self) -> Sequence[DeviceHealth]:
        """Return the reported health; unknown if the report is too old."""
        return [self._believed(when, one) for when, one in list(self._health.values())]

    def health_of(self, pool: str, device: str) -> DeviceHealth:
        """Return the reported health of a device; unknown without a recent report."""
        found = self._health.get((pool, device))
        if found is None:
            return DeviceHealth(pool=pool, device=device, health="Unknown")
        return self._believed(*found)

    def _believed(self, when: int, one: DeviceHealth) -> DeviceHealth:
        timeout = one.timeout if one.timeout > 0 else HEALTH_TIMEOUT
        late = self._clock.now() - when > timeout * SECOND
        return replace(one, health="Unknown", message="") if late else one

    def _call(self, verb: str, claims: Sequence[ClaimRef]) -> Any:
        kind, name = f"Node{verb}ResourcesResponse", f"/{self.version.service}/Node{verb}Resources"
        method = self._channel.unary_unary(
            name,
            request_serializer=written,
            response_deserializer=getattr(self.version.messages, kind).FromString,
        )
        begun, status = self._clock.now(), "OK"
        try:
            return method(self.version.request(verb, claims), timeout=CALL)
        except (wire.grpc().RpcError, ValueError) as error:
            status = status_of(error)
            raise PluginError(text_of(error)) from error
        finally:
            self.on_call(name, status, self._clock.now() - begun)

    def _connection(self, state: Any) -> None:
        states = wire.grpc().ChannelConnectivity
        self._idle = state is states.IDLE
        self._asked.set()
        connected = state is states.READY
        if connected != self.connected and not self._closed.is_set():
            self.connected = connected
            self.on_connection(connected)

    def _listen(self) -> None:
        # The kubelet (1.36) ignores the versions that the driver names and tries the newest first.
        grpc = wire.grpc()
        messages = wire.health()
        services = list(wire.HEALTH_SERVICES)
        while not self._closed.is_set():
            method = self._channel.unary_stream(
                f"/{services[0]}/NodeWatchResources",
                request_serializer=written,
                response_deserializer=messages.NodeWatchResourcesResponse.FromString,
            )
            try:
                self._stream = method(messages.NodeWatchResourcesRequest())
                for report in self._stream:
                    begun = self._clock.now()
                    self._reported(wire.health_of(report))
                    # A flood is read slowly: gRPC holds back what is not read yet.
                    took = (self._clock.now() - begun) / SECOND
                    self._closed.wait(max(HEALTH_PAUSE, 4 * took))
            except grpc.RpcError as error:
                if error.code() is grpc.StatusCode.UNIMPLEMENTED and len(services) > 1:
                    del services[0]
                    continue
            except ValueError:
                pass  # the channel is closed
            if self._health:
                self._health = {}
                if not self._closed.is_set():
                    self.on_health()
            self._closed.wait(HEALTH_AGAIN)

    def _reported(self, devices: Sequence[DeviceHealth]) -> None:
        now, before = self._clock.now(), self._health
        self._health = {(one.pool, one.device): (now, one) for one in devices}
        if {key: one for key, (_, one) in before.items()} != {
            key: one for key, (_, one) in self._health.items()
        }:
            self.on_health()


@dataclass(slots=True)
class _Socket:
    """A registration socket that was seen; another inode at its path is another socket."""

    path: Path
    inode: tuple[int, int]
    busy: bool = False
    plugin: SocketPlugin | None = None
    back_off: int = 0
    not_before: int = 0
    error: str = ""


class Registrar:
    """Keeps the plugins of one node in sync with its registration directory.

    `directory` is looked at every second (`look_every` in nanoseconds), with all that is below;
    names that begin with a dot are left alone. Everything that waits is offloaded: the engine
    needs workers. `others` make, of driver and endpoint, the plugins of further versions.
    """

    def __init__(
        self,
        engine: Engine,
        plugins: Plugins,
        directory: Path,
        *,
        versions: Sequence[str] = (),
        others: Mapping[str, Callable[[str, str], SocketPlugin]] | None = None,
        look_every: int = LOOK_EVERY,
    ) -> None:
        wire.grpc()
        self.look_every = look_every
        self.others = others or {}
        self.engine = engine
        self.plugins = plugins
        self.directory = directory
        self.versions = (*(versions or wire.PLUGIN_SERVICES), *self.others)
        # Where a path that a driver tells is on this machine.
        self.here: Callable[[str], str] = lambda path: path
        # Told, as an event, when the health of a device has changed.
        self.on_health: Callable[[], None] = lambda: None
        # Told of each call to a driver: its name, and what `SocketPlugin.on_call` is told.
        self.on_call: Callable[[str, str, str, int], None] = lambda *_: None
        self._sockets: dict[Path, _Socket] = {}
        self._health_due = False
        self._stopped = False

    def start(self) -> None:
        """Start to watch the directory; create it if it is missing."""
        self.directory.mkdir(parents=True, exist_ok=True)
        self.engine.soon(self._look)

    def stop(self) -> None:
        """Stop watching and close the connections; drivers and their sockets stay as they are."""
        self._stopped = True
        # Copies, here and below: other threads ask while the engine's adds and removes sockets.
        for socket in list(self._sockets.values()):
            if socket.plugin is not None:
                socket.plugin.close()

    @property
    def problems(self) -> dict[str, str]:
        """Why sockets are not registered, by path."""
        return {str(path): s.error for path, s in sorted(self._sockets.items()) if s.error}

    def listing(self) -> list[dict[str, Any]]:
        """Return every socket: its driver and whether it is connected, or its error."""
        found: list[dict[str, Any]] = []
        for path, each in sorted(self._sockets.items()):
            entry: dict[str, Any] = {"socket": str(path)}
            if (plugin := each.plugin) is not None:
                entry |= {
                    "driver": plugin.driver,
                    "endpoint": plugin.endpoint,
                    "version": plugin.version.name,
                    "connected": plugin.connected,
                }
            elif each.error:
                entry["error"] = each.error
            found.append(entry)
        return found

    def _look(self) -> None:
        if self._stopped:
            return
        self.engine.after(self.look_every, self._look)
        found = _sockets(self.directory)
        for path, socket in list(self._sockets.items()):
            if found.get(path) != socket.inode and not socket.busy:
                del self._sockets[path]
                self._gone(socket)
        for path, inode in found.items():
            socket = self._sockets.setdefault(path, _Socket(path, inode))
            if socket.plugin is not None:
                socket.plugin.knock()
            elif not socket.busy and self.engine.clock.now() >= socket.not_before:
                socket.busy = True
                taken = {
                    (s.plugin.driver, s.plugin.endpoint) for s in self._sockets.values() if s.plugin
                }
                self.engine.offload(
                    partial(self._greet, path, taken),
                    partial(self._greeted, socket),
                    lane=f"socket {path}",
                )

    def _health_changed(self) -> None:
        if not self._health_due:
            self._health_due = True
            self.engine.after(HEALTH_SETTLES, self._tell_health)

    def _tell_health(self) -> None:
        self._health_due = False
        self.on_health()

    def _gone(self, socket: _Socket) -> None:
        if socket.plugin is not None:
            logger.info("driver %s disconnected: %s", socket.plugin.driver, socket.path)
            self.plugins.deregister(socket.plugin)
            socket.plugin.close()

    def _greet(self, path: Path, taken: set[tuple[str, str]]) -> SocketPlugin:
        """Call GetInfo and tell the driver whether it is registered. Runs beside the events."""
        _knock(path)
        grpc, messages = wire.grpc(), wire.registration()
        with grpc.insecure_channel(wire.address(str(path)), options=CHANNEL) as channel:
            try:
                grpc.channel_ready_future(channel).result(timeout=DIAL)
            except grpc.FutureTimeoutError as error:
                raise SocketError(f"failed to dial socket {path}") from error
            service = f"/{wire.REGISTRATION_SERVICE}"
            ask = channel.unary_unary(
                f"{service}/GetInfo",
                request_serializer=written,
                response_deserializer=messages.PluginInfo.FromString,
            )
            tell = channel.unary_unary(
                f"{service}/NotifyRegistrationStatus",
                request_serializer=written,
                response_deserializer=messages.RegistrationStatusResponse.FromString,
            )
            try:
                info = ask(messages.InfoRequest(), timeout=INFO)
            except grpc.RpcError as error:
                raise SocketError(
                    f"failed to get plugin info using RPC GetInfo at socket {path}: "
                    f"{text_of(error)}"
                ) from error
            endpoint = self.here(info.endpoint) if info.endpoint else str(path)
            problem = (
                self._refusal(info, endpoint, taken)
                if info.type == wire.PLUGIN_TYPE
                else f"no handler registered for plugin type: {readable(info.type)} "
                f"at socket {path}"
            )
            status = messages.RegistrationStatus(plugin_registered=not problem, error=problem)
            plugin = None
            try:
                if not problem:
                    name = next(v for v in info.supported_versions if v in self.versions)
                    plugin = self._plugin(info.name, endpoint, name)
                tell(status, timeout=NOTIFY)
            except grpc.RpcError as error:
                if plugin is not None:
                    plugin.close()
                raise SocketError(problem or text_of(error)) from error
            if plugin is None:
                raise SocketError(problem)
            return plugin

    def _plugin(self, driver: str, endpoint: str, version: str) -> SocketPlugin:
        other = self.others.get(version)
        if other is not None:
            return other(driver, endpoint)
        return SocketPlugin(driver, endpoint, wire.version(version), self.engine.clock)

    def _refusal(self, info: Any, endpoint: str, taken: set[tuple[str, str]]) -> str:
        """Return the reason to reject a plugin; empty if it is accepted."""
        if problems := subdomain_problems(info.name):
            return f"invalid DRA driver name {_quoted(info.name)}: {'; '.join(problems)}"
        if len(info.name) > LONGEST_NAME:
            return (
                f"invalid DRA driver name {_quoted(info.name)}: must be no more than "
                f"{LONGEST_NAME} characters"
            )
        if problem := _bad_endpoint(endpoint):
            return f"invalid endpoint of DRA driver plugin {info.name}: {problem}"
        offered = list(info.supported_versions)
        where = (
            f"invalid supported gRPC versions of DRA driver plugin {info.name} "
            f"at endpoint {endpoint}: "
        )
        if not offered:
            return where + "empty list of supported gRPC services (aka supported versions)"
        if not set(offered) & set(self.versions):
            return where + (
                f"none of services supported by the plugin ({readable(', '.join(offered))}) "
                f"are supported by the kubelet ({', '.join(self.versions)})"
            )
        if (info.name, endpoint) in taken:
            return f"endpoint {endpoint} already registered for DRA driver plugin {info.name}"
        return ""

    def _greeted(self, socket: _Socket, answer: SocketPlugin | Exception) -> None:
        socket.busy = False
        if isinstance(answer, Exception):
            text = str(answer)
            if text != socket.error:
                logger.warning("%s: %s", socket.path, text)
            socket.error = text
            socket.back_off = min(max(2 * socket.back_off, FIRST_BACK_OFF), LONGEST_BACK_OFF)
            socket.not_before = self.engine.clock.now() + socket.back_off
            return
        if self._stopped:
            answer.close()
            return
        logger.info("driver %s connected: %s", answer.driver, answer.endpoint)
        socket.plugin, socket.error, socket.back_off = answer, "", 0
        answer.on_connection = lambda connected: self.plugins.connection(answer, up=connected)
        answer.on_health = lambda: self.engine.soon(self._health_changed)
        answer.on_call = partial(self.on_call, answer.driver)
        self.plugins.register(answer, connected=False)
        answer.open()


def _knock(path: Path) -> None:
    """Raise SocketError at once if no process listens: gRPC would try for ten seconds."""
    with socketlib.socket(socketlib.AF_UNIX) as caller:
        caller.settimeout(DIAL)
        try:
            caller.connect(str(path))
        except OSError as error:
            raise SocketError(f"failed to dial socket {path}: {error.strerror or error}") from error


def _bad_endpoint(endpoint: str) -> str:
    """Return the problem of a plugin's endpoint path; empty if it is valid."""
    if not endpoint.startswith("/") or "\0" in endpoint:
        return f"{_quoted(endpoint)} is not an absolute path"
    if (length := len(endpoint.encode())) > wire.LONGEST_PATH:
        limit = f"a Unix socket path may have at most {wire.LONGEST_PATH} bytes"
        return f"{limit}, but {_quoted(endpoint)} has {length}"
    return ""


def _quoted(text: str) -> str:
    return f'"{readable(text)}"'


def _sockets(directory: Path) -> dict[Path, tuple[int, int]]:
    found = {}
    for path in sorted(directory.rglob("*")):
        if path.name.startswith("."):
            continue
        # It may be gone by now.
        with contextlib.suppress(OSError):
            seen = path.lstat()
            if stat.S_ISSOCK(seen.st_mode):
                found[path] = (seen.st_ino, seen.st_ctime_ns)
    return found


def written(message: Any) -> bytes:
    """Return a message as bytes."""
    data: bytes = message.SerializeToString()
    return data


def text_of(error: Any) -> str:
    """Return an error of gRPC as Go prints it."""
    if not hasattr(error, "code"):
        return str(error)
    return f"rpc error: code = {status_of(error)} desc = {readable(str(error.details()))}"


def status_of(error: Any) -> str:
    """Return the status of an error of gRPC as Go names it."""
    if not hasattr(error, "code"):
        return "Unknown"
    name: str = error.code().name
    # Go spells this one with one l.
    return "Canceled" if name == "CANCELLED" else "".join(map(str.title, name.split("_")))
