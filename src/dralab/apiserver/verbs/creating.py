"""Creating objects.

The order of the steps is upstream's: admission, then what the kind prepares, then validation,
then who owns which field, then the store. Source: k8s.io/apiserver `registry/rest`,
`registry/generic/registry/store.go`.
"""

from collections.abc import Sequence
from functools import partial
from typing import Any, Final

from dralab.api import fields, metadata
from dralab.api.core.declared import as_tags_say
from dralab.api.core.metadata_checks import metadata_checks
from dralab.api.fields import FieldError
from dralab.api.kinds import Kind
from dralab.api.resource.features import OWNERS_BY_INDEX, VALIDATION_TAGS
from dralab.api.status import ApiError
from dralab.apiserver.access.scope import unreadable
from dralab.apiserver.storage import Damaged, Key, KeyExists, Stored
from dralab.apiserver.verbs import admission
from dralab.apiserver.verbs.admission import review_of
from dralab.apiserver.verbs.empty_fields import located, restored
from dralab.apiserver.verbs.state import ownership, typed_objects
from dralab.apiserver.verbs.state.context import Scope, key_of, metadata_of
from dralab.objects.metadata import is_deleting
from dralab.values import patches
from dralab.values.json_types import JsonDict

NAME_TRIES: Final = 8


def create(scope: Scope, kind: Kind, value: JsonDict, namespace: str = "") -> Stored:
    """Store a new object. `value` is in the version of `kind` and belongs to the server now."""
    # What admission checked (names, addresses, the namespace) still holds when it is stored.
    with scope.store.lock:
        return _created(scope, kind, value, namespace)


def _created(scope: Scope, kind: Kind, value: JsonDict, namespace: str) -> Stored:
    rules = scope.rules.strategy_of(kind)
    meta = given_metadata(scope, kind, value)
    check_namespace(kind, meta, namespace)
    value = typed_objects.decoded(scope, kind, value)
    if refusal := rules.creation_refusal():
        name = str(meta.get("name") or "")
        raise ApiError.forbidden(kind.plural, name, refusal, group=kind.group)
    scope.rules.default(kind, value)
    value = scope.rules.to_hub(kind, value, scope)
    empties = located(value, scope.options.empties)
    meta = metadata_of(value)
    for part in ("deletionTimestamp", "deletionGracePeriodSeconds", "selfLink"):
        meta.pop(part, None)
    drop_repeated_owners(scope, meta)
    name = meta.get("name") or ""
    # Fields set by admission and the kind's rules have no owner.
    now = scope.context.now()
    with restored(value, empties, shown=True):
        ownership.created(scope, kind, value, now=now)
    review = review_of(scope, kind, "CREATE", namespace=namespace, name=name, value=value, old=None)
    admission.admit(scope, review)
    if review.changed:
        meta = metadata_of(value)
        check_namespace(kind, meta, namespace)
        drop_repeated_owners(scope, meta, admitted=True)
    revision = meta.get("resourceVersion") or ""
    if kind.has_status and not rules.keeps_status:
        value["status"] = {}
    _new_metadata(scope, kind, value, namespace, now=now)
    scope.warnings += rules.creation_warnings(value)
    scope.warnings += scope.rules.inert_warnings(kind, value["metadata"].get("name", ""))
    if scope.options.gated:
        scope.rules.drop_gated(kind, value, None)
    rules.prepare_create(value, now)
    meta = value["metadata"]
    errors = rules.place_problems(value, None, partial(scope.labels_of_namespace, namespace))
    errors += metadata.problems(
        meta,
        namespaced=kind.namespaced,
        name_problems=rules.name_problems,
        prefixed=rules.prefixed,
        checks=metadata_checks(kind.group, kind.plural),
        owners_by_index=OWNERS_BY_INDEX in scope.rules.features,
    )
    if empties:  # errors show them, warnings do not
        with restored(value, empties):
            wrong = rules.validate(value)
        told = [] if wrong else rules.warnings(value)
    else:
        wrong, told = rules.judged(value)
    errors += wrong
    if errors:
        raise invalid(scope, kind, meta.get("name", ""), errors)
    scope.warnings += told
    review.name = meta["name"]
    admission.validate(scope, review)
    ordered = in_order(kind, scope, scope.rules.as_stored(kind, value))
    scope.rules.foresee(kind, ordered, scope)
    key = key_of(kind, namespace, meta["name"])
    if scope.options.dry_run:
        existing = scope.find(key)
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
    return _stored(scope, kind, key, ordered)


