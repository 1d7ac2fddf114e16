"""Which of two allocations of the same devices counts: the one that the server stored first.

No lock keeps two schedulers from giving a device twice: a write may be held up in a socket while
another scheduler takes over. Yet the server stores all writes one after the other, and a watch
tells of them in that order. A pod is bound only after its scheduler has seen its own allocations
there, and no earlier one that leaves too little for them. docs/decisions/one-device-one-claim.md
has the protocol; `withdrawal` takes allocations back, and `binder` decides when to ask.
"""

from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from dralab.allocation.inventory.holdings import device_of
from dralab.objects.claims import allocation_of, claim_names, consumers_of, holds, results_of
from dralab.objects.metadata import NamespacedName, key_of, revision_of, uid_of
from dralab.objects.pods import group_of
from dralab.runtime.cache import Cache
from dralab.runtime.client import WatchEvent
from dralab.scheduling.devices import ClusterDevices
from dralab.scheduling.pods import DEFAULT_SCHEDULER
from dralab.values.json_types import JsonDict, JsonObject


class SeenAllocation(NamedTuple):
    """An observed allocation: stored after one revision, and at another at the latest.

    `revision` is that of the claim when it was last seen.
    """

    claim: NamespacedName
    after: int
    by: int
    revision: int
    allocation: JsonObject

    def is_before(self, other: "SeenAllocation") -> bool:
        """Return whether this one is known to have been stored first."""
        return self.by <= other.after


class AllocationOrder:
    """Follows the claims of a cluster, and when each got its present allocation.

    `position` is the revision up to which everything was seen. `restarts` counts how often a
    server began again at a lower one.
    """

    def __init__(self) -> None:
        self.position = 0
        self.restarts = 0
        self._seen: dict[str, SeenAllocation] = {}

    def get(self, uid: str) -> SeenAllocation | None:
        """Return the allocation of a claim; None if it has none, as far as that was seen."""
        return self._seen.get(uid)

    def listed(self, items: Sequence[JsonDict], revision: str) -> None:
        """Take over all claims as of a revision; their order of allocation is unknown."""
        before, self.position = self.position, int(revision or 0)
        if self.position < before:
            before = 0
            self.restarts += 1
            self._seen.clear()
        found = {}
        for claim in items:
            allocation = allocation_of(claim)
            if allocation is None:
                continue
            uid, at = uid_of(claim), revision_of(claim)
            held = self._seen.get(uid)
            if held is not None and held.revision == at:
                found[uid] = held
            else:
                # One that looks the same may have been taken back and made again meanwhile.
                same = held is not None and held.allocation == allocation
                after = held.after if same and held is not None else before
                found[uid] = SeenAllocation(key_of(claim), after, at, at, allocation)
        self._seen = found

    def changed(self, event: WatchEvent) -> None:
        """Handle the next change of a claim."""
        claim = event.object
        at, uid = revision_of(claim), uid_of(claim)
        allocation = None if event.type == "DELETED" else allocation_of(claim)
        if allocation is None:
            self._seen.pop(uid, None)
        else:
            held = self._seen.get(uid)
            if held is not None and held.allocation == allocation:
                self._seen[uid] = held._replace(revision=at)
            else:
                self._seen[uid] = SeenAllocation(key_of(claim), at - 1, at, at, allocation)
        self.position = max(self.position, at)


class AllocationVerdict(NamedTuple):
    """Whether an allocation counts; if not, why, and what to do about it.

    `lost`: it has to be taken back. `others`: of claims of which it is not known which came first,
    these have to be taken back.
    """

    counts: bool
    why: str = ""
    lost: bool = False
    others: tuple[JsonDict, ...] = ()


COUNTS: Final = AllocationVerdict(counts=True)


