"""`dralab generate SHAPE`: sample capacity as manifests, or what a cluster does as a scenario."""

from collections.abc import Collection
from itertools import chain
from pathlib import Path
from typing import Final

import click

from dralab.cli._components import duration_of
from dralab.cli._help import EverydayCommand
from dralab.cli._options import FOLDER, FiniteRange, arg, opt, options
from dralab.cli._output import echo_objects, formats
from dralab.cli._taints import device_taint, node_taint
from dralab.cli._terminal import echo
from dralab.cli.errors import UnusableInput, refusing
from dralab.fleet import rendering, shapes
from dralab.fleet.model import SampleFleet
from dralab.values.names import label_value_problems, qualified_problems

MOST_TREES: Final = 64


@click.command(
    cls=EverydayCommand,
    everyday=("api", "nodes", "gpus", "seed", "with-nodes", "output"),
    subjects={
        "Samples": ("label", "taint", "device-taint", "sysfs"),
        "Workloads": ("until", "load", "share", "gpu-mtbf"),
    },
    epilog="""Examples:

\b
  dralab generate h100 --nodes 4 --with-nodes | kubectl apply -f -
  dralab generate workload --nodes 16 --until 7d > week.yaml; dralab simulate run week.yaml

\b
Shapes: """
    + ", ".join([*shapes.names(), "workload"]),
)
@options
def generate(
    *,
    shape: str = arg(),
    api: str = opt("The API generation to write.", list(rendering.WRITERS), default="v1"),
    nodes: int | None = opt("Number of nodes.", least=1, most=shapes.MOST_NODES),
    gpus: int | None = opt("GPUs per node, of dgxa100 and workload.", least=1, most=16),
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
    until: str = opt("How long the workload lasts.", default="30d", metavar="DURATION"),
    load: float = opt(
        "The GPU time that the workload asks for, of all there is.",
        FiniteRange(min=0, min_open=True, max=10),
        default=0.85,
    ),
    shares: tuple[str, ...] = opt(
        "The part of a kind of work: training, serving, batch or notebook.  [default: 0.6, 0.2, "
        "0.15, 0.05]",
        flags="--share",
        metavar="KIND=PART",
    ),
    gpu_mtbf: str | None = opt(
        "Mean time between failures of a GPU; 0: none fails.  [default: 50677h]", metavar="DURATION"
    ),
    output: str = formats("yaml", "json"),
) -> None:
    """Print sample nodes and devices, as ResourceSlices or as pools of an older device API.

    --label and --taint apply to Node objects and need --with-nodes. The shape `workload`
    prints a scenario for `dralab simulate run`: training, services, batch jobs and notebooks, with
    failures.
    """
    workload = shape == "workload"
    _check_options(SAMPLE_ONLY if workload else WORKLOAD_ONLY, shape)
    if workload:
        echo(_workload(nodes, gpus, seed, until, load, shares, gpu_mtbf), nl=False)
        return
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


SAMPLE_ONLY: Final = frozenset(
    {"api", "labels", "taints", "device_taints", "with_nodes", "sysfs", "output"}
)
WORKLOAD_ONLY: Final = frozenset({"until", "load", "shares", "gpu_mtbf"})


def _check_options(refused: Collection[str], shape: str) -> None:
    """Refuse options that are not for the shape. UsageError."""
    context = click.get_current_context()
    for option in context.command.params:
        given = context.get_parameter_source(option.name or "")
        if option.name in refused and given is not click.core.ParameterSource.DEFAULT:
            raise click.UsageError(f"{option.opts[0]} is not for the shape {shape}")


def _workload(
    nodes: int | None,
    gpus: int | None,
    seed: int,
    until: str,
    load: float,
    shares: tuple[str, ...],
    mtbf: str | None,
) -> str:
    from dralab.simulation.scenario.typical import GPU_MTBF, SHARES, ClusterNumbers, scenario_text

    wanted = dict(SHARES)
    for text in shares:
        kind, _, part = text.partition("=")
        try:
            wanted[kind] = float(part)
        except ValueError:
            wanted[kind] = -1.0
        if kind not in SHARES or not 0 <= wanted[kind] <= 1:
            problem = f"{text!r} must be KIND=PART: one of {', '.join(SHARES)}, and from 0 to 1"
            raise click.BadParameter(problem, param_hint="--share")
    if not any(wanted.values()):
        raise click.BadParameter("at least one kind needs a part above 0", param_hint="--share")
    length = duration_of(until, "--until")
    if not length:
        raise click.BadParameter("must be above 0", param_hint="--until")
    return scenario_text(
        ClusterNumbers(
            nodes=nodes or 64,
            gpus=gpus or 8,
            length=length,
            seed=seed,
            load=load,
            mtbf=GPU_MTBF if mtbf is None else duration_of(mtbf, "--gpu-mtbf"),
            shares=wanted,
        )
    )


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
