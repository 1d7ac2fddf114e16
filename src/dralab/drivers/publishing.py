"""Keeps a driver's slices on the server up to date: creates, updates and deletes them.

An unchanged inventory writes nothing, also after a restart. A changed one is a new generation of
its pool (resourceslice controller of the Go library, 0.36).
"""

from collections.abc import Iterable
from typing import Any, Final

from dralab.apiserver.access.users import NODE_PREFIX
from dralab.drivers.driver import Driver
from dralab.kernel.clock import SECOND
from dralab.objects.metadata import NamespacedName
from dralab.objects.slices import generation_of, newest_of
from dralab.runtime.client import Client, delete_only
from dralab.runtime.manager import Manager
from dralab.runtime.resources import NODES, SLICES
from dralab.values.json_types import JsonDict
from dralab.values.records import dataclass

# The Go library waits 30 s before it repairs changes by others.
MEND_AFTER: Final = 30 * SECOND


@dataclass(frozen=True, slots=True)
class _PublishedPool:
    driver: str
    node: str


class SlicePublisher:
    """Publishes the pools of any number of drivers, a pool for each driver and node.

    `mend_after` in nanoseconds: how long a change by another client stays. One that publishes for
    a single `driver` and `node` watches no more than these: at 5,000 nodes that is what counts.
    """

    def __init__(
        self,
        manager: Manager,
        *,
        mend_after: int = MEND_AFTER,
        driver: str = "",
        node: str = "",
    ) -> None:
        self.manager = manager
        self.mend_after = mend_after
        wanted = {"spec.driver": driver, "spec.nodeName": node}
        fields = ",".join(f"{name}={value}" for name, value in wanted.items() if value)
        self.slices = manager.cache(SLICES, field_selector=fields)
        self.nodes = manager.cache(NODES, field_selector=f"metadata.name={node}" if node else "")
        self.slices.index("pool", _pool)
        self.queue = manager.queue("slices", self._sync)
        self._drivers: dict[_PublishedPool, Driver] = {}
        self._gone: set[_PublishedPool] = set()
        self._renewed: set[_PublishedPool] = set()
        # What the server kept of a content: it drops the fields of features it does not have.
        self._kept: dict[_PublishedPool, tuple[list[JsonDict], list[JsonDict]]] = {}
        self.slices.subscribe(self._changed)
        self.nodes.subscribe(self._node)

    def publish(self, driver: Driver) -> None:
        """Publish the slices of a driver on a node from now on; call it again after a change."""
        place = _PublishedPool(driver.name, driver.node)
        self._drivers[place] = driver
        self._gone.discard(place)
        self.queue.add(place)

    def renew(self, driver: Driver) -> None:
        """Publish the same again, as a new generation of the pool."""
        self._renewed.add(_PublishedPool(driver.name, driver.node))
        self.publish(driver)

    def withdraw(self, driver: Driver) -> None:
        """Delete the slices of a driver on a node."""
        place = _PublishedPool(driver.name, driver.node)
        self._drivers.pop(place, None)
        self._gone.add(place)
        self.queue.add(place)

    def forget_driver(self, driver: Driver) -> None:
        """Stop publishing for a driver, and leave its slices as they are."""
        self._drivers.pop(_PublishedPool(driver.name, driver.node), None)

    def _changed(self, old: JsonDict | None, new: JsonDict | None) -> None:
        for obj in (old, new):
            for name in _pool(obj) if obj is not None else ():
                driver, _, node = name.partition("/")
                place = _PublishedPool(driver, node)
                if place in self._drivers:
                    self.queue.add_after(place, self.mend_after)

    def _node(self, old: JsonDict | None, new: JsonDict | None) -> None:
        if old is None and new is not None:
            for place in [p for p in self._drivers if p.node == new["metadata"]["name"]]:
                self.queue.add(place)

    def _sync(self, place: _PublishedPool) -> int | None:
        held = self.slices.find("pool", f"{place.driver}/{place.node}")
        driver = self._drivers.get(place)
        if driver is None:
            for obj in held if place in self._gone else ():
                self._delete(obj)
            self._gone.discard(place)
            return None
        node = self.nodes.get(NamespacedName("", place.node))
        if node is None:
            return None  # The node's arrival comes back here.
        contents = [part.spec() for part in driver.inventory()]
        generation, current = generation_of(held), newest_of(held)
        asked, kept = self._kept.get(place, ([], []))
        same = _same(current, kept if asked == contents else contents)
        if same and place not in self._renewed:
            stale = [obj for obj in held if obj not in current]
        else:
            generation += 1
            made = [
                self._create(place, node, content, index, len(contents), generation)
                for index, content in enumerate(contents)
            ]
            self._renewed.discard(place)
            self._kept[place] = (contents, [_content(obj) for obj in made])
            stale = held
        for obj in stale:
            self._delete(obj)
        return None

    def _create(  # noqa: PLR0917 - the parts of one slice
        self,
        place: _PublishedPool,
        node: JsonDict,
        content: JsonDict,
        index: int,
        count: int,
        generation: int,
    ) -> JsonDict:
        pool = {"name": place.node, "generation": generation, "resourceSliceCount": count}
        body = {
            "apiVersion": "resource.k8s.io/v1",
            "kind": "ResourceSlice",
            "metadata": {
                # The number comes first: by their names the allocator orders slices.
                "generateName": f"{index:05x}-{place.driver}-{place.node}-",
                "ownerReferences": [
                    {
                        "apiVersion": "v1",
                        "kind": "Node",
                        "name": place.node,
                        "uid": node["metadata"]["uid"],
                        "controller": True,
                    }
                ],
            },
            "spec": {"driver": place.driver, "nodeName": place.node, "pool": pool, **content},
        }
        stored = self._client_of(place.node).create(SLICES, body)
        self.slices.learn(stored)
        return stored

    def _client_of(self, node: str) -> Client:
        """Return the client of a node, as which its drivers publish."""
        return self.manager.acting_as(f"{NODE_PREFIX}{node}").client

    def _delete(self, obj: JsonDict) -> None:
        delete_only(self._client_of(obj["spec"].get("nodeName", "")), SLICES, obj)


def _pool(obj: JsonDict) -> Iterable[str]:
    spec = obj["spec"]
    if spec.get("nodeName"):
        yield f"{spec['driver']}/{spec['nodeName']}"


def _content(obj: JsonDict) -> JsonDict:
    return {key: obj["spec"][key] for key in ("sharedCounters", "devices") if key in obj["spec"]}


def _same(held: list[JsonDict], contents: list[JsonDict]) -> bool:
    """Return whether slices hold what they should, whatever the server has added."""
    if len(held) != len(contents):
        return False
    held = sorted(held, key=lambda obj: str(obj["metadata"]["name"]))
    return all(
        _covers(obj["spec"], content)
        and obj["spec"]["pool"]["resourceSliceCount"] == len(contents)
        and bool(obj["spec"].get("devices")) == bool(content.get("devices"))
        for obj, content in zip(held, contents, strict=True)
    )


def _covers(held: Any, wanted: Any) -> bool:
    if isinstance(wanted, dict):
        return isinstance(held, dict) and all(
            _covers(held.get(key), value) for key, value in wanted.items()
        )
    if isinstance(wanted, list):
        return (
            isinstance(held, list)
            and len(held) == len(wanted)
            and all(_covers(a, b) for a, b in zip(held, wanted, strict=True))
        )
    # What is absent on the server is the zero value of its type.
    return bool(held == wanted or (held is None and wanted in (False, 0, "")))
