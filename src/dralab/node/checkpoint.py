"""The kubelet's checkpoint of claims, in the file format of kubelet 1.36 (`dra_manager_state`)."""

import os
import tempfile
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import field
from pathlib import Path
from typing import Any, Final, Protocol

import orjson

from dralab.contracts.plugin import ClaimRef, PreparedDevice
from dralab.files.reading import read_own
from dralab.values.records import dataclass

API_VERSION: Final = "checkpoint.dra.kubelet.k8s.io/v1"


class CheckpointError(ValueError):
    """A file that is not a checkpoint, or was modified by others."""


@dataclass(frozen=True, slots=True)
class ClaimInfo:
    """A claim that pods of the node use, with its devices by driver and what drivers can skip."""

    ref: ClaimRef
    pods: tuple[str, ...]
    devices: Mapping[str, tuple[PreparedDevice, ...]]
    skips: Mapping[str, frozenset[str]] = field(default_factory=dict)


class NodeCheckpoint(Protocol):
    """Where the claims of a node are kept."""

    def load(self) -> Sequence[ClaimInfo]:
        """Return the claims. CheckpointError."""
        ...

    def save(self, held: Sequence[ClaimInfo]) -> None:
        """Keep the claims."""
        ...


class NoCheckpoint:
    """A node without a persistent checkpoint."""

    def load(self) -> Sequence[ClaimInfo]:
        """Return no claims."""
        return ()

    def save(self, held: Sequence[ClaimInfo]) -> None:
        """Keep nothing."""


class NodeFileCheckpoint:
    """Claims in a file, written aside and moved."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._written = b""

    def load(self) -> Sequence[ClaimInfo]:
        """Return the claims. CheckpointError: not a checkpoint, or a wrong checksum."""
        try:
            return decode(read_own(self.path))
        except FileNotFoundError:
            return ()

    def save(self, held: Sequence[ClaimInfo]) -> None:
        """Keep the claims; the same ones again cost nothing."""
        data = encode(held)
        if data == self._written:
            return
        self.path.parent.mkdir(parents=True, exist_ok=True)
        handle, aside = tempfile.mkstemp(prefix=".dra-", dir=self.path.parent)
        with os.fdopen(handle, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        Path(aside).replace(self.path)
        self._written = data


def encode(held: Sequence[ClaimInfo]) -> bytes:
    """Return the text of a checkpoint: data as a string, and its CRC-32.

    >>> encode([]).endswith(b'"Checksum":2361995144}')
    True
    """
    entries = [
        {
            "ClaimUID": one.ref.uid,
            "ClaimName": one.ref.name,
            "Namespace": one.ref.namespace,
            "PodUIDs": {uid: {} for uid in one.pods},
            "DriverState": {
                driver: _driver_state(devices, one.skips.get(driver))
                for driver, devices in sorted(one.devices.items())
            },
        }
        for one in held
    ]
    data = {"kind": "DRACheckpoint", "apiVersion": API_VERSION, "ClaimInfoStateList": entries}
    text = orjson.dumps(data)
    return orjson.dumps({"Data": text.decode(), "Checksum": zlib.crc32(text)})


def decode(raw: bytes) -> list[ClaimInfo]:
    """Return the claims of a checkpoint's text. CheckpointError."""
    try:
        outer = orjson.loads(raw)
        text, checksum = outer["Data"], outer["Checksum"]
        if zlib.crc32(text.encode()) != checksum:
            raise CheckpointError("the checkpoint is corrupted: its checksum does not match")
        found = []
        for entry in orjson.loads(text)["ClaimInfoStateList"] or ():
            ref = ClaimRef(entry["Namespace"], entry["ClaimName"], entry["ClaimUID"])
            devices = {
                driver: tuple(
                    PreparedDevice(
                        requests=tuple(item["RequestNames"] or ()),
                        pool=item["PoolName"],
                        device=item["DeviceName"],
                        cdi_ids=tuple(item["CDIDeviceIDs"] or ()),
                        share_id=item["ShareID"] or "",
                    )
                    for item in state["Devices"] or ()
                )
                for driver, state in (entry["DriverState"] or {}).items()
            }
            skips = {
                driver: frozenset(state["skipNodeOperations"])
                for driver, state in (entry["DriverState"] or {}).items()
                if state.get("skipNodeOperations")
            }
            found.append(ClaimInfo(ref, tuple(sorted(entry["PodUIDs"] or ())), devices, skips))
    except (KeyError, TypeError, AttributeError, orjson.JSONDecodeError) as error:
        raise CheckpointError(f"the checkpoint cannot be read: {error}") from error
    return found


def _driver_state(
    devices: Sequence[PreparedDevice], skips: frozenset[str] | None
) -> dict[str, Any]:
    found: dict[str, Any] = {"Devices": [_device(device) for device in devices]}
    return found | ({"skipNodeOperations": sorted(skips)} if skips else {})


def _device(device: PreparedDevice) -> dict[str, Any]:
    return {
        "PoolName": device.pool,
        "DeviceName": device.device,
        "ShareID": device.share_id or None,
        "RequestNames": list(device.requests),
        "CDIDeviceIDs": list(device.cdi_ids),
    }
