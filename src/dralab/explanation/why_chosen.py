"""Why this one: for each chosen device, what came before it in the order and was passed over.

For devices that are held since long the question is asked again as the cluster is now, with them as
if they were free: what was in use when they were allocated, no object tells.
"""

from collections.abc import Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from typing import Any, Final

from dralab.allocation import v1
from dralab.allocation.facts import Excluded
from dralab.allocation.pools import SliceCatalog
from dralab.allocation.problem import DeviceId, Node, Problem
from dralab.allocation.search.alternatives import Alternative
from dralab.explanation.findings import NodeFindings, findings, reason_against
from dralab.explanation.names import counted, device_name, listed, shortened
from dralab.explanation.sentences import left_out
from dralab.objects.claims import allocation_of, results_of
from dralab.objects.metadata import key_of, spec_of
from dralab.scheduling.backlog import Pending
from dralab.scheduling.snapshot import Snapshot

MOST_PASSED: Final = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class ChosenDevice:
    """One device of an allocation, and why no earlier one was taken.

    `could` devices of its node could serve the request; `rank` alternatives of the request come
    before the one that is served; `passed` are the reasons against devices that come before it.
    `able` are those of them that could serve the request by themselves.
    """

    claim: str
    request: str
    device: DeviceId
    could: int
    rank: int
    passed: tuple[str, ...]
    able: tuple[str, ...]

    @property
    def among(self) -> str:
        """How many devices there were to choose from, in words."""
        if self.could == 1:
            return "the only device that could serve it"
        which = "one" if self.passed or self.able else "the first"
        return f"{which} of {counted(self.could, 'device')} that could serve it"

    @property
    def earlier(self) -> str:
        """What is said of the alternatives before it; empty where there are none."""
        if not self.rank:
            return ""
        before = "alternative" if self.rank == 1 else f"{self.rank} alternatives"
        return f"the {before} before it could not be had"


def why_these(
    problem: Problem, node: Node, allocations: Sequence[Mapping[str, Any]], catalog: SliceCatalog
) -> str:
    """Return, for people, why the devices of an allocation were chosen and no earlier ones.

    `problem` is the one that was solved, with what was in use before; `allocations` are its
    claims' `status.allocation`.
    """
    return "\n".join(
        line
        for each in chosen_devices(problem, node, allocations, catalog)
        for line in _lines(each, node.name)
    )


def _lines(each: ChosenDevice, node: str) -> Iterator[str]:
    name = device_name(each.device, node)
    yield f"  {each.request} of claim {shortened(each.claim)}: {name}, {each.among}"
    if each.earlier:
        yield f"    {each.earlier}"
    yield from (f"    passed over: {text}" for text in each.passed)
    if each.able:
        them = "it" if len(each.able) == 1 else "any of them"
        yield f"    passed over: {listed(each.able)}: with {them} the rest could not be met"


def chosen_devices(
    problem: Problem, node: Node, allocations: Sequence[Mapping[str, Any]], catalog: SliceCatalog
) -> Iterator[ChosenDevice]:
    """Yield the devices of an allocation, as `why_these` takes it, with the reasons.

    Those that the node does not offer, or not for such a request, are left out.
    """
    found = findings(problem, catalog.view(node, problem.features))
    chosen = {
        str(claim): [
            (item["request"], DeviceId(item["driver"], item["pool"], item["device"]))
            for item in results_of(allocation)
        ]
        for claim, allocation in zip(problem.claims, allocations, strict=True)
    }
    taken = {device for results in chosen.values() for _, device in results}
    masks = {
        (str(problem.claims[alternative.claim]), alternative.name): (alternative, mask)
        for alternative, mask in found.eligible
    }
    for claim, results in chosen.items():
        for request, device in results:
            known = masks.get((claim, request))
            if known is None or device not in found.node_devices.index:
                continue
            alternative, mask = known
            passed, able = _passed(problem, found, alternative, device, taken)
            yield ChosenDevice(
                claim=claim,
                request=request,
                device=device,
                could=mask.bit_count(),
                rank=alternative.rank,
                passed=tuple(passed),
                able=tuple(able),
            )


def _passed(
    problem: Problem,
    found: NodeFindings,
    alternative: Alternative,
    device: DeviceId,
    taken: AbstractSet[DeviceId],
) -> tuple[list[str], list[str]]:
    """Return what kept the devices before a chosen one out, equal reasons counted together.

    Then the names of those that nothing kept out by themselves.
    """
    reasons: dict[str, Excluded] = {}
    blocked: list[str] = []
    chosen = found.node_devices.index[device]
    for number in range(chosen):
        offer = found.node_devices.offers[number]
        if offer.id in taken:
            continue
        why = reason_against(found, problem, alternative, number)
        if why is None:
            blocked.append(offer.id.device)
            continue
        text = left_out(why)
        before = reasons.get(text)
        reasons[text] = why if before is None else replace(why, count=before.count + 1)
    return [left_out(why) for why in reasons.values()][:MOST_PASSED], blocked


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
