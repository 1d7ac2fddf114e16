"""The API server as a function from a request to a response or a stream of changes.

It does routing, negotiation and encoding; `resources` implements the verbs, the transport the
sockets.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from copy import copy
from dataclasses import replace
from threading import Lock
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import parse_qs

import orjson

from dralab.api.core.definitions import HUB as DEFINITIONS
from dralab.api.status import ApiError
from dralab.apiserver.authentication import impersonation
from dralab.apiserver.authentication.chain import (
    WEBSOCKET_TOKEN,
    Authentication,
    is_added_by_browsers,
    without_token,
)
from dralab.apiserver.http import access, bodies, negotiation, routing, weighing
from dralab.apiserver.http.aggregated import AggregatedApis
from dralab.apiserver.http.browser_guard import Guard, name_of
from dralab.apiserver.http.encoding import ObjectEncoder, PartialEncoder, as_yaml
from dralab.apiserver.http.messages import (
    Answer,
    HttpRequest,
    HttpResponse,
    TakesLong,
    WatchStream,
)
from dralab.apiserver.http.negotiation import AnswerForm
from dralab.apiserver.http.pages import Pages, ServerVersion
from dralab.apiserver.http.routing import (
    COLLECTION_VERBS,
    NO_QUERY,
    OBJECT_VERBS,
    SUBRESOURCE_VERBS,
    NoSuchGroup,
    Route,
    is_watch,
    query_of,
)
from dralab.apiserver.http.trying import JSON, NO_CACHE, refusal, tried, unavailable
from dralab.apiserver.http.weighing import Weights
from dralab.apiserver.outgoing import waiting
from dralab.apiserver.outgoing.waiting import MustWait
from dralab.apiserver.resources.context import shown
from dralab.apiserver.resources.options import (
    Query,
    WriteOptions,
    check_patch_options,
    delete_options,
    list_options,
    write_options,
)
from dralab.apiserver.resources.patching import PatchType
from dralab.apiserver.resources.reading import ListPage
from dralab.apiserver.resources.server import Resources, success
from dralab.apiserver.storage import (
    Damaged,
    Key,
    StorageUnavailable,
    Store,
    Stored,
    TooLarge,
)
from dralab.apiserver.users import User

if TYPE_CHECKING:
    from dralab.apiserver.http.tabular import TableEncoder

TEXT: Final = (("Content-Type", "text/plain; charset=utf-8"),)
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
SHOWN_WHEN_DELETED: Final = frozenset(
    {
        "namespaces", "persistentvolumeclaims", "persistentvolumes", "pods", "podtemplates",
        "resourcequotas", "serviceaccounts", "services",
        "apiextensions.k8s.io/customresourcedefinitions",
    }
)  # fmt: skip
WARNINGS: Final = 20  # damaged objects that a list names one by one
WRITES: Final = frozenset({"POST", "PUT", "PATCH"})
DELETES: Final = WRITES | {"DELETE"}
TURNS: Final = 256  # locks that objects of a shared store have between them
# Kinds that are answered and never stored.
ASKED: Final = ("create",)
Connector = Callable[[HttpRequest, Route, User], Answer]


class Application:
    """Answers requests.

    Without credentials, `accept_hosts` are names of the server beside those of the loopback.
    `connectors` answer the subresources that lead out of the server (`("pods", "log")`), by
    hub and subresource; `apiserver.nodes` has those of pods.
    """

    def __init__(
        self,
        resources: Resources,
        *,
        authentication: Authentication | None = None,
        version: ServerVersion | None = None,
        address: str = "127.0.0.1:6443",
        accept_hosts: Sequence[str] = (),
    ) -> None:
        self.resources = resources
        self.weights = Weights(resources)
        self.guard = Guard([name_of(address), *accept_hosts])
        if authentication is not None:
            resources.context.authentication = authentication
        self.authentication = resources.context.authentication
        self.pages = Pages(resources, version or ServerVersion(), address)
        self.aggregated = AggregatedApis(self.pages.remote)
        self.connectors: dict[tuple[str, str], Connector] = {}
        self._encoders: dict[int, ObjectEncoder] = {}
        self._turns = [Lock() for _ in range(TURNS)]
        resources.on_kinds_changed(self._encoders.clear)

    def admit(self, request: HttpRequest) -> None:
        """Authenticate a request from a socket by its head. ApiError: it is refused."""
        if self.authentication.is_open:
            self.guard.check(request)
        # Before the token is taken out of the head.
        by_browser = not self.authentication.is_open and is_added_by_browsers(request)
        request.user = self.user_of(request)
        if by_browser:
            # With TLS, the browser checks the server's name by its certificate.
            self.guard.check_page(request)

    def handle(self, request: HttpRequest) -> Answer:
        """Answer one request; every refusal is a Status."""
        try:
            user = request.user or self.user_of(request)
            answer = self._answer(request, user)
        except ApiError as error:
            answer = refusal(error)
            if request.warned:
                answer.headers = [*answer.headers, *warning_headers(request.warned)]
        except MustWait:
            if request.waits:
                raise
            request.waits = True
            if request.brief or request.lane:
                raise TakesLong(0) from None  # in threads that may wait
            return self.handle_apart(request)
        except NoSuchGroup:
            return HttpResponse(status=404, headers=TEXT, body=b"404 page not found\n")
        except TooLarge as error:
            return refusal(ApiError("RequestEntityTooLarge", f"Request entity too large: {error}"))
        except StorageUnavailable as error:
            return unavailable(error)
        if wants_pretty(request) and isinstance(answer, HttpResponse):
            if request.method == "GET":
                weighing.check(request, len(answer.content) // weighing.PRETTY)
            return pretty(answer)
        return answer

    def handle_apart(self, request: HttpRequest) -> Answer:
        """Answer one request in a thread beside that of the loop, which may take seconds.

        What it writes is computed outside of the store's lock, and computed again if
        others changed what it had read.
        """
        below = self.resources.context.store
        if request.method not in (DELETES if below.shared or request.waits else WRITES):
            with waiting.waiting_until(waiting.deadline() if request.waits else 0):
                return self.handle(request)
        route = self._route(request) if below.shared else None
        if route is None or not route.name:
            return tried(request, below, lambda store: self._attempt(request, store))
        # Writers of the same object would only make each other retry.
        turn = (route.kind.hub, route.namespace, route.name)
        with self._turns[hash(turn) % len(self._turns)]:
            return tried(request, below, lambda store: self._attempt(request, store))

    def _attempt(self, request: HttpRequest, store: Store) -> Answer:
        """Answer a request over a view of the store. Changed."""
        found = copy(self)
        until = waiting.deadline() if request.waits else 0
        found.resources = self.resources.over(store, deadline=until)
        self._keep_kind(request, store)
        with waiting.waiting_until(until):
            return found.handle(request)

    def reads_now(self, request: HttpRequest) -> bool:
        """Whether a request reads the latest state, and not an earlier one.

        Source: k8s.io/apiserver `storage/cacher` (resourceVersion unset, or newer than known).
        """
        if not request.path.startswith(("/api/", "/apis/")) or self._route(request) is None:
            return False
        query = query_of(request.query)
        revision = query.get("resourceVersion", [""])[0]
        if revision == "0" or (revision.isdecimal() and is_watch(query)):
            return False
        return not (revision.isdecimal() and int(revision) <= self.resources.context.store.revision)

    def _keep_kind(self, request: HttpRequest, store: Store) -> None:
        """Make a request depend on the definition of its kind: retry it if that changes."""
        route = self._route(request)
        if route is not None and route.kind.custom is not None:
            with suppress(Damaged):
                store.get(Key(DEFINITIONS, "", f"{route.kind.plural}.{route.kind.group}"))

    def _route(self, request: HttpRequest) -> Route | None:
        """Return where a request goes; None if it is not for a resource."""
        parts = routing.segments_of(request.path)
        if routing.leads_to_resource(parts):
            with suppress(ApiError, NoSuchGroup):
                return routing.route(parts, self.resources.kinds)
        return None

    def user_of(self, request: HttpRequest) -> User:
        """Return the user of a request, after impersonation. ApiError: 401, 403."""
        user = self.authentication.user_of(request)
        protocols = request.headers.get("sec-websocket-protocol", "")
        if WEBSOCKET_TOKEN in protocols:
            left = {"sec-websocket-protocol": without_token(protocols)}
            request.headers = {**request.headers, **left}
        if impersonation.is_wanted(request):
            request.impersonator = user
            return impersonation.impersonated(request, user, self.resources.context.authorizer)
        return user

    def _answer(self, request: HttpRequest, user: User) -> Answer:
        context = self.resources.context
        context.catch_up()
        authorizer = None if user.is_superuser else context.authorizer
        parts = routing.segments_of(request.path)
        if routing.leads_to_resource(parts):
            try:
                route = routing.route(parts, self.resources.kinds)
            except (ApiError, NoSuchGroup):
                if authorizer is not None:
                    access.check_unknown(authorizer, request, parts, user)
                elsewhere = self.aggregated.answer(request, parts, user)
                if elsewhere is not None:
                    return elsewhere
                raise
            if authorizer is not None:
                access.check_route(authorizer, request, route, user)
            return self._resource(request, route, user)
        if authorizer is not None:
            access.check_path(authorizer, request, parts, user)
        return self.aggregated.answer(request, parts, user) or self.pages.answer(request, parts)

    def _resource(self, request: HttpRequest, route: Route, user: User) -> Answer:
        kind, method = route.kind, request.method
        query = query_of(request.query)
        if route.subresource:
            verb = SUBRESOURCE_VERBS.get(method, "")
            if verb not in kind.subresources[route.subresource].verbs:
                raise not_allowed()
            return self._subresource(request, route, user, query, verb)
        verb = (OBJECT_VERBS if route.name else COLLECTION_VERBS).get(method, "")
        if verb not in kind.verbs or (
            kind.namespaced and not route.namespace and verb in {"create", "deletecollection"}
        ):
            raise not_allowed()
        match verb:
            case "get":
                return self._get(request, route, query)
            case "list":
                return self._list(request, route, query)
            case "create":
                return self._create(request, route, user, query)
            case "update":
                return self._update(request, route, user, query)
            case "patch":
                return self._patch(request, route, user, query)
            case "delete":
                return self._delete(request, route, user, query)
            case _:
                return self._delete_collection(request, route, user, query)

    # --- reading --------------------------------------------------------------------------

    def _get(self, request: HttpRequest, route: Route, query: Query) -> Answer:
        if route.watch:
            return self._watch(request, route, query)
        revision = query["resourceVersion"][0] if "resourceVersion" in query else ""
        form = form_for(request, listing=False)
        stored = self.resources.get(route.kind, route.name, route.namespace, revision=revision)
        if not self._is_plain(route, form):
            weighing.check(request, len(stored.encoded) * weighing.times(form))
        return self._object(route, stored, form, query=query)

    def _list(self, request: HttpRequest, route: Route, query: Query) -> Answer:
        if route.watch or is_watch(query):
            return self._watch(request, route, query)
        options = list_options(query, watch=False)
        form = form_for(request, listing=True)
        self.weights.check_selection(request, route, options)
        page = self.resources.list(route.kind, route.namespace, options)
        self.resources.prepare(route.kind, page.items)
        plain = self._is_plain(route, form)
        self.weights.check_page(request, route.kind, form, page.items, plain=plain)
        body: bytes | Sequence[bytes]
        if form.as_ == "Table":
            body = self._tables(route, form, query).page(page)
        elif form.as_ == "PartialObjectMetadataList":
            body = PartialEncoder(form.version).page(route.kind, page)
        else:
            body = self.encoder(route).page(page)
        return response(body, form, warnings=warnings_of(page))

    def _watch(self, request: HttpRequest, route: Route, query: Query) -> Answer:
        form = form_for(request, listing=True)
        options = list_options(query, watch=True)
        if request.brief and (options.revision in {"", "0"} or options.send_initial_events):
            self.weights.check_selection(request, route, options)
        try:
            watching = self.resources.watch(route.kind, route.namespace, options, name=route.name)
        except ApiError as error:
            if error.reason != "Expired":
                raise
            # Watchers get an error event: clients list again.
            line = orjson.dumps({"type": "ERROR", "object": error.status()}) + b"\n"
            return HttpResponse(headers=JSON, body=line)
        self.resources.prepare(route.kind, watching.initial)
        encoder: ObjectEncoder | PartialEncoder | TableEncoder = self.encoder(route)
        if form.as_ == "Table":
            encoder = self._tables(route, form, query)
        elif form.as_ == "PartialObjectMetadata":
            encoder = PartialEncoder(form.version)
        return WatchStream(watching=watching, encoder=encoder, headers=JSON)

    def _is_plain(self, route: Route, form: AnswerForm) -> bool:
        """Whether objects are sent as they are stored."""
        return not form.as_ and form.encoding == "json" and self.encoder(route).plain

    def _tables(self, route: Route, form: AnswerForm, query: Query) -> "TableEncoder":
        from dralab.apiserver.http.tabular import TableEncoder, included

        context = self.resources.context
        return TableEncoder(
            route.kind,
            context.rules,
            context.clock,
            version=form.version,
            include=included(query),
        )

    def encoder(self, route: Route) -> ObjectEncoder:
        """Return the encoder of a kind, made once."""
        found = self._encoders.get(id(route.kind))
        if found is None or found.kind is not route.kind:
            found = ObjectEncoder(route.kind, self.resources.context.rules)
            self._encoders[id(route.kind)] = found
        return found

    def _object(
        self,
        route: Route,
        stored: Stored,
        form: AnswerForm,
        *,
        query: Query = NO_QUERY,
        status: int = 200,
        warnings: Sequence[str] = (),
    ) -> HttpResponse:
        if form.as_ == "Table":
            body = self._tables(route, form, query).object(stored)
        elif form.as_ == "PartialObjectMetadata":
            body = orjson.dumps(PartialEncoder(form.version).value(stored))
        else:
            body = self.encoder(route).object(stored)
        return response(body, form, status=status, warnings=warnings)

    # --- writing --------------------------------------------------------------------------

    def _create(self, request: HttpRequest, route: Route, user: User, query: Query) -> Answer:
        kind = route.kind
        form = form_for(request, listing=False)
        self.weights.check_create(request, route, form)
        options = _write_options(request, query, "CreateOptions", user)
        value = self._body(request, route, options)
        if kind.verbs == ASKED:
            asked = self.resources.ask(kind, value, route.namespace, options)
            return response(orjson.dumps(asked), form, status=201, warnings=options.warnings)
        stored = self.resources.create(kind, value, route.namespace, options)
        return self._object(route, stored, form, query=query, status=201, warnings=options.warnings)

    def _body(self, request: HttpRequest, route: Route, options: WriteOptions) -> dict[str, Any]:
        kind = route.kind
        if "yaml" in request.headers.get("content-type", ""):
            weighing.check_yaml(request)
        body = bodies.decode(
            request.body,
            request.headers.get("content-type", ""),
            kind.kind,
            count_duplicates=options.validation != "Ignore",
        )
        options.duplicates = body.duplicates
        return bodies.check_type(body.value, request.body, kind, self.resources.kinds)

    def _update(self, request: HttpRequest, route: Route, user: User, query: Query) -> HttpResponse:
        form = form_for(request, listing=False)
        self.weights.check_change(request, route, form)
        options = _write_options(request, query, "UpdateOptions", user)
        value = self._body(request, route, options)
        stored, created = self.resources.put(
            route.kind,
            value,
            route.name,
            route.namespace,
            options,
            subresource=route.subresource,
        )
        status = 201 if created else 200
        return self._object(
            route, stored, form, query=query, status=status, warnings=options.warnings
        )

    def _patch(self, request: HttpRequest, route: Route, user: User, query: Query) -> HttpResponse:
        form = form_for(request, listing=False)
        self.weights.check_change(request, route, form)
        patch_type, patch, options = self._patch_body(request, route, user, query)
        stored, created = self.resources.patch(
            route.kind,
            route.name,
            patch,
            route.namespace,
            options,
            type=patch_type,
            subresource=route.subresource,
        )
        status = 201 if created else 200
        return self._object(
            route, stored, form, query=query, status=status, warnings=options.warnings
        )

    def _patch_body(
        self, request: HttpRequest, route: Route, user: User, query: Query
    ) -> tuple[PatchType, Any, WriteOptions]:
        media = bodies.media_type(request.headers.get("content-type", ""))
        patch_type = PATCHES.get(media)
        if patch_type is None:
            raise ApiError("UnsupportedMediaType", "415: Unsupported Media Type", details={})
        if patch_type == "strategic" and not route.kind.patches_strategically:
            raise bodies.unknown_format(CUSTOM_PATCHES)
        options = _write_options(request, query, "PatchOptions", user)
        check_patch_options(options, apply=patch_type == "apply", force_given="force" in query)
        if patch_type == "apply":
            weighing.check_yaml(request)
            body = bodies.decode(request.body, "application/yaml", route.kind.kind)
        else:
            body = bodies.decode(request.body, "application/json", route.kind.kind)
        options.duplicates = body.duplicates
        return patch_type, body.value, options

    def _delete_options(self, request: HttpRequest) -> Mapping[str, Any] | None:
        if not request.body:
            return None
        body = bodies.decode(request.body, request.headers.get("content-type", ""), "DeleteOptions")
        if body.value is None:
            return None
        if not isinstance(body.value, dict):
            raise ApiError.bad_request("DeleteOptions: expected an object")
        return body.value

    def _delete(self, request: HttpRequest, route: Route, user: User, query: Query) -> HttpResponse:
        form = form_for(request, listing=False)
        options = delete_options(query, self._delete_options(request))
        self.weights.check_delete(request, route)
        stored, gone = self.resources.delete(
            route.kind, route.name, route.namespace, options, user=user
        )
        if gone and not (
            route.kind.hub in SHOWN_WHEN_DELETED and "uid" in stored.value["metadata"]
        ):
            return response(orjson.dumps(success(route.kind, stored)), form)
        return self._object(route, stored, form, query=query)

    def _delete_collection(
        self, request: HttpRequest, route: Route, user: User, query: Query
    ) -> HttpResponse:
        form = form_for(request, listing=False)
        options = delete_options(query, self._delete_options(request))
        chosen = list_options(query, watch=False)
        self.weights.check_collection(request, route)
        page = self.resources.delete_collection(
            route.kind, route.namespace, chosen, options, user=user
        )
        return response(self.encoder(route).page(page), form)

    def _subresource(
        self, request: HttpRequest, route: Route, user: User, query: Query, verb: str
    ) -> Answer:
        kind, name = route.kind, route.subresource
        if connector := self.connectors.get((kind.hub, name)):
            return connector(request, route, user)
        if name == "status":
            if verb == "get":
                return self._get(request, route, query)
            return (self._update if verb == "update" else self._patch)(request, route, user, query)
        form = form_for(request, listing=False)
        self.weights.check_change(request, route, form)
        patch_type: PatchType = "merge"
        body: Any = None
        if verb == "patch":
            patch_type, body, options = self._patch_body(request, route, user, query)
        else:
            names = {"create": "CreateOptions", "update": "UpdateOptions"}
            options = _write_options(request, query, names.get(verb, "GetOptions"), user)
            if verb != "get":
                sub = kind.subresources[name]
                body = bodies.decode(
                    request.body, request.headers.get("content-type", ""), sub.kind
                ).value
        answer = self.resources.subresource(
            verb,
            kind,
            route.name,
            name,
            body,
            namespace=route.namespace,
            options=options,
            type=patch_type,
        )
        status = 201 if verb == "create" else 200
        return response(orjson.dumps(answer), form, status=status, warnings=options.warnings)


# --- small steps ------------------------------------------------------------------------------


def form_for(request: HttpRequest, *, listing: bool) -> AnswerForm:
    """Return the form of the answer; ApiError NotAcceptable."""
    form = negotiation.form_of(request.headers.get("accept", ""), listing=listing)
    if form is None:
        raise negotiation.not_acceptable(listing=listing)
    return form


def warnings_of(page: ListPage) -> Sequence[str]:
    """Return the warnings of a list: the objects that are missing from it because of damage."""
    if not page.damaged:
        return ()
    found = [f"{shown(key)} is damaged and omitted" for key in page.damaged[:WARNINGS]]
    if more := len(page.damaged) - WARNINGS:
        found += [f"{more} more are damaged and omitted"] if more > 0 else []
    return found


def _write_options(request: HttpRequest, query: Query, kind: str, user: User) -> WriteOptions:
    """Return the write options of a request; annotations go to its record in the audit log."""
    found = write_options(query, kind, user=user, agent=agent_of(request))
    request.warned = found.warnings
    if request.record is not None:
        found.annotate = request.record.annotate
    return found


def agent_of(request: HttpRequest) -> str:
    """Return the client's program."""
    return request.headers.get("user-agent", "")


