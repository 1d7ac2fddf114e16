"""Requests for resources: from method, query and body to the verbs, and the answers.

`application` authenticates, authorizes and routes; `resources` implements the verbs.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Final

import orjson

from dralab.api.resource.features import WATCH_LIST
from dralab.api.status import ApiError
from dralab.apiserver.access.users import User
from dralab.apiserver.http import weighing
from dralab.apiserver.http.encodings import bodies
from dralab.apiserver.http.encodings.bodies import Body
from dralab.apiserver.http.encodings.encoders import Encoders
from dralab.apiserver.http.messages import (
    HEAVY,
    Answer,
    HttpRequest,
    HttpResponse,
    WatchError,
    WatchStream,
)
from dralab.apiserver.http.negotiation import (
    CBOR,
    CBOR_SEQUENCE,
    PROTOBUF,
    STREAMS,
    AnswerForm,
    check_shape,
    unmet,
)
from dralab.apiserver.http.responses import (
    encoded,
    form_for,
    not_allowed,
    response,
    warning_headers,
    warnings_of,
)
from dralab.apiserver.http.routing import (
    COLLECTION_VERBS,
    NO_QUERY,
    OBJECT_VERBS,
    SUBRESOURCE_VERBS,
    Route,
    is_watch,
    not_found,
    query_of,
    without_namespace,
)
from dralab.apiserver.http.trying import JSON, NO_CACHE
from dralab.apiserver.http.weighing import Weights
from dralab.apiserver.storage import Stored
from dralab.apiserver.verbs import creating, deleting, patching, reading, writing
from dralab.apiserver.verbs.patching import PatchType, undecodable
from dralab.apiserver.verbs.server import Resources, success
from dralab.apiserver.verbs.state.context import Scope
from dralab.apiserver.verbs.state.options import (
    DeleteOptions,
    Query,
    delete_options,
    list_options,
    write_options,
)
from dralab.apiserver.verbs.subresources import connecting, reviews, subresources

PATCHES: Final[Mapping[str, PatchType]] = {
    "application/json-patch+json": "json",
    "application/merge-patch+json": "merge",
    "application/strategic-merge-patch+json": "strategic",
    "application/apply-patch+yaml": "apply",
}
CUSTOM_PATCHES: Final = (
    "application/json-patch+json, application/merge-patch+json, application/apply-patch+yaml"
)
# Kinds whose deletion answers with the object even when it is gone.
ORPHANED: Final = (
    "child pods are preserved by default when jobs are deleted; set propagationPolicy=Background "
    "to remove them or set propagationPolicy=Orphan to suppress this warning"
)
SHOWN_WHEN_DELETED: Final = frozenset(
    {
        "namespaces", "persistentvolumeclaims", "persistentvolumes", "pods", "podtemplates",
        "resourcequotas", "serviceaccounts", "services",
        "apiextensions.k8s.io/customresourcedefinitions", "resource.k8s.io/deviceclasses",
        "resource.k8s.io/devicetaintrules", "resource.k8s.io/resourceclaims",
        "resource.k8s.io/resourceclaimtemplates", "resource.k8s.io/resourcepoolstatusrequests",
        "resource.k8s.io/resourceslices", "storage.k8s.io/csidrivers", "storage.k8s.io/csinodes",
        "storage.k8s.io/storageclasses", "storage.k8s.io/volumeattachments",
        "storage.k8s.io/volumeattributesclasses",
    }
)  # fmt: skip
# What a request that has no verb of its own is called.
POSTED: Final = {
    "POST": "create", "PUT": "update", "PATCH": "patch", "DELETE": "delete", "GET": "get",
}  # fmt: skip
# Kinds that are answered and never stored.
FRAMES: Final = (NO_CACHE, ("Content-Type", f"{PROTOBUF};stream=watch"))
SEQUENCE: Final = (NO_CACHE, ("Content-Type", CBOR_SEQUENCE))
STREAM_HEADERS: Final = {"protobuf": FRAMES, "cbor": SEQUENCE}
ASKED: Final = ("create",)
Connector = Callable[[HttpRequest, Route, User], Answer]


class ResourceRequests:
    """Answers requests for resources.

    `connectors` answer the subresources that lead out of the server (`("pods", "log")`), by
    hub and subresource; `apiserver.http.proxying.nodes` has those of pods. `speaks_cbor` is a
    gate of the server.
    """

    def __init__(self, resources: Resources) -> None:
        self.resources = resources
        self.weights = Weights(resources)
        self.connectors: dict[tuple[str, str], Connector] = {}
        self.encoders = Encoders(resources.context)
        self.speaks_cbor = False

    def answer(self, request: HttpRequest, route: Route, scope: Scope) -> Answer:
        """Answer a request for a resource. ApiError: it is refused."""
        if self.speaks_cbor and "cbor" in request.headers.get("content-type", ""):
            from dralab.apiserver.http.encodings.cbor_messages import with_json_body

            request = with_json_body(request, route.kind)
        if not (warning := route.kind.deprecation):
            return self._answer(request, route, scope)
        try:
            answer = self._answer(request, route, scope)
        except ApiError:
            scope.warnings.insert(0, warning)
            raise
        if not isinstance(answer, (HttpResponse, WatchStream)):
            return answer
        return replace(answer, headers=[*answer.headers, *warning_headers([warning])])

    def _answer(self, request: HttpRequest, route: Route, scope: Scope) -> Answer:
        kind, method = route.kind, request.method
        query = query_of(request.query)
        if route.subresource:
            verb = SUBRESOURCE_VERBS.get(method, "")
            if route.subresource == "proxy":
                return self._connected(request, route, scope, query)
            if verb not in kind.subresources[route.subresource].verbs:
                raise not_allowed(kind, POSTED.get(method, ""))
            return self._subresource(request, route, scope, query, verb)
        verb = (OBJECT_VERBS if route.name else COLLECTION_VERBS).get(method, "")
        if kind.namespaced and not route.namespace and verb != "list":
            raise not_allowed() if kind.patches_strategically else without_namespace(kind)
        if not verb and kind.custom is not None:
            # Custom resources are served by the verb alone, whether there is a name or not.
            verb = POSTED.get(method, "")
            if verb in {"update", "patch"}:
                raise ApiError.bad_request("name must be provided")
        if verb not in kind.verbs or (route.watch and verb not in {"get", "list"}):
            raise not_allowed(kind, POSTED.get(method, ""))
        match verb:
            case "get":
                return self._get(request, route, scope, query)
            case "list":
                return self._list(request, route, scope, query)
            case "create":
                return self._create(request, route, scope, query)
            case "update":
                return self._update(request, route, scope, query)
            case "patch":
                return self._patch(request, route, scope, query)
            case "delete":
                return self._delete(request, route, scope, query)
            case _:
                return self._delete_collection(request, route, scope, query)

    def _connected(self, request: HttpRequest, route: Route, scope: Scope, query: Query) -> Answer:
        """Answer a subresource that leads out of the server. ApiError."""
        connector = self.connectors.get((route.kind.hub, route.subresource))
        if connector is None:
            raise not_found()
        connecting.admit(
            scope,
            route.kind,
            route.name,
            route.subresource,
            namespace=route.namespace,
            query=query,
            path=route.rest,
        )
        return connector(request, route, scope.user)

    # --- reading --------------------------------------------------------------------------

    def _get(self, request: HttpRequest, route: Route, scope: Scope, query: Query) -> Answer:
        if route.watch:
            return self._watch(request, route, scope, query)
        revision = query["resourceVersion"][0] if "resourceVersion" in query else ""
        form = form_for(request, route.kind, listing=False)
        stored = reading.get(scope, route.kind, route.name, route.namespace, revision)
        weight = len(stored.encoded) * weighing.times(form)
        if weight > HEAVY and not self._is_plain(route, form):
            weighing.check(request, weight)
        return self._object(route, scope, stored, form, query=query, read=True)

    def _list(self, request: HttpRequest, route: Route, scope: Scope, query: Query) -> Answer:
        if route.watch or is_watch(query):
            return self._watch(request, route, scope, query)
        options = list_options(query, watch=False)
        form = form_for(request, route.kind, listing=True)
        self.weights.check_selection(request, route, options)
        page = reading.list_page(scope, route.kind, route.namespace, options)
        check_shape(form, route.kind, listing=True)
        scope.rules.prepare(route.kind, page.items, scope)
        plain = self._is_plain(route, form)
        self.weights.check_page(request, route.kind, form, page.items, plain=plain)
        body = self.encoders.whole(route.kind, form, query, scope=scope).page(page)
        return encoded(body, form, warnings=warnings_of(page))

    def _watch(self, request: HttpRequest, route: Route, scope: Scope, query: Query) -> Answer:
        form = form_for(request, route.kind, listing=True)
        begins = WATCH_LIST in self.resources.context.rules.features
        options = list_options(query, watch=True, begins=begins)
        if form.encoding == "yaml":
            raise unmet(STREAMS)
        if request.brief and (options.revision in {"", "0"} or options.send_initial_events):
            self.weights.check_selection(request, route, options)
        try:
            watching = reading.watch(scope, route.kind, route.namespace, options, name=route.name)
        except ApiError as error:
            if error.reason != "Expired":
                raise
            return watch_error(form, error)
        scope.rules.prepare(route.kind, watching.initial, scope)
        encoder = self.encoders.whole(route.kind, form, query)
        headers = STREAM_HEADERS.get(form.encoding, JSON)
        return WatchStream(
            watching=watching, encoder=encoder, encoding=form.encoding, headers=headers
        )

    def _is_plain(self, route: Route, form: AnswerForm) -> bool:
        """Whether objects are sent as they are stored."""
        return not form.as_ and form.encoding == "json" and self.encoders.plain(route.kind).plain

    def _object(
        self,
        route: Route,
        scope: Scope,
        stored: Stored,
        form: AnswerForm,
        *,
        query: Query = NO_QUERY,
        status: int = 200,
        read: bool = False,
    ) -> HttpResponse:
        check_shape(form, route.kind, listing=False)
        encoder = self.encoders.whole(route.kind, form, query, scope=scope, read=read)
        return encoded(encoder.object(stored), form, status=status, warnings=scope.warnings)

    # --- writing --------------------------------------------------------------------------

    def _create(self, request: HttpRequest, route: Route, scope: Scope, query: Query) -> Answer:
        kind = route.kind
        form = form_for(request, kind, listing=False, tables=kind.verbs != ASKED)
        self.weights.check_create(request, route, form)
        bodies.check_form(request.headers.get("content-type", ""), self._accepted)
        _write_options(request, scope, query, "CreateOptions")
        value = self._body(request, route, scope)
        if kind.verbs == ASKED:
            asked = reviews.ask(scope, kind, value, route.namespace)
            return response(orjson.dumps(asked), form, status=201, warnings=scope.warnings)
        stored = creating.create(scope, kind, value, route.namespace)
        return self._object(route, scope, stored, form, query=query, status=201)

    @property
    def _accepted(self) -> str:
        return f"{bodies.ACCEPTED}, {CBOR}" if self.speaks_cbor else bodies.ACCEPTED

    def _body(self, request: HttpRequest, route: Route, scope: Scope) -> dict[str, Any]:
        kind = route.kind
        if "yaml" in request.headers.get("content-type", ""):
            weighing.check_yaml(request)
        body = bodies.decode(
            request.body,
            request.headers.get("content-type", ""),
            kind.kind,
            count_repeats=scope.options.validation != "Ignore",
            accepted=self._accepted,
        )
        scope.options.repeats = body.repeats
        return bodies.check_type(body.value, request.body, kind, scope.context.kinds)

    def _update(
        self, request: HttpRequest, route: Route, scope: Scope, query: Query
    ) -> HttpResponse:
        form = form_for(request, route.kind, listing=False)
        self.weights.check_change(request, route, form)
        _write_options(request, scope, query, "UpdateOptions")
        value = self._body(request, route, scope)
        stored, created = writing.update(
            scope, route.kind, value, route.name, route.namespace, subresource=route.subresource
        )
        status = 201 if created else 200
        return self._object(route, scope, stored, form, query=query, status=status)

    def _patch(
        self, request: HttpRequest, route: Route, scope: Scope, query: Query
    ) -> HttpResponse:
        form = form_for(request, route.kind, listing=False)
        self.weights.check_change(request, route, form)
        patch_type, patch = self._patch_body(request, route, scope, query)
        stored, created = patching.patch(
            scope,
            route.kind,
            route.name,
            patch,
            namespace=route.namespace,
            type=patch_type,
            subresource=route.subresource,
        )
        status = 201 if created else 200
        return self._object(route, scope, stored, form, query=query, status=status)

    def _patch_body(
        self, request: HttpRequest, route: Route, scope: Scope, query: Query
    ) -> tuple[PatchType, Any]:
        media = bodies.media_type(request.headers.get("content-type", ""))
        patch_type = PATCHES.get(media)
        if patch_type is None and route.kind.custom is None:
            raise ApiError("UnsupportedMediaType", "415: Unsupported Media Type", details={})
        if patch_type is None:
            raise bodies.unknown_format(CUSTOM_PATCHES)
        if patch_type == "strategic" and not route.kind.patches_strategically:
            raise bodies.unknown_format(CUSTOM_PATCHES)
        _write_options(request, scope, query, "PatchOptions", patch_type)
        form = "application/json"
        if patch_type == "apply":
            weighing.check_yaml(request)
            form = "application/yaml"
        body = self._patch_of(request, route, scope, patch_type, form)
        scope.options.repeats = body.repeats
        return patch_type, body.value

    def _patch_of(
        self, request: HttpRequest, route: Route, scope: Scope, patch_type: PatchType, form: str
    ) -> Body:
        """Return the decoded patch. ApiError; a missing object is reported first."""
        try:
            return bodies.decode(request.body, form, route.kind.kind)
        except bodies.UnrecognizedBody as error:
            why = error.problem
            if patch_type == "apply":
                why = f"error converting YAML to JSON: yaml: {why}"
            else:
                scope.live(route.kind, route.namespace, route.name)
            raise undecodable(why, patch_type) from None

    def _delete_options(
        self, request: HttpRequest, route: Route, scope: Scope, query: Query
    ) -> DeleteOptions:
        """Return the options of a deletion, whose warnings become those of the answer."""
        body = None
        if request.body:
            content_type = request.headers.get("content-type", "")
            body = bodies.decode_options(request.body, content_type, "DeleteOptions")
        found = delete_options(query, body)
        said = found.policy or found.orphan_dependents is not None
        if route.kind.hub == "batch/jobs" and not said:
            scope.warnings.append(ORPHANED)  # pods that outlive their job
        return found

    def _delete(
        self, request: HttpRequest, route: Route, scope: Scope, query: Query
    ) -> HttpResponse:
        form = form_for(request, route.kind, listing=False)
        options = self._delete_options(request, route, scope, query)
        self.weights.check_delete(request, route)
        stored, gone = self.resources.delete(
            route.kind, route.name, route.namespace, options, scope
        )
        if gone and not (
            route.kind.hub in SHOWN_WHEN_DELETED and "uid" in stored.value["metadata"]
        ):
            body = orjson.dumps(success(route.kind, stored))
            return response(body, form, warnings=scope.warnings)
        return self._object(route, scope, stored, form, query=query)

    def _delete_collection(
        self, request: HttpRequest, route: Route, scope: Scope, query: Query
    ) -> HttpResponse:
        form = form_for(request, route.kind, listing=False)
        chosen = list_options(query, watch=False)
        options = self._delete_options(request, route, scope, query)
        self.weights.check_collection(request, route)
        page = deleting.delete_collection(scope, route.kind, route.namespace, chosen, options)
        check_shape(form, route.kind, listing=True)
        encoder = self.encoders.whole(route.kind, form, query, scope=scope, read=False)
        return encoded(encoder.page(page), form, warnings=scope.warnings)

    def _subresource(
        self, request: HttpRequest, route: Route, scope: Scope, query: Query, verb: str
    ) -> Answer:
        kind, name = route.kind, route.subresource
        if (kind.hub, name) in self.connectors:
            return self._connected(request, route, scope, query)
        if name == "status":
            if verb == "get":
                return self._get(request, route, scope, query)
            return (self._update if verb == "update" else self._patch)(request, route, scope, query)
        # What is only created, such as a binding, has no tables.
        form = form_for(request, kind, listing=False, tables=verb != "create")
        self.weights.check_change(request, route, form)
        patch_type: PatchType = "merge"
        body: Any = None
        if verb == "patch":
            patch_type, body = self._patch_body(request, route, scope, query)
        else:
            names = {"create": "CreateOptions", "update": "UpdateOptions"}
            _write_options(request, scope, query, names.get(verb, "GetOptions"))
            if verb != "get":
                sub = kind.subresources[name]
                body = bodies.decode(
                    request.body, request.headers.get("content-type", ""), sub.kind
                ).value
                group = sub.group or kind.group
                bodies.check_name_of_kind(body, group, sub.kind, scope.context.kinds)
        answer = subresources.call(
            scope,
            verb,
            kind,
            route.name,
            name,
            body=body,
            namespace=route.namespace,
            type=patch_type,
        )
        status = 201 if verb == "create" else 200
        return response(orjson.dumps(answer), form, status=status, warnings=scope.warnings)


def _write_options(
    request: HttpRequest, scope: Scope, query: Query, kind: str, patch: str | None = None
) -> None:
    """Read how a request writes. ApiError."""
    scope.options = write_options(query, kind, agent=agent_of(request), patch=patch)


def agent_of(request: HttpRequest) -> str:
    """Return the client's program."""
    return request.headers.get("user-agent", "")


def watch_error(form: AnswerForm, error: ApiError) -> WatchError:
    """Return the answer to a watch that cannot begin at its revision: clients list again.

    An error event and not an error (k8s.io/apiserver `storage/cacher`, newErrWatcher).
    """
    if form.encoding == "protobuf":
        from dralab.apiserver.http.encodings.protobuf_answers import error_frame

        return WatchError(headers=FRAMES, body=error_frame(error), encoding=form.encoding)
    if form.encoding == "cbor":
        from dralab.apiserver.http.encodings.cbor_messages import error_event

        return WatchError(headers=SEQUENCE, body=error_event(error), encoding=form.encoding)
    line = orjson.dumps({"type": "ERROR", "object": error.status()}) + b"\n"
    return WatchError(headers=JSON, body=line)
