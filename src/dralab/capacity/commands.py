"""The kubectl commands that carry out moves.

A move is a cordon, an eviction, and the wait for the pod that the controller makes in its place.
The scheduler chooses where that one goes: so many nodes are cordoned that dralab's scheduler, which
scores as kube-scheduler does, chooses the node of the plan.
"""

import shlex
from collections.abc import Iterator, Sequence
from typing import Final

from dralab.capacity.model import CapacityModel
from dralab.capacity.moves import Clearing
from dralab.capacity.relocation import Move
from dralab.objects.metadata import controller_of

# At most so many nodes are cordoned for one move. If that is not enough, the script says that the
# scheduler may choose another node.
MOST_CORDONS: Final = 20
KEPT: Final = "del(.status, .spec.nodeName, .metadata.uid, .metadata.resourceVersion)"


def commands(model: CapacityModel, clearings: Sequence[Clearing]) -> Iterator[str]:
    """Yield lines of a shell script; the model is left as it was."""
    yield "set -eu"
    with model.tentatively():
        number = 0
        for clearing in clearings:
            cordoned: list[str] = []
            for move in clearing.moves:
                number += 1
                yield ""
                yield (
                    f"# {number}. {move.pod.key} moves from {move.origin.node} to "
                    f"{move.placement.node}, to make room for {move.makes_room_for}"
                )
                needed, certain = cordons(model, move)
                for name in needed:
                    if name not in cordoned:
                        yield _kubectl("cordon", name)
                        cordoned.append(name)
                for name in [name for name in cordoned if name == move.placement.node]:
                    yield _kubectl("uncordon", name)
                    cordoned.remove(name)
                if not certain:
                    yield f"# The scheduler may choose another node than {move.placement.node}."
                yield from _evict(move)
                model.take_away(move.pod.uid)
                model.place(move.placement)
            for name in cordoned:
                yield _kubectl("uncordon", name)
            if clearing.placement is not None:
                model.place(clearing.placement)
                yield f"# now {clearing.pod.key} fits on {clearing.placement.node}"


def cordons(model: CapacityModel, move: Move) -> tuple[list[str], bool]:
    """Return the nodes to cordon so that the scheduler moves a pod as planned, and if it will."""
    target, needed = move.placement.node, []
    if move.origin.node != target:
        needed.append(move.origin.node)
    with model.tentatively():
        pod = model.take_away(move.pod.uid)
        for name in needed:
            model.cordon(name)
        while len(needed) <= MOST_CORDONS:
            found = model.find_place(pod)
            if found is None or found.node in needed:
                return needed, False
            if found.node == target:
                return needed, True
            needed.append(found.node)
            model.cordon(found.node)
    return needed[:1], False


def _evict(move: Move) -> Iterator[str]:
    namespace, name = move.pod.key
    owner = controller_of(move.pod.obj)
    pod, file = f"pod/{name}", f"{namespace}-{name}.json"
    if owner is None:
        yield "# Nothing makes this pod again: it is written to a file and created from it."
        read = _kubectl("-n", namespace, "get", pod, "-o", "json")
        yield f"{read} | jq {shlex.quote(KEPT)} > {shlex.quote(file)}"
    body = (
        '{"apiVersion":"policy/v1","kind":"Eviction",'
        f'"metadata":{{"name":"{name}","namespace":"{namespace}"}}}}'
    )
    path = f"/api/v1/namespaces/{namespace}/pods/{name}/eviction"
    yield f"echo {shlex.quote(body)} | {_kubectl('create', '--raw', path, '-f', '-')}"
    yield _kubectl("-n", namespace, "wait", "--for=delete", pod, "--timeout=10m")
    if owner is None:
        yield _kubectl("create", "-f", file)
        yield _kubectl("-n", namespace, "wait", "--for=condition=Ready", pod, "--timeout=10m")
    else:
        yield f"# wait until {owner['kind']} {namespace}/{owner['name']} has all its pods ready"


def _kubectl(*arguments: str) -> str:
    return shlex.join(("kubectl", *arguments))
