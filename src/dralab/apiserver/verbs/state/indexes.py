"""Indexes of objects by a field: pods of a node, slices of a driver.

An index is made when it is first asked for and follows every write after that. It returns only
candidates, which the caller still has to check.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final

from dralab.apiserver.guarded import guarded_by
from dralab.apiserver.storage import Key, Store, Stored
from dralab.apiserver.verbs.kinds.rules import Rules
from dralab.values.json_types import JsonDict

# Collections and the fields of theirs that are indexed, as dotted paths.
INDEXED: Final[Mapping[str, Mapping[str, tuple[str, str]]]] = {
    "pods": {"spec.nodeName": ("spec", "nodeName"), "spec.host": ("spec", "nodeName")},
    "resource.k8s.io/resourceslices": {
        "spec.nodeName": ("spec", "nodeName"),
        "spec.driver": ("spec", "driver"),
    },
}


class Indexes:
    """The indexes of a store; the store's lock guards them."""

    def __init__(self, store: Store, rules: Rules) -> None:
        self.store = store
        self._found: dict[str, dict[tuple[tuple[str, str], str], dict[Key, None]]] = {}
        store.when_undone(self._found.clear)
        for hub in INDEXED:
            rules.observe(hub, self._follower(hub))

    def candidates(self, hub: str, field: str, value: str, namespace: str) -> list[Stored] | None:
        """Return the candidates for a value, in key order; None if there is no such index."""
        path = INDEXED.get(hub, {}).get(field)
        if path is None or not value:
            return None
        with self.store.lock:
            index = self._found.get(hub)
            if index is None:
                index = self._made(hub)
            keys: Iterable[Key] = index.get((path, value), ())
            if namespace:
                keys = (key for key in keys if key.namespace == namespace)
            # As the store orders them: by "namespace/name".
            ordered = sorted(keys, key=lambda key: (f"{key.namespace}/", key.name))
            stored = (self.store.get(key) for key in ordered)
            return [each for each in stored if each is not None]

    @guarded_by("store.lock")
    def _made(self, hub: str) -> dict[tuple[tuple[str, str], str], dict[Key, None]]:
        index: dict[tuple[tuple[str, str], str], dict[Key, None]] = {}
        self._found[hub] = index
        for stored in self.store.list(hub).items:
            for place in _places(hub, stored.value):
                index.setdefault(place, {})[stored.key] = None
        return index

    def _follower(self, hub: str) -> Callable[[JsonDict | None, JsonDict | None], None]:
        def follow(before: JsonDict | None, after: JsonDict | None) -> None:
            index = self._found.get(hub)
            if index is None:
                return
            had = () if before is None else _places(hub, before)
            has = () if after is None else _places(hub, after)
            if had == has:
                return
            key = _key(hub, after or before or {})
            for place in had:
                if place not in has:
                    index.get(place, {}).pop(key, None)
            for place in has:
                index.setdefault(place, {})[key] = None

        return follow


def _key(hub: str, value: JsonDict) -> Key:
    metadata = value["metadata"]
    return Key(hub, metadata.get("namespace", ""), metadata["name"])


def _places(hub: str, value: JsonDict) -> Sequence[tuple[tuple[str, str], str]]:
    """Return the fields and values by which an object is indexed."""
    found = []
    for path in dict.fromkeys(INDEXED[hub].values()):
        item = (value.get(path[0]) or {}).get(path[1])
        if item:
            found.append((path, item))
    return found
