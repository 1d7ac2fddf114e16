"""Persistent volumes, and claims for them."""

import posixpath
from collections.abc import Sequence
from typing import Final

from dralab.api import fields
from dralab.api.core.addresses import each
from dralab.api.core.statuses import claim_status_errors
from dralab.api.core.volume_sources import KEPT_SOURCES
from dralab.api.fields import FieldError
from dralab.api.label_selectors import label_selector_problems
from dralab.api.node_selectors import node_selector_errors
from dralab.api.strategy import Strategy
from dralab.values import names, quantity
from dralab.values.json_types import JsonDict, JsonObject

ALONE: Final = "ReadWriteOncePod"
ACCESS_MODES: Final = ["ReadOnlyMany", "ReadWriteMany", "ReadWriteOnce", ALONE]
VOLUME_MODES: Final = ["Block", "Filesystem"]
RECLAIM: Final = ["Delete", "Recycle", "Retain"]
SOURCES: Final = frozenset(
    {("PersistentVolumeClaim", ""), ("VolumeSnapshot", "snapshot.storage.k8s.io")}
)
# Fields of the spec of a volume that name no source of it.
NO_SOURCES: Final = frozenset(
    {
        "accessModes", "capacity", "claimRef", "mountOptions", "nodeAffinity",
        "persistentVolumeReclaimPolicy", "storageClassName", "volumeAttributesClassName",
        "volumeMode",
    }
)  # fmt: skip


class ClaimStrategy(Strategy):
    """Persistent volume claims."""

    def default(self, value: JsonDict) -> None:
        """Fill in what the client left out."""
        value.setdefault("spec", {}).setdefault("volumeMode", "Filesystem")

    def prepare_create(self, value: JsonDict, now: str) -> None:  # noqa: ARG002
        """Begin pending; of the two ways to name a source, each says what the other does."""
        value["status"] = {"phase": "Pending"}
        spec = value["spec"]
        _drop_unusable_sources(spec, None)
        source, ref = spec.get("dataSource"), spec.get("dataSourceRef")
        if source is not None and ref is None:
            spec["dataSourceRef"] = dict(source)
        elif ref is not None and source is None and not ref.get("namespace"):
            spec["dataSource"] = {part: ref[part] for part in ref if part != "namespace"}

    def prepare_update(self, new: JsonDict, old: JsonDict, now: str) -> None:  # noqa: ARG002
        """Drop sources that mean nothing."""
        _drop_unusable_sources(new["spec"], old["spec"])

    def validate(self, value: JsonDict) -> list[FieldError]:
        """Return what is wrong with the spec."""
        return claim_spec_errors(value["spec"], "spec")

    def validate_status(self, new: JsonDict, old: JsonDict) -> list[FieldError]:  # noqa: ARG002
        """Return what is wrong with the resizing."""
        return claim_status_errors(new)

    def validate_update(self, new: JsonDict, old: JsonDict) -> list[FieldError]:
        """Return what is wrong with the change: only the size of a bound claim may grow."""
        errors = self.validate(new)
        before, after = dict(old["spec"]), dict(new["spec"])
        if before.get("volumeMode") != after.get("volumeMode"):
            mode = after.get("volumeMode")
            errors.append(fields.invalid_value("volumeMode", mode, "field is immutable"))
        for spec in (before, after):
            spec.pop("resources", None)
            spec.pop("volumeAttributesClassName", None)
        if not before.get("volumeName"):
            after.pop("volumeName", None)
            if before.get("storageClassName") is None:
                # The default class may come later than the claim (RetroactiveDefaultStorageClass).
                after.pop("storageClassName", None)
                before.pop("storageClassName", None)
        if before != after:
            why = (
                "spec is immutable after creation except resources.requests and "
                "volumeAttributesClassName for bound claims"
            )
            errors.append(fields.forbidden("spec", why))
        return errors


def _drop_unusable_sources(spec: JsonDict, before: JsonDict | None) -> None:
    """Drop sources that are neither claims nor snapshots, and those of other namespaces.

    Source: k8s.io/kubernetes `pkg/api/persistentvolumeclaim`; CrossNamespaceVolumeDataSource is
    off by default. What the claim had `before` stays.
    """
    known = before or {}
    if (spec.get("dataSourceRef") or {}).get("namespace") and not known.get("dataSourceRef"):
        del spec["dataSourceRef"]
    if known.get("dataSource") or known.get("dataSourceRef") or spec.get("dataSourceRef"):
        return
    source = spec.get("dataSource")
    if source is not None and (source.get("kind"), source.get("apiGroup") or "") not in SOURCES:
        del spec["dataSource"]


