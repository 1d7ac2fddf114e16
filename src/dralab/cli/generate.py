"""`dralab generate SHAPE`: sample capacity as manifests of any API generation."""

from itertools import chain
from pathlib import Path
from typing import Final

import click

from dralab.cli._options import FOLDER, arg, opt, options
from dralab.cli._output import echo_objects, formats
from dralab.cli._taints import device_taint, node_taint
from dralab.cli._terminal import echo
from dralab.cli.errors import UnusableInput, refusing
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
@options
def generate(
    *,
    shape: str = arg(),
    api: str = opt("The API generation to write.", list(rendering.WRITERS), default="v1"),
    nodes: int | None = opt("Number of nodes.", least=1, most=100_000),
    gpus: int | None = opt("GPUs per dgxa100 node.", least=1, most=16),
    seed: int = opt("Random seed; the same seed gives the same output.", default=0),
    labels: tuple[str, ...] = opt("On every node.", flags="--label", metavar="KEY=VALUE"),
    taints: tuple[str, ...] = opt("On every node.", flags="--taint", metavar="KEY=VALUE:EFFECT"),
    device_taints: tuple[str, ...] = opt(
        "On every device (v1 only).", flags="--device-taint", metavar="KEY=VALUE:EFFECT"
    ),
    with_nodes: bool = opt("Print the Node objects too."),
    sysfs: Path | None = opt(
        "Also write the sysfs and procfs of each node below this directory, for drivers that read "
        "them: DIR/NODE/sys and DIR/NODE/proc.",
        FOLDER,
    ),
    output: str = formats("yaml", "json"),
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
    with refusing(ValueError, kind=click.UsageError):
        sample = shapes.sample(shape, nodes=nodes, seed=seed, gpus=cards)
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
