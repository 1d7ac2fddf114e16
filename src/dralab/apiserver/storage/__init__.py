"""Storage: versioned objects and the log of their changes, behind one protocol.

The packages above decide what objects mean, who may write them and what a watcher may see.

>>> store = MemoryStore()
>>> store.create(Key("pods", "default", "web"), {"metadata": {"name": "web"}}).revision
2
"""

from dralab.apiserver.storage.errors import (
    Compacted,
    Damaged,
    FutureRevision,
    KeyExists,
    KeyMissing,
    RevisionConflict,
    StorageError,
    StorageUnavailable,
    StoreDamaged,
    TooLarge,
    Undecided,
    Unstorable,
)
from dralab.apiserver.storage.memory import MemoryStore
from dralab.apiserver.storage.objects import Change, Key, Listing, Stored
from dralab.apiserver.storage.optimistic import Changed, OptimisticStore
from dralab.apiserver.storage.store import Store, StoreView

__all__ = [
    "Change",
    "Changed",
    "Compacted",
    "Damaged",
    "FutureRevision",
    "Key",
    "KeyExists",
    "KeyMissing",
    "Listing",
    "MemoryStore",
    "OptimisticStore",
    "RevisionConflict",
    "StorageError",
    "StorageUnavailable",
    "Store",
    "StoreDamaged",
    "StoreView",
    "Stored",
    "TooLarge",
    "Undecided",
    "Unstorable",
]
