"""ResourceQuotas: writes a namespace's usage, with device classes, into the status.

Admission refuses what exceeds a quota; both count with `objects.quota`.
"""

from typing import Final

from dralab.api.status import ignoring
from dralab.objects import quota
from dralab.objects.metadata import NamespacedName, is_deleting, key_of, spec_of, status_of
from dralab.runtime.cache import Cache
from dralab.runtime.client import Resource
from dralab.runtime.manager import Manager
from dralab.runtime.resources import (
    CLAIMS,
    CONFIG_MAPS,
    CRDS,
    DEVICE_CLAIMS,
    PODS,
    REPLICATION_CONTROLLERS,
    RESOURCE_QUOTAS,
    SECRETS,
    SERVICES,
    VOLUME_CLAIMS,
)
from dralab.values.json_types import JsonDict
from dralab.values.quantity import form_of, parse_any, render

WATCHED: Final = (
    PODS,
    CLAIMS,
    SERVICES,
    SECRETS,
    CONFIG_MAPS,
    VOLUME_CLAIMS,
    REPLICATION_CONTROLLERS,
)


class ResourceQuotas:
    """Recounts whenever a counted object is created, changed or deleted."""

    def __init__(self, manager: Manager) -> None:
        self.manager = manager
        self.client = manager.client
        self.quotas = manager.cache(RESOURCE_QUOTAS)
        self.caches: dict[Resource, Cache] = {}
        self.queue = manager.queue("resourcequota", self.reconcile)
        self._with_quotas: dict[str, int] = {}
        self.definitions = manager.cache(CRDS)
        self.definitions.subscribe(self._definition)
        self.quotas.subscribe(self._quota)
        self.quotas.index("namespace", lambda obj: [key_of(obj).namespace])
        self.caches[RESOURCE_QUOTAS] = self.quotas  # which count, too
        for resource in WATCHED:
            self.caches[resource] = manager.cache(resource)
            self.caches[resource].index("namespace", lambda obj: [key_of(obj).namespace])
            self.caches[resource].subscribe(self._object)

    def _quota(self, old: JsonDict | None, new: JsonDict | None) -> None:
        obj = new if new is not None else old
        if obj is None:
            return
        namespace = key_of(obj).namespace
        if old is None or new is None:
            count = self._with_quotas.get(namespace, 0) + (1 if new is not None else -1)
            self._with_quotas[namespace] = count
            self._object(old, new)
        if new is not None:
            self.queue.add(key_of(new))

    def _definition(self, _old: JsonDict | None, new: JsonDict | None) -> None:
        counted = f"count/{new['metadata']['name']}" if new is not None else ""
        for item in self.quotas:
            if counted in (spec_of(item).get("hard") or {}):
                self.queue.add(key_of(item))

    def _object(self, old: JsonDict | None, new: JsonDict | None) -> None:
        obj = new if new is not None else old
        namespace = key_of(obj).namespace if obj is not None else ""
        if self._with_quotas.get(namespace):
            for item in self.quotas.namespace(namespace):
                self.queue.add(key_of(item))

    def reconcile(self, key: NamespacedName) -> int | None:
        """Write what a namespace uses into a quota's status."""
        item = self.quotas.get(key)
        if item is None or is_deleting(item):
            return None
        spec = spec_of(item)
        hard = spec.get("hard") or {}
        counted = quota.total(
            spec,
            (
                (resource.plural, resource.group, obj)
                for resource, cache in self._caches(hard).items()
                for obj in cache.find("namespace", key.namespace)
            ),
            hard,
        )
        used = {name: render(amount, form_of(str(hard[name]))) for name, amount in counted.items()}
        status = status_of(item)
        if status.get("hard") == hard and _same(status.get("used") or {}, used):
            return None
        body = {**item, "status": {"hard": dict(hard), "used": used}}
        with ignoring("NotFound"):
            self.quotas.learn(self.client.update(RESOURCE_QUOTAS, body, subresource="status"))
        return None

    def _caches(self, hard: dict[str, str]) -> dict[Resource, Cache]:
        """Return what to count: kinds that only a quota names are watched from then on."""
        found = dict(self.caches)
        for name in hard:
            counted = quota.kind_counted(name)
            if counted is None or counted in {(each.plural, each.group) for each in found}:
                continue
            resource = _built_in(*counted) or self._custom(*counted)
            if resource is not None:
                cache = self.manager.cache(resource)
                cache.index("namespace", lambda obj: [key_of(obj).namespace])
                cache.subscribe(self._object)
                self.caches[resource] = found[resource] = cache
        return found

    def _custom(self, plural: str, group: str) -> Resource | None:
        """Return a custom resource with a namespace, in the version that is stored."""
        if (plural, group) == (DEVICE_CLAIMS.plural, DEVICE_CLAIMS.group):
            return DEVICE_CLAIMS  # served without a definition
        definition = self.definitions.get(NamespacedName("", f"{plural}.{group}"))
        spec = spec_of(definition) if definition is not None else {}
        if spec.get("scope") != "Namespaced":
            return None
        for version in spec["versions"]:
            if version.get("storage") and version.get("served"):
                return Resource(group, version["name"], plural)
        return None


def _built_in(plural: str, group: str) -> Resource | None:
    from dralab.api.kinds import Kinds

    for kind in Kinds.standard():
        if (kind.plural, kind.group) == (plural, group) and kind.namespaced:
            return Resource(kind.group, kind.version, kind.plural)
    return None


def _same(one: dict[str, str], other: dict[str, str]) -> bool:
    return one.keys() == other.keys() and all(
        parse_any(one[name]) == parse_any(other[name]) for name in one
    )
