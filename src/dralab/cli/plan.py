"""`dralab plan`: nodes to add so that waiting pods run, nodes that can go, and moves of pods."""

import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import click

from dralab.api.yaml_documents import YamlError, single
from dralab.capacity.changes import UnknownName
from dralab.capacity.move_costs import MoveCosts
from dralab.capacity.planning import HIGHEST_PRICE, NodePlan, Removable, is_price
from dralab.capacity.planning import plan as answer
from dralab.capacity.planning import removable as nodes_that_can_go
from dralab.capacity.structured import structured_plan
from dralab.cli import objects
from dralab.cli._inventory import InventorySource
from dralab.cli._options import EXISTING, opt, options
from dralab.cli._output import echo_json, echo_table, formats
from dralab.cli._terminal import echo
from dralab.cli.errors import refusing
from dralab.cli.main import LazyGroup
from dralab.explanation.names import counted
from dralab.files.reading import read
from dralab.scheduling.model import ClusterModel

COMMANDS: Final[Mapping[str, str]] = {
    "moves": "Find the fewest pods to move so that waiting pods fit.",
}
SHOWN: Final = 10


@click.group(cls=LazyGroup, table=COMMANDS, modules={name: f"plan {name}" for name in COMMANDS})
def group() -> None:
    """Plan what makes waiting pods run, tried with the scheduler on the whole cluster.

    Example: `dralab plan nodes -f cluster.yaml --shapes h100,l40s`
    """


@group.command(
    epilog="""Examples:

\b
  dralab plan nodes -f cluster.yaml --shapes h100,l40s --price prices.yaml
  dralab plan nodes -f cluster.yaml --shapes node-3 --max-price 4
  dralab plan nodes --kubeconfig config --removable

\b
A file of prices maps shapes to the price of a node, in any unit:
  h100: 24.5
  l40s: 6
""",
)
@options
def nodes(
    *,
    source: InventorySource,
    shapes: str = opt(
        "Shapes of nodes that can be added (see `dralab generate -h`), or nodes of the input to "
        "copy.",
        metavar="SHAPE,...",
    ),
    price: Path | None = opt(
        "The price of a node of each shape; default: 1, so that the number of nodes counts.",
        EXISTING,
        metavar="FILE",
    ),
    max_price: float | None = opt("The most to spend.", least=0),
    removable: bool = opt("Find nodes that can be removed instead."),
    output: str = formats("table", "json"),
) -> None:
    """Find the fewest or cheapest nodes to add so that waiting pods run.

    Nothing is changed. Pods that fit on the existing nodes need none. The plan was tried
    with the scheduler on the whole cluster. With the extra `optimal` (OR-Tools) the page says how
    much cheaper any plan for the same pods could be at most. --removable answers the reverse:
    nodes that can go while all pods run on; the set works, but need not be the largest.
    Exit code 0: every pod runs then (with --removable: some node can go); 1: some do not (no node
    can go); 2: bad input.
    """
    if removable and (shapes or price or max_price is not None):
        raise click.UsageError("--removable needs no --shapes, --price and --max-price")
    if not (removable or shapes):
        raise click.UsageError("give the --shapes that can be added, or --removable")
    prices = _prices([name for name in shapes.split(",") if name], price)
    model = ClusterModel(objects.inventory(source))
    if removable:
        found = nodes_that_can_go(model, MoveCosts(model).refused)
        _tell_removable(found, output)
        sys.exit(0 if found.nodes else 1)
    with refusing(UnknownName, kind=click.UsageError):
        planned = answer(model, prices, max_price)
    if output == "json":
        echo_json(structured_plan(planned))
    else:
        for line in _page(planned, prices):
            echo(line)
    sys.exit(1 if planned.unserved else 0)


def _prices(shapes: list[str], file: Path | None) -> dict[str, float]:
    given: Any = {}
    if file is not None:
        try:
            given = single(read(file))
        except (YamlError, UnicodeDecodeError) as error:
            raise click.UsageError(f"{file}: {error}") from None
        if not isinstance(given, dict):
            raise click.UsageError(f"{file}: expected a mapping of shapes to prices")
    for name, value in given.items():
        if not is_price(value):
            raise click.UsageError(
                f"{file}: {name}: {value!r} is not a price (0 to {HIGHEST_PRICE:,})"
            )
    missing = [name for name in shapes if file is not None and name not in given]
    if missing:
        raise click.UsageError(f"{file}: there is no price for {', '.join(missing)}")
    return {name: float(given.get(name, 1)) for name in shapes}


def _page(planned: NodePlan, prices: Mapping[str, float]) -> Iterator[str]:
    total = len(planned.fitting) + len(planned.served) + len(planned.unserved)
    count = sum(planned.nodes.values())
    yield (
        f"waiting pods: {total}; {len(planned.fitting)} fit as things are, {len(planned.served)} "
        f"run with {counted(count, 'node')} more, {len(planned.unserved)} still wait"
    )
    if planned.nodes:
        yield ""
        for name, number in planned.nodes.items():
            yield f"  {number} x {name}, {prices[name]:g} each"
        yield f"  price {planned.price:g}: {_bound(planned)}"
    if planned.unserved:
        yield "\nstill waiting:"
        shown = list(planned.unserved.values())
        for pod, why in shown[:SHOWN]:
            yield f"  {pod.key}: {why}"
        if len(shown) > SHOWN:
            yield f"  and {len(shown) - SHOWN} more"


def _bound(planned: NodePlan) -> str:
    if planned.least is None:
        return "how much less would do is not known (the bound needs pip install '.[optimal]')"
    if planned.least >= planned.price - 1e-9:
        return "no plan for these pods costs less (proved)"
    gap = 100 * (planned.price - planned.least) / planned.price
    return (
        f"no plan for these pods costs less than {planned.least:g} (proved): the gap is {gap:.1f} %"
    )


def _tell_removable(found: Removable, output: str) -> None:
    if output == "json":
        echo_json(
            {
                "nodes": [
                    {"node": name, "moves": [{"pod": str(p.key), "to": to} for p, to in moves]}
                    for name, moves in found.nodes
                ],
                "stay": dict(found.stay),
            }
        )
        return
    go, stay = counted(len(found.nodes), "node"), counted(len(found.stay), "node")
    echo(f"{go} can go, in this order; {stay} stay")
    if found.nodes:
        rows = [
            (name, ", ".join(f"{pod.key} to {to}" for pod, to in moves) or "-")
            for name, moves in found.nodes
        ]
        echo()
        echo_table([("NODE", "PODS THAT MOVE"), *rows])
    for name, why in list(found.stay.items())[:SHOWN]:
        echo(f"{name} stays: {why}")
    if len(found.stay) > SHOWN:
        echo(f"and {len(found.stay) - SHOWN} more stay")
