"""Moves as steps in a real cluster: which nodes are closed to new pods for each of them.

A controller makes an evicted pod again, and the scheduler chooses its node: so many nodes are
cordoned that dralab's scheduler, which scores as kube-scheduler does, chooses the node of the plan.
`commands` writes the steps as a shell script, `execution` takes them in a cluster.
"""

import shlex
from collections.abc import Iterable, Iterator, Sequence
from importlib.resources import files
from typing import Final

from dralab.capacity.defragment import Defragmentation
from dralab.capacity.relocation import Move
from dralab.objects.metadata import controller_of
from dralab.objects.nodes import is_unschedulable
from dralab.scheduling.model import ClusterModel
from dralab.scheduling.state import PodPlacement
from dralab.values.records import dataclass

# At most so many nodes are cordoned for one move. If that is not enough, `certain` is false.
MOST_CORDONS: Final = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class MoveStep:
    """A pod moves after some nodes were closed and others opened.

    `certain`: the scheduler has no other choice than the node of the plan, or prefers it.
    """

    number: int
    move: Move
    cordon: Sequence[str]
    uncordon: Sequence[str]
    certain: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class StartStep:
    """A pod that waited starts, after the nodes that were closed for it are opened."""

    placement: PodPlacement
    uncordon: Sequence[str] = ()


Step = MoveStep | StartStep


def steps(model: ClusterModel, found: Defragmentation) -> Iterator[Step]:
    """Yield all steps in order; the model is left as it was.

    Pods that fit as things are start first: the moves were planned with them in their places.
    """
    number = 0
    with model.tentatively():
        for placement in found.fitting:
            model.place(placement)
            yield StartStep(placement=placement)
        for clearing in found.clearings:
            kept: list[str] = []  # nodes that pods have left, closed until the waiting one starts
            closed: list[str] = []
            for move in clearing.moves:
                number += 1
                if move.placement.node in kept:
                    kept.remove(move.placement.node)
                elif move.origin.node != move.placement.node and move.origin.node not in kept:
                    kept.append(move.origin.node)
                needed, certain = cordons(model, move, kept)
                needed = [name for name in needed if not is_unschedulable(model.node(name) or {})]
                yield MoveStep(
                    number=number,
                    move=move,
                    cordon=[name for name in needed if name not in closed],
                    uncordon=[name for name in closed if name not in needed],
                    certain=certain,
                )
                closed = needed
                model.take_away(move.pod.uid)
                model.place(move.placement)
            if clearing.placement is not None:
                model.place(clearing.placement)
                yield StartStep(placement=clearing.placement, uncordon=closed)


def cordons(model: ClusterModel, move: Move, also: Iterable[str] = ()) -> tuple[list[str], bool]:
    """Return the nodes to cordon so that the scheduler moves a pod as planned, and whether it will.

    The nodes of `also` are cordoned anyway.
    """
    target, needed = move.placement.node, list(also)
    if move.origin.node != target and move.origin.node not in needed:
        needed.append(move.origin.node)
    least = len(needed)
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
    return needed[:least], False


FUNCTIONS: Final = "data/moves.sh"


def commands(found: Iterable[Step]) -> Iterator[str]:
    """Yield lines of a shell script."""
    yield from (files("dralab.capacity") / FUNCTIONS).read_text().splitlines()
    for step in found:
        yield ""
        if isinstance(step, MoveStep):
            yield from _move(step)
        else:
            for name in step.uncordon:
                yield shlex.join(("uncordon", name))
            key = step.placement.pod.key
            yield shlex.join(("starts", key.namespace, key.name, step.placement.node))


def _move(step: MoveStep) -> Iterator[str]:
    move, (namespace, name) = step.move, step.move.pod.key
    origin, target = move.origin.node, move.placement.node
    yield (
        f"# {step.number}. {move.pod.key} moves from {origin} to {target}, "
        f"to make room for {move.makes_room_for}"
    )
    for node in step.cordon:
        yield shlex.join(("cordon", node))
    for node in step.uncordon:
        yield shlex.join(("uncordon", node))
    if not step.certain:
        yield f"# The scheduler may choose another node than {target}."
    owner = controller_of(move.pod.obj)
    if owner is None:
        yield "# Nothing makes this pod again: it is written to a file and created from it."
        yield shlex.join(("again", namespace, name, origin, target))
    else:
        controller = f"{owner['kind']}/{owner['name']}"
        yield shlex.join(("move", namespace, name, origin, target, controller))
