"""CDI specs: reading, checking and writing. Source: Container Device Interface 1.1.0.

>>> spec = CdiSpec(
...     kind="example.com/gpu", devices=(CdiDevice("gpu-0", ContainerEdits(env=("A=1",))),)
... )
>>> read(write(spec)) == spec
True
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import field
from typing import Any, Final

import yaml

from dralab.api.yaml_documents import YamlError, documents
from dralab.values.json_types import JsonObject
from dralab.values.records import dataclass

# libyaml writes the same text about five times as fast.
DUMPER: Final[Any] = getattr(yaml, "CSafeDumper", yaml.SafeDumper)
VERSIONS: Final = (
    "0.1.0", "0.2.0", "0.3.0", "0.4.0", "0.5.0", "0.6.0", "0.7.0", "0.8.0", "1.0.0", "1.1.0",
)  # fmt: skip
NAME: Final = re.compile(r"[A-Za-z]([A-Za-z0-9_.-]*[A-Za-z0-9])?")
DEVICE_NAME: Final = re.compile(r"[A-Za-z0-9]([A-Za-z0-9_.:-]*[A-Za-z0-9])?")
HOOKS: Final = frozenset(
    {"prestart", "createRuntime", "createContainer", "startContainer", "poststart", "poststop"}
)
# What may stand in each mapping of a file; anything else makes the file bad.
FIELDS: Final[Mapping[str, frozenset[str]]] = {
    "spec": frozenset({"cdiVersion", "kind", "annotations", "devices", "containerEdits"}),
    "device": frozenset({"name", "annotations", "containerEdits"}),
    "edits": frozenset(
        {"env", "deviceNodes", "mounts", "hooks", "additionalGids", "intelRdt", "netDevices"}
    ),
    "node": frozenset(
        {"path", "hostPath", "type", "major", "minor", "fileMode", "permissions", "uid", "gid"}
    ),
    "mount": frozenset({"hostPath", "containerPath", "type", "options"}),
    "hook": frozenset({"hookName", "path", "args", "env", "timeout"}),
    "rdt": frozenset(
        {
            "closID", "l3CacheSchema", "memBwSchema", "enableCMT", "enableMBM", "schemata",
            "enableMonitoring",
        }
    ),
    "net": frozenset({"hostInterfaceName", "name"}),
}  # fmt: skip


# Of which type their values are; the others are texts, or are read one by one.
NUMBERS: Final = frozenset({"major", "minor", "fileMode", "uid", "gid", "timeout"})
SWITCHES: Final = frozenset({"enableCMT", "enableMBM", "enableMonitoring"})
TEXTS: Final = frozenset({"env", "options", "args", "schemata"})
NESTED: Final = frozenset(
    {"devices", "containerEdits", "deviceNodes", "mounts", "hooks", "intelRdt", "netDevices"}
)


NAMES: Final[Mapping[str, str]] = {
    "spec": "the spec", "device": "a device", "edits": "the edits", "node": "a device node",
    "mount": "a mount", "hook": "a hook", "rdt": "intelRdt", "net": "a network device",
}  # fmt: skip


class CdiError(ValueError):
    """A spec or an id that the specification forbids."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ContainerEdits:
    """What is changed in a container; nodes, mounts and hooks are mappings as in the file."""

    env: tuple[str, ...] = ()
    device_nodes: tuple[JsonObject, ...] = ()
    mounts: tuple[JsonObject, ...] = ()
    hooks: tuple[JsonObject, ...] = ()
    additional_gids: tuple[int, ...] = ()
    intel_rdt: JsonObject | None = None
    net_devices: tuple[JsonObject, ...] = ()

    def __bool__(self) -> bool:
        return self != NO_EDITS

    def wire(self) -> dict[str, Any]:
        """Return the edits as they stand in a file."""
        found = {
            "env": list(self.env),
            "deviceNodes": [dict(item) for item in self.device_nodes],
            "mounts": [dict(item) for item in self.mounts],
            "hooks": [dict(item) for item in self.hooks],
            "additionalGids": list(self.additional_gids),
            "intelRdt": dict(self.intel_rdt) if self.intel_rdt is not None else None,
            "netDevices": [dict(item) for item in self.net_devices],
        }
        return {key: value for key, value in found.items() if value}


