"""Reading: get, list and watch, with the rules of resourceVersion.

Source: k8s.io/apiserver `storage/cacher`, `storage/etcd3`; recorded answers of a real server.
"""

import base64
import binascii
import json
import string
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Final

import orjson

from dralab.api.kinds import Kind
from dralab.api.status import ApiError
from dralab.apiserver.access.scope import MustWait
from dralab.apiserver.storage import Compacted, FutureRevision, Key, Stored
from dralab.apiserver.storage.watching.interfaces import Watching
from dralab.apiserver.verbs.kinds.rules import Rules
from dralab.apiserver.verbs.state.context import Scope, key_of, revision_of, too_large
from dralab.apiserver.verbs.state.indexes import INDEXED
from dralab.apiserver.verbs.state.options import ListOptions, check_list_options
from dralab.apiserver.verbs.state.selectors import Selection, selection
from dralab.values.json_syntax import go_error
from dralab.values.json_types import JsonObject
from dralab.values.records import dataclass


@dataclass(frozen=True, slots=True)
class VersionedFilter:
    """Whether a stored object is selected in the version of `kind`.

    Equal filters share the work of a watch. An object that its webhook has not converted yet
    counts as selected: the answer then shows the error, and a client lists again.
    Source: k8s.io/apiextensions-apiserver `pkg/registry/customresource`
    (selectableFieldsFromObject), which selects after conversion.
    """

    rules: Rules
    kind: Kind
    fits: Callable[[JsonObject], bool]

    def __call__(self, stored: Stored) -> bool:
        """Return whether the object is selected."""
        try:
            value = self.rules.from_hub(self.kind, stored.value)
        except (ApiError, MustWait):
            return True
        return self.fits(value)

    def among(self, items: Sequence[Stored], scope: Scope) -> list[Stored]:
        """Return the selected objects, converted in one call. ApiError, MustWait."""
        self.rules.prepare(self.kind, items, scope)
        return [stored for stored in items if self(stored)]


def selection_of(scope: Scope, kind: Kind, labels: str, fields: str) -> Selection:
    """Return the selection of both selectors of a request. ApiError BadRequest."""
    found = selection(kind, labels, fields)
    if not found.by_version or found.fits is None or scope.rules.is_hub(kind):
        return found
    accepts = VersionedFilter(scope.rules, kind, found.fits)
    return replace(found, accepts=accepts, exact=None)


def among(chosen: Selection, items: Sequence[Stored], scope: Scope) -> Sequence[Stored]:
    """Return the selected objects. ApiError, MustWait."""
    match chosen.accepts:
        case None:
            return items
        case VersionedFilter() as versioned:
            return versioned.among(items, scope)
        case accepts:
            return [stored for stored in items if accepts(stored)]


