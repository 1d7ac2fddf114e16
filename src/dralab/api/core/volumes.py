"""Persistent volumes, and claims for them."""

import posixpath
from collections.abc import Sequence
from typing import Final

from dralab.api import fields
from dralab.api.core.statuses import claim_status_errors
from dralab.api.core.volume_sources import KEPT_SOURCES
from dralab.api.fields import FieldError
from dralab.api.internal_forms import difference, internal_form
from dralab.api.label_selectors import label_selector_problems
from dralab.api.node_selectors import node_selector_errors
from dralab.api.rules import RuleTables
from dralab.api.strategy import Strategy
from dralab.values import names, quantity
from dralab.values.json_types import JsonDict, JsonObject
from dralab.values.quantity import Number

ALONE: Final = "ReadWriteOncePod"
ACCESS_MODES: Final = ["ReadOnlyMany", "ReadWriteMany", "ReadWriteOnce", ALONE]
BETA_CLASS: Final = "volume.beta.kubernetes.io/storage-class"
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


RULES: Final = RuleTables(globals(), label_selector_problems)
claim_spec_errors: Final = RULES["ValidatePersistentVolumeClaimSpec"]


class ClaimStrategy(Strategy):
    """Persistent volume claims."""

    def default(self, value: JsonDict) -> None:
        """Fill in what the client left out."""
        value.setdefault("spec", {}).setdefault("volumeMode", "Filesystem")

    def prepare_create(self, value: JsonDict, now: str) -> None:  # noqa: ARG002
        """Begin pending, and copy the source to the other of its two fields."""
        value["status"] = {"phase": "Pending"}
        spec = value["spec"]
        _drop_unusable_sources(spec, None)
        source, ref = spec.get("dataSource"), spec.get("dataSourceRef")
        if source is not None and ref is None:
            spec["dataSourceRef"] = dict(source)
        elif ref is not None and source is None and not ref.get("namespace"):
            spec["dataSource"] = {part: ref[part] for part in ref if part != "namespace"}

    def prepare_update(self, new: JsonDict, old: JsonDict, now: str) -> None:  # noqa: ARG002
        """Drop sources that have no meaning."""
        _drop_unusable_sources(new["spec"], old["spec"])

    def validate(self, value: JsonDict) -> list[FieldError]:
        """Return the errors of the spec."""
        return claim_spec_errors(value["spec"], "spec")

    def validate_status(self, new: JsonDict, old: JsonDict) -> list[FieldError]:  # noqa: ARG002
        """Return the errors of the resizing."""
        return claim_status_errors(new)

    def validate_update(self, new: JsonDict, old: JsonDict) -> list[FieldError]:
        """Return the errors of the change: only the size of a bound claim may grow."""
        errors = self.validate(new)
        errors += _fixed_errors(new, old)
        before, after = old["spec"], new["spec"]
        least = quantity.parse((old["status"].get("capacity") or {}).get("storage", "0"))
        if _size(after) < _size(before) and _size(after) <= least:
            at, why = (
                "spec.resources.requests.storage",
                "field can not be less than status.capacity",
            )
            errors.append(fields.forbidden(at, why))
        if before.get("volumeMode") != after.get("volumeMode"):
            mode = after.get("volumeMode")
            errors.append(fields.invalid_value("volumeMode", mode, "field is immutable"))
        if old["status"].get("currentVolumeAttributesClassName") is not None:
            errors += _attributes_removed(before, after)
        return errors


def _size(spec: JsonObject) -> Number:
    """Return how much storage a claim asks for; 0 if it says nothing."""
    asked = (spec.get("resources") or {}).get("requests") or {}
    return quantity.parse(asked.get("storage", "0"))


def _fixed_errors(new: JsonDict, old: JsonDict) -> list[FieldError]:
    """Return the errors of the change of what may not change, shown as a difference.

    A volume may be named once; a class may come later than the claim, and may move from the
    annotation to its field. A bound claim may ask for more, and for other attributes.
    """
    before, after, errors = dict(old["spec"]), dict(new["spec"]), []
    if not before.get("volumeName"):
        _take(before, after, "volumeName")
    had, has = before.get("storageClassName"), after.get("storageClassName")
    noted, notes = (
        (each["metadata"].get("annotations") or {}).get(BETA_CLASS) for each in (old, new)
    )
    if noted is not None and had is None and has == noted and notes in {None, noted}:
        after.pop("storageClassName", None)
    else:
        if noted != notes and (noted or notes):
            at = f"metadata.annotations.{BETA_CLASS}"
            errors.append(fields.invalid_value(at, notes or "", "field is immutable"))
        if has is not None and had is None and noted in {None, has}:
            after.pop("storageClassName")
    if new["status"].get("phase") == "Bound":
        asked = (after.get("resources") or {}).get("requests")
        if asked is not None:
            amount = ((before.get("resources") or {}).get("requests") or {}).get("storage", "0")
            after["resources"] = after["resources"] | {"requests": asked | {"storage": amount}}
        _take(after, before, "volumeAttributesClassName")
    if before != after:
        why = (
            "spec is immutable after creation except resources.requests and "
            "volumeAttributesClassName for bound claims"
        )
        shown = difference("core.PersistentVolumeClaimSpec", before, after)
        errors.append(fields.forbidden("spec", f"{why}\n{shown}"))
    return errors


