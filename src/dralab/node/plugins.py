"""The registered drivers of a node: the latest connected one of each name counts."""

import threading
from collections.abc import Callable
from dataclasses import field

from dralab.contracts.plugin import DeviceHealth, Plugin
from dralab.values.records import dataclass


class RemotePlugin(Plugin):
    """A plugin in another process: it may be slow, and report very many devices."""

    def health_of(self, pool: str, device: str) -> DeviceHealth:
        """Return what was last reported of a device."""
        raise NotImplementedError


@dataclass(slots=True)
class _Registered:
    plugins: list[Plugin] = field(default_factory=list)
    # Registered, but not answering.
    silent: list[Plugin] = field(default_factory=list)

    @property
    def latest(self) -> Plugin:
        """The latest connected plugin; the latest one where none is."""
        connected = [plugin for plugin in self.plugins if plugin not in self.silent]
        return (connected or self.plugins)[-1]

    @property
    def reachable(self) -> bool:
        """Whether any plugin is connected."""
        return any(plugin not in self.silent for plugin in self.plugins)


class Plugins:
    """Plugins by driver name. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._drivers: dict[str, _Registered] = {}
        # Told of a driver's name when its first plugin connected, when its last one went, and when
        # one registers that has not connected yet.
        self.changed: Callable[[str, bool], None] = lambda _driver, _there: None
        # Makes a plugin for a driver that does not run: only for claims of older generations.
        self.new_stand_in: Callable[[str], Plugin] | None = None
        self._stand_ins: dict[str, Plugin] = {}

    @property
    def drivers(self) -> list[str]:
        """The names of the drivers that are registered, sorted."""
        with self._lock:
            return sorted(self._drivers)

    def get(self, driver: str) -> Plugin | None:
        """Return the plugin to ask; None if the driver is not registered."""
        with self._lock:
            found = self._drivers.get(driver)
            return found.latest if found is not None else self._stand_ins.get(driver)

    def stand_in(self, driver: str) -> None:
        """Replace a driver that is not registered by a plugin in this process."""
        if self.get(driver) is None and self.new_stand_in is not None:
            self._stand_ins[driver] = self.new_stand_in(driver)

    def reachable(self, driver: str) -> bool:
        """Return whether a driver has a plugin that is connected."""
        with self._lock:
            found = self._drivers.get(driver)
            return found is not None and found.reachable

    def is_remote(self, driver: str) -> bool:
        """Return whether a driver is another process, which may answer slowly."""
        return isinstance(self.get(driver), RemotePlugin)

    def register(self, plugin: Plugin, *, connected: bool = True) -> None:
        """Add a plugin; several of one driver may be there during an update.

        One that is not `connected` yet is asked only if no other is; `connection` tells when it is.
        """
        with self._lock:
            found = self._drivers.setdefault(plugin.driver, _Registered())
            before = found.reachable
            if plugin not in found.plugins:
                found.plugins.append(plugin)
                if not connected:
                    found.silent.append(plugin)
            if not found.reachable:
                # Treated like a driver that has gone: 30 s to connect (DRAPluginManager.sync).
                before = True
        self._tell(plugin.driver, before=before)

    def deregister(self, plugin: Plugin) -> None:
        """Remove a plugin, if it exists."""
        with self._lock:
            found = self._drivers.get(plugin.driver)
            if found is None or plugin not in found.plugins:
                return
            before = found.reachable
            found.plugins.remove(plugin)
            found.silent = [other for other in found.silent if other is not plugin]
            if not found.plugins:
                del self._drivers[plugin.driver]
        self._tell(plugin.driver, before=before)

    def connection(self, plugin: Plugin, *, up: bool) -> None:
        """Note that a plugin's connection is up, or has broken."""
        with self._lock:
            found = self._drivers.get(plugin.driver)
            if found is None or plugin not in found.plugins:
                return
            before = found.reachable
            found.silent = [other for other in found.silent if other is not plugin]
            if not up:
                found.silent.append(plugin)
        self._tell(plugin.driver, before=before)

    def _tell(self, driver: str, *, before: bool) -> None:
        now = self.reachable(driver)
        if now != before:
            self.changed(driver, now)

    def health_of(self, driver: str, pool: str, device: str) -> DeviceHealth:
        """Return a driver's report about a device; its health is unknown without a report."""
        plugin = self.get(driver)
        if isinstance(plugin, RemotePlugin):
            return plugin.health_of(pool, device)
        for health in plugin.health() if plugin is not None else ():
            if (health.pool, health.device) == (pool, device):
                return health
        return DeviceHealth(pool=pool, device=device, health="Unknown")
