"""Consistent pseudonyms for everything in a snapshot that says whose it is.

Renamed: nodes, namespaces, pods, containers, claims and their requests, templates, pools, slices
and other objects, uids, labels, taints, gates, finalizers, conditions and kinds of owners of one's
own, attributes that identify a device (uuid, serial number, MAC and IP address). Kept, because
answers depend on them: drivers, classes, extended resources, provisioners of storage, names of
devices, all other attributes, expressions, amounts and times. New names of `anonymous` sort as the
old ones did, so that the same pod gets the same device; those of `keyed` do not.
"""

import hmac
import re
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from typing import Any, Final

from dralab.api.snapshots.kept_fields import BOUND, CLASS, ENTRY
from dralab.values.json_types import JsonDict

KIND_NAMES: Final = {
    "DeviceTaintRule": "rule",
    "Node": "node",
    "PersistentVolume": "volume",
    "PersistentVolumeClaim": "volume-claim",
    "Pod": "pod",
    "PodDisruptionBudget": "budget",
    "PodGroup": "group",
    "PriorityClass": "priority",
    "ResourceClaim": "claim",
    "ResourceClaimTemplate": "template",
    "ResourceQuota": "quota",
    "ResourceSlice": "slice",
    "StorageClass": "storage",
}
PUBLIC_NAMES: Final = re.compile(r"default(-scheduler)?|kube-.*|system-.*")
PUBLIC_LABEL: Final = re.compile(r"([a-z0-9.-]+\.)?(kubernetes\.io|k8s\.io)/.*|nvidia\.com/.*")
PUBLIC_VALUE: Final = re.compile(r"|true|false|[0-9]+|linux|windows|amd64|arm64")
PUBLIC_GROUP: Final = re.compile(r"[a-z]*|[a-z0-9.-]+\.k8s\.io")
EVERY_IP: Final = re.compile(r"|::|0(\.0){3}")
PUBLIC_FINALIZERS: Final = frozenset({"foregroundDeletion", "orphan"})
PUBLIC_CONDITIONS: Final = frozenset(
    {
        "ContainersReady", "DiskPressure", "DisruptionTarget", "Initialized", "MemoryPressure",
        "NetworkUnavailable", "PIDPressure", "PodReadyToStartContainers", "PodScheduled", "Ready",
    }
)  # fmt: skip
NAMED_BY_ANNOTATION: Final = {CLASS: "storage", ENTRY: "entry"}
IDENTIFYING: Final = re.compile(
    r"uuid|guid|serial|mac|host|address|(^|[a-z])ip$|^ip", re.IGNORECASE
)
IDENTIFIER: Final = re.compile(
    r"(?:[A-Za-z]+-)?[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}"  # UUID
    r"|(?:[0-9a-fA-F]{2}:){5,7}[0-9a-fA-F]{2}"  # MAC
    r"|\d{1,3}(?:\.\d{1,3}){3}(?:/\d+)?"  # IPv4
)
STORAGE_SUFFIX: Final = ".storageclass.storage.k8s.io/"  # in what a ResourceQuota counts
NAMED_IN_TEXTS: Final = ("identifier", "pool", "node")  # where two are alike, the last one counts
MOST_REMEMBERED: Final = 200_000
LITERAL: Final = re.compile(r"""("|')((?:(?!\1)[^\\\n])*)\1""")


def anonymous(objects: Sequence[JsonDict]) -> list[JsonDict]:
    """Return the objects of a snapshot under other names.

    >>> node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "db-7.corp.example"}}
    >>> anonymous([node])[0]["metadata"]
    {'name': 'node-1'}
    """
    # A look at everything, to know all names; then their numbers follow the order of the names.
    seen: dict[str, set[str]] = {}

    def collect(what: str, name: str) -> str:
        seen.setdefault(what, set()).add(name)
        return name

    survey = _Renaming(collect)
    for item in objects:
        survey.object(item)
    numbers = {
        what: {name: _numbered(what, number, len(str(len(names))))
               for number, name in enumerate(sorted(names), start=1)}
        for what, names in seen.items()
    }  # fmt: skip
    renaming = _Renaming(lambda what, name: numbers[what][name])
    for what in NAMED_IN_TEXTS:
        for name in sorted(seen.get(what, ())):
            renaming.rename(what, name)
    return [renaming.object(item) for item in objects]


