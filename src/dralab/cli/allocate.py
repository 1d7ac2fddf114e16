"""`dralab allocate`: allocate devices to the claims in files."""

import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import click

from dralab.allocation.policy.policies import POLICIES, Policy
from dralab.cli import objects
from dralab.cli._inventory import InventorySource
from dralab.cli._k8srm_stages import allocate_stages, are_stages
from dralab.cli._older import allocate_older, echo_placed, nothing_asked, older_generation
from dralab.cli._options import arg, opt, options
from dralab.cli._output import chosen_by, echo_objects, formats
from dralab.cli._own_generation import api_option
from dralab.cli._terminal import echo
from dralab.cli.generations import API_NAMES
from dralab.explanation.answers import placed_on
from dralab.explanation.why import why
from dralab.kernel.extras import require
from dralab.objects.claims import has_device_claims
from dralab.objects.metadata import spec_of
from dralab.scheduling.backlog import Pending
from dralab.scheduling.snapshot import Placed, Snapshot

OPTIMAL: Final = "optimal"
KUBERNETES: Final = "kubernetes"
UNDECIDED: Final = "no result within the search budget"


@dataclass(frozen=True, slots=True)
class UnplacedItem:
    """A pod or claim that could not be placed, and why."""

    pending: Pending
    reason: str


@click.command(
    epilog="""Examples:

\b
  dralab allocate -f cluster.yaml -f pods.yaml
  dralab allocate -f examples/20-allocate --node rack-1 -o yaml
  dralab allocate -f cluster.yaml --policy pack
  dralab allocate -f cluster.yaml --policy optimal
  cat *.yaml | dralab allocate -f -
  dralab allocate --kubeconfig ~/.kube/config -f new-pods.yaml
  dralab allocate --kubeconfig config --apply ml/train         (of k8srm or dra-evolution)
"""
)
@options
def allocate(
    *,
    source: InventorySource,
    names: tuple[str, ...] = arg(metavar="[POD]..."),
    api: str | None = api_option(API_NAMES),
    node: str = opt("Allocate only on this node.", metavar="NODE"),
    namespace: str = opt("Only pods and claims of this namespace.", flags="-n --namespace"),
    policy: str = opt(
        "How to choose among the possible allocations: as Kubernetes does, or by another goal; "
        f"{OPTIMAL} serves as many pods and claims as possible.",
        [*POLICIES, OPTIMAL],
        default=KUBERNETES,
    ),
    apply: bool = opt(
        "Write the claims' status to the cluster and bind the pods, as a scheduler does."
    ),
    verbose: bool = opt(
        "For older generations, also show what each container gets; for k8srm's stages K0 and K1, "
        "every node and all amounts.",
        flags="-v --verbose",
    ),
    pods: bool = opt("With -o json or yaml, print the placed pods with their node, too."),
    output: str = formats("table", "json", "yaml"),
) -> None:
    """Place the named pods, or all pods and claims that wait: which node and devices each gets.

    Nothing is written without --apply. Files beside a cluster count as applied to it. Pods come
    first, in the order of the input, those of a cluster by priority and age as in kube-scheduler's
    queue, with their claims, claim templates and extended resources. Deployments, Jobs and other
    workloads count as the pods that they create. Claims that no pod uses come last. Allocated
    claims keep their devices. With -o json or yaml, the claims are printed with their
    status.allocation.

    Pods of k8srm, dra-evolution and your own generation are placed by the rules of their API.
    --apply writes only these, unless --api says v1 or the cluster has no others: today's pods
    already have a running scheduler.

    Exit code 0: all are placed; 1: some cannot be placed, and the reasons are printed; 2: bad
    input, with every mistake listed.
    """
    if policy == OPTIMAL:
        require("optimal", f"--policy {OPTIMAL}")
        if node or names or namespace:
            raise click.UsageError(
                f"--policy {OPTIMAL} places everything on all nodes: omit POD, --namespace, --node"
            )
    if are_stages(source.files):
        sys.exit(allocate_stages(source.files, verbose=verbose))
    if apply:
        source.check_apply(output)
        older = api or source.generation_to_place()
    else:
        older = older_generation(source, api)
    if older:
        choice = {"namespace": namespace, "node": node, "policy": policy, "output": output}
        sys.exit(
            allocate_older(
                source, older, names, **choice, verbose=verbose, pods_too=pods, apply=apply
            )
        )
    cluster = objects.snapshot(source)
    objects.check_node(cluster, node)
    if policy == OPTIMAL:
        results = _best(cluster)
    else:
        asked = _asked(cluster, names, namespace)
        results = list(_placed(cluster, asked, node, POLICIES[policy]))
    if not results:
        nothing_asked(source)
    if output == "table":
        _table(results)
        if policy != KUBERNETES:
            echo(f"\npolicy: {policy}")
    else:
        _structured(results, output, policy, pods_too=pods)
    sys.exit(1 if any(isinstance(each, UnplacedItem) for each in results) else 0)


