"""The mounts of a container of the process runtime: directories on this machine.

Each volume of a pod is a directory beside those of its containers; what it shows of other objects
is written by `atomic_files`. A container sees it through a link below its own directory, or through
a mount namespace (`mount_namespaces`).
"""

import contextlib
import os
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

import orjson

from dralab.node.atomic_files import write_files
from dralab.node.containers import ContainerStart, ContainerStartError, VolumeFile
from dralab.node.mount_namespaces import SPEC as NAMESPACE
from dralab.node.mount_namespaces import NodePaths, launching, part_of, spec_of

MEMORY: Final = "memory"
"""The link beside the directories of the pods that leads to those of their volumes in memory."""
SHARED_MEMORY: Final = Path("/dev/shm")  # noqa: S108 - a file system in memory, as the volume wants
OPEN_TO_ALL: Final = 0o777  # kubelet: a pod's users are not known


def below(directory: Path, path: str) -> Path:
    """Return a container's path on this machine; `..` cannot leave its root."""
    return directory / os.path.normpath(f"/{path.lstrip('/')}").lstrip("/")


def message_file(start: ContainerStart, directory: Path, paths: object) -> Path:
    """Return the termination message's path on this machine; `paths`: it has a mount namespace."""
    if paths is not None:
        return directory / "termination-log"
    return below(directory, start.message_path or "/dev/null")


def refresh(
    pod: Path, volume: str, files: Callable[[], Mapping[str, VolumeFile]], group: int | None
) -> None:
    """Rewrite the files of a volume, if it has a directory. ContainerStartError."""
    target = pod / "volumes" / volume
    if target.is_dir():
        _write(target, files(), group)


def forget_volumes(pod: Path) -> None:
    """Remove those volumes of a pod that are not below its directory."""
    shutil.rmtree(pod.parent / MEMORY / pod.name, ignore_errors=True)


def namespace_of(
    start: ContainerStart, paths: NodePaths, directory: Path, **more: object
) -> list[str]:
    """Return the command prefix for a container's own mount namespace.

    Of `more`, `image` is a directory with the files of its image, `groups` are its control groups.
    """
    volumes = {
        mount["volume"]: _volume(start, mount, directory)
        for mount in start.config.mounts
        if not mount["hostPath"]
    }
    file = directory / NAMESPACE
    spec = spec_of(start, paths, directory, volumes)
    if more.get("image") and not start.working_dir:
        spec["cwd"] = "/"  # as with an image that names no directory
    file.write_bytes(orjson.dumps({**spec, **more}))
    return launching(file)


def link_mounts(start: ContainerStart, directory: Path) -> None:
    """Show a container's mounts by links below its own directory."""
    for mount in start.config.mounts:
        link = below(directory, mount["containerPath"])
        host = mount["hostPath"]
        target = Path(host) if host else _volume(start, mount, directory)
        if mount.get("subPath"):
            target = part_of(target, mount["subPath"], start)
        parents = [parent for parent in link.parents if parent.is_relative_to(directory)]
        if any(parent.is_symlink() for parent in parents):
            continue  # Inside another mount: a link there would be written onto the machine.
        with contextlib.suppress(OSError):
            link.parent.mkdir(parents=True, exist_ok=True)
            link.symlink_to(target)


def _volume(start: ContainerStart, mount: Mapping[str, Any], directory: Path) -> Path:
    """Return the directory of a volume of the pod, with its files as they are now."""
    name, group = mount["volume"], start.privileges.fs_group
    target: Path = directory.parent / "volumes" / name
    if not target.exists():
        _make(target, start, group, in_memory=mount.get("inMemory", False))
    files = start.files(name)
    if files or (target / "..data").is_symlink():
        _write(target, files, group)
    return target


def _make(target: Path, start: ContainerStart, group: int | None, *, in_memory: bool) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    made = target
    pods = target.parents[2]
    if in_memory and (pods / MEMORY).is_dir():
        made = (pods / MEMORY).resolve() / start.pod_uid / target.name
        target.symlink_to(made)
    made.mkdir(parents=True)
    made.chmod(OPEN_TO_ALL)
    if group is not None:
        with contextlib.suppress(PermissionError):
            os.chown(made, -1, group)
            made.chmod(0o2000 | OPEN_TO_ALL)


def _write(target: Path, files: Mapping[str, VolumeFile], group: int | None) -> None:
    try:
        write_files(target, files, group)
    except OSError as error:
        text = f"cannot write the files of volume {target.name}: {error}"
        raise ContainerStartError(text) from error