def keyed(key: bytes) -> Callable[[JsonDict], JsonDict]:
    """Return a function that renames one object after the other, the same each time by the key.

    Without the key nobody can try whether a name is the one behind a pseudonym. Unlike those of
    `anonymous`, new names do not sort as the old ones did.

    >>> rename = keyed(b"a key of this recording")
    >>> node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "db-7.corp.example"}}
    >>> rename(node)["metadata"]
    {'name': 'node-09ad78a703d33204'}
    """

    @lru_cache(MOST_REMEMBERED)
    def pseudonym(what: str, name: str) -> str:
        digest = hmac.digest(key, f"{what}/{name}".encode(), "sha256").hex()
        if what == "uid":
            return f"{digest[:8]}-{digest[8:12]}-4{digest[13:16]}-8{digest[17:20]}-{digest[20:32]}"
        return f"{what}-{digest[:16]}"

    return _Renaming(pseudonym).object


class _Renaming:
    """Gives objects the names that `new` returns for what each old one names."""

    def __init__(self, new: Callable[[str, str], str]) -> None:
        self._new = new
        # What stands for itself in texts, such as a node in an attribute of its devices.
        self._values: dict[str, str] = {}
        self._devices: dict[int, tuple[Any, Any]] = {}
        self._rules: dict[str, Callable[[Any], Any]] = {
            "annotations": lambda given: {
                key: value
                if key == BOUND
                else self.rename(NAMED_BY_ANNOTATION.get(key, "value"), value)
                for key, value in given.items()
            },
            "attributes": self._attributes,
            "bindingConditions": lambda given: self._all("condition", given),
            "bindingFailureConditions": lambda given: self._all("condition", given),
            "claimName": lambda given: self.rename("volume-claim", given),
            "claimRef": lambda given: {
                key: self._rules[key](value)
                if key != "name"
                else self.rename("volume-claim", value)
                for key, value in given.items()
            },
            "claims": lambda given: [self._entry(item) for item in given],
            "conditions": lambda given: [self._condition(item) for item in given],
            "devices": self._of_slice,
            "expression": self._expression,
            "finalizers": lambda given: [
                item if item in PUBLIC_FINALIZERS else self._label(item) for item in given
            ],
            "firstAvailable": self._requests,
            "hard": lambda given: {self._quota_key(key): value for key, value in given.items()},
            "hostIP": lambda given: given if EVERY_IP.fullmatch(given) else "127.0.0.1",
            # Who built it is nobody's affair.
            "kubeletVersion": lambda given: re.split(r"[-+]", given)[0],
            "labels": self._labels,
            "matchExpressions": self._expressions,
            "matchFields": lambda given: [
                item | {"values": self._all("node", item.get("values") or ())} for item in given
            ],
            "matchLabelExpressions": self._expressions,
            "matchLabelKeys": lambda given: [self._label(key) for key in given],
            "matchLabels": self._labels,
            "mismatchLabelKeys": lambda given: [self._label(key) for key in given],
            "namespace": lambda given: self._public("namespace", given),
            "namespaces": lambda given: [self._public("namespace", name) for name in given],
            "nodeName": lambda given: self.rename("node", given),
            "nominatedNodeName": lambda given: self.rename("node", given),
            "ownerReferences": lambda given: [self._owner(item) for item in given],
            "podGroupTemplateName": lambda given: self.rename("template", given),
            "podGroupName": lambda given: self.rename("group", given),
            "pool": self._pool,
            "priorityClassName": lambda given: self._public("priority", given),
            "request": self._request,
            "requestMappings": lambda given: [
                item
                | {"containerName": self.rename("container", item["containerName"])}
                | {"requestName": self._request(item["requestName"])}
                for item in given
            ],
            "requests": self._requests,
            "reservedFor": lambda given: [
                item | {"name": self._of_reserved(item), "uid": self._uid(item)} for item in given
            ],
            "resourceClaimName": lambda given: self.rename("claim", given),
            "resourceClaimStatuses": lambda given: [self._entry(item) for item in given],
            "resourceClaims": lambda given: [self._entry(item) for item in given],
            "resourceClaimTemplateName": lambda given: self.rename("template", given),
            "schedulerName": lambda given: self._public("scheduler", given),
            "schedulingGates": lambda given: [
                {"name": self._label(item["name"])} for item in given
            ],
            "scopeSelector": lambda given: {
                "matchExpressions": [self._scope(item) for item in given["matchExpressions"]]
            },
            "shareID": lambda given: self.rename("uid", given),
            "storageClassName": lambda given: self.rename("storage", given),
            "taint": self._taint,
            "taints": lambda given: [self._taint(item) for item in given],
            "tolerations": lambda given: [self._taint(item) for item in given],
            "topology": lambda given: [item | {"key": self._label(item["key"])} for item in given],
            "topologyKey": self._label,
            "uid": lambda given: self.rename("uid", given),
            "volumeName": lambda given: self.rename("volume", given),
            "volumes": lambda given: [
                self._part(item) | {"name": self.rename("part", item["name"])} for item in given
            ],
            "workloadName": lambda given: self.rename("workload", given),
        }

    def object(self, item: JsonDict) -> JsonDict:
        """Return an object under its new names."""
        found: JsonDict = self._part(_with_named_volumes(item))
        name = self._of_kind(item["kind"], item["metadata"]["name"])
        return found | {"metadata": found["metadata"] | {"name": name}}

    def _part(self, value: Any) -> Any:
        if isinstance(value, list):
            return [self._part(item) for item in value]
        if not isinstance(value, dict):
            return value
        found: JsonDict = {}
        for key, below in value.items():
            if key in {"containers", "initContainers"}:
                found[key] = [
                    self._part(item) | {"name": self.rename("container", item["name"])}
                    for item in below
                ]
            elif key == "nodeSelector" and "nodeSelectorTerms" not in below:
                found[key] = self._labels(below)
            elif key in self._rules:
                found[key] = self._rules[key](below)
            else:
                found[key] = self._part(below)
        return found

    def rename(self, what: str, name: str) -> str:
        """Return the new name of what has this one."""
        if not name:
            return name
        new = self._new(what, name)
        if what in NAMED_IN_TEXTS:
            self._values[name] = new
        return new

    def _public(self, what: str, name: str) -> str:
        return name if PUBLIC_NAMES.fullmatch(name) else self.rename(what, name)

    def _all(self, what: str, names: Iterable[str]) -> list[str]:
        return [self.rename(what, name) for name in names]

    def _of_kind(self, kind: str, name: str) -> str:
        if kind == "DeviceClass":
            return name
        return self._public(KIND_NAMES.get(kind, "owner"), name)

    def _of_reserved(self, item: JsonDict) -> str:
        return self.rename(
            {"pods": "pod", "podgroups": "group"}.get(item["resource"], "owner"), item["name"]
        )

    def _uid(self, item: JsonDict) -> str:
        return self.rename("uid", item.get("uid") or "")

    def _owner(self, item: JsonDict) -> JsonDict:
        """Rename an owner; a kind of one's own says whose it is, too."""
        new = {"name": self._of_kind(item["kind"], item["name"]), "uid": self._uid(item)}
        if not PUBLIC_GROUP.fullmatch(item["apiVersion"].rpartition("/")[0]):
            new |= {"apiVersion": "owner.example.com/v1", "kind": "Owner"}
        return item | new

    def _condition(self, item: JsonDict) -> JsonDict:
        if item["type"] in PUBLIC_CONDITIONS:
            return item
        renamed = {**item, "type": self.rename("condition", item["type"])}
        return renamed | ({"reason": "Renamed"} if "reason" in item else {})

    def _entry(self, item: JsonDict) -> JsonDict:
        """Rename what a pod calls one of its claims."""
        found: JsonDict = self._part(item)
        return found | {"name": self.rename("entry", item["name"])}

    def _request(self, name: str) -> str:
        """Rename a request of a claim, and the part of it that was chosen."""
        return "/".join(self._all("request", name.split("/")))

    def _requests(self, given: Any) -> Any:
        """Rename requests: those of a claim, or of a constraint; amounts have none."""
        if not isinstance(given, list):
            return self._part(given)
        return [
            self._request(item)
            if isinstance(item, str)
            else self._part(item) | {"name": self.rename("request", item["name"])}
            for item in given
        ]

    def _pool(self, given: Any) -> Any:
        """Rename a pool: a text in results and rules, a mapping in slices."""
        if isinstance(given, dict):
            return given | {"name": self.rename("pool", given["name"])}
        return self.rename("pool", given)

    def _label(self, key: str) -> str:
        return key if PUBLIC_LABEL.fullmatch(key) else self.rename("label", key)

    def _value(self, key: str, value: str) -> str:
        if key == "kubernetes.io/hostname":
            return self.rename("node", value)
        if "__" in value:  # the zones of a volume
            return "__".join(self._value(key, each) for each in value.split("__"))
        return value if PUBLIC_VALUE.fullmatch(value) else self.rename("value", value)

    def _labels(self, given: JsonDict) -> JsonDict:
        return {self._label(key): self._value(key, value) for key, value in given.items()}

    def _expressions(self, given: Sequence[JsonDict]) -> list[JsonDict]:
        return [
            item
            | {"key": self._label(item["key"])}
            | (
                {"values": [self._value(item["key"], value) for value in item["values"]]}
                if item.get("values")
                else {}
            )
            for item in given
        ]

    def _quota_key(self, key: str) -> str:
        """A quota may count objects of one storage class."""
        name, suffix, counted = key.partition(STORAGE_SUFFIX)
        return self.rename("storage", name) + suffix + counted if suffix else key

    def _scope(self, given: JsonDict) -> JsonDict:
        what = "priority" if given["scopeName"] == "PriorityClass" else "value"
        named = [self._public(what, name) for name in given.get("values") or ()]
        return given | ({"values": named} if named else {})

    def _taint(self, given: JsonDict) -> JsonDict:
        found = dict(given)
        if given.get("key"):
            found["key"] = self._label(given["key"])
        if given.get("value"):
            found["value"] = self._value(given.get("key") or "", given["value"])
        return found

    def _of_slice(self, given: Any) -> Any:
        if not isinstance(given, list):
            return self._part(given)  # of a claim
        return [self._device(item) for item in given]

    def _device(self, given: JsonDict) -> JsonDict:
        """Slices share their devices, also under new names."""
        known = self._devices.get(id(given))
        if known is None:
            if len(self._devices) > MOST_REMEMBERED:
                self._devices.clear()
            known = self._devices[id(given)] = (given, self._part(given))
        found: JsonDict = known[1]
        return found

    def _attributes(self, given: JsonDict) -> JsonDict:
        return {key: self._attribute(key.rpartition("/")[2], value) for key, value in given.items()}

    def _attribute(self, name: str, given: JsonDict) -> JsonDict:
        found: JsonDict = {}
        for form, value in given.items():
            texts = value if isinstance(value, list) else [value]
            if form in {"string", "strings"}:
                texts = [self._identifier(name, text) for text in texts]
            found[form] = texts if isinstance(value, list) else texts[0]
        return found

    def _identifier(self, name: str, text: str) -> str:
        if IDENTIFYING.search(name) or IDENTIFIER.fullmatch(text):
            return self.rename("identifier", text)
        return self._values.get(text, text)  # some drivers publish the name of their node

    def _expression(self, text: str) -> str:
        """Rename texts in an expression that name what was renamed."""
        return LITERAL.sub(
            lambda found: found[1] + self._values.get(found[2], found[2]) + found[1], text
        )


def _with_named_volumes(item: JsonDict) -> JsonDict:
    """Return an object whose ephemeral volumes name their claims: those get names of their own."""
    volumes = (item.get("spec") or {}).get("volumes") or ()
    if not any("ephemeral" in each for each in volumes):
        return item
    named = [
        {
            "name": each["name"],
            "persistentVolumeClaim": {"claimName": f"{item['metadata']['name']}-{each['name']}"},
        }
        if "ephemeral" in each
        else each
        for each in volumes
    ]
    return item | {"spec": item["spec"] | {"volumes": named}}


def _numbered(what: str, number: int, width: int) -> str:
    if what == "uid":
        return f"00000000-0000-4000-8000-{number:012d}"
    return f"{what}-{number:0{width}d}"
