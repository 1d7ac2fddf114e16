"""`dralab allocate` and `dralab explain` for other generations than today's: the same answers.

Their pods are placed by their own rules, the first node by name. What the pages say is left to
`explanation`.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final

import click

from dralab.cli import generations
from dralab.cli._inventory import InventorySource
from dralab.cli._output import echo_json, echo_objects, echo_table
from dralab.cli._own_generation import found, named, own
from dralab.cli._terminal import echo
from dralab.objects.claims import has_device_claims, uses_claims
from dralab.objects.metadata import full_key, spec_of
from dralab.prototypes.generations import GENERATIONS
from dralab.prototypes.placement import GenerationCluster, PlacedPod, PlacementResult
from dralab.prototypes.v1 import V1Cluster
from dralab.scheduling.reasons import unavailable
from dralab.values.json_types import JsonDict
from dralab.values.patches import copied

if TYPE_CHECKING:
    from dralab.explanation.causes import Diagnosis

# A quick look, before anything is parsed.
MARKS: Final = frozenset(mark for each in GENERATIONS.values() for mark in each.marks)
FIRST: Final = "policy: first (of the nodes that fit, the first by name)"
COLUMNS: Final = ("NAMESPACE", "POD", "CLAIM", "NODE", "REQUEST", "DEVICE", "POOL", "DRIVER")


def older_generation(
    source: InventorySource, api: str | None, *, readable: Sequence[str] = generations.API_NAMES
) -> str:
    """Return the generation of the input that is not today's; empty for today's.

    A cluster may serve several: without --api, today's objects are read from it, where it has them.
    `readable` are those that the command understands.
    """
    files = source.files
    if source.connection and own() is not None:
        raise click.UsageError(
            "your own generation is read from files: give them with -f, without --kubeconfig"
        )
    if api == "v1":
        return ""
    if files and (api or own() is not None or generations.holds(files, MARKS)):
        found = generations.chosen(
            (item for _, item, _ in generations.raw(files)), api, readable=readable
        )
        return "" if found == "v1" else found
    return api or source.older_generation(readable)


def chosen_generation(source: InventorySource, api: str | None) -> str:
    """Return the generation of the input: that of the files, else that of the server.

    UsageError if it is not clear.
    """
    if api or not source.files:
        return api or source.older_generation(generations.READABLE) or "v1"
    items = [item for _, item, _ in generations.raw(source.files)]
    if source.connection and not (found(items) or own()):
        return source.older_generation(generations.READABLE) or "v1"
    return generations.chosen(items, None, readable=generations.READABLE)


def nothing_asked(source: InventorySource) -> None:
    """Say that nothing of today's API asks for devices, and what older generations wait for."""
    echo("nothing in the input asks for devices", err=True)
    for name in source.older_with_pods():
        echo(f"pods of {name} wait: add --api {name}", err=True)


def as_today(source: InventorySource, api: str) -> list[JsonDict]:
    """Return the objects of files of an older generation as today's, for views. UsageError."""
    from dralab.prototypes.conversion.as_today import as_today as converted

    if own() is not None:
        raise click.UsageError(
            "your own generation has no page: convert it with `dralab convert --to v1`"
        )
    return converted(generations.objects(source.files, api), api)


def _waiting(
    pods: Iterable[JsonDict], api: str, names: Sequence[str] = (), namespace: str = ""
) -> list[JsonDict]:
    """Return the pods without a node: those of some names, or all but those of other schedulers.

    UsageError: a name is none of theirs.
    """
    known = {full_key(pod): pod for pod in pods}
    waiting = {
        key: pod
        for key, pod in known.items()
        if not spec_of(pod).get("nodeName") and namespace in {"", key.namespace}
    }
    chosen = []
    for name in names:
        found = [pod for key, pod in waiting.items() if name in {str(key), key.name}]
        if not found:
            raise click.UsageError(
                f"no pod {name!r} waits; known pods: {', '.join(map(str, known)) or 'none'}"
            )
        chosen += found
    # Beside today's pods of k8srm: theirs is another scheduler.
    return chosen or [
        pod
        for pod in waiting.values()
        if api != "k8srm" or has_device_claims(pod) or not uses_claims(pod)
    ]


