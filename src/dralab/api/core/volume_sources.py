"""Where a volume comes from: what each of the sources must be, in pods and in PersistentVolumes.

Source: k8s.io/kubernetes `pkg/apis/core/validation/validation.go`. Sources that only pods have
(config maps, secrets, projections, ephemeral claims) are left to `pod_rules.volumes`, how many
sources there may be to whoever holds them.
"""

import re
from dataclasses import replace
from typing import Final

from dralab.api import fields
from dralab.api.core.addresses import csi_driver_errors
from dralab.api.fields import FieldError
from dralab.api.rules import RuleTables, subdomain
from dralab.values.json_types import JsonObject

HOST_PATH_TYPES: Final = (
    "", "BlockDevice", "CharDevice", "Directory", "DirectoryOrCreate", "File", "FileOrCreate",
    "Socket",
)  # fmt: skip
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
RESERVED: Final = (".kubernetes.io", ".k8s.io")
HOST_AND_PORT: Final = "must be a host:port pair or multiple pairs separated by commas"


RULES: Final = RuleTables(globals(), csi_driver_errors)
SOURCES: Final = RULES["volumeSources"]
"""The sources of a pod's volumes."""
KEPT_SOURCES: Final = RULES["persistentVolumeSources"]
"""The sources of PersistentVolumes, in the order in which the server looks for them."""


def step_back_errors(text: str, path: str) -> list[FieldError]:
    """Return whether a path leads upwards."""
    if ".." in text.split("/"):
        return [fields.invalid_value(path, text, "must not contain '..'")]
    return []


def descending_errors(text: str, path: str) -> list[FieldError]:
    """Return whether a path leaves its folder."""
    errors = step_back_errors(text, path)
    if text.startswith("/"):
        errors.insert(0, fields.invalid_value(path, text, "must be a relative path"))
    return errors


def _iscsi_name(name: str, path: str) -> list[FieldError]:
    unknown = " starting with iqn, eui, or naa" if name[:3] not in ISCSI_NAMES else ""
    return [replace(each, detail=each.detail + unknown) for each in _kept_iscsi_name(name, path)]


def _kept_iscsi_name(name: str, path: str) -> list[FieldError]:
    form = ISCSI_NAMES.get(name[:3])
    if form and form.fullmatch(name):
        return []
    return [fields.invalid_value(path, name, "must be valid format")]


def _typed(source: JsonObject, path: str) -> list[FieldError]:
    kind = source.get("type") or ""
    if kind in HOST_PATH_TYPES or not source.get("path"):
        return []
    return [fields.not_supported(f"{path}.type", kind, HOST_PATH_TYPES)]


def _hosts_and_ports(source: JsonObject, path: str) -> list[FieldError]:
    registry = source.get("registry") or "" if len(source.get("tenant") or "") <= 64 else ""
    wrong = [pair for pair in registry.split(",") if registry and not _is_host_and_port(pair)]
    return [fields.invalid_value(f"{path}.registry", registry, HOST_AND_PORT) for _ in wrong]


def _is_host_and_port(text: str) -> bool:
    """Return whether Go's `net.SplitHostPort` parts a text."""
    host, colon, port = text.rpartition(":")
    if not colon or set(port) & set("[]"):
        return False
    if host.startswith("["):
        return host.endswith("]") and not set(host[1:-1]) & set("[]")
    return not set(host) & set(":[]")


def _own_options(options: JsonObject, path: str) -> list[FieldError]:
    why = "kubernetes.io and k8s.io namespaces are reserved"
    return [
        fields.invalid_value(f"{path}[{key}]", key, why)
        for key in options
        if f".{key.partition('/')[0].lower()}".endswith(RESERVED)
    ]


def _address_of_kind(source: JsonObject, path: str) -> list[FieldError]:
    kind, address = source.get("kind"), source.get("diskURI") or ""
    begins, form = (
        ("/subscriptions/", MANAGED_DISK) if kind == "Managed" else ("https://", BLOB_DISK)
    )
    if kind is None or address.startswith(begins):
        return []
    return [fields.not_supported(f"{path}.diskURI", address, [form])]


def _published_secret(secret: JsonObject, path: str) -> list[FieldError]:
    # Upstream shows a wrong name as that of the volume.
    name = secret.get("name")
    return subdomain(name, f"{path.rpartition('.')[0]}.name") if name else []
