"""A client for servers with an older device API: components are written for the newest version.

Objects of resource.k8s.io are sent in the newest version that the server has and read back in the
form that everything here reasons about. A server that has the newest one costs one request more.
"""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, Final

from dralab.api.resource.conversion import convert, hub_version
from dralab.api.resource.types import GROUP, KINDS, VERSIONS
from dralab.api.status import ApiError
from dralab.runtime.client import ObjectList, PatchType, Resource
from dralab.runtime.remote import RemoteClient, RemoteWatch
from dralab.values.json_types import JsonDict

PLURALS: Final = {f"{kind.lower()}{'es' if kind.endswith('s') else 's'}": kind for kind in KINDS}


class AnyVersionClient(RemoteClient):
    """A client of a server with whatever version of the device API."""

    _served: Mapping[str, str] | None = None

    def get(self, resource: Resource, name: str, namespace: str = "") -> JsonDict:
        """Return one object."""
        place = self._place(resource)
        return _in_hub(resource, place, super().get(place, name, namespace))

    def list(
        self,
        resource: Resource,
        namespace: str = "",
        *,
        label_selector: str = "",
        field_selector: str = "",
    ) -> ObjectList:
        """Return the objects of a namespace, or of all where it is empty, page by page."""
        place = self._place(resource)
        found = super().list(
            place, namespace, label_selector=label_selector, field_selector=field_selector
        )
        if place is resource:
            return found
        return ObjectList([_in_hub(resource, place, each) for each in found.items], found.revision)

    def watch(
        self,
        resource: Resource,
        namespace: str = "",
        *,
        revision: str,
        label_selector: str = "",
        field_selector: str = "",
    ) -> RemoteWatch:
        """Return the changes after `revision`; a broken connection is taken up where it broke."""
        place = self._place(resource)
        found = super().watch(
            place,
            namespace,
            revision=revision,
            label_selector=label_selector,
            field_selector=field_selector,
        )
        if place is not resource:
            found.read_as = partial(_in_hub, resource, place)
        return found

    def create(self, resource: Resource, body: JsonDict, namespace: str = "") -> JsonDict:
        """Store a new object."""
        place = self._place(resource)
        sent = _in_version(resource, place, body)
        return _in_hub(resource, place, super().create(place, sent, namespace))

    def update(self, resource: Resource, body: JsonDict, *, subresource: str = "") -> JsonDict:
        """Replace an object, or one of its subresources such as `status`."""
        place = self._place(resource)
        sent = _in_version(resource, place, body)
        return _in_hub(resource, place, super().update(place, sent, subresource=subresource))

    def patch(
        self,
        resource: Resource,
        name: str,
        patch: JsonDict | Sequence[JsonDict],
        namespace: str = "",
        *,
        type: PatchType = "merge",
        subresource: str = "",
        field_manager: str = "",
        force: bool = False,
    ) -> JsonDict:
        """Change an object by a patch; the status has the same form in every version."""
        place = self._place(resource)
        if isinstance(patch, dict) and "apiVersion" in patch:
            patch = _in_version(resource, place, patch)
        found = super().patch(
            place,
            name,
            patch,
            namespace,
            type=type,
            subresource=subresource,
            field_manager=field_manager,
            force=force,
        )
        return _in_hub(resource, place, found)

    def delete(
        self,
        resource: Resource,
        name: str,
        namespace: str = "",
        *,
        options: Mapping[str, Any] | None = None,
    ) -> None:
        """Delete an object; `options` is a DeleteOptions mapping."""
        super().delete(self._place(resource), name, namespace, options=options)

    def delete_collection(
        self,
        resource: Resource,
        namespace: str = "",
        *,
        label_selector: str = "",
        field_selector: str = "",
    ) -> None:
        """Delete what a list with the same arguments returns, in one request."""
        super().delete_collection(
            self._place(resource),
            namespace,
            label_selector=label_selector,
            field_selector=field_selector,
        )

    def _place(self, resource: Resource) -> Resource:
        """Return the version of a collection that a server has; explicit versions are kept."""
        kind = PLURALS.get(resource.plural)
        if resource.group != GROUP or kind is None or resource.version != hub_version(kind):
            return resource
        if self._served is None:
            self._served = self._versions()
        version = self._served.get(resource.plural, resource.version)
        if version == resource.version:
            return resource
        return Resource(GROUP, version, resource.plural, resource.namespaced)

    def _versions(self) -> Mapping[str, str]:
        """Return the newest version of each collection. ApiError: the server does not say."""
        found: dict[str, str] = {}
        for version in VERSIONS:
            try:
                answer = self._call("GET", f"/apis/{GROUP}/{version}")
            except ApiError as error:
                if error.code not in {403, 404}:
                    raise
                continue
            for each in answer.get("resources") or ():
                found.setdefault(each["name"], version)
            if found.keys() >= PLURALS.keys():
                break
        return found


def _in_hub(resource: Resource, place: Resource, value: JsonDict) -> JsonDict:
    if place is resource:
        return value
    kind = PLURALS[resource.plural]
    named = {**value, "apiVersion": f"{GROUP}/{place.version}", "kind": kind}
    return convert(named, hub_version(kind))


def _in_version(resource: Resource, place: Resource, value: JsonDict) -> JsonDict:
    if place is resource:
        return value
    kind = PLURALS[resource.plural]
    named = {**value, "apiVersion": f"{GROUP}/{resource.version}", "kind": kind}
    return convert(named, place.version)