def _take(value: JsonDict, other: JsonObject, name: str) -> None:
    """Copy a field from another value, or remove it where that has none."""
    value.pop(name, None)
    if name in other:
        value[name] = other[name]


def _attributes_removed(before: JsonObject, after: JsonObject) -> list[FieldError]:
    """Return whether a claim that got attributes loses their class."""
    name = after.get("volumeAttributesClassName")
    if name or name == before.get("volumeAttributesClassName"):
        return []
    what = "nil" if name is None else "empty string"
    why = f"update to {what} is forbidden when status.currentVolumeAttributesClassName is not nil"
    return [fields.forbidden("spec.volumeAttributesClassName", why)]


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


def _modes(modes: Sequence[str], path: str) -> list[FieldError]:
    errors = [
        fields.not_supported(path, mode, ACCESS_MODES) for mode in modes if mode not in ACCESS_MODES
    ]
    known = set(modes) & set(ACCESS_MODES)
    if ALONE in known and len(known) > 1:
        why = "may not use ReadWriteOncePod with other access modes"
        errors.append(fields.forbidden(path, why))
    return errors


def _storage(spec: JsonObject, path: str) -> list[FieldError]:
    amount = ((spec.get("resources") or {}).get("requests") or {}).get("storage")
    at = f"{path}.resources[storage]"
    if amount is None:
        return [fields.required(at)]
    if quantity.parse(amount) > 0:
        return []
    return [fields.invalid_value(at, amount, "must be greater than zero")]


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
        """Note when the phase changed, unless the client says when."""
        status, before = new.setdefault("status", {}), old.get("status") or {}
        status["phase"] = status.get("phase") or "Pending"
        since = status.get("lastPhaseTransitionTime")
        if status["phase"] == before.get("phase") and since is None:
            _take(status, before, "lastPhaseTransitionTime")
        elif status["phase"] != before.get("phase") and since in {
            None, before.get("lastPhaseTransitionTime"),
        }:  # fmt: skip
            status["lastPhaseTransitionTime"] = now

    def validate(self, value: JsonDict) -> list[FieldError]:
        """Return the errors of the spec."""
        return volume_spec_errors(value["spec"], "spec") + _recycling_errors(value["spec"])

    def warnings(self, value: JsonDict, old: JsonDict | None = None) -> list[str]:  # noqa: ARG002
        """Return what is deprecated in the volume."""
        if value["spec"].get("persistentVolumeReclaimPolicy") != "Recycle":
            return []
        return [
            "spec.persistentVolumeReclaimPolicy: The Recycle reclaim policy is deprecated. "
            "Instead, the recommended approach is to use dynamic provisioning."
        ]

    def validate_update(self, new: JsonDict, old: JsonDict) -> list[FieldError]:
        """Return the errors of the change: what it is stays."""
        before, after = old["spec"], new["spec"]
        # Upstream judges the whole twice.
        errors = self.validate(new) + volume_spec_errors(after, "spec")
        had, has = (_source_of(spec) for spec in (before, after))
        csi, secret = has.get("csi"), "controllerExpandSecretRef"
        if csi and secret in csi and had.get("csi") and secret not in had["csi"]:
            has["csi"] = {part: csi[part] for part in csi if part != secret}
        if had != has:
            why = "spec.persistentvolumesource is immutable after creation"
            shown = difference("core.PersistentVolumeSource", had, has)
            errors.append(fields.forbidden("spec.persistentvolumesource", f"{why}\n{shown}"))
        if before.get("volumeMode") != after.get("volumeMode"):
            mode = after.get("volumeMode")
            errors.append(fields.invalid_value("volumeMode", mode, "field is immutable"))
        affinity = after.get("nodeAffinity")
        if before.get("nodeAffinity") is not None and before["nodeAffinity"] != affinity:
            shown = internal_form("*core.VolumeNodeAffinity", affinity)
            why = "field is immutable, except for updating from beta label to GA"
            errors.append(fields.invalid_value("nodeAffinity", shown, why))
        name = "volumeAttributesClassName"
        if before.get(name) is not None and after.get(name) is None:
            why = "update from non-nil value to nil is forbidden"
            errors.append(fields.forbidden(f"spec.{name}", why))
        return errors


