"""Deployments: a ReplicaSet per template, rolled from the old ones to the new one.

Source: kube-controller-manager's deployment controller (rolling and recreate strategies, revisions,
progress).
"""

from copy import deepcopy
from typing import Any, Final

from dralab.api.status import ApiError
from dralab.controllers.deployment_status import (
    deployment_status,
    replicas_of,
    with_created_set,
)
from dralab.controllers.workloads import (
    OwnedObjects,
    each,
    enqueue_owner,
    percentage,
    template_hash,
    write_status,
)
from dralab.objects.metadata import (
    NamespacedName,
    annotations_of,
    controller_of,
    is_deleting,
    key_of,
    labels_of,
    metadata_of,
    status_of,
    uid_of,
)
from dralab.objects.pods import is_finished
from dralab.runtime.manager import Manager
from dralab.runtime.resources import DEPLOYMENTS, PODS, REPLICA_SETS
from dralab.values.json_types import JsonDict

HASH: Final = "pod-template-hash"
REVISION: Final = "deployment.kubernetes.io/revision"
HISTORY: Final = "deployment.kubernetes.io/revision-history"
MOST_HISTORY: Final = 2000  # characters
DESIRED: Final = "deployment.kubernetes.io/desired-replicas"
MOST: Final = "deployment.kubernetes.io/max-replicas"
SKIPPED: Final = frozenset(
    {"kubectl.kubernetes.io/last-applied-configuration", REVISION, DESIRED, MOST}
)


