from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from dralab.apiserver.storage import MemoryStore, Store
from dralab.apiserver.storage.sqlite import SqliteStore

# Every store in this table passes every test of this folder.
STORES: dict[str, Callable[[Path], Store]] = {
    "memory": lambda _: MemoryStore(window=50),
    "sqlite-fsync": lambda place: SqliteStore(place, durability="fsync", window=50),
    "sqlite-relaxed": lambda place: SqliteStore(place, durability="relaxed", window=50),
}


@pytest.fixture(params=sorted(STORES))
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    made = STORES[request.param](tmp_path)
    yield made
    made.close()
