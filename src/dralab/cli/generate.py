"""`dralab generate SHAPE`: sample capacity as manifests of any API generation."""

from itertools import chain
from pathlib import Path
from typing import Final

import click

from dralab.cli._output import echo_objects, output_option
from dralab.cli._taints import device_taint, node_taint
from dralab.cli._terminal import echo
from dralab.cli.errors import UnusableInput
from dralab.fleet import rendering, shapes
from dralab.fleet.model import SampleFleet
from dralab.values.names import label_value_problems, qualified_problems

MOST_TREES: Final = 64


@click.command(
    epilog="""Example: dralab generate h100 --nodes 4 --with-nodes | kubectl apply -f -

\b
Shapes: """
    + ", ".join(shapes.names())
)
@click.argument("shape")
@click.option(
    "--api",
    type=click.Choice(list(rendering.WRITERS)),
    default="v1",
    show_default=True,
    help="The API generation to write.",
)
@click.option("--nodes", type=click.IntRange(1, 100_000), help="Number of nodes.")
@click.option("--gpus", type=click.IntRange(1, 16), help="GPUs per dgxa100 node.")
@click.option(
    "--seed",
    type=int,
    default=0,
    show_default=True,
    help="Random seed; the same seed gives the same output.",
)
@click.option("--label", "labels", multiple=True, metavar="KEY=VALUE", help="On every node.")
@click.option("--taint", "taints", multiple=True, metavar="KEY=VALUE:EFFECT", help="On every node.")
@click.option(
    "--device-taint",
    "device_taints",
    multiple=True,
    metavar="KEY=VALUE:EFFECT",
    help="On every device (v1 only).",
)
@click.option("--with-nodes", is_flag=True, help="Print the Node objects too.")
@click.option(
    "--sysfs",
    type=click.Path(file_okay=False, path_type=Path),
    help="Also write the sysfs and procfs of each node below this directory, for drivers that read "
    "them: DIR/NODE/sys and DIR/NODE/proc.",
)
@output_option("yaml", "json")
def generate(
    shape: str,
    api: str,
    nodes: int | None,
    gpus: int | None,
    seed: int,
    labels: tuple[str, ...],
    taints: tuple[str, ...],
    device_taints: tuple[str, ...],
    with_nodes: bool,
    sysfs: Path | None,
    output: str,
) -> None:
    """Print sample nodes and devices, as ResourceSlices or as pools of an older device API.

    --label and --taint apply to Node objects and need --with-nodes.
    """
    if (labels or taints) and not with_nodes:
        raise click.UsageError("--label and --taint apply to Node objects: add --with-nodes")
    if device_taints and api != "v1":
        raise click.UsageError(f"--api {api} has no device taints: use --api v1")
    # A k8srm node of that shape has one card, an evolution node eight, as in their own generators.
    cards = gpus or (1 if api == "k8srm" else 8)
    try:
        sample = shapes.sample(shape, nodes=nodes, seed=seed, gpus=cards)
    except ValueError as error:
        raise click.UsageError(str(error)) from None
    if api == "evolution" and not all(pool.node for pool in sample.pools):
        raise click.UsageError(
            f"--api evolution supports only pools of one node, and shape {shape} has pools of "
            f"several: use --api v1 or k8srm"
        )
    if sysfs is not None:
        _write_sysfs(sample, sysfs)
    pairs = dict(_label(text) for text in labels)
    nodes_wanted = rendering.nodes(sample, pairs, [node_taint(text) for text in taints])
    tainted = [device_taint(text) for text in device_taints]
    capacity = rendering.v1(sample, tainted) if api == "v1" else rendering.WRITERS[api](sample)
    objects = chain(nodes_wanted if with_nodes else (), capacity)
    echo_objects(objects, output)


def _write_sysfs(sample: SampleFleet, directory: Path) -> None:
    from dralab.fleet.sysfs import tree, write

    if len(sample.nodes) > MOST_TREES:
        raise click.UsageError(
            f"--sysfs writes thousands of files for a node: at most {MOST_TREES} nodes, "
            f"not {len(sample.nodes)}; use --nodes"
        )
    for node in sample.nodes:
        place = directory / node.name
        try:
            place.mkdir(parents=True)
            count = write(tree(sample, node), place)
        except FileExistsError:
            raise click.BadParameter(
                f"{place} exists: use another one", param_hint="--sysfs"
            ) from None
        except OSError as error:
            raise UnusableInput(f"{place} cannot be written: {error.strerror}") from error
        echo(f"wrote {count} files and links of {node.name} to {place}", err=True)


def _label(text: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    problems = qualified_problems(key) + label_value_problems(value)
    if not equals or problems:
        raise click.UsageError(f'--label "{text}": {"; ".join(problems) or "expected KEY=VALUE"}')
    return key, value
