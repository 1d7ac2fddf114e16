"""Keeps a VolumeAttributesClass until no volume and no claim names it any more.

Source: kube-controller-manager's volumeattributesclass-protection-controller.
"""

from collections.abc import Iterable
from typing import Final

from dralab.api.core.storage import PROTECTION
from dralab.objects.metadata import NamespacedName, finalizers_of, is_deleting, key_of, status_of
from dralab.runtime.client import amend, drop_finalizer
from dralab.runtime.manager import Manager
from dralab.runtime.resources import ATTRIBUTES_CLASSES, VOLUME_CLAIMS, VOLUMES
from dralab.values.json_types import JsonDict

CONTROLLER: Final = "volumeattributesclass-protection-controller"


class AttributesClassProtection:
    """Adds the finalizer to classes, and removes it from deleted ones that are not in use."""

    def __init__(self, manager: Manager) -> None:
        self.client = manager.client
        self.classes = manager.cache(ATTRIBUTES_CLASSES)
        self.claims = manager.cache(VOLUME_CLAIMS)
        self.volumes = manager.cache(VOLUMES)
        self.queue = manager.queue(CONTROLLER, self.reconcile)
        self.classes.subscribe(self._class)
        self.claims.subscribe(self._user)
        self.volumes.subscribe(self._user)

    def _class(self, _old: JsonDict | None, new: JsonDict | None) -> None:
        if new is not None and is_deleting(new) == (PROTECTION in finalizers_of(new)):
            self.queue.add(key_of(new))

    def _user(self, old: JsonDict | None, new: JsonDict | None) -> None:
        """Look at the classes that a claim or volume no longer names."""
        if old is not None:
            for name in classes_of(old) - (classes_of(new) if new is not None else set()):
                self.queue.add(NamespacedName("", name))

    def reconcile(self, key: NamespacedName) -> int | None:
        """Protect a class, or let a deleted one go that is not in use."""
        found = self.classes.get(key)
        if found is None:
            return None
        if not is_deleting(found):
            amend(self.client, ATTRIBUTES_CLASSES, found, _protect)
        elif not _is_used(key.name, (*self.claims, *self.volumes)):
            amend(
                self.client,
                ATTRIBUTES_CLASSES,
                found,
                lambda stored: drop_finalizer(stored, PROTECTION),
            )
        return None


def classes_of(user: JsonDict) -> set[str]:
    """Return the names of the classes that a claim, or a volume, refers to."""
    status = status_of(user)
    names = {
        user["spec"].get("volumeAttributesClassName"),
        status.get("currentVolumeAttributesClassName"),
        (status.get("modifyVolumeStatus") or {}).get("targetVolumeAttributesClassName"),
    }
    return {name for name in names if name}


def _is_used(name: str, users: Iterable[JsonDict]) -> bool:
    return any(name in classes_of(user) for user in users)


def _protect(stored: JsonDict) -> bool:
    held = list(finalizers_of(stored))
    if PROTECTION in held or is_deleting(stored):
        return False
    stored["metadata"]["finalizers"] = [*held, PROTECTION]
    return True
