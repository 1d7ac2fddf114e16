"""Maps images to programs on this machine."""

import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from dralab.api.yaml_documents import YamlError, single
from dralab.node.containers import ContainerStart


class ImageMapError(ValueError):
    """An entry of the image map that cannot be used; the text says what would be right."""


def image_map(entries: Sequence[str]) -> dict[str, list[str]]:
    """Return image → words of the command, from `IMAGE=COMMAND` and from `@FILE` of YAML.

    `IMAGE#CONTAINER` is for one container of that image alone. ImageMapError.

    >>> image_map(["ghcr.io/x/plugin:v1=/opt/plugin -v 5"])
    {'ghcr.io/x/plugin:v1': ['/opt/plugin', '-v', '5']}
    """
    found: dict[str, list[str]] = {}
    for entry in entries:
        if entry.startswith("@"):
            found.update(_file(Path(entry[1:])))
            continue
        image, equals, command = entry.partition("=")
        if not equals or not image:
            raise ImageMapError(f'"{entry}" is neither IMAGE=COMMAND nor @FILE')
        found[image] = _words(image, command)
    return found


def command_of(start: ContainerStart, images: Mapping[str, Sequence[str]]) -> list[str] | None:
    """Return the command line that the map has for a container; None if it has none.

    The map's command takes the place of the container's `command`; its `args` stay.
    """
    image = start.image
    name = image.partition("@")[0]
    if ":" in name.rpartition("/")[2]:
        name = name.rpartition(":")[0]
    for key in (f"{image}#{start.name}", f"{name}#{start.name}", image, name):
        if key in images:
            return [*images[key], *start.args]
    return None


def _file(path: Path) -> dict[str, list[str]]:
    try:
        document: Any = single(path.read_text(encoding="utf-8"))
    except (OSError, YamlError) as error:
        raise ImageMapError(f"{path}: {error}") from error
    if not isinstance(document, Mapping):
        raise ImageMapError(f"{path}: not a mapping of images to commands")
    found = {}
    for image, command in document.items():
        if isinstance(command, list) and all(isinstance(word, str) for word in command) and command:
            found[str(image)] = list(command)
        elif isinstance(command, str):
            found[str(image)] = _words(str(image), command)
        else:
            raise ImageMapError(f"{path}: {image}: neither a string nor a list of strings")
    return found


def _words(image: str, command: str) -> list[str]:
    try:
        words = shlex.split(command)
    except ValueError as error:
        raise ImageMapError(f"{image}: {command!r}: {error}") from error
    if not words:
        raise ImageMapError(f"{image}: the command is missing: write IMAGE=COMMAND")
    return words
