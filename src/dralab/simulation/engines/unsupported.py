"""Parts of a scenario that engines do not support: refused if they affect results, else reported.

Their pods have requests, a node selector, a priority, a gang and a queue. The scheduler with all of
Kubernetes' rules is `--scheduler dralab`; every message here says so.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from dralab.drivers.catalog import DRIVERS
from dralab.objects.metadata import spec_of
from dralab.objects.requests import requested
from dralab.simulation.errors import InputError
from dralab.simulation.lifecycle.model import Pod, RunConditions
from dralab.simulation.scenario.fleet import ScenarioFleet
from dralab.simulation.scenario.scenario import Scenario
from dralab.simulation.scenario.workload import ScenarioWorkload
from dralab.values.json_types import JsonDict

INSTEAD_FAST: Final = "`--scheduler dralab-fast` does"
INSTEAD: Final = "`--scheduler dralab` supports it"
# Fields of a pod that decide where it may run, or what it costs, and that only a cluster knows.
FIELDS: Final = (
    "affinity", "topologySpreadConstraints", "tolerations", "resourceClaims", "initContainers",
    "schedulingGates", "overhead", "schedulingGroup", "activeDeadlineSeconds", "nodeName",
)  # fmt: skip
# Those of them without which a placement means nothing.
DECIDING: Final = (
    "resourceClaims", "affinity", "topologySpreadConstraints", "schedulingGates", "nodeName",
)  # fmt: skip
# Kinds whose content the readers have made use of.
READ: Final = frozenset({"Node", "Pod", "Job", "PriorityClass", "Namespace", "List"})
# Kinds that make pods, change them, or say how many there may be.
ONLY_IN_A_CLUSTER: Final = frozenset(
    {
        "CronJob", "DaemonSet", "Deployment", "PersistentVolume", "PersistentVolumeClaim",
        "PodDisruptionBudget", "ReplicaSet", "ReplicationController", "ResourceQuota",
        "StatefulSet", "ValidatingWebhookConfiguration", "MutatingWebhookConfiguration",
    }
)  # fmt: skip
KNOWN_RESOURCES: Final = frozenset({"cpu", "memory", "nvidia.com/gpu", "ephemeral-storage"})


FOR_PODS: Final = "is for pods; this scheduler places rigid jobs"
NOT_IN_TICKS: Final = f"is not simulated tick by tick; {INSTEAD}"


def refuse(
    file: Path, fleet: ScenarioFleet, conditions: RunConditions, *, no_lives: str = ""
) -> None:
    """Raise InputError for what a built-in engine cannot run at all.

    `no_lives` is what to say where an engine has neither faults nor queues nor a life cycle.
    """
    if no_lives:
        life = conditions.life
        between = (*life.start, *life.release)
        given = {
            "faults": bool(conditions.faults) or conditions.random_faults is not None,
            "queues": bool(conditions.quotas),
            "lifecycle": bool(life.failure or any(s.delay or s.jitter for s in between)),
            "scheduler.strict_order": conditions.blocking,
        }
        for where, found in given.items():
            if found:
                raise InputError(file, no_lives, where=where)
    for fault in conditions.faults:
        if not fault.is_outage:
            what = "a taint" if fault.taint else "a driver fault"
            problem = f"no built-in policy supports {what}; {INSTEAD}"
            raise InputError(file, problem, where="faults")
    for node in fleet.nodes:
        if node.drivers:
            problem = f"node {node.name} has drivers, which no built-in policy uses; {INSTEAD}"
            raise InputError(file, problem, where="fleet")


def refuse_fast(scenario: Scenario) -> None:
    """Raise InputError for what only a whole cluster acts out, where it affects pods."""
    for where, what in _beyond_fast(scenario):
        raise InputError(scenario.file, f"{what}; {INSTEAD}", where=where)


def _beyond_fast(scenario: Scenario) -> Iterator[tuple[str, str]]:
    """Yield where something is that the fast engine cannot act out, and what it is."""
    fleet, work = scenario.fleet, scenario.work
    for body in fleet.running:
        yield "fleet", f"{_title(body)} runs already, which the fast engine cannot take over"
    for node in fleet.nodes:
        for name in node.drivers:
            if name not in DRIVERS:
                yield "fleet", f"node {node.name} has the driver {name}, whose code would not run"
    for each in work.objects:
        if each.body.get("kind") in {"Node", "ResourceSlice"}:
            yield "workload", f"{_title(each.body)} belongs to the fleet, where its driver is"
    for body in (*fleet.objects, *(dict(each.body) for each in work.objects)):
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
    for name in ("initContainers", "activeDeadlineSeconds", "nodeName", "deviceClaims"):
        if spec.get(name):
            yield f"spec.{name}"
    if any(volume.get("persistentVolumeClaim") or volume.get("ephemeral")
           for volume in spec.get("volumes") or ()):  # fmt: skip
        yield "persistent volumes"
    if pod.duration is None and any(
        container.get("command") or container.get("args")
        for container in spec.get("containers") or ()
    ):
        yield "commands: say how long it runs (simulation.dralab.dev/runs)"


def _title(body: Mapping[str, Any]) -> str:
    return f"{body.get('kind')} {(body.get('metadata') or {}).get('name')}"


def refuse_rules(scenario: Scenario) -> None:
    """Raise InputError for what decides where pods go and a policy of its own does not know."""
    for pod in scenario.work.pods:
        spec = spec_of(pod.body or {})
        for name in DECIDING:
            if spec.get(name):
                raise InputError(
                    scenario.file,
                    f"{scenario.scheduler} does not know spec.{name}; {INSTEAD_FAST}",
                    where=f"workload: Pod {pod.key}",
                )


def notes(fleet: ScenarioFleet, work: ScenarioWorkload) -> Iterator[str]:
    """Yield a sentence for everything that the built-in policies for pods leave out."""
    yield from _left_out(fleet, work)
    if len({pod.priority for pod in work.pods}) > 1 and _from_objects(work.pods):
        yield f"a higher priority goes first, but there is no preemption; {INSTEAD}"


def notes_of_ticks(scenario: Scenario) -> Iterator[str]:
    """Yield a sentence for everything that k8s-cluster-simulator's scheduler leaves out."""
    yield from _left_out(scenario.fleet, scenario.work)
    pods = scenario.pods()
    fields = {
        "nodeSelector": sum(bool(pod.request.labels) for pod in pods),
        "the model of GPU": sum(bool(pod.request.models) for pod in pods),
        "the gang": sum(bool(pod.gang) for pod in pods),
    }
    for name, count in fields.items():
        if count:
            yield f"{name} of {_counted(count, 'pod')} is ignored; {INSTEAD}"


