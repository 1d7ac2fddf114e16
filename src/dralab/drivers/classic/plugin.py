"""The fake driver's part on a node: offers its devices, prepares what the controller has given.

Source of steps and texts: fake-dra-driver v0.1.2, `cmd/fake-dra-kubeletplugin`. What the origin
gets wrong is mended: split devices survive a restart, and what stale claims left is cleared away.
"""

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from dralab.api.status import ApiError
from dralab.contracts.cdi import CdiDevice, CdiError, ContainerEdits, Spec, file_name, qualified
from dralab.contracts.cdi_cache import Directory
from dralab.contracts.plugin import ClaimRef, DeviceHealth, PluginError, Prepared, PreparedDevice
from dralab.drivers.fake.mission import DRIVER, MODEL, children, parents
from dralab.runtime.client import Client, Object
from dralab.runtime.objects import amend
from dralab.runtime.resources import ALLOCATION_STATES, NODES

KIND: Final = f"k8s.{DRIVER}/fake"
NAMESPACE: Final = "fake-system"
READY: Final = "Ready"
NOT_READY: Final = "NotReady"


@dataclass(frozen=True, slots=True)
class _Device:
    uuid: str
    parent: str = ""

    def wire(self) -> dict[str, str]:
        found = {"uuid": self.uuid}
        return found | {"parentUUID": self.parent} if self.parent else found


