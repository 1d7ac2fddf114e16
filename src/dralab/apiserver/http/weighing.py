"""Estimates the cost of requests in advance, so that expensive ones run in separate threads.

A weight is the number of bytes of JSON whose reading takes as long. It is an estimate, on the safe
side: a light request taken for heavy costs a thread switch; a heavy one taken for light delays all.
"""

from collections.abc import Sequence
from contextlib import suppress
from typing import Final

import orjson

from dralab.api.core.definitions import HUB as DEFINITIONS
from dralab.api.kinds import Kind
from dralab.api.status import ApiError
from dralab.apiserver.access.admission.chain import Operation
from dralab.apiserver.http.messages import (
    HEAVY,
    LARGE_LANE,
    WAITING_LANE,
    YAML_READ,
    YAML_WRITTEN,
    HttpRequest,
    TakesLong,
    lane_for,
)
from dralab.apiserver.http.negotiation import AnswerForm
from dralab.apiserver.http.routing import Route
from dralab.apiserver.storage import Damaged, Stored
from dralab.apiserver.verbs.reading import is_indexed
from dralab.apiserver.verbs.server import Resources
from dralab.apiserver.verbs.state.context import key_of
from dralab.apiserver.verbs.state.options import ListOptions
from dralab.values.json_syntax import may_have_duplicates

MANY: Final = 500  # objects that may always be looked at one by one
TERMS: Final = 8  # terms of a selector that take as long as reading a byte
TYPICAL: Final = 1024  # bytes of one object
DELETED: Final = 512  # bytes of JSON whose reading takes as long as a deletion
COPIED: Final = 200  # times as fast as reading
SAMPLES: Final = 16  # objects of a list whose size is guessed
PRETTY: Final = 4  # times as fast as checking what was read
COLUMNS: Final = 8  # columns of a table that take as long as reading the object
COMPILED: Final = 50  # times as long as reading takes what may be an expression of CEL
# Kinds with expressions, which are compiled when they are written.
EXPRESSIVE: Final = frozenset(
    {
        DEFINITIONS,
        *(f"resource.k8s.io/{each}" for each in (
            "deviceclasses", "resourceclaims", "resourceclaimtemplates"
        )),
        *(f"admissionregistration.k8s.io/{each}" for each in (
            "mutatingadmissionpolicies", "mutatingwebhookconfigurations",
            "validatingadmissionpolicies", "validatingwebhookconfigurations",
        )),
    }
)  # fmt: skip
# A change may create: an update of what is not there, an apply.
CHANGED: Final[Sequence[Operation]] = ("UPDATE", "CREATE")
CREATED: Final[Sequence[Operation]] = ("CREATE",)
MOST: Final = 64 * 1024 * 1024  # a minute: longer requests are refused


