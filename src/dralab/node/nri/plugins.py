"""The plugins of a node's NRI socket: how they register, and the order in which they are called.

Source: `pkg/adaptation` of github.com/containerd/nri 0.12: names, deadlines, what a failing plugin
does to a request. Plugins are called one after the other, by their index.
"""

import contextlib
import logging
import socket
import threading
from collections.abc import Callable
from dataclasses import field
from functools import partial
from pathlib import Path
from typing import Any, Final, Protocol

from dralab.contracts import wire
from dralab.node.nri.trunk import UNIMPLEMENTED, CallError, Trunk, TrunkError, TrunkTimeoutError
from dralab.values.records import dataclass

logger = logging.getLogger(__name__)
PLUGIN: Final = "nri.pkg.api.v1alpha1.Plugin"
RUNTIME: Final = "nri.pkg.api.v1alpha1.Runtime"
NRI_VERSION: Final = "v0.12.0"
# In seconds.
REGISTRATION: Final = 5.0
REQUEST: Final = 2.0
MOST_PLUGINS: Final = 64
# The events that a plugin can ask for, by the method that tells of them.
EVENTS: Final = {
    "RunPodSandbox": 1,
    "StopPodSandbox": 2,
    "RemovePodSandbox": 3,
    "CreateContainer": 4,
    "PostCreateContainer": 5,
    "StartContainer": 6,
    "PostStartContainer": 7,
    "UpdateContainer": 8,
    "PostUpdateContainer": 9,
    "StopContainer": 10,
    "RemoveContainer": 11,
}


class NriError(Exception):
    """A plugin refused, or failed in a way that is to fail the request."""


class NriHost(Protocol):
    """The node's interface for plugins. Thread-safe."""

    def state(self) -> tuple[list[Any], list[Any]]:
        """Return the pods and the containers that run, as messages."""
        ...

    def update(self, plugin: str, updates: Any) -> list[Any]:
        """Change the resources of containers; return the updates that could not be made."""
        ...

    def evict(self, plugin: str, evictions: Any) -> None:
        """Stop containers."""
        ...


@dataclass(slots=True)
class NriPlugin:
    """One connected plugin, once it is configured."""

    trunk: Trunk
    name: str = ""
    events: int = 0
    fail_request: bool = False
    keep_connected: bool = False
    # Before 0.12: most events come as StateChange.
    old: bool = False
    registered: threading.Event = field(default_factory=threading.Event)

    def wants(self, method: str) -> bool:
        """Return whether it asked for an event."""
        return bool(self.events & 1 << (EVENTS[method] - 1))

    def ask(self, method: str, request: Any, answer: Any) -> Any:
        """Return what it answers. TrunkError."""
        payload = request.SerializeToString()
        return answer.FromString(self.trunk.call(PLUGIN, method, payload, REQUEST))

    def tell(self, method: str, about: Any) -> None:
        """Send it an event that needs no answer. TrunkError."""
        m = wire.nri()
        if not self.old:
            try:
                self.ask(method, about, m.Empty)
            except CallError as error:
                if error.code != UNIMPLEMENTED:
                    raise
                self.old = True
            else:
                return
        change = m.StateChangeEvent(event=EVENTS[method], pod=about.pod)
        if about.HasField("container"):
            change.container.CopyFrom(about.container)
        self.ask("StateChange", change, m.Empty)