def allocate_older(
    source: InventorySource,
    api: str,
    names: Sequence[str],
    *,
    namespace: str,
    node: str,
    policy: str,
    output: str,
    verbose: bool,
    pods_too: bool,
    apply: bool,
) -> int:
    """Place pods of a generation and print their devices; return the exit code.

    With `apply`, the claims' status is written to the cluster and the pods are bound.
    """
    if policy != "kubernetes":
        raise click.UsageError(f"{api} places pods in its own order: omit --policy {policy}")
    generation = named(api)
    if apply:
        with source.server_of(generation) as server:
            cluster = generation.cluster(server.objects(), server.refused)
            pods = _waiting(cluster.pods(), api, names, namespace)
            results = list(_placed(cluster, pods, node, write=server.write))
    else:
        cluster = source.cluster_of(generation)
        pods = _waiting(cluster.pods(), api, names, namespace)
        results = list(_placed(cluster, pods, node))
    refused = [each for each in results if not isinstance(each[1], PlacedPod)]
    if not results:
        echo(f"nothing in the input asks for devices of {api}", err=True)
    reasons = [f"{_title(placement.pod)}: {why.brief}" for _, placement, why in refused]
    if output == "table":
        echo_placed((row for _, placed, _ in results for row in _rows(placed)), reasons)
    else:
        placed = [each for _, each, _ in results if isinstance(each, PlacedPod)]
        items = [item for each in placed for item in (*each.claims, *[each.pod][:pods_too])]
        echo_objects(items, output)
        for reason in reasons:
            echo(reason, err=True)
    for _, placement, _ in results if verbose else ():
        for line in _details(placement):
            echo(f"{_title(placement.pod)}: {line}", err=output != "table")
    if results and api != "v1":
        echo(FIRST, err=True)
    return 1 if refused else 0


def echo_placed(rows: Iterable[tuple[str, ...]], reasons: Sequence[str]) -> None:
    """Print what was placed as a table, then why the rest was not."""
    echo_table([COLUMNS, *rows], gap=3)
    if reasons:
        echo("\n" + "\n".join(reasons))


def _details(placement: PlacementResult) -> Iterator[str]:
    """Yield what each container gets, or which expressions fail."""
    if isinstance(placement, PlacedPod):
        for name, devices in placement.containers.items():
            yield f"container {name}: {', '.join(devices) or 'no devices'}"
        return
    for failure in placement.failures:
        yield f"expression {failure.expression!r}: {failure.message} (such devices are skipped)"


def explain_older(
    source: InventorySource, api: str, *, node: str, output: str, name: str | None
) -> int:
    """Explain why the pods of files get no devices, or which they get; return the exit code."""
    told: list[dict[str, Any]] = []
    names = []
    cluster = source.cluster_of(named(api))
    for pod, placement, why in _placed(cluster, _waiting(cluster.pods(), api), node):
        if isinstance(placement, PlacedPod) and not placement.claims:
            continue
        key = full_key(pod)
        names.append(str(key))
        if name is not None and name not in {str(key), key.name}:
            continue
        told.append(_told(placement, why))
    if name is not None and not told:
        known = ", ".join(names) or "none"
        raise click.UsageError(f"no pod {name!r} requests devices; those that do: {known}")
    if output == "json":
        echo_json([{key: each[key] for key in each if key != "text"} for each in told])
    elif told:
        echo("\n\n".join(each["text"] for each in told))
    else:
        echo("nothing in the input asks for devices", err=True)
    return 0 if all(each["fits"] for each in told) else 1


