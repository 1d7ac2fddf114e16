"""The admission that users configure: policies and webhooks, in the order of kube-apiserver.

`active` is false while nothing is configured, and callers skip the rest.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from dralab.api.kinds import Kind
from dralab.api.status import ApiError
from dralab.apiserver.access.admission.chain import (
    Admission,
    Operation,
    Review,
    ValidatingAdmission,
)
from dralab.apiserver.access.scope import RequestScope
from dralab.apiserver.metrics.families import DYNAMIC, AdmissionMetrics
from dralab.apiserver.metrics.meters import now

if TYPE_CHECKING:
    from dralab.apiserver.access.admission.webhooks.configurations import Webhooks


class Configured(Protocol):
    """A plugin that does something only where something is configured."""

    name: str

    @property
    def active(self) -> bool:
        """Whether anything is configured."""
        ...


class Mutating(Configured, Admission, Protocol):
    """A configured plugin that may change objects."""


class Validating(Configured, ValidatingAdmission, Protocol):
    """A configured plugin that looks at objects."""


@runtime_checkable
class Calling(Protocol):
    """A configured plugin that asks other servers."""

    hooks: "Webhooks"


class DynamicAdmission:
    """Calls the plugins that users configure; itself one of the validating plugins."""

    name = DYNAMIC

    def __init__(self) -> None:
        self.disabled: frozenset[str] = frozenset()  # names of plugins that are switched off
        self.mutating: list[Mutating] = []
        self.validating: list[Validating] = []
        self._calling: tuple[Calling, ...] = ()
        self.active = False
        # Of a collection, how many bytes were sent with a write that policies took long for.
        self.long_writes: dict[str, int] = {}
        self.metrics = AdmissionMetrics()

    @property
    def has_plugins(self) -> bool:
        """Whether anything has been configured since the server started."""
        return bool(self.mutating or self.validating)

    def add_plugins(self, mutating: Sequence[Mutating], validating: Sequence[Validating]) -> None:
        """Add plugins, except those that are switched off."""
        self.mutating += [each for each in mutating if each.name not in self.disabled]
        self.validating += [each for each in validating if each.name not in self.disabled]
        plugins: tuple[Configured, ...] = (*self.mutating, *self.validating)
        self._calling = tuple(each for each in plugins if isinstance(each, Calling))

    def configured(self) -> None:
        """Update `active` after a configuration was written or deleted."""
        self.active = any(each.active for each in (*self.mutating, *self.validating))
        self.long_writes = {}

    def may_wait(
        self,
        kind: Kind,
        subresource: str,
        operations: Sequence[Operation],
        *,
        name: str,
        namespace: Mapping[str, str] | None,
    ) -> bool:
        """Whether a write may need calls to other servers, before its object is known."""
        return any(
            each.hooks.may_match(kind, subresource, operations, name=name, namespace=namespace)
            for each in self._calling
        )

    def took_long(self, hub: str, size: int) -> None:
        """Remember that policies took long for a write of so many bytes."""
        self.long_writes[hub] = min(size, self.long_writes.get(hub, size))

    def takes_long(self, hub: str, size: int) -> bool:
        """Whether policies took long for a write of as many bytes, or fewer."""
        return size >= self.long_writes.get(hub, size + 1)

    def admit(self, review: Review) -> None:
        """Call the mutating plugins for an object. ApiError, MustWait."""
        if review.internal:
            return
        for each in self.mutating:
            if each.active:
                self._timed(each.name, each.admit, review, "admit")

    def validate(self, review: Review) -> None:
        """Call the validating plugins for an object. ApiError, MustWait."""
        if not self.active or review.internal:
            return
        for each in self.validating:
            if each.active:
                self._timed(each.name, each.validate, review, "validate")

    def _timed(self, name: str, ask: Callable[[Review], None], review: Review, type_: str) -> None:
        began = now()
        try:
            ask(review)
        except ApiError:
            self.metrics.plugins.since((name, review.operation, "true", type_), began)
            raise
        self.metrics.plugins.since((name, review.operation, "false", type_), began)

    def check_waiting(self, scope: RequestScope) -> None:
        """Raise MustWait if a request of several writes might have to wait between them."""
        if self.active:
            scope.check_waits()
