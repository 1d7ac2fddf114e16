"""Enforces a namespace's ResourceQuotas, including devices by class (ResourceQuota).

Usage is counted from the existing objects, not from the quota's status, which is written with the
object, and by a controller when objects are deleted. Each object is evaluated once, and again when
it is written.
"""

from collections.abc import Iterable, Iterator, Mapping
from threading import Lock
from typing import Final

from dralab.api.status import ApiError
from dralab.apiserver.access.admission.chain import Review
from dralab.apiserver.storage import Key, Stored
from dralab.objects import quota
from dralab.objects.metadata import spec_of, status_of
from dralab.values.json_types import JsonDict, JsonObject
from dralab.values.quantity import Number, form_of, parse_any, render

HUB: Final = "resourcequotas"
PODS, CLAIMS = "pods", "resource.k8s.io/resourceclaims"
COMPUTE: Final = frozenset(
    f"{kind}{name}" for kind in ("", "requests.", "limits.") for name in ("cpu", "memory")
)


class QuotaLimits:
    """Refuses what a quota does not allow; call `written` after every write."""

    name = "ResourceQuota"

    def __init__(self) -> None:
        self.accounts: dict[str, dict[str, _Account]] = {}  # by namespace and quota

    def reset(self, quotas: Iterable[JsonDict]) -> None:
        """Start again with these quotas."""
        self.accounts = {}
        for each in quotas:
            self._open(each)

    def written(self, hub: str, before: JsonDict | None, after: JsonDict | None) -> None:
        """Record a write of any object."""
        if hub == HUB:
            self._open(after) if after is not None else self._close(before or {})
        if not self.accounts:
            return
        metadata = (after or before or {})["metadata"]
        namespace = metadata.get("namespace", "")
        for account in self.accounts.get(namespace, {}).values():
            account.count(Key(hub, namespace, metadata["name"]), after)

    def unknown(self, hub: str, namespace: str) -> Iterator[str]:
        """Yield the collections of a namespace that must be counted before an object is created."""
        for account in self.accounts.get(namespace, {}).values():
            yield from account.unknown(hub)

    def validate(self, review: Review) -> None:
        """Raise Forbidden where a quota would be exceeded."""
        if review.operation != "CREATE" or review.subresource or review.value is None:
            return
        accounts = self.accounts.get(review.namespace)
        if not accounts:
            return
        kind = review.kind
        asked = quota.usage(kind.plural, kind.group, review.value)
        grown = []
        for stored in review.scope.all_of(HUB, review.namespace):
            spec = spec_of(stored.value)
            if quota.selects(spec, kind.plural, kind.group, review.value):
                used = self._check(review, stored.value, accounts.get(stored.key.name), asked)
                if used:
                    grown.append((stored, used))
        if review.options.dry_run or not grown:
            return
        if review.scope.find(Key(kind.hub, review.namespace, review.name)) is None:
            for stored, used in grown:
                _note(review, stored, used)

    def _open(self, limits: JsonDict) -> None:
        metadata, spec = limits["metadata"], spec_of(limits)
        accounts = self.accounts.setdefault(metadata["namespace"], {})
        had = accounts.get(metadata["name"])
        if had is None or had.spec != spec:
            accounts[metadata["name"]] = _Account(spec)

    def _close(self, limits: JsonDict) -> None:
        metadata = limits["metadata"]
        accounts = self.accounts.get(metadata["namespace"], {})
        accounts.pop(metadata["name"], None)
        if not accounts:
            self.accounts.pop(metadata["namespace"], None)

    def _check(
        self,
        review: Review,
        limits: JsonDict,
        account: "_Account | None",
        asked: dict[str, Number],
    ) -> Mapping[str, Number]:
        """Return the new usage of a quota, as far as the write changes it. ApiError."""
        name, spec = limits["metadata"]["name"], spec_of(limits)
        hard = spec.get("hard") or {}
        if review.kind.hub == PODS:
            self._must_say(review, name, hard)
        names = sorted(item for item in asked if item in hard and asked[item])
        if not names:
            return {}
        if account is None or account.spec != spec:  # the quota was written a moment ago
            account = _Account(spec)
        used = account.used(review)
        over = [item for item in names if used[item] + asked[item] > parse_any(hard[item])]
        if over:

            def told(amounts: Mapping[str, Number]) -> str:
                texts = (f"{item}={render(amounts[item], form_of(hard[item]))}" for item in over)
                return ",".join(texts)

            limited = {item: parse_any(hard[item]) for item in over}
            raise ApiError.forbidden(
                review.kind.plural,
                review.given_name,
                f"exceeded quota: {name}, requested: {told(asked)}, used: {told(used)}, "
                f"limited: {told(limited)}",
                group=review.kind.group,
            )
        return {item: used[item] + asked[item] for item in names}

    def _must_say(self, review: Review, name: str, hard: JsonDict) -> None:
        """Check that every container requests the computing resources that a quota limits."""
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
                review.kind.plural, review.given_name, f"failed quota: {name}: must specify {told}"
            )


