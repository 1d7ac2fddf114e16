"""The roles, bindings, flow schemas and priority levels of a cluster with RBAC.

Missing objects are created whenever a server starts, and missing parts are added
(`authorization.reconciliation`).
"""

from contextlib import suppress

from dralab.api.resource.features import Features
from dralab.api.status import ApiError
from dralab.apiserver.access.authorization.reconciliation import (
    GROUPS,
    expected,
    is_other_role,
    reconciled,
)
from dralab.apiserver.verbs import writing
from dralab.apiserver.verbs.creating import create_as_is
from dralab.apiserver.verbs.server import Resources
from dralab.apiserver.verbs.state.context import key_of

MANAGER = "kube-apiserver"


def reconcile(resources: Resources, features: Features = frozenset()) -> None:
    """Make and complete the objects. StorageUnavailable."""
    store = resources.context.store
    objects = expected(resources.kinds.release, features)
    with store.lock, store.batch():
        for plural, group in GROUPS.items():
            kind = resources.kinds.get(group, "v1", plural)
            if kind is None:
                continue
            damaged = frozenset(store.damaged(kind.hub))
            for value in objects[plural]:
                metadata = value["metadata"]
                name, namespace = metadata["name"], metadata.get("namespace", "")
                key = key_of(kind, namespace, name)
                if key in damaged:
                    continue
                scope = resources.context.own_write(MANAGER)
                # Another server on the same store may be doing the same.
                with suppress(ApiError):
                    found = store.get(key)
                    if found is not None and is_other_role(found.value, value):
                        resources.delete(kind, name, namespace)
                        found = None
                    if found is None:
                        create_as_is(scope, kind, value, namespace)
                    elif (wanted := reconciled(plural, found.value, value)) is not None:
                        writing.update(scope, kind, wanted, name, namespace)
