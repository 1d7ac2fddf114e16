"""The volume claims that a StatefulSet makes for its pods, and who owns them.

Source: kube-controller-manager's `stateful_pod_control.go`; KEP-1847
(`persistentVolumeClaimRetentionPolicy`). Claims go with their owner: the garbage collector's work.
"""

from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from typing import Any, Final

from dralab.api.status import ApiError
from dralab.controllers.workloads import PodControl
from dralab.objects.metadata import (
    NamespacedName,
    is_deleting,
    key_of,
    labels_of,
    owner_reference,
    owners_of,
    uid_of,
)
from dralab.runtime.client import amend
from dralab.runtime.manager import Manager
from dralab.runtime.resources import VOLUME_CLAIMS
from dralab.values.json_types import JsonDict

DELETE: Final = "Delete"
Reference = dict[str, Any]


class SetClaims:
    """Creates the claims of a StatefulSet's pods, and sets their owners."""

    def __init__(
        self, manager: Manager, control: PodControl, reference: Callable[[JsonDict], Reference]
    ) -> None:
        self.client = manager.client
        self.claims = manager.cache(VOLUME_CLAIMS)
        self.control = control
        self._reference = reference

    def mount(self, stateful: JsonDict, pod_name: str, body: JsonDict) -> None:
        """Make the claims of a pod that is about to be created, and mount them in it."""
        volumes = body["spec"].get("volumes") or []
        for template in stateful["spec"].get("volumeClaimTemplates") or ():
            entry = template["metadata"]["name"]
            claim = f"{entry}-{pod_name}"
            self._create(stateful, template, claim, pod_name)
            source = {"name": entry, "persistentVolumeClaim": {"claimName": claim}}
            volumes = [item for item in volumes if item["name"] != entry] + [source]
        if volumes:
            body["spec"]["volumes"] = volumes

    def _create(self, stateful: JsonDict, template: JsonDict, name: str, pod_name: str) -> None:
        key = key_of(stateful)
        if self.claims.get(NamespacedName(key.namespace, name)) is not None:
            return
        metadata = {
            **template["metadata"],
            "name": name,
            "namespace": key.namespace,
            "labels": {
                **labels_of(template),
                **(stateful["spec"]["selector"].get("matchLabels") or {}),
            },
        }
        if _policy(stateful, "whenDeleted") == DELETE:
            metadata["ownerReferences"] = [self._reference(stateful)]
        body = {
            "apiVersion": "v1",
            "kind": "PersistentVolumeClaim",
            "metadata": metadata,
            "spec": deepcopy(template["spec"]),
        }
        about = f"Claim {name} Pod {pod_name} in StatefulSet {key.name}"
        try:
            self.claims.learn(self.client.create(VOLUME_CLAIMS, body, key.namespace))
        except ApiError as error:
            if error.reason == "AlreadyExists":
                return
            told = f"Create {about} failed error: {error.message}"
            self.control.say(stateful, "FailedCreate", told, bad=True)
            raise
        self.control.say(stateful, "SuccessfulCreate", f"Create {about} success")

    def own(self, stateful: JsonDict, pod: JsonDict, *, condemned: bool) -> None:
        """Give the claims of a pod the owner that the set's policy wants.

        With `whenScaled: Delete` the claims of a condemned pod, one beyond the set's size, go with
        the pod; with `whenDeleted: Delete` the others go with the set.
        """
        owner: list[Reference] = []
        if condemned and _policy(stateful, "whenScaled") == DELETE:
            owner = [owner_reference(pod, api_version="v1", kind="Pod")]
        elif _policy(stateful, "whenDeleted") == DELETE:
            owner = [self._reference(stateful)]
        ours = {uid_of(stateful), uid_of(pod)}

        namesakes = {("StatefulSet", stateful["metadata"]["name"]), ("Pod", key_of(pod).name)}
        retained = _policy(stateful, "whenScaled") != DELETE and not owner

        def hand_over(claim: JsonDict) -> bool:
            held = owners_of(claim)
            others = [each for each in held if each["uid"] not in ours]
            if any((each["kind"], each["name"]) in namesakes for each in others):
                return False  # of one that was deleted: the garbage collector's
            conflict = not retained and any(each.get("controller") for each in others)
            wanted = others if conflict else [*others, *owner]
            if _owners(wanted) == _owners(held):
                return False
            if conflict:
                told = (
                    f"PersistentVolumeClaim {claim['metadata']['name']} has a conflicting "
                    "OwnerReference that acts as a manging controller, the retention policy is "
                    "ignored for this claim"
                )
                self.control.say(stateful, "ConflictingController", told, bad=True)
            claim["metadata"]["ownerReferences"] = wanted
            return True

        key = key_of(pod)
        for template in stateful["spec"].get("volumeClaimTemplates") or ():
            name = f"{template['metadata']['name']}-{key.name}"
            claim = self.claims.get(NamespacedName(key.namespace, name))
            if claim is not None and not is_deleting(claim):
                self.claims.learn(amend(self.client, VOLUME_CLAIMS, claim, hand_over))


def _owners(references: Sequence[Mapping[str, Any]]) -> list[tuple[str, bool]]:
    """Return the owners of an object, and whether each is its controller."""
    return [(each["uid"], bool(each.get("controller"))) for each in references]


def _policy(stateful: JsonDict, when: str) -> str:
    policy = stateful["spec"].get("persistentVolumeClaimRetentionPolicy") or {}
    found: str = policy.get(when) or "Retain"
    return found
