"""Where a volume comes from: what each of the sources must be, in pods and in PersistentVolumes.

Source: k8s.io/kubernetes `pkg/apis/core/validation/validation.go`. Sources that only pods have
(config maps, secrets, projections, ephemeral claims) are left to `pod_rules.volumes`, how many
sources there may be to whoever holds them.
"""

import re
from collections.abc import Callable, Mapping
from typing import Final

from dralab.api import fields
from dralab.api.core.addresses import csi_driver_errors, each
from dralab.api.fields import FieldError
from dralab.values import names
from dralab.values.json_types import JsonObject

Check = Callable[[JsonObject, str], list[FieldError]]

HOST_PATH_TYPES: Final = (
    "", "BlockDevice", "CharDevice", "Directory", "DirectoryOrCreate", "File", "FileOrCreate",
    "Socket",
)  # fmt: skip
CACHING: Final = ("None", "ReadOnly", "ReadWrite")
DISK_KINDS: Final = ("Dedicated", "Managed", "Shared")
MANAGED_DISK: Final = (
    "/subscriptions/{sub-id}/resourcegroups/{group-name}/providers/microsoft.compute/disks/"
    "{disk-id}"
)
BLOB_DISK: Final = "https://{account-name}.blob.core.windows.net/{container-name}/{disk-name}.vhd"
# The three forms of an iSCSI name, by their first three letters (RFC 3720 3.2.6, RFC 3980).
ISCSI_NAMES: Final = {
    "iqn": re.compile(r"iqn\.\d{4}-\d{2}\.[A-Za-z0-9.-]+:[^,;*&$|\s]+", re.ASCII),
    "eui": re.compile(r"eui.[A-Za-z0-9]{16}", re.ASCII),
    "naa": re.compile(r"naa.[A-Za-z0-9]{32}", re.ASCII),
}
PARTITION: Final = "must be between 1 and 255, inclusive"  # though 0 is taken
UNIT: Final = "must be between 0 and 255, inclusive"
RESERVED: Final = (".kubernetes.io", ".k8s.io")
HOST_AND_PORT: Final = "must be a host:port pair or multiple pairs separated by commas"


def step_back_errors(text: str, path: str) -> list[FieldError]:
    """Return whether a path leads upwards."""
    if ".." in text.split("/"):
        return [fields.invalid_value(path, text, "must not contain '..'")]
    return []


def descending_errors(text: str, path: str) -> list[FieldError]:
    """Return whether a path is not one below a folder."""
    errors = step_back_errors(text, path)
    if text.startswith("/"):
        errors.insert(0, fields.invalid_value(path, text, "must be a relative path"))
    return errors


def missing(source: JsonObject, path: str, *parts: str) -> list[FieldError]:
    """Return an error for each of these fields that is absent or empty."""
    return [fields.required(f"{path}.{part}") for part in parts if not source.get(part)]


def _needs(*parts: str) -> Check:
    """Return the check of a source that only has to have these fields."""

    def check(source: JsonObject, path: str) -> list[FieldError]:
        return missing(source, path, *parts)

    return check


def _in_range(source: JsonObject, part: str, path: str, why: str) -> list[FieldError]:
    number = source.get(part) or 0
    return [] if 0 <= number <= 255 else [fields.invalid_value(f"{path}.{part}", number, why)]


def host_path_errors(source: JsonObject, path: str) -> list[FieldError]:
    """Return what is wrong with a folder or file of the node."""
    given, kind = source.get("path") or "", source.get("type") or ""
    if not given:
        return [fields.required(f"{path}.path")]
    errors = step_back_errors(given, f"{path}.path")
    if kind not in HOST_PATH_TYPES:
        errors.append(fields.not_supported(f"{path}.type", kind, HOST_PATH_TYPES))
    return errors


def _git(source: JsonObject, path: str) -> list[FieldError]:
    errors = missing(source, path, "repository")
    return errors + descending_errors(source.get("directory") or "", f"{path}.directory")


def _disk(part: str) -> Check:
    def check(source: JsonObject, path: str) -> list[FieldError]:
        return missing(source, path, part) + _in_range(source, "partition", path, PARTITION)

    return check


def _nfs(source: JsonObject, path: str) -> list[FieldError]:
    errors = missing(source, path, "server", "path")
    given = source.get("path") or ""
    if not given.startswith("/"):
        errors.append(fields.invalid_value(f"{path}.path", given, "must be an absolute path"))
    return errors


def _iscsi(source: JsonObject, path: str, *, kept: bool = False) -> list[FieldError]:
    errors = missing(source, path, "targetPortal", "iqn")
    if iqn := source.get("iqn"):
        errors += _iscsi_name_errors(iqn, f"{path}.iqn", kept=kept)
    errors += _in_range(source, "lun", path, UNIT)
    signs_in = source.get("chapAuthDiscovery") or source.get("chapAuthSession")
    if signs_in and source.get("secretRef") is None:
        errors.append(fields.required(f"{path}.secretRef"))
    if (initiator := source.get("initiatorName")) is not None:
        errors += _iscsi_name_errors(initiator, f"{path}.initiatorname", kept=kept)
    return errors