class Deployments:
    """Moves replicas from old sets to the new one, within maxSurge and maxUnavailable."""

    def __init__(self, manager: Manager) -> None:
        self.manager = manager
        self.client = manager.client
        self.deployments = manager.cache(DEPLOYMENTS)
        self.owned = OwnedObjects(manager, REPLICA_SETS, kind="Deployment", api_version="apps/v1")
        self.sets = self.owned.cache
        self.pods = OwnedObjects(manager, PODS, kind="ReplicaSet", api_version="apps/v1").cache
        self.pods.subscribe(self._pod)
        self.recorder = manager.recorder("deployment-controller")
        self.queue = manager.queue("deployments", self.reconcile)
        self.deployments.subscribe(each(self.queue.add))
        self.sets.subscribe(enqueue_owner(self.owned, self.queue.add, self.deployments))

    def _pod(self, old: JsonDict | None, new: JsonDict | None) -> None:
        # The end of the last old pod lets a Recreate go on.
        if old is None or new is not None:
            return
        owner = controller_of(old)
        replica_set = (
            self.sets.get(NamespacedName(key_of(old).namespace, owner["name"])) if owner else None
        )
        key = self.owned.owner_key(replica_set) if replica_set is not None else None
        if key is not None:
            self.queue.add(key)

    def reconcile(self, key: NamespacedName) -> int | None:
        """Take one step of a deployment's rollout."""
        deployment = self.deployments.get(key)
        if deployment is None:
            return None
        sets = self.owned.owned_by(deployment)
        if is_deleting(deployment):
            self._tell(deployment, None, sets)
            return None
        new = self._current(deployment, sets)
        created = new is None and not deployment["spec"].get("paused")
        if created:
            new = self._create(deployment, sets)
        old = [item for item in sets if new is None or uid_of(item) != uid_of(new)]
        resized = any(self._is_resized(deployment, item) for item in sets)
        if new is not None:
            new = self._mark(new, deployment, old)
            deployment = self._revised(deployment, new, created=created)
        if resized or deployment["spec"].get("paused"):
            self._resize(deployment, new, old)
        elif new is not None and self._strategy(deployment) == "Recreate":
            self._recreate(deployment, new, old)
        elif new is not None:
            self._roll(deployment, new, old)
        sets = self.owned.owned_by(deployment, adopt=False)
        new = next((item for item in sets if new is not None and uid_of(item) == uid_of(new)), new)
        self._clean(deployment, new, sets)
        return self._tell(deployment, new, sets)

    # --- the sets

    def _current(self, deployment: JsonDict, sets: list[JsonDict]) -> JsonDict | None:
        wanted = _plain(deployment["spec"]["template"])
        matching = [item for item in sets if _plain(item["spec"]["template"]) == wanted]
        return min(
            matching,
            key=lambda item: (item["metadata"].get("creationTimestamp", ""), key_of(item)),
            default=None,
        )

    def _create(self, deployment: JsonDict, sets: list[JsonDict]) -> JsonDict:
        spec, key = deployment["spec"], key_of(deployment)
        collisions = status_of(deployment).get("collisionCount") or 0
        name = template_hash(spec["template"], collisions)
        template = deepcopy(spec["template"])
        template.setdefault("metadata", {}).setdefault("labels", {})[HASH] = name
        selector = deepcopy(spec["selector"])
        selector.setdefault("matchLabels", {})[HASH] = name
        total = sum(replicas_of(item) for item in sets)
        wanted = spec.get("replicas", 1)
        room = wanted + self._surge(deployment) - total
        first = wanted if not sets else max(0, min(wanted, room))
        if self._strategy(deployment) == "Recreate" and total:
            first = 0
        body = {
            "apiVersion": "apps/v1",
            "kind": "ReplicaSet",
            "metadata": {
                "name": f"{key.name}-{name}",
                "namespace": key.namespace,
                "labels": dict(template["metadata"]["labels"]),
                "annotations": {
                    **_inherited(deployment),
                    **self._sizes(deployment),
                    REVISION: str(_revision(sets) + 1),
                },
                "ownerReferences": [self.owned.reference(deployment)],
            },
            "spec": {
                "replicas": first,
                "minReadySeconds": spec.get("minReadySeconds", 0),
                "selector": selector,
                "template": template,
            },
        }
        try:
            created = self.client.create(REPLICA_SETS, body, key.namespace)
        except ApiError as error:
            if error.reason == "AlreadyExists":
                # Another template has this hash: count it, and hash again (collisionCount).
                told = {"collisionCount": collisions + 1}
                write_status(self.manager, self.deployments, deployment, told)
            raise
        self.sets.learn(created)
        if first:
            self._event(deployment, created, 0, first)
        return created

    def _mark(self, new: JsonDict, deployment: JsonDict, old: list[JsonDict]) -> JsonDict:
        """Keep the annotations that `kubectl rollout` reads: the revision and its cause."""
        latest = _revision(old)
        revision = int(annotations_of(new).get(REVISION) or 0)
        if revision <= latest:
            revision = latest + 1
        annotations = {**_inherited(deployment), REVISION: str(revision)}
        held = annotations_of(new)
        before = held.get(REVISION)
        if before and int(before) < revision:  # its template came back: a rollback
            earlier = [each for each in held.get(HISTORY, "").split(",") if each]
            annotations[HISTORY] = ",".join([*earlier, before])[-MOST_HISTORY:]
        if any(held.get(name) != value for name, value in annotations.items()):
            new = self._patch_set(new, {"metadata": {"annotations": annotations}})
        return new

    def _revised(self, deployment: JsonDict, new: JsonDict, *, created: bool) -> JsonDict:
        """Return the deployment with the revision of its newest set; report a set just created."""
        revision = annotations_of(new)[REVISION]
        if annotations_of(deployment).get(REVISION) == revision:
            return deployment
        notes = {**annotations_of(deployment), REVISION: revision}
        metadata = {**deployment["metadata"], "annotations": notes}
        body = {**deployment, "metadata": metadata}
        if created:
            name, now = new["metadata"]["name"], self.manager.now()
            body["status"] = with_created_set(deployment, name, now)
        # With the status: a change of annotations through the main path is a new generation.
        updated = self.client.update(DEPLOYMENTS, body, subresource="status")
        self.deployments.learn(updated)
        return updated

    def _patch_set(self, replica_set: JsonDict, patch: JsonDict) -> JsonDict:
        key = key_of(replica_set)
        patched = self.client.patch(REPLICA_SETS, key.name, patch, key.namespace)
        self.sets.learn(patched)
        return patched

    def _scale(self, deployment: JsonDict, replica_set: JsonDict, replicas: int) -> None:
        before = replicas_of(replica_set)
        if before != replicas:
            sizes = {"annotations": self._sizes(deployment)}
            self._patch_set(replica_set, {"metadata": sizes, "spec": {"replicas": replicas}})
            self._event(deployment, replica_set, before, replicas)

    def _sizes(self, deployment: JsonDict) -> dict[str, str]:
        """Return the annotations that record the deployment's desired size."""
        wanted = deployment["spec"].get("replicas", 1)
        return {DESIRED: str(wanted), MOST: str(wanted + self._surge(deployment))}

    def _is_resized(self, deployment: JsonDict, replica_set: JsonDict) -> bool:
        held = annotations_of(replica_set).get(DESIRED)
        wanted = str(deployment["spec"].get("replicas", 1))
        return replicas_of(replica_set) > 0 and held not in {None, wanted}

    def _resize(self, deployment: JsonDict, new: JsonDict | None, old: list[JsonDict]) -> None:
        """Bring the sets to the deployment's size without rolling any further.

        With several sets at work each grows or shrinks in proportion, so that a canary stays one.
        """
        wanted = deployment["spec"].get("replicas", 1)
        sets = [*([] if new is None else [new]), *old]
        active = [item for item in sets if replicas_of(item)]
        if len(active) <= 1:
            only = active or ([new] if new is not None else sorted(old, key=_age)[-1:])
            for item in only:
                self._scale(deployment, item, wanted)
        elif self._strategy(deployment) != "Recreate":
            shares = _shares(active, wanted, wanted + self._surge(deployment) if wanted else 0)
            for item, share in zip(active, shares, strict=True):
                self._scale(deployment, item, share)
        sizes = self._sizes(deployment)
        for item in active:
            held = annotations_of(item)
            if any(held.get(name) != value for name, value in sizes.items()):
                self._patch_set(item, {"metadata": {"annotations": sizes}})

    def _event(self, deployment: JsonDict, replica_set: JsonDict, before: int, after: int) -> None:
        way = "up" if after > before else "down"
        name = replica_set["metadata"]["name"]
        self.recorder.event(
            deployment,
            "Deployment",
            "ScalingReplicaSet",
            f"Scaled {way} replica set {name} from {before} to {after}",
            api_version="apps/v1",
        )

    # --- strategies

    def _strategy(self, deployment: JsonDict) -> str:
        kind: str = (deployment["spec"].get("strategy") or {}).get("type") or "RollingUpdate"
        return kind

    def _limits(self, deployment: JsonDict) -> tuple[int, int]:
        """Return maxSurge and maxUnavailable as numbers; never both 0."""
        rolling = (deployment["spec"].get("strategy") or {}).get("rollingUpdate") or {}
        wanted = deployment["spec"].get("replicas", 1)
        surge = percentage(rolling.get("maxSurge", "25%"), wanted, up=True)
        unavailable = percentage(rolling.get("maxUnavailable", "25%"), wanted, up=False)
        return surge, 1 if surge == 0 and unavailable == 0 else min(unavailable, wanted)

    def _surge(self, deployment: JsonDict) -> int:
        return 0 if self._strategy(deployment) == "Recreate" else self._limits(deployment)[0]

    def _recreate(self, deployment: JsonDict, new: JsonDict, old: list[JsonDict]) -> None:
        if any(replicas_of(item) for item in old):
            for item in old:
                self._scale(deployment, item, 0)
        elif not any(
            not is_finished(pod)
            for item in old
            for pod in self.pods.find("controller", uid_of(item))
        ):
            self._scale(deployment, new, deployment["spec"].get("replicas", 1))

    def _roll(self, deployment: JsonDict, new: JsonDict, old: list[JsonDict]) -> None:
        wanted = deployment["spec"].get("replicas", 1)
        surge, unavailable = self._limits(deployment)
        total = sum(replicas_of(item) for item in [new, *old])
        mine = replicas_of(new)
        if mine > wanted:
            self._scale(deployment, new, wanted)
            return
        if mine < wanted and total < wanted + surge:
            self._scale(deployment, new, min(wanted, mine + wanted + surge - total))
            return
        running = [item for item in old if replicas_of(item)]
        if not running:
            return
        ready_new = status_of(new).get("availableReplicas") or 0
        spare = total - (wanted - unavailable) - (mine - ready_new)
        for item in sorted(running, key=_age):
            # Pods that never became available go first: they are not needed any more.
            broken = replicas_of(item) - (status_of(item).get("availableReplicas") or 0)
            down = min(broken, spare, replicas_of(item))
            if down > 0:
                self._scale(deployment, item, replicas_of(item) - down)
                return
        available = sum(status_of(item).get("availableReplicas") or 0 for item in [new, *old])
        spare = available - (wanted - unavailable)
        for item in sorted(running, key=_age):
            down = min(spare, replicas_of(item))
            if down > 0:
                self._scale(deployment, item, replicas_of(item) - down)
                spare -= down

    def _clean(self, deployment: JsonDict, new: JsonDict | None, sets: list[JsonDict]) -> None:
        """Delete old sets beyond revisionHistoryLimit."""
        limit = deployment["spec"].get("revisionHistoryLimit")
        if limit is None:
            return
        done = [
            item
            for item in sets
            if (new is None or uid_of(item) != uid_of(new))
            and not replicas_of(item)
            and not status_of(item).get("replicas")
            and not is_deleting(item)
        ]
        for item in sorted(done, key=lambda each: _revision([each]))[: max(0, len(done) - limit)]:
            key = key_of(item)
            self.client.delete(
                REPLICA_SETS, key.name, key.namespace, options={"propagationPolicy": "Background"}
            )

    def _tell(self, deployment: JsonDict, new: JsonDict | None, sets: list[JsonDict]) -> int | None:
        needed = deployment["spec"].get("replicas", 1) - self._limits(deployment)[1]
        now = self.manager.engine.clock.now()
        status, again = deployment_status(deployment, new, sets, needed, now)
        write_status(self.manager, self.deployments, deployment, status)
        return again


