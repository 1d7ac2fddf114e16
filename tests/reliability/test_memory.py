"""Objects take the memory that they need, and no more."""

import gc
import tracemalloc

from dralab.apiserver.storage import Key, MemoryStore
from dralab.apiserver.storage.objects import WARM

MANY = 2 * WARM


def test_a_small_object_takes_little_more_memory_than_its_json() -> None:
    """Where the JSON alone is kept: 240 bytes of it, its key, its place, its change."""
    store = MemoryStore()
    gc.collect()
    tracemalloc.start()
    try:
        for index in range(MANY):
            store.create(
                Key("events", "default", f"e{index}"), {"metadata": {}, "message": "m" * 180}
            )
        warm = tracemalloc.get_traced_memory()[0]
        for index in range(MANY):
            store.create(
                Key("events", "default", f"f{index}"), {"metadata": {}, "message": "m" * 180}
            )
        each = (tracemalloc.get_traced_memory()[0] - warm) / MANY
    finally:
        tracemalloc.stop()
    assert each < 1_500