@dataclass(frozen=True, slots=True)
class OlderReason:
    """Why a pod has no node: as text, and as `explain -o json` prints it."""

    text: str = ""
    facts: JsonDict = field(default_factory=dict)

    @property
    def brief(self) -> str:
        """The reason in one line."""
        return str(self.facts.get("reason", self.text))


def reason_of(cluster: GenerationCluster, placement: PlacementResult) -> OlderReason:
    """Return the reason that a pod has no node; an empty one if it has a node."""
    told = None
    if isinstance(cluster, V1Cluster) and not isinstance(placement, PlacedPod):
        from dralab.explanation.why import why

        told = why(cluster.snapshot, cluster.snapshot.pending_of(placement.pod))
    if told is None:
        found = _diagnosis(cluster, placement)
        if found is None or isinstance(found, str):
            return OlderReason(found or "")
        from dralab.explanation.text import Names, Why, WrittenFields

        told = Why(diagnosis=found, names=Names(spots=WrittenFields(), patches=False))
    return OlderReason(told.page(), told.structured() | {"reason": told.brief()})


def _diagnosis(cluster: GenerationCluster, placement: PlacementResult) -> "Diagnosis | str | None":
    """Return the facts or the plain reason for a pod without a node; None if it has one."""
    if isinstance(placement, PlacedPod) or placement.reason:
        return None if isinstance(placement, PlacedPod) else placement.reason
    from dralab.explanation.diagnose import diagnose
    from dralab.explanation.unfit import by_reason

    problems = cluster.problems(placement.pod)
    unfit = {each.node: each.unfit for each in placement.nodes if each.unfit}
    if not problems:
        counts = [(reason, len(names)) for reason, names in by_reason(unfit)]
        return unavailable(len(unfit), counts) if unfit else "no node can run it"
    nodes = [node for node, _ in problems]
    found = diagnose(problems[0][1], nodes, subject=_title(placement.pod))
    if found is None:
        return "no result within the search budget"
    return replace(found, unfit=by_reason(unfit))


def _placed(
    cluster: GenerationCluster,
    pods: Iterable[JsonDict],
    node: str,
    *,
    write: Callable[[PlacedPod], None] | None = None,
) -> Iterator[tuple[JsonDict, PlacementResult, OlderReason]]:
    """Place pods one after the other."""
    for pod in pods:
        asked: JsonDict = copied(pod)
        if node:
            asked["spec"]["nodeName"] = node
        placement = cluster.place(asked)
        if isinstance(placement, PlacedPod):
            cluster.apply(placement)
            if write is not None:
                write(placement)
        yield pod, placement, reason_of(cluster, placement)


def _rows(placement: PlacementResult) -> Iterator[tuple[str, ...]]:
    start = full_key(placement.pod)
    if not isinstance(placement, PlacedPod):
        yield (*start, *"------")
        return
    for each in placement.devices:
        told = (each.request or "-", each.device, each.pool, each.driver)
        yield (*start, each.claim, placement.node, *told)
    if not placement.devices:
        shared = ", ".join(claim["metadata"]["name"] for claim in placement.claims)
        yield (*start, shared or "-", placement.node, "(allocated)" if shared else "-", *"---")


def _told(placement: PlacementResult, why: OlderReason) -> dict[str, Any]:
    start: dict[str, Any] = {"object": _title(placement.pod)}
    if not isinstance(placement, PlacedPod):
        text = why.text if why.facts else f"{start['object']}\n{why.text}"
        return start | {"fits": False, "reason": why.text, "text": text} | why.facts
    lines = [f"fits on node {placement.node}:"]
    lines += [
        f"  {each.request or 'request'} of claim {each.claim}: {each} ({each.driver})"
        for each in placement.devices
    ]
    if not placement.devices:
        lines.append("  its claims have their devices already")
    text = "\n".join([start["object"], *lines])
    return start | {"fits": True, "node": placement.node, "why": lines, "text": text}


def _title(pod: JsonDict) -> str:
    return f"pod {full_key(pod)}"
