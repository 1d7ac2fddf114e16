"""Applies and enforces a namespace's limits (LimitRanger).

Source: k8s.io/kubernetes `plugin/pkg/admission/limitranger`.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from dralab.api.status import ApiError
from dralab.apiserver.access.admission.chain import WRITES, Concerns, Review
from dralab.apiserver.access.admission.pods import new_pod
from dralab.objects.metadata import is_deleting, spec_of
from dralab.values import quantity
from dralab.values.go_text import aggregate
from dralab.values.json_types import JsonDict, JsonObject

HUB: Final = "limitranges"
CLAIMS: Final = "persistentvolumeclaims"
ANNOTATION: Final = "kubernetes.io/limit-ranger"
LISTS: Final = (("containers", "container"), ("initContainers", "init container"))


class LimitRanges:
    """Fills in and checks what containers, pods and volume claims may use."""

    name = "LimitRanger"
    concerns: Final[Concerns] = {"pods": WRITES, CLAIMS: WRITES}

    def admit(self, review: Review) -> None:
        """Apply the defaults of a namespace to a new pod, and list them in an annotation."""
        pod = new_pod(review)
        if pod is None or not (ranges := _ranges(review)):
            return
        for limits in ranges:
            if told := [
                text
                for part, words in LISTS
                for container in pod["spec"].get(part) or ()
                for text in _defaulted(container, words, limits)
            ]:
                annotations = pod["metadata"].setdefault("annotations", {})
                annotations[ANNOTATION] = f"LimitRanger plugin set: {'; '.join(told)}"

    def validate(self, review: Review) -> None:
        """Raise Forbidden if a pod or a volume claim is outside of a range."""
        pod, hub = new_pod(review), review.kind.hub
        value = review.value
        if pod is None and hub == "pods" and review.subresource == "resize":
            pod = value
        claim = hub == CLAIMS and not review.subresource
        if value is None or (pod is None and not claim):
            return
        if review.old is not None and is_deleting(review.old):
            return
        for limits in _ranges(review):
            problems = _claim_problems(limits, value) if claim else _pod_problems(limits, value)
            if found := list(problems):
                raise ApiError.forbidden(review.kind.plural, review.given_name, aggregate(found))


def _ranges(review: Review) -> list[Sequence[JsonObject]]:
    """Return the limits of each LimitRange of the namespace."""
    return [
        spec_of(stored.value).get("limits") or ()
        for stored in review.scope.all_of(HUB, review.namespace)
    ]


def _defaulted(container: JsonDict, words: str, limits: Sequence[JsonObject]) -> Iterator[str]:
    """Apply the defaults to a container; yield a text for each."""
    defaults: dict[str, dict[str, Any]] = {"requests": {}, "limits": {}}
    for limit in limits:
        if limit.get("type") == "Container":
            defaults["requests"] |= limit.get("defaultRequest") or {}
            defaults["limits"] |= limit.get("default") or {}
    for part, amounts in defaults.items():
        given = (container.get("resources") or {}).get(part) or {}
        if names := sorted(name for name in amounts if name not in given):
            resources = container.get("resources") or {}
            resources[part] = {**given, **{name: amounts[name] for name in names}}
            container["resources"] = {key: resources[key] for key in sorted(resources)}
            yield f"{', '.join(names)} {part[:-1]} for {words} {container.get('name')}"


def _pod_problems(limits: Sequence[JsonObject], pod: JsonObject) -> Iterator[str]:
    spec = spec_of(pod)
    for limit in limits:
        if limit.get("type") == "Container":
            for part, _ in LISTS:
                for container in spec.get(part) or ():
                    yield from _outside(limit, container.get("resources") or {}, "Container")
        elif limit.get("type") == "Pod":
            yield from _outside(limit, _total(spec), "Pod")


def _claim_problems(limits: Sequence[JsonObject], claim: JsonObject) -> Iterator[str]:
    kind = "PersistentVolumeClaim"
    requests = (spec_of(claim).get("resources") or {}).get("requests") or {}
    for limit in limits:
        if limit.get("type") == kind:
            yield from _below(limit, requests, {}, kind)
            for name, most in sorted((limit.get("max") or {}).items()):
                words = f"maximum {name} usage per {kind} is {most}"
                if name not in requests:
                    yield f"{words}.  No request is specified"
                elif quantity.parse(requests[name]) > quantity.parse(most):
                    yield f"{words}, but request is {requests[name]}"


def _total(spec: JsonObject) -> JsonDict:
    """Return what a pod uses: its containers together, or its largest init container."""
    together = [
        *(spec.get("containers") or ()),
        *(each for each in spec.get("initContainers") or () if each.get("restartPolicy")),
    ]
    alone = [each for each in spec.get("initContainers") or () if not each.get("restartPolicy")]
    found: dict[str, JsonDict] = {}
    for part in ("requests", "limits"):
        sums: dict[str, quantity.Number] = {}
        for container in together:
            for name, amount in ((container.get("resources") or {}).get(part) or {}).items():
                sums[name] = sums.get(name, 0) + quantity.parse(amount)
        for container in alone:
            for name, amount in ((container.get("resources") or {}).get(part) or {}).items():
                sums[name] = max(sums.get(name, 0), quantity.parse(amount))
        found[part] = {name: quantity.render(amount) for name, amount in sums.items()}
    return found


def _outside(limit: Mapping[str, Any], resources: JsonDict, kind: str) -> Iterator[str]:
    requests, limits = resources.get("requests") or {}, resources.get("limits") or {}
    yield from _below(limit, requests, limits, kind)
    for name, most in sorted((limit.get("max") or {}).items()):
        words = f"maximum {name} usage per {kind} is {most}"
        if name not in limits:
            yield f"{words}.  No limit is specified"
        elif quantity.parse(limits[name]) > quantity.parse(most):
            yield f"{words}, but limit is {limits[name]}"
        elif name in requests and quantity.parse(requests[name]) > quantity.parse(most):
            yield f"{words}, but request is {requests[name]}"
    for name, ratio in sorted((limit.get("maxLimitRequestRatio") or {}).items()):
        words = f"{name} max limit to request ratio per {kind} is {ratio}"
        request, most = (
            quantity.parse(amounts[name]) if name in amounts else 0
            for amounts in (requests, limits)
        )
        if not request:
            yield f"{words}, but no request is specified or request is 0"
        elif not most:
            yield f"{words}, but no limit is specified or limit is 0"
        elif most > request * quantity.parse(ratio):
            yield f"{words}, but provided ratio is {float(most / request):f}"


def _below(
    limit: Mapping[str, Any], requests: JsonDict, limits: JsonDict, kind: str
) -> Iterator[str]:
    for name, least in sorted((limit.get("min") or {}).items()):
        words = f"minimum {name} usage per {kind} is {least}"
        if name not in requests:
            yield f"{words}.  No request is specified"
        elif quantity.parse(requests[name]) < quantity.parse(least):
            yield f"{words}, but request is {requests[name]}"
        elif name in limits and quantity.parse(limits[name]) < quantity.parse(least):
            yield f"{words}, but limit is {limits[name]}"
