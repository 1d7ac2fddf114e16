"""The claims of a node's pods: prepared before the first container, unprepared after the last.

Source of steps and texts: kubelet 1.36, `pkg/kubelet/cm/dra`. One `ClaimsOfNode` per node; calls
to drivers are offloaded, so that a slow driver does not block others.
"""

from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import field, replace
from functools import partial
from typing import Final

from dralab.api.status import ApiError
from dralab.contracts.plugin import ClaimRef, PluginError, PreparedDevice, PrepareResult
from dralab.node.checkpoint import ClaimInfo, NoCheckpoint, NodeCheckpoint
from dralab.node.claim_forms import ClaimForm, ClaimMissing, Drivers, claims_of
from dralab.node.container_devices import ContainerDevices, PreparedClaim
from dralab.node.metrics import ANY_DRIVER, NodeMetrics
from dralab.node.plugins import Plugins
from dralab.objects.claims import PREPARE as NODE_PREPARE
from dralab.objects.claims import UNPREPARE as NODE_UNPREPARE
from dralab.objects.claims import (
    allocation_of,
    consumers_of,
    is_reserved_for,
    results_of,
    skipped_operations,
)
from dralab.objects.metadata import key_of, owner_uids, owners_of, uid_of
from dralab.runtime.client import Client
from dralab.runtime.engine import Engine
from dralab.values.json_types import JsonDict
from dralab.values.records import dataclass

Done = Callable[[str], None]
# A claim; its drivers, with what they are told and can skip; the devices that it holds alone.
_Wanted = tuple[ClaimRef, Drivers, Mapping[str, frozenset[str]], frozenset[tuple[str, str, str]]]
PREPARE: Final = "Prepare"
UNPREPARE: Final = "Unprepare"


class _Refused(Exception):  # noqa: N818 - a fact about a claim
    """A pod's claims cannot be prepared; nothing has happened yet."""


@dataclass(slots=True)
class _Claim:
    ref: ClaimRef
    drivers: Drivers
    pods: set[str] = field(default_factory=set)
    devices: dict[str, tuple[PreparedDevice, ...]] = field(default_factory=dict)
    # The devices that the claim holds alone: (driver, pool, device).
    exclusive: frozenset[tuple[str, str, str]] = frozenset()
    # What drivers need not be called for.
    skips: Mapping[str, frozenset[str]] = field(default_factory=dict)
    # In this process: after a restart, drivers are called again.
    prepared: bool = False
    busy: bool = False

    def called_for(self, operation: str) -> list[str]:
        """Return the drivers that are called for an operation."""
        return [driver for driver in self.drivers if operation not in self.skips.get(driver, ())]

    def ref_for(self, driver: str) -> ClaimRef:
        """Return the claim's reference for one of its drivers."""
        handle = self.drivers[driver]
        return self.ref if handle is None else replace(self.ref, handle=handle)


