"""The fake driver's plugin on a node: offers its devices, and prepares claims.

Source of steps and texts: fake-dra-driver v0.1.2, `cmd/fake-dra-kubeletplugin`; v0.1.3 for claims
with structured parameters. In the classic variant, the driver's controller writes what a claim gets
into the NodeAllocationState; in the structured one, the scheduler writes it into the claim, and the
plugin records it. Defects of the original are fixed: split devices survive a restart, leftovers of
stale claims are removed, and the two variants share a node's devices.
"""

import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from dralab.api.status import ApiError
from dralab.contracts.cdi import CdiDevice, CdiError, CdiSpec, ContainerEdits, file_name, qualified
from dralab.contracts.cdi_cache import CdiDirectory
from dralab.contracts.plugin import (
    ClaimRef,
    DeviceHealth,
    PluginError,
    PreparedDevice,
    PrepareResult,
)
from dralab.drivers.classic.named_resources import chosen, resources
from dralab.drivers.fake.demo import DRIVER, MODEL, children, parents
from dralab.objects.metadata import key_of, revision_of, spec_of, uid_of
from dralab.prototypes.classic.structured import held_by
from dralab.runtime.client import Client, amend, find
from dralab.runtime.manager import Manager
from dralab.runtime.resources import ALLOCATION_STATES, CLASSIC_CLAIMS, NODES
from dralab.values.json_types import JsonDict
from dralab.values.records import dataclass

KIND: Final = f"k8s.{DRIVER}/fake"
NAMESPACE: Final = "fake-system"
READY: Final = "Ready"
NOT_READY: Final = "NotReady"


@dataclass(frozen=True, slots=True)
class _FakeDevice:
    uuid: str
    parent: str = ""

    def wire(self) -> dict[str, str]:
        found = {"uuid": self.uuid}
        return found | {"parentUUID": self.parent} if self.parent else found