def _mode_errors(modes: Sequence[str], path: str) -> list[FieldError]:
    errors = [
        fields.not_supported(path, mode, ACCESS_MODES) for mode in modes if mode not in ACCESS_MODES
    ]
    known = set(modes) & set(ACCESS_MODES)
    if ALONE in known and len(known) > 1:
        why = "may not use ReadWriteOncePod with other access modes"
        errors.append(fields.forbidden(path, why))
    return errors


def claim_spec_errors(spec: JsonObject, path: str) -> list[FieldError]:
    """Return what is wrong with the spec of a claim, or of a template of claims."""
    errors = []
    modes = spec.get("accessModes") or ()
    if not modes:
        errors.append(fields.required(f"{path}.accessModes", "at least 1 access mode is required"))
    errors += label_selector_problems(spec.get("selector") or {}, f"{path}.selector")
    errors += _mode_errors(modes, f"{path}.accessModes")
    amount = ((spec.get("resources") or {}).get("requests") or {}).get("storage")
    at = f"{path}.resources[storage]"
    if amount is None:
        errors.append(fields.required(at))
    elif quantity.parse(amount) <= 0:
        errors.append(fields.invalid_value(at, amount, "must be greater than zero"))
    for part in ("storageClassName", "volumeAttributesClassName"):
        if part == "volumeAttributesClassName":
            errors += _source_errors(spec, path)
        if name := spec.get(part):
            errors += each(f"{path}.{part}", name, names.subdomain_problems(name))
        mode = spec.get("volumeMode")
        if part == "storageClassName" and mode not in VOLUME_MODES and mode is not None:
            errors.append(fields.not_supported(f"{path}.volumeMode", mode, VOLUME_MODES))
    return errors


def _source_errors(spec: JsonObject, path: str) -> list[FieldError]:
    errors = []
    for part in ("dataSource", "dataSourceRef"):
        source = spec.get(part)
        if source is None:
            continue
        errors += [
            fields.required(f"{path}.{part}.{name}")
            for name in ("name", "kind")
            if not source.get(name)
        ]
        if not source.get("apiGroup") and source.get("kind") != "PersistentVolumeClaim":
            why = "must be 'PersistentVolumeClaim' when referencing the default apiGroup"
            errors.append(fields.invalid_value(f"{path}.{part}", source.get("kind") or "", why))
    return errors


