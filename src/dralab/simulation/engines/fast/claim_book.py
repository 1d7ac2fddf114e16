"""The claims of waiting and running pods, as the claim controller and the scheduler keep them."""

from collections.abc import Callable, Sequence

from dralab.objects.claims import consumers_of
from dralab.objects.metadata import NamespacedName, key_of, owners_of, status_of
from dralab.scheduling.claims import ClaimPlan, MadeClaim
from dralab.scheduling.pods import PodInfo
from dralab.simulation.engines.cluster.tasks import ClusterTask
from dralab.simulation.engines.fast.admitted import AdmittedKind
from dralab.values.json_types import JsonDict


class ClaimBook:
    """Claims by key; `template` finds the template of those created for pods."""

    def __init__(self, template: Callable[[NamespacedName], JsonDict | None]) -> None:
        self._given: dict[NamespacedName, JsonDict] = {}
        self._made: dict[NamespacedName, MadeClaim] = {}
        # The same by the uids of their pods.
        self._of_pods: dict[str, list[MadeClaim]] = {}
        self._template = template

    def get(self, key: NamespacedName) -> JsonDict | None:
        """Return a claim; None if it does not exist."""
        made = self._made.get(key)
        return self._given.get(key) if made is None else made.written

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
        made, claims = {}, self._of_pods.setdefault(task.uid, [])
        consumer = {"resource": "pods", "name": task.name, "uid": task.uid}
        for entry, template in found:
            key = NamespacedName(namespace, f"{task.name}-{entry}")
            claim = MadeClaim(key, f"claim/{task.uid}/{entry}", template["spec"]["spec"], consumer)
            self._made[key] = claim
            claims.append(claim)
            made[entry] = key.name
        return made

    def made_for(self, pod: PodInfo) -> Sequence[MadeClaim]:
        """Return the claims that were created for a pod."""
        return self._of_pods.get(pod.uid, ())

    def is_made_for(self, pod: PodInfo, plan: ClaimPlan) -> bool:
        """Return whether a claim was created for the pod that now has it."""
        made: object = plan.known
        if not isinstance(made, MadeClaim):
            made = None if plan.key is None else self._made.get(plan.key)
        return isinstance(made, MadeClaim) and made.consumer["uid"] == pod.uid

    def forget_made(self, pod: PodInfo) -> list[str]:
        """Forget the claims that were made for a pod; return their uids."""
        made = self._of_pods.pop(pod.uid, ())
        for each in made:
            self._made.pop(each.key, None)
        return [each.uid for each in made]

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
        known = plan.known
        return None if isinstance(known, MadeClaim) or owners_of(known) else plan.key
