"""The groups and versions of aggregated API servers, and their availability.

Source of conditions and words: k8s.io/kube-aggregator
`pkg/controllers/status/remote/remote_available_controller.go`.
"""

import re
import threading
from collections.abc import Mapping, Sequence
from dataclasses import replace
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Final

from dralab.api.status import ApiError
from dralab.apiserver.guarded import guarded_by
from dralab.apiserver.outgoing.answers import parsed
from dralab.apiserver.outgoing.targets import (
    AWAITED,
    CallTarget,
    NoEndpoints,
    NoService,
    Overdue,
    Unreachable,
    UnsupportedService,
    authority,
)
from dralab.apiserver.verbs import writing
from dralab.apiserver.verbs.state.context import Context
from dralab.kernel.clock import SECOND, WallClock
from dralab.values.json_types import JsonDict
from dralab.values.records import dataclass

if TYPE_CHECKING:
    from dralab.apiserver.outgoing.client import CallClient

HUB: Final = "apiregistration.k8s.io/apiservices"
SERVER: Final = "kube-aggregator"
# Who asks, behind the proxy's certificate: one who may always read discovery.
AS_AGGREGATOR: Final = (
    ("X-Remote-User", "system:kube-aggregator"),
    ("X-Remote-Group", "system:masters"),
)
TIMEOUT: Final = 5.0  # seconds for an answer to the question whether it is there
AGAIN: Final = 30 * SECOND
HTTPS: Final = 443
HASH: Final = re.compile(r"(?:hash=[0-9A-Za-z]{1,256})?")


@dataclass(slots=True)
class RemoteVersion:
    """A group and version of another server.

    `resources` is its APIResourceList, `openapi` the path of its OpenAPI 3 document; empty where
    it has none.
    """

    name: str
    group: str
    version: str
    spec: Mapping[str, Any]
    available: bool = False
    resources: JsonDict | None = None
    openapi: str = ""


def document_path(place: str, index: Any) -> str:
    """Return the path of a document in an index of OpenAPI 3 documents; empty if missing.

    Another server leads clients to its own document only.

    >>> index = {"paths": {"apis/x.io/v1": {"serverRelativeURL": "/openapi/v3/apis/x.io/v1"}}}
    >>> document_path("apis/x.io/v1", index), document_path("apis/y.io/v1", index)
    ('/openapi/v3/apis/x.io/v1', '')
    """
    try:
        found = str(index["paths"][place]["serverRelativeURL"])
    except (LookupError, TypeError):
        return ""
    path, _, query = found.partition("?")
    return found if path == f"/openapi/v3/{place}" and HASH.fullmatch(query) else ""


