"""Allocation of a node's devices to claims, and where it is recorded.

Source of the algorithm: fake-dra-driver v0.1.2, `cmd/fake-dra-controller`. What was chosen is kept
in memory until it is written (`pending`). Where the origin follows the random order of Go's maps,
the first free devices are taken, in the order in which the node offers them.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from dralab.api.status import ApiError
from dralab.objects.metadata import key_of, spec_of, status_of, uid_of
from dralab.prototypes.classic.fake import DriverError, DriverParameters
from dralab.runtime.client import Client
from dralab.runtime.resources import ALLOCATION_STATES
from dralab.values import labels
from dralab.values.json_types import JsonDict

Devices = Sequence[Mapping[str, Any]]


class NodeAllocations:
    """The devices of all nodes, as their NodeAllocationStates in one namespace say."""

    def __init__(
        self,
        client: Client,
        namespace: str,
        reserved: Callable[[str], Iterable[str]] = lambda _node: (),
    ) -> None:
        self.client = client
        self.namespace = namespace
        # The devices of a node that the scheduler gave to claims with structured parameters.
        self.reserved = reserved
        # Claim UID → node → the devices it would get there.
        self.pending: dict[str, dict[str, Devices]] = {}

    def unsuitable(
        self, wanted: Sequence[tuple[str, JsonDict, DriverParameters]], nodes: Iterable[str]
    ) -> dict[str, list[str]]:
        """Return for each entry of a pod the nodes where not all of its claims have devices.

        `wanted` are a pod's open claims with the names of their entries. What fits is remembered,
        so that another pod is not promised the same devices.
        """
        bad = [node for node in dict.fromkeys(nodes) if not self._suits(wanted, node)]
        return {entry: list(bad) for entry, _, _ in wanted}

    def most(self, parameters: DriverParameters) -> int:
        """Return the largest number of suitable devices on one node."""
        states = self.client.list(ALLOCATION_STATES, self.namespace).items
        offered = ((spec_of(state).get("allocatableDevice") or ()) for state in states)
        counts = (
            sum(parameters.accepts(item["fake"]["name"]) for item in devices) for devices in offered
        )
        return max(counts, default=0)

    def _suits(self, wanted: Sequence[tuple[str, JsonDict, DriverParameters]], node: str) -> bool:
        try:
            state = self._state(node)
        except ApiError:
            return False
        if state.get("status") != "Ready":
            return False
        allocated = _allocated(state)
        for uid in [uid for uid, nodes in self.pending.items() if node in nodes]:
            if uid in allocated:
                del self.pending[uid]
        taken = {device["uuid"] for devices in allocated.values() for device in devices}
        taken.update(self.reserved(node))
        mine = {uid_of(claim) for _, claim, _ in wanted}
        for uid, nodes in self.pending.items():
            if uid not in mine:
                taken.update(device["uuid"] for device in nodes.get(node, ()))
        offered = spec_of(state).get("allocatableDevice") or ()
        free = [item["fake"] for item in offered if item["fake"]["uuid"] not in taken]
        chosen: dict[str, Devices] = {}
        for _, claim, parameters in wanted:
            uid = uid_of(claim)
            if uid in allocated:
                continue
            fit = [item["uuid"] for item in free if parameters.accepts(item["name"])]
            if len(fit) < parameters.count:
                for other in mine:
                    self.pending.get(other, {}).pop(node, None)
                return False
            names = fit[: parameters.count]
            free = [item for item in free if item["uuid"] not in names]
            part = {"split": parameters.split} if parameters.split else {}
            chosen[uid] = [{"uuid": name, **part} for name in names]
        for uid, devices in chosen.items():
            self.pending.setdefault(uid, {})[node] = devices
        return True

    def immediate(
        self, claim: JsonDict, parameters: DriverParameters, may: Callable[[str], bool]
    ) -> str:
        """Return the first suitable node, by name, with free devices for a claim.

        They are promised to the claim. DriverError: there is no such node.
        """
        states = self.client.list(ALLOCATION_STATES, self.namespace).items
        for state in states:
            if uid_of(claim) in _allocated(state):
                return key_of(state).name  # allocated before, and not reported yet
        for name in sorted(key_of(state).name for state in states):
            if may(name) and self._suits([("", claim, parameters)], name):
                return name
        raise DriverError(f"no node has enough free devices: {parameters.count}")

    def allocate(self, claim: JsonDict, node: str) -> dict[str, Any]:
        """Record the devices chosen for a claim on the selected node; return its allocation."""
        uid = uid_of(claim)
        try:
            state = self._state(node)
        except ApiError as error:
            raise DriverError(f"error retrieving node specific Fake CRD: {error}") from error
        if uid not in _allocated(state):
            if state.get("status") != "Ready":
                raise DriverError(f'node "{node}" is not ready: {state.get("status", "")}')
            devices = self.pending.get(uid, {}).get(node)
            if devices is None:
                raise DriverError(
                    f'unable to allocate devices for selected node "{node}": no pending claim '
                    f'allocations "{uid}" on node "{node}"'
                )
            taken = {device["uuid"] for each in _allocated(state).values() for device in each}
            if lost := sorted({device["uuid"] for device in devices} & taken):
                self.forget_claim(uid)
                raise DriverError(f'"{lost[0]}" on node "{node}" is allocated to another claim')
            held = dict(spec_of(state).get("allocatedClaims") or {})
            held[uid] = {"fake": {"devices": [dict(device) for device in devices]}}
            self._write(state, held)
        self.pending.pop(uid, None)
        field = {"key": "metadata.name", "operator": "In", "values": [node]}
        return {
            "availableOnNodes": {"nodeSelectorTerms": [{"matchFields": [field]}]},
            "shareable": True,
        }

    def deallocate(self, claim: JsonDict) -> None:
        """Release a claim's devices, if it has any."""
        uid = uid_of(claim)
        self.pending.pop(uid, None)
        node = node_of(status_of(claim).get("allocation") or {})
        if not node:
            return
        try:
            state = self._state(node)
        except ApiError as error:
            if error.reason == "NotFound":
                return
            raise DriverError(f"error retrieving node specific Fake CRD: {error}") from error
        held = dict(spec_of(state).get("allocatedClaims") or {})
        if held.pop(uid, None) is not None:
            self._write(state, held)

    def forget_claim(self, uid: str) -> None:
        """Forget the devices promised to a claim."""
        self.pending.pop(uid, None)

    def _state(self, node: str) -> JsonDict:
        return self.client.get(ALLOCATION_STATES, node, self.namespace)

    def _write(self, state: JsonDict, allocated: Mapping[str, Any]) -> None:
        spec = {k: v for k, v in spec_of(state).items() if k != "allocatedClaims"}
        if allocated:
            spec["allocatedClaims"] = allocated
        try:
            self.client.update(ALLOCATION_STATES, {**state, "spec": spec})
        except ApiError as error:
            raise DriverError(f"error updating NodeAllocationState CRD: {error}") from error


def node_of(allocation: Mapping[str, Any]) -> str:
    """Return the node of an allocation of this driver, "" where it names none."""
    selector = allocation.get("availableOnNodes") or {}
    for term in selector.get("nodeSelectorTerms") or ():
        for name in labels.nodes_named_by(term) or ():
            return name
    return ""


def _allocated(state: JsonDict) -> dict[str, Devices]:
    held = spec_of(state).get("allocatedClaims") or {}
    return {uid: (each.get("fake") or {}).get("devices") or () for uid, each in held.items()}
