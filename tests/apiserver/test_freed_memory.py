"""Memory goes back to the system after many objects were deleted."""

from dralab.apiserver.storage import Key, MemoryStore, freed_memory
from dralab.apiserver.storage.freed_memory import FreedMemory, trim_heap


def test_memory_is_given_back_once_after_many_deletions(monkeypatch):
    monkeypatch.setattr(freed_memory, "DELETED", 3)
    store = MemoryStore()
    trimmed = []
    freed = FreedMemory(store, lambda: trimmed.append(store.revision))

    def delete(count):
        for index in range(count):
            key = Key("pods", "default", f"p{index}")
            store.create(key, {"metadata": {}})
            store.delete(key)
        freed.give_back()

    delete(2)
    assert trimmed == []
    delete(1)
    assert len(trimmed) == 1
    freed.give_back()
    assert len(trimmed) == 1


def test_mappings_are_let_go_with_much_history(monkeypatch):
    monkeypatch.setattr(freed_memory, "DELETED", 3)
    store = MemoryStore()
    made = store.create(Key("pods", "default", "a"), {"metadata": {}})
    trimmed = []
    freed = FreedMemory(store, lambda: trimmed.append(store.revision))
    freed.give_back(2)
    assert (made.parsed, trimmed) == (True, [])
    freed.give_back(1)
    assert not made.parsed
    assert len(trimmed) == 1
    freed.give_back()
    assert len(trimmed) == 1
    assert store.get(made.key).value == {"metadata": {"resourceVersion": str(made.revision)}}


def test_the_heap_can_be_trimmed_or_cannot_without_harm(monkeypatch):
    trim_heap()
    monkeypatch.setattr(freed_memory, "_malloc_trim", lambda: None)
    trim_heap()