def _iscsi_name_errors(name: str, path: str, *, kept: bool) -> list[FieldError]:
    form = ISCSI_NAMES.get(name[:3])
    if form is None:
        why = "must be valid format"
        if not kept:
            why += " starting with iqn, eui, or naa"
        return [fields.invalid_value(path, name, why)]
    if not form.fullmatch(name):
        return [fields.invalid_value(path, name, "must be valid format")]
    return []


def _flocker(source: JsonObject, path: str) -> list[FieldError]:
    errors = []
    name, uuid = source.get("datasetName") or "", source.get("datasetUUID") or ""
    if not name and not uuid:
        errors.append(fields.required(path, "one of datasetName and datasetUUID is required"))
    if name and uuid:
        why = "datasetName and datasetUUID can not be specified simultaneously"
        errors.append(fields.invalid_value(path, "resource", why))
    if "/" in name:
        errors.append(fields.invalid_value(f"{path}.datasetName", name, "must not contain '/'"))
    return errors


def _cinder(source: JsonObject, path: str) -> list[FieldError]:
    errors = missing(source, path, "volumeID")
    if (secret := source.get("secretRef")) is not None:
        errors += missing(secret, f"{path}.secretRef", "name")
    return errors


def _quobyte(source: JsonObject, path: str) -> list[FieldError]:
    registry, errors = source.get("registry") or "", []
    if not registry:
        errors.append(fields.required(f"{path}.registry", HOST_AND_PORT))
    elif len(source.get("tenant") or "") > 64:
        why = "must be a UUID and may not exceed a length of 64 characters"
        errors.append(fields.required(f"{path}.tenant", why))
    else:
        wrong = [pair for pair in registry.split(",") if not _is_host_and_port(pair)]
        errors += [fields.invalid_value(f"{path}.registry", registry, HOST_AND_PORT) for _ in wrong]
    return errors + missing(source, path, "volume")


def _is_host_and_port(text: str) -> bool:
    """Return whether Go's `net.SplitHostPort` parts a text."""
    host, colon, port = text.rpartition(":")
    if not colon or set(port) & set("[]"):
        return False
    if host.startswith("["):
        return host.endswith("]") and not set(host[1:-1]) & set("[]")
    return not set(host) & set(":[]")


def _fibre_channel(source: JsonObject, path: str) -> list[FieldError]:
    at, errors = f"{path}.targetWWNs", []
    ports, ids, lun = source.get("targetWWNs") or [], source.get("wwids") or [], source.get("lun")
    if not ports and not ids:
        why = "must specify either targetWWNs or wwids, but not both"
        errors.append(fields.required(at, why))
    if ports and ids:
        why = "targetWWNs and wwids can not be specified simultaneously"
        errors.append(fields.invalid_value(at, ports, why))
    if ports and lun is None:
        errors.append(fields.required(f"{path}.lun", "lun is required if targetWWNs is specified"))
    return errors + (_in_range(source, "lun", path, UNIT) if ports else [])


def _flex(source: JsonObject, path: str) -> list[FieldError]:
    why = "kubernetes.io and k8s.io namespaces are reserved"
    return missing(source, path, "driver") + [
        fields.invalid_value(f"{path}.options[{key}]", key, why)
        for key in source.get("options") or ()
        if f".{key.partition('/')[0].lower()}".endswith(RESERVED)
    ]


def _azure_disk(source: JsonObject, path: str) -> list[FieldError]:
    errors = missing(source, path, "diskName", "diskURI")
    for part, known in (("cachingMode", CACHING), ("kind", DISK_KINDS)):
        if (value := source.get(part)) is not None and value not in known:
            errors.append(fields.not_supported(f"{path}.{part}", value, known))
    kind, address = source.get("kind"), source.get("diskURI") or ""
    begins, form = (
        ("/subscriptions/", MANAGED_DISK) if kind == "Managed" else ("https://", BLOB_DISK)
    )
    if kind is not None and not address.startswith(begins):
        errors.append(fields.not_supported(f"{path}.diskURI", address, [form]))
    return errors


def _storage_os(source: JsonObject, path: str) -> list[FieldError]:
    errors = missing(source, path, "volumeName")
    for part in ("volumeName", "volumeNamespace"):
        if name := source.get(part):
            errors += each(f"{path}.{part}", name, names.label_problems(name))
    if (secret := source.get("secretRef")) is not None:
        errors += missing(secret, f"{path}.secretRef", "name")
    return errors


