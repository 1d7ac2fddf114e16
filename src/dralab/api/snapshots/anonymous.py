"""Consistent pseudonyms for everything in a snapshot that says whose it is.

Renamed: nodes, namespaces, pods, containers, claims, templates, pools, slices and other objects,
uids, labels, taints and gates of one's own, attributes that identify a device (uuid, serial number,
MAC and IP address). Kept, because answers depend on them: drivers, classes, names of devices and
requests, all other attributes, expressions, amounts and times. New names sort as the old ones did,
so that the same pod gets the same device.
"""

import re
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final

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
IDENTIFYING: Final = re.compile(
    r"uuid|guid|serial|mac|host|address|(^|[a-z])ip$|^ip", re.IGNORECASE
)
IDENTIFIER: Final = re.compile(
    r"(?:[A-Za-z]+-)?[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}"  # UUID
    r"|(?:[0-9a-fA-F]{2}:){5,7}[0-9a-fA-F]{2}"  # MAC
    r"|\d{1,3}(?:\.\d{1,3}){3}(?:/\d+)?"  # IPv4
)
STORAGE_SUFFIX: Final = ".storageclass.storage.k8s.io/"  # in what a ResourceQuota counts
LITERAL: Final = re.compile(r"""("|')((?:(?!\1)[^\\\n])*)\1""")


def anonymous(objects: Sequence[JsonDict]) -> list[JsonDict]:
    """Return the objects of a snapshot under other names.

    >>> node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "db-7.corp.example"}}
    >>> anonymous([node])[0]["metadata"]
    {'name': 'node-1'}
    """
    # A look at everything, to know all names; then their numbers follow the order of the names.
    survey = _Renaming()
    for item in objects:
        survey.object(item)
    renaming = _Renaming(survey.seen)
    return [renaming.object(item) for item in objects]


class _Renaming:
    """Assigns new names; the first pass only collects the old ones."""

    def __init__(self, seen: dict[str, set[str]] | None = None) -> None:
        self.seen: dict[str, set[str]] = {}
        self._new: dict[str, dict[str, str]] = {}
        for what, names in (seen or {}).items():
            width = len(str(len(names)))
            self._new[what] = {
                name: _numbered(what, number, width)
                for number, name in enumerate(sorted(names), start=1)
            }
        self._values: dict[str, str] = {}
        for what in ("identifier", "pool", "node"):
            self._values |= self._new.get(what, {})
        self._devices: dict[int, tuple[Any, Any]] = {}
        self._rules: dict[str, Callable[[Any], Any]] = {
            "attributes": self._attributes,
            "claimName": lambda given: self._name("volume-claim", given),
            "claimRef": lambda given: {
                key: self._rules[key](value) if key != "name" else self._name("volume-claim", value)
                for key, value in given.items()
            },
            "devices": self._of_slice,
            "expression": self._expression,
            "hard": lambda given: {self._quota_key(key): value for key, value in given.items()},
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
            "namespace": lambda given: self._public("namespace", given),
            "namespaces": lambda given: [self._public("namespace", name) for name in given],
            "nodeName": lambda given: self._name("node", given),
            "nominatedNodeName": lambda given: self._name("node", given),
            "ownerReferences": lambda given: [
                item | {"name": self._of_kind(item["kind"], item["name"]), "uid": self._uid(item)}
                for item in given
            ],
            "podGroupName": lambda given: self._name("group", given),
            "pool": self._pool,
            "priorityClassName": lambda given: self._public("priority", given),
            "requestMappings": lambda given: [
                item | {"containerName": self._name("container", item["containerName"])}
                for item in given
            ],
            "reservedFor": lambda given: [
                item | {"name": self._of_reserved(item), "uid": self._uid(item)} for item in given
            ],
            "resourceClaimName": lambda given: self._name("claim", given),
            "resourceClaimTemplateName": lambda given: self._name("template", given),
            "schedulerName": lambda given: self._public("scheduler", given),
            "schedulingGates": lambda given: [
                {"name": self._label(item["name"])} for item in given
            ],
            "scopeSelector": lambda given: {
                "matchExpressions": [self._scope(item) for item in given["matchExpressions"]]
            },
            "shareID": lambda given: self._name("uid", given),
            "storageClassName": lambda given: self._name("storage", given),
            "taint": self._taint,
            "taints": lambda given: [self._taint(item) for item in given],
            "tolerations": lambda given: [self._taint(item) for item in given],
            "topologyKey": self._label,
            "uid": lambda given: self._name("uid", given),
            "volumeName": lambda given: self._name("volume", given),
            "volumes": lambda given: [
                self._part(item) | {"name": self._name("part", item["name"])} for item in given
            ],
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
                    self._part(item) | {"name": self._name("container", item["name"])}
                    for item in below
                ]
            elif key == "nodeSelector" and "nodeSelectorTerms" not in below:
                found[key] = self._labels(below)
            elif key in self._rules:
                found[key] = self._rules[key](below)
            else:
                found[key] = self._part(below)
        return found

    def _name(self, what: str, name: str) -> str:
        if not name:
            return name
        self.seen.setdefault(what, set()).add(name)
        return self._new.get(what, {}).get(name, name)

    def _public(self, what: str, name: str) -> str:
        return name if PUBLIC_NAMES.fullmatch(name) else self._name(what, name)

    def _all(self, what: str, names: Iterable[str]) -> list[str]:
        return [self._name(what, name) for name in names]

    def _of_kind(self, kind: str, name: str) -> str:
        if kind == "DeviceClass":
            return name
        return self._public(KIND_NAMES.get(kind, "owner"), name)

    def _of_reserved(self, item: JsonDict) -> str:
        return self._name(
            {"pods": "pod", "podgroups": "group"}.get(item["resource"], "owner"), item["name"]
        )

    def _uid(self, item: JsonDict) -> str:
        return self._name("uid", item.get("uid") or "")

    def _pool(self, given: Any) -> Any:
        """Rename a pool: a text in results and rules, a mapping in slices."""
        if isinstance(given, dict):
            return given | {"name": self._name("pool", given["name"])}
        return self._name("pool", given)

    def _label(self, key: str) -> str:
        return key if PUBLIC_LABEL.fullmatch(key) else self._name("label", key)

    def _value(self, key: str, value: str) -> str:
        if key == "kubernetes.io/hostname":
            return self._name("node", value)
        if "__" in value:  # the zones of a volume
            return "__".join(self._value(key, each) for each in value.split("__"))
        return value if PUBLIC_VALUE.fullmatch(value) else self._name("value", value)

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
        return self._name("storage", name) + suffix + counted if suffix else key

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
            return self._name("identifier", text)
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
