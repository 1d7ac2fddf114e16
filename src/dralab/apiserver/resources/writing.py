"""Writing: create, update and patch.

The order of the steps is upstream's: admission, then what the kind prepares, then validation,
then who owns which field, then the store. Source: k8s.io/apiserver `registry/rest`,
`registry/generic/registry/store.go`.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final

import orjson

from dralab.api import fields, metadata
from dralab.api.core.metadata_checks import metadata_checks
from dralab.api.fields import FieldError
from dralab.api.kinds import Kind
from dralab.api.status import ApiError
from dralab.apiserver.admission.chain import Operation, Review
from dralab.apiserver.authorization.attributes import Attributes
from dralab.apiserver.resources import admission, deleting, ownership, typed_objects
from dralab.apiserver.resources.context import (
    Context,
    conflict,
    key_of,
    metadata_of,
    raise_conflict,
    storage_key,
    unreadable,
)
from dralab.apiserver.resources.empty_fields import (
    EmptyPlace,
    change_errors,
    holder_of,
    located,
    restored,
)
from dralab.apiserver.resources.options import WriteOptions
from dralab.apiserver.resources.subresource_access import SubresourceAccess
from dralab.apiserver.storage import Damaged, Key, KeyExists, RevisionConflict, Stored
from dralab.objects.metadata import is_deleting
from dralab.values.json_types import JsonDict

# What only the server writes; an update keeps the stored values.
NAME_TRIES = 8
# Ways of writing about which webhooks and policies are asked by another review.
ASKED_BEFORE: Final = frozenset({"binding", "eviction", "scale"})
# Ways of writing that change what is wanted: a binding, for one, does not.
COUNTED = frozenset({"", "ephemeralcontainers", "resize", "scale"})
STRICTLY_COMPARED: Final = frozenset(
    {
        "admissionregistration.k8s.io/mutatingwebhookconfigurations",
        "admissionregistration.k8s.io/validatingwebhookconfigurations",
        "networking.k8s.io/networkpolicies",
    }
)
SYSTEM = ("uid", "creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds")


def create(
    context: Context, kind: Kind, value: JsonDict, namespace: str, options: WriteOptions
) -> Stored:
    """Store a new object. `value` is in the version of `kind` and belongs to the server now."""
    rules = context.rules.strategy_of(kind)
    meta = _given_metadata(context, kind, value, options)
    _check_namespace(kind, meta, namespace)
    value = typed_objects.decoded(context, kind, value, options)
    if refusal := rules.creation_refusal():
        name = str(meta.get("name") or "")
        raise ApiError.forbidden(kind.plural, name, refusal, group=kind.group)
    context.rules.default(kind, value)
    value = context.rules.to_hub(kind, value)
    empties = located(value, options.empties)
    meta = metadata_of(value)
    for part in ("deletionTimestamp", "deletionGracePeriodSeconds", "selfLink"):
        meta.pop(part, None)
    _drop_repeated_owners(meta, options)
    name = meta.get("name") or ""
    # Fields set by admission and the kind's rules have no owner.
    now = context.now()
    with restored(value, empties, shown=True):
        ownership.created(context, kind, value, options, now=now)
    review = review_of(
        context,
        kind,
        "CREATE",
        namespace=namespace,
        name=name,
        value=value,
        old=None,
        options=options,
    )
    admission.admit(context, review)
    if review.changed:
        meta = metadata_of(value)
        _check_namespace(kind, meta, namespace)
        _drop_repeated_owners(meta, options, admitted=True)
    revision = meta.get("resourceVersion") or ""
    if kind.has_status and not rules.keeps_status:
        value["status"] = {}
    _new_metadata(context, kind, value, namespace, now=now)
    rules.prepare_create(value, now)
    meta = value["metadata"]
    errors = rules.place_problems(value, None, partial(context.labels_of_namespace, namespace))
    errors += metadata.problems(
        meta,
        namespaced=kind.namespaced,
        name_problems=rules.name_problems,
        prefixed=rules.prefixed,
        checks=metadata_checks(kind.group, kind.plural),
    )
    with restored(value, empties):
        errors += rules.validate(value)
    if errors:
        raise _invalid(context, kind, meta.get("name", ""), errors)
    options.warnings += rules.warnings(value)
    review.name = meta["name"]
    admission.validate(context, review)
    context.rules.foresee(kind, value)
    ordered = _ordered(kind, context, context.rules.as_stored(kind, value))
    key = key_of(kind, namespace, meta["name"])
    if options.dry_run:
        existing = context.find(key)
        if existing is not None:
            raise _exists(kind, existing)
        if revision:
            ordered["metadata"]["resourceVersion"] = revision
        else:
            del ordered["metadata"]["resourceVersion"]
        return Stored(key, ordered, 0, 0)
    if revision.isdecimal() and int(revision):
        # Found out by a real server's storage, which has no reason for it.
        raise ApiError.failed("resourceVersion should not be set on objects to be created")
    return _stored(context, kind, key, ordered)


def create_as_is(
    context: Context, kind: Kind, value: JsonDict, namespace: str, options: WriteOptions
) -> Stored:
    """Store a new object of ours, which is typed, complete and valid: none of that is looked at.

    `create` does the same with it in three times the time.
    """
    value["kind"], value["apiVersion"] = kind.kind, kind.api_version
    now = context.now()
    ownership.created(context, kind, value, options, now=now)
    rules = context.rules.strategy_of(kind)
    if kind.has_status and not rules.keeps_status:
        value["status"] = {}
    _new_metadata(context, kind, value, namespace, now=now)
    rules.prepare_create(value, now)
    key = key_of(kind, namespace, value["metadata"]["name"])
    return _stored(context, kind, key, _ordered(kind, context, value))


def _stored(context: Context, kind: Kind, key: Key, value: JsonDict) -> Stored:
    try:
        stored = context.store.create(key, value)
    except KeyExists as error:
        raise _exists(kind, error.current) from error
    except Damaged as error:
        raise unreadable(error) from error
    context.stored(kind, None, stored.value)
    return stored


def _free_name(context: Context, kind: Kind, namespace: str, prefix: str) -> str:
    """Return a generated name that is free; after eight tries, one that may be taken."""
    name = ""
    for _ in range(NAME_TRIES):
        name = context.generated_name(prefix)
        if context.find(key_of(kind, namespace, name)) is None:
            break
    return name


def _given_metadata(
    context: Context, kind: Kind, value: JsonDict, options: WriteOptions
) -> JsonDict:
    """Return the metadata that a client sent, an empty one where it sent none."""
    given = value.get("metadata")
    if isinstance(given, dict):
        return given
    if given is not None:
        # It cannot be decoded: decoding reports that in its own words.
        value = typed_objects.decoded(context, kind, value, options)
        raise typed_objects.unusable(kind, "metadata is not an object")
    meta: JsonDict = {}
    value["metadata"] = meta
    return meta


def _check_namespace(kind: Kind, meta: JsonDict, namespace: str) -> None:
    given = meta.get("namespace") or ""
    if not isinstance(given, str):
        return  # decoding tells of it
    if not kind.namespaced:
        meta.pop("namespace", None)
        return
    if given and given != namespace:
        raise ApiError.bad_request(
            "the namespace of the provided object does not match the namespace sent on the request"
        )
    meta["namespace"] = namespace


def _drop_repeated_owners(meta: JsonDict, options: WriteOptions, *, admitted: bool = False) -> None:
    """Drop owners that are there twice, with a warning; `admitted` says that admission is over."""
    owners = meta.get("ownerReferences") or ()
    if len(owners) < 2:
        return
    kept: list[JsonDict] = []
    repeated: list[str] = []
    seen: set[frozenset[tuple[str, Any]]] = set()
    for owner in owners:
        key = frozenset(owner.items())  # in its typed form: no part has parts of its own
        if key in seen:
            repeated.append(owner.get("uid") or "")
        else:
            seen.add(key)
            kept.append(owner)
    if not repeated:
        return
    meta["ownerReferences"] = kept
    when = " after mutating admission happens" if admitted else ""
    options.warnings.append(
        f".metadata.ownerReferences contains duplicate entries{when}; API server dedups owner "
        "references in 1.20+, and may reject such requests as early as 1.24; please fix your "
        f"requests; duplicate UID(s) observed: {', '.join(repeated)}"
    )


def _exists(kind: Kind, current: Stored) -> ApiError:
    error = ApiError.already_exists(kind.plural, current.key.name, group=kind.group)
    if is_deleting(current.value):
        error.message = f"object is being deleted: {error.message}"
    return error


def _new_metadata(
    context: Context, kind: Kind, value: JsonDict, namespace: str, *, now: str
) -> None:
    """Give a new object its identity; the parts in the order in which servers write them."""
    given = value["metadata"]
    meta: JsonDict = {}
    if name := given.pop("name", None):
        meta["name"] = name
    if prefix := given.pop("generateName", None):
        if not name:
            meta["name"] = _free_name(context, kind, namespace, prefix)
        meta["generateName"] = prefix
    if kind.namespaced:
        meta["namespace"] = namespace
    meta["uid"] = context.uid()
    meta["resourceVersion"] = ""
    if kind.generation:
        meta["generation"] = 1
    elif generation := given.get("generation"):
        meta["generation"] = generation
    meta["creationTimestamp"] = now
    for part in ("namespace", "uid", "resourceVersion", "generation", "creationTimestamp"):
        given.pop(part, None)
    meta.update(given)
    value["metadata"] = meta


def _ordered(kind: Kind, context: Context, value: JsonDict) -> JsonDict:
    """Return the object with kind and apiVersion first: lists cut them off by their length."""
    version, name = context.rules.hub_type(kind)
    value.pop("kind", None)
    value.pop("apiVersion", None)
    ordered: JsonDict = {"kind": name, "apiVersion": version}
    if kind.custom is None:
        ordered.update(value)
        return ordered
    # A server written in Go has no structs for these, and writes the keys of maps sorted.
    if "metadata" in value:
        ordered["metadata"] = value["metadata"]
    ordered |= {part: _sorted(value[part]) for part in sorted(value) if part != "metadata"}
    return ordered


def _sorted(value: Any) -> Any:
    """Return a value with the keys of all mappings in it sorted."""
    if isinstance(value, dict):
        return {key: _sorted(value[key]) for key in sorted(value)}
    if isinstance(value, list):
        return [_sorted(item) for item in value]
    return value


def review_of(
    context: Context,
    kind: Kind,
    operation: Operation,
    *,
    namespace: str,
    name: str,
    value: JsonDict | None,
    old: JsonDict | None,
    options: WriteOptions,
    subresource: str = "",
) -> Review:
    """Return what admission is asked about a write."""
    return Review(
        operation=operation,
        kind=kind,
        namespace=namespace if kind.namespaced else "",
        name=name,
        subresource=subresource,
        value=value,
        old=old,
        user=options.user,
        dry_run=options.dry_run,
        find=context.find,
        all_of=context.all_of,
        count_of=context.store.count,
        warnings=options.warnings,
        annotate=options.annotate,
        options=lambda: options.told(operation),
        put=context.put,
        may_wait=context.may_wait,
        deadline=context.deadline,
        # Of a binding others are asked when it is created.
        internal=options.internal or subresource in ASKED_BEFORE,
    )


def update(
    context: Context,
    kind: Kind,
    value: JsonDict,
    name: str,
    namespace: str,
    *,
    options: WriteOptions,
    subresource: str = "",
) -> tuple[Stored, bool]:
    """Replace an object, or its `subresource`; also return whether that created it."""
    meta = _given_metadata(context, kind, value, options)
    check_name(meta.get("name") or "", name)
    _check_namespace(kind, meta, namespace)
    rules = context.rules.strategy_of(kind)
    with context.store.lock:
        live = context.find(key_of(kind, namespace, name))
        if live is None:
            if rules.creates_on_update and not subresource:
                check_creation(context, kind, name, namespace, options)
                return create(context, kind, value, namespace, options), True
            raise ApiError.not_found(kind.plural, name, group=kind.group)
        value = typed_objects.decoded_change(context, kind, value, live.value, options)
        context.rules.default(kind, value)
        value = context.rules.to_hub(kind, value)
        _drop_repeated_owners(metadata_of(value), options)
        _check_identity(kind, live, meta)
        return _replace(context, kind, live, value, options, subresource=subresource), False


def _check_identity(kind: Kind, live: Stored, given: JsonDict) -> None:
    """Refuse to put an object in the place of another one. ApiError."""
    uid = live.value["metadata"]["uid"]
    if given.get("uid") in {None, "", uid}:
        return
    raise ApiError.conflict(
        kind.plural,
        live.key.name,
        # As a real server's storage says it, its key included.
        f"StorageError: invalid object, Code: 4, Key: {storage_key(kind, live.key)}, "
        f"ResourceVersion: 0, AdditionalErrorMsg: Precondition failed: UID in precondition: "
        f"{given['uid']}, UID in object meta: {uid}",
        group=kind.group,
    )


def check_creation(
    context: Context, kind: Kind, name: str, namespace: str, options: WriteOptions
) -> None:
    """Refuse an update or an apply that creates, by a user who may not create. ApiError."""
    context.check_access(
        Attributes(
            user=options.user,
            verb="create",
            group=kind.group,
            version=kind.version,
            resource=kind.plural,
            namespace=namespace if kind.namespaced else "",
            name=name,
        )
    )


def check_name(given: str, name: str) -> None:
    """Refuse an object with another name than that of the path. ApiError."""
    if not given:
        why = "was undeterminable: name must be provided"
        raise ApiError.bad_request(f"the name of the object ({name} based on URL) {why}")
    if given != name:
        raise ApiError.bad_request(
            f"the name of the object ({given}) does not match the name on the URL ({name})"
        )


def change(
    context: Context,
    kind: Kind,
    name: str,
    namespace: str,
    edit: Callable[[JsonDict], JsonDict],
    *,
    options: WriteOptions,
    subresource: str = "",
    typed: bool = False,
) -> Stored:
    """Change a stored object by a function of a copy of it, in the version of `kind`.

    `typed` says that what `edit` returns is in its typed form, as the stored object is.
    """
    with context.store.lock:
        live = context.live(kind, namespace, name)
        current = orjson.loads(live.encoded)
        if not context.rules.is_hub(kind):
            current = context.rules.from_hub(kind, current)
        value = edit(current)
        if not typed:
            value = typed_objects.decoded_change(context, kind, value, live.value, options)
        context.rules.default(kind, value)
        value = context.rules.to_hub(kind, value)
        return _replace(context, kind, live, value, options, subresource=subresource)


def _replace(
    context: Context,
    kind: Kind,
    live: Stored,
    value: JsonDict,
    options: WriteOptions,
    *,
    subresource: str,
) -> Stored:
    """Put `value` (fresh, in the stored form, defaulted) in the place of `live`."""
    rules = context.rules.strategy_of(kind)
    old = live.value
    old_meta = old["metadata"]
    meta = metadata_of(value)
    name = live.key.name
    _check_revision(kind, live, meta, unconditional=rules.unconditional)
    empties = located(value, options.empties)
    fits = ownership.fits(context, kind, value)
    value = _carried_over(context, kind, value, old, subresource)
    with restored(value, empties, shown=True):
        ownership.updated(context, kind, value, old, options, subresource=subresource)
    if not fits:
        value["metadata"].pop("managedFields", None)
    review = review_of(
        context,
        kind,
        "UPDATE",
        namespace=live.key.namespace,
        name=name,
        value=value,
        old=old,
        options=options,
        subresource=subresource,
    )
    admission.admit(context, review)
    if review.changed:
        value = review.value = _carried_over(context, kind, value, old, subresource)
    _drop_repeated_owners(value["metadata"], options, admitted=True)
    if subresource == "status":
        rules.prepare_status(value, old, context.now())
        labels = partial(context.labels_of_namespace, live.key.namespace)
        errors = rules.place_problems(value, old, labels)
        if context.authorizer is not None and not options.user.is_superuser:
            writer = SubresourceAccess(context.authorizer, kind, live.key.namespace, options)
            errors += rules.status_access_problems(value, old, writer)
        errors += change_errors(value, empties, partial(rules.validate_status, value, old))
    elif subresource in {"", "scale"}:
        rules.prepare_update(value, old, context.now())
        errors = change_errors(value, empties, partial(rules.validate_update, value, old))
    else:
        rules.prepare_part(subresource, value, old, context.now())
        errors = rules.validate_part(subresource, value, old)
    meta = value["metadata"]
    counts = kind.generation and rules.counts and subresource in COUNTED
    if counts and (_wanted_changed(rules.counted, value, old) or _emptied(kind, value, empties)):
        meta["generation"] = old_meta.get("generation", 0) + 1
    errors = [
        *metadata.change_problems(
            meta, old_meta, metadata_checks(kind.group, kind.plural, subresource)
        ),
        *errors,
    ]
    if errors:
        raise _invalid(context, kind, name, errors)
    options.warnings += rules.warnings(value, old)
    admission.validate(context, review)
    if kind.custom is not None:
        value = _ordered(kind, context, context.rules.as_stored(kind, value))
    ownership.settled(value, old)
    if value == old:
        return live
    if options.dry_run:
        return Stored(live.key, value, live.revision, live.created)
    if deleting.is_finished(kind, value):
        deleting.remove(context, kind, live)
        # The writer who took the last finalizer away sees the object as it left it.
        return Stored(live.key, value, live.revision, live.created)
    context.rules.foresee(kind, value)
    try:
        stored = context.store.update(live.key, value, expect=live.revision)
    except RevisionConflict as error:
        raise_conflict(kind, error)
    context.stored(kind, old, stored.value)
    return stored


def _invalid(context: Context, kind: Kind, name: str, errors: Sequence[FieldError]) -> ApiError:
    shown = context.rules.strategy_of(kind).in_version(kind.version, kind.kind, errors)
    # An event is one of the core group, by whichever group it came.
    group = "" if kind.hub == "events" else kind.group
    return fields.invalid(kind.kind, name, shown, group=group)


def _check_revision(kind: Kind, live: Stored, meta: JsonDict, *, unconditional: bool) -> None:
    given = meta.get("resourceVersion")
    if not given or given == "0":
        if not unconditional:
            errors = [
                fields.invalid_value(
                    "metadata.resourceVersion", 0, "must be specified for an update"
                )
            ]
            raise fields.invalid(kind.plural, live.key.name, errors, group=kind.group)
    elif not given.isdecimal():
        raise ApiError.failed(f'strconv.ParseUint: parsing "{given}": invalid syntax')
    elif given != str(live.revision):
        raise conflict(kind, live.key.name)


def _carried_over(
    context: Context, kind: Kind, value: JsonDict, old: JsonDict, subresource: str
) -> JsonDict:
    """Return the new object with what this path may not change taken from the old one."""
    rules = context.rules.strategy_of(kind)
    given, before = value["metadata"], old["metadata"]
    if subresource == "status":
        meta = {
            part: item
            for part, item in before.items()
            if part not in rules.status_keeps and part != "managedFields"
        }
        meta |= {
            part: given[part] for part in (*rules.status_keeps, "managedFields") if part in given
        }
        found = {part: item for part, item in old.items() if part not in {"metadata", "status"}}
        meta["uid"] = given.get("uid") or before["uid"]  # another one is refused
        found["metadata"] = meta
        if "status" in value:
            found["status"] = value["status"]
        return _ordered(kind, context, found)
    meta = {"name": before["name"]}
    if prefix := given.get("generateName"):
        meta["generateName"] = prefix
    if kind.namespaced:
        meta["namespace"] = before["namespace"]
    meta["uid"] = given.get("uid") or before["uid"]  # another one is refused
    meta["resourceVersion"] = before["resourceVersion"]
    if "generation" in before:
        meta["generation"] = before["generation"]
    for part in SYSTEM[1:]:
        if part in before:
            meta[part] = before[part]
        elif given.get(part) is not None:
            meta[part] = given[part]  # which is refused
    known = {*meta, *SYSTEM, "generation", "selfLink", "generateName", "namespace"}
    meta |= {part: item for part, item in given.items() if part not in known}
    value["metadata"] = meta
    if kind.has_status and not subresource:
        value.pop("status", None)
        if "status" in old:
            value["status"] = old["status"]
    return _ordered(kind, context, value)


def _emptied(kind: Kind, value: JsonDict, empties: Sequence[EmptyPlace]) -> bool:
    """Return whether an empty list counts as a change: these kinds compare with Go's `reflect`."""
    return kind.hub in STRICTLY_COMPARED and any(
        place.path[0] != "metadata" and not (holder_of(value, place) or {}).get(str(place.path[-1]))
        for place in empties
    )


def _wanted_changed(counted: tuple[str, ...], new: JsonDict, old: JsonDict) -> bool:
    """Return whether anything but metadata and status is different."""
    for part in (*new, *old):
        if part in {"metadata", "status", "kind", "apiVersion"}:
            continue
        if new.get(part) != old.get(part):
            return True
    before, after = old["metadata"], new["metadata"]
    return any(before.get(part) != after.get(part) for part in counted)
