"""The steps as a shell script of kubectl commands: POSIX sh, grep and awk, nothing else.

Its functions wait for what a step needs and stop where it does not hold; the nodes that it cordoned
are uncordoned in any case.
"""

import shlex
from collections.abc import Iterable, Iterator
from importlib.resources import files
from typing import Final

from dralab.capacity.steps import MoveStep, Step
from dralab.objects.metadata import controller_of

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
