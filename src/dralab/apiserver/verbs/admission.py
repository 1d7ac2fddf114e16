"""Calls the admission plugins of a server for a write, in their two steps."""

from collections.abc import Callable, Sequence
from typing import Final

from dralab.api.kinds import Kind
from dralab.api.status import ApiError
from dralab.apiserver.access.admission.chain import Operation, Review
from dralab.apiserver.metrics.families import DYNAMIC
from dralab.apiserver.metrics.meters import now
from dralab.apiserver.verbs.state.context import Scope
from dralab.apiserver.verbs.state.options import DeleteOptions
from dralab.values.json_types import JsonDict

Ask = Callable[[Review], None]
# Ways of writing about which webhooks and policies are asked by another review.
ASKED_BEFORE: Final = frozenset({"binding", "eviction", "scale"})


def review_of(
    scope: Scope,
    kind: Kind,
    operation: Operation,
    *,
    namespace: str,
    name: str,
    value: JsonDict | None,
    old: JsonDict | None,
    how: DeleteOptions | None = None,
    subresource: str = "",
    form: tuple[str, str, str] | None = None,
) -> Review:
    """Return the admission review of a write."""
    return Review(
        operation=operation,
        kind=kind,
        namespace=namespace if kind.namespaced else "",
        name=name,
        subresource=subresource,
        value=value,
        old=old,
        scope=scope,
        options=how or scope.options,
        form=form,
        # Of a binding others are asked when it is created.
        internal=scope.internal or (form is None and subresource in ASKED_BEFORE),
    )


def admit(scope: Scope, review: Review) -> None:
    """Call the mutating plugins for a write. ApiError, MustWait."""
    names, asks = scope.context.admission.steps(review.kind.hub, review.operation, "admit")
    if scope.context.dynamic.active:
        names, asks = (*names, DYNAMIC), (*asks, scope.context.dynamic.admit)
    _asked(scope, review, names, asks, "admit")
    if review.again:
        # A webhook changed the object: the others see what it has become, once.
        review.again, review.round = False, 1
        _asked(scope, review, names, asks, "admit")


def validate(scope: Scope, review: Review) -> None:
    """Call the validating plugins for a valid write. ApiError, MustWait."""
    names, asks = scope.context.validating.steps(review.kind.hub, review.operation, "validate")
    _asked(scope, review, names, asks, "validate")
    for stored, value in review.along:
        scope.put(stored, value)


def connect(scope: Scope, review: Review) -> None:
    """Call admission for a created subresource that is not stored. ApiError, MustWait."""
    names, asks = scope.context.connecting.steps(review.kind.hub, review.operation, "admit")
    if scope.context.dynamic.active:
        names, asks = (*names, DYNAMIC), (*asks, scope.context.dynamic.admit)
    _asked(scope, review, names, asks, "admit")
    if scope.context.dynamic.active:
        _asked(scope, review, (DYNAMIC,), (scope.context.dynamic.validate,), "validate")


def _asked(
    scope: Scope, review: Review, names: tuple[str, ...], asks: Sequence[Ask], type_: str
) -> None:
    # Most of what a server does passes here: only instants are taken.
    instants = [now()]
    note = instants.append
    try:
        for ask in asks:
            ask(review)
            note(now())
    except ApiError:
        note(now())
        scope.context.metrics.admission.refused(review.operation, type_, names, instants)
        raise
    scope.context.metrics.admission.stepped(review.operation, type_, names, instants)
