"""The fate of every pod after a change: whether it runs, moves or waits, and why."""

from collections.abc import Iterable, Sequence
from typing import Final, Literal

from dralab.capacity.changes import SupposedChange
from dralab.capacity.fragmentation import KindFragmentation, fragmentation, pod_kinds
from dralab.capacity.page_words import PageWords, WaitingReason
from dralab.capacity.relocation import devices_of
from dralab.objects.metadata import NamespacedName
from dralab.scheduling.model import ClusterModel, Decision
from dralab.scheduling.pods import PodInfo
from dralab.scheduling.state import PodPlacement, Refusal
from dralab.values.records import dataclass

Fate = Literal[
    "starts",
    "starts anyway",
    "still waits",
    "no longer starts",
    "moves",
    "restarts",
    "is displaced",
]

NONE: Final = WaitingReason("", "")


@dataclass(frozen=True, slots=True, kw_only=True)
class PodComparison:
    """One pod: where it would run without the change (empty: nowhere), and with it.

    `why` says why it waits then, `code` names the cause. `interrupted` is set where it waited for
    a while meanwhile. `devices` are those that it has with the change, as POOL/DEVICE.
    """

    pod: NamespacedName
    fate: Fate
    before: str = ""
    after: str = ""
    why: str = ""
    code: str = ""
    interrupted: bool = False
    devices: Sequence[str] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class WhatIf:
    """The effects of the change, and the pods that still wait.

    Pods that run on where they are have no outcome; `unaffected` counts them. `nodes` is how many
    nodes there are before and after; `added` and `removed` name those that differ.
    """

    outcomes: Sequence[PodComparison]
    unaffected: int
    nodes: tuple[int, int]
    added: Sequence[str]
    removed: Sequence[str]
    before: Sequence[KindFragmentation]
    after: Sequence[KindFragmentation]

    def with_fate(self, *fates: Fate) -> list[PodComparison]:
        """Return the pods of some fates."""
        return [each for each in self.outcomes if each.fate in fates]


def what_if(
    model: ClusterModel,
    changes: Iterable[SupposedChange],
    other: ClusterModel | None = None,
    *,
    explain: bool = True,
) -> WhatIf:
    """Return the fate of a model's pods after some changes; the model is not changed.

    `other` is the cluster that is changed, where it differs from the beginning on; by default the
    model itself. Waiting pods are scheduled in either case, so that what the change brings about
    is told from what would have come anyway. Without `explain` the reasons are kube-scheduler's
    sentences alone, which cost far less on large fleets. UnknownName: a change names what is not
    there.
    """
    kinds = pod_kinds(model)
    with model.tentatively():
        without = model.run(model.waiting)
        before = fragmentation(model, kinds)
        nodes = dict.fromkeys(model.state.table.row_of)
    changed = model if other is None else other
    with changed.tentatively():
        was = {uid: each.node for uid, each in changed.running.items()}
        known = {uid: each.pod for uid, each in changed.running.items()}
        leaving = [pod for change in changes for pod in change.apply(changed)]
        waiting = list(changed.waiting)
        decided = changed.run([*leaving, *waiting])
        reasons = _reasons(changed, decided, explain=explain)
        outcomes = [
            _of_waiting(pod, without.get(pod.uid), decided[pod.uid], reasons) for pod in waiting
        ]
        touched = [
            (uid, node)
            for uid, node in was.items()
            if uid in changed.evicted
            or (now := changed.running.get(uid)) is None
            or now.node != node
        ]
        for uid, node in sorted(touched, key=lambda item: known[item[0]].key):
            now = changed.running.get(uid)
            if now is None and uid not in decided:
                continue  # it ended with its node, or on purpose
            outcomes.append(
                PodComparison(
                    pod=known[uid].key,
                    fate=_of_running(node, now),
                    before=node,
                    after="" if now is None else now.node,
                    why=reasons.get(uid, NONE).text,
                    code=reasons.get(uid, NONE).code,
                    interrupted=uid in changed.interrupted,
                    devices=() if now is None else devices_of(now),
                )
            )
        return WhatIf(
            outcomes=outcomes,
            unaffected=sum(uid in changed.running and uid not in changed.evicted for uid in was),
            nodes=(len(nodes), changed.state.table.count),
            added=[name for name in changed.state.table.row_of if name not in nodes],
            removed=[name for name in nodes if name not in changed.state.table.row_of],
            before=before,
            after=fragmentation(changed, kinds),
        )


def _reasons(
    model: ClusterModel, decided: dict[str, Decision], *, explain: bool
) -> dict[str, WaitingReason]:
    words = PageWords(model)
    return {
        uid: words(each) if explain else WaitingReason(each.code, each.message)
        for uid, each in decided.items()
        if isinstance(each, Refusal)
    }


def _of_waiting(
    pod: PodInfo, without: Decision | None, now: Decision, reasons: dict[str, WaitingReason]
) -> PodComparison:
    before = without.node if isinstance(without, PodPlacement) else ""
    after = now.node if isinstance(now, PodPlacement) else ""
    fate: Fate
    if after:
        fate = "starts anyway" if before else "starts"
    else:
        fate = "no longer starts" if before else "still waits"
    return PodComparison(
        pod=pod.key,
        fate=fate,
        before=before,
        after=after,
        why=reasons.get(pod.uid, NONE).text,
        code=reasons.get(pod.uid, NONE).code,
        devices=devices_of(now) if isinstance(now, PodPlacement) else (),
    )


def _of_running(node: str, now: PodPlacement | None) -> Fate:
    if now is None:
        return "is displaced"
    return "restarts" if now.node == node else "moves"