def _left_out(fleet: ScenarioFleet, work: ScenarioWorkload) -> Iterator[str]:
    tainted = sum(bool(node.taints) for node in fleet.nodes)
    if tainted:
        yield f"taints of {_counted(tainted, 'node')} are ignored; {INSTEAD}"
    kinds = Counter(
        str(body.get("kind")) for body in (*fleet.objects, *(a.body for a in work.objects))
    )
    yield from _running(fleet)
    left = [f"{count} {kind}" for kind, count in sorted(kinds.items()) if kind not in READ]
    if left:
        yield f"these objects are ignored: {', '.join(left)}; {INSTEAD}"
    fields: Counter[str] = Counter()
    for pod in work.pods:
        if pod.body is not None:
            fields.update(set(_unheeded(spec_of(pod.body))))
    for name, count in sorted(fields.items()):
        yield f"{name} of {_counted(count, 'pod')} is ignored; {INSTEAD}"


def notes_outside(fleet: ScenarioFleet, work: ScenarioWorkload) -> Iterator[str]:
    """Yield a sentence for what is not done where an external scheduler decides."""
    yield from _running(fleet)
    with_drivers = sum(bool(node.drivers) for node in fleet.nodes)
    if with_drivers:
        yield f"drivers of {_counted(with_drivers, 'node')} are ignored; {INSTEAD}"
    limited = sum(
        bool(((pod.body or {}).get("spec") or {}).get("activeDeadlineSeconds")) for pod in work.pods
    )
    if limited:
        yield f"activeDeadlineSeconds of {_counted(limited, 'pod')} is ignored; {INSTEAD}"


def _running(fleet: ScenarioFleet) -> Iterator[str]:
    kinds = Counter(str(body.get("kind")) for body in fleet.running)
    if kinds:
        counts = ", ".join(f"{count} {kind}" for kind, count in sorted(kinds.items()))
        yield f"these objects of the snapshot are ignored: {counts}; {INSTEAD}"


def _from_objects(pods: Iterable[Pod]) -> bool:
    return any(pod.body is not None for pod in pods)


def _unheeded(spec: Mapping[str, Any]) -> Iterator[str]:
    yield from (name for name in FIELDS if spec.get(name))
    for container in spec.get("containers") or ():
        if any(port.get("hostPort") for port in container.get("ports") or ()):
            yield "hostPort"
        for name in requested(container.get("resources")):
            if name not in KNOWN_RESOURCES:
                yield f"request {name}"


def _counted(count: int, noun: str) -> str:
    return f"{count} {noun}" + ("s" if count > 1 else "")
