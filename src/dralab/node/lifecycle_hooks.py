"""Runs lifecycle hooks of containers, postStart and preStop.

Source: kubelet 1.36, `lifecycle/handlers.go`. Who runs them when is decided in `pods` and
`termination`.
"""

from collections.abc import Callable
from typing import Final, Protocol

from dralab.kernel.clock import SECOND
from dralab.kernel.http_client import UnansweredError
from dralab.node.container_runs import RunningContainer
from dralab.node.containers import Container, ContainerStartError
from dralab.node.http_gets import http_status
from dralab.node.network.sandbox import ON_MACHINE
from dralab.node.node_context import NodeContext
from dralab.node.probing import port_number
from dralab.node.shell import lasts
from dralab.values.json_types import JsonObject

FOREVER: Final = 1e9  # seconds: a hook that takes so long never ends
ANSWER_WITHIN: Final = 30.0  # seconds, of a server that an HTTP hook asks


class Answer(Protocol):
    """Called once with the result of a hook."""

    def __call__(self, *, good: bool) -> None:
        """Take the answer."""
        ...


def run_hook(
    node: NodeContext,
    each: RunningContainer,
    hook: JsonObject,
    limit: float | None,
    done: Answer,
) -> None:
    """Run a hook of a running container, for `limit` seconds at most; `done` is called later.

    In a simulated container a command takes the time that it would take, and all hooks succeed.
    """
    container = each.container
    command = (hook.get("exec") or {}).get("command") or []
    most = FOREVER if limit is None else limit
    if container is not None and getattr(container, "real", False) and "sleep" not in hook:
        work = _work(container, each.spec, hook, limit)
        node.offload(work, lambda found: done(good=found is True))
        return
    seconds = float((hook.get("sleep") or {}).get("seconds") or 0)
    seconds = seconds or (lasts(command, most) if command else 0.0)
    if seconds < FOREVER:
        node.later(int(min(seconds, most) * SECOND), lambda: done(good=True))


def _work(
    container: Container, spec: JsonObject, hook: JsonObject, limit: float | None
) -> Callable[[], bool]:
    """Return the work of a hook in a real container."""

    def work() -> bool:
        command = (hook.get("exec") or {}).get("command")
        if command:
            try:
                return container.run(command, lambda _channel, _data: None, timeout=limit) == 0
            except ContainerStartError:
                return False
        get = hook.get("httpGet") or {}
        port = port_number(spec, get.get("port"))
        if port is None:
            return False
        try:
            # Any answer is good: the kubelet does not look at its status.
            sandbox = getattr(container, "sandbox", ON_MACHINE)
            http_status(sandbox, get, port, limit or ANSWER_WITHIN)
        except UnansweredError:
            return False
        return True

    return work
