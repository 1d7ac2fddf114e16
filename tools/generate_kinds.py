"""Write src/dralab/api/data/kinds.json: which kinds there are, under which paths and verbs.

Groups, versions, plurals, scopes, verbs and subresources come from the published package
`lightkube-models` (read as source, never imported). What no package knows (short names,
categories, generations, field selectors, which versions a server serves) is written down here.

    uv run --with lightkube-models==1.37.* python tools/generate_kinds.py
"""

import ast
import importlib.metadata
import json
from pathlib import Path
from typing import Any

TARGET = Path(__file__).parents[1] / "src/dralab/api/data/kinds.json"
ALL = ["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"]
VERBS = {"post": "create", "put": "update", "global_list": "list", "global_watch": "watch"}
STATUS = ["get", "patch", "update"]

# In the order in which a server lists its groups and versions.
GROUPS = {
    "": ["v1"],
    "apiregistration.k8s.io": ["v1"],
    "apps": ["v1"],
    "events.k8s.io": ["v1"],
    "authentication.k8s.io": ["v1"],
    "authorization.k8s.io": ["v1"],
    "autoscaling": ["v2", "v1"],
    "batch": ["v1"],
    "certificates.k8s.io": ["v1"],
    "networking.k8s.io": ["v1"],
    "policy": ["v1"],
    "rbac.authorization.k8s.io": ["v1"],
    "storage.k8s.io": ["v1"],
    "admissionregistration.k8s.io": ["v1"],
    "apiextensions.k8s.io": ["v1"],
    "scheduling.k8s.io": ["v1", "v1alpha2"],
    "coordination.k8s.io": ["v1"],
    "node.k8s.io": ["v1"],
    "discovery.k8s.io": ["v1"],
    "resource.k8s.io": ["v1", "v1beta2", "v1beta1", "v1alpha3"],
    "flowcontrol.apiserver.k8s.io": ["v1"],
}
# Versions that a 1.36 server serves only when it is told to.
ON_REQUEST = {
    ("scheduling.k8s.io", "v1alpha2"),
    ("resource.k8s.io", "v1beta2"),
    ("resource.k8s.io", "v1beta1"),
    ("resource.k8s.io", "v1alpha3"),
}
# Kinds and subresources of 1.37: known, and served on request.
LATER = {
    ("certificates.k8s.io", "v1", "clustertrustbundles"),
    ("certificates.k8s.io", "v1", "podcertificaterequests"),
    ("resource.k8s.io", "v1", "devicetaintrules"),
}
WITHOUT_SUBRESOURCES = ("resourceslices", "csinodes")
SHORT = {
    "certificatesigningrequests": "csr", "componentstatuses": "cs", "configmaps": "cm",
    "cronjobs": "cj", "customresourcedefinitions": "crd crds", "daemonsets": "ds",
    "deployments": "deploy", "endpoints": "ep", "events": "ev",
    "horizontalpodautoscalers": "hpa", "ingresses": "ing", "ipaddresses": "ip",
    "limitranges": "limits", "namespaces": "ns", "networkpolicies": "netpol", "nodes": "no",
    "persistentvolumeclaims": "pvc", "persistentvolumes": "pv", "poddisruptionbudgets": "pdb",
    "pods": "po", "priorityclasses": "pc", "replicasets": "rs", "replicationcontrollers": "rc",
    "resourcequotas": "quota", "serviceaccounts": "sa", "services": "svc",
    "statefulsets": "sts", "storageclasses": "sc", "volumeattributesclasses": "vac",
}  # fmt: skip
IN_ALL = [
    "pods",
    "replicationcontrollers",
    "services",
    "daemonsets",
    "deployments",
    "replicasets",
    "statefulsets",
    "horizontalpodautoscalers",
    "cronjobs",
    "jobs",
]
EXTENSIONS = ("admissionregistration.k8s.io", "apiextensions.k8s.io", "apiregistration.k8s.io")
# Kinds whose metadata.generation counts the changes of what is wanted.
GENERATION = [
    "pods",
    "replicationcontrollers",
    "deployments",
    "replicasets",
    "statefulsets",
    "daemonsets",
    "jobs",
    "cronjobs",
    "endpointslices",
    "priorityclasses",
    "poddisruptionbudgets",
    "ingressclasses",
    "ingresses",
    "networkpolicies",
    "validatingwebhookconfigurations",
    "mutatingwebhookconfigurations",
    "validatingadmissionpolicies",
    "validatingadmissionpolicybindings",
    "mutatingadmissionpolicies",
    "mutatingadmissionpolicybindings",
    "customresourcedefinitions",
    "resourceslices",
    "deviceclasses",
    "devicetaintrules",
    "podgroups",
    "workloads",
    "flowschemas",
    "prioritylevelconfigurations",
    "resourcepoolstatusrequests",
]
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
    "": [f"involvedObject.{name}" for name in INVOLVED]
    + ["reason", "reportingComponent", "source", "type"],
    "events.k8s.io": [f"regarding.{name}" for name in INVOLVED]
    + ["reason", "reportingController", "type"],
}
# Subresources whose kind is another one's, and those that no package lists.
OTHER_KIND = {
    "scale": ["Scale", "autoscaling", "v1"],
    "eviction": ["Eviction", "policy", "v1"],
    "token": ["TokenRequest", "authentication.k8s.io", "v1"],
    "binding": ["Binding", "", "v1"],
}
PROXIES = {
    "nodes": "NodeProxyOptions",
    "pods": "PodProxyOptions",
    "services": "ServiceProxyOptions",
}
STREAMS = {
    "attach": "PodAttachOptions",
    "exec": "PodExecOptions",
    "portforward": "PodPortForwardOptions",
}
# A store of its own: kinds that are one collection under two groups, or under another version.
HUBS = {"events.k8s.io/events": "events"}
# scheduling.k8s.io/v1alpha2 belongs to 1.36 alone; the package of 1.37 no longer has it.
BY_HAND = [
    ("scheduling.k8s.io", "v1alpha2", "PodGroup", "podgroups", ["status"]),
    ("scheduling.k8s.io", "v1alpha2", "Workload", "workloads", []),
]


