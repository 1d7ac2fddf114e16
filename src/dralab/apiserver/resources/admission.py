"""Asks the admission plugins of a server about a write, in their two steps."""

from collections.abc import Callable, Sequence
from typing import Protocol

from dralab.api.status import ApiError
from dralab.apiserver.admission.chain import Review
from dralab.apiserver.metrics.meters import now
from dralab.apiserver.resources.context import Context


class _Named(Protocol):
    name: str


def admit(context: Context, review: Review) -> None:
    """Let plugins change the object of a write before it is validated. ApiError, MustWait."""
    plugins = context.admission.of(review.kind.hub, review.operation)
    steps = [(plugin, plugin.admit) for plugin in plugins]
    if context.dynamic.active:
        steps.append((context.dynamic, context.dynamic.admit))
    _asked(context, review, steps, "admit")
    if review.again:
        # A webhook changed the object: the others see what it has become, once.
        review.again, review.round = False, 1
        _asked(context, review, steps, "admit")


def validate(context: Context, review: Review) -> None:
    """Let plugins look at a write that is valid. ApiError, MustWait."""
    plugins = context.validating.of(review.kind.hub, review.operation)
    _asked(context, review, [(plugin, plugin.validate) for plugin in plugins], "validate")


def connect(context: Context, review: Review) -> None:
    """Ask about what is created of a subresource that is not stored. ApiError, MustWait."""
    plugins = context.connecting.of(review.kind.hub, review.operation)
    steps = [(plugin, plugin.admit) for plugin in plugins]
    if context.dynamic.active:
        steps.append((context.dynamic, context.dynamic.admit))
    _asked(context, review, steps, "admit")
    if context.dynamic.active:
        _asked(context, review, [(context.dynamic, context.dynamic.validate)], "validate")


def _asked(
    context: Context,
    review: Review,
    steps: Sequence[tuple[_Named, Callable[[Review], None]]],
    type_: str,
) -> None:
    taken: list[int] = []
    measured, last = context.metrics.admission, now()
    try:
        for _, ask in steps:
            ask(review)
            ended = now()
            taken.append(ended - last)
            last = ended
    except ApiError:
        names = tuple(plugin.name for plugin, _ in steps)
        measured.refused(review.operation, type_, names, [*taken, now() - last])
        raise
    measured.stepped(review.operation, type_, tuple([plugin.name for plugin, _ in steps]), taken)
