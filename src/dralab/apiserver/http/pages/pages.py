"""Pages that are not resources: version, health, discovery, `/statusz` and `/flagz`.

Source of the last: k8s.io/component-base `zpages`. Upstream takes another delimiter each time, so
that no program relies on it; here it is always the same.
"""

import hashlib
import platform
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, Final, Self

import orjson

from dralab.api.kinds import Kinds
from dralab.api.messages import META
from dralab.api.releases import MIXED, version_of
from dralab.api.status import ApiError
from dralab.apiserver.http import negotiation, routing
from dralab.apiserver.http.discovery import documents
from dralab.apiserver.http.encodings.encoding import as_yaml
from dralab.apiserver.http.messages import HttpRequest, HttpResponse
from dralab.apiserver.http.pages.health import HealthPages
from dralab.apiserver.http.routing import NoSuchGroup
from dralab.apiserver.http.trying import JSON, NO_CACHE
from dralab.apiserver.made_once import made_once
from dralab.apiserver.verbs.aggregation import discovery
from dralab.apiserver.verbs.aggregation.services import RemoteVersions
from dralab.apiserver.verbs.server import Resources
from dralab.kernel.clock import SECOND, Clock, rfc3339
from dralab.values.json_types import JsonDict
from dralab.values.records import dataclass

if TYPE_CHECKING:
    from dralab.apiserver.http.pages.openapi_pages import OpenApiPages

JWKS: Final = "application/jwk-set+json"


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerVersion:
    """The answer of `/version`; clients compare all of it."""

    major: str
    minor: str
    emulationMajor: str  # noqa: N815 - a name of the API
    emulationMinor: str  # noqa: N815 - a name of the API
    minCompatibilityMajor: str  # noqa: N815 - a name of the API
    minCompatibilityMinor: str  # noqa: N815 - a name of the API
    gitVersion: str  # noqa: N815 - a name of the API
    gitCommit: str = ""  # noqa: N815 - a name of the API
    gitTreeState: str = ""  # noqa: N815 - a name of the API
    buildDate: str = "1970-01-01T00:00:00Z"  # noqa: N815 - a name of the API
    goVersion: str = ""  # noqa: N815 - a name of the API
    compiler: str = "dralab"
    platform: str = "linux/amd64"

    @classmethod
    def of(cls, release: str = MIXED) -> Self:
        """Return the version of a server of a release, which can go back to the one before."""
        version = version_of(release)
        major, minor = version[1:].split(".")[:2]
        return cls(
            major=major,
            minor=minor,
            emulationMajor=major,
            emulationMinor=minor,
            minCompatibilityMajor=major,
            minCompatibilityMinor=str(int(minor) - 1),
            gitVersion=version,
        )


