"""Reading: get, list and watch, with the rules of resourceVersion.

Source: k8s.io/apiserver `storage/cacher`, `storage/etcd3`; recorded answers of a real server.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from dralab.api.kinds import Kind
from dralab.api.status import ApiError
from dralab.apiserver.storage import Compacted, FutureRevision, Key, Stored
from dralab.apiserver.verbs import continuation
from dralab.apiserver.verbs.state.context import Scope, key_of, revision_of, too_large
from dralab.apiserver.verbs.state.indexes import INDEXED
from dralab.apiserver.verbs.state.options import ListOptions, check_list_options
from dralab.apiserver.verbs.state.selectors import Selection, selection
from dralab.apiserver.verbs.state.versioned_selection import VersionedFilter, among, selection_of
from dralab.apiserver.verbs.watches import Watching

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
        token = continuation.decode(options.cont, namespace, namespaced=kind.namespaced)
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
        cont = continuation.encode(
            continuation.Continuation(found.revision, last.namespace, last.name), namespace
        )
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
    token = continuation.Continuation(-1, *after)
    expired.list_continue = continuation.encode(token, namespace)
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
