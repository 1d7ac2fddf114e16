"""Deletion: preconditions, grace period, finalizers, and dependents.

Source: k8s.io/apiserver `registry/rest/delete.go`, `registry/generic/registry/store.go`.
"""

from dataclasses import replace
from typing import Any

from dralab.api.kinds import Kind
from dralab.api.status import ApiError
from dralab.apiserver.storage import Key, RevisionConflict, Stored
from dralab.apiserver.verbs import admission, reading
from dralab.apiserver.verbs.admission import review_of
from dralab.apiserver.verbs.reading import ListPage
from dralab.apiserver.verbs.state.context import Scope, key_of, raise_conflict
from dralab.apiserver.verbs.state.options import DeleteOptions, ListOptions
from dralab.kernel.clock import SECOND, from_rfc3339, rfc3339
from dralab.objects import pods
from dralab.objects.metadata import spec_of
from dralab.values.json_types import JsonDict

FOREGROUND = "foregroundDeletion"
ORPHAN = "orphan"
STEP = 64  # deletions at a time


def delete(
    scope: Scope, kind: Kind, name: str, namespace: str, options: DeleteOptions
) -> tuple[Stored, bool]:
    """Delete an object, or mark it; also return whether it is gone.

    An object that cannot be read is gone at once: its finalizers are unknown.
    """
    with scope.store.lock:
        if (key := key_of(kind, namespace, name)) in scope.store.damaged(kind.hub):
            return _erase(scope, kind, key, options), True
        live = scope.live(kind, namespace, name)
        if kind.custom is not None and not scope.rules.is_hub(kind):
            scope.rules.from_hub(kind, live.value, scope)  # what cannot be read is not deleted
        check_preconditions(live, kind, options)
        _admit(scope, kind, live.key, live.value, options)
        return _delete(scope, kind, live, options)


def delete_collection(
    scope: Scope, kind: Kind, namespace: str, chosen: ListOptions, options: DeleteOptions
) -> ListPage:
    """Delete what a list returns; return the page, with the objects as listed."""
    scope.context.dynamic.check_waiting(scope)
    if chosen.revision not in {"", "0"} and not chosen.match and not chosen.limit:
        # Upstream lists in pages, and so that very state.
        chosen = replace(chosen, match="Exact")
    page = reading.list_page(scope, kind, namespace, chosen)
    found: list[Stored] = []
    # In steps, between which other requests run. Objects that are gone by then are left out, as in
    # k8s.io/apiserver `registry/generic/registry` (DeleteCollection).
    for start in range(0, len(page.items), STEP):
        step = page.items[start : start + STEP]
        if scope.context.dynamic.active:
            # Before the store is locked: webhooks may take a while.
            for item in step:
                _admit(scope, kind, item.key, item.value, options)
        with scope.store.lock, scope.store.batch():
            for item in step:
                live = scope.store.get(item.key)
                if live is not None:
                    if not scope.context.dynamic.active:
                        _admit(scope, kind, live.key, live.value, options)
                    check_preconditions(live, kind, options)
                    _delete(scope, kind, live, options)
                    found.append(item)
    if not chosen.label_selector and not chosen.field_selector:
        with scope.store.lock, scope.store.batch():
            for key in page.damaged:
                _erase(scope, kind, key, options)
    return replace(page, items=found, damaged=())


def _erase(scope: Scope, kind: Kind, key: Key, options: DeleteOptions) -> Stored:
    """Delete an object that cannot be read, unless its deletion depends on its content."""
    if options.uid or options.revision:
        scope.find(key)  # which tells why not
    _admit(scope, kind, key, None, options)
    if options.dry_run:
        return Stored(key, {"metadata": {"name": key.name}}, scope.store.revision, 0)
    return scope.store.delete(key)


def _admit(
    scope: Scope, kind: Kind, key: Key, old: JsonDict | None, options: DeleteOptions
) -> None:
    review = review_of(
        scope,
        kind,
        "DELETE",
        namespace=key.namespace,
        name=key.name,
        value=None,
        old=old,
        how=options,
    )
    admission.admit(scope, review)
    admission.validate(scope, review)


def check_preconditions(live: Stored, kind: Kind, options: DeleteOptions) -> None:
    """Refuse a deletion that was meant for another object, or another state of it. ApiError."""
    uid = live.value["metadata"]["uid"]
    if options.uid and options.uid != uid:
        raise ApiError.conflict(
            kind.kind,  # as upstream has it, which names a resource everywhere else
            live.key.name,
            f"the UID in the precondition ({options.uid}) does not match the UID in record "
            f"({uid}). The object might have been deleted and then recreated",
            group=kind.group,
        )
    if options.revision and options.revision != str(live.revision):
        raise ApiError.conflict(
            kind.kind,
            live.key.name,
            f"the ResourceVersion in the precondition ({options.revision}) does not match the "
            f"ResourceVersion in record ({live.revision}). The object might have been modified",
            group=kind.group,
        )


