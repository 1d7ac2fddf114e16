"""Maps images to programs on this machine: to a command, or to a folder of programs.

A command takes the place of the container's own. A folder, marked by a final slash, goes before
`PATH`, and the container's own command stays: containers of one image stay apart. A command after
the folder is for the containers that have none, as the entry point of an image is.
"""

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dralab.api.yaml_documents import YamlError, single
from dralab.node.containers import ContainerStart, ContainerStartError


class ImageMapError(ValueError):
    """An entry of the image map that cannot be used; the text says what would be right."""


@dataclass(frozen=True, slots=True)
class Mapped:
    """What the map makes of a container: its command line, and where programs are looked for."""

    argv: Sequence[str]
    folder: str = ""


def image_map(entries: Sequence[str]) -> dict[str, list[str]]:
    """Return image → words of the command, or one folder that ends in a slash.

    Entries are `IMAGE=COMMAND`, `IMAGE=/FOLDER/`, `IMAGE=/FOLDER/ COMMAND`, or `@FILE` of YAML;
    `@DIRECTORY` reads all its `*.yaml` files by name. `IMAGE#CONTAINER` is for one container of
    that image alone. ImageMapError.

    >>> image_map(["ghcr.io/x/plugin:v1=/opt/plugin -v 5"])
    {'ghcr.io/x/plugin:v1': ['/opt/plugin', '-v', '5']}
    """
    found: dict[str, list[str]] = {}
    for entry in entries:
        if entry.startswith("@"):
            for path in _files(Path(entry[1:])):
                found.update(_file(path))
            continue
        image, equals, command = entry.partition("=")
        if not equals or not image:
            raise ImageMapError(f'"{entry}" is none of IMAGE=COMMAND, IMAGE=/FOLDER/ and @FILE')
        found[image] = _words(image, command)
    return found


def mapped(start: ContainerStart, images: Mapping[str, Sequence[str]]) -> Mapped | None:
    """Return what the map makes of a container; None if it has no entry for it.

    ContainerStartError: the entry is a folder, and the container has no command.
    """
    image = start.image
    name = image.partition("@")[0]
    if ":" in name.rpartition("/")[2]:
        name = name.rpartition(":")[0]
    for key in (f"{image}#{start.name}", f"{name}#{start.name}", image, name):
        if key not in images:
            continue
        words = images[key]
        if not _has_folder(words):
            return Mapped([*words, *start.args])
        if len(start.argv) <= len(start.args) and len(words) > 1:
            return Mapped([in_folder(words[0], words[1]), *words[2:], *start.args], words[0])
        if not start.argv:
            raise ContainerStartError(
                f"container {start.name} has no command: `--image-map {key}={words[0]}` keeps the "
                "container's own command, so give it one, or name a command after the folder"
            )
        return Mapped([in_folder(words[0], start.argv[0]), *start.argv[1:]], words[0])
    return None


def _has_folder(words: Sequence[str]) -> bool:
    return words[0].startswith("/") and words[0].endswith("/")


def in_folder(folder: str, program: str) -> str:
    """Return a program as it is, but for a path that only the image has: then by its name."""
    instead = Path(folder, Path(program).name)
    if program.startswith("/") and not Path(program).exists() and instead.is_file():
        return str(instead)
    return program


def _files(path: Path) -> list[Path]:
    if not path.is_dir():
        return [path]
    found = sorted(path.glob("*.yaml"))
    if not found:
        raise ImageMapError(f"{path}: no *.yaml files in this directory")
    return found


def _file(path: Path) -> dict[str, list[str]]:
    try:
        document: Any = single(path.read_bytes())
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
