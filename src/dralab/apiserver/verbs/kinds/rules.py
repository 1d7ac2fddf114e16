"""The strategy of each kind, and the conversion between versions of one store."""

from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Final

import orjson

from dralab.api.core import definitions
from dralab.api.core.autoscalers import autoscaler_to_v1, autoscaler_to_v2
from dralab.api.core.cluster import event_from_core, event_to_core
from dralab.api.core.strategies import strategies
from dralab.api.decoding import decoder_of
from dralab.api.gated_fields import drop
from dralab.api.kinds import Kind, Kinds
from dralab.api.releases import MIXED
from dralab.api.resource.features import DEFAULT_1_36, Features, off_in
from dralab.api.scalar_decoding import DecodingError
from dralab.api.strategy import Strategy
from dralab.apiserver.access.scope import RequestScope
from dralab.apiserver.made_once import made_once
from dralab.apiserver.storage import Stored
from dralab.apiserver.verbs.kinds import devices
from dralab.apiserver.verbs.kinds.checked_policies import CheckedBindings, CheckedPolicies
from dralab.apiserver.verbs.kinds.checked_webhooks import CheckedWebhooks
from dralab.apiserver.verbs.kinds.custom_rules import CheckedDefinitions
from dralab.values.json_types import JsonDict, JsonObject

if TYPE_CHECKING:
    from dralab.apiserver.verbs.kinds.conversion_webhooks import ConversionWebhook

# (kind of the version asked for, object) → the same object in another version, a new mapping.
Conversion = Callable[[Kind, JsonDict], JsonDict]
# (state before, state after) of a stored object; None if there is none.
Observer = Callable[[JsonDict | None, JsonDict | None], None]
ObserverOfAll = Callable[[str, JsonDict | None, JsonDict | None], None]  # with the collection
PLAIN: Final = Strategy()


