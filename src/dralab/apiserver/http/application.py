"""The API server as a function from a request to a response or a stream of changes.

It authenticates, authorizes and routes; `resource_requests` answers requests for resources, `pages`
all others; `resources` implements the verbs, the transport the sockets.
"""

from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Final, TypeVar
from urllib.parse import parse_qs

from dralab.api.core.definitions import HUB as DEFINITIONS
from dralab.api.status import ApiError
from dralab.apiserver.access.authentication import impersonation
from dralab.apiserver.access.authentication.chain import (
    WEBSOCKET_TOKEN,
    Authentication,
    is_added_by_browsers,
    without_token,
)
from dralab.apiserver.access.authorization.attributes import Authorizer
from dralab.apiserver.access.scope import MustCompute, MustWait
from dralab.apiserver.access.users import ANONYMOUS, User
from dralab.apiserver.http import access, routing, weighing
from dralab.apiserver.http.browser_guard import Guard, name_of
from dralab.apiserver.http.messages import (
    LARGE_LANE,
    WAITING_LANE,
    Answer,
    HttpRequest,
    HttpResponse,
    TakesLong,
)
from dralab.apiserver.http.pages.pages import Pages, ServerVersion
from dralab.apiserver.http.proxying.aggregated import AggregatedApis
from dralab.apiserver.http.resource_requests import ResourceRequests
from dralab.apiserver.http.responses import (
    TEXT,
    negotiated,
    pretty,
    wants_pretty,
    warning_headers,
)
from dralab.apiserver.http.routing import (
    NoSuchGroup,
    Route,
    is_watch,
    query_of,
)
from dralab.apiserver.http.trying import refusal, tried, unavailable
from dralab.apiserver.metrics.meters import now
from dralab.apiserver.signals import ObjectTurns
from dralab.apiserver.storage import (
    Damaged,
    Key,
    StorageUnavailable,
    StoreView,
    TooLarge,
)
from dralab.apiserver.verbs.server import Resources
from dralab.apiserver.verbs.state.context import Scope
from dralab.apiserver.verbs.state.options import WriteOptions

Asked = TypeVar("Asked")
WRITES: Final = frozenset({"POST", "PUT", "PATCH"})
DELETES: Final = WRITES | {"DELETE"}
NOT_WRITTEN: Final = WriteOptions()  # of all requests, until they are found to write


