"""How containers are stopped: preStop hooks first, sidecars after all others.

Sources: kubelet 1.36 (killContainer, killContainersWithSyncResult) and KEP-753.
"""

from collections.abc import Sequence
from typing import Final

from dralab.kernel.clock import SECOND
from dralab.node.container_runs import RunningContainer
from dralab.node.lifecycle_hooks import run_hook
from dralab.node.node_context import NodeContext
from dralab.values.json_types import JsonDict

LEAST: Final = 2.0  # kubelet: minimumGracePeriodInSeconds, what is left after a hook

# Times of one deadline, computed at different moments, differ by less.
SAME: Final = SECOND // 2


def next_to_end(containers: Sequence[RunningContainer]) -> list[RunningContainer]:
    """Return which containers end now: all but sidecars, then sidecars, the last one first."""
    alive = [each for each in containers if each.alive]
    others = [each for each in alive if not each.sidecar]
    return others[::-1] or alive[-1:]


def end(node: NodeContext, pod: JsonDict, each: RunningContainer, grace: float) -> bool:
    """Ask a container to end within `grace` seconds; return whether it had not been asked yet.

    Asked again with less time it gets less.
    """
    container, now = each.container, node.clock.now()
    if container is None:
        return False
    until = now + int(max(grace, 0) * SECOND)
    if each.stopping:
        if until < each.ends_by - SAME:
            each.ends_by = until
            container.stop(grace)
        return False
    each.stopping, each.ends_by = True, until
    hook = (each.spec.get("lifecycle") or {}).get("preStop") or {}
    if not hook or grace <= 0:
        container.stop(grace)
        return True

    def answered(*, good: bool) -> None:
        if not good:
            node.recorder.event(
                pod, "Pod", "FailedPreStopHook", "PreStopHook failed", type="Warning"
            )
        if each.container is container:
            container.stop(max((each.ends_by - node.clock.now()) / SECOND, LEAST))

    run_hook(node, each, hook, grace, answered)
    return True
