"""The claims of waiting and running pods, as the claim controller and the scheduler keep them."""

from collections.abc import Callable
from typing import NamedTuple

from dralab.objects.claims import consumers_of
from dralab.objects.metadata import NamespacedName, key_of, owner_reference, status_of
from dralab.scheduling.allocatable import ClaimPlan
from dralab.scheduling.pods import PodInfo
from dralab.simulation.engines.cluster.tasks import ClusterTask
from dralab.simulation.engines.fast.admitted import AdmittedKind
from dralab.values.json_types import JsonDict


class _MadeClaim(NamedTuple):
    """A claim created for a pod: its differences from others of its template."""

    uid: str
    pod: str
    pod_uid: str
    spec: JsonDict

    def claim(self, key: NamespacedName) -> JsonDict:
        """Return the claim."""
        pod = {"metadata": {"name": self.pod, "uid": self.pod_uid}}
        metadata = {
            "name": key.name,
            "namespace": key.namespace,
            "uid": self.uid,
            "ownerReferences": [owner_reference(pod, api_version="v1", kind="Pod")],
        }
        return {"metadata": metadata, "spec": self.spec}


class ClaimBook:
    """Claims by key; `template` finds the template of those created for pods.

    A claim that was made is written out when it is asked for: of a million pods that run, hardly
    any is.
    """

    def __init__(self, template: Callable[[NamespacedName], JsonDict | None]) -> None:
        self._given: dict[NamespacedName, JsonDict] = {}
        self._made: dict[NamespacedName, _MadeClaim] = {}
        self._template = template

    def get(self, key: NamespacedName) -> JsonDict | None:
        """Return a claim; None if it does not exist."""
        made = self._made.get(key)
        return self._given.get(key) if made is None else made.claim(key)

    def put(self, claim: JsonDict) -> None:
        """Add a claim without an owner."""
        self._given[key_of(claim)] = claim

    def make_for(self, kind: AdmittedKind, task: ClusterTask) -> dict[str, str] | None:
        """Make the claims of a pod from their templates; return their names by entry.

        None: a template lacks, and none is made.
        """
        namespace = task.pod.namespace
        found = []
        for item in kind.entries:
            template = self._template(NamespacedName(namespace, item.template))
            if template is None:
                return None
            found.append((item.entry, template))
        made = {}
        for entry, template in found:
            name = f"{task.name}-{entry}"
            spec, uid = template["spec"]["spec"], f"claim/{task.uid}/{entry}"
            claim = _MadeClaim(uid, task.name, task.uid, spec)
            self._made[NamespacedName(namespace, name)] = claim
            made[entry] = name
        return made

    def is_made_for(self, pod: PodInfo, plan: ClaimPlan) -> bool:
        """Return whether a claim was created for the pod that now has it."""
        made = self._made.get(key_of(plan.claim)) if "name" in plan.claim["metadata"] else None
        return made is not None and made.pod_uid == pod.uid

    def forget_made(self, pod: PodInfo) -> list[str]:
        """Forget the claims that were made for a pod; return their uids."""
        keys = [NamespacedName(pod.key.namespace, item.made) for item in pod.claims if item.made]
        return [self._made.pop(key).uid for key in keys if key in self._made]

    def reserve(self, plan: ClaimPlan) -> NamespacedName | None:
        """Reserve a claim for a pod; return its key if it is shared."""
        key = self._shared(plan)
        if key is None:
            return None
        claim = self._given[key]
        users = [*consumers_of(claim), dict(plan.consumer)]
        self._given[key] = {**claim, "status": {**status_of(claim), "reservedFor": users}}
        return key

    def release(self, plan: ClaimPlan) -> NamespacedName | None:
        """Remove a reservation; return the claim's key if it is shared."""
        key = self._shared(plan)
        if key is None:
            return None
        claim, uid = self._given[key], plan.consumer["uid"]
        users = [user for user in consumers_of(claim) if user["uid"] != uid]
        self._given[key] = {**claim, "status": {**status_of(claim), "reservedFor": users}}
        return key

    def _shared(self, plan: ClaimPlan) -> NamespacedName | None:
        """Return the key of a claim without an owner."""
        metadata = plan.claim["metadata"]
        if "name" not in metadata or metadata.get("ownerReferences"):
            return None
        return key_of(plan.claim)