def main() -> None:
    """Write the file."""
    found: dict[tuple[str, str, str], dict[str, Any]] = {}
    subresources: list[tuple[tuple[str, str, str], str, list[str], list[str]]] = []
    for path in sorted(_sources()):
        for info in _infos(path.read_text()):
            key = (*info["at"][:2], info["plural"])
            if info["action"]:
                subresources.append((key, info["action"], info["kind"], info["verbs"]))
            else:
                found[key] = {
                    "kind": info["kind"][0],
                    "namespaced": info["namespaced"],
                    "verbs": info["verbs"],
                    "subresources": {},
                }
    for group, version, kind, plural, subs in BY_HAND:
        found[group, version, plural] = {
            "kind": kind,
            "namespaced": True,
            "verbs": ALL,
            "subresources": {name: {"kind": kind, "verbs": STATUS} for name in subs},
        }
    for key, action, _, verbs in subresources:
        parent = found[key]
        entry: dict[str, Any] = {"kind": parent["kind"], "verbs": verbs}
        if action in OTHER_KIND:
            kind, group, version = OTHER_KIND[action]
            entry["kind"] = kind
            if group:
                entry |= {"group": group, "version": version}
        parent["subresources"][action] = entry
    TARGET.parent.mkdir(exist_ok=True)
    lines = ",\n".join(json.dumps(entry) for entry in _entries(found))
    release = importlib.metadata.version("lightkube-models")
    TARGET.write_text(
        f'{{"source": "tools/generate_kinds.py from lightkube-models {release}",\n'
        f'"kinds": [\n{lines}\n]}}\n'
    )


def _entries(found: dict[tuple[str, str, str], dict[str, Any]]) -> list[dict[str, Any]]:
    entries = []
    for group, versions in GROUPS.items():
        for version in versions:
            here = sorted(key for key in found if key[:2] == (group, version))
            entries += [_entry(key, found[key]) for key in here]
    return entries


def _entry(key: tuple[str, str, str], facts: dict[str, Any]) -> dict[str, Any]:
    group, version, plural = key
    kind = facts["kind"]
    verbs = facts["verbs"]
    if plural == "componentstatuses":
        verbs = ["get", "list"]
    entry: dict[str, Any] = {"group": group, "version": version, "plural": plural, "kind": kind}
    if plural == "endpoints":
        entry["singular"] = "endpoints"
    entry["namespaced"] = facts["namespaced"]
    if verbs != ALL:
        entry["verbs"] = verbs
    if plural in SHORT:
        entry["shortNames"] = SHORT[plural].split()
    if plural in IN_ALL:
        entry["categories"] = ["all"]
    elif group in EXTENSIONS:
        entry["categories"] = ["api-extensions"]
    if plural in GENERATION:
        entry["generation"] = True
    fields = EVENT_FIELDS[group] if plural == "events" else FIELDS.get(plural)
    if fields:
        entry["fields"] = fields
    if (group, version) in ON_REQUEST or key in LATER:
        entry["onRequest"] = True
    if hub := HUBS.get(f"{group}/{plural}"):
        entry["hub"] = hub
    subs = dict(facts["subresources"])
    if plural in PROXIES and not group:
        verbs = ["create", "delete", "get", "patch", "update"]
        subs["proxy"] = {"kind": PROXIES[plural], "verbs": verbs}
    if plural == "pods":
        subs |= {n: {"kind": k, "verbs": ["create", "get"]} for n, k in STREAMS.items()}
        subs["log"] = {"kind": "Pod", "verbs": ["get"]}
    if plural in WITHOUT_SUBRESOURCES:
        subs = {}
    if subs:
        entry["subresources"] = {name: subs[name] for name in sorted(subs)}
    return entry


def _sources() -> list[Path]:
    files = importlib.metadata.files("lightkube-models") or []
    return [
        Path(str(file.locate()))
        for file in files
        if str(file).startswith("lightkube/resources/") and file.name != "__init__.py"
    ]


def _infos(source: str) -> list[dict[str, Any]]:
    """Return one mapping per class with an ApiInfo."""
    infos = []
    for node in ast.parse(source).body:
        if not isinstance(node, ast.ClassDef):
            continue
        base = ast.unparse(node.bases[0])
        for statement in node.body:
            if not isinstance(statement, ast.Assign) or ast.unparse(statement.targets[0]) != (
                "_api_info"
            ):
                continue
            if not isinstance(statement.value, ast.Call):
                raise TypeError(f"{node.name}: _api_info is no call")
            words = {word.arg: word.value for word in statement.value.keywords}
            own = [ast.literal_eval(arg) for arg in words["resource"].args]  # type: ignore[attr-defined]
            at = own
            if "parent" in words:
                at = [ast.literal_eval(arg) for arg in words["parent"].args]  # type: ignore[attr-defined]
            verbs = {VERBS.get(verb, verb) for verb in ast.literal_eval(words["verbs"])}
            infos.append(
                {
                    "at": at,
                    "kind": [own[2], own[0], own[1]],
                    "plural": ast.literal_eval(words["plural"]),
                    "action": ast.literal_eval(words["action"]) if "action" in words else "",
                    "namespaced": "Namespaced" in base,
                    "verbs": sorted(verbs),
                }
            )
    return infos


if __name__ == "__main__":
    from usage import print_if_asked

    print_if_asked(__doc__)
    main()