class ClaimsOfNode:
    """The prepared claims of one node, and their pods."""

    def __init__(
        self,
        engine: Engine,
        client: Client,
        plugins: Plugins,
        checkpoint: NodeCheckpoint | None = None,
    ) -> None:
        self.engine = engine
        self.client = client
        self.plugins = plugins
        self.checkpoint = checkpoint or NoCheckpoint()
        self._claims: dict[tuple[str, str], _Claim] = {}
        self.metrics = NodeMetrics()
        self.of_containers = ContainerDevices(plugins, self._held)
        # Called with a pod and what is inconsistent about its claims.
        self.on_conflict: Callable[[JsonDict, str], None] = lambda _pod, _text: None
        for held in self.checkpoint.load():
            devices = {driver: found for driver, found in held.devices.items() if found}
            exclusive = frozenset(
                (driver, each.pool, each.device)
                for driver, found in devices.items()
                for each in found
                if not each.share_id
            )
            self._claims[held.ref.namespace, held.ref.name] = _Claim(
                held.ref,
                dict.fromkeys(held.devices),
                set(held.pods),
                devices,
                exclusive,
                held.skips,
            )

    # --- pods ---------------------------------------------------------------------------------

    def prepare(self, pod: JsonDict, done: Done) -> bool:
        """Prepare a pod's claims; `done` gets "" or the error. False: a call for one is under way.

        Nothing is kept of a pod whose claims are not as they should be.
        """
        done = self._measured("PrepareResources", done)
        try:
            wanted = self._wanted(pod)
        except _Refused as error:
            done(str(error))
            return True
        uid = uid_of(pod)
        found = []
        for ref, drivers, skips, exclusive in wanted:
            held = self._claims.get((ref.namespace, ref.name))
            if held is not None and held.ref.uid != ref.uid:
                done(
                    f"old ResourceClaim with same name {ref.name} and different UID "
                    f"{held.ref.uid} still exists (previous pod force-deleted?!)"
                )
                return True
            if held is not None and held.busy:
                return False
            if held is None:
                held = _Claim(ref, drivers)
                self._claims[ref.namespace, ref.name] = held
            held.drivers, held.skips, held.exclusive = drivers, skips, exclusive
            found.append(held)
        for held in found:
            held.pods.add(uid)
            if not held.prepared and (text := self._conflict(held)):
                self.on_conflict(pod, text)
        self._save()
        batches: dict[str, list[ClaimRef]] = {}
        for held in found:
            if not held.prepared:
                held.busy = True
                for driver in held.called_for(NODE_PREPARE):
                    batches.setdefault(driver, []).append(held.ref_for(driver))
        self.engine.offload(
            lambda: {
                driver: _call(self.plugins, driver, refs, PREPARE)
                for driver, refs in batches.items()
            },
            lambda answers: self._prepared(found, batches, answers, done),
            lane=self._lane(batches),
        )
        return True

    def _prepared(
        self,
        found: Sequence[_Claim],
        batches: Mapping[str, Sequence[ClaimRef]],
        answers: Mapping[str, Mapping[str, PrepareResult] | str] | Exception,
        done: Done,
    ) -> None:
        for held in found:
            held.busy = False
        problem = str(answers) if isinstance(answers, Exception) else ""
        by_uid = {held.ref.uid: held for held in found}
        for driver, answer in () if isinstance(answers, Exception) else answers.items():
            if isinstance(answer, str):
                problem = problem or answer
                continue
            problem = problem or _misfit(answer, batches[driver], PREPARE)
            for uid, one in answer.items():
                if one.error and uid in by_uid:
                    name = by_uid[uid].ref.name
                    problem = problem or (
                        f"NodePrepareResources failed for ResourceClaim {name}: {one.error}"
                    )
                elif uid in by_uid:
                    by_uid[uid].devices[driver] = one.devices
        if not problem:
            for held in found:
                held.prepared = True
        self._save()
        done(problem)

    def unprepare(self, pod_uid: str, done: Done) -> bool:
        """Unprepare a pod's claims; `done` gets "" or the error.

        Return False if a call for one of them is under way.
        """
        mine = [held for held in self._claims.values() if pod_uid in held.pods]
        last = [held for held in mine if held.pods == {pod_uid}]
        if any(held.busy for held in last):
            return False
        done = self._measured("UnprepareResources", done)
        for held in mine:
            if held not in last:
                held.pods.discard(pod_uid)
        if not last:
            self._save()
            done("")
            return True
        batches: dict[str, list[ClaimRef]] = {}
        for held in last:
            held.busy = True
            for driver in held.called_for(NODE_UNPREPARE):
                batches.setdefault(driver, []).append(held.ref_for(driver))
        self.engine.offload(
            lambda: {
                driver: _call(self.plugins, driver, refs, UNPREPARE)
                for driver, refs in batches.items()
            },
            lambda answers: self._unprepared(last, batches, answers, pod_uid, done),
            lane=self._lane(batches),
        )
        return True

    def _unprepared(
        self,
        last: Sequence[_Claim],
        batches: Mapping[str, Sequence[ClaimRef]],
        answers: Mapping[str, Mapping[str, PrepareResult] | str] | Exception,
        pod_uid: str,
        done: Done,
    ) -> None:
        problem = str(answers) if isinstance(answers, Exception) else ""
        failed: set[str] = set()
        names = {held.ref.uid: held.ref.name for held in last}
        for driver, answer in () if isinstance(answers, Exception) else answers.items():
            text = (
                answer if isinstance(answer, str) else _misfit(answer, batches[driver], UNPREPARE)
            )
            if text:
                problem = problem or text
                failed |= {ref.uid for ref in batches[driver]}
            for uid, one in {} if isinstance(answer, str) else answer.items():
                if one.error and uid in names:
                    failed.add(uid)
                    problem = problem or (
                        f"NodeUnprepareResources failed for ResourceClaim {names[uid]}: {one.error}"
                    )
        for held in last:
            held.busy = False
            if held.ref.uid not in failed and not isinstance(answers, Exception):
                held.pods.discard(pod_uid)
                if not held.pods:
                    self._claims.pop((held.ref.namespace, held.ref.name), None)
        self._save()
        done(problem)

    def reconcile(self, active: Collection[str], told: Callable[[str, str], None]) -> None:
        """Unprepare the claims of pods that are not `active` any more, given by their UIDs.

        This is needed for pods that vanished while the node was down. `told` gets each such
        UID, and "" or why its claims could not be given back: the next call tries again.
        """
        for uid in sorted(self.users() - set(active)):
            self.unprepare(uid, partial(told, uid))

    def _conflict(self, held: _Claim) -> str:
        """Return a claim's devices that another claim still holds here; usually none."""
        for other in self._claims.values():
            for driver, pool, device in sorted(held.exclusive & other.exclusive):
                if other is not held:
                    return (
                        f"device {driver}/{pool}/{device} was allocated to ResourceClaim "
                        f"{held.ref.name} while ResourceClaim {other.ref.namespace}/"
                        f"{other.ref.name} ({other.ref.uid}) still holds it on this node "
                        "(previous pod force-deleted?!)"
                    )
        return ""

    def users(self) -> set[str]:
        """Return the UIDs of all pods that hold claims here."""
        return {uid for held in self._claims.values() for uid in held.pods}

    def in_use(self) -> dict[str, int]:
        """Return how many claims are prepared, by driver; `<any>` counts each of them once."""
        prepared = [held for held in list(self._claims.values()) if held.prepared]
        counts = Counter(driver for held in prepared for driver in held.drivers)
        return {**counts, ANY_DRIVER: len(prepared)}

    def holds(self, pod_uid: str) -> bool:
        """Return whether a pod holds claims here."""
        return any(pod_uid in held.pods for held in self._claims.values())

    # --- looking at claims ------------------------------------------------------------------------

    def _wanted(self, pod: JsonDict) -> list[_Wanted]:
        """Return the pod's claims, once all of them are as they should be.

        With each, the drivers that gave it devices, what they are told, and the devices that are
        its alone.
        """
        try:
            found = claims_of(pod)
        except ClaimMissing as error:
            raise _Refused(str(error)) from error
        return [
            self._checked(pod, name, form, generated=generated)
            for name, (generated, form) in found.items()
        ]

    def _checked(self, pod: JsonDict, name: str, form: ClaimForm, *, generated: bool) -> _Wanted:
        key = key_of(pod)
        try:
            claim = self.client.get(form.resource, name, key.namespace)
        except ApiError as error:
            kind = "DeviceClaim" if form.problem else "ResourceClaim"
            raise _Refused(f"fetch {kind} {name}: {error.message}") from error
        if form.problem is not None:
            if problem := form.problem(claim):
                raise _Refused(problem)
        else:
            self._check_reserved(pod, claim, form, generated=generated)
        drivers, skips = form.drivers(claim), skipped_operations(allocation_of(claim))
        for driver in drivers:
            if NODE_PREPARE in skips.get(driver, ()):
                continue
            if form.stand_ins:
                self.plugins.stand_in(driver)
            if self.plugins.get(driver) is None:
                raise _Refused(f"DRA driver {driver} is not registered")
        exclusive = frozenset(
            (result["driver"], result["pool"], result["device"])
            for result in results_of(allocation_of(claim))
            if not result.get("shareID") and not result.get("adminAccess")
        )
        return ClaimRef(key.namespace, name, claim["metadata"]["uid"]), drivers, skips, exclusive

    def _check_reserved(
        self, pod: JsonDict, claim: JsonDict, form: ClaimForm, *, generated: bool
    ) -> None:
        key, name = key_of(pod), key_of(claim).name
        owners = owner_uids(claim)
        kinds = {owner["kind"] for owner in owners_of(claim)}
        if generated and form.user not in owners and "PodGroup" not in kinds:
            raise _Refused(
                f"ResourceClaim {key.namespace}/{name} was not created for Pod {key} "
                "(Pod is not owner)"
            )
        group = pod["spec"].get("schedulingGroup") or {}
        groups = {user["name"] for user in consumers_of(claim)} & set(group.values())
        if not is_reserved_for(claim, form.user) and not groups:
            raise _Refused(
                f"pod {key.name} ({form.user}) is not allowed to use ResourceClaim {name} "
                f"({claim['metadata']['uid']})"
            )
        if allocation_of(claim) is None:
            raise _Refused(f"ResourceClaim {name}: not allocated")

    def _lane(self, drivers: Collection[str]) -> str:
        """Return the lane of calls to drivers; drivers in other processes may take 45 s."""
        remote = [driver for driver in sorted(drivers) if self.plugins.is_remote(driver)]
        return f"calls {','.join(remote)}" if remote else ""

    def _held(self, namespace: str, name: str) -> PreparedClaim | None:
        held = self._claims.get((namespace, name))
        return None if held is None else PreparedClaim(held.ref, held.devices)

    def _measured(self, operation: str, done: Done) -> Done:
        """Return `done`, wrapped to record how long the operation took."""
        clock = self.engine.clock
        begun = clock.now()

        def measured(problem: str) -> None:
            self.metrics.operation(operation, clock.now() - begun, failed=bool(problem))
            done(problem)

        return measured

    def _save(self) -> None:
        self.checkpoint.save(
            [
                ClaimInfo(
                    held.ref,
                    tuple(sorted(held.pods)),
                    # All its drivers: also one that has not answered the prepare call.
                    {driver: held.devices.get(driver, ()) for driver in held.drivers},
                    held.skips,
                )
                for _, held in sorted(self._claims.items())
            ]
        )


def _call(
    plugins: Plugins, driver: str, refs: Sequence[ClaimRef], verb: str
) -> Mapping[str, PrepareResult] | str:
    """Call a driver; a text is its error. Runs beside the events."""
    plugin = plugins.get(driver)
    if plugin is None:
        return f"DRA driver {driver} is not registered"
    try:
        if verb == PREPARE:
            return plugin.prepare(refs)
        return {uid: PrepareResult(error=text) for uid, text in plugin.unprepare(refs).items()}
    except PluginError as error:
        return f"Node{verb}Resources: {error} (DRA driver {driver})"


def _misfit(answer: Mapping[str, PrepareResult], asked: Sequence[ClaimRef], verb: str) -> str:
    """Return the missing or extra claims of an answer; empty if none."""
    uids = {ref.uid for ref in asked}
    for uid in answer:
        if uid not in uids:
            return f"Node{verb}Resources returned result for unknown claim UID {uid}"
    missing = len(uids - set(answer))
    return f"Node{verb}Resources skipped {missing} ResourceClaims" if missing else ""
