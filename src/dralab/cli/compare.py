"""`dralab compare`: whether API generations give the same pods the same devices, and how well."""

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import click

from dralab.cli import generations
from dralab.cli._options import FILE, arg, opt, options
from dralab.cli._output import echo_json, echo_table, formats
from dralab.cli._own_generation import api_option, named
from dralab.cli._terminal import echo
from dralab.cli.convert import WRITERS, scene_of, target_of, written
from dralab.cli.errors import UnusableInput
from dralab.objects.metadata import full_key
from dralab.prototypes.conversion.neutral import Note
from dralab.prototypes.placement import PlacedPod
from dralab.prototypes.scoring import DesignScore, repeated
from dralab.prototypes.scoring import score as score_of
from dralab.values.json_types import JsonDict

ABSENT: Final = "not in the input"


@dataclass(frozen=True, slots=True)
class PodAnswer:
    """What a pod gets in one generation: a node and devices as pool/device, or neither."""

    node: str
    devices: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.node}: {' '.join(self.devices)}" if self.node else "unschedulable"


@click.command(
    epilog="""Examples:

\b
  dralab compare old.yaml today.yaml            (two generations, one file each or mixed)
  dralab compare -f k8srm/ --to v1            (convert, then compare)
  dralab compare -f k8srm/ --to v1 --to evolution --score --times 20 --write score.svg

\b
What --score prints:
  pods placed    of those that ask for devices
  capacity left  devices that can still be allocated; a partitioned card counts as
                 one, and its rest as the share of its partitions that are left
  ways           sets of devices that a pod could get from the empty fleet: the
                 least and the median
  oversized      the part of the allocated capacity that the smallest possible
                 choice would have left
  useless        the part of the rest that no further pod of the load could use
"""
)
@options
def compare(
    *,
    files: tuple[str, ...] = generations.FILES,
    api: str | None = api_option(generations.READABLE),
    more: tuple[str, ...] = arg(metavar="[FILE]..."),
    others: tuple[str, ...] = opt(
        "Convert the input to this generation and compare with it. May be repeated.",
        flags="--to",
        metavar=f"{'|'.join(WRITERS)}|FILE.py|NAME",
    ),
    score: bool = opt("Print numbers of each generation instead; one generation is enough."),
    times: int = opt(
        "With --score: repeat each pod of the input this many times.",
        least=1,
        most=1_000,
        default=1,
    ),
    picture: Path | None = opt(
        "With --score: draw the numbers into this SVG file.", FILE, flags="--write"
    ),
    output: str = formats("table", "json"),
) -> None:
    """Schedule the same pods in several API generations and compare their devices.

    What a conversion loses is listed on stderr, with a suggestion.
    --score measures how each API serves the pods without a node, in the order of the input.

    Exit code 0: the devices are the same, or --score; 1: they differ; 2: bad input.
    """
    names = (*files, *more)
    if not names:
        raise click.UsageError("nothing to compare: give files")
    if not score and (times > 1 or picture is not None):
        raise click.UsageError("--times and --write need --score")
    inputs = _inputs(names, api)
    lost = _converted(inputs, others)
    if len(inputs) < 2 and not score:
        read = ", ".join(sorted(inputs)) or "none"
        raise click.UsageError(f"need input of two generations, found {read}; or add --to")
    if score:
        scores = {
            name: score_of(named(name).cluster(repeated(objects, times)))
            for name, objects in inputs.items()
        }
        _print_scores(scores, lost, output)
        if picture is not None:
            _draw(scores, picture)
        same = True
    else:
        same = _print({name: _answers(name, objects) for name, objects in inputs.items()}, output)
    for note in lost:
        echo(f"{note.level}: {note}", err=True)
    sys.exit(0 if same else 1)


def _inputs(names: Sequence[str], given: str | None) -> dict[str, list[JsonDict]]:
    """Return the objects of each generation; a file belongs to the one it names."""
    found: dict[str, list[JsonDict]] = {}
    for name in names:
        api = generations.chosen(
            (item for _, item, _ in generations.raw([name])), given, readable=generations.READABLE
        )
        found.setdefault(api, []).extend(generations.objects([name], api))
    return found


