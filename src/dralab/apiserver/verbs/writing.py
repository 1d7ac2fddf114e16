"""Updating and patching objects. Creating them is left to `creating`.

The order of the steps is upstream's: admission, then what the kind prepares, then validation,
then who owns which field, then the store. Source: k8s.io/apiserver `registry/rest`,
`registry/generic/registry/store.go`.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Final

import orjson

from dralab.api import fields, metadata
from dralab.api.core.metadata_checks import metadata_checks
from dralab.api.kinds import Kind
from dralab.api.resource.features import OWNERS_BY_INDEX
from dralab.api.status import ApiError
from dralab.apiserver.access.authorization.attributes import Attributes
from dralab.apiserver.storage import RevisionConflict, Stored
from dralab.apiserver.verbs import admission, deleting
from dralab.apiserver.verbs.admission import review_of
from dralab.apiserver.verbs.creating import (
    check_namespace,
    create,
    drop_repeated_owners,
    given_metadata,
    in_order,
    invalid,
)
from dralab.apiserver.verbs.empty_fields import (
    EmptyPlace,
    change_errors,
    holder_of,
    located,
    restored,
)
from dralab.apiserver.verbs.state import ownership, typed_objects
from dralab.apiserver.verbs.state.context import (
    Scope,
    conflict,
    key_of,
    metadata_of,
    raise_conflict,
    storage_key,
)
from dralab.objects.conditions import with_condition
from dralab.values.json_types import JsonDict
from dralab.values.records import dataclass


@dataclass(frozen=True, slots=True)
class SubresourceAccess:
    """Asks the authorizer for the user of a write to an object of a namespace."""

    scope: Scope
    kind: Kind
    namespace: str

    @property
    def verb(self) -> str:
        """The verb of the request."""
        return "patch" if self.scope.options.kind == "PatchOptions" else "update"

    @property
    def user_name(self) -> str:
        """The user's name."""
        return self.scope.user.name

    @property
    def user_extra(self) -> Mapping[str, tuple[str, ...]]:
        """What else is known of the user."""
        return self.scope.user.extra

    def refusal(self, verb: str, subresource: str, name: str) -> str:
        """Return the refusal of a subresource to the user; empty if it is allowed.

        Without a name it is asked for all objects of all namespaces.
        """
        wanted = Attributes(
            user=self.scope.user,
            verb=verb,
            group=self.kind.group,
            version=self.kind.version,
            resource=self.kind.plural,
            subresource=subresource,
            namespace=self.namespace if name else "",
            name=name,
        )
        try:
            self.scope.check_access(wanted)
        except ApiError as error:
            return error.message
        return ""


# Ways of writing that change what is wanted: a binding, for one, does not.
COUNTED = frozenset({"", "ephemeralcontainers", "resize", "scale"})
STRICTLY_COMPARED: Final = frozenset(
    {
        "admissionregistration.k8s.io/mutatingwebhookconfigurations",
        "admissionregistration.k8s.io/validatingwebhookconfigurations",
        "networking.k8s.io/networkpolicies",
    }
)
ROOT: Final = "/registry"  # of the keys of a real server
SYSTEM = ("uid", "creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds")


def update(
    scope: Scope, kind: Kind, value: JsonDict, name: str, namespace: str, *, subresource: str = ""
) -> tuple[Stored, bool]:
    """Replace an object, or its `subresource`; also return whether that created it."""
    meta = given_metadata(scope, kind, value)
    check_name(meta.get("name") or "", name)
    check_namespace(kind, meta, namespace)
    rules = scope.rules.strategy_of(kind)
    with scope.store.lock:
        live = scope.find(key_of(kind, namespace, name))
        if live is None:
            if rules.creates_on_update and not subresource:
                check_creation(scope, kind, name, namespace)
                return create(scope, kind, value, namespace), True
            raise ApiError.not_found(kind.plural, name, group=kind.group)
        value = typed_objects.decoded_change(scope, kind, value, live.value)
        scope.rules.default(kind, value)
        value = scope.rules.to_hub(kind, value, scope)
        drop_repeated_owners(scope, metadata_of(value))
        _check_identity(kind, live, meta, dry_run=scope.options.dry_run)
        return _replace(scope, kind, live, value, subresource=subresource), False


def _check_identity(kind: Kind, live: Stored, given: JsonDict, *, dry_run: bool) -> None:
    """Refuse to put an object in the place of another one. ApiError."""
    uid = live.value["metadata"]["uid"]
    if given.get("uid") in {None, "", uid}:
        return
    # As a real server's storage says it, its key included; a dry run does not get that far.
    key = storage_key(kind, live.key).removeprefix(ROOT if dry_run else "")
    raise ApiError.conflict(
        kind.plural,
        live.key.name,
        f"StorageError: invalid object, Code: 4, Key: {key}, "
        f"ResourceVersion: 0, AdditionalErrorMsg: Precondition failed: UID in precondition: "
        f"{given['uid']}, UID in object meta: {uid}",
        group=kind.group,
    )


