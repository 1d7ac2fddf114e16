"""NodeClaims of Karpenter: an object for each machine, which users read and delete.

Source: Karpenter of August 2026 (`nodeclaim/lifecycle`, `nodeclaim/disruption`,
`node/termination`, `provisioning/scheduling/nodeclaimtemplate.go`).
"""

import hashlib
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Final

import orjson

from dralab.api.status import ApiError, ignoring
from dralab.kernel.clock import SECOND, rfc3339
from dralab.objects.conditions import condition_of, is_true
from dralab.objects.metadata import (
    NamespacedName,
    annotations_of,
    finalizers_of,
    is_deleting,
    labels_of,
    metadata_of,
    owner_reference,
    spec_of,
    status_of,
)
from dralab.objects.requests import amount_of
from dralab.objects.taints import taints_of
from dralab.runtime.cache import Cache
from dralab.runtime.client import amend, drop_finalizer
from dralab.runtime.manager import Manager
from dralab.runtime.resources import NODES, PODS, SLICES
from dralab.scheduling.pods import PodInfo
from dralab.simulation.engines.autoscaling.karpenter import Karpenter
from dralab.simulation.engines.autoscaling.machines import Machine
from dralab.simulation.live.karpenter_objects import (
    NODE_CLAIMS,
    awaiting,
    condition,
    updated,
)
from dralab.simulation.scenario.node_pools import (
    CAPACITY_TYPE,
    INSTANCE_TYPE,
    POOL,
    VERSION,
    NodePoolTemplate,
)
from dralab.values.json_types import JsonDict, JsonObject

FINALIZER: Final = "karpenter.sh/termination"
HASH: Final = "karpenter.sh/nodepool-hash"
# Not Karpenter's: its hash is of Go structures.
HASH_VERSION: Final = {"karpenter.sh/nodepool-hash-version": "dralab-v1"}
MANAGED: Final = {"kwok.x-k8s.io/node": "fake"}
HOSTNAME: Final = "kubernetes.io/hostname"
# What a node has until the node controller has seen it (`scheduling/taints.go`).
EPHEMERAL: Final = ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable")
DELETED: Final = "deleted"
# The conditions that make a NodeClaim ready.
NEEDED: Final = ("Launched", "Registered", "Initialized")


