"""Nothing is made beyond a namespace's ResourceQuotas, devices by class included (ResourceQuota).

What is used is counted from the objects that are there, not from the quota's status, which its
controller writes a moment later.
"""

from collections import Counter
from typing import Final

from dralab.api.status import ApiError
from dralab.apiserver.admission.chain import Review
from dralab.objects import quota
from dralab.objects.metadata import spec_of
from dralab.values.json_types import JsonDict
from dralab.values.quantity import Number, form_of, parse_any, render

HUB: Final = "resourcequotas"
PODS, CLAIMS = "pods", "resource.k8s.io/resourceclaims"
COMPUTE: Final = frozenset(
    f"{kind}{name}" for kind in ("", "requests.", "limits.") for name in ("cpu", "memory")
)


class QuotaLimits:
    """Refuses what a quota does not allow; tell it of every stored quota by `stored`."""

    name = "ResourceQuota"

    def __init__(self) -> None:
        self.namespaces: Counter[str] = Counter()

    def stored(self, before: JsonDict | None, after: JsonDict | None) -> None:
        """Take note of a quota that came or went."""
        for obj, change in ((before, -1), (after, 1)):
            if obj is not None:
                self.namespaces[obj["metadata"]["namespace"]] += change

    def admit(self, review: Review) -> None:
        """Raise Forbidden where a quota would be exceeded."""
        if review.operation != "CREATE" or review.subresource or review.value is None:
            return
        if not self.namespaces.get(review.namespace):
            return
        kind = review.kind
        asked = quota.usage(kind.plural, kind.group, review.value)
        for stored in review.all_of(HUB, review.namespace):
            spec = spec_of(stored.value)
            if quota.selects(spec, kind.plural, kind.group, review.value):
                self._check(review, stored.value, spec.get("hard") or {}, asked)

    def _check(
        self, review: Review, limits: JsonDict, hard: JsonDict, asked: dict[str, Number]
    ) -> None:
        name = limits["metadata"]["name"]
        if review.kind.hub == PODS:
            self._must_say(review, name, hard)
        names = sorted(item for item in asked if item in hard and asked[item])
        if not names:
            return
        used = quota.total(limits["spec"], self._objects(review, names), names)
        over = [item for item in names if used[item] + asked[item] > parse_any(hard[item])]
        if over:

            def told(amounts: dict[str, Number]) -> str:
                texts = (f"{item}={render(amounts[item], form_of(hard[item]))}" for item in over)
                return ",".join(texts)

            limited = {item: parse_any(hard[item]) for item in over}
            raise ApiError.forbidden(
                review.kind.plural,
                _name(review),
                f"exceeded quota: {name}, requested: {told(asked)}, used: {told(used)}, "
                f"limited: {told(limited)}",
                group=review.kind.group,
            )

    def _objects(self, review: Review, names: list[str]) -> list[tuple[str, str, JsonDict]]:
        hubs = {review.kind.hub: (review.kind.plural, review.kind.group)}
        if any(quota.is_device(item) for item in names):
            hubs |= {PODS: ("pods", ""), CLAIMS: ("resourceclaims", "resource.k8s.io")}
        return [
            (plural, group, stored.value)
            for hub, (plural, group) in sorted(hubs.items())
            for stored in review.all_of(hub, review.namespace)
        ]

    def _must_say(self, review: Review, name: str, hard: JsonDict) -> None:
        """Every container says what it needs of the computing resources that a quota limits."""
        missing: dict[str, list[str]] = {}
        for container in (review.value or {})["spec"].get("containers") or ():
            resources = container.get("resources") or {}
            for item in sorted(hard):
                kind, _, bare = item.rpartition(".")
                if item in COMPUTE and bare not in (resources.get(kind or "requests") or {}):
                    missing.setdefault(item, []).append(container["name"])
        if missing:
            told = "; ".join(f"{item} for: {','.join(who)}" for item, who in missing.items())
            raise ApiError.forbidden(
                review.kind.plural, _name(review), f"failed quota: {name}: must specify {told}"
            )


def _name(review: Review) -> str:
    """Return the name of what is made, as far as it has one yet."""
    metadata = (review.value or {}).get("metadata") or {}
    return review.name or metadata.get("name") or metadata.get("generateName") or ""
