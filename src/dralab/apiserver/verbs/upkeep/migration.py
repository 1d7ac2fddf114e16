"""Objects that a server of another release wrote: what they are in this one, and rewriting them.

An object of a built-in kind is read by the definition of the release, which leaves out what that
does not have, as decoding does upstream. Custom objects are as their definition has them.
"""

from collections.abc import Iterator
from typing import Any

from dralab.api.core.definitions import HUB as DEFINITIONS
from dralab.api.kinds import Kind
from dralab.apiserver.storage import Key, Stored
from dralab.apiserver.verbs.server import Resources
from dralab.values.json_types import JsonDict
from dralab.values.records import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class MigratedObject:
    """What becomes of a stored object: another version, fields that are lost, or nothing at all.

    `unserved` objects stay in the store, and no client reaches them.
    """

    key: Key
    before: str
    after: str = ""
    lost: tuple[str, ...] = ()
    unserved: bool = False


def read_anew(resources: Resources) -> None:
    """Read every object of a built-in kind with the definitions of the release from now on."""
    rules = resources.context.rules
    built_in = {kind.hub for kind in resources.kinds if kind.custom is None}
    rules.outdated |= built_in & set(resources.context.store.resources())


def migrated(resources: Resources, *, apply: bool) -> Iterator[MigratedObject]:
    """Yield the objects that the release would store differently; with `apply` rewrite them."""
    context = resources.context
    kinds = _stored_kinds(resources)
    custom = {
        f"{stored.value['spec']['group']}/{stored.value['spec']['names']['plural']}"
        for stored in context.store.list(DEFINITIONS).items
    }
    for hub in context.store.resources():
        if hub in custom:
            continue
        kind = kinds.get(hub)
        for stored in context.store.list(hub).items:
            before = str(stored.value.get("apiVersion", ""))
            if kind is None:
                yield MigratedObject(key=stored.key, before=before, unserved=True)
                continue
            value = context.rules.to_hub(kind, context.rules.from_hub(kind, stored.value))
            if value == stored.value:
                continue
            yield MigratedObject(
                key=stored.key,
                before=before,
                after=str(value["apiVersion"]),
                lost=tuple(lost_fields(stored.value, value)),
            )
            if apply:
                _rewrite(resources, stored, value)


def _stored_kinds(resources: Resources) -> dict[str, Kind]:
    """Return the kind by which objects of each collection are read: the stored one if served."""
    found: dict[str, Kind] = {}
    for kind in resources.kinds:
        if kind.custom is None and (
            kind.hub not in found or resources.context.rules.hub_type(kind)[0] == kind.api_version
        ):
            found[kind.hub] = kind
    return found


def _rewrite(resources: Resources, stored: Stored, value: JsonDict) -> None:
    metadata = {**value["metadata"]}
    metadata.pop("resourceVersion", None)
    store = resources.context.store
    store.update(stored.key, {**value, "metadata": metadata}, expect=stored.revision)


def lost_fields(given: Any, shown: Any, path: str = "") -> Iterator[str]:
    """Yield the paths of fields that are lost; empty ones count as absent."""
    if isinstance(given, dict) and isinstance(shown, dict):
        for name, value in given.items():
            below = f"{path}.{name}" if path else name
            if name not in shown:
                if value not in (None, "", 0, False, [], {}):
                    yield below
            else:
                yield from lost_fields(value, shown[name], below)
    elif isinstance(given, list) and isinstance(shown, list):
        for index, (one, other) in enumerate(zip(given, shown, strict=False)):
            yield from lost_fields(one, other, f"{path}[{index}]")