class ClassicPlugin:
    """The driver on one node; `start` before the kubelet asks it anything."""

    driver = DRIVER

    def __init__(
        self, node: str, client: Client, directory: CdiDirectory, *, namespace: str = NAMESPACE
    ) -> None:
        self.node = node
        self.client = client
        self.directory = directory
        self.namespace = namespace
        self.names = parents(node)
        # Told, from any thread, when other named resources become available.
        self.on_resources: Callable[[Sequence[JsonDict]], None] = lambda _resources: None
        self._prepared: dict[str, tuple[_FakeDevice, ...]] = {}
        # The claims that the scheduler gave devices to: what is written of them is the plugin's.
        self._structured: set[str] = set()
        self._offered: list[str] | None = None
        self._revision = 0
        self._lock = threading.Lock()
        self._seeing = threading.Lock()

    def start(self) -> None:
        """Offer the node's devices, and keep claims that were prepared before. ApiError."""
        self._state()
        self.write_status(NOT_READY)
        env = (f"FAKE_NODE_NAME={self.node}", f"DRA_RESOURCE_DRIVER_NAME={DRIVER}")
        common = CdiDevice("common", ContainerEdits(env=env))
        self.directory.write(file_name(KIND, "common"), CdiSpec(kind=KIND, devices=(common,)))
        spec = self._state().get("spec") or {}
        claims = self._claims()
        self._structured = {uid for uid, structured in claims.items() if structured}
        given = set(spec.get("allocatedClaims") or {})
        gone = given - set(claims)
        given -= gone
        for uid, entry in (spec.get("preparedDevices") or {}).items():
            if uid not in given:
                # Released while the plugin was not running.
                self.directory.remove(file_name(KIND, uid))
                continue
            devices = tuple(
                _FakeDevice(each["uuid"], each.get("parentUUID", ""))
                for each in entry["fake"]["devices"]
            )
            self._prepared[uid] = devices
            self._write_files(uid, devices)

        def change(state: JsonDict) -> bool:
            spec = state.setdefault("spec", {})
            spec["allocatableDevice"] = [
                {"fake": {"uuid": name, "name": MODEL}} for name in self.names
            ]
            self._put_prepared(spec)
            _drop(spec, "allocatedClaims", gone)
            return True

        self._change(change)
        self.write_status(READY)

    def stop(self) -> None:
        """Mark the node's devices as unavailable."""
        self.write_status(NOT_READY)

    def write_status(self, status: str) -> None:
        """Write whether the node is ready to prepare claims."""

        def change(state: JsonDict) -> bool:
            if state.get("status") == status:
                return False
            state["status"] = status
            return True

        self._change(change)

    def prepare(self, claims: Sequence[ClaimRef]) -> Mapping[str, PrepareResult]:
        """Prepare the devices of claims, allocated by the controller or the scheduler."""
        with self._lock:
            return {ref.uid: self._prepare(ref) for ref in claims}

    def unprepare(self, claims: Sequence[ClaimRef]) -> Mapping[str, str]:
        """Forget claims; claims that were not prepared are not an error."""
        with self._lock:
            for ref in claims:
                self.directory.remove(file_name(KIND, ref.uid))
                self._prepared.pop(ref.uid, None)
            try:
                own = {ref.uid for ref in claims if self._is_structured(ref)}
                self._change(lambda state: self._without(state, own))
            except ApiError as error:
                raise PluginError(f"error updating NodeAllocationState CRD: {error}") from error
            self._structured -= own
            return {ref.uid: "" for ref in claims}

    def resources(self) -> Sequence[JsonDict]:
        """Return the node's named resources: the devices that no classic claim holds."""
        names = self.names if self._offered is None else self._offered
        return resources(self.node, names)

    def saw(self, state: JsonDict) -> None:
        """Take over a NodeAllocationState: the controller may have allocated devices."""
        with self._seeing:
            if revision_of(state) < self._revision:
                return
            self._revision = revision_of(state)
            taken = {
                device["uuid"]
                for uid, devices in _given(state).items()
                if uid not in self._structured
                for device in devices
            }
            offered = [name for name in self.names if name not in taken]
            if offered != self._offered:
                self._offered = offered
                self.on_resources(self.resources())

    def health(self) -> Sequence[DeviceHealth]:
        """Return nothing: classic drivers told no health."""
        return ()

    # --- one claim --------------------------------------------------------------------------

    def _prepare(self, ref: ClaimRef) -> PrepareResult:
        try:
            devices = self._prepared.get(ref.uid)
            if devices is None:
                devices = self._given(ref)
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
            return PrepareResult(error=f"error preparing devices for claim {ref.uid}: {error}")
        common = qualified(KIND, "common")
        return PrepareResult(
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

    def _given(self, ref: ClaimRef) -> tuple[_FakeDevice, ...]:
        structured = (ref.handle or {}).get("structuredData")
        if structured is not None:
            self._structured.add(ref.uid)
            self._change(lambda state: self._take(state, ref.uid, structured))
        found: list[_FakeDevice] = []
        for entry in _given(self._state()).get(ref.uid, ()):
            name, split = entry["uuid"], entry.get("split", 0)
            if name not in self.names:
                raise LookupError(f'requested Fake does not exist: "{name}"')
            if split > 0:
                found += [_FakeDevice(child, name) for child in children(name, split)]
            else:
                found.append(_FakeDevice(name))
        if not found:
            raise LookupError(
                "unable to create CDI spec file for claim: no devices were allocated to it"
            )
        return tuple(found)

    def _take(self, state: JsonDict, uid: str, handle: Mapping[str, Any]) -> bool:
        """Record the scheduler's choice; LookupError if another claim has the devices."""
        devices = list(chosen(handle))
        wanted = {device["uuid"] for device in devices}
        if unknown := sorted(wanted - set(self.names)):
            raise LookupError(f'requested Fake does not exist: "{unknown[0]}"')
        given = _given(state)
        holders = {
            other: names
            for other, held in given.items()
            if other != uid and (names := wanted & {device["uuid"] for device in held})
        }
        alive = self._claims() if holders else {}
        for other, names in holders.items():
            if other in alive:
                raise LookupError(f'"{min(names)}" is still held by the claim with UID {other}')
        spec = state.setdefault("spec", {})
        _drop(spec, "allocatedClaims", set(holders))
        if given.get(uid) == devices:
            return bool(holders)
        spec["allocatedClaims"] = {
            **(spec.get("allocatedClaims") or {}),
            uid: {"fake": {"devices": devices}},
        }
        return True

    def _claims(self) -> dict[str, bool]:
        """Return for each claim, by UID, whether the scheduler allocated devices of this node."""
        return {
            uid_of(claim): any(node == self.node for node, _, _ in held_by(claim))
            for claim in self.client.list(CLASSIC_CLAIMS).items
        }

    def _is_structured(self, ref: ClaimRef) -> bool:
        """Return whether this plugin must remove a claim's record."""
        if ref.uid in self._structured or "structuredData" in (ref.handle or {}):
            return True
        claim = find(self.client, CLASSIC_CLAIMS, ref.name, ref.namespace)
        return claim is None or uid_of(claim) != ref.uid or any(held_by(claim))

    def _write_files(self, uid: str, devices: Sequence[_FakeDevice]) -> None:
        spec = CdiSpec(
            kind=KIND,
            devices=tuple(
                # With the claim's UID in its name: what an old file says is not a conflict.
                CdiDevice(
                    f"{uid}-{device.uuid}",
                    ContainerEdits(env=(f"FAKE_DEVICE_{number}={device.uuid}",)),
                )
                for number, device in enumerate(devices)
            ),
        )
        self.directory.write(file_name(KIND, uid), spec)

    # --- the NodeAllocationState ----------------------------------------------------------------

    def _state(self) -> JsonDict:
        """Return the node's state, created if missing."""
        known = find(self.client, ALLOCATION_STATES, self.node, self.namespace)
        if known is not None:
            return known
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

    def _change(self, change: Callable[[JsonDict], bool]) -> None:
        # Controller and plugin write the same object: conflicts are normal.
        self.saw(amend(self.client, ALLOCATION_STATES, self._state(), change, attempts=20))

    def _with_prepared(self, state: JsonDict) -> bool:
        spec = state.setdefault("spec", {})
        before = spec.get("preparedDevices")
        self._put_prepared(spec)
        return bool(spec.get("preparedDevices") != before)

    def _without(self, state: JsonDict, uids: set[str]) -> bool:
        spec = state.setdefault("spec", {})
        written = uids & set(_given(state))
        _drop(spec, "allocatedClaims", written)
        return self._with_prepared(state) or bool(written)

    def _put_prepared(self, spec: dict[str, Any]) -> None:
        prepared = {
            uid: {"fake": {"devices": [device.wire() for device in devices]}}
            for uid, devices in sorted(self._prepared.items())
        }
        if prepared:
            spec["preparedDevices"] = prepared
        else:
            spec.pop("preparedDevices", None)


class AllocationStates:
    """Notifies plugins, by their nodes' names, of changes to their NodeAllocationStates."""

    def __init__(self, manager: Manager, *, only: str = "") -> None:
        self.plugins: dict[str, ClassicPlugin] = {}
        selector = f"metadata.name={only}" if only else ""
        self.cache = manager.cache(ALLOCATION_STATES, field_selector=selector)
        self.cache.subscribe(self._changed)

    def _changed(self, _old: JsonDict | None, new: JsonDict | None) -> None:
        plugin = self.plugins.get(key_of(new).name) if new is not None else None
        if plugin is not None and new is not None and key_of(new).namespace == plugin.namespace:
            plugin.saw(new)


def _given(state: JsonDict) -> dict[str, Sequence[Mapping[str, Any]]]:
    """Return the devices of claims, by the claims' UIDs."""
    held = spec_of(state).get("allocatedClaims") or {}
    return {uid: (each.get("fake") or {}).get("devices") or () for uid, each in held.items()}


def _drop(spec: dict[str, Any], field: str, uids: set[str]) -> None:
    """Remove claims from a map of claims; an empty map is dropped."""
    left = {uid: entry for uid, entry in (spec.get(field) or {}).items() if uid not in uids}
    if left:
        spec[field] = left
    else:
        spec.pop(field, None)