class Pages:
    """Answers the paths that lead to no resource."""

    def __init__(self, resources: Resources, version: ServerVersion, address: str) -> None:
        self.resources = resources
        self.version = version
        self.address = address
        self.issuer = resources.context.issuer
        self.remote = RemoteVersions(resources.context)
        # As of so many changes of the kinds; exchanged whole, as several threads may make them.
        self._cached: tuple[int, dict[tuple[str, ...], tuple[bytes, str]]] = (-1, {})
        self.health = HealthPages(resources.context)
        self.component = ComponentPages(
            resources.context.clock, version.gitVersion, f"{version.major}.{version.minor}"
        )
        # What else `/metrics` shows: lines of Prometheus' text format.
        self.exporters: list[Callable[[], Iterable[str]]] = []

    @made_once
    def _openapi(self) -> "OpenApiPages":
        from dralab.apiserver.http.pages.openapi_pages import OpenApiPages

        lock = self.resources.context.store.lock
        elsewhere = self.remote.documents
        return OpenApiPages(self.resources.kinds, self.version.gitVersion, lock, elsewhere)

    def answer(  # noqa: PLR0911 - one line per page
        self, request: HttpRequest, parts: Sequence[str]
    ) -> HttpResponse:
        """Answer a GET of such a path; ApiError, NoSuchGroup."""
        if request.method not in {"GET", "HEAD"} and not _takes_any_method(parts):
            raise ApiError(
                "MethodNotAllowed",
                "the server does not allow this method on the requested resource",
                details={},
            )
        match list(parts):
            case []:
                paths = self._paths()
                return self._document(request, ("root",), lambda _: {"paths": paths})
            case [("statusz" | "flagz") as name]:
                return self.component.answer(request, name, self._paths())
            case ["version"]:
                body = orjson.dumps(asdict(self.version), option=orjson.OPT_INDENT_2)
                return self._json(request, body)
            case [("livez" | "readyz" | "healthz") as name]:
                query = routing.query_of(request.query)
                left_out = frozenset(query.get("exclude", ()))
                return self.health.answer(name, verbose="verbose" in query, left_out=left_out)
            case [("livez" | "readyz" | "healthz") as name, *rest] if "/".join(
                rest
            ) in self.health.checks(name):
                return self.health.answer_one(name, "/".join(rest))
            case ["openapi", *rest] if (found := self._openapi.answer(request, rest)) is not None:
                return found
            case [".well-known", "openid-configuration"]:
                return self._json(request, orjson.dumps(self.issuer.configuration(self.address)))
            case ["openid", "v1", "jwks"]:
                return self._keys(request)
            case ["metrics"] | ["metrics", "slis"]:
                return _exposed(self.health.indicators()) if len(parts) > 1 else self._metrics()
            case ["api"] | ["apis"]:
                return self._groups(request, core=parts[0] == "api")
            case ["api", version]:
                return self._resources(request, "", version)
            case ["apis", group]:
                return self._group(request, group)
            case ["apis", group, version]:
                return self._resources(request, group, version)
            case _:
                raise NoSuchGroup("/".join(parts))

    def _paths(self) -> list[str]:
        return documents.root_paths(self.resources.kinds, self.health.paths())

    def _groups(self, request: HttpRequest, *, core: bool) -> HttpResponse:
        form = negotiation.discovery_form(request.headers.get("accept", ""))
        if form == "aggregated":
            return self._document(
                request,
                ("aggregated", "core" if core else "groups"),
                lambda kinds: self._aggregated(kinds, core=core),
                content_type=negotiation.DISCOVERY,
                headers=(("Cache-Control", "public"), ("Vary", "Accept")),
            )
        if core:
            body = orjson.dumps(documents.api_versions(self.address))
            return _discovered(request, body, aggregated=True)
        return self._document(
            request,
            ("groups",),
            lambda kinds: discovery.with_groups(documents.api_groups(kinds), self.remote),
        )

    def _group(self, request: HttpRequest, group: str) -> HttpResponse:
        if self.resources.kinds.versions(group):
            return self._document(
                request, ("group", group), lambda kinds: documents.api_group(kinds, group)
            )
        elsewhere = discovery.group_of(self.remote, group)
        if elsewhere is None:
            raise NoSuchGroup(group)
        return _discovered(request, orjson.dumps(elsewhere))

    def _aggregated(self, kinds: Kinds, *, core: bool) -> JsonDict:
        found = documents.aggregated(kinds, core=core)
        return found if core else discovery.with_discovery(found, self.remote)

    def _resources(self, request: HttpRequest, group: str, version: str) -> HttpResponse:
        kinds = self.resources.kinds
        if version not in kinds.versions(group):
            if kinds.is_left_to_others(group):
                raise NoSuchGroup(group)
            raise routing.not_found()
        return self._document(
            request,
            ("resources", group, version),
            lambda kinds: documents.api_resources(kinds, group, version),
        )

    def _document(
        self,
        request: HttpRequest,
        place: tuple[str, ...],
        made: Callable[[Any], dict[str, Any]],
        *,
        content_type: str = "application/json",
        headers: Sequence[tuple[str, str]] = (),
    ) -> HttpResponse:
        """Answer with a document of discovery, kept until the kinds change."""
        kinds = self.resources.kinds
        changes = kinds.changes
        as_of, cached = self._cached
        if as_of != changes:
            cached = {}
            self._cached = (changes, cached)
        found = cached.get(place)
        if found is None:
            body = orjson.dumps(made(kinds))
            found = cached[place] = (body, hashlib.sha512(body).hexdigest().upper())
        body, digest = found
        if place == ("root",):
            return self._json(request, orjson.dumps(orjson.loads(body), option=orjson.OPT_INDENT_2))
        if content_type == "application/json":
            routed = place[0] == "resources"
            return _discovered(request, body, aggregated=place == ("groups",), routed=routed)
        tag = f'"{digest}"'
        headers = [("Content-Type", content_type), ("ETag", tag), *headers]
        if request.headers.get("if-none-match") == tag:
            return HttpResponse(status=304, headers=headers)
        return HttpResponse(headers=headers, body=body + b"\n")

    def _json(self, request: HttpRequest, body: bytes) -> HttpResponse:
        form = negotiation.discovery_form(request.headers.get("accept", ""))
        return _in_yaml(body) if form == "yaml" else HttpResponse(headers=JSON, body=body)

    def _keys(self, request: HttpRequest) -> HttpResponse:
        """Answer with the public keys of service accounts, in their own media type alone."""
        accepted = request.headers.get("accept", "*/*")
        if "*/*" not in accepted and JWKS not in accepted:
            why = f"406: Not Acceptable\n\nAvailable representations: {JWKS}"
            raise ApiError("NotAcceptable", why, details={})
        headers = (("Content-Type", JWKS), ("Cache-Control", "public, max-age=3600"))
        return HttpResponse(headers=headers, body=orjson.dumps(self.issuer.key_set()))

    def _metrics(self) -> HttpResponse:
        store = self.resources.context.store
        lines = [
            "# HELP apiserver_storage_objects Number of stored objects by kind.",
            "# TYPE apiserver_storage_objects gauge",
        ]
        for resource in store.resources():
            group, _, plural = resource.rpartition("/")
            name = f"{plural}.{group}" if group else plural
            lines.append(f'apiserver_storage_objects{{resource="{name}"}} {store.count(resource)}')
        lines += [
            "# HELP dralab_storage_revision The revision of the last write.",
            "# TYPE dralab_storage_revision counter",
            f"dralab_storage_revision {store.revision}",
        ]
        for export in self.exporters:
            lines += export()
        return _exposed(lines)