def create_as_is(scope: Scope, kind: Kind, value: JsonDict, namespace: str) -> Stored:
    """Store a new object that is known to be typed, complete and valid.

    `create` does the same with it in three times the time.
    """
    value["kind"], value["apiVersion"] = kind.kind, kind.api_version
    now = scope.context.now()
    ownership.created(scope, kind, value, now=now)
    rules = scope.rules.strategy_of(kind)
    if kind.has_status and not rules.keeps_status:
        value["status"] = {}
    _new_metadata(scope, kind, value, namespace, now=now)
    rules.prepare_create(value, now)
    key = key_of(kind, namespace, value["metadata"]["name"])
    return _stored(scope, kind, key, in_order(kind, scope, value))


def _stored(scope: Scope, kind: Kind, key: Key, value: JsonDict) -> Stored:
    try:
        stored = scope.store.create(key, value)
    except KeyExists as error:
        raise _exists(kind, error.current) from error
    except Damaged as error:
        raise unreadable(error) from error
    scope.context.stored(kind, None, stored.value)
    return stored


def _free_name(scope: Scope, kind: Kind, namespace: str, prefix: str) -> str:
    """Return a generated name that is free; after eight tries, one that may be taken."""
    name = ""
    for _ in range(NAME_TRIES):
        name = scope.context.generated_name(prefix)
        if scope.find(key_of(kind, namespace, name)) is None:
            break
    return name


def _exists(kind: Kind, current: Stored) -> ApiError:
    error = ApiError.already_exists(kind.plural, current.key.name, group=kind.group)
    if is_deleting(current.value):
        error.message = f"object is being deleted: {error.message}"
    return error


def _new_metadata(scope: Scope, kind: Kind, value: JsonDict, namespace: str, *, now: str) -> None:
    """Give a new object its identity; the parts in the order in which servers write them."""
    given = value["metadata"]
    meta: JsonDict = {}
    if name := given.pop("name", None):
        meta["name"] = name
    if prefix := given.pop("generateName", None):
        if not name:
            meta["name"] = _free_name(scope, kind, namespace, prefix)
        meta["generateName"] = prefix
    if kind.namespaced:
        meta["namespace"] = namespace
    meta["uid"] = scope.context.uid()
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


def given_metadata(scope: Scope, kind: Kind, value: JsonDict) -> JsonDict:
    """Return the metadata that a client sent, an empty one where it sent none."""
    given = value.get("metadata")
    if isinstance(given, dict):
        return given
    if given is not None:
        # It cannot be decoded: decoding reports that in its own words.
        value = typed_objects.decoded(scope, kind, value)
        raise typed_objects.unusable(kind, "metadata is not an object")
    meta: JsonDict = {}
    value["metadata"] = meta
    return meta


def check_namespace(kind: Kind, meta: JsonDict, namespace: str) -> None:
    """Refuse metadata that names another namespace than the request. ApiError."""
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


def drop_repeated_owners(scope: Scope, meta: JsonDict, *, admitted: bool = False) -> None:
    """Drop duplicate owners, with a warning; `admitted`: after admission."""
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
    scope.warnings.append(
        f".metadata.ownerReferences contains duplicate entries{when}; API server dedups owner "
        "references in 1.20+, and may reject such requests as early as 1.24; please fix your "
        f"requests; duplicate UID(s) observed: {', '.join(repeated)}"
    )


def in_order(kind: Kind, scope: Scope, value: JsonDict) -> JsonDict:
    """Return the object with kind and apiVersion first: lists cut them off by their length."""
    version, name = scope.rules.hub_type(kind)
    value.pop("kind", None)
    value.pop("apiVersion", None)
    ordered: JsonDict = {"kind": name, "apiVersion": version}
    if kind.custom is None:
        ordered.update(value)
        return ordered
    # A server written in Go has no structs for these, and writes the keys of maps sorted.
    if "metadata" in value:
        ordered["metadata"] = value["metadata"]
    ordered |= {part: patches.in_order(value[part]) for part in sorted(value) if part != "metadata"}
    return ordered


def invalid(scope: Scope, kind: Kind, name: str, errors: Sequence[FieldError]) -> ApiError:
    """Return the error for an object with these problems."""
    shown = scope.rules.strategy_of(kind).in_version(kind.version, kind.kind, errors)
    if VALIDATION_TAGS in scope.rules.features:
        told = (as_tags_say(kind.kind, each) for each in shown)
        shown = list({str(each): each for each in told}.values())
    # An event is one of the core group, by whichever group it came.
    group = "" if kind.hub == "events" else kind.group
    return fields.invalid(kind.kind, name, shown, group=group)