def _asked(cluster: Snapshot, names: Sequence[str], namespace: str) -> list[Pending]:
    """Return what is to be placed: what has one of the names, or all that waits. UsageError."""
    pending: Sequence[Pending] = cluster.pending(every=True)
    if names:
        pending = [each for name in names for each in objects.named(pending, name)]
    else:  # those of k8srm are placed with --api k8srm
        pending = [each for each in pending if not has_device_claims(each.pod)]
    return [each for each in pending if namespace in {"", each.namespace}]


def _placed(
    cluster: Snapshot, asked: Sequence[Pending], node: str, policy: Policy | None
) -> Iterator[Placed | UnplacedItem]:
    """Place what is asked for, in its order."""
    for each in asked:
        yield place(cluster, cluster.refreshed(each), node, policy)


def _best(cluster: Snapshot) -> list[Placed | UnplacedItem]:
    """Place what may go to any node as one batch, then the rest one by one."""
    pending, batch = cluster.pending(), cluster.alone()
    places, optimum = cluster.place_batch(batch)
    served = {each.title: place for each, place in zip(batch, places, strict=True)}
    apart = f" ({optimum.apart} nodes were left out)" if optimum.apart else ""
    echo(
        f"optimal: {optimum.served} of {len(batch)} served together; no allocation serves more "
        f"than {optimum.bound:g}{apart}",
        err=True,
    )
    return [served.get(each.title) or place(cluster, cluster.refreshed(each)) for each in pending]


def place(
    cluster: Snapshot, pending: Pending, node: str = "", policy: Policy | None = None
) -> Placed | UnplacedItem:
    """Place one pod or claim, or report why it cannot be placed."""
    found = placed_on(cluster, pending, node, policy)
    if found is not None:
        return found
    told = why(cluster, pending, node=node)
    return UnplacedItem(pending, told.brief() if told is not None else UNDECIDED)


def _table(results: Sequence[Placed | UnplacedItem]) -> None:
    refused = [f"{u.pending.title}: {u.reason}" for u in results if isinstance(u, UnplacedItem)]
    echo_placed((row for each in results for row in _rows(each)), refused)


def _rows(each: Placed | UnplacedItem) -> Iterator[tuple[str, ...]]:
    pending = each.pending
    pod = pending.name if pending.kind == "pod" else "-"
    for index, claim in enumerate(pending.claims):
        start = (pending.namespace, pod, claim["metadata"]["name"])
        if isinstance(each, UnplacedItem):
            yield (*start, "-", "-", "-", "-", "-")
            continue
        results = each.allocations[index]["devices"].get("results") or ()
        if not results:
            yield (*start, each.node, "-", "-", "-", "-")
        for item in results:
            told = (item[name] for name in ("request", "device", "pool", "driver"))
            yield (*start, each.node, *told)
    if not pending.claims:
        where = each.node if isinstance(each, Placed) else "-"
        shared = ", ".join(claim["metadata"]["name"] for claim in pending.allocated)
        note = "(allocated)" if shared else "-"
        yield (pending.namespace, pod, shared or "-", where, note, "-", "-", "-")


def _structured(
    results: Sequence[Placed | UnplacedItem], output: str, policy: str, *, pods_too: bool
) -> None:
    items: list[Any] = []
    for each in results:
        if isinstance(each, Placed):
            placed = each.objects()
            items += placed if policy == KUBERNETES else chosen_by(policy, placed)
            if pods_too and (pod := each.pending.pod):
                items.append({**pod, "spec": {**spec_of(pod), "nodeName": each.node}})
        else:
            items += each.pending.claims
            echo(f"{each.pending.title}: {each.reason}", err=True)
    echo_objects(items, output)
