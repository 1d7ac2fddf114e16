"""How containers are stopped: preStop hooks first, sidecars after all others.

Sources: kubelet 1.36 (killContainer, killContainersWithSyncResult) and KEP-753.
"""

from collections.abc import Callable, Sequence
from http.client import HTTPException
from typing import Final

from dralab.kernel.clock import SECOND
from dralab.node.container_runs import RunningContainer
from dralab.node.containers import Container, ContainerStartError
from dralab.node.node_context import NodeContext
from dralab.node.probing import http_status
from dralab.node.shell import lasts
from dralab.values.json_types import JsonDict, JsonObject

LEAST: Final = 2.0  # kubelet: minimumGracePeriodInSeconds, what is left after a hook


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
        if until < each.ends_by:
            each.ends_by = until
            container.stop(grace)
        return False
    each.stopping, each.ends_by = True, until
    hook = (each.spec.get("lifecycle") or {}).get("preStop") or {}
    if not hook or grace <= 0:
        container.stop(grace)
        return True

    def stop() -> None:
        if each.container is container:
            container.stop(max((each.ends_by - node.clock.now()) / SECOND, LEAST))

    def answered(found: object) -> None:
        if found is not True:
            node.recorder.event(
                pod, "Pod", "FailedPreStopHook", "PreStopHook failed", type="Warning"
            )
        stop()

    command = (hook.get("exec") or {}).get("command") or []
    if getattr(container, "real", False) and "sleep" not in hook:
        node.offload(_work(container, hook, grace), answered)
    else:
        seconds = float((hook.get("sleep") or {}).get("seconds") or 0)
        seconds = seconds or (lasts(command, grace) if command else 0.0)
        node.later(int(min(seconds, grace) * SECOND), stop)
    return True


def _work(container: Container, hook: JsonObject, grace: float) -> Callable[[], bool]:
    """Return what a hook does in a container that is real."""

    def work() -> bool:
        command = (hook.get("exec") or {}).get("command")
        if command:
            try:
                return container.run(command, lambda _channel, _data: None, timeout=grace) == 0
            except ContainerStartError:
                return False
        get = hook.get("httpGet") or {}
        port = get.get("port")
        try:
            return isinstance(port, int) and http_status(port, get.get("path", "/"), grace) < 400
        except (OSError, HTTPException):
            return False

    return work
