"""The metrics that are recorded while requests are answered.

Source of names, labels and bounds: k8s.io/apiserver `admission/metrics`, `endpoints/filters`,
`endpoints/metrics`, `storage/cacher/metrics`, `storage/etcd3/metrics`, `util/flowcontrol/metrics`.
"""

from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import lru_cache
from itertools import pairwise
from operator import sub
from typing import Final

from dralab.apiserver.metrics.meters import (
    FOLDED,
    Counters,
    Histograms,
    Labels,
    by_place,
    now,
    taken_from,
)
from dralab.kernel.clock import SECOND

STEPS: Final = (0.005, 0.025, 0.1, 0.5, 1.0, 2.5)
WEBHOOKS: Final = (*STEPS, 10.0, 25.0)
POLICIES: Final = (0.0000005, 0.001, 0.01, 0.1, 1.0)
ACCESS: Final = tuple(0.001 * 2**power for power in range(15))
EVENTS: Final = tuple(1024.0 * 2**power for power in range(8))
ETCD_SECONDS: Final = (
    0.005, 0.025, 0.05, 0.1, 0.2, 0.4, 0.6, 0.8, 1.0, 1.25, 1.5, 2.0, 3.0, 4.0, 5.0, 6.0, 8.0,
    10.0, 15.0, 20.0, 30.0, 45.0, 60.0,
)  # fmt: skip
DYNAMIC: Final = "Dynamic"  # stands for the plugins that users configure, each of which is timed
Names = tuple[str, ...]
OUTCOME: Final = ("operation", "rejected", "type")
COLLECTION: Final = ("group", "resource")
# Users are told apart only where there are few of them.
NAMED_USERS: Final = frozenset({"admin", "client", "kube_proxy", "kubelet"})
TOO_HIGH: Final = 600  # codes of webhooks above it count as it


class AdmissionMetrics:
    """How long plugins, webhooks and policies took, and what they refused."""

    def __init__(self) -> None:
        self._passed: deque[tuple[tuple[str, str, Names], Sequence[int]]] = deque()
        self._checked: deque[tuple[Labels, int]] = deque()
        self.plugins = Histograms(
            "apiserver_admission_controller_admission_duration_seconds",
            "How long an admission plugin took.",
            ("name", *OUTCOME),
            STEPS,
        )
        self.steps = Histograms(
            "apiserver_admission_step_admission_duration_seconds",
            "How long all plugins of a step took, which may change an object or check it.",
            OUTCOME,
            STEPS,
        )
        self.webhooks = Histograms(
            "apiserver_admission_webhook_admission_duration_seconds",
            "How long a webhook took.",
            ("name", *OUTCOME),
            WEBHOOKS,
        )
        self.requests = Counters(
            "apiserver_admission_webhook_request_total",
            "Calls of webhooks, by the code that they answered with.",
            ("code", "name", *OUTCOME),
        )
        self.rejections = Counters(
            "apiserver_admission_webhook_rejection_count",
            "Requests that webhooks rejected, or whose webhook failed.",
            ("error_type", "name", "operation", "rejection_code", "type"),
        )
        self.open = Counters(
            "apiserver_admission_webhook_fail_open_count",
            "Failed calls of webhooks that let requests pass.",
            ("name", "type"),
        )
        self.checks = Counters(
            "apiserver_validating_admission_policy_check_total",
            "Checks of ValidatingAdmissionPolicies, by what they led to.",
            ("enforcement_action", "error_type", "policy", "policy_binding"),
        )
        self.check_seconds = Histograms(
            "apiserver_validating_admission_policy_check_duration_seconds",
            "How long a ValidatingAdmissionPolicy took.",
            ("enforcement_action", "error_type", "policy", "policy_binding"),
            POLICIES,
        )

    def families(self) -> Iterator[Counters | Histograms]:
        """Yield all of them."""
        self._fold()
        self._fold_checks()
        yield from (self.plugins, self.steps, self.webhooks, self.requests, self.rejections)
        yield from (self.open, self.checks, self.check_seconds)

    def stepped(self, operation: str, type_: str, names: Names, instants: Sequence[int]) -> None:
        """Record a step that passed: when it began, and when each of its plugins was done."""
        self._passed.append(((operation, type_, names), instants))
        if len(self._passed) >= FOLDED:
            self._fold()

    def checked(self, labels: Labels, began: int) -> None:
        """Record the check of a policy that began then."""
        self._checked.append((labels, now() - began))
        if len(self._checked) >= FOLDED:
            self._fold_checks()

    def refused(self, operation: str, type_: str, names: Names, instants: Sequence[int]) -> None:
        """Record a step whose last plugin refused."""
        taken = [after - before for before, after in pairwise(instants)]
        for name, own in zip(names, taken, strict=False):
            rejected = "true" if name == names[len(taken) - 1] else "false"
            if name != DYNAMIC:
                self.plugins.add((name, operation, rejected, type_), own / SECOND)
        self.steps.add((operation, "true", type_), sum(taken) / SECOND)

    def _fold_checks(self) -> None:
        for labels, taken in by_place(taken_from(self._checked)).items():
            self.checks.add(labels, len(taken))
            self.check_seconds.add_all(labels, taken)

    def _fold(self) -> None:
        """Add the steps that passed, for many writes at once."""
        for (operation, type_, names), rows in by_place(taken_from(self._passed)).items():
            columns = list(zip(*rows, strict=True))
            for name, (began, ended) in zip(names, pairwise(columns), strict=True):
                if name != DYNAMIC:
                    self.plugins.add_all(
                        (name, operation, "false", type_), list(map(sub, ended, began))
                    )
            self.steps.add_all((operation, "false", type_), list(map(sub, columns[-1], columns[0])))

    def called(
        self,
        name: str,
        operation: str,
        step: str,
        began: int,
        *,
        code: int = 200,
        error: str = "",
        rejected: bool = False,
    ) -> None:
        """Record the call of a webhook; `error` is the type of its failure, if it failed.

        A failure that does not reject the request leaves it open.
        """
        shown = str(min(code, TOO_HIGH))
        refused = "true" if rejected else "false"
        self.webhooks.since((name, operation, refused, step), began)
        self.requests.add((shown, name, operation, refused, step))
        if error and not rejected:
            self.open.add((name, step))
        if rejected:
            self.rejections.add((error or "no_error", name, operation, shown, step))


