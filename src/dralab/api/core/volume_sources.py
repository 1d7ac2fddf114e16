"""Where a volume comes from: what each of the sources must be, in pods and in PersistentVolumes.

Source: k8s.io/kubernetes `pkg/apis/core/validation/validation.go`. Sources that only pods have
(config maps, secrets, projections, ephemeral claims) are left to `pod_rules.volumes`, how many
sources there may be to whoever holds them.
"""

import re
from collections.abc import Mapping
from typing import Final

from dralab.api import fields
from dralab.api.core.addresses import csi_driver_errors
from dralab.api.fields import FieldError
from dralab.api.rules import (
    Check,
    Ruleset,
    between,
    field,
    filled,
    holds,
    invalid_if,
    label,
    needs,
    one_of,
    required_if,
    subdomain,
)
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
NO_NAMESPACE: Final = "if the endpointnamespace is set, it must be a valid namespace name"
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


def _iscsi_name(unknown: str) -> Check:
    """Return the check of a name, which has one of three forms."""

    def iscsi_name(name: str, path: str) -> list[FieldError]:
        form, why = ISCSI_NAMES.get(name[:3]), "must be valid format"
        if form and form.fullmatch(name):
            return []
        return [fields.invalid_value(path, name, why if form else why + unknown)]

    return iscsi_name


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


absolute: Final = holds(lambda path: path.startswith("/"), "must be an absolute path", "absolute")
NAMED: Final = Ruleset("core.validateSecretReference", needs("name"))
IN_NAMESPACE: Final = Ruleset("core.validateSecretReference", needs("namespace"))
# Though 0 is taken.
PARTITION: Final = field("partition", between(0, 255, "must be between 1 and 255, inclusive"))
HOST_PATH: Final = Ruleset(
    "core.validateHostPathVolumeSource", needs("path", step_back_errors), _typed
)
NFS: Final = Ruleset(
    "core.validateNFSVolumeSource",
    needs("server"), needs("path"), field("path", absolute, absent=""),
)  # fmt: skip
FLOCKER: Final = Ruleset(
    "core.validateFlockerVolumeSource",
    required_if(
        "",
        lambda source: not source.get("datasetName") and not source.get("datasetUUID"),
        "one of datasetName and datasetUUID is required",
    ),
    invalid_if(
        "",
        lambda source: source.get("datasetName") and source.get("datasetUUID"),
        "datasetName and datasetUUID can not be specified simultaneously",
        value=lambda _: "resource",
    ),
    filled("datasetName", holds(lambda name: "/" not in name, "must not contain '/'", "flat")),
)
CINDER: Final = Ruleset(
    "core.validateCinderVolumeSource", needs("volumeID"), field("secretRef", NAMED)
)
FIBRE_CHANNEL: Final = Ruleset(
    "core.validateFCVolumeSource",
    required_if(
        "targetWWNs",
        lambda source: not source.get("targetWWNs") and not source.get("wwids"),
        "must specify either targetWWNs or wwids, but not both",
    ),
    invalid_if(
        "targetWWNs",
        lambda source: source.get("targetWWNs") and source.get("wwids"),
        "targetWWNs and wwids can not be specified simultaneously",
    ),
    required_if(
        "lun",
        lambda source: source.get("targetWWNs") and source.get("lun") is None,
        "lun is required if targetWWNs is specified",
    ),
    invalid_if(
        "lun",
        lambda source: source.get("targetWWNs") and not 0 <= (source.get("lun") or 0) <= 255,
        "must be between 0 and 255, inclusive",
    ),
)
FLEX: Final = Ruleset(
    "core.validateFlexVolumeSource", needs("driver"), filled("options", _own_options)
)
AZURE_DISK: Final = Ruleset(
    "core.validateAzureDisk",
    needs("diskName"), needs("diskURI"),
    field("cachingMode", one_of("None", "ReadOnly", "ReadWrite")),
    field("kind", one_of("Dedicated", "Managed", "Shared")), _address_of_kind,
)  # fmt: skip
STORAGE_OS: Final = Ruleset(
    "core.validateStorageOSVolumeSource",
    needs("volumeName", label), filled("volumeNamespace", label), field("secretRef", NAMED),
)  # fmt: skip
ISCSI_NAME, KEPT_ISCSI_NAME = _iscsi_name(" starting with iqn, eui, or naa"), _iscsi_name("")
ISCSI: Final = (
    field("lun", between(0, 255)),
    required_if(
        "secretRef",
        lambda source: (
            source.get("secretRef") is None
            and (source.get("chapAuthDiscovery") or source.get("chapAuthSession"))
        ),
    ),
)
SOURCES: Final[Mapping[str, Check]] = {
    "hostPath": HOST_PATH,
    "gitRepo": Ruleset(
        "core.validateGitRepoVolumeSource",
        needs("repository"), filled("directory", descending_errors),
    ),
    "gcePersistentDisk": Ruleset(
        "core.validateGCEPersistentDiskVolumeSource", needs("pdName"), PARTITION
    ),
    "awsElasticBlockStore": Ruleset(
        "core.validateAWSElasticBlockStoreVolumeSource", needs("volumeID"), PARTITION
    ),
    "nfs": NFS,
    "iscsi": Ruleset(
        "core.validateISCSIVolumeSource",
        needs("targetPortal"), needs("iqn", ISCSI_NAME), *ISCSI,
        field("initiatorName", ISCSI_NAME, shown="initiatorname"),
    ),
    "glusterfs": Ruleset(
        "core.validateGlusterfsVolumeSource", needs("endpoints"), needs("path")
    ),
    "flocker": FLOCKER,
    "persistentVolumeClaim": Ruleset(
        "core.validatePersistentClaimVolumeSource", needs("claimName")
    ),
    "rbd": Ruleset("core.validateRBDVolumeSource", needs("monitors"), needs("image")),
    "cinder": CINDER,
    "cephfs": Ruleset("core.validateCephFSVolumeSource", needs("monitors")),
    "quobyte": Ruleset(
        "core.validateQuobyteVolumeSource",
        needs("registry", why=HOST_AND_PORT),
        required_if(
            "tenant",
            lambda source: source.get("registry") and len(source.get("tenant") or "") > 64,
            "must be a UUID and may not exceed a length of 64 characters",
        ),
        _hosts_and_ports, needs("volume"),
    ),
    "fc": FIBRE_CHANNEL,
    "flexVolume": FLEX,
    "azureFile": Ruleset("core.validateAzureFile", needs("secretName"), needs("shareName")),
    "vsphereVolume": Ruleset("core.validateVsphereVolumeSource", needs("volumePath")),
    "photonPersistentDisk": Ruleset("core.validatePhotonPersistentDiskVolumeSource", needs("pdID")),
    "portworxVolume": Ruleset("core.validatePortworxVolumeSource", needs("volumeID")),
    "azureDisk": AZURE_DISK,
    "storageos": STORAGE_OS,
    "scaleIO": Ruleset(
        "core.validateScaleIOVolumeSource",
        needs("gateway"), needs("system"), needs("volumeName"),
    ),
    "csi": Ruleset(
        "core.validateCSIVolumeSource",
        field("driver", csi_driver_errors, absent=""),
        field("nodePublishSecretRef", NAMED, _published_secret),
    ),
}  # fmt: skip
"""The sources of a pod's volumes."""