class NriPlugins:
    """Serves a node's NRI socket at `path` from `start` to `stop`."""

    def __init__(self, path: Path, host: NriHost, runtime: tuple[str, str]) -> None:
        self.path, self.host, self.runtime = path, host, runtime
        # Held while a plugin synchronizes and during a request: no event falls between the two.
        self._turn = threading.RLock()
        self._plugins: list[NriPlugin] = []
        self._trunks: set[Trunk] = set()
        self._listener: socket.socket | None = None
        # Called, from any thread, with the plugins that the node has now.
        self.on_change: Callable[[list[str]], None] = lambda _names: None

    def start(self) -> None:
        """Start to listen. SocketError: the socket cannot be created."""
        wire.address(str(self.path))
        listener = socket.socket(socket.AF_UNIX)
        try:
            self.path.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
            self.path.unlink(missing_ok=True)
            listener.bind(str(self.path))
            self.path.chmod(0o600)  # who connects decides what containers get
            listener.listen()
        except OSError as error:
            listener.close()
            raise wire.SocketError(f"{self.path}: cannot be served: {error.strerror}") from error
        self._listener = listener
        threading.Thread(target=self._accept, name="nri-accept", daemon=True).start()

    def stop(self) -> None:
        """Close the connection."""
        listener, self._listener = self._listener, None
        if listener is not None:
            with contextlib.suppress(OSError):
                listener.shutdown(socket.SHUT_RDWR)
            listener.close()
            self.path.unlink(missing_ok=True)
        for trunk in list(self._trunks):
            trunk.close()

    @property
    def names(self) -> list[str]:
        """The plugins, in the order in which they are called."""
        return [plugin.name for plugin in list(self._plugins)]

    # --- requests ---------------------------------------------------------------------------

    def tell(self, method: str, about: Any) -> None:
        """Send an event to all subscribers. NriError: one of them refused."""
        with self._turn:
            for plugin in list(self._plugins):
                if plugin.wants(method):
                    with self._failing(plugin):
                        plugin.tell(method, about)

    def create(self, about: Any) -> list[tuple[str, Any]]:
        """Ask the plugins about a new container; return the adjustments by plugin. NriError."""
        m, found = wire.nri(), []
        with self._turn:
            for plugin in list(self._plugins):
                if not plugin.wants("CreateContainer"):
                    continue
                with self._failing(plugin):
                    answer = plugin.ask("CreateContainer", about, m.CreateContainerResponse)
                    found.append((plugin.name, answer.adjust))
                    self.host.update(plugin.name, answer.update)
                    self.host.evict(plugin.name, answer.evict)
        return found

    def stopped(self, about: Any) -> None:
        """Send the end of a container; other containers may get its resources. NriError."""
        with self._turn:
            for plugin in list(self._plugins):
                if plugin.wants("StopContainer"):
                    with self._failing(plugin):
                        answer = plugin.ask(
                            "StopContainer", about, wire.nri().StopContainerResponse
                        )
                        self.host.update(plugin.name, answer.update)

    @contextlib.contextmanager
    def _failing(self, plugin: NriPlugin) -> Any:
        """Turn a plugin's failure into the error of the request."""
        try:
            yield
        except CallError as error:
            raise NriError(f"NRI plugin {plugin.name}: {error}") from error
        except Exception as error:
            logger.warning("NRI plugin %s: %s", plugin.name, error)
            if not (isinstance(error, TrunkTimeoutError) and plugin.keep_connected):
                plugin.trunk.close()
            if plugin.fail_request:
                raise NriError(f"NRI plugin {plugin.name}: {error}") from error

    # --- connections ------------------------------------------------------------------------

    def _accept(self) -> None:
        while (listener := self._listener) is not None:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            if len(self._trunks) >= MOST_PLUGINS:
                logger.warning("%s: more than %d connections", self.path, MOST_PLUGINS)
                connection.close()
                continue
            threading.Thread(
                target=self._connected, args=(connection,), name="nri-plugin", daemon=True
            ).start()

    def _connected(self, connection: socket.socket) -> None:
        plugin = NriPlugin(Trunk(connection))
        plugin.trunk.handlers = {
            f"{RUNTIME}/RegisterPlugin": partial(self._register, plugin),
            f"{RUNTIME}/UpdateContainers": partial(self._update, plugin),
        }
        self._trunks.add(plugin.trunk)
        plugin.trunk.on_close = lambda: self._gone(plugin)
        plugin.trunk.start()
        try:
            self._configure(plugin)
            with self._turn:
                self._synchronize(plugin)
                self._plugins = sorted([*self._plugins, plugin], key=lambda each: each.name)
        # A bad message turns this plugin away, and no other.
        except Exception as error:  # noqa: BLE001 - see above
            logger.warning("NRI plugin %s turned away: %s", plugin.name or self.path, error)
            plugin.trunk.close()
        else:
            logger.info("NRI plugin %s connected", plugin.name)
            self.on_change(self.names)

    def _gone(self, plugin: NriPlugin) -> None:
        self._trunks.discard(plugin.trunk)
        plugin.registered.set()  # ends the wait of others
        with self._turn:
            there = plugin in self._plugins
            self._plugins = [each for each in self._plugins if each is not plugin]
        if there:
            logger.info("NRI plugin %s disconnected", plugin.name)
            self.on_change(self.names)

    def _register(self, plugin: NriPlugin, data: bytes) -> bytes:
        request = wire.nri().RegisterPluginRequest.FromString(data)
        name, index = request.plugin_name, request.plugin_idx
        if not name or not name.isascii() or not name.translate(_MARKS).isalnum():
            raise ValueError(f"invalid plugin name: {name[:64]!r}: letters, digits and -_.+ alone")
        if len(index) != 2 or not index.isascii() or not index.isdigit():
            raise ValueError(f"invalid plugin index {index[:64]!r}, must be 2 digits")
        plugin.name = f"{index}-{name}"
        plugin.registered.set()
        return b""

    def _configure(self, plugin: NriPlugin) -> None:
        if not plugin.registered.wait(REGISTRATION):
            raise TrunkError(f"it did not register within {REGISTRATION:g} s")
        m = wire.nri()
        name, version = self.runtime
        request = m.ConfigureRequest(
            runtime_name=name,
            runtime_version=version,
            registration_timeout=int(REGISTRATION * 1000),
            request_timeout=int(REQUEST * 1000),
            NRI_version=NRI_VERSION,
        )
        answer = plugin.ask("Configure", request, m.ConfigureResponse)
        plugin.events = answer.events or -1  # none of them means all
        plugin.fail_request = answer.failure_policy.fail_request
        plugin.keep_connected = answer.failure_policy.keep_connected

    def _synchronize(self, plugin: NriPlugin) -> None:
        m = wire.nri()
        pods, containers = self.host.state()
        request = m.SynchronizeRequest(pods=pods, containers=containers)
        answer = plugin.ask("Synchronize", request, m.SynchronizeResponse)
        self.host.update(plugin.name, answer.update)

    def _update(self, plugin: NriPlugin, data: bytes) -> bytes:
        m = wire.nri()
        request = m.UpdateContainersRequest.FromString(data)
        failed = self.host.update(plugin.name, request.update)
        self.host.evict(plugin.name, request.evict)
        found: bytes = m.UpdateContainersResponse(failed=failed).SerializeToString()
        return found


_MARKS: Final = str.maketrans("", "", "-_.+")
