"""`dralab schedule`: schedule pods from files or on a server, once."""

import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import click

from dralab.api.yaml_documents import YamlError, only_document
from dralab.cli import generations
from dralab.cli._connection import ClusterConnection, optional_cluster
from dralab.cli._older import FIRST, why_not
from dralab.cli._options import FILE, arg, opt, options
from dralab.cli._output import echo_objects, formats
from dralab.cli._own_generation import generation_option, named, own
from dralab.cli._terminal import echo
from dralab.cli.generations import nearest_line
from dralab.files.reading import read
from dralab.objects.claims import has_device_claims, uses_claims
from dralab.objects.metadata import namespace_of, spec_of
from dralab.prototypes.findings import Finding
from dralab.prototypes.k8srm.early import checking, model, scheduling, tree
from dralab.prototypes.k8srm.expressions import K8srmExpressions
from dralab.prototypes.k8srm.reading import attributes
from dralab.prototypes.placement import GenerationCluster, PlacedPod, PlacementResult
from dralab.values.json_types import JsonDict


@click.command(
    epilog="""Examples:

\b
  dralab schedule -f pools.yaml -f classes.yaml -f pod.yaml
  dralab schedule --kubeconfig kubeconfig my-pod
  dralab schedule --nodes nodes.yaml --claim pod.yaml -v       (the first stages of k8srm)
"""
)
@generations.files_option
@generation_option
@optional_cluster
@options
def schedule(
    *,
    files: tuple[str, ...],
    connection: ClusterConnection,
    api: str | None = opt(
        "The API generation of the input; default: detected.", generations.API_NAMES
    ),
    namespace: str = opt("The namespace of the pod.", flags="-n --namespace", default="default"),
    nodes: Path | None = opt("k8srm stages K0 and K1: a file of nodes.", FILE),
    claim: Path | None = opt("k8srm stages K0 and K1: a file with the claim.", FILE),
    verbose: bool = opt(
        "k8srm stages K0 and K1: print every node and all amounts.", flags="-v --verbose"
    ),
    output: str = formats("table", "yaml", "json"),
    pods: tuple[str, ...] = arg(metavar="[POD]..."),
) -> None:
    """Schedule pods and write their claims' status.

    Schedules the named pods, or all that have no node. Pods from files come in the order of the
    files, those of a server oldest first.

    With files, -o yaml or json prints the resulting objects. With --kubeconfig, the status is
    written to the server and the pod is bound. Exit code 0: all pods have a node; 1: some have
    none, and the reason for each node is printed; 2: bad input.
    """
    if nodes or claim:
        if not (nodes and claim):
            raise click.UsageError("--nodes and --claim go together")
        sys.exit(schedule_early(nodes, claim, verbose=verbose))
    if not files and not connection:
        raise click.UsageError("nothing to schedule: give files with -f, or --kubeconfig")
    if files:
        api = generations.chosen((item for _, item, _ in generations.raw(files)), api)
    if connection and own() is not None:
        raise click.UsageError("--generation reads files: give them with -f, without --kubeconfig")
    server = None
    if connection:
        from dralab.cli.schedule_server import Server, chosen_for_scheduling

        client = connection.client()
        api = api or chosen_for_scheduling(client)
        server = Server(client, named(api))
    api = api or "k8srm"
    generation = named(api)
    objects = generations.objects(files, api)
    if server is not None:
        objects = [*server.objects(), *objects]
    cluster = generation.cluster(objects, server.refused if server else ())
    wanted = _wanted(cluster, pods, namespace)
    others = 0
    if api == "k8srm" and not pods:
        # Beside today's pods: theirs is another scheduler.
        waiting = len(wanted)
        wanted = [pod for pod in wanted if has_device_claims(pod) or not uses_claims(pod)]
        others = waiting - len(wanted)
    results: list[tuple[PlacementResult, str]] = []
    for pod in wanted:
        placement = cluster.place(pod)
        results.append((placement, why_not(cluster, placement)))
        if isinstance(placement, PlacedPod):
            cluster.apply(placement)
            if server is not None:
                server.write(placement, bind=not spec_of(pod).get("nodeName"))
    if not wanted:
        left = f"; {others} with other claims wait for another scheduler" if others else ""
        echo(f"there are no pods to schedule{left}", err=True)
    _report(results, output)
    if results and api != "v1":
        echo(FIRST, err=True)
    sys.exit(0 if all(isinstance(each, PlacedPod) for each, _ in results) else 1)


