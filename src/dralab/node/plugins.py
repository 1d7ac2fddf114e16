"""The drivers that have registered on a node: the latest connected one of each name counts."""

import threading
from collections.abc import Callable
from dataclasses import dataclass, field

from dralab.contracts.plugin import DeviceHealth, Plugin


@dataclass(slots=True)
class _Registered:
    plugins: list[Plugin] = field(default_factory=list)


class Plugins:
    """Plugins by driver name. Any thread may ask."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._drivers: dict[str, _Registered] = {}
        # Told of a driver's name when its first plugin came or its last one went.
        self.changed: Callable[[str, bool], None] = lambda _driver, _there: None

    @property
    def drivers(self) -> list[str]:
        """The names of the drivers that are registered, sorted."""
        with self._lock:
            return sorted(self._drivers)

    def get(self, driver: str) -> Plugin | None:
        """Return the plugin to ask; None where the driver is not registered."""
        with self._lock:
            found = self._drivers.get(driver)
            return found.plugins[-1] if found is not None else None

    def register(self, plugin: Plugin) -> None:
        """Add a plugin; several of one driver may be there during an update."""
        with self._lock:
            found = self._drivers.setdefault(plugin.driver, _Registered())
            first = not found.plugins
            if plugin not in found.plugins:
                found.plugins.append(plugin)
        if first:
            self.changed(plugin.driver, True)  # noqa: FBT003 - a fact that has no name

    def deregister(self, plugin: Plugin) -> None:
        """Take a plugin away; one that is not there is fine."""
        with self._lock:
            found = self._drivers.get(plugin.driver)
            if found is None or plugin not in found.plugins:
                return
            found.plugins.remove(plugin)
            last = not found.plugins
            if last:
                del self._drivers[plugin.driver]
        if last:
            self.changed(plugin.driver, False)  # noqa: FBT003 - a fact that has no name

    def health_of(self, driver: str, pool: str, device: str) -> DeviceHealth | None:
        """Return what a driver says of a device; None where it says nothing."""
        plugin = self.get(driver)
        for health in plugin.health() if plugin is not None else ():
            if (health.pool, health.device) == (pool, device):
                return health
        return None