class ClassicPlugin:
    """The driver on one node; `start` before the kubelet asks it anything."""

    driver = DRIVER

    def __init__(
        self, node: str, client: Client, directory: Directory, *, namespace: str = NAMESPACE
    ) -> None:
        self.node = node
        self.client = client
        self.directory = directory
        self.namespace = namespace
        self.names = parents(node)
        self._prepared: dict[str, tuple[_Device, ...]] = {}
        self._lock = threading.Lock()

    def start(self) -> None:
        """Offer the node's devices, and go on with what was prepared before. ApiError."""
        self._state()
        self.tell(NOT_READY)
        env = (f"FAKE_NODE_NAME={self.node}", f"DRA_RESOURCE_DRIVER_NAME={DRIVER}")
        common = CdiDevice("common", ContainerEdits(env=env))
        self.directory.write(file_name(KIND, "common"), Spec(kind=KIND, devices=(common,)))
        spec = self._state().get("spec") or {}
        given = set(spec.get("allocatedClaims") or {})
        for uid, entry in (spec.get("preparedDevices") or {}).items():
            if uid not in given:
                # Given back while nobody was here to hear of it.
                self.directory.remove(file_name(KIND, uid))
                continue
            devices = tuple(
                _Device(each["uuid"], each.get("parentUUID", ""))
                for each in entry["fake"]["devices"]
            )
            self._prepared[uid] = devices
            self._write_files(uid, devices)

        def change(state: Object) -> bool:
            spec = state.setdefault("spec", {})
            spec["allocatableDevice"] = [
                {"fake": {"uuid": name, "name": MODEL}} for name in self.names
            ]
            self._put_prepared(spec)
            return True

        self._change(change)
        self.tell(READY)

    def stop(self) -> None:
        """Say that the node's devices are not to be had for now."""
        self.tell(NOT_READY)

    def tell(self, status: str) -> None:
        """Write whether the node is ready to prepare claims."""

        def change(state: Object) -> bool:
            if state.get("status") == status:
                return False
            state["status"] = status
            return True

        self._change(change)

    def prepare(self, claims: Sequence[ClaimRef]) -> Mapping[str, Prepared]:
        """Prepare what the controller has given to claims."""
        with self._lock:
            return {ref.uid: self._prepare(ref) for ref in claims}

    def unprepare(self, claims: Sequence[ClaimRef]) -> Mapping[str, str]:
        """Forget claims; those that nobody prepared are no error."""
        with self._lock:
            for ref in claims:
                self.directory.remove(file_name(KIND, ref.uid))
                self._prepared.pop(ref.uid, None)
            try:
                self._change(self._with_prepared)
            except ApiError as error:
                raise PluginError(f"error updating NodeAllocationState CRD: {error}") from error
            return {ref.uid: "" for ref in claims}

    def health(self) -> Sequence[DeviceHealth]:
        """Return nothing: classic drivers told no health."""
        return ()

    # --- one claim --------------------------------------------------------------------------

    def _prepare(self, ref: ClaimRef) -> Prepared:
        try:
            devices = self._prepared.get(ref.uid)
            if devices is None:
                devices = self._given(ref.uid)
            self._write_files(ref.uid, devices)
            if ref.uid not in self._prepared:
                self._prepared[ref.uid] = devices
                try:
                    self._change(self._with_prepared)
                except ApiError:
                    del self._prepared[ref.uid]
                    self.directory.remove(file_name(KIND, ref.uid))
                    raise
        except (ApiError, CdiError, LookupError) as error:
            return Prepared(error=f"error preparing devices for claim {ref.uid}: {error}")
        common = qualified(KIND, "common")
        return Prepared(
            devices=tuple(
                PreparedDevice(
                    requests=(),
                    pool=self.node,
                    device=device.uuid,
                    cdi_ids=(common, qualified(KIND, f"{ref.uid}-{device.uuid}")),
                )
                for device in devices
            )
        )

    def _given(self, uid: str) -> tuple[_Device, ...]:
        allocated = (self._state().get("spec") or {}).get("allocatedClaims") or {}
        found: list[_Device] = []
        for entry in ((allocated.get(uid) or {}).get("fake") or {}).get("devices") or ():
            name, split = entry["uuid"], entry.get("split", 0)
            if name not in self.names:
                raise LookupError(f'requested Fake does not exist: "{name}"')
            if split > 0:
                found += [_Device(child, name) for child in children(name, split)]
            else:
                found.append(_Device(name))
        if not found:
            raise LookupError(
                "unable to create CDI spec file for claim: no devices were allocated to it"
            )
        return tuple(found)

    def _write_files(self, uid: str, devices: Sequence[_Device]) -> None:
        spec = Spec(
            kind=KIND,
            devices=tuple(
                # With the claim's UID in its name: what an old file says is no conflict.
                CdiDevice(
                    f"{uid}-{device.uuid}",
                    ContainerEdits(env=(f"FAKE_DEVICE_{number}={device.uuid}",)),
                )
                for number, device in enumerate(devices)
            ),
        )
        self.directory.write(file_name(KIND, uid), spec)

    # --- the NodeAllocationState ----------------------------------------------------------------

    def _state(self) -> Object:
        """Return the node's state, made where there is none."""
        try:
            return self.client.get(ALLOCATION_STATES, self.node, self.namespace)
        except ApiError as error:
            if error.reason != "NotFound":
                raise
        node = self.client.get(NODES, self.node)
        owner = {
            "apiVersion": "v1",
            "kind": "Node",
            "name": self.node,
            "uid": node["metadata"]["uid"],
        }
        body = {
            "apiVersion": f"{ALLOCATION_STATES.group}/{ALLOCATION_STATES.version}",
            "kind": "NodeAllocationState",
            "metadata": {
                "name": self.node,
                "namespace": self.namespace,
                "ownerReferences": [owner],
            },
            "spec": {},
            "status": NOT_READY,
        }
        return self.client.create(ALLOCATION_STATES, body, self.namespace)

    def _change(self, change: Callable[[Object], bool]) -> None:
        # Controller and plugin write the same object: conflicts are normal.
        amend(self.client, ALLOCATION_STATES, self._state(), change, attempts=20)

    def _with_prepared(self, state: Object) -> bool:
        spec = state.setdefault("spec", {})
        before = spec.get("preparedDevices")
        self._put_prepared(spec)
        return bool(spec.get("preparedDevices") != before)

    def _put_prepared(self, spec: dict[str, Any]) -> None:
        prepared = {
            uid: {"fake": {"devices": [device.wire() for device in devices]}}
            for uid, devices in sorted(self._prepared.items())
        }
        if prepared:
            spec["preparedDevices"] = prepared
        else:
            spec.pop("preparedDevices", None)
