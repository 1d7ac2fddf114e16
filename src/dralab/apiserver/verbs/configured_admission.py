"""Assembles the configurable admission when it is first configured.

Servers start faster, and most of them never read what webhooks and policies need.
"""

from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from dralab.api import fields
from dralab.api.core.definitions import HUB as DEFINITIONS
from dralab.apiserver.access.admission.chain import WRITES, Concerns, Review
from dralab.apiserver.access.admission.matching import GROUP
from dralab.apiserver.access.authorization.attributes import Attributes
from dralab.apiserver.made_once import made_once
from dralab.apiserver.verbs.state.context import Context
from dralab.values.json_types import JsonDict

MUTATING: Final = f"{GROUP}/mutatingwebhookconfigurations"
VALIDATING: Final = f"{GROUP}/validatingwebhookconfigurations"
HOOKS: Final = (MUTATING, VALIDATING)
POLICIES: Final = tuple(f"{GROUP}/{sort}admissionpolicies" for sort in ("mutating", "validating"))
BINDINGS: Final = tuple(
    f"{GROUP}/{sort}admissionpolicybindings" for sort in ("mutating", "validating")
)
CONFIGURATIONS: Final = (*HOOKS, *POLICIES, *BINDINGS)


class _Follower(NamedTuple):
    """What keeps the objects of one collection, compiled."""

    changed: Callable[[JsonDict | None, JsonDict | None], None]
    reset: Callable[[Sequence[JsonDict]], None]


class ConfiguredAdmission:
    """Follows configurations, and adds the plugins to `admission`.

    As a plugin itself it warns of webhooks that the operator does not let the server call.
    """

    name = "ConfiguredAdmission"
    concerns: Final[Concerns] = dict.fromkeys((*CONFIGURATIONS, DEFINITIONS), WRITES)

    def __init__(self, context: Context) -> None:
        self.admission = context.dynamic
        self._context = context
        context.derive(self.load, {hub: self._written(hub) for hub in CONFIGURATIONS})

    def load(self) -> None:
        """Read all configurations."""
        if self.admission.has_plugins or any(map(self._context.store.count, CONFIGURATIONS)):
            for hub, follower in self._followers.items():
                follower.reset([stored.value for stored in self._context.store.list(hub).items])
            self.admission.configured()

    def validate(self, review: Review) -> None:
        """Warn of a webhook that cannot be called from here."""
        if review.value is not None and review.kind.hub == DEFINITIONS:
            conversion = (review.value.get("spec") or {}).get("conversion") or {}
            if conversion.get("strategy") == "Webhook":
                config = (conversion.get("webhook") or {}).get("clientConfig") or {}
                self._warn(review, "the conversion webhook", config)
            return
        if review.kind.hub not in CONFIGURATIONS or review.value is None:
            return
        self._check_parameters(review)
        for hook in review.value.get("webhooks") or ():
            self._warn(review, f"webhook {hook.get('name')}", hook.get("clientConfig") or {})

    def _warn(self, review: Review, what: str, config: JsonDict) -> None:
        from dralab.apiserver.outgoing.targets import NotAllowed, Unreachable

        try:
            self._context.outgoing.targets.of_config(config)
        except NotAllowed as error:
            review.scope.warnings.append(f"{what} cannot be called: {error}")
        except Unreachable:
            pass  # what is not there now may come

    def _check_parameters(self, review: Review) -> None:
        """Refuse a policy with parameters that its author may not read. ApiError Invalid.

        Source: k8s.io/kubernetes `pkg/registry/admissionregistration/validatingadmissionpolicy`.
        """
        value = review.value or {}
        param = (value.get("spec") or {}).get("paramKind")
        authorizer = self._context.authorizer
        if (
            review.kind.hub not in POLICIES
            or not param
            or authorizer is None
            or review.user.is_superuser
            or param == ((review.old or {}).get("spec") or {}).get("paramKind")
        ):
            return
        kind = self._context.kinds.of_object(param["apiVersion"], param["kind"])
        group, _, version = param["apiVersion"].rpartition("/")
        wanted = Attributes(
            user=review.user,
            verb="get",
            group=group,
            version=version,
            resource=kind.plural if kind is not None else "*",
            namespace="*",
            name="*",
        )
        if not authorizer.authorize(wanted).allowed:
            why = (
                f'user {review.user.name} must have "get" permission on all objects of the '
                f"referenced paramKind (kind={param['kind']}, apiVersion={param['apiVersion']})"
            )
            error = fields.forbidden("spec.paramKind", why)
            raise fields.invalid(
                review.kind.kind, review.given_name, [error], group=review.kind.group
            )

    def _written(self, hub: str) -> Callable[[JsonDict | None, JsonDict | None], None]:
        def written(before: JsonDict | None, after: JsonDict | None) -> None:
            self._followers[hub].changed(before, after)
            self.admission.configured()

        return written

    @made_once
    def _followers(self) -> dict[str, _Follower]:
        """Make the plugins; return what follows each collection for them."""
        from dralab.apiserver.access.admission.policies.definitions import Policies
        from dralab.apiserver.access.admission.policies.mutating import MutatingPolicies
        from dralab.apiserver.access.admission.policies.validating import ValidatingPolicies
        from dralab.apiserver.access.admission.webhooks.configurations import Webhooks
        from dralab.apiserver.access.admission.webhooks.plugins import (
            MutatingWebhooks,
            ValidatingWebhooks,
            WebhookCalls,
        )
        from dralab.apiserver.verbs.admission_forms import AdmissionForms

        context = self._context
        forms = AdmissionForms(context)
        outgoing = context.outgoing
        calls = WebhookCalls(forms, outgoing.targets, outgoing.client, context.metrics.admission)
        mutating, validating = Webhooks(context.kinds), Webhooks(context.kinds)
        changing = Policies(context.kinds, mutating=True)
        checking = Policies(context.kinds, mutating=False)
        self.admission.add_plugins(
            [MutatingPolicies(changing, forms), MutatingWebhooks(mutating, calls)],
            [
                ValidatingPolicies(checking, forms, context.metrics.admission),
                ValidatingWebhooks(validating, calls),
            ],
        )
        return {
            POLICIES[0]: _Follower(changing.policy_changed, changing.reset_policies),
            POLICIES[1]: _Follower(checking.policy_changed, checking.reset_policies),
            BINDINGS[0]: _Follower(changing.binding_changed, changing.reset_bindings),
            BINDINGS[1]: _Follower(checking.binding_changed, checking.reset_bindings),
            MUTATING: _Follower(mutating.changed, mutating.reset),
            VALIDATING: _Follower(validating.changed, validating.reset),
        }