NO_EDITS: Final = ContainerEdits()


@dataclass(frozen=True, slots=True)
class CdiDevice:
    """One device of a spec."""

    name: str
    edits: ContainerEdits
    annotations: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class CdiSpec:
    """One file: devices of one kind, `vendor/class`. The version defaults to the least possible."""

    kind: str
    devices: tuple[CdiDevice, ...]
    edits: ContainerEdits = NO_EDITS
    annotations: Mapping[str, str] = field(default_factory=dict)

    @property
    def version(self) -> str:
        """The least version that has all that the spec uses."""
        return minimum_version(self)


def qualified(kind: str, name: str) -> str:
    """Return the id of a device: `vendor/class=name`."""
    return f"{kind}={name}"


def file_name(kind: str, id: str) -> str:
    """Return the name of the file that a vendor writes for one purpose."""
    return f"{kind.replace('/', '-')}_{id.replace('/', '_')}.yaml"


def write(spec: CdiSpec) -> str:
    """Return the text of a file. CdiError."""
    check(spec)
    document: dict[str, Any] = {"cdiVersion": spec.version, "kind": spec.kind}
    if spec.annotations:
        document["annotations"] = dict(spec.annotations)
    document["devices"] = [
        {"name": device.name}
        | ({"annotations": dict(device.annotations)} if device.annotations else {})
        | {"containerEdits": device.edits.wire()}
        for device in spec.devices
    ]
    if spec.edits:
        document["containerEdits"] = spec.edits.wire()
    return "---\n" + yaml.dump(document, Dumper=DUMPER, sort_keys=False, width=1000)


def read(text: str) -> CdiSpec:
    """Return the spec of a file's text, YAML or JSON; CdiError says why it is rejected."""
    try:
        found = list(documents(text))
    except YamlError as error:
        raise CdiError(f"invalid spec, {error}") from error
    if len(found) > 1:
        raise CdiError("invalid spec, several documents")
    for key, _ in found[0].repeated if found else ():
        raise CdiError(f'invalid spec, key "{key}" appears twice')
    document = found[0].value if found else None
    if not isinstance(document, dict):
        raise CdiError("invalid spec, it is not a mapping")
    _known(document, "spec")
    version = document.get("cdiVersion")
    if version not in VERSIONS:
        raise CdiError(f'invalid spec, unknown version "{version}"')
    devices = []
    for item in _list(document, "devices"):
        _known(item, "device")
        edits = _edits(item.get("containerEdits") or {})
        devices.append(CdiDevice(str(item.get("name", "")), edits, item.get("annotations") or {}))
    spec = CdiSpec(
        kind=str(document.get("kind", "")),
        devices=tuple(devices),
        edits=_edits(document.get("containerEdits") or {}),
        annotations=document.get("annotations") or {},
    )
    check(spec)
    if VERSIONS.index(version) < VERSIONS.index(spec.version):
        raise CdiError(f"the spec version must be at least v{spec.version}, not v{version}")
    return spec


def check(spec: CdiSpec) -> None:
    """Raise CdiError if a spec is not allowed."""
    vendor, slash, class_ = spec.kind.partition("/")
    if not slash or not NAME.fullmatch(vendor) or not NAME.fullmatch(class_):
        raise CdiError(f'invalid kind "{spec.kind}": it must be vendor/class')
    if not spec.devices:
        raise CdiError("invalid spec, no devices")
    seen = set()
    for device in spec.devices:
        if not DEVICE_NAME.fullmatch(device.name):
            raise CdiError(f'invalid device name "{device.name}"')
        if device.name in seen:
            raise CdiError(f'invalid spec, multiple device "{device.name}"')
        seen.add(device.name)
        if not device.edits:
            raise CdiError("invalid device, empty device edits")
        _check_edits(device.edits)
    _check_edits(spec.edits)


