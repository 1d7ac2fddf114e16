"""Maps images to programs on this machine: to a command, a folder of programs, or an image's files.

A command takes the place of the container's own. A folder, marked by a final slash, goes before
`PATH`, and the container's own command stays: containers of one image stay apart. A command after
the folder is for the containers that have none, as the entry point of an image is; one after `--`
only for those without arguments too, as the default command of an image is. A directory marked by
a final `/.` has the files of an image, which a container finds at their paths
(`mount_launcher`). Of both, a volume of the image has the files.
"""

import os
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Final

from dralab.api.yaml_documents import YamlError, single
from dralab.files.reading import read, read_within, real_within
from dralab.node.containers import ContainerStart, ContainerStartError
from dralab.values.records import dataclass

FILES: Final = "/."
# Before the command of containers that have neither a command nor arguments.
DEFAULTS: Final = "--"


class ImageMapError(ValueError):
    """An entry of the image map that cannot be used; the text says what would be right."""


@dataclass(frozen=True, slots=True)
class Mapped:
    """A mapped container: its command line, and where programs are searched."""

    argv: Sequence[str]
    folder: str = ""
    # The directory with the files of the image.
    files: str = ""


def image_map(entries: Sequence[str]) -> dict[str, list[str]]:
    """Return image → words of the command, or one folder that ends in a slash.

    Entries are `IMAGE=COMMAND`, `IMAGE=/FOLDER/`, `IMAGE=/FOLDER/ COMMAND`, `IMAGE=/FILES/.`,
    `IMAGE=/FILES/. COMMAND`, `IMAGE=/FILES/. -- COMMAND`, or `@FILE` of YAML; `@DIRECTORY` reads
    all its `*.yaml` files by name. `IMAGE#CONTAINER` is for one container of that image alone.
    ImageMapError.

    >>> image_map(["ghcr.io/x/plugin:v1=/opt/plugin -v 5"])
    {'ghcr.io/x/plugin:v1': ['/opt/plugin', '-v', '5']}
    """
    found: dict[str, list[str]] = {}
    for entry in entries:
        if entry.startswith("@"):
            for path, content in _files(Path(entry[1:])):
                found.update(_file(path, content))
            continue
        image, equals, command = entry.partition("=")
        if not equals or not image:
            raise ImageMapError(
                f'"{entry}" must be IMAGE=COMMAND, IMAGE=/FOLDER/, IMAGE=/FILES/. or @FILE'
            )
        found[image] = _words(image, command)
    return found


def mapped(start: ContainerStart, images: Mapping[str, Sequence[str]]) -> Mapped | None:
    """Return the mapped command of a container; None if the map has no entry.

    ContainerStartError: the entry is a directory, and the container has no command.
    """
    name = _untagged(start.image)
    key = _key(images, f"{start.image}#{start.name}", f"{name}#{start.name}", start.image, name)
    if key is None:
        return None
    words = images[key]
    if not _has_directory(words):
        return Mapped([*words, *start.args])
    directory, after = words[0], words[1:]
    has_defaults = after[:1] == [DEFAULTS]
    if len(start.argv) <= len(start.args) and after and not has_defaults:
        argv = [*after, *start.args]
    elif start.argv:
        argv = [*start.argv]
    elif has_defaults:
        argv = [*after[1:]]
    else:
        raise ContainerStartError(
            f"container {start.name} has no command: `--image-map {key}={directory}` keeps the "
            "container's own command, so give it one, or name a command after the directory"
        )
    if directory.endswith(FILES):
        return Mapped(argv, files=directory.removesuffix("/."))
    return Mapped([in_folder(directory, argv[0]), *argv[1:]], directory)


def with_image_volumes(
    start: ContainerStart, images: Mapping[str, Sequence[str]]
) -> ContainerStart:
    """Return a container whose volumes of images are directories of this machine, to be read only.

    ContainerStartError: an image is not mapped to a directory, or lacks what is mounted of it.
    """
    mounts = []
    for mount in start.config.mounts:
        image = mount.get("image")
        if not image:
            mounts.append(mount)
            continue
        key = _key(images, image, _untagged(image))
        if key is None or not _has_directory(images[key]):
            raise ContainerStartError(
                f'image "{image}" of volume {mount["volume"]} has no files on this machine: give '
                f"the server `--image-map {image}=/DIRECTORY/.`"
            )
        files = Path(images[key][0])
        part = os.path.normpath(f"/{mount.get('subPath') or ''}").lstrip("/")
        try:
            found = real_within(files, files / part)
        except OSError as error:
            raise ContainerStartError(
                f'image "{image}" of volume {mount["volume"]}: {mount["subPath"]}: {error.strerror}'
            ) from error
        if not found.exists():
            raise ContainerStartError(
                f'image "{image}" of volume {mount["volume"]} has no {mount["subPath"]}'
            )
        # The part is looked at again when it is mounted: until then it may become a link.
        mounts.append({**mount, "hostPath": str(files), "subPath": part, "readOnly": True})
    return replace(start, config=replace(start.config, mounts=mounts))


def _untagged(image: str) -> str:
    name = image.partition("@")[0]
    return name.rpartition(":")[0] if ":" in name.rpartition("/")[2] else name


def _key(images: Mapping[str, Sequence[str]], *names: str) -> str | None:
    return next((name for name in names if name in images), None)


def _has_directory(words: Sequence[str]) -> bool:
    return words[0].startswith("/") and words[0].endswith(("/", FILES))


def in_folder(folder: str, program: str) -> str:
    """Return a program as it is, or by its name if its path exists only in the image."""
    instead = Path(folder, Path(program).name)
    if program.startswith("/") and not Path(program).exists() and instead.is_file():
        return str(instead)
    return program


def _files(path: Path) -> list[tuple[Path, Callable[[], bytes]]]:
    if not path.is_dir():
        return [(path, partial(read, path))]
    found = sorted(path.glob("*.yaml"))
    if not found:
        raise ImageMapError(f"{path}: no *.yaml files in this directory")
    return [(each, partial(read_within, path, each)) for each in found]


def _file(path: Path, content: Callable[[], bytes]) -> dict[str, list[str]]:
    try:
        document: Any = single(content())
    except OSError as error:
        raise ImageMapError(f"{path}: {error.strerror}") from error
    except YamlError as error:
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
    if words[0].endswith(FILES) and not Path(words[0]).is_dir():
        raise ImageMapError(f"{image}: {words[0]} is not a directory with the files of an image")
    if _has_directory(words) and words[1:] == [DEFAULTS]:
        raise ImageMapError(f"{image}: no command after {DEFAULTS}: write {words[0]} -- COMMAND")
    return words
