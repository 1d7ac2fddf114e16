"""Which claims a driver has prepared: kept over a restart, in memory or in a file."""

import os
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Final, Protocol

import orjson

from dralab.contracts.plugin import ClaimRef

KIND: Final = {"kind": "Checkpoint", "apiVersion": "checkpoint.dralab.dev/v1"}


class Checkpoint(Protocol):
    """Where the claims are kept."""

    def load(self) -> Mapping[str, ClaimRef]:
        """Return the claims by UID. ValueError: what is kept cannot be read."""
        ...

    def save(self, claims: Mapping[str, ClaimRef]) -> None:
        """Keep the claims; afterwards they outlive this process, if any does."""
        ...


class MemoryCheckpoint:
    """Kept as long as the object is."""

    def __init__(self) -> None:
        self._claims: dict[str, ClaimRef] = {}

    def load(self) -> Mapping[str, ClaimRef]:
        """Return the claims by UID."""
        return dict(self._claims)

    def save(self, claims: Mapping[str, ClaimRef]) -> None:
        """Keep the claims."""
        self._claims = dict(claims)


class FileCheckpoint:
    """Kept in a file, written aside, synced, then moved."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def load(self) -> Mapping[str, ClaimRef]:
        """Return the claims by UID. ValueError: the file cannot be read."""
        try:
            document = orjson.loads(self.path.read_bytes())
            return {
                item["uid"]: ClaimRef(item["namespace"], item["name"], item["uid"])
                for item in document["preparedClaims"]
            }
        except FileNotFoundError:
            return {}
        except (KeyError, TypeError, orjson.JSONDecodeError) as error:
            raise ValueError(f"the checkpoint {self.path} cannot be read: {error}") from error

    def save(self, claims: Mapping[str, ClaimRef]) -> None:
        """Keep the claims."""
        entries = [
            {"uid": ref.uid, "namespace": ref.namespace, "name": ref.name}
            for _, ref in sorted(claims.items())
        ]
        self.path.parent.mkdir(parents=True, exist_ok=True)
        handle, aside = tempfile.mkstemp(prefix="tmp-checkpoint-", dir=self.path.parent)
        with os.fdopen(handle, "wb") as file:
            file.write(orjson.dumps({**KIND, "preparedClaims": entries}))
            file.flush()
            os.fsync(file.fileno())
        Path(aside).replace(self.path)
