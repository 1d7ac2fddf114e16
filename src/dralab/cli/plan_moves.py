"""`dralab plan moves`: the fewest moves that make room for pods that wait."""

import os
import sys
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path

import click
import orjson

from dralab.api.status import ApiError
from dralab.capacity.defragment import Defragmentation, carry_out
from dralab.capacity.defragment import defragment as answer
from dralab.capacity.execution import Consent, Execution
from dralab.capacity.move_costs import MoveCosts
from dralab.capacity.moves import Clearing
from dralab.capacity.relocation import Move, devices_of
from dralab.capacity.steps import MoveStep, Step, commands, cordons, steps
from dralab.capacity.structured import structured_moves
from dralab.cli import objects
from dralab.cli._inventory import InventorySource
from dralab.cli._options import opt, options
from dralab.cli._output import echo_json, echo_table, formats, refuse
from dralab.cli._terminal import echo
from dralab.cli.errors import UnusableInput
from dralab.explanation.names import counted
from dralab.kernel.clock import WallClock
from dralab.objects.metadata import key_of
from dralab.scheduling.model import ClusterModel
from dralab.scheduling.pods import PodInfo
from dralab.scheduling.state import PodPlacement
from dralab.values.json_types import JsonDict


@click.command(
    epilog="""Examples:

\b
  dralab plan moves -f cluster.yaml --for pod/ml/train
  dralab plan moves --kubeconfig config --all-pending --max-moves 20 --explain
  dralab plan moves -f cluster.yaml --for ml/train -o commands
  dralab plan moves --kubeconfig config --for ml/train --apply
""",
)
@options
def moves(
    *,
    source: InventorySource,
    name: str = opt("Make room for this pod.", flags="--for", metavar="POD"),
    all_pending: bool = opt("Make room for every pod that waits."),
    max_moves: int | None = opt("Move at most this many pods.", least=0),
    least: str = opt(
        "What to minimize: the number of moves, or their cost by priority and age.",
        ["moves", "cost"],
        default="moves",
    ),
    explain: bool = opt("Say why each pod moves, and why to that node."),
    apply: bool = opt("Move the pods, one after the other."),
    force: bool = opt(
        "With --apply: also delete pods that have no controller, and create them again."
    ),
    delete_emptydir_data: bool = opt(
        "With --apply: also move pods with emptyDir volumes, whose content is lost."
    ),
    timeout: float = opt(
        "With --apply: how long a step waits for a pod to end, or to run.",
        least=1,
        metavar="SECONDS",
        default=600,
    ),
    output: str = formats("table", "json", "commands"),
) -> None:
    """Find the fewest pods to move so that waiting pods fit.

    Nothing is changed without --apply. The moves are in an order in which each step has room: a
    pod is evicted and runs elsewhere before the next one moves, with the devices that the scheduler
    would give it there. Pods of DaemonSets, and those whose PodDisruptionBudget allows no
    disruption, stay.

    For one pod the number of moves is proved to be the least, or the output says how many moves
    fewer might be possible. For several pods the moves of each are as few as possible when its turn
    comes; how many pods could be served at best is a bound that needs the extra `optimal`
    (OR-Tools). -o commands prints the moves as a shell script of kubectl commands.

    --apply carries them out: it cordons the nodes that pods leave, evicts one pod after the other
    through the Eviction API, and waits for the pod that its controller creates instead to run on
    the node of the plan. It stops at the first step that fails, with the reason, and always
    uncordons what it cordoned.

    Exit code 0: every pod fits after the moves; 1: some do not, or a step failed; 2: bad input.
    """
    if bool(name) == all_pending:
        raise click.UsageError("give either --for POD or --all-pending")
    consent = Consent(force=force, delete_emptydir_data=delete_emptydir_data)
    if apply:
        source.check_apply(output)
    elif consent != Consent():
        raise click.UsageError("--force and --delete-emptydir-data say what --apply may do")
    model = ClusterModel(objects.inventory(source))
    pods = list(model.waiting) if all_pending else [_waiting(model, name)]
    costs = MoveCosts(model, "cost" if least == "cost" else "moves")
    found = answer(model, pods, costs, most=max_moves)
    if output == "json":
        echo_json(structured_moves(found))
    elif output == "commands":
        for line in commands(steps(model, found)):
            echo(line)
    else:
        _print(model, found, costs, explain=explain)
    if found.clearings and apply:
        echo()
        apply_steps(source, list(steps(model, found)), consent, timeout)
    elif apply:
        echo("\nNothing was changed: no pod is to be moved.")
    elif found.clearings and output == "table":
        echo("\nNothing was changed. -o commands prints the kubectl commands.")
    sys.exit(1 if found.unserved else 0)


def _waiting(model: ClusterModel, name: str) -> PodInfo:
    """Return the pod that waits of a name: POD, NAMESPACE/POD or pod/NAMESPACE/POD."""
    short = name.removeprefix("pod/")
    found = [pod for pod in model.waiting if short in {str(pod.key), pod.key.name}]
    if len(found) == 1:
        return found[0]
    known = ", ".join(str(pod.key) for pod in model.waiting) or "none"
    if found:
        raise click.UsageError(f"several pods {name!r} wait: {known}; name one with its namespace")
    running = [each for each in model.running.values() if short == str(each.pod.key)]
    if running:
        raise click.UsageError(f"pod {short!r} does not wait: it runs on {running[0].node}")
    raise click.UsageError(f"no pod {name!r} waits; those that do: {known}")


# --- output ----------------------------------------------------------------------------------


