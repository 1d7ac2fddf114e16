"""Keeps metadata.managedFields with every write."""

from collections.abc import Mapping
from functools import cache
from typing import Any, Final

from dralab.api import schemas
from dralab.api.kinds import Kind
from dralab.api.schemas import Schema, Schemas
from dralab.apiserver import managed_fields
from dralab.apiserver.managed_fields import FieldManager
from dralab.apiserver.verbs.kinds.rules import Rules
from dralab.apiserver.verbs.state.context import Scope
from dralab.values.json_types import JsonDict

# Ways of writing after which no manager owns more than before.
UNTRACKED: Final = frozenset({"binding", "eviction"})


def schema_of(rules: Rules, kind: Kind) -> Schema | None:
    """Return the schema of a kind; None if nothing is known of it."""
    if kind.custom is not None:
        found: Schema | None = rules.strategy_of(kind).schema(kind.version)
        return found or schemas.custom(None)
    return Schemas.standard(kind.release).schema_of(kind.api_version, kind.kind)


def writer(scope: Scope, kind: Kind, *, subresource: str = "", now: str = "") -> FieldManager:
    """Return the writer, and the fields that this kind of write ignores."""
    return FieldManager(
        manager=scope.options.field_manager,
        api_version=kind.api_version,
        now=now or scope.context.now(),
        subresource=subresource,
        reset=_left_alone(scope, kind, subresource),
    )


def _left_alone(scope: Scope, kind: Kind, subresource: str) -> tuple[str, ...]:
    if subresource == "status":
        return _beside_status(scope.rules.strategy_of(kind).status_keeps)
    return ("status",) if kind.has_status and not subresource else ()


@cache
def _beside_status(kept: frozenset[str]) -> tuple[str, ...]:
    """Return the fields that a write to the status does not own."""
    parts = ("labels", "annotations", "finalizers", "ownerReferences")
    return ("spec", *(f"metadata.{part}" for part in parts if part not in kept))


def created(scope: Scope, kind: Kind, value: JsonDict, *, now: str) -> None:
    """Record the creator of a new object; call it before admission."""
    if scope.options.applied:
        return
    meta = value["metadata"]
    if not scope.context.managed_fields:
        meta.pop("managedFields", None)
        return
    who = writer(scope, kind, now=now)
    _set(meta, managed_fields.update(None, value, schema_of(scope.rules, kind), who))


def updated(scope: Scope, kind: Kind, value: JsonDict, old: JsonDict, *, subresource: str) -> None:
    """Record the writer of a change; call it before admission."""
    if scope.options.applied:
        return
    meta, before = value["metadata"], old["metadata"]
    if not scope.context.managed_fields or subresource in UNTRACKED:
        _set(meta, before.get("managedFields"))
        return
    if value == old:
        return
    who = writer(scope, kind, subresource=subresource)
    _set(meta, managed_fields.update(old, value, schema_of(scope.rules, kind), who))


def fits(scope: Scope, kind: Kind, value: JsonDict) -> bool:
    """Return whether all of a custom object matches its schema's types, its status included.

    Who owns the fields of one that is not cannot be told: a real server forgets it.
    """
    if kind.custom is None or not scope.context.managed_fields:
        return True
    return managed_fields.fits(value, schema_of(scope.rules, kind))


def settled(value: JsonDict, old: JsonDict) -> None:
    """Restore the times of entries if nothing else has changed: nothing was written."""
    meta, before = value["metadata"], old["metadata"]
    mine, theirs = meta.get("managedFields"), before.get("managedFields")
    if mine == theirs or not mine or not theirs or len(mine) != len(theirs):
        return
    for one, other in zip(mine, theirs, strict=True):
        if {**one, "time": ""} != {**other, "time": ""}:
            return
    rest = {**meta, "managedFields": theirs}
    if rest == before and all(
        value.get(part) == old.get(part) for part in {*value, *old} if part != "metadata"
    ):
        meta["managedFields"] = theirs


def asked(scope: Scope, kind: Kind, value: Mapping[str, Any]) -> list[JsonDict]:
    """Return the field owners of an object that is returned but not stored."""
    if not scope.context.managed_fields:
        return []
    who = writer(scope, kind)
    return managed_fields.update(None, value, schema_of(scope.rules, kind), who)


def _set(meta: JsonDict, entries: list[JsonDict] | None) -> None:
    if entries:
        meta["managedFields"] = entries
    else:
        meta.pop("managedFields", None)
