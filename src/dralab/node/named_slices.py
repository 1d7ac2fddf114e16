"""ResourceSlices of named resources: a kubelet up to Kubernetes 1.30 writes them for its drivers.

Source: kubelet 1.30, `pkg/kubelet/cm/dra/plugin/noderesources.go`. Later drivers publish theirs by
themselves.
"""

from collections.abc import Sequence

from dralab.api.status import ApiError
from dralab.prototypes.classic.kinds import API_VERSION
from dralab.prototypes.classic.structured import MODEL
from dralab.runtime.client import serves
from dralab.runtime.manager import Manager
from dralab.runtime.resources import NAMED_SLICES, SCHEDULING_CONTEXTS
from dralab.values.json_types import JsonDict


class NamedSlices:
    """Keeps the slices of nodes as their drivers last reported: one slice for each model."""

    def __init__(self, manager: Manager) -> None:
        self.client = manager.client
        self.engine = manager.engine
        self.queue = manager.queue("kubelet/named-slices", self.sync)
        # By node and driver.
        self._told: dict[tuple[str, str], Sequence[JsonDict]] = {}

    def set_devices(self, node: str, driver: str, models: Sequence[JsonDict]) -> None:
        """Set a driver's devices; thread-safe. Each model is `{"namedResources": …}`."""

        def take() -> None:
            self._told[node, driver] = models
            self.queue.add((node, driver))

        self.engine.soon(take)

    def sync(self, key: tuple[str, str]) -> int | None:
        """Write the missing slices and delete the outdated ones."""
        node, driver = key
        models = list(self._told.get(key, ()))
        old = []
        for obj in self._published(node, driver):
            if obj.get(MODEL) in [model.get(MODEL) for model in models]:
                models = [model for model in models if model.get(MODEL) != obj.get(MODEL)]
            else:
                old.append(obj)
        for model in models:
            if old:
                self.client.update(NAMED_SLICES, {**old.pop(), **model})
                continue
            body: JsonDict = {
                "apiVersion": API_VERSION,
                "kind": "ResourceSlice",
                "metadata": {"generateName": f"{node}-{driver}-"},
                "nodeName": node,
                "driverName": driver,
                **model,
            }
            self.client.create(NAMED_SLICES, body)
        for obj in old:
            self.client.delete(NAMED_SLICES, obj["metadata"]["name"])
        return None

    def served(self) -> bool:
        """Return whether the server has the API of that time."""
        try:
            return serves(self.client, SCHEDULING_CONTEXTS)
        except ApiError as error:
            # Authorization comes first: a node is refused what does not exist, too.
            if error.reason != "Forbidden":
                raise
            return False

    def wipe(self, node: str, driver: str = "") -> None:
        """Delete the slices of a driver that is gone; without a name, of all drivers."""
        for key in [key for key in self._told if key[0] == node and driver in {"", key[1]}]:
            del self._told[key]
        for obj in self._published(node, driver) if self.served() else ():
            self.client.delete(NAMED_SLICES, obj["metadata"]["name"])

    def _published(self, node: str, driver: str) -> list[JsonDict]:
        selector = f"nodeName={node}" + (f",driverName={driver}" if driver else "")
        return list(self.client.list(NAMED_SLICES, field_selector=selector).items)
