"""ResourceClaims: created from templates, released when their users are done, deleted when unused.

Source: kube-controller-manager's resourceclaim controller (1.36), KEP-5729 for pod groups. The
scheduler allocates devices; this controller deallocates them.
"""

from typing import Final

from dralab.controllers.generated_claims import ENTRY, GeneratedClaims
from dralab.controllers.workloads import group_key
from dralab.objects.claims import (
    PodClaim,
    allocation_of,
    claim_names,
    claims_by_entry,
    claims_for_scheduler,
    consumer_of,
    consumers_of,
    is_reserved_for,
    is_shared,
    made_claims,
    pod_claims,
    uses_claims,
)
from dralab.objects.extended_resources import SYNTHETIC
from dralab.objects.metadata import (
    NamespacedName,
    annotations_of,
    controller_of,
    is_deleting,
    key_of,
    spec_of,
    status_of,
    uid_of,
)
from dralab.objects.pods import group_of, is_finished
from dralab.runtime.client import Resource, amend, drop_finalizer, find
from dralab.runtime.manager import Manager
from dralab.runtime.resources import CLAIM_TEMPLATES, CLAIMS, POD_GROUPS, PODS
from dralab.values.json_types import JsonDict, JsonObject

FINALIZER: Final = "resource.kubernetes.io/delete-protection"


