"""The fake driver's controller: answers PodSchedulingContexts, allocates and deallocates.

Sources: `k8s.io/dynamic-resource-allocation/controller` v0.28 (order of steps, finalizer, texts of
events) and fake-dra-driver v0.1.2. Promises last for one turn; allocations are written to the
NodeAllocationState, by the writer that has read it last.
"""

from collections.abc import Callable, Sequence
from typing import Any, Final

from dralab.api.status import ApiError
from dralab.drivers.classic.allocation import NodeAllocations
from dralab.drivers.classic.parameters import parameters_of
from dralab.drivers.classic.translation import ParametersTranslation
from dralab.objects.claims import classic_claims_by_entry, consumer_of
from dralab.objects.metadata import (
    NamespacedName,
    controller_of,
    finalizers_of,
    is_deleting,
    key_of,
    spec_of,
    status_of,
    uid_of,
)
from dralab.prototypes.classic.fake import DriverError, DriverParameters, device_of
from dralab.prototypes.classic.kinds import API_VERSION, DRIVER, IMMEDIATE, MAX_NODES
from dralab.prototypes.classic.structured import held_by
from dralab.runtime.client import add_finalizer, amend, drop_finalizer
from dralab.runtime.manager import Manager
from dralab.runtime.resources import (
    CLASSIC_CLAIMS,
    CLASSIC_CLASSES,
    NODES,
    PODS,
    SCHEDULING_CONTEXTS,
)
from dralab.values.json_types import JsonDict
from dralab.values.labels import node_selector_accepts

FINALIZER: Final = f"{DRIVER}/deletion-protection"
COMPONENT: Final = f"resource driver {DRIVER}"
# How often a context is looked at while it exists, in nanoseconds.
RECHECK: Final = 30_000_000_000
NAMESPACE: Final = "fake-system"


