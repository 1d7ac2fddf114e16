"""Aggregated ClusterRoles: their rules are those of all ClusterRoles that they select.

Source: k8s.io/kubernetes `pkg/controller/clusterroleaggregation`.
"""

from dralab.api.status import ignoring
from dralab.objects.metadata import NamespacedName, key_of, labels_of
from dralab.runtime.manager import Manager
from dralab.runtime.resources import CLUSTER_ROLES
from dralab.values.json_types import JsonDict
from dralab.values.labels import from_mapping

FIELD_MANAGER = "clusterrole-aggregation-controller"


class ClusterRoleAggregation:
    """Gathers the rules of aggregated ClusterRoles again whenever a ClusterRole changes."""

    def __init__(self, manager: Manager) -> None:
        self.client = manager.client
        self.roles = manager.cache(CLUSTER_ROLES)
        self.queue = manager.queue(FIELD_MANAGER, self.reconcile)
        self.roles.subscribe(self._role)

    def _role(self, old: JsonDict | None, new: JsonDict | None) -> None:
        if new is not None and _selectors(new):
            self.queue.add(key_of(new))
        for role in self.roles:
            selectors = _selectors(role)
            if any(
                from_mapping(selector).accepts(labels_of(state))
                for selector in selectors
                for state in (old, new)
                if state is not None
            ):
                self.queue.add(key_of(role))

    def reconcile(self, key: NamespacedName) -> int | None:
        """Give a role the rules of all that it selects, in the order of their names."""
        role = self.roles.get(key)
        if role is None or not (selectors := _selectors(role)):
            return None
        rules: list[JsonDict] = []
        for selector in selectors:
            chosen = from_mapping(selector)
            for other in sorted(self.roles, key=lambda each: key_of(each).name):
                if key_of(other) != key and chosen.accepts(labels_of(other)):
                    rules += [rule for rule in other.get("rules") or () if rule not in rules]
        if rules == (role.get("rules") or []):
            return None
        patch = {
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "ClusterRole",
            "metadata": {"name": key.name},
            "rules": rules,
        }
        with ignoring("NotFound"):
            self.roles.learn(
                self.client.patch(
                    CLUSTER_ROLES,
                    key.name,
                    patch,
                    type="apply",
                    field_manager=FIELD_MANAGER,
                    force=True,
                )
            )
        return None


def _selectors(role: JsonDict) -> list[JsonDict]:
    """Return the label selectors of the roles that a role aggregates."""
    found: list[JsonDict] = (role.get("aggregationRule") or {}).get("clusterRoleSelectors") or []
    return found