class ResourceClaims:
    """Creates claims for pods and pod groups, and deallocates unused ones."""

    def __init__(self, manager: Manager) -> None:
        self.client = manager.client
        self.generated = GeneratedClaims(manager, CLAIMS, CLAIM_TEMPLATES)
        self.pods = manager.cache(PODS)
        self.claims = self.generated.claims
        self.groups = manager.cache(POD_GROUPS)
        self.pods.index("group", group_key)
        self.pod_queue = manager.queue("resourceclaim/pods", self.sync_pod)
        self.claim_queue = manager.queue("resourceclaim/claims", self.sync_claim)
        self.group_queue = manager.queue("resourceclaim/groups", self.sync_group)
        self.pods.subscribe(self._pod)
        self.claims.subscribe(self._claim)
        self.groups.subscribe(self._group)

    # --- what happens

    def _pod(self, old: JsonDict | None, new: JsonDict | None) -> None:
        pod = new if new is not None else old
        if pod is None or not uses_claims(pod):
            return
        key = key_of(pod)
        if new is not None and not is_deleting(new) and not is_finished(new):
            self.pod_queue.add(key)
            if old is None or old["spec"].get("nodeName") == new["spec"].get("nodeName"):
                return
        names = {name for each in (old, new) if each is not None for name in claim_names(each)}
        for name in sorted(names):
            self.claim_queue.add(NamespacedName(key.namespace, name))

    def _claim(self, old: JsonDict | None, new: JsonDict | None) -> None:
        if new is not None:
            self.claim_queue.add(key_of(new))
            return
        # A generated claim that was deleted is made again while its pod wants it.
        owner = controller_of(old or {"metadata": {}})
        if old is not None and owner is not None:
            key = NamespacedName(key_of(old).namespace, owner["name"])
            queue = self.pod_queue if owner["kind"] == "Pod" else self.group_queue
            queue.add(key)

    def _group(self, old: JsonDict | None, new: JsonDict | None) -> None:
        group = new if new is not None else old
        if group is None or not spec_of(group).get("resourceClaims"):
            return
        if new is not None:
            self.group_queue.add(key_of(new))
        for name in claims_by_entry(group).values():
            self.claim_queue.add(NamespacedName(key_of(group).namespace, name))

    # --- from templates

    def sync_pod(self, key: NamespacedName) -> int | None:
        """Create the missing claims of a pod, and reserve those it was bound with."""
        pod = self.pods.get(key)
        if pod is None or is_deleting(pod) or is_finished(pod):
            return None
        group = self._group_with_claims(pod)
        statuses = list(status_of(pod).get("resourceClaimStatuses") or ())
        fresh: list[JsonObject] = []
        for item in claims_for_scheduler(pod):
            if not item.template or self._has_claim(pod, item):
                continue
            if group is not None and is_shared(item, group):
                name = made_claims(group).get(item.entry)
                if not name:
                    continue  # the group's own turn makes it, and comes back to its pods
            else:
                claim = self.generated.made(pod, item.entry, item.template)
                name = claim["metadata"]["name"]
            fresh.append({"name": item.entry, "resourceClaimName": name})
        if fresh:
            names = {item["name"] for item in fresh}
            kept = [item for item in statuses if item["name"] not in names]
            self.generated.write_claim_statuses(self.pods, pod, [*kept, *fresh])
        elif pod["spec"].get("nodeName"):
            self._reserve(pod, group)
        return None

    def sync_group(self, key: NamespacedName) -> int | None:
        """Create the claims of a pod group, and write their names into its members."""
        group = self.groups.get(key)
        if group is None or is_deleting(group):
            return None
        statuses = list(status_of(group).get("resourceClaimStatuses") or ())
        fresh: list[JsonObject] = []
        for item in pod_claims(group):
            if not item.template or self._has_claim(group, item):
                continue
            claim = self.generated.made(group, item.entry, item.template, **self._group_kind)
            fresh.append({"name": item.entry, "resourceClaimName": claim["metadata"]["name"]})
        if fresh:
            names = {item["name"] for item in fresh}
            kept = [item for item in statuses if item["name"] not in names]
            self.generated.write_claim_statuses(
                self.groups, group, [*kept, *fresh], **self._group_kind
            )
        for pod in self.pods.find("group", str(key)):
            self.pod_queue.add(key_of(pod))
        return None

    def _has_claim(self, owner: JsonDict, item: PodClaim) -> bool:
        if not item.made:
            return item.made is not None
        claim = self.claims.get(NamespacedName(key_of(owner).namespace, item.made))
        return claim is not None and not is_deleting(claim)

    def _group_with_claims(self, pod: JsonDict) -> JsonDict | None:
        name = group_of(pod)
        return self.groups.get(NamespacedName(key_of(pod).namespace, name)) if name else None

    def _reserve(self, pod: JsonDict, group: JsonDict | None) -> None:
        """Reserve allocated claims for a pod that was bound without them being reserved."""
        for item in pod_claims(pod):
            if not item.name:
                continue
            claim = self.claims.get(NamespacedName(key_of(pod).namespace, item.name))
            if claim is None or is_deleting(claim):
                continue
            status = status_of(claim)
            consumer = consumer_of(pod)
            if group is not None and is_shared(item, group):
                continue
            if "allocation" not in status or is_reserved_for(claim, consumer["uid"]):
                continue

            def change(latest: JsonDict, consumer: JsonObject = consumer) -> bool:
                held = latest.get("status") or {}
                if "allocation" not in held or is_reserved_for(latest, consumer["uid"]):
                    return False
                held["reservedFor"] = [*(held.get("reservedFor") or ()), dict(consumer)]
                return True

            self.claims.learn(amend(self.client, CLAIMS, claim, change, subresource="status"))

    # --- release

    def sync_claim(self, key: NamespacedName) -> int | None:
        """Release a claim from finished users, and delete it if it was created for them."""
        claim = self.claims.get(key)
        if claim is None:
            return None
        status = status_of(claim)
        reserved = status.get("reservedFor") or []
        left = [item for item in reserved if self._is_used_by(key.namespace, item)]
        unused = not left and (bool(reserved) or is_deleting(claim))
        if len(left) != len(reserved) or (unused and "allocation" in status):
            claim = self._release(claim, {item["uid"] for item in left})
            status = status_of(claim)
            unused = unused and not status.get("reservedFor")
        if unused and "allocation" not in status:
            claim = self._unprotect(claim)
        if not left and not is_deleting(claim) and self._is_orphan(claim):
            self.generated.delete(claim)
        return None

    def _release(self, claim: JsonDict, keep: set[str]) -> JsonDict:
        def change(latest: JsonDict) -> bool:
            status = latest.get("status") or {}
            before = status.get("reservedFor") or []
            # Who was added since is looked at in the next turn.
            known = {item["uid"] for item in consumers_of(claim)}
            after = [item for item in before if item["uid"] in keep or item["uid"] not in known]
            if after == before and (after or "allocation" not in status):
                return False
            if after:
                status["reservedFor"] = after
            else:
                for name in ("reservedFor", "allocation", "devices"):
                    status.pop(name, None)
            return True

        released = amend(self.client, CLAIMS, claim, change, subresource="status")
        self.claims.learn(released)
        return released

    def _unprotect(self, claim: JsonDict) -> JsonDict:
        def change(latest: JsonDict) -> bool:
            return allocation_of(latest) is None and drop_finalizer(latest, FINALIZER)

        return amend(self.client, CLAIMS, claim, change)

    @property
    def _group_kind(self) -> dict[str, str]:
        resource = self.groups.resource
        return {"kind": "PodGroup", "api_version": f"{resource.group}/{resource.version}"}

    def _is_used_by(self, namespace: str, consumer: JsonObject) -> bool:
        if consumer.get("resource") == "podgroups":
            return self._exists(self.groups.resource, namespace, consumer) is not None
        if consumer.get("resource") != "pods" or consumer.get("apiGroup"):
            return True  # not ours to judge
        pod = self._exists(PODS, namespace, consumer)
        if pod is None or is_finished(pod):
            return False
        return not (is_deleting(pod) and not pod["spec"].get("nodeName"))

    def _exists(self, resource: Resource, namespace: str, consumer: JsonObject) -> JsonDict | None:
        cache = self.pods if resource == PODS else self.groups
        obj = cache.get(NamespacedName(namespace, consumer["name"]))
        if obj is None or uid_of(obj) != consumer["uid"]:
            # The cache may be behind the scheduler's: ask before devices are taken away.
            obj = find(self.client, resource, consumer["name"], namespace)
        return obj if obj is not None and uid_of(obj) == consumer["uid"] else None

    def _is_orphan(self, claim: JsonDict) -> bool:
        """Return whether a claim was made for a pod that is done or was replaced."""
        annotations = annotations_of(claim)
        owner = controller_of(claim)
        if owner is None or owner["kind"] != "Pod":
            return False
        if ENTRY not in annotations and SYNTHETIC not in annotations:
            return False
        consumer = {"name": owner["name"], "uid": owner["uid"]}
        pod = self._exists(PODS, key_of(claim).namespace, consumer)
        return pod is None or is_finished(pod)