class Weights:
    """Raises TakesLong for expensive requests, unless the request may take long."""

    def __init__(self, resources: Resources) -> None:
        self.resources = resources

    def check_create(self, request: HttpRequest, route: Route, form: AnswerForm) -> None:
        """Weigh a new object, and those that have to be counted first. ApiError."""
        self._check_admission(request, route, "CREATE")
        self._check_object(request, route, form, len(request.body))
        if request.brief:
            for looked_into in self.resources.context.looked_into:
                if objects := looked_into(route.kind, route.namespace):
                    check(request, TYPICAL * objects)

    def check_change(self, request: HttpRequest, route: Route, form: AnswerForm) -> None:
        """Weigh the change of an object: what it is, and what it may become. ApiError."""
        operations: Sequence[Operation] = CREATED if request.method == "POST" else CHANGED
        self._check_admission(request, route, *operations)
        found = None
        with suppress(Damaged):
            found = self._stored(route)
        size = len(request.body) + (len(found.encoded) if found is not None else 0)
        self._check_object(request, route, form, size)
        check(request, self._dependents(route) * DELETED)

    def check_delete(self, request: HttpRequest, route: Route) -> None:
        """Weigh a deletion: that of a definition deletes all objects of its kind."""
        self._check_admission(request, route, "DELETE")
        check(request, self._dependents(route) * DELETED)

    def check_collection(self, request: HttpRequest, route: Route) -> None:
        """Weigh the deletion of a collection."""
        self._check_admission(request, route, "DELETE")
        store = self.resources.context.store
        check(request, store.count(route.kind.hub, route.namespace) * DELETED)

    def check_selection(self, request: HttpRequest, route: Route, options: ListOptions) -> None:
        """Weigh a selector that has to look into objects because no index helps."""
        if not request.brief or not (options.label_selector or options.field_selector):
            return
        kind = route.kind
        within = route.namespace if kind.namespaced else ""
        store = self.resources.context.store
        if is_indexed(kind, options):
            return
        count = store.count(kind.hub, within)
        if count > MANY:
            raise TakesLong(lane_for(count * TYPICAL))
        terms = count * (options.label_selector + options.field_selector).count(",") // TERMS
        check(request, terms + _size(store.list(kind.hub, within).items))

    def check_page(
        self,
        request: HttpRequest,
        kind: Kind,
        form: AnswerForm,
        items: Sequence[Stored],
        *,
        plain: bool,
    ) -> None:
        """Weigh the writing of a list; `plain` says that objects are sent as they are kept."""
        if not request.brief or (plain and len(items) < MANY):
            return
        if plain:
            step = len(items) // SAMPLES
            check(request, step * _size(items[::step]) // COPIED)
            return
        columns = kind.custom.get("additionalPrinterColumns") if kind.custom else None
        per_object = 1 + len(columns or ()) // COLUMNS if form.as_ == "Table" else 1
        check(request, times(form) * per_object * _size(items))

    def _check_admission(self, request: HttpRequest, route: Route, *operations: Operation) -> None:
        """Weigh the webhooks and policies that may be called for a write. TakesLong."""
        context = self.resources.context
        kind, name = route.kind, route.namespace
        if request.lane == WAITING_LANE:
            return
        if context.rules.may_wait(kind):
            raise TakesLong(WAITING_LANE)
        if not context.dynamic.active:
            return
        labels = context.own.labels_of_namespace(name) if kind.namespaced and name else None
        if context.dynamic.may_wait(
            kind, route.subresource, operations, name=route.name, namespace=labels
        ):
            raise TakesLong(WAITING_LANE)
        if request.lane != LARGE_LANE and context.dynamic.takes_long(kind.hub, len(request.body)):
            raise TakesLong(LARGE_LANE)

    def _check_object(
        self, request: HttpRequest, route: Route, form: AnswerForm, size: int
    ) -> None:
        kind = route.kind
        if kind.custom is None:  # whose rules take as long as reading
            if kind.hub in EXPRESSIVE and not route.subresource:
                check(request, len(request.body) * COMPILED)
            check(request, size * times(form))
            return
        strategy = self.resources.context.rules.strategy_of(kind)
        weight = strategy.effort(size, kind.version)
        if weight > MOST:
            raise ApiError(
                "RequestEntityTooLarge",
                f"an object of {size} bytes would take too long to be checked against the schema "
                f"of {kind.plural}.{kind.group}: every part of it is compared with too many "
                "alternatives",
                details={},
            )
        check(request, max(weight, size * times(form)))

    def _dependents(self, route: Route) -> int:
        """Return how many objects change with a definition."""
        if route.kind.hub != DEFINITIONS:
            return 0
        plural, _, group = route.name.partition(".")
        return self.resources.context.store.count(f"{group}/{plural}", "")

    def _stored(self, route: Route) -> Stored | None:
        key = key_of(route.kind, route.namespace, route.name)
        return self.resources.context.store.get(key)


def check_yaml(request: HttpRequest) -> None:
    """Weigh a body that may be YAML: most are JSON, but an opening brace proves nothing.

    JSON that may give a key twice is read as YAML, for the lines of these keys. TakesLong.
    """
    weight = len(request.body) * YAML_READ
    if request.brief and weight > HEAVY:
        try:
            again = orjson.dumps(orjson.loads(request.body))
        except (orjson.JSONDecodeError, orjson.JSONEncodeError):
            raise TakesLong(lane_for(weight)) from None
        if may_have_duplicates(request.body, again):
            raise TakesLong(lane_for(weight))


def check(request: HttpRequest, weight: int) -> None:
    """Raise TakesLong where a request is heavy, and others wait behind it."""
    if request.brief and weight > HEAVY:
        raise TakesLong(lane_for(weight))


def times(form: AnswerForm) -> int:
    """Return how much longer it takes to write a form than to read JSON."""
    return YAML_WRITTEN if form.encoding == "yaml" else 1


def _size(items: Sequence[Stored]) -> int:
    return sum(len(each.encoded) for each in items)
