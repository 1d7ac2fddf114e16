"""The question that a pod's claims were, once they have devices: what they could choose from.

As the cluster is now, with their own devices as if they were free: what was in use when they were
allocated, no object tells. What was chosen, and why, is left to `funnel` and `why_chosen`.
"""

from collections.abc import Sequence
from dataclasses import replace

from dralab.allocation import v1
from dralab.allocation.problem import Node, Problem
from dralab.explanation.why_chosen import ChosenDevice, chosen_devices
from dralab.objects.claims import allocation_of
from dralab.objects.metadata import key_of, spec_of
from dralab.scheduling.backlog import Pending
from dralab.scheduling.snapshot import Snapshot


def asked_again(cluster: Snapshot, found: Pending) -> tuple[Problem, list[Node]]:
    """Return the problem of all claims of a pod, and the nodes that may run it.

    A pod that has a node may run there, whatever the node has left.
    """
    claims = (*found.allocated, *found.claims)
    problem = cluster.problem(replace(found, claims=claims))
    if not found.allocated:
        return problem, cluster.candidates(found)
    own = {key_of(claim) for claim in found.allocated}
    others = (each for each in cluster.claims.values() if key_of(each) not in own)
    spec = {name: value for name, value in spec_of(found.pod).items() if name != "nodeName"}
    unplaced = {**found.pod, "spec": spec} if found.pod else found.pod
    nodes = cluster.candidates(replace(found, claims=claims, allocated=(), pod=unplaced))
    home = _home(cluster, found)
    if home is not None and all(node.name != home.name for node in nodes):
        nodes.append(home)
    return replace(problem, in_use=v1.in_use(others)), nodes


def why_held(cluster: Snapshot, found: Pending) -> Sequence[ChosenDevice]:
    """Return why the devices of a pod's claims come first among those that could serve it now.

    Empty for claims without devices, and where their node is gone; a device whose class or slice
    is gone is left out.
    """
    home = _home(cluster, found)
    if not found.allocated or home is None:
        return ()
    problem, _ = asked_again(cluster, replace(found, claims=()))
    allocations = [allocation_of(claim) or {} for claim in found.allocated]
    return list(chosen_devices(problem, home, allocations, cluster.catalog))


def _home(cluster: Snapshot, found: Pending) -> Node | None:
    """Return the node of a pod; for a claim alone the first one that can use its devices."""
    if found.kind == "pod":
        name = str(spec_of(found.pod).get("nodeName") or "")
        return cluster.node(name) if name in cluster.nodes else None
    return next(iter(cluster.candidates(replace(found, claims=()))), None)
