"""The history of a template as ControllerRevisions, used by `kubectl rollout undo`.

Source: k8s.io/kubernetes `pkg/controller/history`. A revision's data are a strategic merge patch
that restores its template.
"""

from typing import Any, Final

from dralab.api.status import ignoring
from dralab.controllers.workloads import OwnedObjects, template_hash
from dralab.objects.metadata import annotations_of, is_deleting, key_of, labels_of
from dralab.runtime.manager import Manager
from dralab.runtime.resources import CONTROLLER_REVISIONS
from dralab.values.json_types import JsonDict
from dralab.values.patches import in_order

# DaemonSets label their pods and their revisions alike.
DAEMON_HASH: Final = "controller-revision-hash"
HASH: Final = "controller.kubernetes.io/hash"


class Revisions:
    """The revisions of the owners of one kind."""

    def __init__(self, manager: Manager, *, kind: str) -> None:
        self.client = manager.client
        self.label = DAEMON_HASH if kind == "DaemonSet" else HASH
        self.owned = OwnedObjects(manager, CONTROLLER_REVISIONS, kind=kind, api_version="apps/v1")

    def current(self, owner: JsonDict) -> str:
        """Return the revision's name of an owner's template; record new ones.

        A template that comes back gets its old revision, under the highest number.
        """
        template = owner["spec"]["template"]
        # Of an owner of the same name that was deleted without its dependents, too
        # (`adoptOrphanRevisions`, `constructHistory`).
        known = self.owned.owned_by(owner)
        highest = max((item.get("revision", 0) for item in known), default=0)
        for item in known:
            if _template(item) == template:
                name: str = item["metadata"]["name"]
                if item.get("revision", 0) < highest:
                    key = key_of(item)
                    patch: JsonDict = {"revision": highest + 1}
                    self.owned.cache.learn(
                        self.client.patch(CONTROLLER_REVISIONS, key.name, patch, key.namespace)
                    )
                return name
        return self._create(owner, highest + 1)

    def template(self, owner: JsonDict, name: str) -> dict[str, Any]:
        """Return the template of a revision; the owner's own where the revision is gone."""
        for item in self.owned.owned_by(owner, adopt=False):
            if item["metadata"]["name"] == name:
                return _template(item)
        found: dict[str, Any] = owner["spec"]["template"]
        return found

    def delete_old_revisions(self, owner: JsonDict, live: set[str]) -> None:
        """Delete the oldest revisions beyond revisionHistoryLimit, other than the live ones."""
        limit = owner["spec"].get("revisionHistoryLimit")
        if limit is None or is_deleting(owner):
            return
        old = [
            item
            for item in self.owned.owned_by(owner, adopt=False)
            if item["metadata"]["name"] not in live and not is_deleting(item)
        ]
        old.sort(key=lambda item: item.get("revision", 0))
        for item in old[: max(0, len(old) - limit)]:
            key = key_of(item)
            with ignoring("NotFound"):
                self.client.delete(CONTROLLER_REVISIONS, key.name, key.namespace)

    def _create(self, owner: JsonDict, number: int) -> str:
        key, template = key_of(owner), owner["spec"]["template"]
        digest = template_hash(template)
        name = f"{key.name}-{digest}"
        body: JsonDict = {
            "apiVersion": "apps/v1",
            "kind": "ControllerRevision",
            "metadata": {
                "name": name,
                "namespace": key.namespace,
                "labels": {
                    **labels_of(template),
                    self.label: digest,
                },
                "annotations": dict(annotations_of(owner)),
                "ownerReferences": [self.owned.reference(owner)],
            },
            # Clients compare it with their own encoding, byte by byte (`pkg/controller/daemon`).
            "data": {"spec": {"template": in_order({**template, "$patch": "replace"})}},
            "revision": number,
        }
        with ignoring("AlreadyExists"):
            self.owned.cache.learn(self.client.create(CONTROLLER_REVISIONS, body, key.namespace))
        return name


def _template(revision: JsonDict) -> dict[str, Any]:
    template = ((revision.get("data") or {}).get("spec") or {}).get("template") or {}
    return {name: value for name, value in template.items() if name != "$patch"}
