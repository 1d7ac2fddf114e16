"""Volumes that are directories of this machine: a provisioner for the process runtime.

Like local-path-provisioner, but every node of the cluster reaches the folder. Binding, protection
and reclaiming of volumes are left to `volumes`, or to a stock kube-controller-manager.
"""

import re
import shutil
from pathlib import Path
from typing import Final, Literal

from dralab.api.status import ApiError, ignoring
from dralab.controllers.volumes import DEFAULT_CLASS, PROVISIONED, PROVISIONER_MARKS
from dralab.objects import volumes as rules
from dralab.objects.metadata import (
    NamespacedName,
    annotations_of,
    is_deleting,
    key_of,
    status_of,
    uid_of,
)
from dralab.runtime.manager import Manager
from dralab.runtime.resources import STORAGE_CLASSES, VOLUME_CLAIMS, VOLUMES
from dralab.values.json_types import JsonDict

FOLDERS: Final = "dralab.dev/folders"
ACCOUNT: Final = "system:serviceaccount:kube-system:dralab-volumes"
# The names of provisioned volumes; nothing else becomes a path.
NAME: Final = re.compile(r"pvc-[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")


def default_class(provisioner: str) -> JsonDict:
    """Return the class that volume claims get unasked: the name and the settings of kind's."""
    return {
        "apiVersion": "storage.k8s.io/v1",
        "kind": "StorageClass",
        "metadata": {"name": "standard", "annotations": {DEFAULT_CLASS: "true"}},
        "provisioner": provisioner,
        "reclaimPolicy": "Delete",
        "volumeBindingMode": "WaitForFirstConsumer",
    }


class VolumeFolders:
    """Makes folders below `base` for the claims of its classes, and removes those of lost volumes.

    A folder goes when its volume's deletion is seen, never because a volume is not there: the
    objects may be of another cluster.
    """

    def __init__(self, manager: Manager, base: Path) -> None:
        self.base = base.absolute()
        self.client = manager.client
        self.claims = manager.cache(VOLUME_CLAIMS)
        self.volumes = manager.cache(VOLUMES)
        self.classes = manager.cache(STORAGE_CLASSES)
        self.recorder = manager.recorder(FOLDERS)
        self.claim_queue = manager.queue("folders/claims", self.reconcile_claim)
        self.volume_queue = manager.queue("folders/volumes", self.reconcile_volume)
        self.claims.subscribe(self._claim)
        self.volumes.subscribe(self._volume)

    def _claim(self, old: JsonDict | None, new: JsonDict | None) -> None:  # noqa: ARG002 - a subscriber's form
        if new is not None and self._is_ours(new):
            self.claim_queue.add(key_of(new))

    def _volume(self, old: JsonDict | None, new: JsonDict | None) -> None:
        if new is not None:
            self.volume_queue.add(key_of(new))
        elif old is not None and annotations_of(old).get(PROVISIONED) == FOLDERS:
            self._remove(old["metadata"]["name"])

    @staticmethod
    def _is_ours(claim: JsonDict) -> bool:
        marks = annotations_of(claim)
        return any(marks.get(name) == FOLDERS for name in PROVISIONER_MARKS)

    def reconcile_claim(self, key: NamespacedName) -> int | None:
        """Make the folder and the volume of a claim that was given to this provisioner."""
        claim = self.claims.get(key)
        if claim is None or is_deleting(claim) or claim["spec"].get("volumeName"):
            return None
        storage = self.classes.get(NamespacedName("", rules.class_of(claim)))
        name = f"pvc-{uid_of(claim)}"
        if storage is None or storage["provisioner"] != FOLDERS or not NAME.fullmatch(name):
            return None
        waits = storage.get("volumeBindingMode") == "WaitForFirstConsumer"
        if waits and rules.SELECTED_NODE not in annotations_of(claim):
            return None
        if claim["spec"].get("volumeMode") == "Block":
            self._tell(claim, "ProvisioningFailed", "a folder cannot be a block device", bad=True)
            return None
        folder = self.base / name
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as error:
            self._tell(claim, "ProvisioningFailed", f"cannot make {folder}: {error}", bad=True)
            return None
        try:
            self.client.create(VOLUMES, self._volume_for(claim, storage, folder))
        except ApiError as error:
            if error.reason != "AlreadyExists":
                raise
            return None
        self._tell(claim, "ProvisioningSucceeded", f"Successfully provisioned volume {name}")
        return None

    def _volume_for(self, claim: JsonDict, storage: JsonDict, folder: Path) -> JsonDict:
        return {
            "apiVersion": "v1",
            "kind": "PersistentVolume",
            "metadata": {"name": folder.name, "annotations": {PROVISIONED: FOLDERS}},
            "spec": {
                "accessModes": claim["spec"].get("accessModes"),
                "capacity": {"storage": rules.asked(claim)},
                "claimRef": rules.reference(claim),
                "hostPath": {"path": str(folder), "type": "DirectoryOrCreate"},
                "persistentVolumeReclaimPolicy": storage.get("reclaimPolicy") or "Delete",
                "storageClassName": storage["metadata"]["name"],
                "volumeMode": "Filesystem",
            },
        }

    def _tell(self, claim: JsonDict, reason: str, message: str, *, bad: bool = False) -> None:
        type_: Literal["Normal", "Warning"] = "Warning" if bad else "Normal"
        self.recorder.event(claim, "PersistentVolumeClaim", reason, message, type=type_)

    def reconcile_volume(self, key: NamespacedName) -> int | None:
        """Delete a released volume, which kube-controller-manager leaves to its provisioner."""
        volume = self.volumes.get(key)
        if (
            volume is not None
            and annotations_of(volume).get(PROVISIONED) == FOLDERS
            and status_of(volume).get("phase") == "Released"
            and volume["spec"].get("persistentVolumeReclaimPolicy") == "Delete"
            and not is_deleting(volume)
        ):
            with ignoring("NotFound"):
                self.client.delete(VOLUMES, key.name)
        return None

    def _remove(self, name: str) -> None:
        if NAME.fullmatch(name):
            shutil.rmtree(self.base / name, ignore_errors=True)