class Application:
    """Answers requests.

    Without credentials, `accept_hosts` are names of the server beside those of the loopback.
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
        self.requests = ResourceRequests(resources)
        self.guard = Guard([name_of(address), *accept_hosts])
        if authentication is not None:
            resources.context.authentication = authentication
        self.authentication = resources.context.authentication
        self.pages = Pages(resources, version or ServerVersion.of(resources.kinds.release), address)
        self.aggregated = AggregatedApis(self.pages.remote)
        self._turns = ObjectTurns()

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

    def check_open(self, request: HttpRequest) -> None:
        """Refuse what a web page sent, for answers that need no credential. ApiError."""
        if self.authentication.is_open:
            self.guard.check(request)
        else:
            self.guard.check_page(request)

    def handle(self, request: HttpRequest) -> Answer:
        """Answer one request; every refusal is a Status."""
        return self._handle(request, self.resources.context.store)

    def _handle(self, request: HttpRequest, store: StoreView) -> Answer:
        """Answer one request over a view of the store. TakesLong: in another lane, Changed."""
        context = self.resources.context
        scope = context.scope(user=ANONYMOUS, store=store, options=NOT_WRITTEN)
        if request.record is not None:
            scope.annotate = request.record.annotate
        request.cbor = self.requests.speaks_cbor
        try:
            timeout = timeout_of(request)
            if request.lane in {WAITING_LANE, LARGE_LANE}:
                context.may_compute(scope, timeout)
                scope.waits = request.lane == WAITING_LANE
            scope.user = request.user or self.user_of(request)
            answer = self._answer(request, scope)
        except ApiError as error:
            answer = negotiated(request, refusal(error))
            if scope.warnings:
                answer.headers = [*answer.headers, *warning_headers(scope.warnings)]
        except MustWait as condition:
            lane = LARGE_LANE if isinstance(condition, MustCompute) else WAITING_LANE
            if lane == LARGE_LANE and request.route is not None:
                context.dynamic.took_long(request.route.kind.hub, len(request.body))
            return self._elsewhere(request, lane)
        except TakesLong as condition:
            return self._elsewhere(request, condition.lane)
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

    def _elsewhere(self, request: HttpRequest, lane: str) -> Answer:
        """Answer a request in another lane; in this thread if there is none."""
        if request.lane:
            raise TakesLong(lane) from None
        request.lane = lane
        return self.handle_apart(request)

    def handle_apart(self, request: HttpRequest) -> Answer:
        """Answer one request in a thread beside that of the loop, which may take seconds.

        What it writes is computed outside of the store's lock, and computed again if
        others changed what it had read.
        """
        store = self.resources.context.store
        waits = request.lane == WAITING_LANE
        if request.method not in (DELETES if store.shared or waits else WRITES):
            return self._handle(request, store)
        route = self._route(request)
        if not store.shared or route is None or not route.name:
            return tried(request, store, lambda view: self._attempt(request, view))
        # Writers of the same object would only make each other retry.
        turn = (route.kind.hub, route.namespace, route.name)
        with self._turns.of(turn):
            return tried(request, store, lambda view: self._attempt(request, view))

    def _attempt(self, request: HttpRequest, view: StoreView) -> Answer:
        """Answer a request over a view of the store, by the definition of its kind. Changed.

        It is tried again if the definition changes meanwhile.
        """
        route = self._route(request)
        if route is not None and route.kind.custom is not None:
            with suppress(Damaged):
                view.get(Key(DEFINITIONS, "", f"{route.kind.plural}.{route.kind.group}"))
        return self._handle(request, view)

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

    def _route(self, request: HttpRequest) -> Route | None:
        """Return where a request goes; None if it is not for a resource."""
        if self._is_current(request.route):
            return request.route
        parts = routing.segments_of(request.path)
        if routing.leads_to_resource(parts):
            with suppress(ApiError, NoSuchGroup):
                return self._routed(request, parts)
        return None

    def _routed(self, request: HttpRequest, parts: list[str]) -> Route:
        """Return where a request goes, as found before if its kind is still the one served."""
        if request.route is None or not self._is_current(request.route):
            request.route = routing.route(parts, self.resources.context.kinds)
        return request.route

    def _is_current(self, route: Route | None) -> bool:
        """Whether a route leads to a kind that is still the one served."""
        if route is None:
            return False
        kind = route.kind
        return self.resources.context.kinds.get(kind.group, kind.version, kind.plural) is kind

    def user_of(self, request: HttpRequest) -> User:
        """Return the user of a request, after impersonation. ApiError: 401, 403."""
        metrics, began = self.resources.context.metrics, now()
        try:
            user = self.authentication.user_of(request)
        except ApiError:
            metrics.unauthenticated(began)
            raise
        metrics.authenticated(user.name, began)
        protocols = request.headers.get("sec-websocket-protocol", "")
        if WEBSOCKET_TOKEN in protocols:
            left = {"sec-websocket-protocol": without_token(protocols)}
            request.headers = {**request.headers, **left}
        if impersonation.is_wanted(request):
            request.impersonator = user
            found = impersonation.impersonated(
                request,
                user,
                self.resources.context.authorizer,
                lambda: access.attributes_of(request, self.resources.context.kinds, user),
            )
            if found is not None:
                acting, request.constraint = found
                return acting
            request.impersonator = None
        return user

    def _check(
        self,
        authorizer: Authorizer | None,
        check: Callable[[Authorizer, HttpRequest, Asked, User], None],
        request: HttpRequest,
        asked: Asked,
        user: User,
    ) -> None:
        """Raise Forbidden where a user may not do what is asked. ApiError."""
        metrics, began = self.resources.context.metrics, now()
        if authorizer is not None:
            try:
                check(authorizer, request, asked, user)
            except ApiError:
                metrics.unauthorized(began)
                raise
        metrics.allowed(began)

    def _answer(self, request: HttpRequest, scope: Scope) -> Answer:
        context, user = self.resources.context, scope.user
        authorizer = None if user.is_superuser else context.authorizer
        parts = routing.segments_of(request.path)
        if routing.leads_to_resource(parts):
            try:
                route = self._routed(request, parts)
            except (ApiError, NoSuchGroup):
                self._check(authorizer, access.check_unknown, request, parts, user)
                elsewhere = self.aggregated.answer(request, parts, user)
                if elsewhere is not None:
                    return elsewhere
                raise
            self._check(authorizer, access.check_route, request, route, user)
            return self.requests.answer(request, route, scope)
        self._check(authorizer, access.check_path, request, parts, user)
        return self.aggregated.answer(request, parts, user) or self.pages.answer(request, parts)


def timeout_of(request: HttpRequest) -> int | None:
    """Return the timeout of a request, in nanoseconds; None if it sets none.

    ApiError: it is not a duration as Go reads one. Watches, which have `timeoutSeconds`, are left
    alone. Source: k8s.io/apiserver `endpoints/filters/request_deadline.go`.
    """
    if "timeout=" not in request.query:
        return None
    query = parse_qs(request.query)
    text = query.get("timeout", [""])[0]
    if not text or is_watch(query):
        return None
    # Imported only when needed: servers start faster.
    from dralab.cel.errors import CelError
    from dralab.cel.functions.times import duration

    try:
        found = int(duration(text))
    except CelError:
        what = "missing unit in duration" if text.isdecimal() else "invalid duration"
        raise ApiError.bad_request(
            f'invalid timeout specified in the request URL - time: {what} "{text}"'
        ) from None
    return found if found > 0 else None
