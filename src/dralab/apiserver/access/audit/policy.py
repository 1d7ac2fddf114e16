"""Audit policies: how much is recorded of which request.

Source: k8s.io/apiserver `pkg/audit/policy` (checker, reader), `pkg/apis/audit/v1`.
"""

from collections.abc import Iterable, Mapping
from enum import IntEnum
from pathlib import Path
from typing import Any, Final

from dralab.api.yaml_documents import YamlError, single
from dralab.apiserver.access.authorization.attributes import Attributes
from dralab.apiserver.access.authorization.rules import url_covers
from dralab.files.reading import read
from dralab.values.records import dataclass

STAGES: Final = ("RequestReceived", "ResponseStarted", "ResponseComplete", "Panic")
VERSION: Final = "audit.k8s.io/v1"
LARGEST: Final = 1024 * 1024  # bytes of a policy file
RULE_FIELDS: Final = frozenset(
    {
        "level", "users", "userGroups", "verbs", "resources", "namespaces", "nonResourceURLs",
        "omitStages", "omitManagedFields",
    }
)  # fmt: skip
POLICY_FIELDS: Final = frozenset(
    {"apiVersion", "kind", "metadata", "rules", "omitStages", "omitManagedFields"}
)


class AuditLevel(IntEnum):
    """How much of a request is recorded."""

    NONE = 0
    METADATA = 1
    REQUEST = 2
    REQUEST_RESPONSE = 3

    @property
    def text(self) -> str:
        """The level's name in policies and records."""
        return LEVEL_NAMES[self]


LEVEL_NAMES: Final = {
    AuditLevel.NONE: "None",
    AuditLevel.METADATA: "Metadata",
    AuditLevel.REQUEST: "Request",
    AuditLevel.REQUEST_RESPONSE: "RequestResponse",
}
LEVELS: Final = {name: level for level, name in LEVEL_NAMES.items()}


class PolicyError(ValueError):
    """A policy that cannot be used; the message names the file and the field."""


@dataclass(frozen=True, slots=True)
class Recorded:
    """What is recorded of one request."""

    level: AuditLevel = AuditLevel.NONE
    omit_stages: frozenset[str] = frozenset()
    omit_managed_fields: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class _Rule:
    recorded: Recorded
    users: frozenset[str]
    groups: frozenset[str]
    verbs: frozenset[str]
    namespaces: frozenset[str]
    resources: tuple[tuple[str, tuple[str, ...], frozenset[str]], ...]
    urls: tuple[str, ...]

    def matches(self, asked: Attributes) -> bool:
        user = asked.user
        if self.users and user.name not in self.users:
            return False
        if self.groups and self.groups.isdisjoint(user.groups):
            return False
        if self.verbs and asked.verb not in self.verbs:
            return False
        if self.namespaces or self.resources:
            return asked.is_resource_request and self._names_resource(asked)
        if self.urls:
            return not asked.is_resource_request and any(
                url_covers(url, asked.path) for url in self.urls
            )
        return True

    def _names_resource(self, asked: Attributes) -> bool:
        if self.namespaces and asked.namespace not in self.namespaces:
            return False
        if not self.resources:
            return True
        sub = asked.subresource
        accepted = {"*", f"{asked.resource}/{sub}" if sub else asked.resource}
        accepted.add(f"{asked.resource}/*")
        if sub:
            accepted.add(f"*/{sub}")
        return any(
            group == asked.group
            and (
                not resources
                or (not accepted.isdisjoint(resources) and (not names or asked.name in names))
            )
            for group, resources, names in self.resources
        )


class AuditPolicy:
    """The rules of a policy: the first that matches a request decides."""

    def __init__(self, rules: Iterable[_Rule]) -> None:
        self._rules = tuple(rules)

    def recorded(self, asked: Attributes) -> Recorded:
        """Return what is recorded of a request: nothing where no rule matches."""
        for rule in self._rules:
            if rule.matches(asked):
                return rule.recorded
        return NOTHING

    @classmethod
    def read_file(cls, path: Path) -> "AuditPolicy":
        """Return the policy of a file; PolicyError."""
        try:
            data = read(path)
        except OSError as error:
            raise PolicyError(f"cannot read the audit policy {path}: {error.strerror}") from error
        if len(data) > LARGEST:
            raise PolicyError(f"{path}: an audit policy may have {LARGEST} bytes at most")
        try:
            return cls.read(single(data))
        except YamlError as error:
            raise PolicyError(f"{path}: {error}") from error
        except PolicyError as error:
            raise PolicyError(f"{path}: {error}") from error

    @classmethod
    def read(cls, value: object) -> "AuditPolicy":
        """Return the policy that an object describes; PolicyError names the field."""
        if not isinstance(value, dict):
            raise PolicyError("an audit policy must be an object")
        kind, version = value.get("kind"), value.get("apiVersion")
        if (kind, version) != ("Policy", VERSION):
            raise PolicyError(f"must be a Policy of {VERSION}, not {kind!r} of {version!r}")
        _check_fields(value, POLICY_FIELDS, "")
        rules = value.get("rules")
        if not isinstance(rules, list) or not rules:
            raise PolicyError("rules: must be a list with at least one rule")
        omitted = _stages(value, "")
        managed = _flag(value, "omitManagedFields", "") or False
        return cls(_rule(rule, f"rules[{n}]", omitted, managed) for n, rule in enumerate(rules))


