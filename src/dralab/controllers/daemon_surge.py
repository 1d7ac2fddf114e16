"""Which pods of a DaemonSet are deleted and created during a rollout with `maxSurge`.

Source: kube-controller-manager 1.36, `pkg/controller/daemon` (podsShouldBeOnNode, rollingUpdate): a
node has a new pod beside its old one until the new one is available.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import field

from dralab.objects.metadata import is_deleting, key_of
from dralab.objects.pods import is_ready
from dralab.values.json_types import JsonDict
from dralab.values.records import dataclass


@dataclass(slots=True)
class SurgePlan:
    """The pods to delete, and the nodes that get a pod of the new revision."""

    deleted: list[JsonDict] = field(default_factory=list)
    nodes: list[str] = field(default_factory=list)


def excess(
    pods: Sequence[JsonDict],
    is_new: Callable[[JsonDict], bool],
    is_available: Callable[[JsonDict], bool],
) -> list[JsonDict]:
    """Return the surplus pods of a node: an old pod and its replacement may stay."""
    ordered = sorted(pods, key=_age)
    new = [pod for pod in ordered if is_new(pod)]
    old = [pod for pod in ordered if not is_new(pod)]
    found = new[1:] + old[1:]
    if new and old and (not is_ready(old[0]) or is_available(new[0])):
        found.append(old[0])
    return found


def surge_plan(
    pods: Mapping[str, Sequence[JsonDict]],
    wanted: Mapping[str, bool],
    most: int,
    is_new: Callable[[JsonDict], bool],
    is_available: Callable[[JsonDict], bool],
) -> SurgePlan:
    """Return the next step of a roll-out with at most `most` additional pods.

    `pods` are a set's pods by node, `wanted` says of the nodes that exist whether they should run
    one. An old pod that is not available is replaced at once; one that is goes when its successor
    is available.
    """
    plan = SurgePlan()
    candidates: list[str] = []
    unwanted: list[JsonDict] = []
    surging = available = 0
    for node, all_of_node in sorted(pods.items()):
        alive = [pod for pod in all_of_node if not is_deleting(pod)]
        new = [pod for pod in alive if is_new(pod)]
        old = [pod for pod in alive if not is_new(pod)]
        if len(new) > 1 or len(old) > 1:
            surging += 1  # `excess` is pruned first
            continue
        available += any(is_available(pod) for pod in old or new)
        if not old or node not in wanted:
            continue
        if new:
            if is_available(new[0]):
                plan.deleted.append(old[0])
            else:
                surging += 1
        elif not wanted[node]:
            (unwanted if is_available(old[0]) else plan.deleted).append(old[0])
        elif is_available(old[0]):
            candidates.append(node)
        else:
            plan.nodes.append(node)
    plan.deleted += unwanted[: max(0, available - sum(wanted.values()))]
    plan.nodes += candidates[: max(0, most - surging)]
    return plan


def _age(pod: JsonDict) -> tuple[bool, str, tuple[str, str]]:
    """Order pods that have a node first, then by age."""
    key = key_of(pod)
    created = pod["metadata"].get("creationTimestamp", "")
    return not pod["spec"].get("nodeName"), created, (key.namespace, key.name)