def _note(review: Review, stored: Stored, used: Mapping[str, Number]) -> None:
    """Update a quota's `status.used` together with the object."""
    hard = spec_of(stored.value).get("hard") or {}
    status = status_of(stored.value)
    told = {name: render(amount, form_of(hard[name])) for name, amount in used.items()}
    before = status.get("used") or {}
    after = {**before, **told}
    if after != before:
        used_now = {name: after[name] for name in sorted(after)}
        changed = {"hard": hard, **status, "used": used_now}
        review.along = (*review.along, (stored, {**stored.value, "status": changed}))


class _Account:
    """What one quota has counted: the share of each object, and the sums.

    A collection is counted once, outside of the store's lock, while others write: what they
    report meanwhile is newer than what was counted.
    """

    def __init__(self, spec: JsonObject) -> None:
        self.spec = spec
        self.sums: dict[str, Number] = dict.fromkeys(spec.get("hard") or (), 0)
        self._shares: dict[Key, dict[str, Number]] = {}
        self._known: set[str] = set()
        self._told: dict[str, set[Key]] = {}  # of collections that are being counted
        self._lock = Lock()

    def used(self, review: Review) -> Mapping[str, Number]:
        """Return the usage of each name in the quota that creating a kind can change."""
        for hub in self.unknown(review.kind.hub):
            with self._lock:
                told = self._told.setdefault(hub, set())
            found = review.scope.all_of(hub, review.namespace)
            shares = [(each.key, self._share(hub, each.value)) for each in found]
            with self._lock:
                if hub not in self._known:
                    for key, share in shares:
                        if key not in told:
                            self._add(key, share)
                    self._known.add(hub)
                    self._told.pop(hub)
        for hub in self._concerned(review.kind.hub):
            review.scope.store.count(hub, review.namespace)  # what is used depends on all of them
        return self.sums

    def unknown(self, hub: str) -> list[str]:
        """Return the collections that still have to be counted before an object is created."""
        return [each for each in self._concerned(hub) if each not in self._known]

    def _concerned(self, hub: str) -> Iterable[str]:
        devices = (PODS, CLAIMS) if any(map(quota.is_device, self.sums)) else ()
        return dict.fromkeys((hub, *devices))

    def count(self, key: Key, obj: JsonDict | None) -> None:
        """Record a write."""
        hub = key.resource
        share = {} if obj is None else self._share(hub, obj)
        with self._lock:
            if hub in self._told:
                self._told[hub].add(key)
            elif hub not in self._known:
                return
            for name, amount in self._shares.pop(key, {}).items():
                self.sums[name] -= amount
            self._add(key, share)

    def _share(self, hub: str, obj: JsonObject) -> dict[str, Number]:
        group, _, plural = hub.rpartition("/")
        if not quota.selects(self.spec, plural, group, obj):
            return {}
        used = quota.usage(plural, group, obj)
        return {name: amount for name, amount in used.items() if amount and name in self.sums}

    def _add(self, key: Key, share: dict[str, Number]) -> None:
        if share:
            self._shares[key] = share
        for name, amount in share.items():
            self.sums[name] += amount