class RemoteVersions:
    """The APIServices that name a Service, with the state of their servers."""

    def __init__(self, context: Context) -> None:
        self.context = context
        self.all: dict[tuple[str, str], RemoteVersion] = {}
        self._checking = threading.Lock()
        self._checked = 0
        context.derive(self.load, {HUB: self._changed})

    def load(self) -> None:
        """Read all APIServices."""
        self.all = {}
        for stored in self.context.store.list(HUB).items:
            self._changed(None, stored.value)

    def find(self, group: str, version: str) -> RemoteVersion | None:
        """Return a version that another server serves; None if this server does, or no server."""
        return self.all.get((group, version)) if self.all else None

    def versions_of(self, group: str) -> Sequence[RemoteVersion]:
        """Return the versions of a group of other servers, the preferred one first."""
        found = [each for each in self.all.values() if each.group == group]
        return sorted(found, key=lambda each: -(each.spec.get("versionPriority") or 0))

    @guarded_by("context.store.lock")
    def _changed(self, before: JsonDict | None, after: JsonDict | None) -> None:
        if before is not None:
            spec = before.get("spec") or {}
            if after is None or (after.get("spec") or {}) != spec:
                place = (spec.get("group") or "", spec.get("version") or "")
                if self.all.pop(place, None) is not None:
                    self.context.kinds.changes += 1  # discovery is another one
        if after is None:
            return
        spec = after.get("spec") or {}
        if not spec.get("service"):
            return
        place = (spec.get("group") or "", spec.get("version") or "")
        if place not in self.all:
            name = after["metadata"]["name"]
            self.all[place] = RemoteVersion(name, *place, spec=spec)
            self.context.kinds.changes += 1
            self._checked = 0
            self.check_soon()

    def check_soon(self) -> None:
        """Check the servers' availability in a thread, unless one runs already."""
        if self.all and WallClock().now() >= self._checked + AGAIN:
            threading.Thread(target=self._check_all, name="apiservices", daemon=True).start()

    def target(self, remote: RemoteVersion, path: str) -> CallTarget:
        """Return the target of a version's server. Unreachable."""
        service, outgoing = remote.spec["service"], self.context.outgoing
        found = outgoing.targets.of_service(
            service.get("namespace") or "",
            service.get("name") or "",
            service.get("port") or HTTPS,
            path=path,
            ca=authority(remote.spec.get("caBundle")),
            insecure=bool(remote.spec.get("insecureSkipTLSVerify")),
            by_name=not outgoing.settings.aggregator_routing,
        )
        return replace(found, certificate=outgoing.settings.proxy_certificate)

    def _check_all(self) -> None:
        if not self._checking.acquire(blocking=False):
            return
        try:
            self._checked = WallClock().now()
            for remote in list(self.all.values()):
                self._check(remote, self.context.outgoing.client)
        finally:
            self._checking.release()

    def _check(self, remote: RemoteVersion, client: "CallClient") -> None:
        """Fetch a server's discovery, and write its availability into the status."""
        path = f"/apis/{remote.group}/{remote.version}"
        reason, message = "Passed", "all checks passed"
        try:
            target = self.target(remote, path)
            answer = client.call(target, b"", method="GET", timeout=TIMEOUT, headers=AS_AGGREGATOR)
            if answer.status != HTTPStatus.OK:
                reason = "FailedDiscoveryCheck"
                message = (
                    f"failing or missing response from {target.url}: bad status from "
                    f"{target.url}: {answer.status}"
                )
            else:
                found = parsed(answer.body)
                remote.resources = found if isinstance(found, dict) else None
        except ValueError:
            remote.resources = None
        except Unreachable as error:
            reason, message = _reason(remote, error, path)
        available = reason == "Passed"
        document = self._document(remote, client) if available else ""
        if (available, document) != (remote.available, remote.openapi):
            remote.available, remote.openapi = available, document
            self.context.kinds.changes += 1  # discovery is another one
        self._write(remote, available=available, reason=reason, message=message)

    def _document(self, remote: RemoteVersion, client: "CallClient") -> str:
        """Return the path of a version's OpenAPI 3 document, as its server's index has it."""
        place = f"apis/{remote.group}/{remote.version}"
        try:
            target = self.target(remote, "/openapi/v3")
            answer = client.call(target, b"", method="GET", timeout=TIMEOUT, headers=AS_AGGREGATOR)
            return document_path(place, parsed(answer.body))
        except (Unreachable, ValueError):
            return ""

    def documents(self) -> dict[str, str]:
        """Return the OpenAPI 3 documents of other servers: their paths by place."""
        return {
            f"apis/{remote.group}/{remote.version}": remote.openapi
            for remote in list(self.all.values())
            if remote.openapi
        }

    def _write(self, remote: RemoteVersion, *, available: bool, reason: str, message: str) -> None:
        condition = {
            "type": "Available",
            "status": "True" if available else "False",
            "reason": reason,
            "message": message,
        }
        kind = self.context.kinds.find("apiregistration.k8s.io", "v1", "apiservices")
        scope = self.context.own_write(SERVER)
        try:
            writing.set_condition(scope, kind, remote.name, condition)
        except ApiError:
            return  # it has gone meanwhile


def _reason(remote: RemoteVersion, error: Unreachable, path: str) -> tuple[str, str]:
    service = remote.spec["service"]
    name = f"{service.get('namespace')}/{service.get('name')}"
    if isinstance(error, NoService):
        where = f'service/{service.get("name")} in "{service.get("namespace")}"'
        return "ServiceNotFound", f"{where} is not present"
    if isinstance(error, NoEndpoints):
        return "EndpointsNotFound", f"cannot find endpoints for service/{name}"
    if isinstance(error, UnsupportedService):
        return "FailedDiscoveryCheck", str(error)
    where = f"https://{service.get('name')}.{service.get('namespace')}.svc{path}"
    late = AWAITED if isinstance(error, Overdue) else ""
    return (
        "FailedDiscoveryCheck",
        f'failing or missing response from {where}: Get "{where}": {error}{late}',
    )
