"""The APIServices of the groups and versions that this server answers itself.

One for each version that is built in, made at the start, and one for each version of custom
resources, made and deleted with their definitions. An APIService without the label of those that
are managed belongs to its user and stays as it is.

Sources: k8s.io/kube-aggregator `pkg/controllers/autoregister`, `pkg/controllers/status/local`;
k8s.io/kubernetes `pkg/controlplane/controller/crdregistration`, `pkg/controlplane/apiserver`.
"""

from collections.abc import Iterator
from contextlib import suppress
from typing import Any, Final

from dralab.api.kinds import Kind
from dralab.api.status import ApiError
from dralab.apiserver.storage import StorageUnavailable
from dralab.apiserver.verbs import patching
from dralab.apiserver.verbs.creating import create_as_is
from dralab.apiserver.verbs.server import Resources
from dralab.apiserver.verbs.state.context import key_of
from dralab.objects.metadata import is_deleting, labels_of, spec_of, status_of
from dralab.values.api_versions import preference
from dralab.values.json_types import JsonDict

GROUP: Final = "apiregistration.k8s.io"
HUB: Final = f"{GROUP}/apiservices"
MANAGER: Final = "kube-apiserver"
LABEL: Final = "kube-aggregator.kubernetes.io/automanaged"
AT_START, ALWAYS = "onstart", "true"
MESSAGE: Final = "Local APIServices are always available"
# Which group clients prefer for a kind that several have, as in kube-apiserver; the higher wins.
GROUP_PRIORITIES: Final = {
    "": 18000, "apps": 17800, "events.k8s.io": 17750, "authentication.k8s.io": 17700,
    "authorization.k8s.io": 17600, "autoscaling": 17500, "batch": 17400,
    "certificates.k8s.io": 17300, "networking.k8s.io": 17200, "policy": 17100,
    "rbac.authorization.k8s.io": 17000, "storage.k8s.io": 16800, "apiextensions.k8s.io": 16700,
    "admissionregistration.k8s.io": 16700, "scheduling.k8s.io": 16600,
    "coordination.k8s.io": 16500, "node.k8s.io": 16300, "discovery.k8s.io": 16200,
    "resource.k8s.io": 16200, "flowcontrol.apiserver.k8s.io": 16100,
}  # fmt: skip
OTHER_GROUP: Final = 15000
VERSION_PRIORITIES: Final = {
    ("", "v1"): 1, ("autoscaling", "v2"): 30, ("flowcontrol.apiserver.k8s.io", "v1"): 21,
    ("resource.k8s.io", "v1"): 21,
}  # fmt: skip
BY_STAGE: Final = (15, 12, 9, 1)  # stable, beta, alpha, other
CUSTOM: Final = (1000, 100)


class LocalApiServices:
    """Keeps the APIServices of this server: follows the definitions from its making on."""

    def __init__(self, resources: Resources) -> None:
        self.resources = resources
        self._custom = set(self._custom_versions())
        resources.context.rules.observe(HUB, self._changed, writes=True)
        resources.on_kinds_changed(self._follow)

    def publish(self) -> None:
        """Write what is missing, and delete what is out of date."""
        kind = self._kind()
        if kind is None:
            return  # switched off
        wanted = {_name(*place): place for place in self._versions()}
        context = self.resources.context
        for stored in context.store.list(HUB).items:
            if labels_of(stored.value).get(LABEL) and stored.key.name not in wanted:
                self._delete(kind, stored.key.name)
        for place in wanted.values():
            self._put(kind, *place)

    def _kind(self) -> Kind | None:
        return self.resources.kinds.get(GROUP, "v1", "apiservices")

    def _versions(self) -> Iterator[tuple[str, str]]:
        kinds = self.resources.kinds
        for group in kinds.groups():
            if group != GROUP:
                for version in kinds.versions(group):
                    yield group, version

    def _custom_versions(self) -> Iterator[tuple[str, str]]:
        for group, version in self._versions():
            if self._is_custom(group, version):
                yield group, version

    def _is_custom(self, group: str, version: str) -> bool:
        found = self.resources.kinds.in_version(group, version)
        return any(kind.custom is not None for kind in found)

    def _follow(self) -> None:
        """Add the versions of new definitions, and delete those of deleted ones."""
        kind, before = self._kind(), self._custom
        self._custom = set(self._custom_versions())
        if kind is None:
            return
        with suppress(StorageUnavailable):  # at the next start
            for place in sorted(self._custom - before):
                self._put(kind, *place)
            for place in sorted(before - self._custom):
                self._delete(kind, _name(*place))

    def _changed(self, before: JsonDict | None, after: JsonDict | None) -> None:
        """Mark a local APIService as available; restore one of a definition if it is deleted."""
        kind = self._kind()
        if kind is None:
            return
        if after is None:
            spec = spec_of(before or {})
            place = (spec.get("group") or "", spec.get("version") or "")
            if place in self._custom:
                self._put(kind, *place)
        elif not (
            spec_of(after).get("service")
            or is_deleting(after)
            or status_of(after).get("conditions")
        ):
            self._write_status(kind, after["metadata"]["name"])

    def _put(self, kind: Kind, group: str, version: str) -> None:
        """Create an APIService unless one of that name exists."""
        name = _name(group, version)
        context = self.resources.context
        key = key_of(kind, "", name)
        if key in context.store.damaged(kind.hub):
            return
        custom = self._is_custom(group, version)
        with suppress(ApiError):  # another server on the same store may do the same
            if context.store.get(key) is None:
                value = {
                    "metadata": {"name": name, "labels": {LABEL: ALWAYS if custom else AT_START}},
                    "spec": _spec(group, version, custom=custom),
                }
                with context.store.lock:
                    create_as_is(context.own_write(MANAGER), kind, value, "")

    def _write_status(self, kind: Kind, name: str) -> None:
        condition = {
            "type": "Available",
            "status": "True",
            "lastTransitionTime": self.resources.context.now(),
            "reason": "Local",
            "message": MESSAGE,
        }
        status = {"status": {"conditions": [condition]}}
        with suppress(ApiError):
            scope = self.resources.context.own_write(MANAGER)
            patching.patch(scope, kind, name, status, subresource="status")

    def _delete(self, kind: Kind, name: str) -> None:
        found = self.resources.context.own.find(key_of(kind, "", name))
        if found is not None and labels_of(found.value).get(LABEL):
            with suppress(ApiError):
                self.resources.delete(kind, name)


def _name(group: str, version: str) -> str:
    return f"{version}.{group}"


def _spec(group: str, version: str, *, custom: bool) -> dict[str, Any]:
    minimum, priority = CUSTOM
    if not custom:
        minimum = GROUP_PRIORITIES.get(group, OTHER_GROUP)
        stage = preference(version)[0]
        priority = VERSION_PRIORITIES.get((group, version), BY_STAGE[stage])
    found: dict[str, Any] = {"group": group} if group else {}
    return found | {
        "version": version, "groupPriorityMinimum": minimum, "versionPriority": priority,
    }  # fmt: skip
