"""One API server, without its sockets: a store, its watches, the verbs, and their HTTP form."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final

from dralab.api.kinds import Kinds
from dralab.api.resource.features import CBOR_SERVING, Features, default_of
from dralab.api.status import ApiError
from dralab.apiserver.access.admission.services import NETWORK
from dralab.apiserver.access.audit.ids import AuditIds
from dralab.apiserver.access.authentication.chain import Authentication
from dralab.apiserver.access.authentication.errors import UnusableSetting
from dralab.apiserver.access.authentication.settings import AuthenticationSettings
from dralab.apiserver.access.fairness.flow_control import FLOW_OBJECTS, Flow, FlowControl
from dralab.apiserver.access.users import User
from dralab.apiserver.http import access
from dralab.apiserver.http.application import Application
from dralab.apiserver.http.messages import Answer, HttpRequest, with_headers
from dralab.apiserver.http.proxying.nodes import LOOPBACK, Network, NodeProxy
from dralab.apiserver.http.proxying.proxies import Proxies
from dralab.apiserver.http.request_metrics import RequestMetrics
from dralab.apiserver.metrics.meters import now
from dralab.apiserver.server_gauges import ServerGauges
from dralab.apiserver.storage import Store, Stored
from dralab.apiserver.storage.freed_memory import FreedMemory, OldHistory
from dralab.apiserver.storage.store import follow
from dralab.apiserver.storage.watching import Hub, WatchLimits
from dralab.apiserver.verbs.assembly import built_in_admission, new_resources
from dralab.apiserver.verbs.kinds.outgoing_calls import OutgoingSettings
from dralab.apiserver.verbs.upkeep.event_ttl import TTL, EventLeases
from dralab.kernel.clock import Clock, WallClock
from dralab.kernel.randomness import Randomness

READS: Final = frozenset({"GET", "HEAD"})

if TYPE_CHECKING:
    from dralab.apiserver.access.admission.selection import AdmissionSettings
    from dralab.apiserver.http.auditing import Auditing, AuditSettings
    from dralab.apiserver.verbs.upkeep.own_objects import OwnAddress, OwnObjects


class ApiServer:
    """The server behind an `AsgiApp`; without one, the server of simulations and unit tests.

    `authorization` are modes of `authorization.modes`; without one every user may do everything.

    >>> from dralab.apiserver.storage import MemoryStore
    >>> server = ApiServer(MemoryStore())
    >>> server.handle(HttpRequest(method="GET", path="/api/v1/namespaces/default")).status
    200
    """

    def __init__(
        self,
        store: Store,
        *,
        clock: Clock | None = None,
        randomness: Randomness | None = None,
        authentication: AuthenticationSettings | None = None,
        address: str = "127.0.0.1:6443",
        limits: WatchLimits | None = None,
        kinds: Kinds | None = None,
        service_accounts: bool = True,
        mount_tokens: bool = False,
        features: Features | None = None,
        networks: Sequence[Network] = LOOPBACK,
        accept_hosts: Sequence[str] = (),
        event_ttl: int = TTL,
        authorization: Sequence[str] = (),
        audit: "AuditSettings | None" = None,
        admission: "AdmissionSettings | None" = None,
        outgoing: OutgoingSettings | None = None,
        service_network: str = NETWORK,
    ) -> None:
        chance = randomness or Randomness.from_system()
        clock = clock or WallClock()
        settings = authentication or AuthenticationSettings()
        self.store = store
        kinds = Kinds.standard() if kinds is None else kinds
        self.features = default_of(kinds.release) if features is None else features
        self.hub = Hub(store, clock, limits)
        self.resources = new_resources(
            store,
            clock,
            chance,
            kinds=kinds,
            admission=built_in_admission(
                service_accounts=service_accounts,
                mount_tokens=mount_tokens,
                pod_security=admission.pod_security if admission is not None else None,
                features=self.features,
            ),
            features=self.features,
            service_accounts=settings.service_accounts,
            outgoing=outgoing,
            disabled=admission.disabled if admission is not None else frozenset(),
            service_network=service_network,
        )
        self.hub.metrics = self.resources.context.metrics
        self.own_objects: OwnObjects | None = None
        if authorization:
            self._authorize(authorization)
        if settings.anonymous and self.resources.context.authorizer is None:
            raise UnusableSetting(
                "--anonymous-auth",
                "needs an authorization mode such as RBAC: without one, anyone who reaches the "
                "server "
                "could do everything",
            )
        if admission is not None:
            context = self.resources.context
            context.admission.replace(admission.chosen(list(context.admission)))
            context.validating.replace(admission.chosen(list(context.validating)))
        self.flows = FlowControl()
        follow(store, FLOW_OBJECTS, self.flows.put)
        self.leases = EventLeases(self.resources.context, ttl=event_ttl)
        self.freed = FreedMemory(store)
        self.old_history = OldHistory(store, clock)
        self.observers: list[Callable[[HttpRequest, Answer], None]] = []
        self.application = Application(
            self.resources,
            authentication=Authentication(
                tokens=settings.tokens,
                certificates=settings.certificates,
                proxies=settings.proxies,
                anonymous=settings.anonymous,
                service_accounts=self.resources.context.issuer,
                audiences=self.resources.context.issuer.audiences,
            ),
            address=address,
            accept_hosts=accept_hosts,
        )
        self._audit_ids = AuditIds(chance)
        self.metrics = RequestMetrics(self.hub.watches)
        measured = self.resources.context.metrics
        self._in_flight = {"mutating": 0, "readOnly": 0}
        measured.more.append(ServerGauges(store, self.flows, self._in_flight).lines)
        self.application.pages.exporters += [self.metrics.lines, measured.lines]
        self.audit: Auditing | None = None
        if audit is not None:
            self.audit = self._audited(audit, chance)
        self.nodes = NodeProxy(self.resources, networks)
        self.application.requests.speaks_cbor = CBOR_SERVING in self.features
        self.application.requests.connectors.update(self.nodes.connectors())
        self.application.requests.connectors.update(Proxies(self.nodes).connectors())

    def _authorize(self, modes: Sequence[str]) -> None:
        """Switch authorization on."""
        # Imported only when needed: servers start faster.
        from dralab.apiserver.access.authorization.modes import authorization_of
        from dralab.apiserver.verbs.upkeep import bootstrap

        if "RBAC" in modes:
            bootstrap.reconcile(self.resources, self.features)
        context = self.resources.context

        def pods_on(node: str, namespace: str) -> Sequence[Stored]:
            return context.indexes.candidates("pods", "spec.nodeName", node, namespace) or ()

        found = authorization_of(modes, self.store, pods_on, context.rules.claims_of_pods)
        context.authorizer = found.authorizer
        context.admission.extend(found.admission)
        context.connecting.extend(found.connecting)

    def publish(self, address: "OwnAddress") -> None:
        """Publish the objects that describe the server, and keep them up to date."""
        from dralab.apiserver.verbs.aggregation.local_services import LocalApiServices
        from dralab.apiserver.verbs.upkeep.flow_schema_statuses import FlowSchemaStatuses
        from dralab.apiserver.verbs.upkeep.own_objects import OwnObjects
        from dralab.apiserver.verbs.upkeep.policy_statuses import PolicyStatuses

        local = LocalApiServices(self.resources)
        flows = FlowSchemaStatuses(self.resources.context)
        self.own_objects = OwnObjects(self.resources, address, also=[local.publish, flows.follow])
        self.own_objects.publish()
        PolicyStatuses(self.resources.context).follow()

    def _audited(self, audit: "AuditSettings", chance: Randomness) -> "Auditing":
        from dralab.apiserver.access.audit.events import Auditor
        from dralab.apiserver.http.auditing import Auditing

        clock = self.resources.context.clock
        auditor = Auditor(audit.policy, audit.sink, clock, lambda: chance.uuid("audit"))
        return Auditing(auditor, self.resources.kinds, self.application.user_of)

    def admit(self, request: HttpRequest) -> None:
        """Check a request from a socket before its body is read. ApiError: it is refused."""
        request.audit_id = self._audit_ids.of(request.headers)
        try:
            self.application.admit(request)
        except ApiError as error:
            if self.audit is not None:
                self.audit.refused(request, error)
            raise

    def handle(self, request: HttpRequest) -> Answer:
        """Answer a request."""
        return self.answer_with(request, self.application.handle)

    def handle_apart(self, request: HttpRequest) -> Answer:
        """Answer a request in a thread beside that of the loop, which may take seconds."""
        return self.answer_with(request, self.application.handle_apart)

    def answer_with(self, request: HttpRequest, handle: Callable[[HttpRequest], Answer]) -> Answer:
        """Answer a request by `handle`, with the audit log and the observers of all requests."""
        began = now()
        place = "readOnly" if request.method in READS else "mutating"
        self._in_flight[place] += 1
        try:
            answer = handle(request) if self.audit is None else self.audit.answer(request, handle)
            if self.flows.configured:
                flow = self.flow_of(request)
                self.resources.context.metrics.dispatched_by(flow.schema, flow.level.name)
                answer = with_headers(answer, flow.headers)
            for observe in self.observers:
                observe(request, answer)
        finally:
            self._in_flight[place] -= 1
        self.metrics.count(request, answer, began)
        return answer

    def began(self, request: HttpRequest, status: int) -> None:
        """A long answer begins."""
        if self.audit is not None:
            self.audit.began(request, status)

    def ended(self, request: HttpRequest, status: int) -> None:
        """A long answer has ended."""
        if self.audit is not None:
            self.audit.ended(request, status)

    def flow_of(self, request: HttpRequest) -> Flow:
        """Return the flow and priority level of a request."""
        user = request.user or User()
        schemas = self.flows.schemas
        found = schemas.flow_of_user(user)
        if found is not None:
            return found
        return schemas.flow_of(access.attributes_of(request, self.resources.kinds, user))

    def reads_now(self, request: HttpRequest) -> bool:
        """Whether a request reads the latest state, and not an earlier one."""
        return self.application.reads_now(request)

    def tick(self) -> None:
        """Send bookmarks, delete expired events and old history. Call it every few seconds."""
        self.hub.tick()
        self.application.pages.remote.check_soon()
        self.leases.expire()
        if self.own_objects is not None:
            self.own_objects.renew()
        self.freed.give_back(self.old_history.forget())

    def close(self) -> None:
        """End the watches and close the store."""
        self.hub.close()
        self.resources.context.outgoing.close()
        following = self.resources.context.following
        self.store.close()
        if following is not None:
            following.close()
        if self.audit is not None:
            self.audit.close()
