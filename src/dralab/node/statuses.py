"""The conditions of a pod, from those of its containers (kubelet 1.36, `status/generate.go`)."""

from collections.abc import Sequence
from typing import Any

from dralab.node.container_runs import RunningContainer
from dralab.objects.conditions import condition_of
from dralab.values.json_types import JsonDict
from dralab.values.records import dataclass


@dataclass(frozen=True, slots=True)
class PodEnd:
    """How a pod ended."""

    phase: str
    reason: str = ""
    message: str = ""


def conditions(
    pod: JsonDict,
    inits: Sequence[RunningContainer],
    mains: Sequence[RunningContainer],
    *,
    over: PodEnd | None,
    initialized: bool,
    started: bool,
) -> list[dict[str, Any]]:
    """Return the conditions that are the kubelet's."""
    unready = [each.name for each in mains if not each.ready]
    began: dict[str, Any] = {"status": "True"}
    if over is not None and over.phase == "Succeeded":
        why = {"reason": "PodCompleted"}
        ready = containers = {"status": "False", **why}
        began |= why
    elif over is not None:
        ready = containers = {"status": "False", "reason": "PodFailed"}
    elif unready:
        text = f"containers with unready status: [{' '.join(unready)}]"
        ready = containers = {"status": "False", "reason": "ContainersNotReady", "message": text}
    else:
        ready, containers = _gated(pod), {"status": "True"}
    if not initialized:
        names = [e.name for e in inits if not (e.has_started if e.sidecar else e.ready)]
        began = {
            "status": "False",
            "reason": "ContainersNotInitialized",
            "message": f"containers with incomplete status: [{' '.join(names)}]",
        }
    sandbox = "True" if started and over is None else "False"
    return [
        {"type": "PodReadyToStartContainers", "status": sandbox},
        {"type": "Initialized", **began},
        {"type": "Ready", **ready},
        {"type": "ContainersReady", **containers},
    ]


def _gated(pod: JsonDict) -> dict[str, str]:
    """Return whether a pod with ready containers is ready, by its readiness gates."""
    problems = []
    for gate in pod["spec"].get("readinessGates") or ():
        name = gate["conditionType"]
        known = condition_of(pod, name)
        if known is None:
            problems.append(
                f'corresponding condition of pod readiness gate "{name}" does not exist.'
            )
        elif known["status"] != "True":
            problems.append(
                f'the status of pod readiness gate "{name}" is not "True", but {known["status"]}'
            )
    if not problems:
        return {"status": "True"}
    return {
        "status": "False",
        "reason": "ReadinessGatesNotReady",
        "message": ", ".join(problems),
    }
