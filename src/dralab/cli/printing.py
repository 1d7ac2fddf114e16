"""Objects as YAML on standard output."""

from collections.abc import Iterable, Iterator
from typing import Any, Final

import click
import yaml

# libyaml writes the same text about five times as fast.
DUMPER: Final[Any] = getattr(yaml, "CSafeDumper", yaml.SafeDumper)


def yaml_texts(objects: Iterable[Any]) -> Iterator[str]:
    """Yield the text of each object; together they are one stream of YAML documents."""
    start = ""
    for obj in objects:
        yield start + yaml.dump(obj, Dumper=DUMPER, sort_keys=False)
        start = "---\n"


def echo_yaml(objects: Iterable[Any]) -> None:
    """Print objects one by one: with `| head` behind it, a command ends after a few of many."""
    for text in yaml_texts(objects):
        click.echo(text, nl=False)
