"""Adds the groups of aggregated API servers to the documents of discovery.

A version whose server does not answer is listed, too. The aggregated form marks it as stale, so
that clients can tell it from a version that does not exist.

Source: k8s.io/kube-aggregator `pkg/apiserver` (handler_apis, handler_discovery).
"""

from collections.abc import Sequence

from dralab.apiserver.verbs.aggregation.services import RemoteVersion, RemoteVersions
from dralab.values.json_types import JsonDict


def with_groups(document: JsonDict, remote: RemoteVersions) -> JsonDict:
    """Return an APIGroupList with the groups of other servers."""
    return {**document, "groups": [*document["groups"], *map(_group, _lists(remote))]}


def group_of(remote: RemoteVersions, group: str) -> JsonDict | None:
    """Return the APIGroup of another server; None if no APIService names one."""
    found = remote.versions_of(group)
    return {"kind": "APIGroup", "apiVersion": "v1", **_group(found)} if found else None


def with_discovery(document: JsonDict, remote: RemoteVersions) -> JsonDict:
    """Return an APIGroupDiscoveryList with the groups of other servers."""
    added = [
        {
            "metadata": {"name": versions[0].group, "creationTimestamp": None},
            "versions": [
                {
                    "version": each.version,
                    "resources": _resources(each.resources or {}),
                    "freshness": "Current" if each.available else "Stale",
                }
                for each in versions
            ],
        }
        for versions in _lists(remote)
    ]
    return {**document, "items": [*document["items"], *added]}


def _lists(remote: RemoteVersions) -> list[Sequence[RemoteVersion]]:
    groups = dict.fromkeys(each.group for each in remote.all.values())
    return [remote.versions_of(group) for group in groups]


def _group(versions: Sequence[RemoteVersion]) -> JsonDict:
    group = versions[0].group
    shown = [
        {"groupVersion": f"{group}/{each.version}", "version": each.version} for each in versions
    ]
    return {"name": group, "versions": shown, "preferredVersion": shown[0]}


def _resources(listed: JsonDict) -> list[JsonDict]:
    """Return an APIResourceList in the form of aggregated discovery."""
    found: dict[str, JsonDict] = {}
    resources = listed.get("resources")
    for each in resources if isinstance(resources, list) else ():
        # Written by another server, whatever it is: it must not spoil what is listed beside it.
        if not isinstance(each, dict) or not isinstance(each.get("name"), str):
            continue
        name, _, sub = each["name"].partition("/")
        kind = {
            "group": each.get("group") or "",
            "version": each.get("version") or "",
            "kind": each.get("kind"),
        }
        if sub:
            entry = {"subresource": sub, "responseKind": kind, "verbs": each.get("verbs") or []}
            found.setdefault(name, {}).setdefault("subresources", []).append(entry)
            continue
        found.setdefault(name, {}).update(
            {
                "resource": name,
                "responseKind": kind,
                "scope": "Namespaced" if each.get("namespaced") else "Cluster",
                "singularResource": each.get("singularName") or "",
                "verbs": each.get("verbs") or [],
                **{part: each[part] for part in ("shortNames", "categories") if each.get(part)},
            }
        )
    return [each for each in found.values() if "resource" in each]
