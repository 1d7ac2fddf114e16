from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from dralab.apiserver.storage import MemoryStore, Store

# Every store in this table passes every test of this folder.
STORES: dict[str, Callable[[Path], Store]] = {
    "memory": lambda _: MemoryStore(window=50),
}


@pytest.fixture(params=sorted(STORES))
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    made = STORES[request.param](tmp_path)
    yield made
    made.close()