def _print(model: ClusterModel, found: Defragmentation, costs: MoveCosts, *, explain: bool) -> None:
    for line in _verdict(found, costs):
        echo(line)
    if found.fitting or found.clearings:
        echo()
        echo_table([("STEP", "POD", "FROM", "TO", "DEVICES"), *_steps(found)])
    if explain and found.clearings:
        echo()
        for line in _reasons(model, found):
            echo(line)
    if found.unserved:
        echo("\nstill waiting:")
        for each in found.unserved:
            echo(f"  {each.pod.key}: {each.why}")


def _verdict(found: Defragmentation, costs: MoveCosts) -> Iterator[str]:
    if len(found.clearings) == 1 and not found.unserved and not found.fitting:
        (clearing,) = found.clearings
        place = clearing.placement.node if clearing.placement is not None else ""
        yield (
            f"{clearing.pod.key} fits on {place} after {counted(len(clearing.moves), 'move')}: "
            + _proof(clearing, costs)
        )
        return
    total = found.served + len(found.unserved)
    text = f"{found.served} of {total} pods fit: {len(found.fitting)} as things are"
    if found.clearings:
        proved = sum(each.is_proved for each in found.clearings)
        text += (
            f", {len(found.clearings)} after {counted(found.moves, 'move')} ({proved} of them "
            "proved to need no fewer when their turn comes)"
        )
    yield text
    if total > 1:
        yield _gap(found)


def _gap(found: Defragmentation) -> str:
    if found.at_best is None:
        return (
            "How many any moves could serve is not known: the bound needs OR-Tools "
            "(pip install '.[optimal]'), pools that are complete, and claims of one pod each."
        )
    if found.at_best <= found.served:
        return "No moves serve more (proved)."
    gap = (found.at_best - found.served) / found.at_best
    return f"No moves serve more than {found.at_best} (proved): the gap is {100 * gap:.1f} %."


def _proof(clearing: Clearing, costs: MoveCosts) -> str:
    what = "moves" if costs.by == "moves" else "cost"
    if clearing.is_proved:
        return "no plan has fewer (proved)" if what == "moves" else "no plan costs less (proved)"
    return f"no plan has less than {what} {clearing.bound}, this one has {clearing.cost}"


def _steps(found: Defragmentation) -> Iterator[tuple[str, ...]]:
    for placement in found.fitting:
        yield "-", str(placement.pod.key), "-", placement.node, _listed(placement)
    step = 0
    for clearing in found.clearings:
        for move in clearing.moves:
            step += 1
            devices = f"{_listed(move.origin)} -> {_listed(move.placement)}"
            yield str(step), str(move.pod.key), move.origin.node, move.placement.node, devices
        if clearing.placement is not None:
            place = clearing.placement
            yield "then", str(clearing.pod.key), "-", place.node, _listed(place)


def _listed(placement: PodPlacement) -> str:
    return ", ".join(name.partition("/")[2] for name in devices_of(placement)) or "none"


def _reasons(model: ClusterModel, found: Defragmentation) -> Iterator[str]:
    with model.tentatively():
        for placement in found.fitting:
            model.place(placement)
        step = 0
        for clearing in found.clearings:
            with model.tentatively():
                for move in clearing.moves:
                    step += 1
                    yield f"{step}. {move.pod.key}: {_reason(model, move)}"
                    model.take_away(move.pod.uid)
                    model.place(move.placement)
            carry_out(model, clearing)


def _reason(model: ClusterModel, move: Move) -> str:
    held = _listed(move.origin)
    what = (
        f"holds {held} on {move.origin.node}" if held != "none" else f"runs on {move.origin.node}"
    )
    needed, certain = cordons(model, move)
    where = (
        f"the scheduler puts it on {move.placement.node} while {', '.join(needed)} "
        f"{'is' if len(needed) == 1 else 'are'} cordoned"
        if certain
        else f"{move.placement.node} has room for it, but the scheduler may choose another node"
    )
    return f"{what}, where {move.makes_room_for} needs room; {where}"


def apply_steps(
    source: InventorySource, steps: Sequence[Step], consent: Consent, timeout: float
) -> None:
    """Take the steps; exit with code 1 if one does not hold, 2 if they need more consent.

    UnusableInput: the cluster does not answer.
    """
    from dralab.runtime.remote import RemoteClient

    client = RemoteClient(source.connection.access())
    execution = Execution(
        client=client,
        clock=WallClock(),
        pause=_pause,
        tell=echo,
        keep=_keep,
        dropped=lambda file: Path(file).unlink(),
        reread=lambda: ClusterModel(objects.inventory(source)),
        timeout=timeout,
    )
    try:
        refuse(execution.objections(steps, consent))
        stop = execution.run(steps)
    except ApiError as error:
        raise UnusableInput(f"{client.access.server}: {error.message}") from error
    finally:
        client.close()
    moves = sum(isinstance(each, MoveStep) for each in steps)
    if stop is None:
        return
    where = (
        f"at step {stop.step.number} of {moves}"
        if isinstance(stop.step, MoveStep)
        else f"after {stop.moved} of {moves} moves"
    )
    echo(f"stopped {where}: {stop.why}", err=True)
    echo("Ask again for a plan that starts from here.", err=True)
    sys.exit(1)


def _pause(seconds: float) -> None:
    threading.Event().wait(seconds)


def _keep(pod: JsonDict) -> str:
    """Write a pod to a file of this directory, which others cannot read; return its name."""
    key = key_of(pod)
    file = f"{key.namespace}-{key.name}.json"
    try:
        with os.fdopen(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as kept:
            kept.write(orjson.dumps(pod, option=orjson.OPT_INDENT_2))
    except OSError as error:
        raise click.ClickException(
            f"pod {key} is not touched: {file}, which would keep its spec, cannot be written: "
            f"{error.strerror}"
        ) from error
    return file
