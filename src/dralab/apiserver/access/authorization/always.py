"""The authorizers AlwaysAllow and AlwaysDeny.

Source: k8s.io/apiserver `authorization/authorizerfactory`.
"""

from dralab.apiserver.access.authorization.attributes import ALLOWED, Attributes, Decision, RuleList
from dralab.apiserver.access.users import User


class AlwaysAllow:
    """Every user may do everything."""

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
