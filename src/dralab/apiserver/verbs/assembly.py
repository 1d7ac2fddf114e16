"""Assembles the verbs on a store, and creates the first objects."""

from collections.abc import Sequence
from typing import Any, Final

from dralab.api.kinds import Kind, Kinds
from dralab.api.resource.features import DEFAULT_1_36, TOPOLOGY_LABELS, Features
from dralab.api.status import ApiError
from dralab.apiserver.access.admission.certificates import (
    CertificateRequester,
    CertificateSubjectRestriction,
)
from dralab.apiserver.access.admission.chain import Admission, PluginChain, ValidatingAdmission
from dralab.apiserver.access.admission.classes import (
    DefaultIngressClass,
    NewNodeTaint,
    RuntimeClasses,
)
from dralab.apiserver.access.admission.limits import LimitRanges
from dralab.apiserver.access.admission.namespaces import NamespaceLifecycle
from dralab.apiserver.access.admission.pod_security import PodSecurity, PodSecuritySettings
from dralab.apiserver.access.admission.pods import DefaultTolerations, PodPriority, TopologyLabels
from dralab.apiserver.access.admission.quotas import HUB as QUOTAS
from dralab.apiserver.access.admission.quotas import QuotaLimits
from dralab.apiserver.access.admission.service_accounts import DEFAULT, PodServiceAccount
from dralab.apiserver.access.admission.services import NETWORK, ServiceAddresses
from dralab.apiserver.access.admission.storage import (
    ClaimResize,
    DefaultStorageClass,
    ObjectInUseProtection,
)
from dralab.apiserver.access.authentication.service_accounts import STANDARD, ServiceAccountSettings
from dralab.apiserver.storage import Store
from dralab.apiserver.verbs.configured_admission import ConfiguredAdmission
from dralab.apiserver.verbs.kinds.outgoing_calls import OutgoingSettings
from dralab.apiserver.verbs.kinds.rules import Rules
from dralab.apiserver.verbs.server import Resources
from dralab.apiserver.verbs.state.context import Context, key_of
from dralab.kernel.clock import Clock
from dralab.kernel.randomness import Randomness

Plugin = Admission | ValidatingAdmission
SYSTEM_CLASSES: Final = {
    "system-cluster-critical": 2_000_000_000,
    "system-node-critical": 2_000_001_000,
}
SYSTEM_CLASS: Final = "Used for system critical pods that the cluster needs to work."
NAMESPACES: Final = ("default", "kube-node-lease", "kube-public", "kube-system")


def new_resources(
    store: Store,
    clock: Clock,
    randomness: Randomness,
    *,
    kinds: Kinds | None = None,
    admission: Sequence[Plugin] | None = None,
    bootstrap: bool = True,
    features: Features | None = None,
    service_accounts: ServiceAccountSettings = STANDARD,
    outgoing: OutgoingSettings | None = None,
    disabled: frozenset[str] = frozenset(),
    service_network: str = NETWORK,
) -> Resources:
    """Return the verbs of a server over `store`.

    `kinds` defaults to all that are known; `admission` to `built_in_admission()`, `features` to
    the gates of 1.36; `service_accounts` signs their tokens, `outgoing` says where webhooks may be
    called; `disabled` names plugins of webhooks and policies. Services get
    addresses of `service_network` (CIDR), and quotas are enforced, whatever the admission. With
    `bootstrap` the objects that every cluster has are made where they are missing.
    """
    found = kinds if kinds is not None else Kinds.standard()
    rules = Rules.standard(features)
    rules.adopt(found)
    addresses = ServiceAddresses(randomness.stream("services"), service_network)
    limits = QuotaLimits()
    rules.observe_all(limits.written)
    plugins = built_in_admission(features=rules.features) if admission is None else list(admission)
    context = Context(
        store=store,
        clock=clock,
        randomness=randomness,
        kinds=found,
        rules=rules,
        admission=_mutating([*plugins, addresses, CertificateRequester()]),
        validating=_validating(plugins),
        outgoing_settings=outgoing or OutgoingSettings(),
        service_accounts=service_accounts,
    )

    context.dynamic.disabled = disabled
    configured = ConfiguredAdmission(context)
    # What is counted for a quota comes after all that may refuse.
    context.validating.extend([context.dynamic, configured, limits])

    def count_addresses() -> None:
        addresses.reset(service.value for service in store.list("services").items)

    def count_quotas() -> None:
        limits.reset(limit.value for limit in store.list(QUOTAS).items)

    def weigh_quotas(kind: Kind, namespace: str) -> int:
        return sum(
            context.store.count(hub, namespace) for hub in limits.unknown(kind.hub, namespace)
        )

    context.derive(count_addresses, {"services": addresses.stored})
    context.derive(count_quotas, {})  # which hears of every write
    context.looked_into.append(weigh_quotas)
    resources = Resources(context)
    _give_accounts(resources, plugins)
    if bootstrap:
        make_first_objects(resources)
    return resources