def _wanted(cluster: GenerationCluster, names: Sequence[str], namespace: str) -> list[JsonDict]:
    found = cluster.pods()
    if not names:
        return [pod for pod in found if not spec_of(pod).get("nodeName")]
    by_name = {pod["metadata"]["name"]: pod for pod in found if namespace_of(pod) == namespace}
    for name in names:
        if name not in by_name:
            known = ", ".join(sorted(by_name)) or "none"
            raise click.UsageError(f'no pod "{namespace}/{name}"; known pods: {known}')
    return [by_name[name] for name in names]


def _report(results: Sequence[tuple[PlacementResult, str]], output: str) -> None:
    if output != "table":
        objects: list[Any] = []
        for each, _ in results:
            objects += [*each.claims, each.pod] if isinstance(each, PlacedPod) else [each.pod]
        echo_objects(objects, output)
    for each, why in results:
        for line in summary(each, why):
            echo(line, err=output != "table")


def summary(placement: PlacementResult, why: str) -> list[str]:
    """Return a message with a pod's devices, or the reason of every node."""
    metadata = placement.pod["metadata"]
    title = f"pod {metadata.get('namespace') or 'default'}/{metadata['name']}"
    if isinstance(placement, PlacedPod):
        lines = [f"{title}: node {placement.node}"]
        lines += [
            f"  claim {device.claim}: {device} ({device.driver})" for device in placement.devices
        ]
        lines += [
            f"  container {name}: {', '.join(devices) or 'no devices'}"
            for name, devices in placement.containers.items()
        ]
        return lines
    lines = [f"{title}: unschedulable"] + [f"  {line}" for line in why.splitlines()]
    lines += [
        f"  expression {failure.expression!r}: {failure.message} (such devices are skipped)"
        for failure in placement.failures
    ]
    return lines


def schedule_early(nodes: Path, claim: Path, *, verbose: bool) -> int:
    """Print whether a pod fits, and the tree of the chosen node (verbose: of every node).

    Returns 0 if it fits, 1 if it does not.
    """
    read_nodes = model.read_nodes(_loaded(nodes, checking.nodes_problems))
    pod = model.read_pod(_loaded(claim, checking.pod_problems))
    expressions = K8srmExpressions()

    def meets(text: str, values: Any) -> bool:
        items = [{"name": name, **value} for name, value in values.items()]
        return expressions.get(text).value(attributes(items))

    results = scheduling.schedule(read_nodes, pod, meets)
    winner = results[-1] if results and results[-1].score else None
    if winner is None:
        echo("failed to satisfy the claim")
    else:
        echo("succeeded in satisfying the claim")
    echo("-" * 40)
    for result in results if verbose or winner is None else [winner]:
        for line in tree.lines(result):
            echo(line)
    if winner is not None and verbose:
        for line in tree.amounts(winner):
            echo(line)
    return 0 if winner is not None else 1


def _loaded(path: Path, problems: Callable[[Any], Sequence[Finding]]) -> Any:
    try:
        document = only_document(read(path), positions=True)
    except OSError as error:
        raise click.UsageError(f"{path}: {error.strerror}") from None
    except YamlError as error:
        place = f"{path}:{error.line}" if error.line else path
        raise click.UsageError(f"{place}: {error.message}") from None
    found = problems(document.value)
    for finding in found:
        line = nearest_line(document.positions, finding.field) or document.line
        echo(f"Error: {path}:{line}: {finding}", err=True)
    if found:
        sys.exit(2)
    return document.value
