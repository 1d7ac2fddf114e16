"""A help of an explanation as a question of what-if.

Only helps that the server made itself are tried: the page names one by its number.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from dralab.capacity.changes import AddNodes, MovePod, SupposedChange, Uncordon, Without
from dralab.explanation.edits import KINDS
from dralab.explanation.names import templates_of
from dralab.objects.claims import consumers_of
from dralab.objects.metadata import DEFAULT_NAMESPACE, NamespacedName, full_key
from dralab.objects.taints import UNSCHEDULABLE
from dralab.scheduling.snapshot import Snapshot
from dralab.values.json_patches import json_patch
from dralab.values.json_types import JsonDict


@dataclass(frozen=True, slots=True, kw_only=True)
class TriedHelp:
    """A help as changes of a model, and as objects that replace those of the same name."""

    changes: Sequence[SupposedChange] = ()
    objects: Sequence[JsonDict] = field(default_factory=tuple)


def tried(help_: Mapping[str, Any], cluster: Snapshot) -> TriedHelp | None:
    """Return the changes of a help (of `explain -o json`); None if unknown."""
    kind, node = help_["kind"], str(help_.get("node") or "")
    if kind == "several":
        parts = [tried(each, cluster) for each in help_["parts"]]
        known = [each for each in parts if each is not None]
        objects = [item for each in known for item in each.objects]
        if len(known) < len(parts) or len({(i["kind"], full_key(i)) for i in objects}) < len(
            objects
        ):
            return None
        return TriedHelp(changes=[each for one in known for each in one.changes], objects=objects)
    if help_.get("patch"):
        found = _patched(str(help_["object"]), help_["patch"], cluster)
        return None if found is None else TriedHelp(objects=[found])
    if kind == "add" and node:
        return TriedHelp(changes=[AddNodes(node, 1)])
    if kind == "node" and help_.get("taints") == [UNSCHEDULABLE["key"]]:
        return TriedHelp(changes=[Uncordon(node)])
    pods = list(dict.fromkeys(_pods(help_.get("who") or (), cluster)))
    if kind == "move" and len(pods) == 1:
        return TriedHelp(changes=[MovePod(pods[0], node)])
    if kind in {"wait", "preempt"} and pods:
        # Of several pods each may be enough: then the first one ends.
        ending = pods[:1] if help_.get("enough") == 1 else pods
        return TriedHelp(changes=[Without("pod", each) for each in ending])
    return None


def _pods(who: Sequence[str], cluster: Snapshot) -> Iterator[NamespacedName]:
    """Yield the pods that a help names: themselves, or by a claim that they use."""
    for name in who:
        namespace, _, short = name.removeprefix("pod ").rpartition("/")
        where = namespace or DEFAULT_NAMESPACE
        if name.startswith("pod "):
            yield NamespacedName(where, short)
            continue
        for consumer in consumers_of(cluster.claims.get((where, short), {})):
            if consumer.get("resource") == "pods":
                yield NamespacedName(where, str(consumer["name"]))


def _patched(about: str, patch: Sequence[Mapping[str, Any]], cluster: Snapshot) -> JsonDict | None:
    """Return an object with a patch; for a claim that is not made yet that is its template."""
    kind, _, name = about.partition(" ")
    wanted, operations = KINDS[kind], [dict(each) for each in patch]
    template = templates_of(cluster).get(name) if kind == "claim" else None
    if template is not None and not _named(cluster, wanted, name):
        wanted, name = "ResourceClaimTemplate", template
        operations = [each | {"path": f"/spec{each['path']}"} for each in operations]
    found = _named(cluster, wanted, name)
    return None if found is None else dict(json_patch(found, operations))


def _named(cluster: Snapshot, kind: str, name: str) -> JsonDict | None:
    namespace, _, short = name.rpartition("/")
    where = (namespace or DEFAULT_NAMESPACE, short)
    return next((item for item in cluster.by_kind.get(kind, ()) if full_key(item) == where), None)
