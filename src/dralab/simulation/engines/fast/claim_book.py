"""The claims of pods that wait or run, as the controller of claims and the scheduler keep them."""

from collections.abc import Callable

from dralab.objects.claims import consumers_of
from dralab.objects.metadata import NamespacedName, key_of, owner_reference, status_of
from dralab.scheduling.allocatable import ClaimPlan
from dralab.scheduling.pods import PodInfo
from dralab.simulation.engines.cluster.tasks import ClusterTask
from dralab.simulation.engines.fast.admitted import AdmittedKind
from dralab.values.json_types import JsonDict


class ClaimBook:
    """Claims by key; `template` finds the template of those that are made for pods."""

    def __init__(self, template: Callable[[NamespacedName], JsonDict | None]) -> None:
        self.claims: dict[NamespacedName, JsonDict] = {}
        self._template = template

    def put(self, claim: JsonDict) -> None:
        """Take a claim that is nobody's own."""
        self.claims[key_of(claim)] = claim

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
            pod = {"metadata": {"name": task.name, "uid": task.uid}}
            metadata = {
                "name": name,
                "namespace": namespace,
                "uid": f"claim/{task.uid}/{entry}",
                "ownerReferences": [owner_reference(pod, api_version="v1", kind="Pod")],
            }
            spec = template["spec"]["spec"]
            self.claims[NamespacedName(namespace, name)] = {"metadata": metadata, "spec": spec}
            made[entry] = name
        return made

    def forget_made(self, pod: PodInfo) -> None:
        """Forget the claims that were made for a pod."""
        for item in pod.claims:
            if item.made:
                self.claims.pop(NamespacedName(pod.key.namespace, item.made), None)

    def reserve(self, plan: ClaimPlan) -> NamespacedName | None:
        """Reserve a claim for a pod; return its key if others may use it, too."""
        key = self._shared(plan)
        if key is None:
            return None
        claim = self.claims[key]
        users = [*consumers_of(claim), dict(plan.consumer)]
        self.claims[key] = {**claim, "status": {**status_of(claim), "reservedFor": users}}
        return key

    def release(self, plan: ClaimPlan) -> NamespacedName | None:
        """Take a reservation back; return the claim's key if others may use it, too."""
        key = self._shared(plan)
        if key is None:
            return None
        claim, uid = self.claims[key], plan.consumer["uid"]
        users = [user for user in consumers_of(claim) if user["uid"] != uid]
        self.claims[key] = {**claim, "status": {**status_of(claim), "reservedFor": users}}
        return key

    def _shared(self, plan: ClaimPlan) -> NamespacedName | None:
        """Return the key of a claim that is nobody's own."""
        metadata = plan.claim["metadata"]
        if "name" not in metadata or metadata.get("ownerReferences"):
            return None
        return key_of(plan.claim)
