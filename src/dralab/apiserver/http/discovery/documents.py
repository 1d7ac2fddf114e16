"""The documents of discovery, made from a registry of kinds."""

import base64
import hashlib
from collections.abc import Iterable, Sequence
from typing import Final

from dralab.api.kinds import ALL_VERBS, Kind, Kinds
from dralab.values.json_types import JsonDict

AGGREGATED: Final = "apidiscovery.k8s.io/v2"
CUSTOM_VERBS: Final = (
    "delete", "deletecollection", "get", "list", "patch", "create", "update", "watch",
)  # fmt: skip
FIRST_PATHS: Final = ("/.well-known/openid-configuration", "/api", "/api/v1", "/apis", "/apis/")
LAST_PATHS: Final = (
    "/flagz", "/healthz", "/livez", "/metrics", "/metrics/slis", "/openapi/v2", "/openapi/v3",
    "/openid/v1/jwks", "/readyz", "/statusz", "/version",
)  # fmt: skip


def groups_of(kinds: Kinds) -> list[str]:
    """Return the named groups in the order of a server: its own first, then the others' names."""
    return [group for group in kinds.groups() if group]


def aggregated(kinds: Kinds, *, core: bool) -> JsonDict:
    """Return everything about the core group, or about all the others."""
    groups = [""] if core else groups_of(kinds)
    return {
        "kind": "APIGroupDiscoveryList",
        "apiVersion": AGGREGATED,
        "metadata": {},
        "items": [_group_discovery(kinds, group) for group in groups],
    }


def _group_discovery(kinds: Kinds, group: str) -> JsonDict:
    return {
        "metadata": {"name": group, "creationTimestamp": None} if group else {},
        "versions": [
            {
                "version": version,
                "resources": [
                    _resource_discovery(kind) for kind in kinds.in_version(group, version)
                ],
                "freshness": "Current",
            }
            for version in kinds.versions(group)
        ],
    }


def _resource_discovery(kind: Kind) -> JsonDict:
    found: JsonDict = {
        "resource": kind.plural,
        # Empty group and version stand for the parent's.
        "responseKind": {"group": "", "version": "", "kind": kind.kind},
        "scope": "Namespaced" if kind.namespaced else "Cluster",
        "singularResource": kind.singular,
        "verbs": list(kind.verbs),
    }
    if kind.short_names:
        found["shortNames"] = list(kind.short_names)
    if kind.categories:
        found["categories"] = list(kind.categories)
    if kind.subresources:
        found["subresources"] = [
            {
                "subresource": sub.name,
                "responseKind": {"group": sub.group, "version": sub.version, "kind": sub.kind},
                "verbs": list(sub.verbs),
            }
            for sub in kind.subresources.values()
        ]
    return found


def api_versions(address: str) -> JsonDict:
    """Return the old answer of `/api`."""
    return {
        "kind": "APIVersions",
        "versions": ["v1"],
        "serverAddressByClientCIDRs": [{"clientCIDR": "0.0.0.0/0", "serverAddress": address}],
    }


def api_groups(kinds: Kinds) -> JsonDict:
    """Return the old answer of `/apis`."""
    return {
        "kind": "APIGroupList",
        "apiVersion": "v1",
        "groups": [_group(kinds, group) for group in groups_of(kinds)],
    }


def api_group(kinds: Kinds, group: str) -> JsonDict:
    """Return the answer of `/apis/GROUP`."""
    return {"kind": "APIGroup", "apiVersion": "v1", **_group(kinds, group)}


def _group(kinds: Kinds, group: str) -> JsonDict:
    versions = [
        {"groupVersion": f"{group}/{version}", "version": version}
        for version in kinds.versions(group)
    ]
    return {"name": group, "versions": versions, "preferredVersion": versions[0]}


def api_resources(kinds: Kinds, group: str, version: str) -> JsonDict:
    """Return the answer of `/api/v1` or `/apis/GROUP/VERSION`."""
    resources: list[JsonDict] = []
    for kind in kinds.in_version(group, version):
        resources += _resources(kind)
    head: JsonDict = {"kind": "APIResourceList"}
    if group:
        head["apiVersion"] = "v1"  # which the oldest list lacks
    group_version = f"{group}/{version}" if group else version
    return {**head, "groupVersion": group_version, "resources": resources}


def _resources(kind: Kind) -> list[JsonDict]:
    order = ALL_VERBS if kind.custom is None else CUSTOM_VERBS
    main: JsonDict = {
        "name": kind.plural,
        "singularName": kind.singular,
        "namespaced": kind.namespaced,
        "kind": kind.kind,
        "verbs": _in_order(kind.verbs, order),
    }
    if kind.short_names:
        main["shortNames"] = list(kind.short_names)
    if kind.categories:
        main["categories"] = list(kind.categories)
    if {"get", "create"} <= {*kind.verbs}:
        main["storageVersionHash"] = _storage_hash(kind)
    found = [main]
    for sub in kind.subresources.values():
        entry: JsonDict = {
            "name": f"{kind.plural}/{sub.name}",
            "singularName": "",
            "namespaced": kind.namespaced,
        }
        if sub.group:
            entry |= {"group": sub.group, "version": sub.version}
        entry |= {"kind": sub.kind, "verbs": list(sub.verbs)}
        found.append(entry)
    return found


def _in_order(verbs: Sequence[str], order: Sequence[str]) -> list[str]:
    return sorted(verbs, key=order.index)


def _storage_hash(kind: Kind) -> str:
    """Return the hash by which clients see that objects are stored in another version."""
    text = STORED_AS.get(kind.hub) or f"{kind.group}/{kind.version}/{kind.kind}"
    return base64.b64encode(hashlib.sha256(text.encode()).digest()[:8]).decode()


# Collections whose objects are stored in the form of one version, whichever they came by.
STORED_AS: Final = {
    "events": "/v1/Event",
    "autoscaling/horizontalpodautoscalers": "autoscaling/v2/HorizontalPodAutoscaler",
    # Stored so from the beginning: no reader of etcd has to learn another form.
    "apiextensions.k8s.io/customresourcedefinitions": (
        "apiextensions.k8s.io/v1beta1/CustomResourceDefinition"
    ),
}


def root_paths(kinds: Kinds, more: Iterable[str] = ()) -> list[str]:
    """Return the paths that `/` lists; `more` are those of the server itself."""
    paths = []
    for group in sorted(groups_of(kinds)):
        paths.append(f"/apis/{group}")
        paths += [f"/apis/{group}/{version}" for version in sorted(kinds.versions(group))]
    return [*FIRST_PATHS, *paths, *sorted({*LAST_PATHS, *more})]
