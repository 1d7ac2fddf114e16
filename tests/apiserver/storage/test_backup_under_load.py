"""A backup taken while a server writes is the store as it was at one revision."""

import threading
from pathlib import Path

from dralab.apiserver.storage import Key
from dralab.apiserver.storage.copies import back_up, restore
from dralab.apiserver.storage.sqlite import SqliteStore

OBJECTS = 20
COPIES = 3


def test_a_backup_under_load_is_one_state_that_was(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "data", durability="relaxed", window=50)
    states: dict[int, list[int]] = {}
    over, begun = threading.Event(), threading.Event()

    def write() -> None:
        number = 0
        while not over.is_set():
            with store.batch():  # all of them have the same number, whenever one looks
                for index in range(OBJECTS):
                    key = Key("pods", "default", f"p{index:02}")
                    value = {"metadata": {}, "spec": number, "much": "x" * 500}
                    if store.get(key) is None:
                        store.create(key, value)
                    else:
                        store.update(key, value)
                states[store.revision] = [number] * OBJECTS
            number += 1
            begun.set()

    writer = threading.Thread(target=write)
    writer.start()
    begun.wait()
    revisions = []
    for index in range(COPIES):
        revisions.append(back_up(tmp_path / "data", tmp_path / f"{index}.db"))
        begun.clear()
        assert begun.wait(60), "the writer goes on"
    over.set()
    writer.join()
    store.close()
    assert len(set(revisions)) > 1, "there was load"
    for index, revision in enumerate(revisions):
        restore(tmp_path / f"{index}.db", tmp_path / f"again-{index}")
        copy = SqliteStore(tmp_path / f"again-{index}")
        assert [item.value["spec"] for item in copy.list("pods").items] == states[revision]
        copy.close()
