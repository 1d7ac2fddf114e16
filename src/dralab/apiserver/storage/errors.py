"""Errors of a store; the verbs turn them into Status errors.

StorageError
├── KeyExists            create: the key is taken
├── KeyMissing           update or delete: there is no such object
├── RevisionConflict     the object is not at the revision that the writer expected
├── Unstorable           the object cannot be written as JSON: it nests too deeply
│   └── TooLarge         the medium takes no value of that size
├── Damaged              what is stored under the key is not what was written
├── Compacted            the revision asked for has been forgotten
├── FutureRevision       the revision asked for has not happened yet
└── StorageUnavailable   the medium failed: full disk, unreadable file, another server's lock
    ├── StoreDamaged     the store as a whole is not what was written
    └── Undecided        the medium did not answer in time: the write may have happened
"""

from dralab.apiserver.storage.objects import Key, Stored


class StorageError(Exception):
    """Base of all errors of a store."""


class KeyExists(StorageError):  # noqa: N818 - a fact, named as the API names it (AlreadyExists)
    """The key has an object already: `current`."""

    def __init__(self, key: Key, current: Stored) -> None:
        super().__init__(key, current)
        self.key = key
        self.current = current

    def __str__(self) -> str:
        return f"{'/'.join(self.key)} already exists at revision {self.current.revision}"


class KeyMissing(StorageError):  # noqa: N818 - a fact, named as the API names it (NotFound)
    """The key has no object."""

    def __init__(self, key: Key) -> None:
        super().__init__(key)
        self.key = key

    def __str__(self) -> str:
        return f"{'/'.join(self.key)} does not exist"


class RevisionConflict(StorageError):  # noqa: N818 - a fact, named as the API names it (Conflict)
    """The object has changed since `expected`; it is now `current`."""

    def __init__(self, key: Key, expected: int, current: Stored) -> None:
        super().__init__(key, expected, current)
        self.key = key
        self.expected = expected
        self.current = current

    def __str__(self) -> str:
        where = "/".join(self.key)
        return f"{where} is at revision {self.current.revision}, not at {self.expected}"


class Unstorable(StorageError):  # noqa: N818 - a fact about the object
    """The object cannot be written as JSON, and `why`."""

    def __init__(self, key: Key, why: str) -> None:
        super().__init__(key, why)
        self.key = key
        self.why = why

    def __str__(self) -> str:
        return f"{'/'.join(self.key)} cannot be stored: {self.why}"


class TooLarge(Unstorable):
    """The medium takes no value of that size."""


class Damaged(StorageError):  # noqa: N818 - a fact about the object
    """What is stored under the key fails its checksum. It was last written at `revision`.

    It can be deleted; nothing else can be done with it.
    """

    def __init__(self, key: Key, revision: int) -> None:
        super().__init__(key, revision)
        self.key = key
        self.revision = revision

    def __str__(self) -> str:
        return (
            f"what is stored of {'/'.join(self.key)} is damaged; it was last written at revision "
            f"{self.revision}"
        )


class Compacted(StorageError):  # noqa: N818 - a fact, named as etcd names it
    """The history up to `compacted` was deleted, and `requested` is older."""

    def __init__(self, requested: int, compacted: int) -> None:
        super().__init__(requested, compacted)
        self.requested = requested
        self.compacted = compacted

    def __str__(self) -> str:
        return f"revision {self.requested} is gone: the history begins at {self.compacted}"


class FutureRevision(StorageError):  # noqa: N818 - a fact, named as etcd names it
    """`requested` has not happened yet: the store is at `current`."""

    def __init__(self, requested: int, current: int) -> None:
        super().__init__(requested, current)
        self.requested = requested
        self.current = current

    def __str__(self) -> str:
        return f"revision {self.requested} lies in the future: the store is at {self.current}"


class StorageUnavailable(StorageError):  # noqa: N818 - a state, not a mistake of the caller
    """The medium failed; `str` is one line that says what to do. Nothing was written."""


class StoreDamaged(StorageUnavailable):
    """The store is truncated, missing or inconsistent; `str` is one line that says what to do."""


class Undecided(StorageUnavailable):
    """The medium did not answer in time: whether the write happened is unknown."""
