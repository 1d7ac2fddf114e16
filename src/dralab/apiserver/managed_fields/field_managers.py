"""Field ownership after a write: `update` for ordinary writes, `apply` for server-side apply.

Pure functions on the object before, the object after, and what the writer sent. The verbs do
defaults, admission, validation and storage.

Rules: sigs.k8s.io/structured-merge-diff `merge`, k8s.io/apimachinery `util/managedfields`.
"""

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from dralab.api.schemas import Schema
from dralab.api.status import ApiError, Cause
from dralab.apiserver.managed_fields import paths, typed
from dralab.apiserver.managed_fields.entries import (
    OwnedFields,
    Owner,
    Owners,
    capped,
    is_reset,
    read,
    written,
)
from dralab.apiserver.managed_fields.field_set_cache import FieldSetCache, shape_of
from dralab.apiserver.managed_fields.forms import Form, StepError
from dralab.apiserver.managed_fields.paths import FieldSet
from dralab.values.json_types import JsonDict
from dralab.values.records import dataclass
from dralab.values.remembering import json_key

LAST_APPLIED: Final = "kubectl.kubernetes.io/last-applied-configuration"
KUBECTL: Final = "kubectl"
BEFORE: Final = "before-first-apply"
# Fields that are the server's own: they have no owner.
SHAPES: Final = FieldSetCache()
OWN: Final = ("apiVersion", "kind")
OWN_METADATA: Final = frozenset(
    {
        "name",
        "namespace",
        "creationTimestamp",
        "selfLink",
        "uid",
        "clusterName",
        "generation",
        "managedFields",
        "resourceVersion",
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class FieldManager:
    """Who writes, how and when.

    `now` is an RFC 3339 time; `reset` names the fields (such as `status`, `metadata.labels`)
    that this way of writing does not write, whatever the object says.
    """

    manager: str
    api_version: str
    now: str
    subresource: str = ""
    reset: Sequence[str] = ()


def update(
    live: Mapping[str, Any] | None,
    new: Mapping[str, Any],
    schema: Schema | None,
    writer: FieldManager,
) -> list[dict[str, Any]]:
    """Return the managedFields of an object that was created, updated or patched.

    `live` is the object as stored, None if it is created. `new` is the object as it will be
    stored, apart from its managedFields; those it carries are taken as the client's wish. An
    object whose fields have no paths, such as one with a list element without its key, has none.
    """
    try:
        return _update(live, new, schema, writer)
    except StepError:
        return []


def _update(
    live: Mapping[str, Any] | None,
    new: Mapping[str, Any],
    schema: Schema | None,
    writer: FieldManager,
) -> list[dict[str, Any]]:
    if live is None:
        asked = (new.get("metadata") or {}).get("managedFields")
        owners = read(asked) if asked and not is_reset(asked) else {}
        if not owners:
            return _created(new, schema, writer)
    else:
        asked = (new.get("metadata") or {}).get("managedFields")
        if not writer.subresource and is_reset(asked):
            return []
        known = (live.get("metadata") or {}).get("managedFields")
        # A client that read the object sends its managedFields back unchanged.
        owners = {} if writer.subresource or asked == known else read(asked)
        owners = owners or read(known, trusted=True)
        if not owners:
            # Nothing had an owner: upstream does not start tracking on an update.
            return []
    form = Form.from_schema(schema)
    more, less = _compared(live or {}, new, form)
    owner = Owner.updater(writer.manager, writer.api_version, writer.subresource)
    return written(_after_update(owners, owner, more, less, writer))


def _created(
    new: Mapping[str, Any], schema: Schema | None, writer: FieldManager
) -> list[dict[str, Any]]:
    """Return the one entry of a new object; the common case, without other owners."""
    form = Form.from_schema(schema)
    trackable = _trackable(new)
    key = None if form.copies is None else json_key(trackable)
    fields = None if form.copies is None else form.copies.get(key)
    if fields is None:
        shape = shape_of(trackable, form)
        fields = None if shape is None else SHAPES.get(form, shape)
        if fields is None:
            fields, _ = typed.compared(_trackable({}), trackable, form)
            if shape is not None:
                SHAPES.keep(form, shape, fields)
        if form.copies is not None:
            form.copies.keep(key, fields)
    fields = _without_reset(fields, writer)
    if not fields:
        return []
    owner = Owner.updater(writer.manager, writer.api_version, writer.subresource)
    return written({owner: OwnedFields(fields, writer.api_version, writer.now)})


def _without_reset(fields: FieldSet, writer: FieldManager) -> FieldSet:
    """Return the fields without those that this way of writing does not write."""
    for name in writer.reset:
        first, _, rest = name.partition(".")
        if f"f:{first}" in fields:
            fields = paths.without_field(fields, (first, rest) if rest else (first,))
    return fields


def _compared(
    live: Mapping[str, Any], new: Mapping[str, Any], form: Form
) -> tuple[FieldSet, FieldSet]:
    """Return the fields that were written and removed, without those that have no owner."""
    left, right = _different(live, new, OWN), _different(new, live, OWN)
    if "metadata" in left or "metadata" in right:
        before, after = live.get("metadata") or {}, new.get("metadata") or {}
        left["metadata"] = _different(before, after, OWN_METADATA)
        right["metadata"] = _different(after, before, OWN_METADATA)
    return typed.compared(left, right, form)


def _different(
    one: Mapping[str, Any], other: Mapping[str, Any], left_out: Collection[str]
) -> JsonDict:
    """Return the fields that differ in the other object: few do, after a change."""
    return {
        key: value
        for key, value in one.items()
        if key not in left_out and (key not in other or other[key] is not value)
    }


def _trackable(obj: Mapping[str, Any]) -> JsonDict:
    found = {key: value for key, value in obj.items() if key not in OWN}
    metadata = obj.get("metadata") or {}
    found["metadata"] = {key: value for key, value in metadata.items() if key not in OWN_METADATA}
    return found


def _after_update(
    owners: Owners, owner: Owner, more: FieldSet, less: FieldSet, writer: FieldManager
) -> Owners:
    found: Owners = {}
    for other, owned in owners.items():
        fields = owned.fields if other == owner else paths.difference(owned.fields, more)
        if less:
            fields = paths.difference(fields, less)
        if fields:
            same = fields is owned.fields
            found[other] = owned if same else OwnedFields(fields, owned.api_version, owned.time)
    more = _without_reset(more, writer)
    if more:
        mine = found.get(owner)
        # What was compared is in order, and so is what is stored.
        fields = paths.ordered(paths.union(mine.fields, more)) if mine else more
        found[owner] = OwnedFields(fields, writer.api_version, writer.now)
    return capped(found)


# --- Server-side apply --------------------------------------------------------------------


def apply(
    live: Mapping[str, Any] | None,
    config: Mapping[str, Any],
    schema: Schema | None,
    writer: FieldManager,
    *,
    force: bool = False,
) -> JsonDict:
    """Return the object after a server-side apply, its managedFields included.

    `live` is the object as stored, None if there is none. ApiError with reason Conflict where
    the config changes what others own and `force` is not set; other ApiErrors where the config
    does not fit. Where nothing changes, neither do the times of the entries.
    """
    form = Form.from_schema(schema)
    if live is not None and not (live.get("metadata") or {}).get("managedFields"):
        try:  # whom its fields belong to is found before the config is looked at
            _compared({}, live, form)
        except StepError as error:
            raise _untold(live, form) from error
    _check(config, schema, writer)
    try:
        result = _applied(live, config, form, writer, force=force)
    except StepError as error:
        raise _untold(live or {}, form) from error
    except ConflictError as conflict:
        if (
            live is None
            or writer.manager != KUBECTL
            or not _from_last_applied(conflict, live, form)
        ):
            raise
        result = _applied(live, config, form, writer, force=True)
    if writer.manager == KUBECTL:
        _keep_last_applied(result, config)
    return result


def fits(value: Mapping[str, Any], schema: Schema | None) -> bool:
    """Return whether an object matches its schema's types; duplicate elements are allowed."""
    wrong = typed.misfits(dict(value), Form.from_schema(schema))
    return all(": duplicate entries for key " in why for why in wrong)


def _untold(live: Mapping[str, Any], form: Form) -> ApiError:
    """Return the error of an apply to an object with a list element without its key."""
    metadata, version = live.get("metadata") or {}, live.get("apiVersion") or ""
    group, _, short = version.rpartition("/")
    named = f"{metadata.get('namespace', '')}/{metadata.get('name', '')}"
    wrong = list(typed.misfits(dict(live), form))
    return ApiError.failed(
        "failed to create manager for existing fields: failed to convert new object "
        f"({named}; {group}/{short}, Kind={live.get('kind')}) to smd typed: "
        + "\n  ".join(["errors:", *wrong] if len(wrong) > 1 else wrong)
    )


class ConflictError(ApiError):
    """Others own fields that an apply would change: the paths, by owner."""

    def __init__(self, conflicts: Mapping[str, Sequence[str]]) -> None:
        pairs = [(owner, path) for owner in sorted(conflicts) for path in conflicts[owner]]
        self.conflicts = conflicts
        causes = [
            Cause(reason="FieldManagerConflict", message=f"conflict with {owner}", field=path)
            for owner, path in pairs
        ]
        if len(pairs) == 1:
            message = f"Apply failed with 1 conflict: conflict with {pairs[0][0]}: {pairs[0][1]}"
        else:
            lines = []
            for owner in sorted(conflicts):
                lines.append(f"conflicts with {owner}:")
                lines += [f"- {path}" for path in conflicts[owner]]
            message = f"Apply failed with {len(pairs)} conflicts: " + "\n".join(lines)
        super().__init__("Conflict", message, causes=causes)


def _check(config: Mapping[str, Any], schema: Schema | None, writer: FieldManager) -> None:
    metadata = config.get("metadata")
    metadata = metadata if isinstance(metadata, dict) else {}
    if metadata.get("managedFields") is not None:
        raise ApiError.bad_request("metadata.managedFields must be nil")
    version = config.get("apiVersion")
    if version != writer.api_version:
        raise ApiError.bad_request(
            "Incorrect version specified in apply patch. "
            f"Specified patch version: {version}, expected: {writer.api_version}"
        )
    wrong = list(typed.misfits(dict(config), Form.from_schema(schema)))
    if wrong:
        named = f"{metadata.get('namespace', '')}/{metadata.get('name', '')}"
        listed = wrong[0] if len(wrong) == 1 else "\n  ".join(["errors:", *wrong])
        group, _, short = str(version).rpartition("/")
        raise ApiError.failed(
            f"failed to create typed patch object ({named}; {group}/{short}, "
            f"Kind={config.get('kind')}): {listed}"
        )


def _applied(
    live: Mapping[str, Any] | None,
    config: Mapping[str, Any],
    form: Form,
    writer: FieldManager,
    *,
    force: bool,
) -> JsonDict:
    before = dict(live or {})
    owners = read((before.get("metadata") or {}).get("managedFields"), trusted=True)
    if live is not None and not owners:
        # The object has no known owner: existing fields go to the owner "before-first-apply".
        more, _ = _compared({}, live, form)
        other = Owner.updater(BEFORE, writer.api_version, writer.subresource)
        owners = {other: OwnedFields(more, writer.api_version, writer.now)} if more else {}
    owner = Owner.applier(writer.manager, writer.subresource)
    last = owners.get(owner)
    fields = typed.field_set(_trackable(config), form)
    fields = _without_own(_without_reset(fields, writer))
    after = typed.merged(before, dict(config), form) if live is not None else _fresh(config)
    mine = OwnedFields(fields, writer.api_version, writer.now)
    if last is not None:
        after = _pruned(after, last.fields, [mine, *_others(owners, owner)], form)
    after = _with_own(after, before, config)
    more, less = _compared(before, after, form)
    more, less = _without_reset(more, writer), _without_reset(less, writer)
    left = _taken_over(owners, owner, more, less, force=force)
    if fields:
        # An apply that changes nothing leaves the time of its entry alone, or gives it none.
        kept = "" if last is None else last.time
        time = writer.now if live is None or more or less else kept
        left[owner] = OwnedFields(paths.ordered(fields), writer.api_version, time)
    metadata = dict(after.get("metadata") or {})
    metadata["managedFields"] = written(capped(left))
    after["metadata"] = metadata
    return after


def _fresh(config: Mapping[str, Any]) -> JsonDict:
    found = typed.merged(typed.MISSING, dict(config), Form.from_schema(None))
    return dict(found)


def _others(owners: Owners, owner: Owner) -> list[OwnedFields]:
    return [owned for other, owned in owners.items() if other != owner]


def _without_own(fields: FieldSet) -> FieldSet:
    """Return the set without the metadata itself, which has no owner."""
    below = {
        step: node for step, node in fields.get("f:metadata", {}).items() if step != paths.SELF
    }
    found = {step: node for step, node in fields.items() if step != "f:metadata"}
    return found | {"f:metadata": below} if below else found


def _with_own(after: Any, before: JsonDict, config: Mapping[str, Any]) -> JsonDict:
    """Return the object with the fields that have no owner, which are never pruned."""
    found = dict(after or {})
    for key in OWN:
        found[key] = config[key]
    metadata = dict(found.get("metadata") or {})
    for source in (config.get("metadata") or {}, before.get("metadata") or {}):
        for key in source.keys() & OWN_METADATA:
            if source[key] is not None:
                metadata[key] = source[key]
    # Preconditions of the config are kept, to be checked when the object is stored.
    version = (config.get("metadata") or {}).get("resourceVersion")
    if version:
        metadata["resourceVersion"] = version
    found["metadata"] = metadata
    return found


def _taken_over(
    owners: Owners, owner: Owner, more: FieldSet, less: FieldSet, *, force: bool
) -> Owners:
    """Return the other owners' sets after the change; ConflictError unless it may be forced."""
    conflicts: dict[str, list[str]] = {}
    left: Owners = {}
    for other, owned in owners.items():
        if other == owner:
            continue
        lost = paths.intersection(owned.fields, more) if more else {}
        if lost and not force:
            conflicts[other.shown(owned.api_version)] = list(paths.each(lost))
        fields = paths.difference(owned.fields, lost) if lost else owned.fields
        fields = paths.difference(fields, less) if less else fields
        if fields:
            left[other] = owned if fields is owned.fields else replace(owned, fields=fields)
    if conflicts:
        raise ConflictError(conflicts)
    return left


def _pruned(after: Any, last: FieldSet, owned: Sequence[OwnedFields], form: Form) -> Any:
    """Return the object without the fields that its applier dropped and that no other owner has."""
    fields = owned[0].fields
    if not paths.difference(last, fields):
        return after
    for other in owned[1:]:
        fields = paths.union(fields, other.fields)
    last = typed.with_named(last, form)
    everything = typed.with_named(typed.field_set(after, form), form)
    pruned = typed.reduced(after, last, form) or {}
    left = typed.with_named(typed.field_set(pruned, form), form)
    keep = paths.union(left, typed.with_named(fields, form))
    pruned = typed.reduced(after, paths.difference(everything, keep), form) or {}
    # Fields that were removed along with it, but never belonged to this applier, come back.
    left = typed.with_named(typed.field_set(pruned, form), form)
    gone = paths.intersection(paths.difference(everything, left), last)
    return typed.reduced(after, gone, form)


def _from_last_applied(conflict: ConflictError, live: Mapping[str, Any], form: Form) -> bool:
    """Return whether all conflicts are with what kubectl's client-side apply once wrote."""
    annotations = (live.get("metadata") or {}).get("annotations") or {}
    try:
        config = json.loads(annotations.get(LAST_APPLIED, ""))
    except ValueError:
        return False
    if not isinstance(config, dict) or next(typed.misfits(config, form), None):
        return False
    allowed = set(paths.each(typed.field_set(config, form)))
    return all(path in allowed for found in conflict.conflicts.values() for path in found)


def _keep_last_applied(result: JsonDict, config: Mapping[str, Any]) -> None:
    """Update the last-applied annotation, with which client-side apply will compare."""
    metadata = result["metadata"]
    annotations = metadata.get("annotations") or {}
    if LAST_APPLIED not in annotations:
        return
    text = json.dumps(_bare(config), sort_keys=True, separators=(",", ":"))
    result["metadata"] = metadata | {"annotations": annotations | {LAST_APPLIED: text + "\n"}}


def _bare(config: Mapping[str, Any]) -> JsonDict:
    metadata = dict(config.get("metadata") or {})
    metadata.pop("managedFields", None)
    annotations = dict(metadata.pop("annotations", None) or {})
    annotations.pop(LAST_APPLIED, None)
    if annotations:
        metadata["annotations"] = annotations
    return {**config, "metadata": metadata}