def _inherited(deployment: JsonDict) -> dict[str, str]:
    """Return the annotations that a deployment hands down to its newest set."""
    held = annotations_of(deployment)
    return {name: value for name, value in held.items() if name not in SKIPPED}


def _shares(sets: list[JsonDict], wanted: int, most: int) -> list[int]:
    """Return the new sizes of sets: `most` pods in the proportions of their annotations.

    The largest takes what rounding leaves (GetReplicaSetProportion).
    """
    sizes = [replicas_of(item) for item in sets]
    missing = most - sum(sizes)
    # Of equal ones the newer grows first and the older shrinks first.
    newest = sorted(range(len(sets)), key=lambda i: _age(sets[i]), reverse=missing > 0)
    order = sorted(newest, key=lambda i: -sizes[i])
    found, added = list(sizes), 0
    for i in order:
        if not missing:
            break
        meant = int((sets[i]["metadata"].get("annotations") or {}).get(MOST) or sum(sizes))
        # Half away from zero, as Go rounds.
        share = (2 * sizes[i] * most + meant) // (2 * meant) if wanted and meant else 0
        left = missing - added
        change = min(share - sizes[i], left) if missing > 0 else max(share - sizes[i], left)
        found[i] += change
        added += change
    if missing:
        found[order[0]] = max(0, found[order[0]] + missing - added)
    return found


def _plain(template: dict[str, Any]) -> dict[str, Any]:
    """Return a template without the label that tells sets apart."""
    metadata = metadata_of(template)
    own = {name: value for name, value in labels_of(template).items() if name != HASH}
    rest = {
        name: value
        for name, value in metadata.items()
        if name not in {"labels", "creationTimestamp"}
    }
    return {"metadata": {**rest, "labels": own}, "spec": template.get("spec")}


def _revision(sets: list[JsonDict]) -> int:
    return max(
        (int(annotations_of(item).get(REVISION) or 0) for item in sets),
        default=0,
    )


def _age(replica_set: JsonDict) -> tuple[str, str]:
    metadata = replica_set["metadata"]
    return metadata.get("creationTimestamp", ""), metadata["name"]
