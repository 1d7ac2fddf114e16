"""Random clusters for questions of placement: nodes, pods, devices and volumes, several causes at once.

`random_cluster(7)` is the same cluster every time. Its objects are valid for an API server; pods on
nodes hold what their claims say. `features` names what occurs, so that a test can ask whether the
generator makes what it promises.
"""

import copy

from clusters.devices import devices
from clusters.draft import Draft
from clusters.holders import running
from clusters.nodes import nodes, storage
from clusters.waiting import DEVICES, HELD, PARTS, group, waits
from dralab.objects.claims import claim_names
from dralab.values.json_types import JsonDict

__all__ = ["DEVICES", "HELD", "PARTS", "RandomCluster", "random_cluster"]


class RandomCluster(Draft):
    """The objects of a cluster, and what occurs in them."""

    def waiting(self) -> list[JsonDict]:
        return [item for item in self.of("Pod") if not item["spec"].get("nodeName")]

    def alone(self, name: str) -> list[JsonDict]:
        """The objects with one waiting pod: the others, and what is only theirs, are left out."""
        kept = next(item for item in self.waiting() if item["metadata"]["name"] == name)
        group = _group_of(kept)
        gone = [
            item
            for item in self.waiting()
            if item is not kept and not (group and _group_of(item) == group)
        ]
        unused = {claim for item in gone for claim in claim_names(item)} - {
            claim for item in self.of("Pod") if item not in gone for claim in claim_names(item)
        }
        # A quota that is in the way of a pod is only its own: the scheduler, too, makes claims.
        quotas = {f"{item['metadata']['name']}-quota" for item in gone}
        theirs = {"ResourceClaim": unused, "ResourceQuota": quotas}
        return copy.deepcopy(
            [
                item
                for item in self.objects
                if item not in gone and item["metadata"]["name"] not in theirs.get(item["kind"], ())
            ]
        )


def random_cluster(seed: int, *, without: frozenset[str] = frozenset()) -> RandomCluster:
    """Make a cluster; `without` names parts and kinds of devices that are left out."""
    made = RandomCluster(seed, without)
    nodes(made)
    devices(made)
    storage(made)
    for number in range(made.choice([0, 2, 4, 6, 9])):
        running(made, f"run-{number}")
    for number in range(made.choice([1, 2, 3, 4])):
        waits(made, f"wait-{number}")
    if made.some("group", 8):
        group(made)
    return made


def _group_of(made: JsonDict) -> str:
    return (made["spec"].get("schedulingGroup") or {}).get("podGroupName") or ""