class Rules:
    """The strategies and conversions of the kinds of a server; both can grow at run time.

    Objects are stored in the form that `hub_types` names; `to_hub` and `from_hub` are asked
    only for the other versions.
    """

    def __init__(
        self, strategies: Mapping[str, Strategy] | None = None, features: Features = DEFAULT_1_36
    ) -> None:
        self.features = features
        self.release = MIXED
        # Collections on whose objects no part of the cluster acts: who creates one is told.
        self.stored_only: frozenset[str] = frozenset()
        # And those on which a part acts that has to be asked for, and how; some are one name alone.
        self.optional: Mapping[tuple[str, str], str] = {}
        self.strategies: dict[str, Strategy] = dict(strategies or {})
        self.conversions: dict[str, tuple[Conversion, Conversion]] = {}
        self.webhooks: dict[str, ConversionWebhook] = {}
        self.hub_types: dict[str, tuple[str, str]] = {}
        # Collections with objects of several versions: each is stored in the version that was the
        # stored one when it was last written, as in a real server.
        self.mixed: set[str] = set()
        # Collections whose objects may have been stored by another schema: they are pruned and get
        # their defaults when they are read, as in a real server.
        self.outdated: set[str] = set()
        # Claims of other device APIs, as `group/plural` → those that a pod uses, by name. The node
        # of the pod may get them.
        self.claims_of_pods: dict[str, Callable[[JsonObject], Collection[str]]] = {}
        self._observers: dict[str, list[Observer]] = {}
        self._writers: dict[str, list[Observer]] = {}
        self._of_all: list[ObserverOfAll] = []

    @classmethod
    def standard(cls, features: Features | None = None) -> "Rules":
        """Return the rules of the standard kinds; `features` are the gates that are on."""
        on = DEFAULT_1_36 if features is None else features
        rules = cls(strategies(on), on)
        rules.strategies |= {hub: devices.DeviceStrategy(features) for hub in devices.HUBS}
        rules.strategies[devices.CLASSES] = devices.DeviceClassStrategy(features)
        rules.strategies[definitions.HUB] = CheckedDefinitions()
        for sort in ("mutating", "validating"):
            mutating = sort == "mutating"
            hub = f"admissionregistration.k8s.io/{sort}admissionpolicies"
            rules.strategies[hub] = CheckedPolicies(mutating=mutating)
            hooks = f"admissionregistration.k8s.io/{sort}webhookconfigurations"
            rules.strategies[hooks] = CheckedWebhooks(mutating=mutating)
            rules.strategies[f"{hub[:-3]}ybindings"] = CheckedBindings(mutating=mutating)
        for hub, kind in devices.HUBS.items():
            rules.conversions[hub] = (devices.to_hub, devices.from_hub)
            # Whatever versions a release serves: what reasons about devices knows the newest form.
            rules.hub_types[hub] = devices.hub_type(kind)
        rules.conversions["events"] = (
            lambda _, value: event_to_core(value),
            lambda _, value: event_from_core(value),
        )
        rules.conversions["autoscaling/horizontalpodautoscalers"] = (
            lambda _, value: autoscaler_to_v2(value),
            lambda _, value: autoscaler_to_v1(value),
        )
        return rules

    def adopt(self, kinds: Kinds) -> None:
        """Store each collection in the version that is preferred."""
        self.release = kinds.release
        for kind in kinds:
            self.hub_types.setdefault(kind.hub, (kind.api_version, kind.kind))

    def strategy_of(self, kind: Kind) -> Strategy:
        """Return the rules of a kind."""
        if kind.hub == "events" and kind.group:  # stored as the others, and stricter
            return self.strategies.get(f"{kind.group}/{kind.plural}", PLAIN)
        return self.strategies.get(kind.hub, PLAIN)

    def inert_warnings(self, kind: Kind, name: str) -> list[str]:
        """Return the warning that nothing acts on an object of a kind, if so."""
        title = f"{kind.api_version} {kind.kind}"
        for named in ("", name):
            if part := self.optional.get((kind.hub, named)):
                about = f"{title} {named}".rstrip()
                return [f"{about}: stored only, unless it runs with {part}"]
        if kind.custom is not None or kind.hub not in self.stored_only:
            return []
        return [f"{title}: stored only, no part of this cluster acts on it"]

    def decodes_alone(self, kind: Kind) -> bool:
        """Return whether objects are decoded by a built-in definition alone, as stored."""
        strategy = type(self.strategy_of(kind))
        return (
            kind.custom is None
            and self.is_hub(kind)
            and strategy.decode is Strategy.decode
            and strategy.mend is Strategy.mend
        )

    def default(self, kind: Kind, value: JsonDict) -> None:
        """Fill in the defaults."""
        self.strategy_of(kind).default(value)

    def drop_gated(self, kind: Kind, value: JsonDict, old: JsonObject | None) -> None:
        """Drop the fields of gates that are off and that the stored object does not use."""
        if kind.custom is None and kind.hub not in devices.HUBS:
            drop(value, old, kind.release, self._off)

    @made_once
    def _off(self) -> frozenset[str]:
        """The gates that are off in the release."""
        return off_in(self.release, self.features)

    def observe(self, hub: str, observer: Observer, *, writes: bool = False) -> None:
        """Call `observer` after each write to a collection, with the store's lock held.

        `writes` says that it may write, too: it is called after the others.
        """
        observers = self._writers if writes else self._observers
        observers.setdefault(hub, []).append(observer)

    def writers(self, hub: str) -> Sequence[Observer]:
        """Return the observers of a collection that may write."""
        return tuple(self._writers.get(hub, ()))

    def observe_all(self, observer: ObserverOfAll) -> None:
        """Call `observer` after each write, with the store's lock held; it may not write."""
        self._of_all.append(observer)

    def tell(self, hub: str, before: JsonDict | None, after: JsonDict | None) -> None:
        """Notify the observers that do not write."""
        for observe in self._of_all:
            observe(hub, before, after)
        for observer in self._observers.get(hub, ()):
            observer(before, after)

    def stored(self, kind: Kind, before: JsonDict | None, after: JsonDict | None) -> None:
        """Notify the observers of a collection, and those of all collections."""
        self.tell(kind.hub, before, after)
        for observer in self._writers.get(kind.hub, ()):
            observer(before, after)

    def hub_type(self, kind: Kind) -> tuple[str, str]:
        """Return the apiVersion and kind in which objects of a collection are stored."""
        return self.hub_types.get(kind.hub) or (kind.api_version, kind.kind)

    def is_hub(self, kind: Kind) -> bool:
        """Return whether objects of that version are stored as they are."""
        return (
            self.hub_type(kind)[0] == kind.api_version
            and kind.hub not in self.mixed
            and kind.hub not in self.outdated
        )

    def may_wait(self, kind: Kind) -> bool:
        """Return whether a write to objects of a kind may have to wait for a conversion webhook."""
        webhook = self.webhooks.get(kind.hub) if kind.custom is not None else None
        return webhook is not None and (not self.is_hub(kind) or webhook.is_asked)

    def prepare(self, kind: Kind, found: Sequence[Stored], scope: RequestScope) -> None:
        """Convert all of these objects at once, if a webhook does that. ApiError, MustWait."""
        webhook = self.webhooks.get(kind.hub) if kind.custom is not None else None
        if webhook is not None and found and not self.is_hub(kind):
            webhook.prepare(kind, [stored.value for stored in found], scope)

    def foresee(self, kind: Kind, value: JsonDict, scope: RequestScope) -> None:
        """Convert an object that is about to be stored, if a webhook does that. MustWait."""
        webhook = self.webhooks.get(kind.hub) if kind.custom is not None else None
        if webhook is not None:
            webhook.foresee(value, scope)

    def to_hub(self, kind: Kind, value: JsonDict, scope: RequestScope | None = None) -> JsonDict:
        """Return an object in its stored form. ApiError, MustWait."""
        if self.is_hub(kind):
            return value
        if webhook := self.webhooks.get(kind.hub):
            return webhook.to_hub(kind, value, scope)
        found = self.conversions.get(kind.hub)
        return value if found is None else found[0](kind, value)

    def as_stored(self, kind: Kind, value: JsonDict) -> JsonDict:
        """Return an object as it will be read: by the stored version's schema, if it is custom."""
        version = self.hub_type(kind)[0]
        strategy = self.strategy_of(kind)
        if kind.custom is None or version == kind.api_version or kind.hub in self.webhooks:
            return value
        found = strategy.updated({**value, "apiVersion": version})
        return {**found, "apiVersion": value["apiVersion"]}

    def from_hub(self, kind: Kind, value: JsonDict, scope: RequestScope | None = None) -> JsonDict:
        """Return a stored object in the version of `kind`; the stored one is not changed.

        Without the scope of a request nobody can wait for a webhook. ApiError, MustWait.
        """
        if self.is_hub(kind):
            return value
        if webhook := self.webhooks.get(kind.hub):
            shown = webhook.from_hub(kind, value, scope)
        elif found := self.conversions.get(kind.hub):
            shown = found[1](kind, value)
        else:
            shown = {**value, "apiVersion": kind.api_version, "kind": kind.kind}
        if kind.hub in self.outdated:
            return _of_release(kind, self.strategy_of(kind).updated(shown))
        return shown


def _of_release(kind: Kind, value: JsonDict) -> JsonDict:
    """Return a stored object of a built-in kind without the fields that its release lacks."""
    decoder = None
    if kind.custom is None:
        decoder = decoder_of(kind.api_version, kind.kind, kind.release)
    if decoder is None:
        return value
    found: JsonDict = orjson.loads(orjson.dumps(value))
    with suppress(DecodingError):  # the field had another type: it stays as it was written
        found, _ = decoder.decode(found)
    return found
