"""FlowSchemas and PriorityLevelConfigurations: to which flow and level a request belongs.

Source: k8s.io/apiserver `pkg/util/flowcontrol` (rule, apf_controller),
`pkg/apis/flowcontrol/bootstrap`.
"""

import math
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import field
from typing import Any, Final, TypeVar

from dralab.apiserver.access.authorization.attributes import Attributes
from dralab.apiserver.access.authorization.rules import ALL, url_covers
from dralab.apiserver.access.fairness.queues import PriorityLevel
from dralab.apiserver.access.users import SERVICE_ACCOUNT_PREFIX, User
from dralab.apiserver.storage import Key
from dralab.values.records import dataclass

SCHEMAS: Final = "flowcontrol.apiserver.k8s.io/flowschemas"
LEVELS: Final = "flowcontrol.apiserver.k8s.io/prioritylevelconfigurations"
FLOW_OBJECTS: Final = (SCHEMAS, LEVELS)
SEATS: Final = 600  # kube-apiserver --max-requests-inflight + --max-mutating-requests-inflight
REMEMBERED: Final = 4096  # classifications
Found = TypeVar("Found")


@dataclass(frozen=True, slots=True)
class Flow:
    """Where a request waits: the level, and the flow within it; `headers` are for the answer."""

    level: PriorityLevel
    name: Hashable
    schema_uid: str = ""
    level_uid: str = ""
    schema: str = ""  # the name of the FlowSchema; empty if there is none
    headers: Sequence[tuple[str, str]] = field(init=False)

    def __post_init__(self) -> None:
        headers = (
            ("X-Kubernetes-PF-FlowSchema-UID", self.schema_uid),
            ("X-Kubernetes-PF-PriorityLevel-UID", self.level_uid),
        )
        object.__setattr__(self, "headers", headers)  # once: there are few, of many requests


DEFAULT_LEVEL: Final = PriorityLevel("default")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Schema:
    name: str
    uid: str
    level: PriorityLevel
    level_uid: str
    distinguisher: str
    rules: tuple[Mapping[str, Any], ...]
    by_namespace: bool  # whether the namespace of a request matters

    def matches(self, asked: Attributes) -> bool:
        return any(_rule_matches(rule, asked) for rule in self.rules)

    def flow(self, asked: Attributes) -> Flow:
        who = ""
        if self.distinguisher == "ByUser":
            who = asked.user.name
        elif self.distinguisher == "ByNamespace":
            who = asked.namespace
        return Flow(self.level, (self.name, who), self.uid, self.level_uid, self.name)


class FlowControl:
    """Classifies requests by the objects of a cluster; without any, each user is a flow.

    All of it may be called from any thread.
    """

    def __init__(self) -> None:
        self._objects: Mapping[Key, Mapping[str, Any]] = {}
        self._made = FlowSchemas(self._objects)

    def put(self, key: Key, value: Mapping[str, Any] | None) -> None:
        """Record a FlowSchema or PriorityLevelConfiguration; None means that it is gone."""
        objects = {**self._objects, key: value or {}}
        if value is None:
            del objects[key]
        self._objects = objects

    def seats(self) -> Mapping[str, int]:
        """Return the share of each priority level in the requests answered at a time."""
        levels = [value for key, value in self._objects.items() if key.resource == LEVELS]
        total = sum(_shares(one.get("spec") or {}) for one in levels) or 1
        return {
            one["metadata"]["name"]: math.ceil(SEATS * _shares(one.get("spec") or {}) / total)
            for one in levels
        }

    @property
    def configured(self) -> bool:
        """Whether there are objects to classify by."""
        return bool(self._objects)

    @property
    def schemas(self) -> "FlowSchemas":
        """The objects as they are now, read once."""
        found, objects = self._made, self._objects
        if found.objects is not objects:
            # Two threads may read at once, and the one with older objects may be the last.
            found = self._made = FlowSchemas(objects)
        return found


class FlowSchemas:
    """The FlowSchemas of some objects in their order, and how requests were classified by them."""

    def __init__(self, objects: Mapping[Key, Mapping[str, Any]]) -> None:
        self.objects = objects
        levels = _levels(value for key, value in objects.items() if key.resource == LEVELS)
        schemas = [value for key, value in objects.items() if key.resource == SCHEMAS]
        self._schemas = tuple(_read_schemas(schemas, levels))
        self._by_namespace = any(schema.by_namespace for schema in self._schemas)
        self._remembered: dict[Hashable, Flow] = {}
        self._users: dict[Hashable, tuple[Flow | None]] = {}

    @property
    def names(self) -> Sequence[str]:
        """The schemas by which requests are classified, first match first."""
        return [schema.name for schema in self._schemas]

    def flow_of_user(self, user: User) -> Flow | None:
        """Return the queue of all requests of a user; None if it depends on the request."""
        key = (user.name, user.groups)
        found = self._users.get(key)
        if found is None:
            found = _kept(self._users, key, (self._whole(user),))
        return found[0]

    def _whole(self, user: User) -> Flow | None:
        if not self._schemas:
            return Flow(DEFAULT_LEVEL, user.name)
        for schema in self._schemas:
            for rule in schema.rules:
                if any(_is_subject(one, user) for one in rule.get("subjects") or ()):
                    whole = schema.distinguisher != "ByNamespace" and _is_everything(rule)
                    return schema.flow(Attributes(user=user, verb="")) if whole else None
        return None

    def flow_of(self, asked: Attributes) -> Flow:
        """Return the queue of a request."""
        user = asked.user
        key = (
            user.name, user.groups, asked.verb, asked.group, asked.resource, asked.subresource,
            asked.path, asked.namespace if self._by_namespace else bool(asked.namespace),
        )  # fmt: skip
        found = self._remembered.get(key)
        if found is None:
            found = _kept(self._remembered, key, self._classified(asked))
        return found

    def _classified(self, asked: Attributes) -> Flow:
        for schema in self._schemas:
            if schema.matches(asked):
                return schema.flow(asked)
        return Flow(DEFAULT_LEVEL, asked.user.name)


