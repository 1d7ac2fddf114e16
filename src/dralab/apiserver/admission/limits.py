"""Applies and enforces a namespace's limits on containers (LimitRanger)."""

from collections.abc import Iterator, Mapping
from typing import Any, Final

from dralab.api.status import ApiError
from dralab.apiserver.admission.chain import Review
from dralab.apiserver.admission.pods import new_pod
from dralab.objects.metadata import spec_of
from dralab.values import quantity
from dralab.values.json_types import JsonDict

HUB: Final = "limitranges"
LISTS: Final = ("initContainers", "containers")


class LimitRanges:
    """Fills in and checks what containers and pods may use."""

    name = "LimitRanger"

    def admit(self, review: Review) -> None:
        """Write defaults into a new pod; Forbidden where it leaves the range."""
        pod = new_pod(review)
        if pod is None:
            return
        limits = [
            limit
            for stored in review.all_of(HUB, review.namespace)
            for limit in spec_of(stored.value).get("limits") or ()
        ]
        if not limits:
            return
        spec = pod["spec"]
        containers = [each for name in LISTS for each in spec.get(name) or ()]
        for limit in limits:
            if limit.get("type") == "Container":
                for container in containers:
                    _default(container.setdefault("resources", {}), limit)
        problems = [problem for limit in limits for problem in _problems(limit, containers)]
        if problems:
            shown = problems[0] if len(problems) == 1 else "[" + ", ".join(problems) + "]"
            raise ApiError.forbidden("pods", review.name, shown)


def _default(resources: JsonDict, limit: Mapping[str, Any]) -> None:
    for part, defaults in (("limits", "default"), ("requests", "defaultRequest")):
        for name, amount in (limit.get(defaults) or {}).items():
            resources.setdefault(part, {}).setdefault(name, amount)


def _problems(limit: Mapping[str, Any], containers: list[JsonDict]) -> Iterator[str]:
    kind = limit.get("type")
    if kind == "Container":
        for container in containers:
            yield from _outside(limit, container.get("resources") or {}, "Container")
    elif kind == "Pod":
        yield from _outside(limit, _total(containers), "Pod")


def _total(containers: list[JsonDict]) -> JsonDict:
    total: dict[str, dict[str, quantity.Number]] = {"requests": {}, "limits": {}}
    for container in containers:
        for part, amounts in total.items():
            for name, amount in ((container.get("resources") or {}).get(part) or {}).items():
                amounts[name] = amounts.get(name, 0) + quantity.parse(amount)
    return {
        part: {name: quantity.render(amount) for name, amount in amounts.items()}
        for part, amounts in total.items()
    }


def _outside(limit: Mapping[str, Any], resources: JsonDict, kind: str) -> Iterator[str]:
    requests, limits = resources.get("requests") or {}, resources.get("limits") or {}
    for name, least in sorted((limit.get("min") or {}).items()):
        words = f"minimum {name} usage per {kind} is {least}"
        if name not in requests:
            yield f"{words}.  No request is specified"
        elif quantity.parse(requests[name]) < quantity.parse(least):
            yield f"{words}, but request is {requests[name]}"
    for name, most in sorted((limit.get("max") or {}).items()):
        words = f"maximum {name} usage per {kind} is {most}"
        if name not in limits:
            yield f"{words}.  No limit is specified"
        elif quantity.parse(limits[name]) > quantity.parse(most):
            yield f"{words}, but limit is {limits[name]}"