def _converted(inputs: dict[str, list[JsonDict]], targets: Sequence[str]) -> list[Note]:
    """Add the input in other generations; return what is lost on the way."""
    if not targets:
        return []
    targets = [target_of(each) for each in targets]
    read = ", ".join(sorted(inputs))
    if len(inputs) != 1 or set(targets) & set(inputs):
        raise click.UsageError(
            f"--to {targets[0]} needs input of exactly one other generation, not {read}"
        )
    [(source, objects)] = inputs.items()
    lost: list[Note] = []
    for target in targets:
        scene = scene_of(objects, source)
        inputs[target] = _normalized(written(scene, target), target)
        lost += [note for note in scene.notes if note.level == "lost"]
    return list(dict.fromkeys(lost))


def _normalized(objects: Sequence[JsonDict], api: str) -> list[JsonDict]:
    reports = [named(api).read(item) for item in objects]
    problems = [str(f) for r in reports for f in r.findings if f.level == "invalid"]
    if problems:
        raise click.UsageError(f"the conversion is not valid {api}: {problems[0]}")
    return [report.document for report in reports]


def _answers(api: str, objects: Sequence[JsonDict]) -> dict[str, PodAnswer]:
    cluster = named(api).cluster(objects)
    found = {}
    # The second pod of a shared claim gets the devices that the first one got.
    held: dict[tuple[str, str], list[str]] = {}
    for pod in cluster.pods():
        placed = cluster.place(pod)
        name = pod["metadata"]["name"]
        if not isinstance(placed, PlacedPod):
            found[name] = PodAnswer("", ())
            continue
        cluster.apply(placed)
        claims = [full_key(claim) for claim in placed.claims]
        for namespace, claim in claims:
            # A conversion to dra-evolution may prefix a device's name with its pool's.
            mine = [
                f"{device.pool}/{device.device.removeprefix(f'{device.pool}-')}"
                for device in placed.devices
                if device.claim == claim
            ]
            if mine:
                held[namespace, claim] = mine
        devices = sorted(device for key in claims for device in held.get(key, ()))
        found[name] = PodAnswer(placed.node, tuple(devices))
    return found


def _print(answers: Mapping[str, Mapping[str, PodAnswer]], output: str) -> bool:
    pods = list(dict.fromkeys(pod for each in answers.values() for pod in each))
    rows = [(pod, [each.get(pod) for each in answers.values()]) for pod in pods]
    if output == "json":
        echo_json(
            [
                {"pod": pod, "same": _same(found), **dict(zip(answers, _told(found), strict=True))}
                for pod, found in rows
            ]
        )
    else:
        table = [("POD", "SAME", *(name.upper() for name in answers))]
        table += [(pod, "yes" if _same(found) else "NO", *_told(found)) for pod, found in rows]
        echo_table(table)
    return all(_same(found) for _, found in rows)


def _same(found: Sequence[PodAnswer | None]) -> bool:
    return len(set(found)) == 1


def _told(found: Sequence[PodAnswer | None]) -> list[str]:
    return [ABSENT if each is None else str(each) for each in found]


def _print_scores(scores: Mapping[str, DesignScore], lost: Sequence[Note], output: str) -> None:
    if output == "json":
        told = [
            {"object": note.object, "field": note.field, "message": note.message} for note in lost
        ]
        numbers = {name: each.document() for name, each in scores.items()}
        echo_json({"generations": numbers, "lost": told})
        return
    found = list(scores.values())
    echo_table(
        [
            ("", *(name.upper() for name in scores)),
            ("pods placed", *(f"{each.placed} of {each.pods}" for each in found)),
            ("capacity left", *(f"{float(each.left):.1f} of {each.units}" for each in found)),
            ("ways, least", *(_ways(each, each.least_ways) for each in found)),
            ("ways, median", *(_ways(each, each.median_ways) for each in found)),
            ("oversized", *(f"{float(each.oversized):.0%}" for each in found)),
            ("useless", *(f"{float(each.useless):.0%}" for each in found)),
        ]
    )


def _ways(score: DesignScore, count: int) -> str:
    return f"{count} or more" if count >= score.most_ways else str(count)


def _draw(scores: Mapping[str, DesignScore], path: Path) -> None:
    from dralab.prototypes.score_picture import picture

    try:
        path.write_text(picture(scores), encoding="utf-8")
    except OSError as error:
        raise UnusableInput(f"{path}: cannot be written: {error.strerror}") from None