def minimum_version(spec: CdiSpec) -> str:
    """Return the least version for a spec. Source: the table of features of CDI 1.1.0."""
    every = [spec.edits, *(device.edits for device in spec.devices)]
    rdts = [edits.intel_rdt for edits in every if edits.intel_rdt is not None]
    if any(edits.net_devices for edits in every) or any(
        "schemata" in rdt or "enableMonitoring" in rdt for rdt in rdts
    ):
        return "1.1.0"
    if rdts or any(edits.additional_gids for edits in every):
        return "0.7.0"
    if (
        spec.annotations
        or any(device.annotations for device in spec.devices)
        or "." in spec.kind.partition("/")[2]
    ):
        return "0.6.0"
    if any(node.get("hostPath") for edits in every for node in edits.device_nodes) or any(
        device.name[:1].isdigit() for device in spec.devices
    ):
        return "0.5.0"
    if any(mount.get("type") for edits in every for mount in edits.mounts):
        return "0.4.0"
    return "0.3.0"


def _check_edits(edits: ContainerEdits) -> None:
    for entry in edits.env:
        if "=" not in entry or entry.startswith("="):
            raise CdiError(f'invalid environment variable "{entry}"')
    for node in edits.device_nodes:
        if not node.get("path"):
            raise CdiError("invalid (empty) device path")
        permissions = node.get("permissions", "")
        if permissions != "none" and set(permissions) - set("rwm"):
            raise CdiError(f'device "{node["path"]}": invalid permissions "{permissions}"')
    for mount in edits.mounts:
        if not mount.get("hostPath") or not mount.get("containerPath"):
            raise CdiError("invalid mount, empty host or container path")
    for hook in edits.hooks:
        if hook.get("hookName") not in HOOKS:
            raise CdiError(f'invalid hook name "{hook.get("hookName")}"')
        if not hook.get("path"):
            raise CdiError(f'invalid hook "{hook["hookName"]}" with empty path')
    for device in edits.net_devices:
        if not device.get("hostInterfaceName") or not device.get("name"):
            raise CdiError("invalid network device, empty hostInterfaceName or name")


def _edits(document: JsonObject) -> ContainerEdits:
    _known(document, "edits")
    for key, of in (("deviceNodes", "node"), ("mounts", "mount"), ("hooks", "hook")):
        for item in _list(document, key):
            _known(item, of)
    for item in _list(document, "netDevices"):
        _known(item, "net")
    rdt = document.get("intelRdt")
    if rdt is not None:
        _known(rdt, "rdt")
    return ContainerEdits(
        env=tuple(str(item) for item in _list(document, "env")),
        device_nodes=tuple(_list(document, "deviceNodes")),
        mounts=tuple(_list(document, "mounts")),
        hooks=tuple(_list(document, "hooks")),
        additional_gids=tuple(gid for gid in _list(document, "additionalGids") if gid),
        intel_rdt=rdt,
        net_devices=tuple(_list(document, "netDevices")),
    )


def _known(document: Any, of: str) -> None:
    if not isinstance(document, dict):
        raise CdiError(f"invalid spec, {NAMES[of]} is not a mapping")
    for key in document:
        if key not in FIELDS[of]:
            raise CdiError(f'invalid spec, unknown field "{key}"')
        if document[key] is not None and not _fits(key, document[key]):
            raise CdiError(f'invalid spec, "{key}" of {NAMES[of]} cannot be {document[key]!r:.40}')


def _fits(key: str, value: Any) -> bool:
    """Whether a value is of the type of its field."""
    match key:
        case "annotations":
            return isinstance(value, dict) and _are(str, [*value, *value.values()])
        case "additionalGids":
            return isinstance(value, list) and _are(int, value)
        case key if key in TEXTS:
            return isinstance(value, list) and _are(str, value)
        case key if key in NUMBERS:
            return _are(int, [value])
        case key if key in SWITCHES:
            return isinstance(value, bool)
        case _:
            return key in NESTED or isinstance(value, str)


def _are(kind: type, values: Sequence[Any]) -> bool:
    return all(type(each) is kind for each in values)


def _list(document: JsonObject, key: str) -> Sequence[Any]:
    found = document.get(key)
    if found is None:
        return ()
    if not isinstance(found, list):
        raise CdiError(f'invalid spec, "{key}" is not a list')
    return found