def _exposed(lines: Iterable[str]) -> HttpResponse:
    """Return an answer in Prometheus' text format."""
    headers = (("Content-Type", "text/plain; version=0.0.4; charset=utf-8"),)
    return HttpResponse(headers=headers, body="\n".join([*lines, ""]).encode())


def _takes_any_method(parts: Sequence[str]) -> bool:
    """Whether a page answers any method, as those of a real server's plain mux do."""
    match list(parts):
        case [("livez" | "readyz" | "healthz" | "openapi" | "metrics" | "statusz" | "flagz"), *_]:
            return True
        case ["apis"] | ["apis", _]:
            return True
        case _:
            return False


def _in_yaml(body: bytes) -> HttpResponse:
    headers = (NO_CACHE, ("Content-Type", "application/yaml"))
    return HttpResponse(headers=headers, body=as_yaml(body))


def _discovered(
    request: HttpRequest, body: bytes, *, aggregated: bool = False, routed: bool = False
) -> HttpResponse:
    """Answer with a document of discovery in the form that was asked for. ApiError NotAcceptable.

    `aggregated` says that there is another form of it, with all groups in one; `routed` that a
    real server's router looks at the form first.
    """
    accept = request.headers.get("accept", "")
    match negotiation.discovery_form(accept, aggregated=aggregated):
        case "yaml":
            return _in_yaml(body)
        case "protobuf":
            from dralab.apiserver.protobuf import encoding

            value = orjson.loads(body)
            message = encoding.writer(META + value["kind"])(value)
            headers = (NO_CACHE, ("Content-Type", negotiation.PROTOBUF))
            return HttpResponse(
                headers=headers, body=encoding.enveloped("v1", value["kind"], message)
            )
        case "":
            if routed:
                raise negotiation.not_acceptable(accept, listing=False)
            raise negotiation.unmet()
        case _:
            return HttpResponse(headers=JSON, body=body + b"\n")


WARNING: Final = (
    "Warning: This endpoint is not meant to be machine parseable, has no formatting compatibility "
    "guarantees and is for debugging purposes only."
)
TEXT: Final = (("Content-Type", "text/plain; charset=utf-8"),)
NOT_ACCEPTABLE: Final = b"media type not acceptable, must be: text/plain\n"
# Paths that are of no use to somebody who looks for a fault.
PLAIN: Final = frozenset({"/api", "/apis", "/openid", "/openapi", "/.well-known"})
MEDIA: Final = frozenset({"text/plain", "text/*", "*/*", "*/plain"})


class ComponentPages:
    """The two pages; `flags` are the options with which the server was started."""

    def __init__(self, clock: Clock, version: str, emulated: str) -> None:
        self._clock, self._version, self._emulated = clock, version, emulated
        self._started = clock.now()
        self.flags: Mapping[str, str] = {}

    def answer(self, request: HttpRequest, name: str, paths: Iterable[str]) -> HttpResponse:
        """Answer `/statusz` or `/flagz`; `paths` are those that the server has."""
        if name == "statusz":
            return _page(request, name, self._about(paths))
        flags = sorted(self.flags.items())
        return _page(request, "flags", (f"{flag}={value}" for flag, value in flags))

    def _about(self, paths: Iterable[str]) -> Iterator[str]:
        up = (self._clock.now() - self._started) // SECOND
        yield f"Started: {rfc3339(self._started)}"
        yield f"Up: {up // 3600} hr {up // 60 % 60:02d} min {up % 60:02d} sec"
        yield f"Python version: {platform.python_version()}"
        yield f"Binary version: {self._version}"
        yield f"Emulation version: {self._emulated}"
        folders = {f"/{path.split('/')[1]}" for path in paths}
        yield f"Paths: {' '.join(sorted(folders - PLAIN))}"


def _page(request: HttpRequest, title: str, lines: Iterable[str]) -> HttpResponse:
    if not any(map(_is_text, request.headers.get("accept", "*/*").split(","))):
        return HttpResponse(status=406, headers=TEXT, body=NOT_ACCEPTABLE)
    text = "\n".join(["", f"kube-apiserver {title}", WARNING, "", *lines, ""])
    return HttpResponse(headers=TEXT, body=text.encode())


def _is_text(accepted: str) -> bool:
    media, *parameters = (part.strip().lower() for part in accepted.split(";"))
    return media in MEDIA and all(
        part.startswith("q=") or part == "charset=utf-8" for part in parameters
    )
