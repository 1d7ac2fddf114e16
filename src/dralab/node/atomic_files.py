"""Writes the files of a volume so that a reader finds either all old or all new ones.

Source of the layout: kubelet 1.36, `pkg/volume/util/atomic_writer.go`. The files are in a directory
whose name begins with `..`; the link `..data` leads there, and what is seen are links below it.
Programs wait for `..data` to change.
"""

import contextlib
import os
import shutil
import stat
import tempfile
from collections.abc import Mapping
from pathlib import Path, PurePosixPath
from typing import Final

from dralab.node.containers import VolumeFile

DATA: Final = "..data"
READABLE: Final = 0o440  # what a group that owns a volume may do with its files


def write_files(directory: Path, files: Mapping[str, VolumeFile], group: int | None = None) -> bool:
    """Make a directory hold these files and no others; return whether anything changed.

    `group` is the pod's fsGroup: files belong to it and are readable by it. OSError.
    """
    directory.mkdir(parents=True, exist_ok=True)
    now = {_inside(path): file for path, file in files.items()}
    if _holds(directory, now):
        return False
    new = Path(tempfile.mkdtemp(prefix="..", dir=directory))
    try:
        for path, file in now.items():
            _write(new / path, file, group)
        _open(new, group)
        before = _current(directory)
        link = directory / f"{DATA}_tmp"
        link.unlink(missing_ok=True)
        link.symlink_to(new.name)
    except OSError:
        shutil.rmtree(new, ignore_errors=True)
        raise
    link.replace(directory / DATA)
    seen = {PurePosixPath(path).parts[0] for path in now}
    for name in seen:
        shown = directory / name
        if not shown.is_symlink():
            with contextlib.suppress(OSError):
                shown.symlink_to(f"{DATA}/{name}")
    for each in directory.iterdir():
        if each.is_symlink() and not each.name.startswith("..") and each.name not in seen:
            each.unlink(missing_ok=True)
    if before is not None:
        shutil.rmtree(before, ignore_errors=True)
    return True


def _holds(directory: Path, files: Mapping[str, VolumeFile]) -> bool:
    """Return whether a directory has these files with these contents.

    A container may have left anything there: no link is followed, and no more is read than wanted.
    """
    inside = _current(directory)
    if inside is None:
        return False
    found = {str(each.relative_to(inside)): each for each in inside.rglob("*") if not _is_dir(each)}
    return found.keys() == files.keys() and all(
        _has(each, files[path].content) for path, each in found.items()
    )


def _is_dir(path: Path) -> bool:
    return path.is_dir() and not path.is_symlink()


def _has(path: Path, content: bytes) -> bool:
    status = path.lstat()
    if not stat.S_ISREG(status.st_mode) or status.st_size != len(content):
        return False
    return path.read_bytes() == content


def _current(directory: Path) -> Path | None:
    """Return the directory that `..data` leads to; None if it is not one that was made here."""
    try:
        name = (directory / DATA).readlink().name
    except OSError:
        return None
    found = directory / name
    return (
        found
        if len(name) > 3 and name.startswith("..") and found.is_dir() and not found.is_symlink()
        else None
    )


def _inside(path: str) -> str:
    """Return a path that stays below its directory: no `..` leads out.

    >>> _inside("a/../../b")
    'b'
    """
    return os.path.normpath(f"/{path.lstrip('/')}").lstrip("/")


def _write(path: Path, file: VolumeFile, group: int | None) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(file.content)
    mode = file.mode
    if group is not None or file.owner is not None:
        # Without root they stay the runtime's.
        with contextlib.suppress(PermissionError):
            os.chown(path, -1 if file.owner is None else file.owner, -1 if group is None else group)
            mode |= READABLE if group is not None else 0
    path.chmod(mode)


def _open(directory: Path, group: int | None) -> None:
    """Let directories be entered, by the group too."""
    for each in (directory, *(found for found in directory.rglob("*") if found.is_dir())):
        each.chmod(0o755)
        if group is not None:
            with contextlib.suppress(PermissionError):
                os.chown(each, -1, group)
                each.chmod(0o2755)