class Precedence:
    """Judges allocations by the order in which they were stored, and by bound pods."""

    def __init__(
        self,
        order: AllocationOrder,
        devices: ClusterDevices,
        claims: Cache,
        pods: Cache,
        scheduler: str,
    ) -> None:
        self.order = order
        self._devices = devices
        self._claims = claims
        self._pods = pods
        self._scheduler = scheduler

    def verdict(self, written: JsonDict) -> AllocationVerdict:
        """Judge the allocation of a claim whose write has been seen."""
        uid = uid_of(written)
        mine = self.order.get(uid)
        name = f"claim {key_of(written)}"
        if mine is None:
            return AllocationVerdict(
                counts=False, why=f"{name}: its devices were taken back meanwhile"
            )
        if results_of(mine.allocation) != results_of(allocation_of(written)):
            return AllocationVerdict(counts=False, why=f"{name}: it has other devices meanwhile")
        rivals = self._devices.rivals(uid)
        if not rivals or self._is_in_use(mine):
            return COUNTS
        earlier: list[str] = []
        unknown: list[str] = []
        for rival in rivals:
            its = self.order.get(rival)
            if its is None:
                continue  # it is yet to be stored
            if its.is_before(mine) or self._is_in_use(its):
                earlier.append(rival)
            elif not mine.is_before(its):
                unknown.append(rival)
        if earlier and not self._devices.can_all_hold([*earlier, uid]):
            return self._loss(mine, earlier, "was allocated first")
        if not unknown or self._devices.can_all_hold([*earlier, *unknown, uid]):
            return COUNTS
        # In some order that is the same for all who ask; another scheduler may not know of it.
        preferred = min([uid, *unknown], key=self._rank)
        if preferred != uid or any(map(self._is_foreign, unknown)):
            return self._loss(mine, unknown, "may have been allocated first")
        others = tuple(claim for rival in unknown if (claim := self._claim_of(rival)) is not None)
        return AllocationVerdict(
            counts=False, why=self._text(mine, [uid], "keeps them"), others=others
        )

    def reason(self, loser: JsonDict, winner: JsonDict) -> str:
        """Return the reason to release a claim's allocation, for its pods' conditions."""
        mine = self.order.get(uid_of(loser))
        if mine is None:
            return f"claim {key_of(loser)} has lost its devices"
        return self._text(mine, [uid_of(winner)], "may have been allocated first")

    def consumers(self, claim: JsonDict) -> list[JsonDict]:
        """Return the pods that a claim is reserved for, as far as they are known."""
        namespace = key_of(claim).namespace
        found = []
        for consumer in consumers_of(claim):
            if consumer.get("resource") == "podgroups":
                found += [
                    pod
                    for pod in self._pods.namespace(namespace)
                    if group_of(pod) == consumer["name"] and key_of(claim).name in claim_names(pod)
                ]
                continue
            pod = self._pods.get(NamespacedName(namespace, consumer["name"]))
            if pod is not None and uid_of(pod) == consumer["uid"]:
                found.append(pod)
        return found

    def _loss(self, mine: SeenAllocation, to: Sequence[str], how: str) -> AllocationVerdict:
        return AllocationVerdict(counts=False, why=self._text(mine, to, how), lost=True)

    def _text(self, mine: SeenAllocation, rivals: Iterable[str], how: str) -> str:
        seen = [its for rival in rivals if (its := self.order.get(rival)) is not None]
        own = [device_of(item) for item in holds(mine.allocation)]
        for its in seen:
            theirs = {device_of(item) for item in holds(its.allocation)}
            common = next((device for device in own if device in theirs), None)
            if common is not None:
                device = f"{common.driver}/{common.pool}/{common.device}"
                return (
                    f"claim {mine.claim}: device {device} is held by claim {its.claim}, which {how}"
                )
        names = ", ".join(f"claim {its.claim}" for its in seen)
        return f"claim {mine.claim}: its devices do not fit beside those of {names}, which {how}"

    def _claim_of(self, uid: str) -> JsonDict | None:
        seen = self.order.get(uid)
        claim = None if seen is None else self._claims.get(seen.claim)
        return claim if claim is not None and uid_of(claim) == uid else None

    def _is_in_use(self, seen: SeenAllocation) -> bool:
        """Return whether a bound pod uses an allocation."""
        claim = self._claims.get(seen.claim)
        return claim is not None and any(
            pod["spec"].get("nodeName") for pod in self.consumers(claim)
        )

    def _is_foreign(self, uid: str) -> bool:
        """Return whether pods of another scheduler use a claim."""
        claim = self._claim_of(uid)
        return claim is not None and any(
            pod["spec"].get("schedulerName", DEFAULT_SCHEDULER) != self._scheduler
            for pod in self.consumers(claim)
        )

    def _rank(self, uid: str) -> tuple[str, str]:
        seen = self.order.get(uid)
        return ("", uid) if seen is None else (str(seen.allocation.get("allocationTimestamp")), uid)
