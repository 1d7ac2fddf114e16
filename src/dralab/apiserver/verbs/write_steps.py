"""Steps that creating and updating share: admission reviews and the order of fields.

Source: k8s.io/apiserver `registry/rest`.
"""

from collections.abc import Sequence
from typing import Any, Final

from dralab.api import fields
from dralab.api.core.declared import as_tags_say
from dralab.api.fields import FieldError
from dralab.api.kinds import Kind
from dralab.api.resource.features import VALIDATION_TAGS
from dralab.api.status import ApiError
from dralab.apiserver.access.admission.chain import Operation, Review
from dralab.apiserver.verbs.state import typed_objects
from dralab.apiserver.verbs.state.context import Scope
from dralab.apiserver.verbs.state.options import DeleteOptions
from dralab.values.json_types import JsonDict

# Ways of writing about which webhooks and policies are asked by another review.
ASKED_BEFORE: Final = frozenset({"binding", "eviction", "scale"})


def review_of(
    scope: Scope,
    kind: Kind,
    operation: Operation,
    *,
    namespace: str,
    name: str,
    value: JsonDict | None,
    old: JsonDict | None,
    how: DeleteOptions | None = None,
    subresource: str = "",
    form: tuple[str, str, str] | None = None,
) -> Review:
    """Return the admission review of a write."""
    return Review(
        operation=operation,
        kind=kind,
        namespace=namespace if kind.namespaced else "",
        name=name,
        subresource=subresource,
        value=value,
        old=old,
        scope=scope,
        options=how or scope.options,
        form=form,
        # Of a binding others are asked when it is created.
        internal=scope.internal or (form is None and subresource in ASKED_BEFORE),
    )


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
    ordered |= {part: _sorted(value[part]) for part in sorted(value) if part != "metadata"}
    return ordered


def _sorted(value: Any) -> Any:
    """Return a value with the keys of all mappings in it sorted."""
    if isinstance(value, dict):
        return {key: _sorted(value[key]) for key in sorted(value)}
    if isinstance(value, list):
        return [_sorted(item) for item in value]
    return value


def invalid(scope: Scope, kind: Kind, name: str, errors: Sequence[FieldError]) -> ApiError:
    """Return the error for an object with these problems."""
    shown = scope.rules.strategy_of(kind).in_version(kind.version, kind.kind, errors)
    if VALIDATION_TAGS in scope.rules.features:
        told = (as_tags_say(kind.kind, each) for each in shown)
        shown = list({str(each): each for each in told}.values())
    # An event is one of the core group, by whichever group it came.
    group = "" if kind.hub == "events" else kind.group
    return fields.invalid(kind.kind, name, shown, group=group)
