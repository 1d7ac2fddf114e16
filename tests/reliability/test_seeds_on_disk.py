"""The lives of `test_seeds` on a real store, on a disk that fails, tears writes and loses power.

DRALAB_LIVES says how many, 10,000 unless told (`make conformance ONLY=… DRALAB_LIVES=500`).
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from apiserver.storage.faultydisk.shim import POSSIBLE, built

HERE = Path(__file__).parent
PARTS = 10
EACH = int(os.environ.get("DRALAB_LIVES", "10000")) // PARTS  # lives, of 60 ms of CPU time
pytestmark = [
    pytest.mark.conformance,
    pytest.mark.skipif(not POSSIBLE, reason="the failing disk needs Linux and a C compiler"),
]


@pytest.fixture(scope="module")
def shim(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return built(tmp_path_factory.mktemp("shim"))


@pytest.mark.parametrize("part", range(PARTS))
def test_what_clients_are_told_is_so_on_a_disk_that_fails(
    shim: Path, tmp_path: Path, part: int
) -> None:
    environment = os.environ | {
        "LD_PRELOAD": str(shim),
        "FAULTY_DIR": str(tmp_path / "disk"),
        "PYTHONPATH": str(HERE.parent),
    }
    command = [sys.executable, str(HERE / "seeds_on_disk.py"), str(tmp_path)]
    done = subprocess.run(
        [*command, str(part * EACH), str(EACH)],
        env=environment, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-4000:]
    lives = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(lives) == EACH
    sums = {
        what: sum(life[what] for life in lives) for what in ("refusals", "cuts", "kills", "losses")
    }
    sys.stdout.write(f"\n{EACH} lives from seed {part * EACH}: {sums}\n")
    # The disk failed, power and servers ended, and relaxed lives lost something.
    assert min(sums.values()) > EACH / 10
