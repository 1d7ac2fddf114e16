"""`dralab convert`: convert objects from one API generation to another."""

import copy
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import click

from dralab.api.decoding import decoder_of
from dralab.api.kinds import releases_with
from dralab.api.resource import conversion
from dralab.api.resource.types import GROUP, KINDS, VERSIONS
from dralab.cli import generations
from dralab.cli._components import RELEASE, release_of
from dralab.cli._options import arg, opt, options
from dralab.cli._output import echo_objects, formats
from dralab.cli._own_generation import api_option, load, own
from dralab.cli._terminal import echo
from dralab.prototypes import own_conversion
from dralab.prototypes.conversion import reading
from dralab.prototypes.conversion.neutral import Scene
from dralab.prototypes.conversion.to_evolution import ToEvolution
from dralab.prototypes.conversion.to_k8srm import ToK8srm
from dralab.prototypes.conversion.to_v1 import ToV1
from dralab.prototypes.conversion.writing import SceneWriter
from dralab.prototypes.own import OwnGeneration
from dralab.values.json_types import JsonDict

WRITERS: Mapping[str, Callable[[Scene], SceneWriter]] = {
    "v1": ToV1,
    "evolution": ToEvolution,
    "k8srm": ToK8srm,
}


@click.command(epilog="Example: dralab convert --to v1 -f k8srm-manifests/ > today.yaml")
@options
def convert(
    *,
    files: tuple[str, ...] = generations.FILES,
    more: tuple[str, ...] = arg(metavar="[FILE]..."),
    target: str = opt(
        "The API generation to write, or a version of today's.",
        flags="--to",
        metavar=f"{'|'.join([*WRITERS, *VERSIONS[1:]])}|FILE.py|NAME",
    ),
    kubernetes_version: str = RELEASE,
    source: str | None = api_option(generations.READABLE),
    output: str = formats("yaml", "json"),
) -> None:
    """Convert classes, claims, pools and pods to another API generation or version.

    --kubernetes-version writes versions and fields of resource.k8s.io that a release has; without
    --to, its preferred ones. What the other generation cannot express is reported on stderr, with a
    suggestion. Exit code 0: nothing is lost; 1: something is lost; 2: bad input.
    """
    names = (*files, *more)
    if not names:
        raise click.UsageError("nothing to convert: give files with -f")
    if not target and not kubernetes_version:
        raise click.UsageError("say what to write: --to, --kubernetes-version, or both")
    version = target if target in VERSIONS else ""
    if version or not target:
        target = "v1"
    target = target_of(target)
    if kubernetes_version and target != "v1":
        raise click.UsageError(f"--kubernetes-version is for resource.k8s.io, not for {target}")
    items = [item for _, item, _ in generations.raw(names)]
    source = generations.chosen(items, source, readable=generations.READABLE)
    written_so = {item.get("apiVersion") for item in items} <= {f"{GROUP}/{version}", "v1"}
    if source == target == "v1" and (kubernetes_version or not written_so):
        _write_versions(items, version, kubernetes_version, output)
        return
    if source == target:
        raise click.UsageError(f"the input is already {source}")
    scene = read_scene(names, source)
    objects = written(scene, target)
    for note in dict.fromkeys(scene.notes):
        echo(f"{note.level}: {note}", err=True)
    if version not in {"", "v1"} or kubernetes_version:
        _write_versions(objects, version, kubernetes_version, output)
    else:
        echo_objects(objects, output)
    if any(note.level == "lost" for note in scene.notes):
        raise click.exceptions.Exit(1)


def _write_versions(items: Sequence[JsonDict], version: str, release: str, output: str) -> None:
    """Write objects of resource.k8s.io in a version of it; exit with code 1 if any are lost."""
    from dralab.cli.convert import in_version

    objects, lost = in_version(items, version, release_of(release))
    echo_objects(objects, output)
    for text in lost:
        echo(f"lost: {text}", err=True)
    if lost:
        raise click.exceptions.Exit(1)


def target_of(target: str) -> str:
    """Return the name of the generation to write. UsageError for one without a writer."""
    if target in WRITERS:
        return target
    if target in generations.READABLE:
        raise click.BadParameter(f"{target!r} cannot be written", param_hint="--to")
    mine = own()
    if mine is None or target != mine.name:
        mine = load(click.get_current_context(), target)
    if not getattr(mine, "writes", False):
        raise click.UsageError(
            f"{mine.name} cannot be written: its class does not define write(scene)"
        )
    return mine.name


def written(scene: Scene, target: str) -> list[JsonDict]:
    """Return the objects of a scene in a generation that `target_of` returns."""
    if target in WRITERS:
        return WRITERS[target](scene).objects()
    mine = own()
    assert isinstance(mine, OwnGeneration)  # noqa: S101 - as `target_of` saw
    return list(mine.write(scene))


def scene_of(objects: Sequence[JsonDict], source: str) -> Scene:
    """Return what normalized objects of a generation mean."""
    mine = own()
    if isinstance(mine, OwnGeneration) and source == mine.name:
        return own_conversion.read(mine, objects)
    return reading.read(objects, source)


def read_scene(names: tuple[str, ...], source: str) -> Scene:
    """Return the objects of files of a generation; exit with code 2 if they are invalid."""
    objects = generations.good(generations.read(names, source))
    if source == "v1":  # as they were written, without the defaults of the hub
        objects = [item for _, item, _ in generations.raw(names)]
    return scene_of(objects, source)


def in_version(
    items: Iterable[JsonDict], version: str, release: str
) -> tuple[list[JsonDict], list[str]]:
    """Return the objects in a version, and the fields that are lost.

    Without a `version` each is in the preferred one that the release has. With a release, fields
    that it does not have are left out. Objects of other groups stay as they are.
    """
    found: list[JsonDict] = []
    lost: list[str] = []
    for item in items:
        kind = str(item.get("kind"))
        if str(item.get("apiVersion", "")).partition("/")[0] != GROUP or kind not in KINDS:
            found.append(item)
            continue
        name = f"{kind} {(item.get('metadata') or {}).get('name', '')}"
        wanted = _version_of(kind, version, release)
        if not wanted:
            where = f"Kubernetes {release}" if release else GROUP
            lost.append(f"{name}: {where} has no {f'{version} ' if version else ''}{kind}")
            continue
        made = conversion.convert(item, wanted)
        if release:
            made, unknown = _of_release(made, release)
            lost += [f"{name}: {path}: {release} has no such field" for path in unknown]
        found.append(made)
    return found, lost


def _version_of(kind: str, version: str, release: str) -> str:
    """Return the version to use for a kind; "" if there is none."""
    for known in KINDS[kind]:
        served = not release or release in releases_with(f"{GROUP}/{known}", kind)
        if served and version in {"", known}:
            return known
    return ""


def _of_release(value: JsonDict, release: str) -> tuple[JsonDict, list[str]]:
    decoder = decoder_of(value["apiVersion"], value["kind"], release)
    if decoder is None:
        return value, []
    decoded, unknown = decoder.decode(copy.deepcopy(value))
    return (_kept(value, decoded), unknown) if unknown else (value, [])


def _kept(given: Any, known: Any) -> Any:
    """Return the input without unknown fields; empty ones count as unknown."""
    if isinstance(given, Mapping) and isinstance(known, Mapping):
        return {
            name: _kept(value, known.get(name, value))
            for name, value in given.items()
            if name in known or not value
        }
    if isinstance(given, list) and isinstance(known, list):
        return [_kept(one, other) for one, other in zip(given, known, strict=True)]
    return given
