"""The helps of an explanation carried out on the objects, as a person would who reads them."""

import copy
import shlex
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from dralab.capacity.changes import UnknownName
from dralab.explanation.answers import answers
from dralab.objects.claims import allocation_of, claim_names, consumers_of
from dralab.scheduling.cycle import PodPlacement
from dralab.scheduling.model import ClusterModel
from dralab.scheduling.snapshot import Snapshot
from dralab.values.json_types import JsonDict
from dralab.web.capacity_answers import replaced
from dralab.web.remedies import tried


def explained(objects: Sequence[JsonDict], name: str) -> Mapping[str, Any] | None:
    """What `dralab explain -o json` says of a pod; None: nothing."""
    cluster = Snapshot(objects)
    asked = [each for each in cluster.pending() if each.kind == "pod" and each.name == name]
    return next(answers(cluster, asked, asked), None) if asked else None


def after(
    objects: Sequence[JsonDict], help_: Mapping[str, Any]
) -> Iterator[tuple[str, ClusterModel]]:
    """Yield what is done, and the cluster afterwards; several where each is said to be enough.

    Nothing is yielded of a help that leaves open how it is done.
    """
    if help_["kind"] == "several":
        made = list(objects)
        for part in help_["parts"]:
            made = _followed(made, part)
        yield help_["text"], ClusterModel(made)
        return
    command = str(help_.get("command") or "")
    if help_["kind"] == "node" and command and not help_.get("patch"):
        yield command, ClusterModel(_with_node(objects, command))
        return
    if help_["kind"] in {"wait", "preempt"}:
        who = list(help_.get("who") or ())
        for names in [[each] for each in who] if help_.get("enough") == 1 else [who]:
            yield f"end {', '.join(names)}", ClusterModel(_without(objects, names))
        return
    found = tried(help_, Snapshot(objects))
    if found is None:
        return
    model = ClusterModel(replaced(objects, found.objects))
    for change in found.changes:
        leaving = list(change.apply(model))
        decided = model.run(leaving)
        if any(not isinstance(decided[each.uid], PodPlacement) for each in leaving):
            raise UnknownName(f"who leaves finds no place: {change}")
    yield help_["text"], model


def _followed(objects: Sequence[JsonDict], help_: Mapping[str, Any]) -> list[JsonDict]:
    """Return the objects after one of several changes."""
    command = str(help_.get("command") or "")
    if help_["kind"] == "node" and command and not help_.get("patch"):
        return _with_node(objects, command)
    if help_["kind"] == "wait":
        return _without(objects, help_["who"])
    found = tried(help_, Snapshot(objects))
    assert found is not None
    assert not found.changes
    return list(replaced(objects, found.objects))


def fits(model: ClusterModel, name: str) -> bool:
    """Whether a waiting pod gets a place."""
    pod = next(each for each in model.waiting if each.key.name == name)
    return isinstance(model.run(model.waiting)[pod.uid], PodPlacement)


def _with_node(objects: Sequence[JsonDict], command: str) -> list[JsonDict]:
    """Carry out `kubectl uncordon NODE` or `kubectl taint nodes NODE KEY-...`."""
    words = shlex.split(command)
    made = copy.deepcopy(list(objects))
    name = words[2] if words[1] == "uncordon" else words[3]
    spec = next(
        item["spec"] for item in made if item["kind"] == "Node" and item["metadata"]["name"] == name
    )
    if words[1] == "uncordon":
        spec.pop("unschedulable", None)
        gone = {"node.kubernetes.io/unschedulable"}
    else:
        gone = {word.removesuffix("-") for word in words[4:]}
    spec["taints"] = [
        each
        for each in spec.get("taints") or ()
        if not {each["key"], f"{each['key']}:{each['effect']}"} & gone
    ]
    return made


def _without(objects: Sequence[JsonDict], names: Sequence[str]) -> list[JsonDict]:
    """End pods, named themselves (`pod ns/name`) or by a claim that they use."""
    claims = {name.rpartition("/")[2] for name in names if not name.startswith("pod ")}
    ending = {name.rpartition("/")[2] for name in names if name.startswith("pod ")}
    ending |= {
        item["metadata"]["name"]
        for item in objects
        if item["kind"] == "Pod"
        and item["spec"].get("nodeName")
        and claims & set(claim_names(item))
    }
    made = []
    for item in copy.deepcopy(list(objects)):
        if item["kind"] == "Pod" and item["metadata"]["name"] in ending:
            continue
        if item["kind"] == "ResourceClaim" and allocation_of(item):
            users = [each for each in consumers_of(item) if each["name"] not in ending]
            # What nobody uses any longer is given back.
            item["status"]["reservedFor"] = users
            if not users:
                item["status"].pop("allocation")
        made.append(item)
    return made
