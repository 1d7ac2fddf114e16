"""A client for servers with an older device API: components are written for the newest version.

Objects of resource.k8s.io are sent in the newest version that the server has and read back in the
form that everything here reasons about. A server that has the newest one costs one request more.
"""

from collections.abc import Mapping
from typing import Final

from dralab.api.resource.conversion import convert, hub_version
from dralab.api.resource.types import GROUP, KINDS, VERSIONS
from dralab.api.status import ApiError
from dralab.runtime.client import Resource
from dralab.runtime.remote import RemoteClient
from dralab.values.json_types import JsonDict

PLURALS: Final = {f"{kind.lower()}{'es' if kind.endswith('s') else 's'}": kind for kind in KINDS}


class AnyVersionClient(RemoteClient):
    """A client of a server with whatever version of the device API."""

    _served: Mapping[str, str] | None = None

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

    def _converted(self, value: JsonDict, before: Resource, after: Resource) -> JsonDict:
        if before == after:
            return value
        named = {"apiVersion": f"{GROUP}/{before.version}", "kind": PLURALS[before.plural]}
        return convert(value | named, after.version)

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
