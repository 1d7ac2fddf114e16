"""Persistent volumes: binds claims, protects those in use, and reclaims volumes.

Sources: kube-controller-manager's persistentvolume-binder, pvc- and pv-protection and
ephemeral-volume controllers. No data is stored. Classes with the provisioner `dralab.dev/pretend`
get simulated volumes; other provisioners must be run separately.
"""

from typing import Any, Final, Literal

from dralab.api.status import ApiError, ignoring
from dralab.controllers.workloads import write_status
from dralab.objects import volumes as rules
from dralab.objects.metadata import (
    NamespacedName,
    annotations_of,
    is_deleting,
    key_of,
    labels_of,
    status_of,
    uid_of,
)
from dralab.objects.pods import is_finished
from dralab.runtime.client import Resource, amend, drop_finalizer
from dralab.runtime.manager import Manager
from dralab.runtime.resources import PODS, STORAGE_CLASSES, VOLUME_CLAIMS, VOLUMES
from dralab.values.json_types import JsonDict

PRETEND: Final = "dralab.dev/pretend"
DRIVER: Final = "pretend.dralab.dev"  # A driver of CSI has a plain name.
CLAIM_PROTECTION: Final = "kubernetes.io/pvc-protection"
VOLUME_PROTECTION: Final = "kubernetes.io/pv-protection"
DEFAULT_CLASS: Final = "storageclass.kubernetes.io/is-default-class"
PROVISIONED: Final = "pv.kubernetes.io/provisioned-by"
HOST: Final = "kubernetes.io/hostname"
NO_PROVISIONER: Final = "kubernetes.io/no-provisioner"
PROVISIONER_MARKS: Final = (
    "volume.beta.kubernetes.io/storage-provisioner",
    "volume.kubernetes.io/storage-provisioner",
)
NO_CLASS: Final = "no persistent volumes available for this claim and no storage class is set"
EXTERNAL: Final = (
    "Waiting for a volume to be created either by the external provisioner '{name}' or manually by "
    "the system administrator. If volume creation is delayed, please verify that the provisioner "
    "is running and correctly registered."
)