def not_allowed() -> ApiError:
    """Return the error for a verb that a path does not have."""
    return ApiError(
        "MethodNotAllowed",
        "the server does not allow this method on the requested resource",
        details={},
    )


def response(
    body: bytes | Sequence[bytes],
    form: AnswerForm,
    *,
    status: int = 200,
    warnings: Sequence[str] = (),
) -> HttpResponse:
    """Return an answer in a form, with its warnings."""
    if form.encoding == "yaml":
        body = as_yaml(body if isinstance(body, bytes) else b"".join(body))
        headers: Sequence[tuple[str, str]] = (NO_CACHE, ("Content-Type", "application/yaml"))
    else:
        headers = JSON
    if warnings:
        headers = [*headers, *warning_headers(warnings)]
    return HttpResponse(status=status, headers=headers, body=body)


def warning_headers(warnings: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Yield the headers of warnings, each text once."""
    for text in dict.fromkeys(warnings):
        yield "Warning", f"299 - {quoted(text)}"


def quoted(text: str) -> str:
    """Return a text as a quoted string of a header, in UTF-8 as Go writes it.

    Headers are texts of bytes (latin-1) up to the edge; a field may have any name.
    """
    plain = text.replace("\\", "\\\\").replace('"', '\\"')
    shown = "".join(character if character.isprintable() else " " for character in plain)
    return f'"{shown}"'.encode(errors="replace").decode("latin-1")


def wants_pretty(request: HttpRequest) -> bool:
    """Whether a person reads the answer: by parameter, or by the User-Agent of a browser or curl.

    Source: apiserver `endpoints/handlers/negotiation` (isPrettyPrint).
    """
    query = request.query
    if "pretty" in query:
        given = parse_qs(query, keep_blank_values=True).get("pretty")
        if given:
            return given[0] not in {"0", "false", "False", "F", "f", "FALSE"}
    return request.headers.get("user-agent", "").startswith(("curl", "Wget", "Mozilla/5.0"))


def pretty(answer: HttpResponse) -> HttpResponse:
    """Return the answer with its JSON indented; other bodies as they are."""
    headers = {key.lower(): value for key, value in answer.headers}
    if "content-encoding" in headers:  # compressed already, as the pages of OpenAPI are
        return answer
    if not headers.get("content-type", "").startswith("application/json"):
        return answer
    body = orjson.dumps(
        orjson.loads(answer.content), option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE
    )
    return replace(answer, body=body)
