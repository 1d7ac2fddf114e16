"""Objects of resource.k8s.io in another version of it, or in those that a release has."""

import copy
from collections.abc import Iterable, Mapping
from typing import Any

from dralab.api.decoding import decoder_of
from dralab.api.kinds import releases_with
from dralab.api.resource.conversion import convert
from dralab.api.resource.types import GROUP, KINDS
from dralab.values.json_types import JsonDict


def in_version(
    items: Iterable[JsonDict], version: str, release: str
) -> tuple[list[JsonDict], list[str]]:
    """Return the objects in a version, and what is lost.

    Without a `version` each is in the preferred one that the release has. With a release, fields
    that it does not have are left out. Objects of other groups stay as they are.
    """
    found: list[JsonDict] = []
    lost: list[str] = []
    for item in items:
        kind = str(item.get("kind"))
        if str(item.get("apiVersion", "")).partition("/")[0] != GROUP or kind not in KINDS:
            found.append(item)
            continue
        name = f"{kind} {(item.get('metadata') or {}).get('name', '')}"
        wanted = _version_of(kind, version, release)
        if not wanted:
            where = f"Kubernetes {release}" if release else GROUP
            lost.append(f"{name}: {where} has no {f'{version} ' if version else ''}{kind}")
            continue
        made = convert(item, wanted)
        if release:
            made, unknown = _of_release(made, release)
            lost += [f"{name}: {path}: {release} has no such field" for path in unknown]
        found.append(made)
    return found, lost


def _version_of(kind: str, version: str, release: str) -> str:
    """Return the version to use for a kind; "" if there is none."""
    for known in KINDS[kind]:
        served = not release or release in releases_with(f"{GROUP}/{known}", kind)
        if served and version in {"", known}:
            return known
    return ""


def _of_release(value: JsonDict, release: str) -> tuple[JsonDict, list[str]]:
    decoder = decoder_of(value["apiVersion"], value["kind"], release)
    if decoder is None:
        return value, []
    decoded, unknown = decoder.decode(copy.deepcopy(value))
    return (_kept(value, decoded), unknown) if unknown else (value, [])


def _kept(given: Any, known: Any) -> Any:
    """Return what was given without what is not known; what is empty is never known."""
    if isinstance(given, Mapping) and isinstance(known, Mapping):
        return {
            name: _kept(value, known.get(name, value))
            for name, value in given.items()
            if name in known or not value
        }
    if isinstance(given, list) and isinstance(known, list):
        return [_kept(one, other) for one, other in zip(given, known, strict=True)]
    return given