class PersistentVolumes:
    """Binds claims to volumes, and releases them."""

    def __init__(self, manager: Manager) -> None:
        self.manager = manager
        self.client = manager.client
        self.claims = manager.cache(VOLUME_CLAIMS)
        self.volumes = manager.cache(VOLUMES)
        self.volumes.index(rules.PLACE, lambda volume: (rules.place_of(volume),))
        self.classes = manager.cache(STORAGE_CLASSES)
        self.pods = manager.cache(PODS)
        self.recorder = manager.recorder("persistentvolume-controller")
        self._said: dict[NamespacedName, tuple[str, str, str]] = {}
        self.claim_queue = manager.queue("volume-claims", self.reconcile_claim)
        self.volume_queue = manager.queue("volumes", self.reconcile_volume)
        self.pod_queue = manager.queue("ephemeral-volumes", self.reconcile_pod)
        self.claims.subscribe_each(self._claim)
        self.volumes.subscribe(self._volume)
        self.classes.subscribe(lambda *_: self._all_claims())
        self.pods.subscribe(self._pod)

    def _claim(self, claim: JsonDict) -> None:
        self.claim_queue.add(key_of(claim))
        volume = claim["spec"].get("volumeName")
        if volume:
            self.volume_queue.add(NamespacedName("", volume))

    def _volume(self, old: JsonDict | None, new: JsonDict | None) -> None:
        volume = new if new is not None else old
        if volume is None:
            return
        self.volume_queue.add(key_of(volume))
        held = volume["spec"].get("claimRef")
        if held is not None:
            self.claim_queue.add(NamespacedName(held.get("namespace", ""), held.get("name", "")))
        elif old is None:
            self._all_claims()

    def _all_claims(self) -> None:
        for claim in self.claims:
            if not rules.is_bound(claim):
                self.claim_queue.add(key_of(claim))

    def _pod(self, old: JsonDict | None, new: JsonDict | None) -> None:
        pod = new if new is not None else old
        if pod is None or not pod["spec"].get("volumes"):
            return
        for name, made_for_it in rules.claims_of(pod):
            if made_for_it and new is not None:
                self.pod_queue.add(key_of(pod))
            if new is None or is_finished(new):
                self.claim_queue.add(NamespacedName(key_of(pod).namespace, name))

    # --- claims

    def reconcile_claim(self, key: NamespacedName) -> int | None:
        """Bind a claim, or release a deleted one that is not in use."""
        claim = self.claims.get(key)
        if claim is None:
            self._said.pop(key, None)
            return None
        if is_deleting(claim):
            if not self._is_used(key):
                self._unprotect(VOLUME_CLAIMS, claim, CLAIM_PROTECTION)
            return None
        claim = self._with_class(claim)
        name = claim["spec"].get("volumeName")
        if name:
            volume = self.volumes.get(NamespacedName("", name))
            if volume is not None:
                self._bind(claim, self._expanded(volume, claim))
            elif rules.is_bound(claim):
                write_status(self.manager, self.claims, claim, {"phase": "Lost"})
            return None
        found_volumes = [
            volume
            for place in rules.places_for(claim)
            for volume in self.volumes.find(rules.PLACE, place)
        ]
        chosen = rules.best_for(claim, found_volumes)
        found = self.classes.get(NamespacedName("", rules.class_of(claim))) or {}
        node = annotations_of(claim).get(rules.SELECTED_NODE)
        waits = found.get("volumeBindingMode") == "WaitForFirstConsumer" and not node
        if chosen is not None and (rules.belongs_to(chosen, claim) or not waits):
            self._bind(claim, dict(chosen))
        elif not waits and found.get("provisioner") == PRETEND:
            self._provision(claim, found, node)
        else:
            self._wait(claim, found, waits=waits)
        return None

    def _wait(self, claim: JsonDict, storage: JsonDict, *, waits: bool) -> None:
        """Report what a claim waits for, in an event and an annotation for provisioners."""
        wanted = rules.class_of(claim)
        provisioner: str | None = storage.get("provisioner")
        if waits:
            self._say(claim, *self._first_consumer(claim))
        elif not wanted:
            self._say(claim, "FailedBinding", NO_CLASS)
        elif provisioner is None:
            missing = f'storageclass.storage.k8s.io "{wanted}" not found'
            self._say(claim, "ProvisioningFailed", missing, bad=True)
        elif provisioner == NO_PROVISIONER:
            told = f"no volume plugin matched name: {provisioner}"
            self._say(claim, "ProvisioningFailed", told, bad=True)
        else:
            marks = dict.fromkeys(PROVISIONER_MARKS, provisioner)
            if not marks.items() <= annotations_of(claim).items():
                claim = self.client.update(VOLUME_CLAIMS, self._marked(claim, marks))
                self.claims.learn(claim)
            self._say(claim, "ExternalProvisioning", EXTERNAL.format(name=provisioner))

    def _first_consumer(self, claim: JsonDict) -> tuple[str, str]:
        key = key_of(claim)
        pods = sorted(
            pod["metadata"]["name"]
            for pod in self.pods.namespace(key.namespace)
            if not pod["spec"].get("nodeName")
            and any(name == key.name for name, _ in rules.claims_of(pod))
        )
        if not pods:
            return "WaitForFirstConsumer", "waiting for first consumer to be created before binding"
        which = f"pod {pods[0]}" if len(pods) == 1 else f"pods {','.join(pods)}"
        return "WaitForPodScheduled", f"waiting for {which} to be scheduled"

    def _say(self, claim: JsonDict, reason: str, message: str, *, bad: bool = False) -> None:
        """Record why a claim waits, once for each reason."""
        said = uid_of(claim), reason, message
        if self._said.get(key_of(claim)) != said:
            self._said[key_of(claim)] = said
            type_: Literal["Normal", "Warning"] = "Warning" if bad else "Normal"
            self.recorder.event(claim, "PersistentVolumeClaim", reason, message, type=type_)

    def _with_class(self, claim: JsonDict) -> JsonDict:
        """Give a claim that names no class the default one."""
        if claim["spec"].get("storageClassName") is not None or claim["spec"].get("volumeName"):
            return claim
        default = sorted(
            name
            for each_class in self.classes
            for name in [each_class["metadata"]["name"]]
            if annotations_of(each_class).get(DEFAULT_CLASS) == "true"
        )
        if not default or rules.OLD_CLASS in annotations_of(claim):
            return claim
        spec = {**claim["spec"], "storageClassName": default[0]}
        claim = self.client.update(VOLUME_CLAIMS, {**claim, "spec": spec})
        self.claims.learn(claim)
        return claim

    def _bind(self, claim: JsonDict, volume: JsonDict) -> None:
        """Bind a claim and a volume on both sides; each step may have been done before."""
        if not rules.belongs_to(volume, claim):
            if volume["spec"].get("claimRef") is not None:
                return
            marked = self._marked(volume, {rules.BY_CONTROLLER: "yes"})
            spec = {**volume["spec"], "claimRef": rules.reference(claim)}
            volume = self.client.update(VOLUMES, {**marked, "spec": spec})
        elif not volume["spec"]["claimRef"].get("uid"):
            spec = {**volume["spec"], "claimRef": rules.reference(claim)}
            volume = self.client.update(VOLUMES, {**volume, "spec": spec})
        volume = write_status(self.manager, self.volumes, volume, {"phase": "Bound"})
        self.volumes.learn(volume)
        name = volume["metadata"]["name"]
        if not rules.is_bound(claim):
            marks = {rules.BIND_COMPLETED: "yes"}
            if not claim["spec"].get("volumeName"):
                marks[rules.BY_CONTROLLER] = "yes"
            spec = {**claim["spec"], "volumeName": name}
            body = {**self._marked(claim, marks), "spec": spec}
            claim = self.client.update(VOLUME_CLAIMS, body)
        status = {
            "phase": "Bound",
            "accessModes": volume["spec"].get("accessModes"),
            "capacity": volume["spec"].get("capacity"),
        }
        attributes = volume["spec"].get("volumeAttributesClassName")
        if attributes and status_of(claim).get("phase") != "Bound":
            # Later the driver's resizer says which one the volume has.
            status["currentVolumeAttributesClassName"] = attributes
        self.claims.learn(write_status(self.manager, self.claims, claim, status))

    def _expanded(self, volume: JsonDict, claim: JsonDict) -> JsonDict:
        """Make a volume of ours as large as its claim asks; the file system grows with it."""
        ours = (volume["spec"].get("csi") or {}).get("driver") == DRIVER
        if not (ours and rules.belongs_to(volume, claim) and rules.is_too_small(volume, claim)):
            return volume
        spec = {**volume["spec"], "capacity": {"storage": rules.asked(claim)}}
        return self.client.update(VOLUMES, {**volume, "spec": spec})

    def _provision(self, claim: JsonDict, storage: JsonDict, node: str | None) -> None:
        """Provision a new volume for a claim."""
        name = f"pvc-{uid_of(claim)}"
        spec: dict[str, Any] = {
            "accessModes": claim["spec"].get("accessModes"),
            "capacity": {"storage": rules.asked(claim)},
            "claimRef": rules.reference(claim),
            "csi": {"driver": DRIVER, "volumeHandle": name},
            "persistentVolumeReclaimPolicy": storage.get("reclaimPolicy") or "Delete",
            "storageClassName": storage["metadata"]["name"],
            "volumeMode": claim["spec"].get("volumeMode") or "Filesystem",
        }
        if node:
            term = {"matchExpressions": [{"key": HOST, "operator": "In", "values": [node]}]}
            spec["nodeAffinity"] = {"required": {"nodeSelectorTerms": [term]}}
        body: JsonDict = {
            "apiVersion": "v1",
            "kind": "PersistentVolume",
            "metadata": {"name": name, "annotations": {PROVISIONED: PRETEND}},
            "spec": spec,
        }
        try:
            self.volumes.learn(self.client.create(VOLUMES, body))
        except ApiError as error:
            if error.reason != "AlreadyExists":
                raise
            return
        said = f"Successfully provisioned volume {name}"
        self.recorder.event(claim, "PersistentVolumeClaim", "ProvisioningSucceeded", said)
        self.claim_queue.add(key_of(claim))

    def _is_used(self, key: NamespacedName) -> bool:
        # A pod without a node will not start with a claim that is being deleted.
        return any(
            name == key.name
            for pod in self.pods.namespace(key.namespace)
            if pod["spec"].get("nodeName") and not is_finished(pod)
            for name, _ in rules.claims_of(pod)
        )

    # --- volumes

    def reconcile_volume(self, key: NamespacedName) -> int | None:
        """Make a volume available, or release one whose claim was deleted."""
        volume = self.volumes.get(key)
        if volume is None:
            return None
        held = volume["spec"].get("claimRef")
        claim = None
        if held is not None:
            claim = self.claims.get(NamespacedName(held.get("namespace", ""), held.get("name", "")))
            if claim is not None and not rules.belongs_to(volume, claim):
                claim = None
        if is_deleting(volume):
            if claim is None:
                self._unprotect(VOLUMES, volume, VOLUME_PROTECTION)
            return None
        if held is None or not held.get("uid"):
            if status_of(volume).get("phase") in {None, "Pending"}:
                write_status(self.manager, self.volumes, volume, {"phase": "Available"})
            return None
        if claim is not None:
            return None
        if volume["spec"].get("persistentVolumeReclaimPolicy") == "Delete":
            self.client.delete(VOLUMES, key.name)
        else:
            write_status(self.manager, self.volumes, volume, {"phase": "Released"})
        return None

    # --- volumes of one pod

    def reconcile_pod(self, key: NamespacedName) -> int | None:
        """Make the claims of a pod's ephemeral volumes."""
        pod = self.pods.get(key)
        if pod is None or is_deleting(pod) or is_finished(pod):
            return None
        for volume in pod["spec"].get("volumes") or ():
            template = (volume.get("ephemeral") or {}).get("volumeClaimTemplate")
            name = f"{key.name}-{volume['name']}"
            if not template or self.claims.get(NamespacedName(key.namespace, name)) is not None:
                continue
            owner = {
                "apiVersion": "v1",
                "kind": "Pod",
                "name": key.name,
                "uid": uid_of(pod),
                "controller": True,
                "blockOwnerDeletion": True,
            }
            body: JsonDict = {
                "apiVersion": "v1",
                "kind": "PersistentVolumeClaim",
                "metadata": {
                    "name": name,
                    "namespace": key.namespace,
                    "labels": dict(labels_of(template)),
                    "annotations": dict(annotations_of(template)),
                    "ownerReferences": [owner],
                },
                "spec": template["spec"],
            }
            try:
                self.claims.learn(self.client.create(VOLUME_CLAIMS, body, key.namespace))
            except ApiError as error:
                ends = error.has_cause("NamespaceTerminating")
                if not ends and error.reason != "AlreadyExists":
                    raise
        return None

    # --- writing

    @staticmethod
    def _marked(obj: JsonDict, marks: dict[str, str]) -> JsonDict:
        metadata = obj["metadata"]
        annotations = {**(metadata.get("annotations") or {}), **marks}
        return {**obj, "metadata": {**metadata, "annotations": annotations}}

    def _unprotect(self, resource: Resource, obj: JsonDict, finalizer: str) -> None:
        with ignoring("NotFound"):
            amend(self.client, resource, obj, lambda latest: drop_finalizer(latest, finalizer))
