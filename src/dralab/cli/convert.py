"""`dralab convert`: objects of one API generation as objects of another."""

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

# Classic DRA is read only.
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
    """Translate classes, claims, pools and pods as far as their meaning carries over.

    Each thing that does not is named on standard error, with a suggestion. Exit code 1 where
    something is lost; 0 where at most the words changed.
    """
    names = (*files, *more)
    if not names:
        raise click.UsageError("nothing to convert: give files with -f")
    items = [item for _, item, _ in generations.raw(names)]
    source = generations.chosen(items, source, readable=SOURCES)
    if source == target:
        raise click.UsageError(f"the input is {source} already")
    scene = read_scene(names, source)
    objects = WRITERS[target](scene).objects()
    echo_objects(objects, output)
    for note in dict.fromkeys(scene.notes):
        click.echo(f"{note.level}: {note}", err=True)
    if any(note.level == "lost" for note in scene.notes):
        raise click.exceptions.Exit(1)


def read_scene(names: tuple[str, ...], source: str) -> Scene:
    """Return what files of a generation mean; exit code 2 where they are invalid."""
    if source == "classic":
        return classic.read([item for _, item, _ in generations.raw(names)])
    if source == "v1":
        objects: list[JsonDict] = [item for _, item, _ in generations.raw(names)]
    else:
        objects = generations.good(generations.read(names, source))
    return reading.read(objects, source)
