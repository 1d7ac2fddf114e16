"""The authorization attributes of a request: what an authorizer is asked about it.

They are read from the route that the request takes, so that nothing is served that another reading
of the path was allowed to do.

Source: k8s.io/apiserver `endpoints/request` (RequestInfo), `endpoints/filters` (authorization).
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from dralab.api.kinds import Kinds
from dralab.api.status import ApiError
from dralab.apiserver.access.authorization.attributes import Attributes, Authorizer, forbidden
from dralab.apiserver.access.users import User
from dralab.apiserver.http.messages import HttpRequest
from dralab.apiserver.http.routing import (
    COLLECTION_VERBS,
    NAMESPACE_SUBRESOURCES,
    OBJECT_VERBS,
    SUBRESOURCE_VERBS,
    NoSuchGroup,
    Route,
    is_watch,
    leads_to_resource,
    query_of,
    route,
    segments_of,
)
from dralab.apiserver.verbs.state.selectors import exact_fields

# A WebSocket begins with a GET and does what a POST does.
STREAMS: Final = frozenset({"exec", "attach", "portforward"})


def check_route(authorizer: Authorizer, request: HttpRequest, route: Route, user: User) -> None:
    """Raise Forbidden where a user may not do what a request asks of a resource. ApiError."""
    wanted = request.wanted = of_route(request, route, user)
    check(authorizer, request, wanted)
    if wanted.verb == "get" and wanted.resource == "pods" and wanted.subresource in STREAMS:
        check(authorizer, request, replace(wanted, verb="create"))


def check_path(
    authorizer: Authorizer, request: HttpRequest, parts: Sequence[str], user: User
) -> None:
    """Raise Forbidden where a user may not use a path that leads to no resource. ApiError."""
    check(authorizer, request, of_path(request, parts, user))


def check(authorizer: Authorizer, request: HttpRequest, wanted: Attributes) -> None:
    """Raise Forbidden where something may not be done. ApiError."""
    decision = authorizer.authorize(wanted)
    if request.record is not None:
        request.record.decided(decision)
    if not decision.allowed:
        raise forbidden(wanted, decision)


def attributes_of(request: HttpRequest, kinds: Kinds, user: User) -> Attributes:
    """Return what a request wants to do, wherever its path leads."""
    if request.wanted is not None and request.wanted.user is user:
        return request.wanted
    parts = segments_of(request.path)
    if not leads_to_resource(parts):
        return of_path(request, parts, user)
    try:
        found = route(parts, kinds)
    except (ApiError, NoSuchGroup):
        return of_unknown(request, parts, user)
    return of_route(request, found, user)


def of_path(request: HttpRequest, parts: Sequence[str], user: User) -> Attributes:
    """Return what a request wants to do with a path that leads to no resource."""
    return Attributes(user=user, verb=request.method.lower(), path="/" + "/".join(parts))


def of_route(request: HttpRequest, route: Route, user: User) -> Attributes:
    """Return what a request wants to do with a resource."""
    kind, name, namespace = route.kind, route.name, route.namespace
    fields: tuple[tuple[str, str], ...] = ()
    if route.subresource:
        verb = SUBRESOURCE_VERBS.get("GET" if request.method == "HEAD" else request.method, "")
    elif name:
        verb = OBJECT_VERBS.get(request.method, "")
    elif (verb := COLLECTION_VERBS.get(request.method, "")) in {"list", "deletecollection"}:
        query = query_of(request.query)
        fields = exact_fields(query.get("fieldSelector", [""])[0])
        if verb == "list":
            verb = "watch" if is_watch(query) else verb
            name = dict(fields).get("metadata.name", "")
    if route.watch:
        verb = "watch"
    if kind.plural == "namespaces" and not kind.group and route.name:
        namespace = route.name  # rights in a namespace include the namespace itself
    return Attributes(
        user=user,
        verb=verb,
        group=kind.group,
        version=kind.version,
        resource=kind.plural,
        subresource=route.subresource,
        namespace=namespace,
        name=name,
        fields=fields,
    )


def check_unknown(
    authorizer: Authorizer, request: HttpRequest, parts: Sequence[str], user: User
) -> None:
    """Raise Forbidden for an unknown resource, NotFound if the user may do everything. ApiError."""
    check(authorizer, request, of_unknown(request, parts, user))


def of_unknown(request: HttpRequest, parts: Sequence[str], user: User) -> Attributes:
    """Return what a request wants to do with an unknown resource."""
    group, rest = ("", parts[1:]) if parts[0] == "api" else (parts[1], parts[2:])
    version, rest = rest[0], rest[1:]
    watch = rest[0] == "watch" and len(rest) > 1
    rest = rest[1:] if watch else rest
    namespace = ""
    if rest[0] == "namespaces" and len(rest) > 1:
        namespace = rest[1]
        if len(rest) > 2 and rest[2] not in NAMESPACE_SUBRESOURCES:
            rest = rest[2:]
    resource, name, subresource = (*rest[:3], "", "")[:3]
    verbs = SUBRESOURCE_VERBS if subresource else OBJECT_VERBS if name else COLLECTION_VERBS
    verb = "watch" if watch else verbs.get(request.method, "")
    if verb == "list" and is_watch(query_of(request.query)):
        verb = "watch"
    return Attributes(
        user=user,
        verb=verb,
        group=group,
        version=version,
        resource=resource,
        subresource=subresource,
        namespace=namespace,
        name=name,
    )
