"""Unsupported parts of a scenario: refused if they affect results, else reported.

`--scheduler dralab` supports them; every message here says so.
"""

from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from dralab.drivers.catalog import DRIVERS
from dralab.explanation.names import counted
from dralab.objects.metadata import spec_of
from dralab.scenarios.errors import InputError
from dralab.simulation.lifecycle.model import Pod, RunConditions
from dralab.simulation.scenario.fleet import ScenarioFleet
from dralab.simulation.scenario.scenario import Scenario
from dralab.simulation.scenario.schedulers import ROUNDS
from dralab.simulation.scenario.workload import ScenarioWorkload
from dralab.simulation.workloads.openb import WHOLE_GPU
from dralab.values.json_types import JsonDict

INSTEAD: Final = "`--scheduler dralab` supports it"
# Kinds that make pods, change them, or say how many there may be.
ONLY_IN_A_CLUSTER: Final = frozenset(
    {
        "CronJob", "DaemonSet", "Deployment", "PersistentVolume", "PersistentVolumeClaim",
        "PodDisruptionBudget", "ReplicaSet", "ReplicationController", "ResourceQuota",
        "StatefulSet", "ValidatingWebhookConfiguration", "MutatingWebhookConfiguration",
    }
)  # fmt: skip


def refuse_for_jobs(
    file: Path,
    conditions: RunConditions,
    why: str = "this scheduler places rigid jobs",
    *,
    outages: bool = False,
) -> None:
    """Raise InputError for faults, queues and a life cycle: rigid jobs have none.

    With `outages`, nodes may go down; then all the pods of a gang lose their run together.
    """
    life = conditions.life
    between = (*life.start, *life.release)
    if outages:
        faults = any(not fault.is_outage for fault in conditions.faults)
    else:
        faults = bool(conditions.faults) or conditions.random_faults is not None
    gangs = life.gangs == "wait" if outages else life.gangs != "alone"
    given = {
        "faults": faults,
        "queues": bool(conditions.quotas),
        "lifecycle": bool(life.failure or gangs or any(s.delay or s.jitter for s in between)),
        "scheduler.strict_order": conditions.blocking,
    }
    for where, found in given.items():
        if found:
            raise InputError(file, f"is for pods; {why}", where=where)


def refuse_in_rounds(scenario: Scenario) -> None:
    """Raise InputError for what rounds of time slices do not act out."""
    file, conditions = scenario.file, scenario.conditions
    why = "in rounds, trainings share GPUs in turns, and only nodes fail"
    refuse_for_jobs(file, conditions, why, outages=True)
    if not any(node.gpus for node in scenario.fleet.as_nodes()):
        raise InputError(file, "has no GPUs, which trainings share in rounds", where="fleet")
    if scenario.fleet.running or scenario.work.objects:
        where = "fleet" if scenario.fleet.running else "workload"
        raise InputError(file, "has objects of a cluster, which rounds do not have", where=where)
    for node in scenario.fleet.as_nodes():
        if node.gpus and node.taints:
            problem = f"node {node.name} has taints, which rounds do not heed"
            raise InputError(file, problem, where="fleet")
    for pod in scenario.pods():
        for problem in _beyond_rounds(pod):
            raise InputError(file, problem, where=f"workload: Pod {pod.key}")


def _beyond_rounds(pod: Pod) -> Iterator[str]:
    if not pod.request.gpus or pod.request.milli != WHOLE_GPU:
        yield "rounds share whole GPUs, and it asks for none, or for a part of one"
    if pod.training is None and not pod.duration:
        yield "needs a `duration`: in rounds a task ends when its work is done"
    if pod.request.labels or pod.topology:
        yield "asks for nodes by labels, which rounds do not heed"


def refuse_trainings(scenario: Scenario) -> None:
    """Raise InputError for trainings with a scheduler of pods."""
    if any(pod.training is not None for pod in scenario.work.pods):
        problem = (
            f"trainings run in rounds, and {scenario.scheduler} is not for them: choose one of "
            f"{', '.join(ROUNDS)}, or a class of yours and a `round`"
        )
        raise InputError(scenario.file, problem, where="workload.trainings")


def refuse_fast(scenario: Scenario) -> None:
    """Raise InputError for features of the cluster engine that affect pods."""
    for where, what in beyond_fast(scenario):
        raise InputError(scenario.file, f"{what}; {INSTEAD}", where=where)


def refuse_lives(scenario: Scenario) -> None:
    """Raise InputError for lives of pods that only the fast engine acts out."""
    instead = "the policies for pods and `dralab-fast` support it"
    if scenario.conditions.life.gangs != "alone":
        raise InputError(
            scenario.file, f"only `alone` is for this scheduler; {instead}", where="lifecycle.gangs"
        )
    for pod in scenario.pods():
        if pod.until is not None:
            problem = f"`until` is not for this scheduler; {instead}"
            raise InputError(scenario.file, problem, where=f"workload: Pod {pod.key}")


