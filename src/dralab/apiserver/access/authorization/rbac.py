"""Roles and bindings: what a user may do, decided in microseconds.

Objects are passed to `put` one by one; nothing here reads a store. What a user may
do is worked out when it is first asked for and kept until a role or a binding changes.

Source: k8s.io/kubernetes `plugin/pkg/auth/authorizer/rbac`, `pkg/registry/rbac/validation`.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field
from threading import Lock
from typing import Any, Final

from dralab.apiserver.access.authorization.attributes import (
    NO_OPINION,
    Attributes,
    Decision,
    RuleList,
)
from dralab.apiserver.access.authorization.rules import PolicyRule, read_rules
from dralab.apiserver.access.users import User, service_account_name
from dralab.apiserver.storage import Key
from dralab.values.go_text import aggregate, go_quoted
from dralab.values.records import dataclass

GROUP: Final = "rbac.authorization.k8s.io"
ROLES, CLUSTER_ROLES = f"{GROUP}/roles", f"{GROUP}/clusterroles"
BINDINGS, CLUSTER_BINDINGS = f"{GROUP}/rolebindings", f"{GROUP}/clusterrolebindings"
COLLECTIONS: Final = (CLUSTER_ROLES, CLUSTER_BINDINGS, ROLES, BINDINGS)
# Users and verbs come from clients: what is kept of them is bounded.
MAX_USERS: Final = 2048
MAX_QUESTIONS: Final = 256  # of each
LONGEST_USER: Final = 4096  # characters, with groups; reviews ask about any text
LONGEST_QUESTION: Final = 256

Subject = tuple[str, str]  # "User" or "Group", and the name


@dataclass(frozen=True, slots=True, kw_only=True)
class Binding:
    """A RoleBinding or ClusterRoleBinding; `subjects` in its order, with what messages say."""

    name: str
    namespace: str
    role_kind: str
    role_name: str
    subjects: tuple[tuple[Subject, str], ...]

    @classmethod
    def read(cls, value: Mapping[str, Any]) -> "Binding":
        """Return a stored binding."""
        metadata, role = value["metadata"], value.get("roleRef") or {}
        namespace = metadata.get("namespace", "")
        found = (_subject(each, namespace) for each in value.get("subjects") or ())
        return cls(
            name=metadata["name"],
            namespace=namespace,
            role_kind=role.get("kind", ""),
            role_name=role.get("name", ""),
            subjects=tuple(each for each in found if each is not None),
        )

    def reason(self, told: str) -> str:
        """Return how messages describe it, with the subject that it was for."""
        role = f"{self.role_kind} {go_quoted(self.role_name)}"
        if self.namespace:
            return f"RoleBinding {go_quoted(f'{self.name}/{self.namespace}')} of {role} to {told}"
        return f"ClusterRoleBinding {go_quoted(self.name)} of {role} to {told}"


@dataclass(slots=True)
class Grants:
    """What one user has in one namespace: rules with the reasons for them, in order."""

    rules: Sequence[tuple[PolicyRule, str]]
    errors: Sequence[str] = ()
    # (names or none, answer) by verb, group, resource, subresource: what may be done, in order.
    _found: dict[tuple[str, ...], list[tuple[tuple[str, ...], Decision]]] = field(
        default_factory=dict
    )

    def decide(self, wanted: Attributes) -> Decision:
        """Return whether the rules allow something."""
        if wanted.path:
            return self._decide_path(wanted.verb, wanted.path)
        question = (wanted.verb, wanted.group, wanted.resource, wanted.subresource)
        found = self._found.get(question)
        if found is None:
            found = self._answers(*question)
            if sum(map(len, question)) <= LONGEST_QUESTION:
                if len(self._found) >= MAX_QUESTIONS:
                    self._found.clear()
                self._found[question] = found
        for names, decision in found:
            if not names or wanted.name in names:
                return decision
        return self.refusal

    def _answers(
        self, verb: str, group: str, resource: str, subresource: str
    ) -> list[tuple[tuple[str, ...], Decision]]:
        found = []
        for rule, reason in self.rules:
            if rule.covers_resource(verb, group, resource, subresource):
                found.append((rule.names, _allowed(reason)))
                if not rule.names:
                    break
        return found

    def _decide_path(self, verb: str, path: str) -> Decision:
        for rule, reason in self.rules:
            if rule.covers_path(verb, path):
                return _allowed(reason)
        return self.refusal

    @property
    def error(self) -> str:
        """The lookup errors, as one text."""
        return aggregate(list(dict.fromkeys(self.errors)))

    @property
    def refusal(self) -> Decision:
        """The answer where no rule allows it."""
        return Decision("no opinion", f"RBAC: {self.error}") if self.errors else NO_OPINION


class RoleIndex:
    """All roles and bindings of a server; any thread may read it or record a change."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._roles: dict[Key, tuple[PolicyRule, ...]] = {}
        # By namespace, empty for ClusterRoleBindings: the bindings, and their names by subject.
        self._bindings: dict[str, dict[str, Binding]] = {}
        self._names: dict[str, dict[Subject, set[str]]] = {}
        self._grants: dict[tuple[str, tuple[str, ...], str], Grants] = {}

    def put(self, key: Key, value: Mapping[str, Any] | None) -> None:
        """Record a role or binding; None means that it is gone."""
        with self._lock:
            if key.resource in {ROLES, CLUSTER_ROLES}:
                if value is None:
                    self._roles.pop(key, None)
                else:
                    self._roles[key] = read_rules(value)
            else:
                self._put_binding(key, value)
            # A new dict: a thread that computes grants from the old state writes into the old one.
            self._grants = {}

    def _put_binding(self, key: Key, value: Mapping[str, Any] | None) -> None:
        bindings = self._bindings.setdefault(key.namespace, {})
        names = self._names.setdefault(key.namespace, {})
        old = bindings.pop(key.name, None)
        for subject, _ in () if old is None else old.subjects:
            if (of_subject := names.get(subject)) is not None:
                of_subject.discard(key.name)
                if not of_subject:
                    del names[subject]
        if value is not None:
            new = bindings[key.name] = Binding.read(value)
            for subject, _ in new.subjects:
                names.setdefault(subject, set()).add(key.name)
        elif not bindings:
            del self._bindings[key.namespace], self._names[key.namespace]

    def grants(self, user: User, namespace: str) -> Grants:
        """Return what a user may do in a namespace, or with resources that have none."""
        where = namespace if namespace in self._bindings else ""
        found = self._grants.get((user.name, user.groups, where))
        if found is None:
            with self._lock:
                # Again: the grants of a namespace must not be kept as those of the cluster.
                where = namespace if namespace in self._bindings else ""
                found = self._made(user, where)
                if len(user.name) + sum(map(len, user.groups)) <= LONGEST_USER:
                    if len(self._grants) >= MAX_USERS:
                        self._grants.clear()
                    self._grants[user.name, user.groups, where] = found
        return found

    def rules_of(self, kind: str, name: str, namespace: str) -> tuple[PolicyRule, ...] | str:
        """Return the rules of a role that a binding of a namespace names, or an error."""
        if kind not in {"ClusterRole", "Role"}:
            return f"unsupported role reference kind: {go_quoted(kind)}"
        place = Key(CLUSTER_ROLES, "", name)
        found = self._roles.get(place if kind == "ClusterRole" else Key(ROLES, namespace, name))
        if found is None:
            return f"{kind.lower()}.{GROUP} {go_quoted(name)} not found"
        return found

    def _made(self, user: User, namespace: str) -> Grants:
        rules: list[tuple[PolicyRule, str]] = []
        errors: list[str] = []
        for where in ("", namespace) if namespace else ("",):
            for binding, told in self._bindings_of(user, where):
                found = self.rules_of(binding.role_kind, binding.role_name, where)
                if isinstance(found, str):
                    errors.append(found)
                else:
                    reason = binding.reason(told)
                    rules.extend((rule, reason) for rule in found)
        return Grants(rules, errors)

    def _bindings_of(self, user: User, namespace: str) -> Iterator[tuple[Binding, str]]:
        names = self._names.get(namespace)
        if not names:
            return
        bindings = self._bindings[namespace]
        subjects = {("User", user.name), *(("Group", group) for group in user.groups)}
        chosen = {name for subject in subjects for name in names.get(subject, ())}
        for name in sorted(chosen):
            binding = bindings[name]
            # If several apply, the first is named.
            yield binding, next(told for subject, told in binding.subjects if subject in subjects)