class VolumeStrategy(Strategy):
    """Persistent volumes."""

    def default(self, value: JsonDict) -> None:
        """Fill in what the client left out."""
        spec = value.setdefault("spec", {})
        spec.setdefault("persistentVolumeReclaimPolicy", "Retain")
        spec.setdefault("volumeMode", "Filesystem")
        if "hostPath" in spec:
            spec["hostPath"].setdefault("type", "")

    def prepare_create(self, value: JsonDict, now: str) -> None:
        """Begin pending."""
        value["status"] = {"phase": "Pending", "lastPhaseTransitionTime": now}

    def prepare_status(self, new: JsonDict, old: JsonDict, now: str) -> None:
        """Note when the phase changed."""
        status = new.setdefault("status", {})
        if status.get("phase") != (old.get("status") or {}).get("phase"):
            status["lastPhaseTransitionTime"] = now

    def validate(self, value: JsonDict) -> list[FieldError]:
        """Return what is wrong with the spec."""
        spec = value["spec"]
        modes, errors = spec.get("accessModes") or (), []
        if not modes:
            errors.append(fields.required("spec.accessModes"))
        errors += _mode_errors(modes, "spec.accessModes")
        errors += _capacity_errors(spec.get("capacity") or {}, "spec.capacity")
        policy = spec.get("persistentVolumeReclaimPolicy")
        if policy not in RECLAIM:
            path = "spec.persistentVolumeReclaimPolicy"
            errors.append(fields.not_supported(path, policy, RECLAIM))
        errors += _volume_errors(spec, "spec")
        given = (spec.get("hostPath") or {}).get("path")
        if given and posixpath.normpath(given).strip("/") == "" and policy == "Recycle":
            path = "spec.persistentVolumeReclaimPolicy"
            why = "may not be 'recycle' for a hostPath mount of '/'"
            errors.append(fields.forbidden(path, why))
        if name := spec.get("storageClassName"):
            errors += each("spec.storageClassName", name, names.subdomain_problems(name))
        mode = spec.get("volumeMode")
        if mode is not None and mode not in VOLUME_MODES:
            errors.append(fields.not_supported("spec.volumeMode", mode, VOLUME_MODES))
        return errors + _attributes_errors(spec)

    def warnings(self, value: JsonDict, old: JsonDict | None = None) -> list[str]:  # noqa: ARG002
        """Return what is deprecated in the volume."""
        if value["spec"].get("persistentVolumeReclaimPolicy") != "Recycle":
            return []
        return [
            "spec.persistentVolumeReclaimPolicy: The Recycle reclaim policy is deprecated. "
            "Instead, the recommended approach is to use dynamic provisioning."
        ]

    def validate_update(self, new: JsonDict, old: JsonDict) -> list[FieldError]:
        """Return what is wrong with the change: what it is stays."""
        before, after = old["spec"], new["spec"]
        errors = self.validate(new)
        sources = {*before, *after} - NO_SOURCES
        if any(before.get(part) != after.get(part) for part in sources):
            # A real server adds a diff of Go structs.
            why = "spec.persistentvolumesource is immutable after creation"
            errors.append(fields.forbidden("spec.persistentvolumesource", why))
        if before.get("volumeMode") != after.get("volumeMode"):
            mode = after.get("volumeMode")
            errors.append(fields.invalid_value("volumeMode", mode, "field is immutable"))
        return errors


def _attributes_errors(spec: JsonObject) -> list[FieldError]:
    """Return what is wrong with the class of a volume's attributes, which only CSI has."""
    name, path = spec.get("volumeAttributesClassName"), "spec.volumeAttributesClassName"
    if name is None:
        return []
    errors = each(path, name, names.subdomain_problems(name))
    if not name:
        errors = [fields.required(path, "an empty string is disallowed")]
    if spec.get("csi") is None:
        why = "has to be specified when using volumeAttributesClassName"
        errors.append(fields.required("spec.csi", why))
    return errors


def _capacity_errors(capacity: JsonObject, path: str) -> list[FieldError]:
    errors = []
    if not capacity:
        errors.append(fields.required(path))
    if list(capacity) != ["storage"]:
        errors.append(fields.not_supported(path, capacity or None, ["storage"]))
    for name, amount in capacity.items():
        if quantity.parse(amount) < 0:
            why = "must be a valid resource quantity"
            errors.append(fields.invalid_value(f"{path}[{name}]", amount, why))
        if quantity.parse(amount) <= 0:
            why = "must be greater than zero"
            errors.append(fields.invalid_value(f"{path}[{name}]", amount, why))
    return errors


def _volume_errors(spec: JsonObject, path: str) -> list[FieldError]:
    """Return what is wrong with where a volume lies, and with the nodes it may be used on."""
    errors: list[FieldError] = []
    affinity = spec.get("nodeAffinity")
    if affinity is not None:
        required, within = affinity.get("required"), f"{path}.nodeAffinity.required"
        if required is None:
            errors.append(fields.required(within, "must specify required node constraints"))
        else:
            errors += node_selector_errors(required, within)
    found = 0
    for name, check in KEPT_SOURCES.items():
        source = spec.get(name)
        if source is None:
            continue
        found += 1
        if found > 1 and name != "flexVolume":  # which upstream lets stand beside another
            at = f"{path}.{'cephFS' if name == 'cephfs' else name}"
            errors.append(fields.forbidden(at, "may not specify more than 1 volume type"))
            continue
        at = "persistentDisk" if name == "gcePersistentDisk" else name
        errors += check(source, f"{path}.{at}")
        if name == "local" and affinity is None:
            why = "Local volume requires node affinity"
            errors.append(fields.required(f"{path}.nodeAffinity", why))
    if not found:
        errors.append(fields.required(path, "must specify a volume type"))
    return errors