def _kept(memory: dict[Hashable, Found], key: Hashable, found: Found) -> Found:
    if len(memory) >= REMEMBERED:
        memory.clear()
    memory[key] = found
    return found


def _levels(objects: Iterable[Mapping[str, Any]]) -> dict[str, tuple[PriorityLevel, str]]:
    specs = {one["metadata"]["name"]: (one, one.get("spec") or {}) for one in objects}
    total = sum(_shares(spec) for _, spec in specs.values()) or 1
    return {
        name: (_level(name, spec, total), one["metadata"].get("uid", ""))
        for name, (one, spec) in specs.items()
    }


def _shares(spec: Mapping[str, Any]) -> int:
    part = spec.get("limited") or spec.get("exempt") or {}
    shares = part.get("nominalConcurrencyShares")
    return 30 if shares is None and spec.get("type") == "Limited" else int(shares or 0)


def _level(name: str, spec: Mapping[str, Any], total: int) -> PriorityLevel:
    if spec.get("type") == "Exempt":
        return PriorityLevel(name, exempt=True)
    shares = _shares(spec)
    seats = math.ceil(SEATS * shares / total)
    response = (spec.get("limited") or {}).get("limitResponse") or {}
    if response.get("type") != "Queue":
        return PriorityLevel(name, shares, in_all=seats)
    queuing = response.get("queuing") or {}
    length = queuing.get("queueLengthLimit", 50)
    return PriorityLevel(
        name,
        shares,
        per_flow=seats + queuing.get("handSize", 8) * length,
        in_all=seats + queuing.get("queues", 64) * length,
    )


def _read_schemas(
    objects: Iterable[Mapping[str, Any]], levels: Mapping[str, tuple[PriorityLevel, str]]
) -> Iterable[_Schema]:
    def order(one: Mapping[str, Any]) -> tuple[int, str]:
        precedence = (one.get("spec") or {}).get("matchingPrecedence") or 1000
        return precedence, one["metadata"]["name"]

    for one in sorted(objects, key=order):
        spec = one.get("spec") or {}
        named = (spec.get("priorityLevelConfiguration") or {}).get("name", "")
        if named not in levels:
            continue  # it dangles: its status says so
        level, level_uid = levels[named]
        rules = tuple(spec.get("rules") or ())
        distinguisher = (spec.get("distinguisherMethod") or {}).get("type", "")
        yield _Schema(
            name=one["metadata"]["name"],
            uid=one["metadata"].get("uid", ""),
            level=level,
            level_uid=level_uid,
            distinguisher=distinguisher,
            rules=rules,
            by_namespace=distinguisher == "ByNamespace"
            or any(
                ALL not in (resource.get("namespaces") or [ALL])
                for rule in rules
                for resource in rule.get("resourceRules") or ()
            ),
        )


def _rule_matches(rule: Mapping[str, Any], asked: Attributes) -> bool:
    if not any(_is_subject(subject, asked.user) for subject in rule.get("subjects") or ()):
        return False
    if asked.is_resource_request:
        return any(_names_resource(one, asked) for one in rule.get("resourceRules") or ())
    return any(
        _has(one.get("verbs"), asked.verb)
        and any(url_covers(url, asked.path) for url in one.get("nonResourceURLs") or ())
        for one in rule.get("nonResourceRules") or ()
    )


def _is_everything(rule: Mapping[str, Any]) -> bool:
    """Whether a rule matches every request of its subjects."""
    return any(
        one.get("clusterScope")
        and all(ALL in (one.get(part) or ()) for part in ("verbs", "apiGroups", "resources"))
        and ALL in (one.get("namespaces") or ())
        for one in rule.get("resourceRules") or ()
    ) and any(
        ALL in (one.get("verbs") or ()) and ALL in (one.get("nonResourceURLs") or ())
        for one in rule.get("nonResourceRules") or ()
    )


def _is_subject(subject: Mapping[str, Any], user: User) -> bool:
    kind = subject.get("kind")
    if kind == "User":
        return (subject.get("user") or {}).get("name") in {ALL, user.name}
    if kind == "Group":
        name = (subject.get("group") or {}).get("name")
        return name == ALL or name in user.groups
    account = subject.get("serviceAccount") or {}
    prefix = f"{SERVICE_ACCOUNT_PREFIX}{account.get('namespace', '')}:"
    if account.get("name") == ALL:
        return user.name.startswith(prefix)
    return user.name == f"{prefix}{account.get('name', '')}"


def _names_resource(rule: Mapping[str, Any], asked: Attributes) -> bool:
    resource = asked.resource
    if asked.subresource:
        resource = f"{resource}/{asked.subresource}"
    if not (
        _has(rule.get("verbs"), asked.verb)
        and _has(rule.get("apiGroups"), asked.group)
        and _has(rule.get("resources"), resource)
    ):
        return False
    if not asked.namespace:
        return bool(rule.get("clusterScope"))
    return _has(rule.get("namespaces"), asked.namespace)


def _has(parts: Iterable[str] | None, part: str) -> bool:
    found = parts or ()
    return part in found or ALL in found
