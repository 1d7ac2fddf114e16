"""Namespaces: deletes the contents of a deleted namespace, then the namespace itself."""

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Final, Literal

from dralab.api.kinds import Kinds
from dralab.api.status import ApiError
from dralab.controllers.workloads import write_status
from dralab.kernel.clock import SECOND
from dralab.objects.conditions import conditions_of, with_condition
from dralab.objects.metadata import (
    NamespacedName,
    finalizers_of,
    is_deleting,
    key_of,
    spec_of,
)
from dralab.runtime.client import Resource, delete_only
from dralab.runtime.manager import Manager
from dralab.runtime.resources import CRDS, NAMESPACES
from dralab.values.json_types import JsonDict

# Upstream waits five seconds, for other servers. Clients that delete all that is in a file, its
# namespace first, find the rest as long as this.
GRACE: Final = SECOND
AGAIN: Final = 5 * SECOND

# Conditions that stay false here: kinds are known beforehand, and failures are retried.
FINE: Final = (
    (
        "NamespaceDeletionDiscoveryFailure",
        "ResourcesDiscovered",
        "All resources successfully discovered",
    ),
    (
        "NamespaceDeletionGroupVersionParsingFailure",
        "ParsedGroupVersions",
        "All legacy kube types successfully parsed",
    ),
    (
        "NamespaceDeletionContentFailure",
        "ContentDeleted",
        "All content successfully deleted, may be waiting on finalization",
    ),
)


class Namespaces:
    """Empties namespaces that are being deleted."""

    def __init__(self, manager: Manager, kinds: Kinds | None = None) -> None:
        self.manager = manager
        self.client = manager.client
        self.namespaces = manager.cache(NAMESPACES)
        self.queue = manager.queue("namespaces", self.reconcile)
        self._kinds = kinds or Kinds.standard()
        self._definitions = manager.cache(CRDS)
        self.namespaces.subscribe(self._namespace)

    def _namespace(self, old: JsonDict | None, new: JsonDict | None) -> None:
        if new is not None and is_deleting(new):
            begins = old is None or not is_deleting(old)
            self.queue.add_after(key_of(new), GRACE if begins else 0)

    def reconcile(self, key: NamespacedName) -> int | None:
        """Delete the contents of a namespace; finish its deletion once it is empty."""
        namespace = self.namespaces.get(key)
        if namespace is None or not is_deleting(namespace):
            return None
        left: Counter[str] = Counter()
        held: Counter[str] = Counter()
        for resource in self._resources():
            remaining = self._empty(resource, key.name)
            if remaining:
                left[f"{resource.plural}.{resource.group}"] = len(remaining)
            for obj in remaining:
                held.update(finalizers_of(obj))
            if remaining and _is_of_pods(resource):
                break  # they go first, under the policies of the namespace (KEP-5080)
        if left:
            self._tell(namespace, left, held)
            return AGAIN
        finalizers = spec_of(namespace).get("finalizers") or []
        if "kubernetes" not in finalizers:
            return None
        spec = {**namespace["spec"], "finalizers": [f for f in finalizers if f != "kubernetes"]}
        self.client.update(NAMESPACES, {**namespace, "spec": spec}, subresource="finalize")
        return None

    def _resources(self) -> list[Resource]:
        found: dict[str, Resource] = {}
        for kind in self._kinds:
            if kind.namespaced and {"list", "delete"} <= set(kind.verbs) and kind.hub not in found:
                found[kind.hub] = Resource(kind.group, kind.version, kind.plural)
        for definition in self._definitions:
            spec = definition["spec"]
            version = next((v["name"] for v in spec["versions"] if v.get("served")), None)
            if spec["scope"] == "Namespaced" and version is not None:
                resource = Resource(spec["group"], version, spec["names"]["plural"])
                found[f"{resource.group}/{resource.plural}"] = resource
        return sorted(found.values(), key=lambda resource: (not _is_of_pods(resource), resource))

    def _empty(self, resource: Resource, namespace: str) -> Sequence[JsonDict]:
        """Delete all objects of a kind; return the remaining ones."""
        try:
            items = self.client.list(resource, namespace).items
        except ApiError as error:
            if error.code in {404, 405}:
                return ()
            raise
        for obj in items:
            if is_deleting(obj):
                continue
            delete_only(self.client, resource, obj, propagationPolicy="Background")
        return self.client.list(resource, namespace).items if items else ()

    def _tell(self, namespace: JsonDict, left: Counter[str], held: Counter[str]) -> None:
        conditions = conditions_of(namespace)
        for type_, value, reason, message in _conditions(left, held):
            condition = {"type": type_, "status": value, "reason": reason, "message": message}
            conditions = with_condition(conditions, condition, now=self.manager.now())
        write_status(self.manager, self.namespaces, namespace, {"conditions": conditions or None})


def _is_of_pods(resource: Resource) -> bool:
    return (resource.group, resource.plural) == ("", "pods")


def _conditions(
    left: Counter[str], held: Counter[str]
) -> Iterator[tuple[str, Literal["True", "False"], str, str]]:
    """Yield a namespace's conditions, in kube-controller-manager's words: what keeps it."""
    for type_, reason, message in FINE:
        yield type_, "False", reason, message
    counted = ", ".join(f"{name} has {left[name]} resource instances" for name in sorted(left))
    message = f"Some resources are remaining: {counted}"
    yield "NamespaceContentRemaining", "True", "SomeResourcesRemain", message
    if held:
        counted = ", ".join(f"{name} in {held[name]} resource instances" for name in sorted(held))
        message = f"Some content in the namespace has finalizers remaining: {counted}"
        yield "NamespaceFinalizersRemaining", "True", "SomeFinalizersRemain", message
    else:
        message = "All content-preserving finalizers finished"
        yield "NamespaceFinalizersRemaining", "False", "ContentHasNoFinalizers", message
