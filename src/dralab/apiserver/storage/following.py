"""Follows collections of a store: the existing objects, and every change once it is durable."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from dralab.apiserver.storage.objects import Change, Key
from dralab.apiserver.storage.store import Store


def follow(
    store: Store,
    resources: Sequence[str],
    put: Callable[[Key, Mapping[str, Any] | None], None],
) -> None:
    """Call `put` with the objects of some collections, and with each change; None: it is gone."""
    wanted = frozenset(resources)

    def tell(changes: Sequence[Change]) -> None:
        for change in changes:
            if change.key.resource in wanted:
                put(change.key, None if change.after is None else change.after.value)

    with store.lock:
        store.subscribe(tell)
        for resource in resources:
            for stored in store.list(resource).items:
                put(stored.key, stored.value)
