"""The paths of a document: the operations of each kind, and their parameters."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from dralab.api.kinds import Kind, Subresource
from dralab.apiserver.http.openapi.components import (
    DELETE_OPTIONS,
    PATCH,
    STATUS,
    WATCH_EVENT,
    Components,
)

JSON_TYPES: Final = ("application/json", "application/yaml")
PATCH_TYPES: Final = (
    "application/apply-patch+yaml",
    "application/json-patch+json",
    "application/merge-patch+json",
    "application/strategic-merge-patch+json",
)
# name: (type, what it is for)
PARAMETERS: Final[Mapping[str, tuple[str, str]]] = {
    "allowWatchBookmarks": ("boolean", "Send bookmarks on a watch."),
    "continue": ("string", "Where to continue the list, from the previous response."),
    "dryRun": ("string", "All: do everything except storing the object."),
    "fieldManager": ("string", "The name of the client that makes the change."),
    "fieldSelector": ("string", "Restricts the list of returned objects by their fields."),
    "fieldValidation": (
        "string",
        "What to do about unknown and duplicate fields: Ignore, Warn or Strict.",
    ),
    "force": ("boolean", "Take fields from their owners; only for server-side apply."),
    "gracePeriodSeconds": ("integer", "The grace period for deletion."),
    "labelSelector": ("string", "Restricts the list of returned objects by their labels."),
    "limit": ("integer", "The maximum number of items."),
    "orphanDependents": ("boolean", "Deprecated: use propagationPolicy."),
    "pretty": ("string", "Ignored."),
    "propagationPolicy": ("string", "What happens to dependents: Orphan, Background, Foreground."),
    "resourceVersion": ("string", "The resource version to read."),
    "resourceVersionMatch": ("string", "How to interpret resourceVersion."),
    "sendInitialEvents": ("boolean", "Begin a watch with the current objects."),
    "timeoutSeconds": ("integer", "When to end a watch."),
    "watch": ("boolean", "Watch for changes to the described resources, instead of a list."),
}
LISTING: Final = (
    "allowWatchBookmarks",
    "continue",
    "fieldSelector",
    "labelSelector",
    "limit",
    "resourceVersion",
    "resourceVersionMatch",
    "sendInitialEvents",
    "timeoutSeconds",
    "watch",
)
WRITING: Final = ("dryRun", "fieldManager", "fieldValidation")
DELETING: Final = ("dryRun", "gracePeriodSeconds", "orphanDependents", "propagationPolicy")
# verb: (method, action, query parameters)
COLLECTION: Final = {
    "list": ("get", "list", LISTING),
    "create": ("post", "post", WRITING),
    "deletecollection": ("delete", "deletecollection", (*DELETING, *LISTING[:-1])),
}
OBJECT: Final = {
    "get": ("get", "get", ("resourceVersion",)),
    "update": ("put", "put", WRITING),
    "patch": ("patch", "patch", (*WRITING, "force")),
    "delete": ("delete", "delete", DELETING),
}
WATCHES: Final = {
    "list": ("get", "watchlist", LISTING),
    "get": ("get", "watch", LISTING),
}
SUBRESOURCE: Final = {
    "create": ("post", "connect", WRITING),
    "get": ("get", "get", ()),
    "update": ("put", "put", WRITING),
    "patch": ("patch", "patch", (*WRITING, "force")),
}

Verbs = Mapping[str, tuple[str, str, Sequence[str]]]


class Operations:
    """Makes the paths of kinds; `version` is that of OpenAPI: 2 or 3."""

    def __init__(self, components: Components, version: int) -> None:
        self.components = components
        self.version = version
        self.paths: dict[str, Any] = {}

    def add_paths(self, kind: Kind) -> None:
        """Add all paths of a kind."""
        name = self.components.add_kind(kind)
        listed = f"{name}List"
        within = "/namespaces/{namespace}" if kind.namespaced else ""
        collection = f"{kind.path}{within}/{kind.plural}"
        self._path(collection, kind, kind.verbs, COLLECTION, body=name, listed=listed)
        self._path(collection + "/{name}", kind, kind.verbs, OBJECT, body=name)
        if kind.namespaced and "list" in kind.verbs:
            everywhere = {"list": COLLECTION["list"]}
            self._path(f"{kind.path}/{kind.plural}", kind, ("list",), everywhere, listed=listed)
        for sub in kind.subresources.values():
            path = f"{collection}/{{name}}/{sub.name}"
            self._subresource(path, kind, sub, name)
            if sub.name == "proxy":
                self._subresource(f"{path}/{{path}}", kind, sub, name)
        if kind.custom is None and "watch" in kind.verbs:
            self._watches(kind, within)

    def add_page(self, path: str, name: str = "") -> None:
        """Add a page that is not about objects; `name` is the definition of what it answers."""
        if name:
            self.components.add_definitions(name)
        answer = self._answers(name, created=False)
        self.paths[path] = {"get": {"operationId": operation_id("get", path), "responses": answer}}

    def _watches(self, kind: Kind, within: str) -> None:
        """Add the paths below `watch/`, which are older than the parameter of that name."""
        root = kind.path + "/watch"
        places = {f"{root}{within}/{kind.plural}": "list"}
        places[f"{root}{within}/{kind.plural}/{{name}}"] = "get"
        if kind.namespaced:
            places[f"{root}/{kind.plural}"] = "list"
        self.components.add_definitions(WATCH_EVENT)
        for path, verb in places.items():
            self._path(path, kind, (verb,), WATCHES, body=WATCH_EVENT)

    def _subresource(self, path: str, kind: Kind, sub: Subresource, parent: str) -> None:
        group = sub.group or kind.group
        version = sub.version or kind.version
        api_version = f"{group}/{version}" if group else version
        own = sub.kind == kind.kind
        name = parent if own else self.components.add_type(api_version, sub.kind)
        type_ = {"group": group, "kind": sub.kind, "version": version}
        self._path(path, kind, sub.verbs, SUBRESOURCE, body=name or STATUS, type_=type_)

    def _path(
        self,
        path: str,
        kind: Kind,
        verbs: Sequence[str],
        table: Verbs,
        *,
        body: str = STATUS,
        listed: str = "",
        type_: Mapping[str, str] | None = None,
    ) -> None:
        found: dict[str, Any] = {}
        shown = dict(type_ or {"group": kind.group, "kind": kind.kind, "version": kind.version})
        for verb in verbs:
            if verb not in table:
                continue
            method, action, parameters = table[verb]
            operation: dict[str, Any] = {
                "operationId": operation_id(method, path),
                "tags": [f"{kind.group.partition('.')[0] or 'core'}_{kind.version}"],
                "x-kubernetes-action": action,
                "x-kubernetes-group-version-kind": shown,
                "parameters": [self._parameter(name) for name in parameters],
            }
            answer = listed if verb == "list" and listed in self.components.schemas else body
            if verb in {"delete", "deletecollection"}:
                self.components.add_definitions(DELETE_OPTIONS, STATUS)
                self._body(operation, DELETE_OPTIONS, JSON_TYPES[:1], required=False)
                answer = STATUS
            elif verb == "patch":
                self.components.add_definitions(PATCH)
                # Custom resources know no strategic merge: kubectl reads that here.
                types = PATCH_TYPES if kind.patches_strategically else PATCH_TYPES[:3]
                self._body(operation, PATCH, types)
            elif verb in {"create", "update"}:
                self._body(operation, body, JSON_TYPES[:1])
            if not operation["parameters"]:
                del operation["parameters"]  # as Go writes it, so that documents round-trip
            operation["responses"] = self._answers(answer, created=verb == "create")
            found[method] = operation
        if found:
            places = [place for place in ("namespace", "name", "path") if f"{{{place}}}" in path]
            if places:
                found["parameters"] = [self._place(place) for place in places]
            self.paths[path] = found

    def _parameter(self, name: str) -> dict[str, Any]:
        type_, text = PARAMETERS[name]
        found: dict[str, Any] = {"name": name, "in": "query", "description": text}
        if self.version == 2:
            return found | {"type": type_, "uniqueItems": True}
        return found | {"schema": {"type": type_, "uniqueItems": True}}

    def _place(self, name: str) -> dict[str, Any]:
        found: dict[str, Any] = {"name": name, "in": "path", "required": True}
        found["description"] = f"The {name} of the object."
        if self.version == 2:
            return found | {"type": "string", "uniqueItems": True}
        return found | {"schema": {"type": "string", "uniqueItems": True}}

    def _body(
        self,
        operation: dict[str, Any],
        name: str,
        types: Sequence[str],
        *,
        required: bool = True,
    ) -> None:
        schema = self.components.reference(name)
        if self.version == 2:
            body = {"name": "body", "in": "body", "required": required, "schema": schema}
            operation["parameters"].append(body)
            operation["consumes"] = list(types)
            return
        content = {type_: {"schema": schema} for type_ in types}
        operation["requestBody"] = {"content": content} | ({"required": True} if required else {})

    def _answers(self, name: str, *, created: bool) -> dict[str, Any]:
        if name == STATUS:
            self.components.add_definitions(STATUS)
        schema = self.components.reference(name) if name else {"type": "string"}
        if self.version == 2:
            answer: dict[str, Any] = {"description": "OK", "schema": schema}
        else:
            content = {type_: {"schema": schema} for type_ in JSON_TYPES}
            answer = {"description": "OK", "content": content}
        found = {"200": answer, "401": {"description": "Unauthorized"}}
        return found | ({"201": {**answer, "description": "Created"}} if created else {})


def operation_id(method: str, path: str) -> str:
    """Return a name that no other operation has.

    >>> operation_id("get", "/api/v1/namespaces/{namespace}/pods/{name}")
    'getApiV1NamespacesNamespacePodsName'
    """
    parts = path.replace("{", "").replace("}", "").replace(".", "/").replace("-", "/").split("/")
    return method + "".join(part[:1].upper() + part[1:] for part in parts)
