"""The requests and decisions of authorizers, and the error that a client gets.

Source: k8s.io/apiserver `authorization/authorizer`, `endpoints/handlers/responsewriters`.
"""

from collections.abc import Sequence
from typing import Final, Literal, Protocol

from dralab.api.status import ApiError
from dralab.apiserver.access.users import User
from dralab.values.go_text import go_quoted
from dralab.values.json_types import JsonDict
from dralab.values.records import dataclass

Verdict = Literal["allow", "deny", "no opinion"]


# Not frozen, as values are elsewhere: one is made for every request, and that takes five times as
# long. They are immutable.
@dataclass(slots=True, kw_only=True)
class Attributes:
    """What a user wants to do: with a resource, or with a `path` that is not a resource.

    `namespace` is empty for all of them and for resources without one. `fields` are the parts
    of a field selector that ask for one value, as (field, value).
    """

    user: User
    verb: str
    group: str = ""
    version: str = ""
    resource: str = ""
    subresource: str = ""
    namespace: str = ""
    name: str = ""
    path: str = ""
    fields: tuple[tuple[str, str], ...] = ()

    @property
    def is_resource_request(self) -> bool:
        """Whether it is about a resource."""
        return not self.path

    def __str__(self) -> str:
        user = go_quoted(self.user.name)
        if self.path:
            return f"User {user} cannot {self.verb} path {go_quoted(self.path)}"
        resource = f"{self.resource}/{self.subresource}" if self.subresource else self.resource
        where = f"in the namespace {go_quoted(self.namespace)}" if self.namespace else ""
        return (
            f"User {user} cannot {self.verb} resource {go_quoted(resource)} in API group "
            f"{go_quoted(self.group)} {where or 'at the cluster scope'}"
        )


@dataclass(frozen=True, slots=True)
class Decision:
    """A decision. `reason` is for people; `error` is what an authorizer failed to look up."""

    verdict: Verdict
    reason: str = ""
    error: str = ""

    @property
    def allowed(self) -> bool:
        """Whether it may be done."""
        return self.verdict == "allow"


ALLOWED: Final = Decision("allow")
NO_OPINION: Final = Decision("no opinion")


@dataclass(frozen=True, slots=True, kw_only=True)
class RuleList:
    """What a user may do in a namespace, as a SelfSubjectRulesReview tells it.

    `incomplete`: there is more that cannot be listed, or could not be found out.
    """

    resource_rules: Sequence[JsonDict] = ()
    non_resource_rules: Sequence[JsonDict] = ()
    incomplete: bool = False
    error: str = ""


class Authorizer(Protocol):
    """One way to decide."""

    def authorize(self, attributes: Attributes) -> Decision:
        """Return whether a user may do something."""
        ...

    def rules_for(self, user: User, namespace: str) -> RuleList:
        """Return what a user may do in a namespace, as far as it can be listed."""
        ...


def forbidden(attributes: Attributes, decision: Decision) -> ApiError:
    """Return the error for a request that is not allowed.

    >>> wanted = Attributes(user=User(name="x"), verb="list", resource="pods", namespace="default")
    >>> print(forbidden(wanted, NO_OPINION))
    pods is forbidden: User "x" cannot list resource "pods" in API group "" in the namespace "default"
    """  # noqa: E501 - an answer is one line
    why = str(attributes).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    if decision.reason:
        why = f"{why}: {decision.reason}"
    resource, group, name = attributes.resource, attributes.group, attributes.name
    what = f"{resource}.{group}" if group else resource
    if name:
        what = f"{what} {go_quoted(name)}"
    details = {"name": name, "group": group, "kind": resource}
    return ApiError(
        "Forbidden",
        f"{what} is forbidden: {why}" if what else f"forbidden: {why}",
        details={key: value for key, value in details.items() if value},
    )


class AlwaysAllow:
    """Every user may do everything (k8s.io/apiserver `authorization/authorizerfactory`)."""

    def authorize(self, attributes: Attributes) -> Decision:  # noqa: ARG002 - whatever it is
        """Allow it."""
        return ALLOWED

    def rules_for(self, user: User, namespace: str) -> RuleList:  # noqa: ARG002 - for any user
        """Return the rule that allows everything."""
        return RuleList(
            resource_rules=[{"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]}],
            non_resource_rules=[{"verbs": ["*"], "nonResourceURLs": ["*"]}],
        )


class AlwaysDeny:
    """No user may do anything, apart from superusers."""

    def authorize(self, attributes: Attributes) -> Decision:  # noqa: ARG002 - whatever it is
        """Do not allow it."""
        return Decision("no opinion", "Everything is forbidden.")

    def rules_for(self, user: User, namespace: str) -> RuleList:  # noqa: ARG002 - for any user
        """Return no rules."""
        return RuleList()
