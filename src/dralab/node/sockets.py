"""Drivers behind Unix sockets: discovery, registration, and disconnection.

Source of steps, texts and deadlines: kubelet 1.36, `pkg/kubelet/pluginmanager`. Needs
the extra `dralab[grpc]`. Calls are left to `socket_plugin`.
"""

import contextlib
import logging
import socket as socketlib
import stat
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final

from dralab.contracts import wire
from dralab.contracts.plugin import readable
from dralab.contracts.wire import SocketError
from dralab.kernel.clock import SECOND
from dralab.node.plugins import Plugins
from dralab.node.socket_plugin import CHANNEL, DIAL, SocketPlugin, text_of, written
from dralab.runtime.engine import Engine
from dralab.values.names import subdomain_problems
from dralab.values.records import dataclass

LOOK_EVERY: Final = SECOND
FIRST_BACK_OFF: Final = SECOND // 2
LONGEST_BACK_OFF: Final = 122 * SECOND
LONGEST_NAME: Final = 63  # resource.k8s.io: names of drivers
# In seconds, as gRPC has them.
INFO: Final = 1.0
NOTIFY: Final = 5.0
# Changes of health are told together, this long after the first.
HEALTH_SETTLES: Final = SECOND // 10
logger = logging.getLogger(__name__)


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
