"""`dralab explain`: explain why a claim or pod gets no devices, or why it gets these."""

import sys
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

import click

from dralab.cli import objects
from dralab.cli._inventory import InventorySource
from dralab.cli._older import explain_older, nothing_asked, older_generation
from dralab.cli._options import arg, opt, options
from dralab.cli._output import echo_json, formats
from dralab.cli._own_generation import api_option
from dralab.cli._terminal import echo
from dralab.cli.errors import refusing
from dralab.cli.generations import READABLE
from dralab.explanation.answers import NoResult, already_allocated, answers
from dralab.explanation.codes import CODES, code_text
from dralab.values.near_names import did_you_mean


@click.command(
    epilog="""Examples:

\b
  dralab explain -f cluster.yaml -f pods.yaml train
  dralab explain -f cluster.yaml -f claim.yaml ml/train -o json
  dralab explain --kubeconfig ~/.kube/config ml/train
  dralab explain --code DRA014
"""
)
@options
def explain(
    *,
    source: InventorySource,
    api: str | None = api_option(READABLE),
    node: str = opt("Only look at this node.", metavar="NODE"),
    namespace: str = opt("Only pods and claims of this namespace.", flags="-n --namespace"),
    every_node: bool = opt("Also show what each group of nodes lacks.", flags="--all"),
    code: str = opt("Explain a code such as DRA014, and exit.", metavar="CODE"),
    output: str = formats("text", "json"),
    name: str | None = arg(metavar="[CLAIM|POD]"),
) -> None:
    """Explain why a pod or claim waits, or why it gets these devices.

    Without a name, every pod and claim that asks for devices is explained; a named pod may wait
    for anything. What comes earlier in the input is allocated first, as by `dralab allocate`. In
    older generations and your own, only pods can be named. Nothing is changed.

    If there are no devices: the cause with its place in the input, what exists instead, and what
    would help, confirmed by the scheduler. Exit code 0: it fits; 1: it does not; 2: bad input.
    """
    if code:
        _of_code(code, output)
        return
    if namespace and name and "/" not in name:
        name = f"{namespace}/{name}"
    if older := older_generation(source, api, readable=READABLE):
        sys.exit(explain_older(source, older, node=node, output=output, name=name))
    cluster, spots = objects.with_spots(source)
    objects.check_node(cluster, node)
    pending = cluster.pending(every=True)
    already = already_allocated(cluster, name) if name else None
    if already is not None:
        _print([already], output)
        return
    asked = objects.named(pending, name) if name else [p for p in pending if p.wants_devices]
    if namespace:
        asked = [each for each in asked if each.namespace == namespace]
    if not asked:
        nothing_asked(source)
    with refusing(NoResult, kind=click.ClickException):
        told = list(answers(cluster, pending, asked, node=node, spots=spots, every_node=every_node))
    _print(told, output)
    sys.exit(0 if all(each["fits"] for each in told) else 1)


def _print(told: Sequence[dict[str, Any]], output: str) -> None:
    if output == "json":
        shown = [{key: each[key] for key in each if key != "text"} for each in told]
        echo_json(shown)
    else:
        echo("\n\n".join(each["text"] for each in told))


def _of_code(code: str, output: str) -> None:
    """Print what a code means; UsageError with the nearest one."""
    name = code.upper()
    if name not in CODES:
        hint = did_you_mean(name, CODES)
        raise click.UsageError(f"no code {code!r}{hint or '; there are ' + ', '.join(CODES)}")
    found = CODES[name]
    if output == "json":
        echo_json(asdict(found))
    else:
        echo(code_text(found))
