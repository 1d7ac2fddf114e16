"""One policy rule of RBAC, and what it lets a user do.

Source: k8s.io/kubernetes `pkg/apis/rbac/v1` (evaluation helpers).
"""

from collections.abc import Iterable, Mapping
from typing import Any

from dralab.values.json_types import JsonDict
from dralab.values.records import dataclass

ALL = "*"


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyRule:
    """Verbs on resources, or on paths that lead to none. Each part is in the order given."""

    verbs: tuple[str, ...] = ()
    groups: tuple[str, ...] = ()
    resources: tuple[str, ...] = ()
    names: tuple[str, ...] = ()
    urls: tuple[str, ...] = ()

    @classmethod
    def read(cls, value: Mapping[str, Any]) -> "PolicyRule":
        """Return a rule as a role has it."""
        return cls(
            verbs=tuple(value.get("verbs") or ()),
            groups=tuple(value.get("apiGroups") or ()),
            resources=tuple(value.get("resources") or ()),
            names=tuple(value.get("resourceNames") or ()),
            urls=tuple(value.get("nonResourceURLs") or ()),
        )

    def as_json(self) -> JsonDict:
        """Return the rule as a role has it."""
        parts = {
            "apiGroups": self.groups,
            "resources": self.resources,
            "resourceNames": self.names,
            "nonResourceURLs": self.urls,
        }
        found = {key: list(part) for key, part in parts.items() if part}
        return {"verbs": list(self.verbs), **found}

    def covers_resource(self, verb: str, group: str, resource: str, subresource: str) -> bool:
        """Return whether it allows a verb on a resource, ignoring names.

        >>> PolicyRule(verbs=("get",), groups=("",), resources=("*/status",)).covers_resource(
        ...     "get", "", "pods", "status"
        ... )
        True
        """
        return (
            _has(self.verbs, verb)
            and _has(self.groups, group)
            and self._names_resource(resource, subresource)
        )

    def _names_resource(self, resource: str, subresource: str) -> bool:
        if not subresource:
            return _has(self.resources, resource)
        if f"*/{subresource}" in self.resources:
            return True
        return _has(self.resources, f"{resource}/{subresource}")

    def covers_path(self, verb: str, path: str) -> bool:
        """Return whether it allows a verb on a path; a `*` at the end stands for all below.

        >>> PolicyRule(verbs=("get",), urls=("/healthz/*",)).covers_path("get", "/healthz/ping")
        True
        """
        return _has(self.verbs, verb) and any(url_covers(url, path) for url in self.urls)


def url_covers(url: str, path: str) -> bool:
    """Return whether the path of a rule stands for another path."""
    return url == path or (url.endswith(ALL) and path.startswith(url.rstrip(ALL)))


def read_rules(role: Mapping[str, Any] | None) -> tuple[PolicyRule, ...]:
    """Return the rules of a Role or ClusterRole."""
    return tuple(PolicyRule.read(rule) for rule in (role or {}).get("rules") or ())


def _has(parts: Iterable[str], part: str) -> bool:
    return part in parts or ALL in parts