class RbacAuthorizer:
    """Decides by roles and bindings."""

    def __init__(self, index: RoleIndex) -> None:
        self.index = index

    def authorize(self, attributes: Attributes) -> Decision:
        """Allow what one of the user's roles allows; no opinion about anything else."""
        return self.index.grants(attributes.user, attributes.namespace).decide(attributes)

    def rules_for(self, user: User, namespace: str) -> RuleList:
        """Return the rules of the user's roles."""
        grants = self.index.grants(user, namespace)
        resources, others = [], []
        for rule, _ in grants.rules:
            value = rule.as_json()
            urls = value.pop("nonResourceURLs", None)
            if "resources" in value:
                resources.append(value)
            if urls:
                others.append({"verbs": value["verbs"], "nonResourceURLs": urls})
        return RuleList(
            resource_rules=resources,
            non_resource_rules=others,
            incomplete=bool(grants.errors),
            error=grants.error,
        )


def _subject(value: Mapping[str, Any], namespace: str) -> tuple[Subject, str] | None:
    """Return a subject as the user or group that it stands for, and how messages name it."""
    kind, name = value.get("kind", ""), value.get("name", "")
    if kind == "ServiceAccount":
        namespace = value.get("namespace") or namespace
        if not namespace:
            return None
        return ("User", service_account_name(namespace, name)), _told(kind, f"{name}/{namespace}")
    if kind not in {"User", "Group"}:
        return None
    return (kind, name), _told(kind, name)


def _told(kind: str, name: str) -> str:
    return f"{kind} {go_quoted(name)}"


def _allowed(reason: str) -> Decision:
    return Decision("allow", f"RBAC: allowed by {reason}")
