"""The conditions of a pod, from what its containers do (kubelet 1.36, `status/generate.go`)."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from dralab.node.running import Running


@dataclass(frozen=True, slots=True)
class Verdict:
    """How a pod ended."""

    phase: str
    reason: str = ""
    message: str = ""


def conditions(
    inits: Sequence[Running],
    mains: Sequence[Running],
    *,
    over: Verdict | None,
    initialized: bool,
    started: bool,
) -> list[dict[str, Any]]:
    """Return the conditions that are the kubelet's."""
    unready = [each.name for each in mains if not each.ready]
    if over is not None and over.phase == "Succeeded":
        why = {"reason": "PodCompleted"}
        ready = containers = {"status": "False", **why}
        initialized_now: dict[str, Any] = {"status": "True", **why}
    elif over is not None:
        ready = containers = {"status": "False", "reason": "PodFailed"}
        initialized_now = {"status": "True" if initialized else "False"}
    elif unready:
        text = f"containers with unready status: [{' '.join(unready)}]"
        ready = containers = {"status": "False", "reason": "ContainersNotReady", "message": text}
        initialized_now = {"status": "True"}
    else:
        ready = containers = {"status": "True"}
        initialized_now = {"status": "True"}
    if over is None and not initialized:
        names = [e.name for e in inits if not (e.has_started if e.sidecar else e.ready)]
        initialized_now = {
            "status": "False",
            "reason": "ContainersNotInitialized",
            "message": f"containers with incomplete status: [{' '.join(names)}]",
        }
    sandbox = "True" if started and over is None else "False"
    return [
        {"type": "PodReadyToStartContainers", "status": sandbox},
        {"type": "Initialized", **initialized_now},
        {"type": "Ready", **ready},
        {"type": "ContainersReady", **containers},
    ]
