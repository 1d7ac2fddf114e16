"""Write src/dralab/api/data/kinds.json: which kinds there are in each release.

Groups, versions, plurals, scopes, verbs, subresources, short names and categories come from the
discovery documents in the Go module k8s.io/kubernetes, generations from its strategies, and what
is deprecated since when from k8s.io/api. What no source has as data (field selectors, and which
collections are one) is written down here.

    python tools/generate_kinds.py
"""

import json
import re
from pathlib import Path
from typing import Any

from releases import DATA, chain, releases, source, written

ALL = ["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"]
# Counted by the server itself, not by a strategy.
GENERATION = ("customresourcedefinition", "resourcepoolstatusrequest")
INVOLVED = ["kind", "namespace", "name", "uid", "apiVersion", "resourceVersion", "fieldPath"]
# Field selectors beyond metadata.name and metadata.namespace: registry strategies upstream.
FIELDS = {
    "pods": [
        "spec.nodeName",
        "spec.host",
        "spec.restartPolicy",
        "spec.schedulerName",
        "spec.serviceAccountName",
        "spec.hostNetwork",
        "status.phase",
        "status.podIP",
        "status.podIPs",
        "status.nominatedNodeName",
    ],
    "nodes": ["spec.unschedulable"],
    "namespaces": ["status.phase"],
    "secrets": ["type"],
    "services": ["spec.clusterIP", "spec.type"],
    "replicationcontrollers": ["status.replicas"],
    "jobs": ["status.successful"],
    "certificatesigningrequests": ["spec.signerName"],
    "resourceslices": ["spec.nodeName", "spec.driver"],
}
EVENT_FIELDS = {
    "v1": [f"involvedObject.{name}" for name in INVOLVED]
    + ["reason", "reportingComponent", "source", "type"],
    "events.k8s.io/v1": [f"regarding.{name}" for name in INVOLVED]
    + ["reason", "reportingController", "type"],
}
# A store of its own: kinds that are one collection under two groups, or under another version.
HUBS = {"events.k8s.io/v1/events": "events"}
LIFECYCLE = re.compile(
    r"^func \(in \*(\w+)\) APILifecycle(Deprecated|Removed)\(\)[^{]*\{\n\treturn (\d+), (\d+)\n"
    r"|^func \(in \*(\w+)\) APILifecycle(Replacement)\(\)[^{]*\{\n"
    r'\treturn [^{]*\{Group: "([^"]*)", Version: "([^"]*)", Kind: "([^"]*)"',
    re.MULTILINE,
)


def main() -> None:
    """Write the file."""
    tables = {release: _table(release) for release in releases()}
    size = written(DATA / "kinds.json", chain(tables))
    for release, table in tables.items():
        print(f"{release}: {len(table['kinds'])} kinds in {len(table['versions'])} versions")
    print(f"{size} bytes")


def _table(release: str) -> dict[str, Any]:
    """Return the versions of a release in the order in which a server lists them, and the kinds."""
    root = source(release)
    counted = {
        path.parent.name
        for path in (root / "pkg/registry").rglob("strategy.go")
        if ".Generation = 1" in path.read_text()
    }
    groups = json.loads((root / "api/discovery/aggregated_v2.json").read_bytes())["items"]
    served = ["v1"] + [
        f"{group['metadata']['name']}/{version['version']}"
        for group in groups
        for version in group["versions"]
    ]
    kinds: dict[str, Any] = {}
    for place in served:
        name = "api__v1" if place == "v1" else f"apis__{place.replace('/', '__')}"
        document = json.loads((root / "api/discovery" / f"{name}.json").read_bytes())
        deprecated = _deprecated(release, place)
        for entry in sorted(document["resources"], key=lambda entry: entry["name"]):
            plural, _, sub = entry["name"].partition("/")
            key = f"{place}/{plural}"
            if not sub:
                kinds[key] = _entry(key, place, plural, entry)
                if {entry["singularName"], plural} & {*counted, *GENERATION}:
                    kinds[key]["generation"] = True
                if warning := deprecated.get(entry["kind"]):
                    kinds[key]["deprecation"] = warning
                continue
            named = {word: entry[word] for word in ("group", "version") if word in entry}
            facts = {"kind": entry["kind"], "verbs": entry["verbs"], **named}
            kinds[key].setdefault("subresources", {})[sub] = facts
    return {"versions": served, "kinds": kinds}


def _entry(key: str, place: str, plural: str, given: dict[str, Any]) -> dict[str, Any]:
    entry = {"kind": given["kind"], "namespaced": given["namespaced"]}
    if given["singularName"] != given["kind"].lower():
        entry["singular"] = given["singularName"]
    if given["verbs"] != ALL:
        entry["verbs"] = given["verbs"]
    for name in ("shortNames", "categories"):
        if name in given:
            entry[name] = given[name]
    if fields := EVENT_FIELDS[place] if plural == "events" else FIELDS.get(plural):
        entry["fields"] = fields
    if hub := HUBS.get(key):
        entry["hub"] = hub
    return entry


def _deprecated(release: str, place: str) -> dict[str, str]:
    """Return what a server of a release says of the kinds of a version that are deprecated."""
    group, _, version = place.rpartition("/")
    folder = {"": "core", "internal.apiserver.k8s.io": "apiserverinternal"}.get(
        group, group.partition(".")[0]
    )
    files = sorted((source(release, "k8s.io/api") / folder / version).glob("*lifecycle.go"))
    facts: dict[str, dict[str, tuple[str, ...]]] = {}
    for found in LIFECYCLE.finditer("".join(path.read_text() for path in files)):
        kind, what, *rest = (part for part in found.groups() if part is not None)
        facts.setdefault(kind, {})[what] = tuple(rest)
    now = tuple(map(int, release.split(".")))
    return {
        kind: _warning(f"{place} {kind}", each)
        for kind, each in facts.items()
        if "Deprecated" in each and tuple(map(int, each["Deprecated"])) <= now
    }


def _warning(kind: str, facts: dict[str, tuple[str, ...]]) -> str:
    """Return the warning in the words of k8s.io/apiserver `pkg/endpoints/deprecation`."""
    text = f"{kind} is deprecated in v{'.'.join(facts['Deprecated'])}+"
    if "Removed" in facts:
        text += f", unavailable in v{'.'.join(facts['Removed'])}+"
    if "Replacement" in facts:
        group, version, other = facts["Replacement"]
        text += f"; use {Path(group, version)} {other}"
    return text


if __name__ == "__main__":
    from usage import print_if_asked

    print_if_asked(__doc__)
    main()
