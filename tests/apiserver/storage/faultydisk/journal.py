"""What the failing disk has recorded, and what a power cut leaves of it."""

import random
import shutil
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from dralab.apiserver.storage.files import MARK, RevisionMark

SECTOR = 512
# What was done (W a write, T a truncation, S a sync, A an answer), to which file, where, with what.
Step = tuple[str, str, int, bytes]


class Journal:
    """What a life wrote and synced below a directory, in order, and what it was told in between."""

    def __init__(self, data: bytes, below: str = "") -> None:
        self.steps: list[Step] = []
        at = 0
        while at < len(data):
            end = data.index(b"\n", at)
            what, *words = data[at:end].decode().split(" ")
            at = end + 1
            content = b""
            if what == "W":
                content = data[at : at + int(words[2])]
                at += int(words[2])
            number = int(words[-1] if what in "AT" else words[1] if what == "W" else 0)
            if what == "A" or words[0].startswith(below):
                self.steps.append((what, words[0].removeprefix(below), number, content))
        told = (index for index, step in enumerate(self.steps) if step[0] == "A")
        self.first = next(told, 0)

    def cut(
        self, at: int, place: Path, chance: random.Random, base: Mapping[str, bytes] | None = None
    ) -> int:
        """Write what a power cut before step `at` leaves; return what was told last.

        `base` is what was there before the first step.
        """
        told = -1
        synced = {name: bytearray(content) for name, content in (base or {}).items()}
        pending: dict[str, list[Step]] = {name: [] for name in synced}
        for step in self.steps[:at]:
            what, name, number, _ = step
            if what == "A":
                told = number
                continue
            if name not in synced:  # a new database gets its name when it is complete
                synced[name] = synced.pop(f"{name}.unfinished", bytearray())
                pending[name] = pending.pop(f"{name}.unfinished", [])
            if what == "S":
                for one in pending.pop(name):
                    done(synced[name], one)
                pending[name] = []
            else:
                pending[name].append(step)
        shutil.rmtree(place, ignore_errors=True)
        place.mkdir()
        for name, content in synced.items():
            if name.endswith(
                "-journal"
            ):  # deleted, and its directory synced, before the first told
                continue
            for one in pending[name]:
                maybe_done(content, one, chance)
            (place / name).write_bytes(content)
        mark = RevisionMark.read(place)
        if mark is not None:
            (place / MARK).write_bytes(replace(mark, boot="before").written())
        return told


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
