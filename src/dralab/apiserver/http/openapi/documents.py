"""Whole documents: the index, one for each group and version, and the old one for everything."""

import hashlib
from collections.abc import Sequence
from typing import Any, Final

import orjson

from dralab.api.kinds import Kind, Kinds
from dralab.api.releases import MIXED
from dralab.apiserver.http.openapi.components import META, Components
from dralab.apiserver.http.openapi.operations import Operations

# Pages of every server, with the definition of what they answer; nothing for a text.
PAGES: Final = {
    ".well-known/openid-configuration": "",
    "api": f"{META}APIVersions",
    "apis": f"{META}APIGroupList",
    "openid/v1/jwks": "",
    "version": "io.k8s.apimachinery.pkg.version.Info",
}
SECURITY: Final = {
    "BearerToken": {
        "description": "Bearer Token authentication",
        "type": "apiKey",
        "name": "authorization",
        "in": "header",
    }
}


def places(kinds: Kinds) -> dict[str, Sequence[Kind]]:
    """Return the kinds of each document, by its place in the index (`api/v1`, `apis/apps/v1`)."""
    found: dict[str, list[Kind]] = {place: [] for place in PAGES}
    for kind in kinds:
        found.setdefault(kind.path[1:], []).append(kind)
        if kind.group and kind.custom is None:
            found.setdefault(f"apis/{kind.group}", [])
    return {place: tuple(found[place]) for place in sorted(found)}


def _add_pages(operations: Operations, place: str, kinds: Sequence[Kind]) -> None:
    """Add the pages of a place that are not about objects: those of discovery, for instance."""
    if place in PAGES:
        operations.add_page(f"/{place}/", PAGES[place])
    elif not kinds:
        operations.add_page(f"/{place}/", f"{META}APIGroup")
    elif any(kind.custom is None for kind in kinds):
        operations.add_page(f"/{place}/", f"{META}APIResourceList")


def index(kinds: Kinds, server_version: str) -> tuple[dict[str, Any], dict[str, str]]:
    """Return the index of all documents, and the hash of each, by its place.

    The hash is of what a document is made from, so that none is made before it is asked for.
    """
    hashes = {place: _hash(server_version, found) for place, found in places(kinds).items()}
    paths = {
        place: {"serverRelativeURL": f"/openapi/v3/{place}?hash={hashed}"}
        for place, hashed in hashes.items()
    }
    return {"paths": paths}, hashes


def _hash(server_version: str, kinds: Sequence[Kind]) -> str:
    digest = hashlib.sha512(server_version.encode())
    for kind in kinds:
        facts = [kind.api_version, kind.kind, kind.plural, list(kind.verbs)]
        subs = [[sub.name, sub.kind, list(sub.verbs)] for sub in kind.subresources.values()]
        custom = kind.custom if isinstance(kind.custom, dict) else None
        added = {".".join(path): schema for path, schema in kind.added.items()}
        digest.update(orjson.dumps([facts, subs, custom, added], option=orjson.OPT_SORT_KEYS))
    return digest.hexdigest().upper()


def version3(
    place: str, kinds: Sequence[Kind], server_version: str, release: str = MIXED
) -> dict[str, Any]:
    """Return the OpenAPI 3 document of a place: one group and version, most often."""
    components = Components("#/components/schemas/", composed=True, release=release)
    operations = Operations(components, 3)
    _add_pages(operations, place, kinds)
    for kind in kinds:
        operations.add_paths(kind)
    return {
        "openapi": "3.0.0",
        "info": {"title": "Kubernetes", "version": server_version},
        "paths": dict(sorted(operations.paths.items())),
        "components": {"schemas": components.finished(), "securitySchemes": SECURITY},
    }


def version2(kinds: Kinds, server_version: str) -> dict[str, Any]:
    """Return the OpenAPI 2 document of everything."""
    components = Components("#/definitions/", composed=False, release=kinds.release)
    operations = Operations(components, 2)
    for place, found in places(kinds).items():
        _add_pages(operations, place, found)
        for kind in found:
            operations.add_paths(kind)
    return {
        "swagger": "2.0",
        "info": {"title": "Kubernetes", "version": server_version},
        "paths": dict(sorted(operations.paths.items())),
        "definitions": components.finished(),
        "securityDefinitions": SECURITY,
        "security": [{"BearerToken": []}],
    }