class ClassicController:
    """Gives the devices of the NodeAllocationStates in `namespace` to the driver's claims."""

    def __init__(self, manager: Manager, *, namespace: str = NAMESPACE) -> None:
        self.client = manager.client
        self.allocations = NodeAllocations(manager.client, namespace, self._reserved)
        self.recorder = manager.recorder(COMPONENT)
        self.translation = ParametersTranslation(manager, self.recorder)
        self.claims = manager.cache(CLASSIC_CLAIMS)
        self.claims.index("node", _nodes_of)
        self.classes = manager.cache(CLASSIC_CLASSES)
        self.contexts = manager.cache(SCHEDULING_CONTEXTS)
        self.pods = manager.cache(PODS)
        self.nodes = manager.cache(NODES)
        self.claim_queue = manager.queue("fake-driver/claims", self.sync_claim)
        self.context_queue = manager.queue("fake-driver/contexts", self.sync_context)
        self.claims.subscribe(self._claim)
        self.contexts.subscribe(self._context)
        # Each cache has a watch of its own: a context may be seen before what it speaks of.
        self.pods.subscribe(self._pod)
        self.classes.subscribe(self._came)

    def _pod(self, _old: JsonDict | None, new: JsonDict | None) -> None:
        # Also a change: which claims were made for a pod is in its status.
        if new is not None and self.contexts.get(key_of(new)) is not None:
            self.context_queue.add(key_of(new))

    def _came(self, old: JsonDict | None, new: JsonDict | None) -> None:
        """Queue the contexts that may have waited for a claim or a class."""
        if old is not None or new is None:
            return
        namespace = key_of(new).namespace
        for context in self.contexts.namespace(namespace) if namespace else self.contexts:
            self.context_queue.add(key_of(context))

    def _claim(self, old: JsonDict | None, new: JsonDict | None) -> None:
        self._came(old, new)
        if new is not None:
            self.claim_queue.add(key_of(new))
        elif old is not None:
            self.allocations.forget_claim(uid_of(old))

    def _context(self, _old: JsonDict | None, new: JsonDict | None) -> None:
        if new is not None:
            self.context_queue.add(key_of(new))

    # --- claims

    def sync_claim(self, key: NamespacedName) -> int | None:
        """Deallocate an unused claim that is deleted or whose deallocation is requested."""
        claim = self.claims.get(key)
        if claim is None:
            return None
        try:
            self._sync_claim(claim)
        except DriverError as error:
            self._failed(claim, "ResourceClaim", str(error))
        return None

    def _sync_claim(self, claim: JsonDict) -> None:
        status = status_of(claim)
        if is_deleting(claim) or status.get("deallocationRequested"):
            if status.get("reservedFor") or FINALIZER not in finalizers_of(claim):
                return
            self.allocations.deallocate(claim)
            if "allocation" in status or status.get("deallocationRequested"):
                claim = self._amend(claim, _cleared, subresource="status")
            self._amend(claim, _unprotected)
            for context in self.contexts:  # a pod may wait for just these devices
                self.context_queue.add(key_of(context))
            return
        immediate = claim["spec"].get("allocationMode") == IMMEDIATE
        class_ = self._class_of(claim)
        if immediate and "allocation" not in status and class_ is not None:
            parameters = parameters_of(self.client, claim, class_)
            node = self.allocations.immediate(claim, parameters, self._may_have(class_))
            self._allocate(claim, node)

    def _may_have(self, class_: JsonDict) -> Callable[[str], bool]:
        """Return the nodes that a class allows for its devices."""
        selector = class_.get("suitableNodes")

        def may(name: str) -> bool:
            node = self.nodes.get(NamespacedName("", name))
            labels = (node or {"metadata": {}})["metadata"].get("labels") or {}
            return node is not None and (
                not selector or node_selector_accepts(selector, labels, name)
            )

        return may

    # --- contexts

    def sync_context(self, key: NamespacedName) -> int | None:
        """Report unsuitable nodes, and allocate on the selected one."""
        context = self.contexts.get(key)
        pod = self.pods.get(key)
        if context is None or pod is None or is_deleting(context) or is_deleting(pod):
            return None
        owner = controller_of(context)
        spec = spec_of(context)
        if owner is None or owner["uid"] != uid_of(pod) or not spec:
            return None
        try:
            self._sync_context(context, pod, spec)
        except DriverError as error:
            self._tell(pod, "Pod", str(error))  # where people look first
            self._failed(context, "PodSchedulingContext", str(error))
        return RECHECK

    def _sync_context(self, context: JsonDict, pod: JsonDict, spec: Any) -> None:
        wanted: list[tuple[str, JsonDict, DriverParameters]] = []
        for entry, name in classic_claims_by_entry(pod).items():
            claim = self.claims.get(NamespacedName(key_of(pod).namespace, name))
            class_ = self._class_of(claim) if claim is not None else None
            if claim is None or class_ is None:
                continue
            status = status_of(claim)
            if claim["spec"].get("allocationMode") == IMMEDIATE or "allocation" in status:
                continue
            try:
                wanted.append((entry, claim, parameters_of(self.client, claim, class_)))
            except DriverError as error:
                raise DriverError(f"pod claim {entry}: {error}") from error
        if not wanted:
            return
        selected = spec.get("selectedNode")
        nodes = [*(spec.get("potentialNodes") or ()), *([selected] if selected else ())]
        try:
            unsuitable = self.allocations.unsuitable(wanted, nodes)
            self._tell_of_excess(pod, wanted)
            if selected and not any(selected in bad for bad in unsuitable.values()):
                for entry, claim, _ in wanted:
                    try:
                        self._allocate(claim, selected, pod)
                    except DriverError as error:
                        raise DriverError(f"pod claim {entry}: {error}") from error
        finally:
            # What the pod was promised elsewhere is for others again. Upstream keeps it until the
            # pod comes back: a few pods that wait then make every node look full.
            for _, claim, _ in wanted:
                self.allocations.forget_claim(uid_of(claim))
        self._answer(context, unsuitable, selected)

    def _allocate(self, claim: JsonDict, node: str, pod: JsonDict | None = None) -> None:
        """Allocate the promised devices to a claim, and reserve it for the pod that needs it."""
        claim = self._amend(claim, _protected)
        allocation = self.allocations.allocate(claim, node)

        def change(latest: JsonDict) -> bool:
            status = latest.setdefault("status", {})
            if "allocation" in status:
                return False
            status |= {"allocation": allocation, "driverName": DRIVER}
            if pod is not None:
                user = consumer_of(pod)
                users = [u for u in status.get("reservedFor") or () if u["uid"] != user["uid"]]
                status["reservedFor"] = [*users, user]
            return True

        self._amend(claim, change, subresource="status")

    def _answer(self, context: JsonDict, unsuitable: dict[str, list[str]], selected: Any) -> None:
        latest = self.contexts.get(key_of(context)) or context
        known = {item["name"]: item for item in status_of(latest).get("resourceClaims") or ()}
        told = dict(known)
        for entry, nodes in unsuitable.items():
            told[entry] = {"name": entry, "unsuitableNodes": _at_most(nodes, selected)}
        if told == known:
            return
        changed = {**latest, "status": {"resourceClaims": list(told.values())}}
        self.contexts.learn(self.client.update(SCHEDULING_CONTEXTS, changed, subresource="status"))

    def _tell_of_excess(
        self, pod: JsonDict, wanted: Sequence[tuple[str, JsonDict, DriverParameters]]
    ) -> None:
        """Report that a claim wants more devices than any node has."""
        for entry, _, parameters in wanted:
            if (
                parameters.count > 1
                and (most := self.allocations.most(parameters)) < parameters.count
            ):
                self._tell(
                    pod,
                    "Pod",
                    f"pod claim {entry}: {parameters.where}: count={parameters.count}; no node "
                    f"has more than {most} of the devices",
                )

    # --- small things

    def _class_of(self, claim: JsonDict) -> JsonDict | None:
        """Return a claim's class, if it is one of this driver."""
        found = self.classes.get(NamespacedName("", claim["spec"]["resourceClassName"]))
        if found is None or found.get("driverName") != DRIVER:
            return None
        # Where parameters are structured, the scheduler gives them.
        return None if found.get("structuredParameters") else found

    def _reserved(self, node: str) -> set[str]:
        return {
            device_of(name)
            for claim in self.claims.find("node", node)
            for at, driver, name in held_by(claim)
            if (at, driver) == (node, DRIVER)
        }

    def _amend(self, claim: JsonDict, change: Any, *, subresource: str = "") -> JsonDict:
        found = amend(self.client, CLASSIC_CLAIMS, claim, change, subresource=subresource)
        self.claims.learn(found)
        return found

    def _failed(self, about: JsonDict, kind: str, message: str) -> None:
        """Record an error; the queue retries with back-off."""
        self._tell(about, kind, message)
        raise ApiError("InternalError", message)

    def _tell(self, about: JsonDict, kind: str, message: str) -> None:
        version = "v1" if kind == "Pod" else API_VERSION
        self.recorder.event(about, kind, "Failed", message, type="Warning", api_version=version)


def _nodes_of(claim: JsonDict) -> set[str]:
    return {node for node, _, _ in held_by(claim)}


def _protected(claim: JsonDict) -> bool:
    return add_finalizer(claim, FINALIZER)


def _unprotected(claim: JsonDict) -> bool:
    return drop_finalizer(claim, FINALIZER)


def _cleared(claim: JsonDict) -> bool:
    status = claim.get("status") or {}
    if status.get("reservedFor"):
        return False
    for name in ("allocation", "driverName", "deallocationRequested"):
        status.pop(name, None)
    return True


def _at_most(nodes: list[str], selected: str | None) -> list[str]:
    """Return at most as many nodes as a status may have, including the selected one."""
    if len(nodes) <= MAX_NODES:
        return nodes
    first = [selected] if selected in nodes else []
    return [*first, *(node for node in nodes if node != selected)][:MAX_NODES]
