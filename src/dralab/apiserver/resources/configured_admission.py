"""Puts together the admission that users configure, when they first configure any.

Servers start faster, and most of them never read what webhooks and policies need.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from dralab.apiserver.admission.chain import Review
from dralab.apiserver.admission.matching import GROUP
from dralab.apiserver.resources.context import Context
from dralab.values.json_types import JsonDict

if TYPE_CHECKING:
    from dralab.apiserver.admission.webhooks.configurations import Webhooks
    from dralab.apiserver.outgoing.targets import Network, ServiceAt, Targets

MUTATING: Final = f"{GROUP}/mutatingwebhookconfigurations"
VALIDATING: Final = f"{GROUP}/validatingwebhookconfigurations"
CONFIGURATIONS: Final = (MUTATING, VALIDATING)


@dataclass(frozen=True, slots=True, kw_only=True)
class OutgoingSettings:
    """Where the server may call: networks beside the loopback, and the addresses of Services."""

    networks: "Sequence[Network]" = ()
    services: "Sequence[ServiceAt]" = ()


class ConfiguredAdmission:
    """Follows what users configure, and fills `admission` with the plugins that do it.

    As a plugin itself it warns of webhooks that the operator does not let the server call.
    """

    name = "ConfiguredAdmission"

    def __init__(self, context: Context, outgoing: OutgoingSettings) -> None:
        self.admission = context.dynamic
        self._context = context
        self._outgoing = outgoing
        self._changed: dict[str, Callable[[JsonDict | None, JsonDict | None], None]] = {}
        self._reset: dict[str, Callable[[Sequence[JsonDict]], None]] = {}
        self._targets: Targets | None = None
        for hub in CONFIGURATIONS:
            context.rules.observe(hub, self._written(hub))
        context.reloads.append(self.load)
        self.load()

    def load(self) -> None:
        """Read all configurations."""
        if self._reset or any(map(self._context.store.count, CONFIGURATIONS)):
            self._begin()
            for hub, reset in self._reset.items():
                reset([stored.value for stored in self._context.store.list(hub).items])
            self.admission.configured()

    def validate(self, review: Review) -> None:
        """Warn of a webhook that cannot be called from here."""
        if review.kind.hub not in CONFIGURATIONS or review.value is None:
            return
        self._begin()
        from dralab.apiserver.outgoing.targets import NotAllowed, Unreachable

        for hook in review.value.get("webhooks") or ():
            try:
                if self._targets is not None:
                    self._targets.of_config(hook.get("clientConfig") or {})
            except NotAllowed as error:
                review.warnings.append(f"webhook {hook.get('name')} cannot be called: {error}")
            except Unreachable:
                pass  # what is not there now may come

    def _written(self, hub: str) -> Callable[[JsonDict | None, JsonDict | None], None]:
        def written(before: JsonDict | None, after: JsonDict | None) -> None:
            self._begin()
            self._changed[hub](before, after)
            self.admission.configured()

        return written

    def _begin(self) -> None:
        """Make the plugins, once."""
        if self._reset:
            return
        from dralab.apiserver.admission.webhooks.configurations import Webhooks
        from dralab.apiserver.admission.webhooks.plugins import (
            MutatingWebhooks,
            ValidatingWebhooks,
            WebhookCalls,
        )
        from dralab.apiserver.outgoing.client import CallClient
        from dralab.apiserver.outgoing.targets import Targets
        from dralab.apiserver.resources.admission_forms import AdmissionForms

        context = self._context
        self._targets = targets = Targets(
            # Not by a request's view of the store: what is found there decides nothing.
            context.find,
            context.all_of,
            networks=self._outgoing.networks,
            services=self._outgoing.services,
        )
        client = CallClient()
        self.admission.closing.append(client.close)
        calls = WebhookCalls(AdmissionForms(context), targets, client)
        mutating, validating = Webhooks(context.kinds), Webhooks(context.kinds)
        self.admission.add_plugins(
            [MutatingWebhooks(mutating, calls)], [ValidatingWebhooks(validating, calls)]
        )
        self._follow(MUTATING, mutating)
        self._follow(VALIDATING, validating)

    def _follow(self, hub: str, hooks: "Webhooks") -> None:
        self._changed[hub], self._reset[hub] = hooks.changed, hooks.reset
