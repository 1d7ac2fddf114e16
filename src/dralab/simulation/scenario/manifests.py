"""Kubernetes manifests as a workload: pods and jobs with their arrival times.

Annotations: `simulation.dralab.dev/arrives`, `runs` and `starts` (from binding to running) are
durations;
`simSpec` (k8s-cluster-simulator) gives the run time as the sum of its phases; Alibaba's
`alibabacloud.com/gpu-milli`, `gpu-count`, `gpu-card-model`, `creation-time` and `deletion-time`
are understood. A Job stands for its `parallelism` (or `completions`) pods. Objects of other kinds
are for the schedulers that have an API server; those that have none say that they leave them out.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from dralab.api.manifests import Manifest, Origin, load
from dralab.kernel.clock import SECOND
from dralab.kernel.durations import duration
from dralab.objects.metadata import annotations_of, metadata_of, spec_of
from dralab.objects.requests import requested
from dralab.scenarios.errors import InputError, InputProblems
from dralab.simulation.lifecycle.model import Pod
from dralab.simulation.workloads import phases
from dralab.simulation.workloads.openb import WHOLE_GPU, PodRequest
from dralab.values.quantity import QuantityError, parse_any

ARRIVES: Final = "simulation.dralab.dev/arrives"
RUNS: Final = "simulation.dralab.dev/runs"
STARTS: Final = "simulation.dralab.dev/starts"
ALIBABA: Final = "alibabacloud.com/"
GPU: Final = "nvidia.com/gpu"
POD: Final = ("", "Pod")
JOB: Final = ("batch", "Job")  # there are others: batch.volcano.sh has one
GANG_LABELS: Final = ("pod-group.scheduling.sigs.k8s.io", "scheduling.x-k8s.io/pod-group")
QUEUE_LABEL: Final = "kueue.x-k8s.io/queue-name"
SYSTEM_PRIORITIES: Final[Mapping[str, int]] = {
    "system-cluster-critical": 2_000_000_000,
    "system-node-critical": 2_000_001_000,
}


@dataclass(frozen=True, slots=True)
class Arrival:
    """An object that is created at a time, in nanoseconds since the run began.

    In a recorded history it may also be changed to what it is then, or it is `gone`.
    """

    when: int
    body: Mapping[str, Any]
    gone: bool = False


def read(path: Path, problems: InputProblems) -> tuple[tuple[Pod, ...], tuple[Arrival, ...]]:
    """Return the pods of a file, and its other objects; InputError names line and object.

    A Job is among the objects, and its pods are among the pods: they name it as their owner.
    """
    loaded = load([str(path)])
    for problem in loaded.problems:
        problems.about(InputError(path, str(problem.message), line=problem.origin.line))
    found: dict[str, Pod] = {}
    others: dict[tuple[str, str, str, str], Arrival] = {}
    classes = _priorities(loaded.objects)
    for manifest in loaded.objects:
        try:
            for pod in _of(manifest, path, classes):
                if pod.key in found:
                    raise _error(path, manifest, "a pod with that name already exists")
                found[pod.key] = pod
            if (manifest.group, manifest.kind) != POD:
                name = (manifest.group, manifest.kind, manifest.namespace, manifest.name)
                if name in others:
                    raise _error(path, manifest, "is given twice")
                others[name] = Arrival(_arrives(manifest, path), manifest.object)
        except InputError as error:
            problems.about(error)
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            problems.about(_error(path, manifest, f"has a field of the wrong kind: {error}"))
    return tuple(found.values()), tuple(others.values())


def of_object(obj: Mapping[str, Any], arrives: int) -> Pod:
    """Return the pod of an object that a server holds; its owner is the first that it names."""
    metadata = obj["metadata"]
    manifest = Manifest(dict(obj), Origin("the cluster", 0, 0))
    pod = _pod(manifest, Path("the cluster"), obj, str(metadata["name"]), {"": 0})
    owner: Mapping[str, Any] = next(iter(metadata.get("ownerReferences") or ()), {})
    name = f"{owner.get('kind')} {pod.namespace}/{owner.get('name')}" if owner else ""
    return replace(pod, arrives=arrives, owner=name, body=None)


def _priorities(manifests: Iterable[Manifest]) -> dict[str, int]:
    """Return the value of each PriorityClass, and of the default one under the empty name."""
    found: dict[str, int] = {}
    for manifest in manifests:
        if manifest.kind == "PriorityClass":
            value = manifest.object.get("value")
            if isinstance(value, int) and not isinstance(value, bool):
                found[manifest.name] = value
                if manifest.object.get("globalDefault") is True:
                    found[""] = value
    return found


def _arrives(manifest: Manifest, path: Path) -> int:
    annotations = annotations_of(manifest.object)
    try:
        return duration(_number(str(annotations.get(ARRIVES) or "0")))
    except ValueError as error:
        raise _error(path, manifest, f"annotation {ARRIVES}: {error}") from None


def _error(path: Path, manifest: Manifest, problem: str) -> InputError:
    return InputError(path, problem, line=manifest.origin.line, where=manifest.title)


def _of(manifest: Manifest, path: Path, classes: Mapping[str, int]) -> Iterator[Pod]:
    if (manifest.group, manifest.kind) == POD:
        yield _pod(manifest, path, manifest.object, manifest.name, classes)
    elif (manifest.group, manifest.kind) == JOB:
        spec = spec_of(manifest.object)
        count = spec.get("parallelism") or spec.get("completions") or 1
        if not isinstance(count, int) or not 0 < count <= 100_000:
            raise _error(path, manifest, f"parallelism must be from 1 to 100000, not {count!r}")
        template = dict(spec.get("template") or {})
        outer = metadata_of(manifest.object)
        inner = dict(metadata_of(template))
        inner["annotations"] = {
            **(outer.get("annotations") or {}), **(inner.get("annotations") or {}),
        }  # fmt: skip
        template["metadata"] = inner
        for index in range(count):
            name = manifest.name if count == 1 else f"{manifest.name}-{index}"
            pod = _pod(manifest, path, template, name, classes)
            yield replace(pod, owner=f"Job {pod.namespace}/{manifest.name}")


def _pod(
    manifest: Manifest,
    path: Path,
    given: Mapping[str, Any],
    name: str,
    classes: Mapping[str, int],
) -> Pod:
    metadata, spec = metadata_of(given), spec_of(given)
    annotations = {str(k): str(v) for k, v in (metadata.get("annotations") or {}).items()}
    labels = metadata.get("labels") or {}
    requests = _requests(manifest, path, spec)
    gpus = int(annotations.get(f"{ALIBABA}gpu-count") or requests.get(GPU, 0))
    milli = int(annotations.get(f"{ALIBABA}gpu-milli") or WHOLE_GPU) if gpus else 0
    selector = spec.get("nodeSelector") or {}
    request = PodRequest(
        -int(-1000 * requests.get("cpu", 0) // 1),
        min(milli, WHOLE_GPU),
        gpus,
        annotations.get(f"{ALIBABA}gpu-card-model", "") if gpus else "",
        ",".join(sorted(f"{k}={v}" for k, v in selector.items())),
    )
    try:
        arrives, length = _times(annotations)
        starting = duration(_number(annotations.get(STARTS) or "0"))
    except ValueError as error:
        raise _error(path, manifest, str(error)) from None
    return Pod(
        name=name,
        namespace=manifest.namespace or "default",
        request=request,
        memory=int(requests.get("memory", 0)),
        arrives=arrives,
        duration=length,
        priority=_priority(manifest, path, spec, classes),
        gang=str(next((labels[key] for key in GANG_LABELS if key in labels), "")),
        queue=str(labels.get(QUEUE_LABEL, "")),
        user=manifest.namespace or "default",
        body=given,
        scheduler=str(spec.get("schedulerName") or ""),
        starting=starting,
    )


def _priority(
    manifest: Manifest, path: Path, spec: Mapping[str, Any], classes: Mapping[str, int]
) -> int:
    named = spec.get("priorityClassName") or ""
    if named in SYSTEM_PRIORITIES:
        return SYSTEM_PRIORITIES[named]
    if "priority" in spec and isinstance(spec["priority"], int):
        return int(spec["priority"])
    if named and named not in classes:
        problem = f"there is no PriorityClass {named!r} in this file"
        raise _error(path, manifest, f"spec.priorityClassName: {problem}")
    return classes.get(named, 0)


def _times(annotations: Mapping[str, str]) -> tuple[int, int | None]:
    created, deleted = (annotations.get(f"{ALIBABA}{key}-time") for key in ("creation", "deletion"))
    arrives = duration(_number(annotations.get(ARRIVES) or created or "0"))
    if RUNS in annotations:
        return arrives, duration(_number(annotations[RUNS]))
    if phases.ANNOTATION in annotations:
        return arrives, sum(
            p.seconds for p in phases.parse(annotations[phases.ANNOTATION])
        ) * SECOND
    if deleted is not None:
        return arrives, max(0, duration(_number(deleted)) - arrives)
    return arrives, None


def _number(text: str) -> float | str:
    try:
        return float(text)
    except ValueError:
        return text


def _requests(manifest: Manifest, path: Path, spec: Mapping[str, Any]) -> dict[str, Any]:
    """Return what the containers ask for together (limits where they request nothing)."""
    total: dict[str, Any] = {}
    for container in spec.get("containers") or []:
        asked = requested(container.get("resources"))
        for key, value in asked.items():
            try:
                total[key] = total.get(key, 0) + parse_any(value)
            except QuantityError:
                raise _error(path, manifest, f"{key}: {value!r} is not a quantity") from None
    return total