EXPIRED = (
    "The provided continue parameter is too old to display a consistent list result. You can "
    "start a new list without the continue parameter, or use the continue token in this response "
    "to retrieve the remainder of the results. Continuing with the provided token results in an "
    "inconsistent list - objects that were created, modified, or deleted between the time the "
    "first chunk was returned and now may show up in the list."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ListPage:
    """The objects of a list as of `revision`; `cont` leads to the next page.

    `remaining` is None if a selector hides how many more there are. `damaged` are objects that
    belong to the collection and cannot be read: whether they match a selector is unknown.
    """

    items: Sequence[Stored]
    revision: int
    cont: str = ""
    remaining: int | None = None
    damaged: Sequence[Key] = ()


def not_converted(kind: Kind, stored: Stored) -> ApiError:
    """Return the error of a watch for an object that its webhook has not converted yet.

    A client that lists again gets it, or hears why the webhook could not convert it.
    """
    text = f"{stored.key.name} could not be converted to {kind.api_version} in time"
    return ApiError("InternalError", text, code=500)


def get(scope: Scope, kind: Kind, name: str, namespace: str, revision: str = "") -> Stored:
    """Return one object; a revision means at least as new as that."""
    at_least = revision_of(revision)
    if at_least and at_least > scope.store.revision:
        raise too_large(at_least, scope.store.revision)
    return scope.live(kind, namespace, name)


def list_page(scope: Scope, kind: Kind, namespace: str, options: ListOptions) -> ListPage:
    """Return a page of a collection; the first lists the damaged objects."""
    page = _readable_page(scope, kind, namespace, options)
    scope.context.metrics.listed(kind.hub, len(page.items))
    damaged = scope.store.damaged(kind.hub, namespace if kind.namespaced else "")
    return replace(page, damaged=damaged) if damaged and not options.cont else page


def _readable_page(scope: Scope, kind: Kind, namespace: str, options: ListOptions) -> ListPage:
    check_list_options(options, watch=False)
    chosen = selection_of(scope, kind, options.label_selector, options.field_selector)
    store, limit = scope.store, max(options.limit, 0) or None
    after: tuple[str, str] | None = None
    revision: int | None = None
    if options.cont:
        token = decode_token(options.cont, namespace, namespaced=kind.namespaced)
        if options.revision not in {"", "0"}:
            raise ApiError.bad_request(
                "specifying resource version is not allowed when using continue"
            )
        after = (token.namespace, token.name)
        revision = token.revision if token.revision > 0 else None
        if options.revision == "0":
            # A real server's cache answers, with everything that it has from there on.
            limit = revision = None
    else:
        asked = revision_of(options.revision, listing=True)
        if asked == 0:
            # Any state will do, and a real server's cache answers with everything it has.
            limit = None
        elif asked is not None:
            if asked > store.revision:
                raise too_large(asked, store.revision)
            if options.match == "Exact" or (not options.match and limit):
                revision = asked
    if chosen.name and kind.namespaced and namespace and revision is None and after is None:
        return _by_name(scope, kind, namespace, chosen.name, options)
    if revision is None and after is None:
        with store.lock:
            indexed = _indexed(scope, kind, namespace, chosen)
            if indexed is not None and (limit is None or len(indexed) <= limit):
                return ListPage(items=indexed, revision=store.revision)
    # What a webhook has to convert is not asked for while the store is locked.
    versioned = isinstance(chosen.accepts, VersionedFilter)
    try:
        found = store.list(
            kind.hub,
            namespace if kind.namespaced else "",
            revision=revision,
            after=after,
            limit=None if versioned else limit,
            where=None if versioned else chosen.accepts,
        )
    except FutureRevision as error:
        raise too_large(error.requested, error.current) from error
    except Compacted as error:
        raise _expired(after, namespace, error) from error
    if versioned:
        items = among(chosen, found.items, scope)
        found = replace(found, items=items[:limit], more=limit is not None and len(items) > limit)
    cont = ""
    if found.more and found.items:
        last = found.items[-1].key
        cont = encode_token(Continuation(found.revision, last.namespace, last.name), namespace)
    return ListPage(
        items=found.items,
        revision=found.revision,
        cont=cont,
        remaining=found.remaining if cont and chosen.empty else None,
    )


def is_indexed(kind: Kind, options: ListOptions) -> bool:
    """Return whether an index finds what a list selects."""
    chosen = selection(kind, options.label_selector, options.field_selector)
    if chosen.name:
        return True
    return (
        chosen.exact is not None
        and bool(chosen.exact[2])
        and chosen.exact[0] in INDEXED.get(kind.hub, ())
    )


def _indexed(scope: Scope, kind: Kind, namespace: str, chosen: Selection) -> list[Stored] | None:
    """Return the selected objects by an index; None if there is no index for it."""
    if chosen.exact is None or chosen.accepts is None:
        return None
    field, _, value = chosen.exact
    within = namespace if kind.namespaced else ""
    found = scope.context.indexes.candidates(kind.hub, field, value, within)
    return None if found is None else [each for each in found if chosen.accepts(each)]


def _by_name(scope: Scope, kind: Kind, namespace: str, name: str, options: ListOptions) -> ListPage:
    """Return the list of at most one object, without looking at the others."""
    chosen = selection_of(scope, kind, options.label_selector, options.field_selector)
    with scope.store.lock:
        found = scope.find(key_of(kind, namespace, name))
        revision = scope.store.revision
    items = among(chosen, [] if found is None else [found], scope)
    return ListPage(items=items, revision=revision)


def _expired(after: tuple[str, str] | None, namespace: str, error: Compacted) -> ApiError:
    if after is None:
        return ApiError("Expired", f"The resourceVersion for the provided list is too old: {error}")
    expired = ApiError("Expired", EXPIRED)
    token = Continuation(-1, *after)
    expired.list_continue = encode_token(token, namespace)
    return expired


def watch(
    scope: Scope, kind: Kind, namespace: str, options: ListOptions, *, name: str = ""
) -> Watching:
    """Return the scope of a watch; ApiError Expired if its revision is forgotten."""
    check_list_options(options, watch=True)
    chosen = selection_of(scope, kind, options.label_selector, options.field_selector)
    if name and chosen.name not in {"", name}:
        raise ApiError.bad_request("fieldSelector metadata.name doesn't match requested name")
    within = namespace if kind.namespaced else ""
    store = scope.store
    asked = revision_of(options.revision)
    initial: Sequence[Stored] = ()
    with store.lock:
        wants_state = options.send_initial_events
        if wants_state is None:
            wants_state = not asked
        since = store.revision
        if wants_state:
            if name:
                one = scope.find(key_of(kind, within, name))
                initial = () if one is None else (one,)
            else:
                indexed = _indexed(scope, kind, within, chosen)
                initial = store.list(kind.hub, within).items if indexed is None else indexed
        elif asked:
            since = asked
            try:
                store.changes(asked, kind.hub)
            except Compacted as error:
                raise ApiError(
                    "Expired", f"too old resource version: {asked} ({error.compacted})"
                ) from error
    # Outside of the lock; what changes from here on comes after `since`.
    initial = among(chosen, initial, scope)
    return Watching(
        resource=kind.hub,
        version=kind.version,
        namespace=within,
        name=name or chosen.name,
        accepts=chosen.accepts,
        exact=chosen.exact,
        initial=initial,
        # Without a revision, initial events are what a client means, and their end is marked
        # (`meta/internalversion`, SetListOptionsDefaults).
        initial_end=wants_state and options.bookmarks,
        since=since,
        bookmarks=options.bookmarks,
        timeout=options.timeout,
    )


VERSION = "meta.k8s.io/v1"


@dataclass(frozen=True, slots=True)
class Continuation:
    """Go on after (namespace, name), with the state as of `revision` (-1: as of now).

    Source of its token: k8s.io/apiserver `storage/continue.go`; clients treat it as opaque.
    """

    revision: int
    namespace: str
    name: str


ALPHABET: Final = frozenset(string.ascii_letters + string.digits + "-_")


def encode_token(token: Continuation, within: str) -> str:
    """Return the token; `within` is the namespace of the request, empty for all."""
    start = token.name if within or not token.namespace else f"{token.namespace}/{token.name}"
    text = json.dumps(
        {"v": VERSION, "rv": token.revision, "start": f"/{start}\0"}, separators=(",", ":")
    )
    return base64.urlsafe_b64encode(text.encode()).decode().rstrip("=")


def decode_token(text: str, within: str, *, namespaced: bool) -> Continuation:
    """Return the content of a token; ApiError (BadRequest) if it is not one."""
    plain = text.rstrip("=")  # the padding is left out, but some clients send it
    try:
        data = base64.b64decode(plain + "=" * (-len(plain) % 4), altchars=b"-_", validate=True)
    except (binascii.Error, ValueError) as error:
        raise _invalid(f"illegal base64 data at input byte {_wrong_byte(plain)}") from error
    try:
        found = orjson.loads(data)
    except orjson.JSONDecodeError as error:
        raise _invalid(go_error(data)) from error
    if not isinstance(found, dict) or found.get("v") != VERSION:
        raise ApiError.bad_request(
            "invalid continue token: continue key is not valid: server does not recognize this "
            f"encoded version {found.get('v') or '' if isinstance(found, dict) else ''}"
        )
    revision, start = found.get("rv"), found.get("start")
    if not isinstance(revision, int) or not isinstance(start, str) or not start:
        raise ApiError.bad_request(
            "invalid continue token: continue key is not valid: incorrect encoded start "
            "resourceVersion (version meta.k8s.io/v1)"
        )
    key = start.removeprefix("/").removesuffix("\0")
    if within or not namespaced:
        return Continuation(revision, within, key)
    namespace, _, name = key.partition("/")
    return Continuation(revision, namespace, name)


def _wrong_byte(text: str) -> int:
    """Return where Go stops reading base64 without padding: at an invalid or incomplete part."""
    for index, character in enumerate(text):
        if character not in ALPHABET:
            return index
    return len(text) - len(text) % 4


def _invalid(why: str) -> ApiError:
    return ApiError.bad_request(f"invalid continue token: continue key is not valid: {why}")
