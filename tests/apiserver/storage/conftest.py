from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from dralab.apiserver.storage import MemoryStore, Store
from dralab.apiserver.storage.sqlite import SqliteStore
from etcds import Etcd, etcd_store

# Every store in this table passes every test of this folder, and so does one in an etcd.
STORES: dict[str, Callable[[Path], Store]] = {
    "memory": lambda _: MemoryStore(window=50),
    "sqlite-fsync": lambda place: SqliteStore(place, durability="fsync", window=50),
    "sqlite-relaxed": lambda place: SqliteStore(place, durability="relaxed", window=50),
}
ETCD = ["etcd-fake", pytest.param("etcd", marks=pytest.mark.conformance)]


@pytest.fixture(scope="session")
def etcd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a real etcd with one member."""
    pytest.importorskip("grpc")
    with Etcd(tmp_path_factory.mktemp("etcd"), options=("--unsafe-no-fsync",)) as running:
        yield running.url


@pytest.fixture(scope="session")
def fake_etcd() -> Iterator[str]:
    """The address of an etcd in this process."""
    pytest.importorskip("grpc")
    from fakeetcd import FakeEtcd

    with FakeEtcd() as running:
        yield running.url


@pytest.fixture(params=[*sorted(STORES), *ETCD])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    if request.param.startswith("etcd"):
        made = etcd_store(request.getfixturevalue(request.param.replace("etcd-fake", "fake_etcd")))
    else:
        made = STORES[request.param](tmp_path)
    yield made
    made.close()
