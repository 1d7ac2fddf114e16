"""What a store on a failing disk promises: at every write that can fail, in every way.

A shim between the store and its files (`faultydisk/shim.c`) fails or tears each write, truncation,
sync and change of a name in turn, or records them all, so that a power cut can be simulated at any of them.
"""

import errno
import json
import os
import random
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from apiserver.storage.faultydisk.journal import Journal
from apiserver.storage.faultydisk.shim import POSSIBLE, built
from dralab.apiserver.storage.sqlite import LEAP, SqliteStore

HERE = Path(__file__).parent / "faultydisk"
ONCE, FROM_THEN, TORN, DIES, SLOW = range(1, 6)
pytestmark = [
    pytest.mark.conformance,
    pytest.mark.skipif(not POSSIBLE, reason="the failing disk needs Linux and a C compiler"),
]


@pytest.fixture(scope="module")
def shim(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return built(tmp_path_factory.mktemp("shim"))


def run(shim: Path, place: Path, durability: str, *arguments: object) -> Iterator[Any]:
    """Yield the lines of the workload in a directory, on the failing disk."""
    place.mkdir()
    environment = os.environ | {"LD_PRELOAD": str(shim), "FAULTY_DIR": str(place)}
    command = [sys.executable, str(HERE / "workload.py"), str(place / "data"), durability]
    done = subprocess.run(
        [*command, *map(str, arguments)],
        env=environment, stdout=subprocess.PIPE, text=True, check=True,
    )  # fmt: skip
    for line in done.stdout.splitlines():
        yield json.loads(line)


FAULTS = {
    "an I/O error": (ONCE, errno.EIO),
    "I/O errors from then on": (FROM_THEN, errno.EIO),
    "a full disk for a moment": (ONCE, errno.ENOSPC),
    "a full disk from then on": (FROM_THEN, errno.ENOSPC),
    "a torn write": (TORN, errno.EIO),
    "the end of the process within a write": (DIES, errno.EIO),
    "a disk that becomes slow": (SLOW, 0),
}


@pytest.mark.parametrize("durability", ["fsync", "relaxed"])
@pytest.mark.parametrize(("kind", "number"), FAULTS.values(), ids=FAULTS)
def test_whichever_write_fails_what_was_acknowledged_stays(
    shim: Path, tmp_path: Path, kind: int, number: int, durability: str
) -> None:
    lives = list(run(shim, tmp_path / "disk", durability, "points", kind, number))
    sys.stdout.write(f"\n{durability}: {len(lives)} lives\n")
    assert len(lives) > 60 or kind == SLOW
    refusals = 0
    for life in lives:
        told: list[Any] = life["told"]
        refusals += any(one[0] in {"refused", "undecided"} for one in told)
        assert life["ended"] == (9 if kind == DIES and life is not lives[-1] else 0), life
        done = [index for index, one in enumerate(told) if one[0] in {"opened", "done"}]
        if not done:
            continue  # the store was not opened; the next start may say why it cannot be either
        # What was refused has not happened. Of what is undecided, and of what the end of the
        # process interrupted, nobody was told anything: there may be all of it.
        allowed = [told[done[-1]], *(one for one in told[done[-1] :] if one[0] == "undecided")]
        if life["found"] not in [one[1:] for one in allowed]:
            assert kind == DIES, life
            assert life["found"][0] > told[done[-1]][1], life
    assert bool(refusals) == (kind not in {DIES, SLOW})


@pytest.mark.parametrize("durability", ["fsync", "relaxed"])
def test_a_power_cut_at_a_thousand_instants_breaks_no_promise(
    shim: Path, tmp_path: Path, durability: str
) -> None:
    file, place = tmp_path / "journal", tmp_path / "cut"
    [told] = run(shim, tmp_path / "disk", durability, "journal", file)
    journal = Journal(file.read_bytes())
    wal = [step for step in journal.steps if step[1].endswith("-wal")]
    assert {"C", "W", "T", "S"} <= {step[0] for step in wal}, "what was written aside came home"
    found: Counter[str] = Counter()
    for seed in range(1000):
        chance = random.Random(seed)
        at = chance.randrange(len(journal.steps) + 1)
        last = journal.cut(at, place, chance)
        store = SqliteStore(place / "data", durability="relaxed")
        state = {item.key.name: item.value["spec"] for item in store.list("pods").items}
        if last < 0:
            assert state == {}, (seed, at)
        elif durability == "fsync":
            allowed = [one[1:] for one in told[last : last + 2]]
            assert [store.revision, state] in allowed, (seed, at)
        else:
            assert state in [one[2] for one in told[: last + 2]], (seed, at)
            # No revision is given twice: it is past what was told, by what may be missing.
            assert store.revision >= told[last][1], (seed, at)
            assert store.revision >= LEAP or state == told[last][2], (seed, at)
        found["at the first start"] += last < 0
        found["between two answers"] += 0 < at <= len(journal.steps) and (
            journal.steps[at - 1][0] != "A"
        )
        found["lost acknowledged writes"] += last >= 0 and state not in [
            one[2] for one in told[last : last + 2]
        ]
        store.close()
    sys.stdout.write(f"\n{durability}: {len(journal.steps)} steps, 1000 cuts, {dict(found)}\n")
    assert found["between two answers"] > 500
    assert found["at the first start"] > 10
    # Else the simulated disk is too kind.
    assert bool(found["lost acknowledged writes"]) == (durability == "relaxed")