def check_creation(scope: Scope, kind: Kind, name: str, namespace: str) -> None:
    """Refuse an update or an apply that creates, by a user who may not create. ApiError."""
    scope.check_access(
        Attributes(
            user=scope.user,
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
    scope: Scope,
    kind: Kind,
    name: str,
    namespace: str,
    edit: Callable[[JsonDict], JsonDict],
    *,
    subresource: str = "",
    typed: bool = False,
) -> Stored:
    """Change a stored object by a function of a copy of it, in the version of `kind`.

    `typed` says that what `edit` returns is in its typed form, as the stored object is.
    """
    with scope.store.lock:
        live = scope.live(kind, namespace, name)
        current = orjson.loads(live.encoded)
        if not scope.rules.is_hub(kind):
            current = scope.rules.from_hub(kind, current, scope)
        value = edit(current)
        if not typed:
            value = typed_objects.decoded_change(scope, kind, value, live.value)
        scope.rules.default(kind, value)
        value = scope.rules.to_hub(kind, value, scope)
        return _replace(scope, kind, live, value, subresource=subresource)


def set_condition(scope: Scope, kind: Kind, name: str, condition: JsonDict) -> None:
    """Set a condition in the status of an object of the cluster."""

    def edit(value: JsonDict) -> JsonDict:
        status = value.setdefault("status", {})
        before = status.get("conditions") or ()
        status["conditions"] = with_condition(before, condition, now=scope.context.now())
        return value

    change(scope, kind, name, "", edit, subresource="status")


def _replace(
    scope: Scope, kind: Kind, live: Stored, value: JsonDict, *, subresource: str
) -> Stored:
    """Put `value` (fresh, in the stored form, defaulted) in the place of `live`."""
    rules = scope.rules.strategy_of(kind)
    old = live.value
    old_meta = old["metadata"]
    meta = metadata_of(value)
    name = live.key.name
    _check_revision(kind, live, meta, unconditional=rules.unconditional)
    empties = located(value, scope.options.empties)
    fits = ownership.fits(scope, kind, value)
    value = _carried_over(scope, kind, value, old, subresource)
    with restored(value, empties, shown=True):
        ownership.updated(scope, kind, value, old, subresource=subresource)
    if not fits:
        value["metadata"].pop("managedFields", None)
    review = review_of(
        scope,
        kind,
        "UPDATE",
        namespace=live.key.namespace,
        name=name,
        value=value,
        old=old,
        subresource=subresource,
    )
    admission.admit(scope, review)
    if review.changed:
        value = review.value = _carried_over(scope, kind, value, old, subresource)
    drop_repeated_owners(scope, value["metadata"], admitted=True)
    if scope.options.gated:
        scope.rules.drop_gated(kind, value, old)
    if subresource == "status":
        rules.prepare_status(value, old, scope.context.now())
        labels = partial(scope.labels_of_namespace, live.key.namespace)
        errors = rules.place_problems(value, old, labels)
        if scope.context.authorizer is not None and not scope.user.is_superuser:
            writer = SubresourceAccess(scope, kind, live.key.namespace)
            errors += rules.status_access_problems(value, old, writer)
        errors += change_errors(value, empties, partial(rules.validate_status, value, old))
    elif subresource in {"", "scale"}:
        rules.prepare_update(value, old, scope.context.now())
        errors = change_errors(value, empties, partial(rules.validate_update, value, old))
    else:
        rules.prepare_part(subresource, value, old, scope.context.now())
        errors = rules.validate_part(subresource, value, old)
    meta = value["metadata"]
    counts = kind.generation and rules.counts and subresource in COUNTED
    if counts and (_wanted_changed(rules.counted, value, old) or _emptied(kind, value, empties)):
        meta["generation"] = old_meta.get("generation", 0) + 1
    errors = [
        *metadata.change_problems(
            meta,
            old_meta,
            metadata_checks(kind.group, kind.plural, subresource),
            owners_by_index=OWNERS_BY_INDEX in scope.rules.features,
        ),
        *errors,
    ]
    if errors:
        raise invalid(scope, kind, name, errors)
    scope.warnings += rules.warnings(value, old)
    admission.validate(scope, review)
    if kind.custom is not None:
        value = in_order(kind, scope, scope.rules.as_stored(kind, value))
    ownership.settled(value, old)
    if value == old:
        return live
    if scope.options.dry_run:
        return Stored(live.key, value, live.revision, live.created)
    if deleting.is_finished(kind, value):
        deleting.remove(scope, kind, live)
        # The writer who took the last finalizer away sees the object as it left it.
        return Stored(live.key, value, live.revision, live.created)
    scope.rules.foresee(kind, value, scope)
    try:
        stored = scope.store.update(live.key, value, expect=live.revision)
    except RevisionConflict as error:
        raise_conflict(kind, error)
    scope.context.stored(kind, old, stored.value)
    return stored


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
    scope: Scope, kind: Kind, value: JsonDict, old: JsonDict, subresource: str
) -> JsonDict:
    """Return the new object, with the parts that this path may not change from the old one."""
    rules = scope.rules.strategy_of(kind)
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
        return in_order(kind, scope, found)
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
    return in_order(kind, scope, value)


def _emptied(kind: Kind, value: JsonDict, empties: Sequence[EmptyPlace]) -> bool:
    """Return whether an empty list counts as a change: these kinds compare with Go's `reflect`."""
    return kind.hub in STRICTLY_COMPARED and any(
        place.path[0] != "metadata" and not (holder_of(value, place) or {}).get(str(place.path[-1]))
        for place in empties
    )


def _wanted_changed(counted: tuple[str, ...], new: JsonDict, old: JsonDict) -> bool:
    """Return whether anything but metadata and status differs."""
    for part in (*new, *old):
        if part in {"metadata", "status", "kind", "apiVersion"}:
            continue
        if new.get(part) != old.get(part):
            return True
    before, after = old["metadata"], new["metadata"]
    return any(before.get(part) != after.get(part) for part in counted)