class ServerMetrics:
    """The metrics of one server, except those of whole requests."""

    def __init__(self) -> None:
        self.admission = AdmissionMetrics()
        self.authentication = Histograms(
            "authentication_duration_seconds", "How long that took.", ("result",), ACCESS
        )
        self.users = Counters(
            "authenticated_user_requests",
            "Requests of known users; most users count as other.",
            ("username",),
        )
        self.authorization = Histograms(
            "authorization_duration_seconds", "How long that took.", ("result",), ACCESS
        )
        self.lists = Counters("apiserver_storage_list_total", "Lists that were read.", COLLECTION)
        self.returned = Counters(
            "apiserver_storage_list_returned_objects_total",
            "Objects that lists returned.",
            COLLECTION,
        )
        self.received = Counters(
            "apiserver_watch_cache_events_received_total", "Changes of a collection.", COLLECTION
        )
        self.dispatched = Counters(
            "apiserver_watch_cache_events_dispatched_total",
            "Changes of a collection that were passed to its watches.",
            COLLECTION,
        )
        self.sent = Counters(
            "apiserver_watch_events_total",
            "Events that were sent to watches.",
            ("group", "resource", "version"),
        )
        self.sent_bytes = Histograms(
            "apiserver_watch_events_sizes",
            "Bytes of the events that were sent to watches.",
            ("group", "resource", "version"),
            EVENTS,
        )
        self.flows = Counters(
            "apiserver_flowcontrol_dispatched_requests_total",
            "Requests that were answered, by their flow schema and priority level.",
            ("flow_schema", "priority_level"),
        )
        self._known: deque[tuple[str, int]] = deque()
        self._allowed: deque[int] = deque()
        self._flows: deque[tuple[str, str]] = deque()
        self.more: list[Callable[[], Iterable[str]]] = []

    def authenticated(self, user: str, began: int) -> None:
        """Record a request of a known user."""
        self._known.append((user, now() - began))
        if len(self._known) >= FOLDED:
            self._fold()

    def unauthenticated(self, began: int) -> None:
        """Record a request whose credential was not recognised."""
        self.authentication.since(("failure",), began)

    def allowed(self, began: int) -> None:
        """Record that a request was allowed."""
        self._allowed.append(now() - began)
        if len(self._allowed) >= FOLDED:
            self._fold()

    def unauthorized(self, began: int) -> None:
        """Record a request that no authorizer allowed."""
        self.authorization.since(("no-opinion",), began)

    def dispatched_by(self, schema: str, level: str) -> None:
        """Record a request of a flow schema and priority level."""
        self._flows.append((schema, level))
        if len(self._flows) >= FOLDED:
            self._fold()

    def _fold(self) -> None:
        """Add what was noted of many requests."""
        flows = taken_from(self._flows)
        if known := taken_from(self._known):
            users, taken = zip(*known, strict=True)
            self.authentication.add_all(("success",), taken)
            for user, count in Counter(users).items():
                self.users.add((user if user in NAMED_USERS else "other",), count)
        if allowed := taken_from(self._allowed):
            self.authorization.add_all(("allowed",), allowed)
        for place, count in Counter(flows).items():
            self.flows.add(place, count)

    def listed(self, hub: str, returned: int) -> None:
        """Record a list, and how many objects it has."""
        place = collection(hub)
        self.lists.add(place)
        self.returned.add(place, returned)

    def changed(self, hub: str, changes: int, *, watched: bool) -> None:
        """Record changes of a collection, and whether there were watches for them."""
        place = collection(hub)
        self.received.add(place, changes)
        if watched:
            self.dispatched.add(place, changes)

    def sent_to(self, hub: str, version: str, items: Sequence[object], watches: int) -> None:
        """Record events that so many watches get; sizes are those of events that are text."""
        place = (*collection(hub), version)
        self.sent.add(place, len(items) * watches)
        for item in items:
            if isinstance(item, bytes):
                self.sent_bytes.add(place, len(item), watches)

    def lines(self) -> Iterator[str]:
        """Yield all of them in Prometheus' text format."""
        self._fold()
        yield from (line for each in self.admission.families() for line in each.lines())
        attempts = "Requests whose user was looked for."
        yield from self.authentication.counts("authentication_attempts", attempts)
        decisions = "Requests whose user had to be allowed."
        yield from self.authorization.counts("authorization_attempts_total", decisions)
        told = "Changes of a collection, as the store told of them."
        yield from self.received.lines("apiserver_storage_events_received_total", told)
        for each in (
            self.authentication, self.users, self.authorization, self.lists, self.returned,
            self.received, self.dispatched, self.sent, self.sent_bytes, self.flows,
        ):  # fmt: skip
            yield from each.lines()
        for export in self.more:
            yield from export()


@lru_cache(maxsize=1024)
def collection(hub: str) -> Labels:
    """Return group and resource of a collection.

    >>> collection("apps/deployments")
    ('apps', 'deployments')
    """
    group, _, resource = hub.rpartition("/")
    return group, resource
