"""Asks the admission plugins of a server about a write, in their two steps."""

from dralab.apiserver.admission.chain import Review
from dralab.apiserver.resources.context import Context


def admit(context: Context, review: Review) -> None:
    """Let plugins change the object of a write before it is validated. ApiError, MustWait."""
    plugins = context.admission.of(review.kind.hub, review.operation)
    for plugin in plugins:
        plugin.admit(review)
    if context.dynamic.active:
        context.dynamic.admit(review)
        if review.again:
            # A webhook changed the object: the others see what it has become, once.
            review.again, review.round = False, 1
            for plugin in plugins:
                plugin.admit(review)
            context.dynamic.admit(review)


def validate(context: Context, review: Review) -> None:
    """Let plugins look at a write that is valid. ApiError, MustWait."""
    for plugin in context.validating.of(review.kind.hub, review.operation):
        plugin.validate(review)


def connect(context: Context, review: Review) -> None:
    """Ask about what is created of a subresource that is not stored. ApiError, MustWait."""
    for plugin in context.connecting.of(review.kind.hub, review.operation):
        plugin.admit(review)
    if context.dynamic.active:
        context.dynamic.admit(review)
        context.dynamic.validate(review)
