"""Carries out the steps of a plan in the cluster that a command names, and tells each of them."""

import os
import sys
import threading
from collections.abc import Sequence
from pathlib import Path

import click
import orjson

from dralab.api.status import ApiError
from dralab.capacity.execution import Consent, Execution
from dralab.capacity.steps import MoveStep, Step
from dralab.cli import objects
from dralab.cli._inventory import InventorySource
from dralab.cli._output import refuse
from dralab.cli._terminal import echo
from dralab.cli.errors import UnusableInput
from dralab.kernel.clock import WallClock
from dralab.objects.metadata import key_of
from dralab.scheduling.model import ClusterModel
from dralab.values.json_types import JsonDict


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
