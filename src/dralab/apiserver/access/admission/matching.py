"""Which writes a webhook or policy matches: rules, selectors, equivalent versions.

Source: k8s.io/apiserver `admission/plugin/webhook/predicates`, `admission/plugin/webhook/generic`
and `admission/plugin/policy/matching`.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from dralab.api.kinds import Kind, Kinds
from dralab.api.status import ApiError
from dralab.apiserver.access.admission.chain import Review
from dralab.apiserver.storage import Key
from dralab.objects.metadata import labels_of
from dralab.values.labels import Selector, from_mapping
from dralab.values.records import dataclass

GROUP: Final = "admissionregistration.k8s.io"
# Requests that no webhook or policy sees: one could lock every user out.
EXEMPT: Final = frozenset(
    f"{GROUP}/{plural}"
    for plural in (
        "mutatingadmissionpolicies", "mutatingadmissionpolicybindings",
        "mutatingwebhookconfigurations", "validatingadmissionpolicies",
        "validatingadmissionpolicybindings", "validatingwebhookconfigurations",
    )
)  # fmt: skip
NO_MATCH: Final = object()


@dataclass(frozen=True, slots=True)
class ResourceRule:
    """One rule: operations on resources, by group, version, plural and subresource."""

    groups: frozenset[str]
    versions: frozenset[str]
    resources: tuple[tuple[str, str], ...]
    operations: frozenset[str]
    scope: str
    names: frozenset[str]

    @classmethod
    def read(cls, rule: Mapping[str, Any]) -> "ResourceRule":
        """Read a rule from a mapping."""
        parts = (str(each).partition("/") for each in rule.get("resources") or ())
        return cls(
            groups=frozenset(rule.get("apiGroups") or ()),
            versions=frozenset(rule.get("apiVersions") or ()),
            resources=tuple((plural, sub) for plural, _, sub in parts),
            operations=frozenset(rule.get("operations") or ()),
            scope=rule.get("scope") or "*",
            names=frozenset(rule.get("resourceNames") or ()),
        )

    def accepts(self, kind: Kind, subresource: str, operation: str) -> bool:
        """Whether the rule covers an operation, apart from the object's name."""
        return (
            ("*" in self.operations or operation in self.operations)
            and ("*" in self.groups or kind.group in self.groups)
            and ("*" in self.versions or kind.version in self.versions)
            and (self.scope == "*" or (self.scope == "Namespaced") == kind.namespaced)
            and any(
                plural in {"*", kind.plural} and sub in {"*", subresource}
                for plural, sub in self.resources
            )
        )


class Criteria:
    """What a webhook, policy or binding matches.

    `match` is a mapping with `matchPolicy`, `namespaceSelector` and `objectSelector`; `rules` and
    `excluded` are rules as mappings. Without rules it is about everything (a binding).
    """

    def __init__(
        self,
        kinds: Kinds,
        match: Mapping[str, Any],
        rules: Sequence[Mapping[str, Any]],
        excluded: Sequence[Mapping[str, Any]] = (),
    ) -> None:
        self._kinds = kinds
        self.rules = [ResourceRule.read(each) for each in rules]
        self.excluded = [ResourceRule.read(each) for each in excluded]
        self._named = any(each.names for each in (*self.rules, *self.excluded))
        self._exact = match.get("matchPolicy") == "Exact"
        self._namespaces = _selector(match.get("namespaceSelector"))
        self._objects = _selector(match.get("objectSelector"))
        # A binding: what configures policies is left out by the policies.
        self._everything = not (rules or excluded or self._namespaces or self._objects)
        # What is matched, as of so many changes of the kinds.
        self._known: tuple[int, dict[tuple[Kind, str, str], Any]] = (-1, {})

    def match(self, review: Review) -> Kind | None:
        """Return the version in which the write is matched; None if it is not. ApiError."""
        if self._everything:
            return review.kind
        kind = self._kind(review.kind, review.subresource, review.operation, review.name)
        if kind is None or (self._namespaces is self._objects is None):
            return kind
        return kind if self._selects_namespace(review) and self._selects_object(review) else None

    def may_match(
        self,
        kind: Kind,
        subresource: str,
        operation: str,
        *,
        name: str,
        namespace: Mapping[str, str] | None,
    ) -> bool:
        """Whether a write may be matched, before its object is known; `namespace` are labels."""
        return self._everything or (
            self._kind(kind, subresource, operation, name) is not None
            and (
                self._namespaces is None or namespace is None or self._namespaces.accepts(namespace)
            )
        )

    def _kind(self, kind: Kind, subresource: str, operation: str, name: str) -> Kind | None:
        if self._named:
            return self._matched(kind, subresource, operation, name)
        changes = self._kinds.changes
        as_of, known = self._known
        if as_of != changes:
            # Exchanged whole: what another thread has found by older kinds does not come into it.
            known = {}
            self._known = (changes, known)
        key = (kind, subresource, operation)
        found = known.get(key, NO_MATCH)
        if found is NO_MATCH:
            found = known[key] = self._matched(*key, None)
        return found  # type: ignore[no-any-return]  # a Kind or None

    def _matched(
        self, kind: Kind, subresource: str, operation: str, name: str | None
    ) -> Kind | None:
        if kind.hub in EXEMPT:
            return None
        asked = (subresource, operation, name)
        if self._any(self.excluded, kind, *asked):
            return None
        if not self.rules or self._any(self.rules, kind, *asked):
            return kind
        if self._exact:
            return None
        others = [each for each in self._kinds if each.hub == kind.hub and each is not kind]
        for other in others:
            if subresource and subresource not in other.subresources:
                continue
            if self._any(self.excluded, other, *asked):
                return None
        for other in others:
            if subresource and subresource not in other.subresources:
                continue
            if self._any(self.rules, other, *asked):
                return other
        return None

    def _any(
        self,
        rules: Sequence[ResourceRule],
        kind: Kind,
        subresource: str,
        operation: str,
        name: str | None,
    ) -> bool:
        return any(
            each.accepts(kind, subresource, operation)
            and (not each.names or (name is not None and name in each.names))
            for each in rules
        )

    def _selects_namespace(self, review: Review) -> bool:
        if self._namespaces is None:
            return True
        if review.kind.hub == "namespaces":
            if review.value is not None and not review.subresource:
                return self._namespaces.accepts(labels_of(review.value))
            name = review.name
        elif not (name := review.namespace):
            return True
        return self._namespaces.accepts(labels_of(namespace_of(review, name)))

    def _selects_object(self, review: Review) -> bool:
        if self._objects is None:
            return True
        return any(
            self._objects.accepts(labels_of(each))
            for each in (review.value, review.old)
            if each is not None
        )


def namespace_of(review: Review, name: str) -> Mapping[str, Any]:
    """Return an existing namespace. ApiError NotFound."""
    found = review.scope.find(Key("namespaces", "", name))
    if found is None:
        raise ApiError.not_found("namespaces", name)
    return found.value


def _selector(given: Mapping[str, Any] | None) -> Selector | None:
    """Return a selector; None if it accepts everything."""
    return from_mapping(given) if given else None
