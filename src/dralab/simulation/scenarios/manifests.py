"""Kubernetes manifests as a workload: pods and jobs with the time at which they arrive.

Annotations: `simulation.dralab.dev/arrives` and `simulation.dralab.dev/runs` are durations;
`simSpec` (k8s-cluster-simulator) gives the run time as the sum of its phases; Alibaba's
`alibabacloud.com/gpu-milli`, `gpu-count`, `gpu-card-model`, `creation-time` and `deletion-time`
are understood. A Job stands for its `parallelism` (or `completions`) pods.
"""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from dralab.api.manifests import Manifest, load
from dralab.kernel.clock import SECOND
from dralab.simulation.errors import Complaints, InputError
from dralab.simulation.pods.model import Pod
from dralab.simulation.scenarios.fields import duration
from dralab.simulation.workloads import phases
from dralab.simulation.workloads.openb import WHOLE_GPU, Shape
from dralab.values.quantity import QuantityError, parse_any

ARRIVES: Final = "simulation.dralab.dev/arrives"
RUNS: Final = "simulation.dralab.dev/runs"
ALIBABA: Final = "alibabacloud.com/"
GPU: Final = "nvidia.com/gpu"
GANG_LABELS: Final = ("pod-group.scheduling.sigs.k8s.io", "scheduling.x-k8s.io/pod-group")
QUEUE_LABEL: Final = "kueue.x-k8s.io/queue-name"


def pods(path: Path, complaints: Complaints) -> tuple[Pod, ...]:
    """Return the pods of a file, in its order; InputError names document, line and object."""
    loaded = load([str(path)])
    for problem in loaded.problems:
        complaints.about(InputError(path, str(problem.message), line=problem.origin.line))
    found: dict[str, Pod] = {}
    for manifest in loaded.objects:
        try:
            for pod in _of(manifest, path):
                if pod.key in found:
                    raise _error(path, manifest, "there already is a pod of that name")
                found[pod.key] = pod
        except InputError as error:
            complaints.about(error)
        except (AttributeError, TypeError, ValueError) as error:
            complaints.about(_error(path, manifest, f"has a field of the wrong kind: {error}"))
    return tuple(found.values())


def _error(path: Path, manifest: Manifest, problem: str) -> InputError:
    return InputError(path, problem, line=manifest.origin.line, where=manifest.title)


def _of(manifest: Manifest, path: Path) -> Iterator[Pod]:
    if manifest.kind == "Pod":
        yield _pod(manifest, path, manifest.object, manifest.name)
    elif manifest.kind == "Job":
        spec = manifest.object.get("spec") or {}
        count = spec.get("parallelism") or spec.get("completions") or 1
        if not isinstance(count, int) or not 0 < count <= 100_000:
            raise _error(path, manifest, f"parallelism must be from 1 to 100000, not {count!r}")
        template = dict(spec.get("template") or {})
        outer = manifest.object.get("metadata") or {}
        inner = dict(template.get("metadata") or {})
        inner["annotations"] = {
            **(outer.get("annotations") or {}), **(inner.get("annotations") or {}),
        }  # fmt: skip
        template["metadata"] = inner
        for index in range(count):
            name = manifest.name if count == 1 else f"{manifest.name}-{index}"
            yield _pod(manifest, path, template, name)


def _pod(manifest: Manifest, path: Path, given: Mapping[str, Any], name: str) -> Pod:
    metadata, spec = given.get("metadata") or {}, given.get("spec") or {}
    annotations = {str(k): str(v) for k, v in (metadata.get("annotations") or {}).items()}
    labels = metadata.get("labels") or {}
    requests = _requests(manifest, path, spec)
    gpus = int(annotations.get(f"{ALIBABA}gpu-count") or requests.get(GPU, 0))
    milli = int(annotations.get(f"{ALIBABA}gpu-milli") or WHOLE_GPU) if gpus else 0
    selector = spec.get("nodeSelector") or {}
    shape = Shape(
        -int(-1000 * requests.get("cpu", 0) // 1),
        min(milli, WHOLE_GPU),
        gpus,
        annotations.get(f"{ALIBABA}gpu-card-model", "") if gpus else "",
        ",".join(sorted(f"{k}={v}" for k, v in selector.items())),
    )
    try:
        arrives, length = _times(annotations)
    except ValueError as error:
        raise _error(path, manifest, str(error)) from None
    return Pod(
        name=name,
        namespace=manifest.namespace or "default",
        shape=shape,
        memory=int(requests.get("memory", 0)),
        arrives=arrives,
        duration=length,
        priority=int(spec.get("priority") or 0),
        gang=str(next((labels[key] for key in GANG_LABELS if key in labels), "")),
        queue=str(labels.get(QUEUE_LABEL, "")),
        user=manifest.namespace or "default",
    )


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
        resources = container.get("resources") or {}
        asked = {**(resources.get("limits") or {}), **(resources.get("requests") or {})}
        for key, value in asked.items():
            try:
                total[key] = total.get(key, 0) + parse_any(value)
            except QuantityError:
                raise _error(path, manifest, f"{key}: {value!r} is no quantity") from None
    return total
