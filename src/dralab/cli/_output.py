"""The output of commands: the option -o, and one writer for each of its formats."""

import sys
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any, Final

import click
import orjson
import yaml

from dralab.cli._options import opt
from dralab.cli._terminal import echo, echo_json_text, escaped
from dralab.values.json_types import JsonDict

# libyaml writes the same text about five times as fast.
DUMPER: Final[Any] = getattr(yaml, "CSafeDumper", yaml.SafeDumper)
MOST_PROBLEMS: Final = 100


def formats(*names: str) -> Any:
    """Declare the option `-o`; the first format is the default."""
    return opt("Output format.", names, flags="-o --output", default=names[0])


def places(paths: Iterable[Path], *endings: str) -> dict[str, Path]:
    """Return the paths of --write by their endings; "" is that of a directory. BadParameter."""
    found: dict[str, Path] = {}
    for path in paths:
        ending = path.suffix if path.suffix in endings else ""
        if ending not in endings:
            raise click.BadParameter(
                f"{path} does not end in {' or '.join(endings)}", param_hint="--write"
            )
        if ending in found:
            raise click.BadParameter(
                f"{path} and {found[ending]}: give one of them", param_hint="--write"
            )
        found[ending] = path
    return found


def echo_json(value: object) -> None:
    """Print a value as indented JSON."""
    echo_json_text(orjson.dumps(value, option=orjson.OPT_INDENT_2))


def yaml_texts(objects: Iterable[Any]) -> Iterator[str]:
    """Yield the text of each object; together they are one stream of YAML documents."""
    start = ""
    for obj in objects:
        yield start + yaml.dump(obj, Dumper=DUMPER, sort_keys=False)
        start = "---\n"


POLICY: Final = "dralab.dev/policy"
"""The annotation of claims whose node and devices another policy than Kubernetes' has chosen."""


def chosen_by(policy: str, objects: Iterable[JsonDict]) -> list[JsonDict]:
    """Return placed objects with the name of the policy that chose for them."""
    return [
        item
        | {
            "metadata": item["metadata"]
            | {"annotations": {**(item["metadata"].get("annotations") or {}), POLICY: policy}}
        }
        for item in objects
    ]


def echo_objects(objects: Iterable[Any], output: str) -> None:
    """Print Kubernetes objects: as a List (json), or as YAML documents.

    YAML is printed object by object, so `| head` ends the command after the first few.
    """
    if output == "json":
        echo_json({"apiVersion": "v1", "kind": "List", "items": list(objects)})
        return
    for text in yaml_texts(objects):
        echo(text, nl=False)


def echo_table(
    rows: Sequence[Sequence[str]], gap: int = 2, *, numbers: Collection[int] = ()
) -> None:
    """Print rows in columns, `gap` spaces apart; the first row holds the headings.

    The columns of `numbers` are aligned to the right.
    """
    for line in table_lines(rows, gap, numbers=numbers):
        echo(line)


def table_lines(
    rows: Sequence[Sequence[str]], gap: int = 2, *, numbers: Collection[int] = ()
) -> Iterator[str]:
    """Yield rows as lines of columns, `gap` spaces apart, as `echo_table` prints them."""
    shown = [[escaped(cell).replace("\n", "\\n") for cell in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(*shown, strict=True)]
    for row in shown:
        cells = [
            cell.rjust(width) if place in numbers else cell.ljust(width)
            for place, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        yield (" " * gap).join(cells).rstrip()


def echo_values(values: Mapping[str, Any], output: str) -> None:
    """Print named values as JSON, YAML or a table of two columns."""
    if output == "json":
        echo_json(values)
    elif output == "yaml":
        echo(yaml.dump(dict(values), Dumper=DUMPER, sort_keys=False), nl=False)
    else:
        width = max((len(key) for key in values), default=0)
        for key, value in values.items():
            echo(f"{key.ljust(width)}  {_cell(value)}")


def refuse(problems: Sequence[object], helps: Iterable[str] = ()) -> None:
    """Print the problems of the input and exit with code 2, if there are any; then what helps."""
    if not problems:
        return
    for problem in problems[:MOST_PROBLEMS]:
        echo(f"Error: {problem}", err=True)
    more = len(problems) - MOST_PROBLEMS
    if more > 0:
        echo(f"Error: and {more} more", err=True)
    for text in islice(helps, MOST_PROBLEMS):
        echo(text, err=True)
    sys.exit(2)


def _cell(value: object) -> str:
    return f"{value:.6f}".rstrip("0").rstrip(".") if isinstance(value, float) else str(value)