def csi_errors(source: JsonObject, path: str) -> list[FieldError]:
    """Return what is wrong with a volume of a CSI driver that only one pod has."""
    errors = csi_driver_errors(source.get("driver") or "", f"{path}.driver")
    if (secret := source.get("nodePublishSecretRef")) is not None:
        name = secret.get("name") or ""
        errors += missing(secret, f"{path}.nodePublishSecretRef", "name")
        if name:
            errors += each(f"{path}.name", name, names.subdomain_problems(name))
    return errors


SOURCES: Final[Mapping[str, Check]] = {
    "hostPath": host_path_errors,
    "gitRepo": _git,
    "gcePersistentDisk": _disk("pdName"),
    "awsElasticBlockStore": _disk("volumeID"),
    "nfs": _nfs,
    "iscsi": _iscsi,
    "glusterfs": _needs("endpoints", "path"),
    "flocker": _flocker,
    "persistentVolumeClaim": _needs("claimName"),
    "rbd": _needs("monitors", "image"),
    "cinder": _cinder,
    "cephfs": _needs("monitors"),
    "quobyte": _quobyte,
    "fc": _fibre_channel,
    "flexVolume": _flex,
    "azureFile": _needs("secretName", "shareName"),
    "vsphereVolume": _needs("volumePath"),
    "photonPersistentDisk": _needs("pdID"),
    "portworxVolume": _needs("volumeID"),
    "azureDisk": _azure_disk,
    "storageos": _storage_os,
    "scaleIO": _needs("gateway", "system", "volumeName"),
    "csi": csi_errors,
}
"""The sources of a pod's volumes."""


def _kept_iscsi(source: JsonObject, path: str) -> list[FieldError]:
    errors = _iscsi(source, path, kept=True)
    if source.get("secretRef") is not None:
        errors += missing(source["secretRef"], f"{path}.secretRef", "name")
    return errors


def _kept_glusterfs(source: JsonObject, path: str) -> list[FieldError]:
    errors = missing(source, path, "endpoints", "path")
    space = source.get("endpointsNamespace")
    if space == "":
        why = "if the endpointnamespace is set, it must be a valid namespace name"
        errors.append(fields.invalid_value(f"{path}.endpointsNamespace", space, why))
    elif space is not None:
        errors += each(f"{path}.endpointsNamespace", space, names.label_problems(space))
    return errors


def _with_secret(check: Check) -> Check:
    """Return the check of a source whose secret has a namespace in addition."""

    def checked(source: JsonObject, path: str) -> list[FieldError]:
        errors = check(source, path)
        if (secret := source.get("secretRef")) is not None:
            errors += missing(secret, f"{path}.secretRef", "namespace")
        return errors

    return checked


def _kept_azure_file(source: JsonObject, path: str) -> list[FieldError]:
    errors = missing(source, path, "secretName", "shareName")
    if source.get("secretNamespace") == "":
        errors.append(fields.required(f"{path}.secretNamespace"))
    return errors


def _local(source: JsonObject, path: str) -> list[FieldError]:
    errors = missing(source, path, "path")
    return errors or step_back_errors(source["path"], f"{path}.path")


def _kept_csi(source: JsonObject, path: str) -> list[FieldError]:
    errors = csi_driver_errors(source.get("driver") or "", f"{path}.driver")
    errors += missing(source, path, "volumeHandle")
    for part in CSI_SECRETS:
        if (secret := source.get(part)) is None:
            continue
        at, name, space = f"{path}.{part}", secret.get("name"), secret.get("namespace")
        errors += missing(secret, at, "name", "namespace")
        errors += each(f"{at}.name", name, names.subdomain_problems(name)) if name else []
        errors += each(f"{at}.namespace", space, names.label_problems(space)) if space else []
    return errors


CSI_SECRETS: Final = (
    "controllerPublishSecretRef", "controllerExpandSecretRef", "nodePublishSecretRef",
    "nodeExpandSecretRef",
)  # fmt: skip
KEPT_SOURCES: Final[Mapping[str, Check]] = {
    "hostPath": host_path_errors,
    "gcePersistentDisk": SOURCES["gcePersistentDisk"],
    "awsElasticBlockStore": SOURCES["awsElasticBlockStore"],
    "glusterfs": _kept_glusterfs,
    "flocker": _flocker,
    "nfs": _nfs,
    "rbd": SOURCES["rbd"],
    "quobyte": _quobyte,
    "cephfs": SOURCES["cephfs"],
    "iscsi": _kept_iscsi,
    "cinder": _with_secret(_cinder),
    "fc": _fibre_channel,
    "flexVolume": _flex,
    "azureFile": _kept_azure_file,
    "vsphereVolume": SOURCES["vsphereVolume"],
    "photonPersistentDisk": SOURCES["photonPersistentDisk"],
    "portworxVolume": SOURCES["portworxVolume"],
    "azureDisk": _azure_disk,
    "scaleIO": SOURCES["scaleIO"],
    "local": _local,
    "storageos": _with_secret(_storage_os),
    "csi": _kept_csi,
}
"""The sources of PersistentVolumes, in the order in which the server looks for them."""
