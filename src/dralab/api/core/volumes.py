"""Persistent volumes, and claims for them."""

from dralab.api import fields
from dralab.api.fields import FieldError
from dralab.api.strategy import Strategy
from dralab.values.json_types import JsonDict


class ClaimStrategy(Strategy):
    """Persistent volume claims."""

    def default(self, value: JsonDict) -> None:
        """Fill in what the client left out."""
        value.setdefault("spec", {}).setdefault("volumeMode", "Filesystem")

    def prepare_create(self, value: JsonDict, now: str) -> None:  # noqa: ARG002
        """Begin pending."""
        value["status"] = {"phase": "Pending"}

    def validate(self, value: JsonDict) -> list[FieldError]:
        """Return what is wrong with the spec."""
        spec = value["spec"]
        errors = []
        if not spec.get("accessModes"):
            errors.append(fields.required("spec.accessModes", "at least 1 access mode is required"))
        if "storage" not in ((spec.get("resources") or {}).get("requests") or {}):
            errors.append(fields.required("spec.resources[storage]"))
        return errors

    def validate_update(self, new: JsonDict, old: JsonDict) -> list[FieldError]:
        """Return what is wrong with the change: only the size of a bound claim may grow."""
        before, after = dict(old["spec"]), dict(new["spec"])
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
            return [fields.forbidden("spec", why)]
        return []


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
        errors = []
        if not spec.get("accessModes"):
            errors.append(fields.required("spec.accessModes"))
        if not spec.get("capacity"):
            errors.append(fields.required("spec.capacity"))
        return errors
