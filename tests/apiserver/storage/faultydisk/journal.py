"""What the failing disk has recorded, and what a power cut leaves of it."""

import random
import shutil
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from posixpath import basename, dirname

from dralab.apiserver.storage.files import MARK, RevisionMark

SECTOR = 512
# What was done, to which file, where, with what: W a write, T a truncation, S a sync, A an answer;
# C a new file, D a new directory, U one that goes, R another name (which stands in the last field).
Step = tuple[str, str, int, bytes]


class Journal:
    """What a life wrote and synced below a directory, in order, and what it was told in between."""

    def __init__(self, data: bytes, below: str = "") -> None:
        self.steps: list[Step] = []
        at = 0
        while at < len(data):
            end = data.index(b"\n", at)
            what, name, *words = data[at:end].decode().split(" ")
            at = end + 1
            number, content = 0, b""
            match what:
                case "A":
                    name, number = "", int(name)
                case "W":
                    number, content = int(words[0]), data[at : at + int(words[1])]
                    at += int(words[1])
                case "T":
                    number = int(words[0])
                case "R":
                    content = words[0].removeprefix(below).encode()
            if what == "A" or name.startswith(below):
                self.steps.append((what, name.removeprefix(below), number, content))

    def cut(
        self, at: int, place: Path, chance: random.Random, base: Mapping[str, bytes] | None = None
    ) -> int:
        """Write what a power cut before step `at` leaves; return what was told last.

        `base` is what was there before the first step.
        """
        told = -1
        disk = _Disk(base or {})
        for step in self.steps[:at]:
            if step[0] == "A":
                told = step[2]
            else:
                disk.do(step)
        shutil.rmtree(place, ignore_errors=True)
        place.mkdir()
        for name, content in sorted(disk.left(chance).items()):
            if content is None:
                (place / name).mkdir()
            else:
                (place / name).write_bytes(content)
        for file in place.rglob(MARK):
            mark = RevisionMark.read(file.parent)
            if mark is not None:
                file.write_bytes(replace(mark, boot="before").written())
        return told


@dataclass
class _File:
    """A file: what of it is on the disk, and what was written since the last sync."""

    synced: bytearray = field(default_factory=bytearray)
    pending: list[Step] = field(default_factory=list)


class _Disk:
    """Files by name, as a program sees them and as they are on the disk; None is a directory.

    Nothing but a sync of a directory makes its names last, as POSIX has it; most file systems
    promise more.
    """

    def __init__(self, base: Mapping[str, bytes]) -> None:
        self.names: dict[str, _File | None] = {
            name: _File(bytearray(content)) for name, content in base.items()
        }
        self.synced = dict(self.names)
        self.pending: dict[str, list[tuple[Step, _File | None]]] = {}

    def do(self, step: Step) -> None:
        """Do a step as the program sees it."""
        what, name = step[:2]
        if what in "CDUR":
            file = _File() if what == "C" else self.names.get(name)
            # Another name in another directory lasts once that one is synced.
            folder = dirname(step[3].decode() if what == "R" else name)
            self.pending.setdefault(folder, []).append((step, file))
            _rename(self.names, step, file)
        elif what == "S" and basename(name) == ".":
            for one in self.pending.pop(dirname(name), []):
                _rename(self.synced, *one)
        elif (file := self.names.get(name)) is not None:  # else it is deleted
            if what != "S":
                file.pending.append(step)
                return
            for each in file.pending:
                done(file.synced, each)
            file.pending = []

    def left(self, chance: random.Random) -> dict[str, bytes | None]:
        """Return what there is after a power cut: the synced, and some of the rest."""
        names = dict(self.synced)
        for changes in self.pending.values():
            share = chance.choice([0.0, 0.5, 1.0])
            for one in changes:
                if chance.random() < share:
                    _rename(names, *one)
        left: dict[str, bytes | None] = {}
        for name, file in sorted(names.items()):
            folder = dirname(name)
            if folder and folder not in left:
                continue  # lost with its directory
            if file is None:
                left[name] = None
                continue
            content = bytearray(file.synced)
            for step in file.pending:
                maybe_done(content, step, chance)
            left[name] = bytes(content)
        return left


def _rename(names: dict[str, _File | None], step: Step, file: _File | None) -> None:
    what, name, _, data = step
    if what == "R":
        names.pop(name, None)
        names[data.decode()] = file
    elif what == "U":
        names.pop(name, None)
    else:
        names[name] = file


def done(content: bytearray, step: Step) -> None:
    what, _, number, data = step
    if what == "T":
        del content[number:]
    content.extend(bytes(max(0, number + len(data) - len(content))))
    content[number : number + len(data)] = data


def maybe_done(content: bytearray, step: Step, chance: random.Random) -> None:
    """Do a step that was not synced: all of it, nothing, or some of its sectors."""
    what, name, number, data = step
    share = chance.choice([0.0, 0.5, 0.95, 1.0])
    if what == "T":
        if chance.random() < share:
            done(content, step)
        return
    for start in range(0, len(data), SECTOR):
        if chance.random() < share:
            done(content, ("W", name, number + start, data[start : start + SECTOR]))