def _delete(scope: Scope, kind: Kind, live: Stored, options: DeleteOptions) -> tuple[Stored, bool]:
    old = live.value
    meta: dict[str, Any] = dict(old["metadata"])
    value: JsonDict = {**old, "metadata": meta}
    grace = _grace(kind, old, options)
    rules = scope.rules.strategy_of(kind)
    finalizers = _finalizers(meta, options, orphans=rules.orphans)
    was_deleting = "deletionTimestamp" in meta
    if not was_deleting:
        finalizers += [name for name in rules.deletion_finalizers() if name not in finalizers]
    if finalizers != (meta.get("finalizers") or []):
        if finalizers:
            meta["finalizers"] = finalizers
        else:
            meta.pop("finalizers", None)
    stays = bool(finalizers) or grace > 0 or _has_spec_finalizers(kind, old)
    if was_deleting:
        grace = min(grace, meta.get("deletionGracePeriodSeconds") or 0)
        stays = bool(finalizers) or grace > 0 or _has_spec_finalizers(kind, old)
    if options.dry_run and not stays and not was_deleting and not _is_graceful(kind):
        return live, True  # nothing would be written before it is gone
    _mark(scope, kind, value, grace)
    if options.dry_run:
        return Stored(live.key, value, live.revision, live.created), not stays
    if stays:
        if value == old:
            return live, False
        return _update(scope, kind, live, value), False
    if _is_graceful(kind) and value != old:
        # The end of the grace is a change of its own, seen before the deletion.
        live = _update(scope, kind, live, value)
    return remove(scope, kind, live), True


def _mark(scope: Scope, kind: Kind, value: JsonDict, grace: int) -> None:
    """Mark an object as being deleted."""
    meta = value["metadata"]
    before = meta.get("deletionGracePeriodSeconds")
    now = scope.context.now()
    if "deletionTimestamp" in meta:
        if before is not None and _is_graceful(kind):  # `grace` is not longer
            started = from_rfc3339(meta["deletionTimestamp"]) - before * SECOND
            meta["deletionTimestamp"] = rfc3339(max(started + grace * SECOND, 0))
            meta["deletionGracePeriodSeconds"] = grace
    else:
        end = rfc3339(scope.context.clock.now() + grace * SECOND) if grace else now
        marks: dict[str, Any] = {"deletionTimestamp": end}
        if kind.hub not in {"namespaces", CRDS}:
            marks["deletionGracePeriodSeconds"] = grace
        names = [*meta]
        place = names.index("creationTimestamp") + 1 if "creationTimestamp" in meta else len(names)
        after = {name: meta.pop(name) for name in names[place:]}
        meta.update(marks, **after)
        # Source: k8s.io/apiserver `registry/generic/registry` (markAsDeleting); definitions are
        # marked elsewhere there.
        if "generation" in meta and kind.hub != CRDS:
            meta["generation"] += 1
    scope.rules.strategy_of(kind).marked(value, now)


CRDS = "apiextensions.k8s.io/customresourcedefinitions"


def _is_graceful(kind: Kind) -> bool:
    return kind.hub == "pods"


def _grace(kind: Kind, value: JsonDict, options: DeleteOptions) -> int:
    """Return the grace period of an object in seconds: only pods have one."""
    if not _is_graceful(kind):
        return 0
    spec = spec_of(value)
    if not spec.get("nodeName"):
        return 0
    if pods.is_finished(value):
        return 0
    if options.grace is not None:
        return max(options.grace, 0)
    own = spec.get("terminationGracePeriodSeconds")
    return 30 if own is None else max(int(own), 0)


def _finalizers(meta: JsonDict, options: DeleteOptions, *, orphans: bool) -> list[str]:
    """Return the finalizers after a deletion; `orphans`: dependents are orphaned by default."""
    before = meta.get("finalizers") or []
    policy = options.policy
    if not policy and options.orphan_dependents is not None:
        policy = "Orphan" if options.orphan_dependents else "Background"
    if not policy and orphans and not {ORPHAN, FOREGROUND} & {*before}:
        policy = "Orphan"
    if not policy:
        return list(before)
    found = [name for name in before if name not in {ORPHAN, FOREGROUND}]
    if policy == "Orphan":
        found.append(ORPHAN)
    elif policy == "Foreground":
        found.append(FOREGROUND)
    return found


def _has_spec_finalizers(kind: Kind, value: JsonDict) -> bool:
    return kind.hub == "namespaces" and bool(spec_of(value).get("finalizers"))


def is_finished(kind: Kind, value: JsonDict) -> bool:
    """Return whether an object that is being deleted can be removed now."""
    meta = value["metadata"]
    return (
        "deletionTimestamp" in meta
        and not meta.get("finalizers")
        and not meta.get("deletionGracePeriodSeconds")
        and not _has_spec_finalizers(kind, value)
    )


def _update(scope: Scope, kind: Kind, live: Stored, value: JsonDict) -> Stored:
    try:
        stored = scope.store.update(live.key, value, expect=live.revision)
    except RevisionConflict as error:
        raise_conflict(kind, error)
    scope.context.stored(kind, live.value, stored.value)
    return stored


def remove(scope: Scope, kind: Kind, live: Stored) -> Stored:
    """Remove an object from the store; watchers see its last stored state."""
    try:
        stored = scope.store.delete(live.key, expect=live.revision)
    except RevisionConflict as error:
        raise_conflict(kind, error)
    scope.context.stored(kind, live.value, None)
    return stored