def _mutating(plugins: Sequence[Plugin]) -> PluginChain[Admission]:
    return PluginChain(plugin for plugin in plugins if isinstance(plugin, Admission))


def _validating(plugins: Sequence[Plugin]) -> PluginChain[ValidatingAdmission]:
    return PluginChain(plugin for plugin in plugins if isinstance(plugin, ValidatingAdmission))


def _give_accounts(resources: Resources, plugins: Sequence[Plugin]) -> None:
    """Let admission create the default account of each namespace."""

    def make_default(namespace: str) -> dict[str, Any]:
        kind = resources.kind("", "v1", "serviceaccounts")
        account: dict[str, Any] = {"metadata": {"name": DEFAULT}}
        return resources.create(
            kind, account, namespace, resources.context.scope(internal=True)
        ).value

    for plugin in plugins:
        if isinstance(plugin, PodServiceAccount):
            plugin.make_default = make_default
            plugin.new_name = resources.context.generated_name


def built_in_admission(
    *,
    service_accounts: bool = True,
    mount_tokens: bool = False,
    pod_security: PodSecuritySettings | None = None,
    features: Features = DEFAULT_1_36,
) -> list[Plugin]:
    """Return the admission that every server has, in its order; `features` are on.

    With `mount_tokens`, service accounts must exist and pods get their tokens.
    """
    gated: list[Plugin] = [TopologyLabels()] if TOPOLOGY_LABELS in features else []
    accounts: list[Plugin] = []
    if service_accounts:
        accounts.append(PodServiceAccount(mounts=mount_tokens))
    return [
        NamespaceLifecycle(),
        LimitRanges(),
        *accounts,
        NewNodeTaint(),
        PodSecurity(pod_security),
        PodPriority(),
        DefaultTolerations(),
        DefaultStorageClass(),
        ObjectInUseProtection(),
        ClaimResize(),
        RuntimeClasses(),
        CertificateSubjectRestriction(),
        DefaultIngressClass(),
        *gated,
    ]


def make_first_objects(resources: Resources) -> None:
    """Create the objects that every cluster has from the start, if missing."""
    context = resources.context
    first: list[tuple[str, str, str, dict[str, Any]]] = [
        ("", "v1", "namespaces", {"metadata": {"name": name}}) for name in NAMESPACES
    ]
    first += [
        (
            "scheduling.k8s.io",
            "v1",
            "priorityclasses",
            {"metadata": {"name": name}, "value": value, "description": SYSTEM_CLASS},
        )
        for name, value in SYSTEM_CLASSES.items()
    ]
    with context.store.lock, context.store.batch():
        for group, version, plural, value in first:
            kind = resources.kinds.get(group, version, plural)
            if kind is None:
                continue  # switched off
            key = key_of(kind, "", value["metadata"]["name"])
            if key not in context.store.damaged(kind.hub) and context.store.get(key) is None:
                try:
                    resources.create(kind, value, scope=context.scope(internal=True))
                except ApiError as error:
                    # Another server of a shared store may start, too.
                    if not (context.store.shared and error.reason == "AlreadyExists"):
                        raise