class NodeClaims:
    """The NodeClaims of the machines of Karpenter; `pool_changed` takes the name of a NodePool."""

    def __init__(
        self, manager: Manager, node_pools: Cache, pool_changed: Callable[[str], None]
    ) -> None:
        self._manager = manager
        self._pool_changed = pool_changed
        self._recorder = manager.recorder("karpenter")
        self._claims = manager.cache(NODE_CLAIMS)
        self._nodes = manager.cache(NODES)
        self._slices = manager.cache(SLICES)
        self._node_pools = node_pools
        self._queue = manager.queue("autoscaler/nodeclaims", self._reconcile)
        self._claims.subscribe(self._look)
        self._nodes.subscribe(self._look)
        manager.cache(PODS).subscribe(self._pod)
        self._karpenter: Karpenter | None = None
        self._templates: dict[str, NodePoolTemplate] = {}
        self._hashes: dict[str, str] = {}
        # Why machines are not as their NodePool wants them, by name.
        self._drifted: dict[str, str] = {}
        self._uids: dict[str, str] = {}

    def obey(self, karpenter: Karpenter, templates: Sequence[NodePoolTemplate]) -> None:
        """Take over the NodePools as they are; nodes that are not as these say have drifted."""
        self._karpenter = karpenter
        self._templates = {each.rules.name: each for each in templates}
        self._hashes = {name: self._hash(each) for name, each in self._templates.items()}
        for claim in self._claims:
            self._queue.add(metadata_of(claim)["name"])

    def asked(self, machine: Machine, pods: Sequence[PodInfo]) -> None:
        """Create the NodeClaim of a machine that was asked for, for these pods."""
        self._create(machine, pods)
        self.changed(machine)

    def changed(self, machine: Machine) -> None:
        """Look at the NodeClaim of a machine once more."""
        self._queue.add(machine.name)
        if self._karpenter is not None:
            self._pool_changed(self._group(machine))

    def tell(self, machine: Machine, reason: str, message: str) -> None:
        """Record an event about the NodeClaim of a machine."""
        claim = self._claims.get(NamespacedName("", machine.name))
        if claim is not None:
            self._recorder.event(claim, "NodeClaim", reason, message, api_version=VERSION)

    def owners(self, name: str) -> list[JsonDict]:
        """Return the owner references of a node."""
        owner = {"metadata": {"name": name, "uid": self._uids.get(name)}}
        reference = owner_reference(owner, api_version=VERSION, kind="NodeClaim")
        del reference["controller"]
        return [reference] if name in self._uids else []

    # --- what has changed ---------------------------------------------------------------------

    def _look(self, old: JsonDict | None, new: JsonDict | None) -> None:
        name = metadata_of(new or old or {})["name"]
        if name in self._uids or self._claims.get(NamespacedName("", name)) is not None:
            self._queue.add(name)

    def _pod(self, old: JsonDict | None, new: JsonDict | None) -> None:
        for pod in (old, new):
            name = spec_of(pod or {}).get("nodeName")
            if name in self._uids:
                self._queue.add(name)

    def _group(self, machine: Machine) -> str:
        assert self._karpenter is not None  # noqa: S101 - its machines are here
        return self._karpenter.machines.pools[machine.pool].group

    def _reconcile(self, name: str) -> int | None:
        """Write the NodeClaim of a machine; let the machine go whose NodeClaim or node is deleted.

        Return when to look again.
        """
        karpenter = self._karpenter
        if karpenter is None:
            return None
        claim = self._claims.get(NamespacedName("", name))
        machine = karpenter.machines.here.get(name)
        if machine is None:
            self._uids.pop(name, None)
            self._drifted.pop(name, None)
            if claim is not None:
                self._let_go(claim, karpenter)
            return None
        if claim is None:
            claim = self._create(machine, ())
        self._uids[name] = metadata_of(claim)["uid"]
        node = self._nodes.get(NamespacedName("", name))
        if not machine.leaving and any(map(is_deleting, filter(None, (claim, node)))):
            karpenter.machines.drain(machine, DELETED)
            return None
        self._look_for_drift(claim, karpenter)
        with ignoring("NotFound"):
            if machine.leaving and not is_deleting(claim):
                self._manager.client.delete(NODE_CLAIMS, name)
            self._write(claim, machine, karpenter)
        return self._next_look(machine, karpenter)

    def _let_go(self, claim: JsonDict, karpenter: Karpenter) -> None:
        """Release a NodeClaim without a machine, and its node once a user deletes either.

        Such a node is of an instance type that its NodePool lost while nobody ran: nothing
        drains it. Of a NodeClaim of the user's own, say that nothing comes of it.
        """
        name = metadata_of(claim)["name"]
        node = self._nodes.get(NamespacedName("", name))
        if node is not None:
            if FINALIZER in finalizers_of(claim) and any(map(is_deleting, (claim, node))):
                karpenter.machines.host.remove(name, ())
            return
        if FINALIZER not in finalizers_of(claim):
            self._recorder.event(
                claim,
                "NodeClaim",
                "NotActedOn",
                "NodeClaims of your own are not acted on: create a NodePool",
                type="Warning",
                api_version=VERSION,
            )
            return
        client = self._manager.client
        with ignoring("NotFound"):
            if not is_deleting(claim):
                client.delete(NODE_CLAIMS, name)
                claim = client.get(NODE_CLAIMS, name)
            amend(client, NODE_CLAIMS, claim, lambda latest: drop_finalizer(latest, FINALIZER))

    def _next_look(self, machine: Machine, karpenter: Karpenter) -> int | None:
        if machine.ready is None or machine.leaving:
            return SECOND
        quiet = karpenter.quiet_from(machine)
        now = karpenter.events.now()
        return None if quiet is None or quiet <= now else quiet - now

    # --- the object ---------------------------------------------------------------------------

    def _create(self, machine: Machine, pods: Sequence[PodInfo]) -> JsonDict:
        """Create the NodeClaim of a machine, unless it is there."""
        client = self._manager.client
        try:
            claim = client.create(NODE_CLAIMS, self._body(machine, pods))
        except ApiError as error:
            if error.reason != "AlreadyExists":
                raise
            claim = client.get(NODE_CLAIMS, machine.name)
        self._uids[machine.name] = metadata_of(claim)["uid"]
        return claim

    def _body(self, machine: Machine, pods: Sequence[PodInfo]) -> JsonDict:
        assert self._karpenter is not None  # noqa: S101 - its machines are here
        pool = self._karpenter.machines.pools[machine.pool]
        node_pool = self._node_pools.get(NamespacedName("", pool.group))
        labels = {**labels_of(pool.node), HOSTNAME: machine.name}
        requests: Counter[str] = Counter(pods=len(pods))
        for pod in pods:
            requests.update(pod.requests)
        given = (spec_of(node_pool or {}).get("template") or {}).get("spec") or {}
        chosen = {name: labels[name] for name in (INSTANCE_TYPE, CAPACITY_TYPE, POOL)}
        own = [each for each in given.get("requirements") or () if each["key"] not in chosen]
        only = [
            {"key": name, "operator": "In", "values": [value]} for name, value in chosen.items()
        ]
        metadata: JsonDict = {
            "name": machine.name,
            "labels": labels,
            "annotations": {**MANAGED, **HASH_VERSION, HASH: self._hashes.get(pool.group, "")},
            "finalizers": [FINALIZER],
        }
        if node_pool is not None:
            owner = owner_reference(node_pool, api_version=VERSION, kind="NodePool")
            del owner["controller"]
            metadata["ownerReferences"] = [owner]
        return {
            "metadata": metadata,
            "spec": {
                **given,
                "requirements": [*own, *only],
                "resources": {
                    "requests": {
                        each: amount_of(each, amount) for each, amount in sorted(requests.items())
                    }
                },
            },
        }

    def _write(self, claim: JsonDict, machine: Machine, karpenter: Karpenter) -> None:
        now = self._manager.now()
        node = self._nodes.get(NamespacedName("", machine.name))
        amounts = karpenter.machines.pools[machine.pool].amounts
        offer = {
            each: amount_of(each, amounts[each]) for each in sorted(amounts.keys() - {"nodes"})
        }

        def change(latest: JsonDict) -> bool:
            held = status_of(latest)
            conditions = list(self._conditions(latest, machine, karpenter))
            wanted = {
                **held,
                "providerID": provider_id(machine.name),
                "capacity": offer,
                "allocatable": offer,
                "conditions": updated(latest, conditions, len(NEEDED), now),
            }
            if node is not None:
                wanted["nodeName"] = machine.name
            if touched := karpenter.touched(machine):
                wanted["lastPodEventTime"] = rfc3339(touched)
            latest["status"] = wanted
            return wanted != held

        amend(self._manager.client, NODE_CLAIMS, claim, change, subresource="status")

    # --- conditions ---------------------------------------------------------------------------

    def _conditions(
        self, claim: JsonDict, machine: Machine, karpenter: Karpenter
    ) -> Iterator[JsonDict]:
        """Yield the conditions of a NodeClaim, those first that make it ready."""
        yield condition("Launched")
        node = self._nodes.get(NamespacedName("", machine.name))
        if is_true(claim, "Registered") or node is not None:
            yield condition("Registered")
        else:
            message = "Node not registered with cluster"
            yield condition("Registered", "Unknown", "NodeNotFound", message)
        if is_true(claim, "Initialized") or machine.ready is not None:
            yield condition("Initialized")
        else:
            yield self._uninitialized(machine, node, karpenter)
        quiet = karpenter.quiet_from(machine)
        if machine.ready is not None and quiet is not None and quiet <= karpenter.events.now():
            yield condition("Consolidatable")
        if reason := self._drifted.get(machine.name):
            yield condition("Drifted", reason=reason, message=reason)
        if reason := karpenter.disrupted_for(machine):
            yield condition("DisruptionReason", reason=reason, message=reason)
        if machine.leaving:
            yield condition("Drained", "Unknown", "Draining", "Draining")

    def _uninitialized(
        self, machine: Machine, node: JsonObject | None, karpenter: Karpenter
    ) -> JsonDict:
        if node is None:
            return awaiting("Initialized")
        ready = condition_of(node, "Ready") or {}
        starting = karpenter.machines.settings[machine.pool].startup_taints
        tainted = {(each["key"], each["effect"]) for each in taints_of(node)}
        blocking = [each for each in starting if (each["key"], each["effect"]) in tainted]
        early = [each for each in taints_of(node) if each["key"] in EPHEMERAL]
        if ready.get("status") != "True":
            reason, message = "NodeNotReady", "Node status is NotReady"
        elif late := self._late_driver(machine, karpenter):
            reason = "DRADriverPoolsNotPublished"
            message = f'DRA driver "{late}" has not published a complete resource pool'
        elif blocking:
            reason, message = (
                "StartupTaintsExist",
                f'StartupTaint "{_text(blocking[0])}" still exists',
            )
        elif early:
            reason = "KnownEphemeralTaintsExist"
            message = f'KnownEphemeralTaint "{_text(early[0])}" still exists'
        else:
            return awaiting("Initialized")
        return condition("Initialized", "Unknown", reason, message)

    def _late_driver(self, machine: Machine, karpenter: Karpenter) -> str:
        """Return a driver that has not published all its slices of a node; empty: none."""
        due = Counter(
            spec_of(each)["driver"] for each in karpenter.machines.pools[machine.pool].slices
        )
        there = Counter(
            spec_of(each)["driver"]
            for each in self._slices
            if spec_of(each).get("nodeName") == machine.name
        )
        return next((driver for driver in sorted(due) if there[driver] < due[driver]), "")

    # --- drift --------------------------------------------------------------------------------

    def _look_for_drift(self, claim: JsonObject, karpenter: Karpenter) -> None:
        name, reason = metadata_of(claim)["name"], self._drift(claim)
        if reason != self._drifted.get(name, ""):
            self._drifted[name] = reason
            karpenter.set_drifted(each for each, why in self._drifted.items() if why)

    def _drift(self, claim: JsonObject) -> str:
        """Return the reason for which a node has drifted from its NodePool; empty: none."""
        notes, template = annotations_of(claim), self._templates.get(labels_of(claim).get(POOL, ""))
        if template is None:
            return ""
        known = notes.get(HASH) if HASH_VERSION.items() <= notes.items() else None
        if known and known != self._hashes[template.rules.name]:
            return "NodePoolDrifted"
        if not all(each.accepts(labels_of(claim)) for each in template.requirements):
            return "RequirementsDrifted"
        return ""

    def _hash(self, template: NodePoolTemplate) -> str:
        """Return what changes with each field by which nodes drift; the order of taints is none."""
        node_pool = self._node_pools.get(NamespacedName("", template.rules.name))
        given = spec_of(node_pool or {}).get("template") or {}
        spec = given.get("spec") or {}
        taints, starting = (
            sorted(orjson.dumps(each, option=orjson.OPT_SORT_KEYS).decode() for each in listed)
            for listed in (template.taints, template.startup_taints)
        )
        hashed = {
            "labels": dict(template.labels),
            "annotations": (given.get("metadata") or {}).get("annotations") or {},
            "taints": taints,
            "startupTaints": starting,
            "expireAfter": template.rules.expire_after,
            "nodeClassRef": spec.get("nodeClassRef"),
            "terminationGracePeriod": spec.get("terminationGracePeriod"),
        }
        digest = hashlib.sha256(orjson.dumps(hashed, option=orjson.OPT_SORT_KEYS)).digest()
        return str(int.from_bytes(digest[:8]))


def _text(taint: JsonObject) -> str:
    value = f"={taint['value']}" if taint.get("value") else ""
    return f"{taint['key']}{value}:{taint['effect']}"


def provider_id(name: str) -> str:
    """Return how the provider kwok calls a machine."""
    return f"kwok://{name}"