def beyond_fast(scenario: Scenario) -> Iterator[tuple[str, str]]:
    """Yield the place and name of features that the fast engine does not support."""
    fleet, work = scenario.fleet, scenario.work
    objects = () if work.until is not None else work.objects
    for body in () if fleet.counted else fleet.running:
        yield "fleet", f"{_title(body)} runs already, which the fast engine cannot take over"
    for where, part in (("fleet", fleet), *(("pools", pool.fleet) for pool in scenario.pools)):
        for node in part.nodes:
            for name in node.drivers:
                if name not in DRIVERS:
                    yield where, f"node {node.name} has the driver {name}, whose code would not run"
    for each in objects:
        if each.body.get("kind") in {"Node", "ResourceSlice"}:
            yield "workload", f"{_title(each.body)} belongs to the fleet, where its driver is"
    of_pools = (body for pool in scenario.pools for body in pool.fleet.objects)
    for body in (*fleet.objects, *of_pools, *(dict(each.body) for each in objects)):
        yield from _beyond_fast_of_object(body, scenario)
    for fault in scenario.conditions.faults:
        if fault.happens is not None:
            yield "faults", "the fast engine calls no driver, so none can fail"
        on_devices = fault.device or not fault.node
        if fault.taint is not None and on_devices and fault.taint[2] == "NoExecute":
            yield "faults", "a NoExecute taint of devices needs the controller that evicts pods"
    for pod in scenario.pods():
        for name in _beyond_fast_of_pod(pod):
            yield f"workload: Pod {pod.key}", f"the fast engine does not act out {name}"


def left_out(fleet: ScenarioFleet) -> Iterator[str]:
    """Yield a sentence about what the fast engine leaves out of a recording."""
    kinds = Counter(str(each.get("kind")) for each in fleet.running if fleet.counted)
    found = {kind: count for kind, count in sorted(kinds.items()) if kind in ONLY_IN_A_CLUSTER}
    if found:
        counts = ", ".join(f"{count} {kind}" for kind, count in found.items())
        yield f"these objects of the recording are left out: {counts}; {INSTEAD}"


def _beyond_fast_of_object(body: JsonDict, scenario: Scenario) -> Iterator[tuple[str, str]]:
    kind, spec = str(body.get("kind")), spec_of(body)
    if kind in ONLY_IN_A_CLUSTER:
        yield "workload", f"{_title(body)} needs its controller"
    if kind == "PodGroup" and spec.get("resourceClaims"):
        yield "workload", f"{_title(body)} has resourceClaims of its own"
    if kind == "ResourceSlice" and any(
        device.get("bindingConditions") for device in spec.get("devices") or ()
    ):
        yield "fleet", f"{_title(body)} has devices with bindingConditions"
    if kind == "Job":
        if spec.get("suspend"):
            yield "workload", f"{_title(body)} is suspended"
        if spec.get("completions") not in {None, spec.get("parallelism") or 1}:
            yield "workload", f"{_title(body)} has more completions than pods at a time"
        if scenario.conditions.life.failure:
            yield "lifecycle", f"{_title(body)}: its controller decides when failed pods return"


def _beyond_fast_of_pod(pod: Pod) -> Iterator[str]:
    spec = spec_of(pod.body or {})
    for name in ("activeDeadlineSeconds", "nodeName", "deviceClaims"):
        if spec.get(name):
            yield f"spec.{name}"
    if any(each.get("restartPolicy") for each in spec.get("initContainers") or ()):
        yield "sidecars (spec.initContainers[].restartPolicy)"
    if any(volume.get("persistentVolumeClaim") or volume.get("ephemeral")
           for volume in spec.get("volumes") or ()):  # fmt: skip
        yield "persistent volumes"
    if pod.duration is None and any(
        container.get("command") or container.get("args")
        for container in (*(spec.get("initContainers") or ()), *(spec.get("containers") or ()))
    ):
        yield "commands: say how long it runs (simulation.dralab.dev/runs)"


def _title(body: Mapping[str, Any]) -> str:
    return f"{body.get('kind')} {(body.get('metadata') or {}).get('name')}"


def notes_outside(fleet: ScenarioFleet, work: ScenarioWorkload) -> Iterator[str]:
    """Yield a sentence for each feature that is ignored with an external scheduler."""
    yield from _running(fleet)
    with_drivers = sum(bool(node.drivers) for node in fleet.nodes)
    if with_drivers:
        yield f"drivers of {counted(with_drivers, 'node')} are ignored; {INSTEAD}"
    limited = sum(
        bool(((pod.body or {}).get("spec") or {}).get("activeDeadlineSeconds")) for pod in work.pods
    )
    if limited:
        yield f"activeDeadlineSeconds of {counted(limited, 'pod')} is ignored; {INSTEAD}"


def _running(fleet: ScenarioFleet) -> Iterator[str]:
    kinds = Counter(str(body.get("kind")) for body in fleet.running)
    if kinds:
        counts = ", ".join(f"{count} {kind}" for kind, count in sorted(kinds.items()))
        yield f"these objects of the snapshot are ignored: {counts}; {INSTEAD}"
