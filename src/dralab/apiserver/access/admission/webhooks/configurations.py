"""The webhooks that are configured, compiled when their configuration is stored."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from dralab.api.kinds import Kind, Kinds
from dralab.apiserver.access.admission.conditions import MatchConditions
from dralab.apiserver.access.admission.expressions import environment
from dralab.apiserver.access.admission.matching import Criteria
from dralab.values.json_types import JsonDict
from dralab.values.records import dataclass

KNOWN_VERSIONS: Final = ("v1", "v1beta1")
TIMEOUT: Final = 10


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Webhook:
    """One webhook of a configuration; `version` is that of its AdmissionReviews, if any fits."""

    configuration: str
    name: str
    uid: str
    client: Mapping[str, Any]
    criteria: Criteria
    conditions: MatchConditions
    ignores_failures: bool
    timeout: int
    has_side_effects: bool
    reinvoked: bool
    version: str | None


class Webhooks:
    """The webhooks of one collection of configurations, in the order of their calls."""

    def __init__(self, kinds: Kinds) -> None:
        self.kinds = kinds
        self.all: Sequence[Webhook] = ()
        self._configured: dict[str, list[Webhook]] = {}

    def may_match(
        self,
        kind: Kind,
        subresource: str,
        operations: Sequence[str],
        *,
        name: str,
        namespace: Mapping[str, str] | None,
    ) -> bool:
        """Whether one of them may be called for a write, before its object is known."""
        return any(
            hook.criteria.may_match(kind, subresource, each, name=name, namespace=namespace)
            for hook in self.all
            for each in operations
        )

    def reset(self, configurations: Sequence[JsonDict]) -> None:
        """Replace all configurations."""
        self._configured = {}
        for each in configurations:
            self._put(each)
        self._order()

    def changed(self, before: JsonDict | None, after: JsonDict | None) -> None:
        """Update the webhooks after a configuration was written or deleted."""
        if after is not None:
            self._put(after)
        elif before is not None:
            self._configured.pop(before["metadata"]["name"], None)
        self._order()

    def _put(self, configuration: JsonDict) -> None:
        name = configuration["metadata"]["name"]
        seen: dict[str, int] = {}
        found = self._configured[name] = list[Webhook]()
        for hook in configuration.get("webhooks") or ():
            count = seen.get(hook["name"], 0)
            seen[hook["name"]] = count + 1
            found.append(self._webhook(hook, name, f"{name}/{hook['name']}/{count}"))

    def _webhook(self, hook: Mapping[str, Any], configuration: str, uid: str) -> Webhook:
        return Webhook(
            configuration=configuration,
            name=hook["name"],
            uid=uid,
            client=hook.get("clientConfig") or {},
            # Unlike a binding, a webhook without rules is about nothing.
            criteria=Criteria(self.kinds, hook, hook.get("rules") or ({},)),
            conditions=MatchConditions(hook.get("matchConditions") or (), environment()),
            ignores_failures=hook.get("failurePolicy") == "Ignore",
            timeout=hook.get("timeoutSeconds") or TIMEOUT,
            has_side_effects=hook.get("sideEffects") not in {"None", "NoneOnDryRun"},
            reinvoked=hook.get("reinvocationPolicy") == "IfNeeded",
            version=next(
                (
                    each
                    for each in hook.get("admissionReviewVersions") or ()
                    if each in KNOWN_VERSIONS
                ),
                None,
            ),
        )

    def _order(self) -> None:
        self.all = tuple(
            hook for name in sorted(self._configured) for hook in self._configured[name]
        )
