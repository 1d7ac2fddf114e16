"""`dralab snapshot`: save the objects that decide about devices in a cluster to a file."""

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import click

from dralab.cli import objects
from dralab.cli._inventory import InventorySource
from dralab.cli._options import arg, opt, options
from dralab.cli._terminal import echo, write_file
from dralab.cli.errors import UnusableInput
from dralab.objects.pods import is_finished
from dralab.values.json_types import JsonDict

STDOUT: Final = "-"
DEFAULT: Final = "cluster.snapshot"


@click.command(
    epilog="""Examples:

\b
  dralab snapshot --kubeconfig ~/.kube/config monday.snapshot
  dralab snapshot -f must-gather.tar.gz --anonymize
  dralab explain -f monday.snapshot ml/train
  dralab up --snapshot monday.snapshot
"""
)
@options
def snapshot(
    *,
    source: InventorySource,
    output: str = arg(metavar="[FILE]", default=DEFAULT),
    anonymize: bool = opt("Rename nodes, pods and so on."),
) -> None:
    """Save nodes, devices, claims and pods of a cluster to one small FILE.

    FILE must not exist; - is standard output. [default: cluster.snapshot]

    Reads the cluster of --kubeconfig, $KUBECONFIG or ~/.kube/config, or the files of -f. Only what
    decides which pod gets which device is saved: no Secrets, environment values, commands, images,
    annotations, or what volumes are made of. --anonymize renames nodes, namespaces, pods, claims,
    volumes, labels and serial numbers, each the same everywhere; drivers, classes and expressions
    keep their names. The same cluster gives the same bytes. Commands read the file with -f, and
    `dralab up` serves it.
    """
    from dralab.api.snapshots.anonymous import anonymous
    from dralab.api.snapshots.files import written
    from dralab.api.snapshots.kept_fields import kept

    target = None if output == STDOUT else Path(output)
    if target is not None and target.exists():
        raise UnusableInput(f"{target} already exists; choose another file")
    found = objects.inventory(source.or_usual_cluster())
    saved = [part for item in found if (part := kept(item)) is not None]
    waiting = _with_unknown_volumes(found)
    content = written(anonymous(saved) if anonymize else saved, anonymized=anonymize)
    if target is None:
        write_file(content)
    else:
        _write(target, content)
    counts = Counter(item["kind"] for item in saved)
    told = ", ".join(f"{count} {kind}" for kind, count in sorted(counts.items()))
    echo(f"saved {told} ({len(content):,} bytes)", err=True)
    if waiting:
        echo(f"no volumes in the input: not judged for {waiting} waiting pods", err=True)


def _write(target: Path, content: bytes) -> None:
    """Write a file that only its owner can read: it says who runs what."""
    from dralab.runtime.new_kubeconfig import write_privately

    try:
        write_privately(target, content)
    except OSError as error:
        raise UnusableInput(f"{target}: cannot be written: {error.strerror or error}") from error


def _with_unknown_volumes(found: Sequence[JsonDict]) -> int:
    """Return how many waiting pods have volumes of which the input has no claim."""
    if any(item["kind"] == "PersistentVolumeClaim" for item in found):
        return 0
    return sum(
        item["kind"] == "Pod"
        and not item["spec"].get("nodeName")
        and not is_finished(item)
        and any("persistentVolumeClaim" in each for each in item["spec"].get("volumes") or ())
        for item in found
    )
