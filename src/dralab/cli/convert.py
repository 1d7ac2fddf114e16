"""`dralab convert`: convert objects from one API generation to another."""

from collections.abc import Callable, Mapping

import click

from dralab.cli import generations
from dralab.cli._output import echo_objects, output_option
from dralab.prototypes.conversion import classic, reading
from dralab.prototypes.conversion.neutral import Scene
from dralab.prototypes.conversion.to_evolution import ToEvolution
from dralab.prototypes.conversion.to_k8srm import ToK8srm
from dralab.prototypes.conversion.to_v1 import ToV1
from dralab.prototypes.conversion.writing import SceneWriter
from dralab.values.json_types import JsonDict

WRITERS: Mapping[str, Callable[[Scene], SceneWriter]] = {
    "v1": ToV1,
    "evolution": ToEvolution,
    "k8srm": ToK8srm,
}

# Classic DRA is only a source, never a target.
SOURCES = (*generations.API_NAMES, "classic")


@click.command(epilog="Example: dralab convert --to v1 -f k8srm-manifests/ > today.yaml")
@generations.files_option
@click.argument("more", nargs=-1, metavar="[FILE]...")
@click.option("--to", "target", type=click.Choice(list(WRITERS)), required=True)
@click.option("--from", "source", type=click.Choice(SOURCES))
@output_option("yaml", "json")
def convert(
    files: tuple[str, ...], more: tuple[str, ...], target: str, source: str | None, output: str
) -> None:
    """Convert classes, claims, pools and pods to another API generation.

    What the other generation cannot express is reported on stderr, with a suggestion. Exit code 0:
    nothing is lost; 1: something is lost; 2: bad input.
    """
    names = (*files, *more)
    if not names:
        raise click.UsageError("nothing to convert: give files with -f")
    items = [item for _, item, _ in generations.raw(names)]
    source = generations.chosen(items, source, readable=SOURCES)
    if source == target:
        raise click.UsageError(f"the input is already {source}")
    scene = read_scene(names, source)
    objects = WRITERS[target](scene).objects()
    echo_objects(objects, output)
    for note in dict.fromkeys(scene.notes):
        click.echo(f"{note.level}: {note}", err=True)
    if any(note.level == "lost" for note in scene.notes):
        raise click.exceptions.Exit(1)


def read_scene(names: tuple[str, ...], source: str) -> Scene:
    """Return the objects of files of a generation; exit with code 2 if they are invalid."""
    if source == "classic":
        return classic.read([item for _, item, _ in generations.raw(names)])
    if source == "v1":
        objects: list[JsonDict] = [item for _, item, _ in generations.raw(names)]
    else:
        objects = generations.good(generations.read(names, source))
    return reading.read(objects, source)