NOTHING: Final = Recorded()


def _rule(value: object, at: str, omitted: frozenset[str], managed: bool) -> _Rule:  # noqa: FBT001
    if not isinstance(value, dict):
        raise PolicyError(f"{at}: must be an object")
    _check_fields(value, RULE_FIELDS, f"{at}.")
    level = value.get("level")
    if level not in LEVELS:
        raise PolicyError(f"{at}.level: {level!r} must be one of {', '.join(LEVELS)}")
    resources = value.get("resources") or []
    if not isinstance(resources, list):
        raise PolicyError(f"{at}.resources: must be a list")
    urls = _texts(value, "nonResourceURLs", at)
    if urls and (resources or value.get("namespaces")):
        raise PolicyError(
            f"{at}.nonResourceURLs: rules cannot apply to both regular resources and "
            "non-resource URLs"
        )
    for number, url in enumerate(urls):
        if url != "*" and (not url.startswith("/") or "*" in url[:-1]):
            raise PolicyError(
                f"{at}.nonResourceURLs[{number}]: {url!r} must be `*` or begin with `/`, with `*` "
                "at its end only"
            )
    own = _flag(value, "omitManagedFields", f"{at}.")
    return _Rule(
        recorded=Recorded(
            level=LEVELS[str(level)],
            omit_stages=omitted | _stages(value, f"{at}."),
            omit_managed_fields=managed if own is None else own,
        ),
        users=frozenset(_texts(value, "users", at)),
        groups=frozenset(_texts(value, "userGroups", at)),
        verbs=frozenset(_texts(value, "verbs", at)),
        namespaces=frozenset(_texts(value, "namespaces", at)),
        resources=tuple(_resources(one, f"{at}.resources[{n}]") for n, one in enumerate(resources)),
        urls=urls,
    )


def _resources(value: object, at: str) -> tuple[str, tuple[str, ...], frozenset[str]]:
    if not isinstance(value, dict):
        raise PolicyError(f"{at}: must be an object")
    _check_fields(value, frozenset({"group", "resources", "resourceNames"}), f"{at}.")
    group = value.get("group") or ""
    if not isinstance(group, str) or "/" in group:
        raise PolicyError(f"{at}.group: {group!r} must be the name of a group, without a version")
    names = frozenset(_texts(value, "resourceNames", at))
    resources = _texts(value, "resources", at)
    if names and not resources:
        raise PolicyError(f"{at}.resourceNames: using resourceNames requires at least one resource")
    return group, resources, names


def _texts(value: Mapping[str, Any], name: str, at: str) -> tuple[str, ...]:
    found = value.get(name) or []
    if not isinstance(found, list) or not all(isinstance(one, str) for one in found):
        raise PolicyError(f"{at}.{name}: must be a list of strings")
    return tuple(found)


def _stages(value: Mapping[str, Any], at: str) -> frozenset[str]:
    found = _texts(value, "omitStages", at.rstrip("."))
    for stage in found:
        if stage not in STAGES:
            raise PolicyError(f"{at}omitStages: {stage!r} must be one of {', '.join(STAGES)}")
    return frozenset(found)


def _flag(value: Mapping[str, Any], name: str, at: str) -> bool | None:
    found = value.get(name)
    if found is not None and not isinstance(found, bool):
        raise PolicyError(f"{at}{name}: {found!r} must be true or false")
    return found


def _check_fields(value: Mapping[str, Any], known: frozenset[str], at: str) -> None:
    for name in value:
        if name not in known:
            raise PolicyError(f"{at}{name}: unknown field; known are {', '.join(sorted(known))}")