def _source_of(spec: JsonObject) -> JsonDict:
    return {part: spec[part] for part in spec if part not in NO_SOURCES}


def _recycling_errors(spec: JsonObject) -> list[FieldError]:
    """Return whether the root of a node would be emptied."""
    policy, given = (
        spec.get("persistentVolumeReclaimPolicy"), (spec.get("hostPath") or {}).get("path")
    )  # fmt: skip
    if policy != "Recycle" or not given or posixpath.normpath(given).strip("/") != "":
        return []
    why = "may not be 'recycle' for a hostPath mount of '/'"
    return [fields.forbidden("spec.persistentVolumeReclaimPolicy", why)]


def volume_spec_errors(spec: JsonObject, path: str, *, inline: bool = False) -> list[FieldError]:
    """Return the errors of the spec of a volume; `inline` is that of an attachment."""
    modes, errors = spec.get("accessModes") or (), []
    if inline:
        why = "may not be specified in the context of inline volumes"
        errors += [
            fields.forbidden(f"{path}.{part}", why)
            for part in ("claimRef", "capacity")
            if spec.get(part) or (part == "claimRef" and part in spec)
        ]
        if spec.get("csi") is None:
            why = "has to be specified in the context of inline volumes"
            errors.append(fields.required(f"{path}.csi", why))
    if not modes:
        errors.append(fields.required(f"{path}.accessModes"))
    errors += _modes(modes, f"{path}.accessModes")
    if not inline:
        errors += _capacity_errors(spec.get("capacity"), f"{path}.capacity")
    errors += _choice_errors(
        spec, path, "persistentVolumeReclaimPolicy", "Retain" if inline else "", RECLAIM
    )
    errors += _volume_errors(spec, path, inline=inline)
    if name := spec.get("storageClassName"):
        at = f"{path}.storageClassName"
        if inline:
            why = "may not be specified in the context of inline volumes"
            errors.append(fields.forbidden(at, why))
        else:
            errors += fields.each(at, name, names.subdomain_problems(name))
    errors += _choice_errors(spec, path, "volumeMode", "Filesystem" if inline else "", VOLUME_MODES)
    return errors + ([] if inline else _attributes_errors(spec))


def _choice_errors(
    spec: JsonObject, path: str, part: str, only: str, known: Sequence[str]
) -> list[FieldError]:
    """Return whether a field differs from `only`, if it is not empty."""
    given = spec.get(part)
    if not given and (only or given is None):
        return []
    if only and given != only:
        may = "may only be" if part != "volumeMode" else "may not specify volumeMode other than"
        why = f"{may} {only} in the context of inline volumes"
        return [fields.forbidden(f"{path}.{part}", why)]
    if only or given in known:
        return []
    return [fields.not_supported(f"{path}.{part}", given, known)]


def _attributes_errors(spec: JsonObject) -> list[FieldError]:
    """Return the errors of the class of a volume's attributes, which only CSI has."""
    name, path = spec.get("volumeAttributesClassName"), "spec.volumeAttributesClassName"
    if name is None:
        return []
    errors = fields.each(path, name, names.subdomain_problems(name))
    if not name:
        errors = [fields.required(path, "an empty string is disallowed")]
    if spec.get("csi") is None:
        why = "has to be specified when using volumeAttributesClassName"
        errors.append(fields.required("spec.csi", why))
    return errors


def _capacity_errors(given: JsonObject | None, path: str) -> list[FieldError]:
    errors, capacity = [], given or {}
    if not capacity:
        errors.append(fields.required(path))
    if list(capacity) != ["storage"]:
        shown = given and {name: given[name] for name in sorted(given)}
        errors.append(fields.not_supported(path, shown, ["storage"]))
    for name, amount in capacity.items():
        if quantity.parse(amount) < 0:
            why = "must be a valid resource quantity"
            errors.append(fields.invalid_value(f"{path}[{name}]", amount, why))
        if quantity.parse(amount) <= 0:
            why = "must be greater than zero"
            errors.append(fields.invalid_value(f"{path}[{name}]", amount, why))
    return errors


def _volume_errors(spec: JsonObject, path: str, *, inline: bool) -> list[FieldError]:
    """Return the errors of where a volume lies, and with the nodes it may be used on."""
    errors: list[FieldError] = []
    affinity = spec.get("nodeAffinity")
    if affinity is not None and inline:
        why = "may not be specified in the context of inline volumes"
        errors.append(fields.forbidden(f"{path}.nodeAffinity", why))
    elif affinity is not None:
        required, within = affinity.get("required"), f"{path}.nodeAffinity.required"
        if required is None:
            errors.append(fields.required(within, "must specify required node constraints"))
        else:
            errors += node_selector_errors(required, within)
    found = 0
    for name, check in KEPT_SOURCES.checks.items():
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
