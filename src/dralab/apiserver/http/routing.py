"""Paths and queries of the API: which kind, which object, which subresource, which verb."""

from typing import Final
from urllib.parse import parse_qs, unquote

from dralab.api.kinds import Kind, Kinds
from dralab.api.status import ApiError
from dralab.apiserver.verbs.state.options import Query
from dralab.values.records import dataclass
from dralab.values.remembering import remembered

NAMESPACE_SUBRESOURCES: Final = frozenset({"status", "finalize"})
NO_QUERY: Final[Query] = {}
COLLECTION_VERBS: Final = {
    "GET": "list",
    "POST": "create",
    "DELETE": "deletecollection",
}
OBJECT_VERBS: Final = {
    "GET": "get", "PUT": "update", "PATCH": "patch", "DELETE": "delete",
}  # fmt: skip
CREATED_ONLY: Final = ("create",)  # kinds that are answered and never stored
SUBRESOURCE_VERBS: Final = {**OBJECT_VERBS, "POST": "create"}


@dataclass(slots=True)
class Route:
    """A path below a group and version: `/api/v1/namespaces/default/pods/web/log`.

    `rest` is what follows the name of a subresource (for proxies). `watch` is set by the old
    paths below `/watch/`.
    """

    kind: Kind
    namespace: str = ""
    name: str = ""
    subresource: str = ""
    rest: str = ""
    watch: bool = False


class NoSuchGroup(Exception):  # noqa: N818 - an answer of its own: 404 in plain text
    """The path is below a group that is not served, or a custom resource's without a namespace."""


def not_found() -> ApiError:
    """Return the error for an unknown path below a served group."""
    return ApiError("NotFound", "the server could not find the requested resource", details={})


def without_namespace(kind: Kind) -> Exception:
    """Return the error for a request that needs a namespace and has none, or no name either.

    A custom resource's path without one is not known to whatever serves custom resources, except
    for lists (apiextensions-apiserver, customresource_handler.go).
    """
    return not_found() if kind.patches_strategically else NoSuchGroup(kind.group)


def segments_of(path: str) -> list[str]:
    """Return the parts of a path; a trailing slash is ignored."""
    parts = path.split("/")[1:]
    if parts and not parts[-1]:
        parts.pop()
    return [unquote(part) for part in parts] if "%" in path else parts


def leads_to_resource(parts: list[str]) -> bool:
    """Whether a path is below a group and version, so that `route` can read it."""
    depth = len(parts)
    return (depth > 2 and parts[0] == "api") or (depth > 3 and parts[0] == "apis")


def route(parts: list[str], kinds: Kinds) -> Route:
    """Return the route of a path that begins with `api` or `apis` and has a resource.

    ApiError NotFound for an unknown path, NoSuchGroup for an unknown group.
    """
    if parts[0] == "api":
        group, version, rest = "", parts[1], parts[2:]
    else:
        group, version, rest = parts[1], parts[2], parts[3:]
    watch = rest[0] == "watch" and len(rest) > 1
    if watch:
        rest = rest[1:]
    namespace, depth = "", len(rest)
    if (
        depth > 2
        and rest[0] == "namespaces"
        and (depth > 3 or rest[2] not in NAMESPACE_SUBRESOURCES)
    ):
        namespace, rest, depth = rest[1], rest[2:], depth - 2
        if not namespace:
            raise not_found()
    kind = kinds.get(group, version, rest[0])
    if kind is None:
        if kinds.is_left_to_others(group):
            raise NoSuchGroup(group)
        raise not_found()
    if namespace and not kind.namespaced:
        raise not_found()
    name = rest[1] if depth > 1 else ""
    if name and kind.verbs == CREATED_ONLY:
        raise not_found()
    if name and kind.namespaced and not namespace:
        raise without_namespace(kind)
    if depth < 3:
        return Route(kind, namespace, name, watch=watch)
    subresource = rest[2]
    if subresource and subresource not in kind.subresources:
        raise not_found()
    if depth > 3 and subresource != "proxy":
        raise not_found()
    return Route(kind, namespace, name, subresource, "/".join(rest[3:]), watch)


@remembered(4096, longest=2048)
def query_of(text: str) -> Query:
    """Return the parameters of a query; values are kept as lists."""
    return parse_qs(text, keep_blank_values=True) if text else NO_QUERY


def is_watch(query: Query) -> bool:
    """Return whether a list is to be a watch."""
    values = query.get("watch")
    return values is not None and values[0] != "0" and values[0].lower() != "false"