SECRET: Final = Ruleset(
    "core.validateCSIPersistentVolumeSource", needs("name"), needs("namespace"),
    filled("name", subdomain), filled("namespace", label),
)  # fmt: skip
KEPT_SOURCES: Final[Mapping[str, Check]] = {
    "hostPath": HOST_PATH,
    "gcePersistentDisk": SOURCES["gcePersistentDisk"],
    "awsElasticBlockStore": SOURCES["awsElasticBlockStore"],
    "glusterfs": Ruleset(
        "core.validateGlusterfsPersistentVolumeSource",
        SOURCES["glusterfs"], field("endpointsNamespace", holds(bool, NO_NAMESPACE, "not-empty")),
        filled("endpointsNamespace", label),
    ),
    "flocker": FLOCKER,
    "nfs": NFS,
    "rbd": SOURCES["rbd"],
    "quobyte": SOURCES["quobyte"],
    "cephfs": SOURCES["cephfs"],
    "iscsi": Ruleset(
        "core.validateISCSIPersistentVolumeSource",
        needs("targetPortal"), needs("iqn", KEPT_ISCSI_NAME), *ISCSI,
        field("initiatorName", KEPT_ISCSI_NAME, shown="initiatorname"), field("secretRef", NAMED),
    ),
    "cinder": Ruleset(
        "core.validateCinderPersistentVolumeSource", CINDER, field("secretRef", IN_NAMESPACE)
    ),
    "fc": FIBRE_CHANNEL,
    "flexVolume": FLEX,
    "azureFile": Ruleset(
        "core.validateAzureFilePV", SOURCES["azureFile"],
        required_if("secretNamespace", lambda source: source.get("secretNamespace") == ""),
    ),
    "vsphereVolume": SOURCES["vsphereVolume"],
    "photonPersistentDisk": SOURCES["photonPersistentDisk"],
    "portworxVolume": SOURCES["portworxVolume"],
    "azureDisk": AZURE_DISK,
    "scaleIO": SOURCES["scaleIO"],
    "local": Ruleset("core.validateLocalVolumeSource", needs("path", step_back_errors)),
    "storageos": Ruleset(
        "core.validateStorageOSPersistentVolumeSource",
        STORAGE_OS, field("secretRef", IN_NAMESPACE),
    ),
    "csi": Ruleset(
        "core.validateCSIPersistentVolumeSource",
        field("driver", csi_driver_errors, absent=""),
        needs("volumeHandle"),
        *(
            field(secret, SECRET)
            for secret in (
                "controllerPublishSecretRef", "controllerExpandSecretRef",
                "nodePublishSecretRef", "nodeExpandSecretRef",
            )
        ),
    ),
}  # fmt: skip
"""The sources of PersistentVolumes, in the order in which the server looks for them."""
