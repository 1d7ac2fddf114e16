"""`dralab compare`: whether two API generations give the same pods the same devices."""

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import click

from dralab.cli import generations
from dralab.cli._output import echo_json, echo_table, output_option
from dralab.cli._own_generation import generation_option, named
from dralab.cli.convert import WRITERS, check_target, scene_of, written
from dralab.prototypes.placement import PlacedPod
from dralab.values.json_types import JsonDict


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
  dralab compare -f k8srm/ --with v1            (convert, then compare)
"""
)
@generations.files_option
@generation_option
@click.argument("more", nargs=-1, metavar="[FILE]...")
@click.option(
    "--with",
    "other",
    metavar=f"{'|'.join(WRITERS)}|NAME",
    help="Convert the input to this generation and compare with it.",
)
@output_option("table", "json")
def compare(files: tuple[str, ...], more: tuple[str, ...], other: str | None, output: str) -> None:
    """Schedule the same pods in two API generations and compare their devices.

    Exit code 0: the devices are the same; 1: they differ; 2: bad input.
    """
    names = (*files, *more)
    if not names:
        raise click.UsageError("nothing to compare: give files")
    inputs = _inputs(names)
    if other is not None:
        check_target(other)
        if len(inputs) != 1 or other in inputs:
            found = ", ".join(sorted(inputs))
            raise click.UsageError(
                f"--with {other} needs input of exactly one other generation, not {found}"
            )
        [(source, objects)] = inputs.items()
        inputs[other] = _normalized(written(scene_of(objects, source), other), other)
    if len(inputs) != 2:
        found = ", ".join(sorted(inputs)) or "none"
        raise click.UsageError(f"need input of two generations, found {found}; or add --with")
    answers = {name: _answers(name, objects) for name, objects in inputs.items()}
    same = _print(answers, output)
    sys.exit(0 if same else 1)


def _inputs(names: Sequence[str]) -> dict[str, list[JsonDict]]:
    """Return the objects of each generation; a file belongs to the one it names."""
    found: dict[str, list[JsonDict]] = {}
    for name in names:
        api = generations.chosen((item for _, item, _ in generations.raw([name])), None)
        found.setdefault(api, []).extend(generations.objects([name], api))
    return found


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
        claims = [_key(claim) for claim in placed.claims]
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


def _key(claim: JsonDict) -> tuple[str, str]:
    return claim["metadata"].get("namespace") or "default", claim["metadata"]["name"]


def _print(answers: Mapping[str, Mapping[str, PodAnswer]], output: str) -> bool:
    first, second = answers
    pods = list(dict.fromkeys([*answers[first], *answers[second]]))
    nothing = PodAnswer("", ())
    rows = [
        (pod, answers[first].get(pod, nothing), answers[second].get(pod, nothing)) for pod in pods
    ]
    if output == "json":
        found: Any = [
            {"pod": pod, "same": a == b, first: str(a), second: str(b)} for pod, a, b in rows
        ]
        echo_json(found)
    else:
        table = [("POD", "SAME", first.upper(), second.upper())]
        table += [(pod, "yes" if a == b else "NO", str(a), str(b)) for pod, a, b in rows]
        echo_table(table)
    return all(a == b for _, a, b in rows)
