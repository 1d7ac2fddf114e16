"""Claims created from templates: shared by the controllers of two APIs.

Source: kube-controller-manager's resourceclaim controller.
"""

from collections.abc import Sequence
from typing import Any, Final

from dralab.api.status import ApiError
from dralab.objects.metadata import (
    NamespacedName,
    annotations_of,
    is_deleting,
    key_of,
    labels_of,
    owner_reference,
    owner_uids,
    uid_of,
)
from dralab.runtime.cache import Cache
from dralab.runtime.client import Resource, delete_only
from dralab.runtime.manager import Manager
from dralab.values.json_types import JsonDict, JsonObject

ENTRY: Final = "resource.kubernetes.io/pod-claim-name"
MANAGER: Final = "ResourceClaimController"
# As the API server cuts generateName (names.SimpleNameGenerator).
LONGEST_BASE: Final = 57


class GeneratedClaims:
    """Makes and deletes the claims of one version of the device API."""

    def __init__(self, manager: Manager, claims: Resource, templates: Resource) -> None:
        self.client = manager.client
        self.recorder = manager.recorder("resource_claim")
        self.claims = manager.cache(claims)
        self.templates = manager.cache(templates)
        self.claims.index("owner", owner_uids)

    def made(
        self,
        owner: JsonDict,
        entry: str,
        template: str,
        *,
        kind: str = "Pod",
        api_version: str = "v1",
    ) -> JsonDict:
        """Return the claim of an owner's entry: an earlier one, or a new one from its template.

        ApiError: it cannot be made; the owner has an event that says why.
        """
        for claim in self.claims.find("owner", uid_of(owner)):
            annotations = annotations_of(claim)
            if annotations.get(ENTRY) == entry and not is_deleting(claim):
                return claim
        namespace = key_of(owner).namespace
        try:
            found = self.templates.get(NamespacedName(namespace, template)) or self.client.get(
                self.templates.resource, template, namespace
            )
            reference = owner_reference(owner, api_version=api_version, kind=kind)
            made = self.client.create(
                self.claims.resource, self._body(reference, namespace, entry, found), namespace
            )
        except ApiError as error:
            why = error.message
            if error.reason == "NotFound":
                why = f'resource claim template "{template}": {error.message}'
            self.recorder.event(
                owner,
                kind,
                "FailedResourceClaimCreation",
                f"PodResourceClaim {entry}: {why}",
                type="Warning",
                api_version=api_version,
            )
            raise
        self.claims.learn(made)
        return made

    def _body(
        self, owner: dict[str, Any], namespace: str, entry: str, template: JsonDict
    ) -> JsonDict:
        resource, spec = self.claims.resource, template["spec"]
        made: dict[str, Any] = {
            "generateName": base_name(owner["name"], entry),
            "namespace": namespace,
            "annotations": {**annotations_of(spec), ENTRY: entry},
            "ownerReferences": [owner],
        }
        if labels_of(spec):
            made["labels"] = dict(labels_of(spec))
        return {
            "apiVersion": f"{resource.group}/{resource.version}",
            "kind": "ResourceClaim",
            "metadata": made,
            "spec": spec["spec"],
        }

    def write_claim_statuses(
        self,
        cache: Cache,
        obj: JsonDict,
        statuses: Sequence[JsonObject],
        *,
        kind: str = "Pod",
        api_version: str = "v1",
    ) -> None:
        """Write the names of an owner's claims into its status."""
        key = key_of(obj)
        patch: JsonDict = {
            "apiVersion": api_version,
            "kind": kind,
            "metadata": {"name": key.name, "namespace": key.namespace, "uid": uid_of(obj)},
            "status": {"resourceClaimStatuses": [dict(item) for item in statuses]},
        }
        told = self.client.patch(
            cache.resource,
            key.name,
            patch,
            key.namespace,
            type="apply",
            subresource="status",
            field_manager=MANAGER,
            force=True,
        )
        cache.learn(told)

    def delete(self, claim: JsonDict) -> None:
        """Delete just this claim; one that is gone, or was replaced, is fine."""
        delete_only(self.client, self.claims.resource, claim)


def base_name(owner: str, entry: str) -> str:
    """Return what the names of generated claims begin with.

    >>> base_name("web", "gpu")
    'web-gpu-'
    """
    full = f"{owner}-{entry}-"
    if len(full) <= LONGEST_BASE:
        return full
    # Cut both in proportion, so that something of each remains.
    mine = owner[: len(owner) * LONGEST_BASE // len(full)]
    return f"{mine}-{entry[: len(entry) * LONGEST_BASE // len(full)]}"
