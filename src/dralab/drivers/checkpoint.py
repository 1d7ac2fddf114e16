"""The prepared claims of a driver, kept over a restart in memory or in a file."""

import os
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Final, Protocol

import orjson

from dralab.contracts.plugin import ClaimRef
from dralab.files.reading import read_own
from dralab.values.records import dataclass

KIND: Final = {"kind": "Checkpoint", "apiVersion": "checkpoint.dralab.dev/v1"}


@dataclass(frozen=True, slots=True)
class CheckpointedClaim:
    """A prepared claim, and the devices (`pool/device`) that it holds exclusively."""

    ref: ClaimRef
    devices: frozenset[str] = frozenset()


class DriverCheckpoint(Protocol):
    """Where the claims are kept."""

    def load(self) -> Mapping[str, CheckpointedClaim]:
        """Return the claims by UID. ValueError: what is kept cannot be read."""
        ...

    def save(self, claims: Mapping[str, CheckpointedClaim]) -> None:
        """Keep the claims; from then on they survive this process, if the storage does."""
        ...


class MemoryCheckpoint:
    """Kept as long as the object is."""

    def __init__(self) -> None:
        self._claims: dict[str, CheckpointedClaim] = {}

    def load(self) -> Mapping[str, CheckpointedClaim]:
        """Return the claims by UID."""
        return dict(self._claims)

    def save(self, claims: Mapping[str, CheckpointedClaim]) -> None:
        """Keep the claims."""
        self._claims = dict(claims)


class DriverFileCheckpoint:
    """Kept in a file, written aside, synced, then moved."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def load(self) -> Mapping[str, CheckpointedClaim]:
        """Return the claims by UID. ValueError: the file cannot be read."""
        try:
            document = orjson.loads(read_own(self.path))
            return {
                item["uid"]: CheckpointedClaim(
                    ClaimRef(item["namespace"], item["name"], item["uid"]),
                    frozenset(item.get("devices") or ()),
                )
                for item in document["preparedClaims"]
            }
        except FileNotFoundError:
            return {}
        except (KeyError, TypeError, orjson.JSONDecodeError) as error:
            raise ValueError(f"the checkpoint {self.path} cannot be read: {error}") from error

    def save(self, claims: Mapping[str, CheckpointedClaim]) -> None:
        """Keep the claims."""
        entries = [
            {
                "uid": uid,
                "namespace": held.ref.namespace,
                "name": held.ref.name,
                "devices": sorted(held.devices),
            }
            for uid, held in sorted(claims.items())
        ]
        self.path.parent.mkdir(parents=True, exist_ok=True)
        handle, aside = tempfile.mkstemp(prefix="tmp-checkpoint-", dir=self.path.parent)
        with os.fdopen(handle, "wb") as file:
            file.write(orjson.dumps({**KIND, "preparedClaims": entries}))
            file.flush()
            os.fsync(file.fileno())
        Path(aside).replace(self.path)
