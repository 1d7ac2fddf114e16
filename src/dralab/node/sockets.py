"""Plugins on unix sockets: found in the registration directory, asked, registered, watched.

Source: kubelet 1.36, `pluginmanager` and `cm/dra/plugin`. Looks each second; a socket that fails is
tried again ever more slowly, from 0.5 s to about two minutes. Needs the extra `[grpc]`.
"""

import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from dralab.contracts.plugin import PluginError
from dralab.contracts.wire import TYPE, PluginInfo, RemotePlugin, chosen_version, info_of, notify
from dralab.kernel.clock import SECOND
from dralab.node.plugins import Plugins
from dralab.runtime.engine import Engine

PERIOD: Final = SECOND
FIRST_BACK_OFF: Final = SECOND // 2
LONGEST_BACK_OFF: Final = 122 * SECOND
HEALTH_AGAIN: Final = 5.0  # seconds after a stream has ended


@dataclass(slots=True)
class _Socket:
    inode: int
    plugin: RemotePlugin | None = None
    back_off: int = 0
    not_before: int = 0
    error: str = ""


class PluginSockets:
    """Registers the plugins of one node's directory while the node runs."""

    def __init__(
        self,
        engine: Engine,
        directory: Path,
        plugins: Plugins,
        changed: Callable[[], None] = lambda: None,
    ) -> None:
        self.engine = engine
        self.directory = directory
        self.plugins = plugins
        self.changed = changed
        self.sockets: dict[Path, _Socket] = {}
        self._stopped = threading.Event()

    def start(self) -> None:
        """Begin to look."""
        self.directory.mkdir(parents=True, exist_ok=True)
        self._look()

    def stop(self) -> None:
        """Look no more, and close the connections."""
        self._stopped.set()
        for held in self.sockets.values():
            if held.plugin is not None:
                held.plugin.close()

    def _look(self) -> None:
        if self._stopped.is_set():
            return
        self.engine.offload(self.reconcile, self._again)

    def _again(self, _result: object) -> None:
        self.engine.after(PERIOD, self._look)

    def reconcile(self) -> None:
        """Register what is new, forget what is gone."""
        there = {}
        for path in sorted(self.directory.rglob("*")):
            if not path.name.startswith(".") and path.is_socket():
                try:
                    there[path] = path.stat().st_ino
                except OSError:
                    continue
        for path in [path for path, held in self.sockets.items() if there.get(path) != held.inode]:
            held = self.sockets.pop(path)
            if held.plugin is not None:
                self.plugins.deregister(held.plugin)
                held.plugin.close()
        now = self.engine.clock.now()
        for path, inode in there.items():
            held = self.sockets.setdefault(path, _Socket(inode))
            if held.plugin is None and held.not_before <= now:
                self._register(path, held)

    def _register(self, path: Path, held: _Socket) -> None:
        try:
            info = info_of(path)
            if info.type != TYPE:
                return
            try:
                version = chosen_version(info)
                self._check_free(info, held)
            except ValueError as error:
                notify(path, registered=False, error=str(error))
                raise
            plugin = RemotePlugin(info.name, info.endpoint, version)
            self.plugins.register(plugin)
            held.plugin = plugin
            try:
                notify(path, registered=True)
            except PluginError:
                held.plugin = None
                self.plugins.deregister(plugin)
                raise
        except (PluginError, ValueError) as error:
            held.error = str(error)
            held.back_off = min(max(held.back_off * 2, FIRST_BACK_OFF), LONGEST_BACK_OFF)
            held.not_before = self.engine.clock.now() + held.back_off
            return
        held.error, held.back_off = "", 0
        threading.Thread(
            target=self._follow, args=(plugin, held), name="plugin-health", daemon=True
        ).start()

    def _check_free(self, info: PluginInfo, held: _Socket) -> None:
        for other in self.sockets.values():
            if other.plugin is None or other is held:
                continue
            if other.plugin.endpoint == info.endpoint:
                raise ValueError(
                    f"endpoint {info.endpoint} already registered for DRA driver plugin {info.name}"
                )

    def _follow(self, plugin: RemotePlugin, held: _Socket) -> None:
        while held.plugin is plugin and not self._stopped.is_set():
            try:
                plugin.watch_health(lambda: self.engine.soon(self.changed))
            except ValueError:
                return  # The connection was closed meanwhile.
            if self._stopped.wait(HEALTH_AGAIN):
                return
