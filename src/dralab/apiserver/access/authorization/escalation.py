"""Prevents users from granting rights that they do not have.

Users with the verb `escalate` may write any rule; users with `bind` may bind the role.

Source: k8s.io/kubernetes `pkg/registry/rbac` (escalation check, policy-based storages).
"""

from collections.abc import Sequence
from typing import Any, Final

from dralab.api.status import ApiError
from dralab.apiserver.access.admission.chain import WRITES, Concerns, Review
from dralab.apiserver.access.authorization.attributes import Attributes, Authorizer
from dralab.apiserver.access.authorization.covering import (
    covers_whole,
    described,
    missing,
    number_of_parts,
    quoted_list,
)
from dralab.apiserver.access.authorization.rbac import (
    BINDINGS,
    CLUSTER_BINDINGS,
    CLUSTER_ROLES,
    GROUP,
    ROLES,
    RoleIndex,
)
from dralab.apiserver.access.authorization.rules import ALL, PolicyRule, read_rules
from dralab.values.go_text import go_quoted

EVERYTHING: Final = (
    PolicyRule(verbs=(ALL,), groups=(ALL,), resources=(ALL,)),
    PolicyRule(verbs=(ALL,), urls=(ALL,)),
)
# Rules are compared by their parts, of which a body of 3 MB could have 10^16.
MAX_PARTS: Final = 10_000
OF_DELETION: Final = ("ownerReferences", "finalizers")


class RoleEscalation:
    """Refuses writes that would grant more than the writer has."""

    name = "RoleEscalation"
    concerns: Final[Concerns] = dict.fromkeys(
        (ROLES, CLUSTER_ROLES, BINDINGS, CLUSTER_BINDINGS), WRITES
    )

    def __init__(self, index: RoleIndex, authorizer: Authorizer) -> None:
        self.index = index
        self.authorizer = authorizer

    def admit(self, review: Review) -> None:
        """Check a write. ApiError Forbidden, NotFound if the role to be bound is missing."""
        if review.kind.group != GROUP or review.value is None or review.user.is_superuser:
            return
        if review.old is not None and _changes_only_deletion(review.old, review.value):
            return
        if review.kind.hub in {ROLES, CLUSTER_ROLES}:
            self._check_role(review, review.value)
        elif review.kind.hub in {BINDINGS, CLUSTER_BINDINGS}:
            self._check_binding(review, review.value)

    def _check_role(self, review: Review, value: dict[str, Any]) -> None:
        name = review.name if review.operation == "UPDATE" else ""  # as in the request's path
        if self._may(review, "escalate", review.kind.plural, name):
            return
        self._check_rules(review, read_rules(value))
        aggregated = any(
            (each.get("aggregationRule") or {}).get("clusterRoleSelectors")
            for each in (value, review.old or {})
        )
        if aggregated and missing(self._held(review), EVERYTHING):
            raise _forbidden(
                review, "must have cluster-admin privileges to use the aggregationRule"
            )

    def _check_binding(self, review: Review, value: dict[str, Any]) -> None:
        role = value.get("roleRef") or {}
        kind, name = role.get("kind", ""), role.get("name", "")
        if kind not in {"Role", "ClusterRole"}:
            return  # validation refuses it
        plural = f"{kind.lower()}s"
        if self._may(review, "bind", plural, name):
            return
        rules = self.index.rules_of(kind, name, review.namespace)
        if isinstance(rules, str):
            # Upstream names the binding's resource.
            raise ApiError.not_found(review.kind.plural, name, group=GROUP)
        self._check_rules(review, rules)

    def _may(self, review: Review, verb: str, plural: str, name: str) -> bool:
        wanted = Attributes(
            user=review.user,
            verb=verb,
            group=GROUP,
            version=ALL,
            resource=plural,
            namespace=review.namespace,
            name=name,
        )
        return self.authorizer.authorize(wanted).allowed

    def _held(self, review: Review) -> Sequence[PolicyRule]:
        grants = self.index.grants(review.user, review.namespace)
        return [rule for rule, _ in grants.rules]

    def _check_rules(self, review: Review, rules: Sequence[PolicyRule]) -> None:
        held = self._held(review)
        wanted = [rule for rule in rules if not covers_whole(held, rule)]
        parts = sum(map(number_of_parts, wanted))
        if parts > MAX_PARTS:
            raise _forbidden(
                review,
                f"the rules have {parts} combinations of verbs and resources to be compared with "
                f"what user {go_quoted(review.user.name)} holds; the most is {MAX_PARTS}",
            )
        lacking = missing(held, wanted)
        if not lacking:
            return
        user = review.user
        why = (
            f"user {go_quoted(user.name)} (groups={quoted_list(user.groups)}) is attempting to "
            f"grant RBAC permissions not currently held:\n{described(lacking)}"
        )
        if error := self.index.grants(user, review.namespace).error:
            why += f"; resolution errors: [{error}]"
        raise _forbidden(review, why)


def _changes_only_deletion(old: dict[str, Any], new: dict[str, Any]) -> bool:
    """Return whether a write changes nothing but what garbage collection needs."""

    def rest(value: dict[str, Any]) -> dict[str, Any]:
        left_out = {*OF_DELETION, "managedFields", "resourceVersion"}
        metadata = {key: part for key, part in value["metadata"].items() if key not in left_out}
        return {**value, "metadata": metadata}

    return rest(old) == rest(new)


def _forbidden(review: Review, why: str) -> ApiError:
    metadata = (review.value or {}).get("metadata") or {}
    name = review.name or metadata.get("name") or ""
    return ApiError.forbidden(review.kind.plural, name, why, group=GROUP)
