"""What storage.k8s.io describes: classes, drivers and what they tell of nodes.

Source: k8s.io/kubernetes `pkg/apis/storage/validation`, `pkg/apis/storage/v1` (defaults).
"""

from collections.abc import Mapping
from typing import Final

from dralab.api import fields
from dralab.api.core.addresses import csi_driver_errors
from dralab.api.core.volumes import volume_spec_errors
from dralab.api.fields import FieldError
from dralab.api.internal_forms import internal_form
from dralab.api.label_selectors import label_selector_problems, shown_selector
from dralab.api.strategy import Strategy
from dralab.values import names, quantity
from dralab.values.json_types import JsonDict, JsonObject

IMMUTABLE: Final = "field is immutable"
MOST_PARAMETERS: Final = 512
LARGEST_PARAMETERS: Final = 256 * 1024  # bytes
LONGEST_NODE_ID: Final = 256
SHORTEST_TOKEN: Final = 600  # seconds
LONGEST_TOKEN: Final = 1 << 32
RECLAIMED: Final = ["Delete", "Retain"]
BINDING: Final = ["Immediate", "WaitForFirstConsumer"]
FS_GROUPS: Final = ["File", "None", "ReadWriteOnceWithFSType"]
LIFE_CYCLES: Final = ["Persistent", "Ephemeral"]
PROTECTION: Final = "kubernetes.io/vac-protection"
CSI_DRIVER: Final = {
    "attachRequired": True,
    "podInfoOnMount": False,
    "storageCapacity": False,
    "fsGroupPolicy": "ReadWriteOnceWithFSType",
    "requiresRepublish": False,
    "seLinuxMount": False,
}


class StorageClassStrategy(Strategy):
    """Storage classes: what they stand for stays."""

    def default(self, value: JsonDict) -> None:
        """Fill in what the client left out."""
        value.setdefault("reclaimPolicy", "Delete")
        value.setdefault("volumeBindingMode", "Immediate")

    def validate(self, value: JsonDict) -> list[FieldError]:
        """Return what is wrong with the class."""
        errors = _provisioner_errors(value.get("provisioner") or "", "provisioner")
        errors += _parameter_errors(value.get("parameters") or {})
        for part, known in (("reclaimPolicy", RECLAIMED), ("volumeBindingMode", BINDING)):
            if (given := value.get(part)) not in known:
                errors.append(fields.not_supported(part, given, known))
        terms = value.get("allowedTopologies") or ()
        # Upstream compares each with the terms before it, and with as many empty ones.
        seen: list[dict[str, frozenset[str]]] = [{} for _ in terms]
        for index, term in enumerate(terms):
            path = f"allowedTopologies[{index}]"
            errors += _topology_errors(term, path)
            wanted = {
                item.get("key") or "": frozenset(item.get("values") or ())
                for item in term.get("matchLabelExpressions") or ()
            }
            repeated = fields.duplicate(f"{path}.matchLabelExpressions", "")
            errors += [repeated] * seen.count(wanted)
            seen.append(wanted)
        return errors

    def validate_update(self, new: JsonDict, old: JsonDict) -> list[FieldError]:
        """Return what is wrong with the change."""
        return self.validate(new) + [
            fields.invalid_value(part, new.get(part), IMMUTABLE)
            for part in ("parameters", "provisioner", "reclaimPolicy", "volumeBindingMode")
            if new.get(part) != old.get(part)
        ]


def _provisioner_errors(name: str, path: str) -> list[FieldError]:
    if not name:
        return [fields.required(path)]
    return fields.each(path, name.lower(), names.qualified_problems(name.lower()))


def _parameter_errors(parameters: Mapping[str, str]) -> list[FieldError]:
    if len(parameters) > MOST_PARAMETERS:
        return [fields.too_long("parameters", MOST_PARAMETERS)]
    errors = []
    if "" in parameters:
        errors.append(fields.invalid_value("parameters", "", "field can not be empty."))
    if sum(len(key) + len(text) for key, text in parameters.items()) > LARGEST_PARAMETERS:
        errors.append(fields.too_long("parameters", LARGEST_PARAMETERS))
    return errors


def _topology_errors(term: JsonObject, path: str) -> list[FieldError]:
    errors, keys = [], set()
    for index, item in enumerate(term.get("matchLabelExpressions") or ()):
        at, key = f"{path}.matchLabelExpressions[{index}]", item.get("key") or ""
        values = item.get("values") or ()
        if not values:
            errors.append(fields.required(f"{at}.values"))
        errors += [
            fields.duplicate(f"{at}.values[{number}]", values[number])
            for number in sorted(fields.repeated(values))
        ]
        errors += fields.each(f"{at}.key", key, names.qualified_problems(key))
        if key in keys:
            errors.append(fields.duplicate(f"{at}.key", key))
        keys.add(key)
    return errors


class AttributesClassStrategy(Strategy):
    """Classes of attributes of volumes; they stay while something uses them."""

    def prepare_create(self, value: JsonDict, now: str) -> None:  # noqa: ARG002
        """Add the finalizer of the protection controller (StorageObjectInUseProtection)."""
        finalizers = value["metadata"].setdefault("finalizers", [])
        if PROTECTION not in finalizers:
            finalizers.append(PROTECTION)

    def validate(self, value: JsonDict) -> list[FieldError]:
        """Return what is wrong with the class."""
        errors = _provisioner_errors(value.get("driverName") or "", "driverName")
        parameters = value.get("parameters") or {}
        errors += _parameter_errors(parameters)
        if not parameters:
            why = "must contain at least one key/value pair"
            errors.append(fields.required("parameters", why))
        return errors

    def validate_update(self, new: JsonDict, old: JsonDict) -> list[FieldError]:
        """Return what is wrong with the change."""
        errors = [
            fields.forbidden(part, f"updates to {part} are forbidden.")
            for part in ("driverName", "parameters")
            if new.get(part) != old.get(part)
        ]
        return errors + self.validate(new)


class AttachmentStrategy(Strategy):
    """Volumes that are to be attached to nodes."""

    status_keeps = frozenset()
    unconditional = False

    def prepare_create(self, value: JsonDict, now: str) -> None:  # noqa: ARG002
        """Begin detached."""
        value["status"] = {"attached": False}

    def validate(self, value: JsonDict) -> list[FieldError]:
        """Return what is wrong with the attachment."""
        spec = value.get("spec") or {}
        errors = csi_driver_errors(spec.get("attacher") or "", "spec.attacher")
        source, path = spec.get("source") or {}, "spec.source"
        volume, inline = source.get("persistentVolumeName"), source.get("inlineVolumeSpec")
        why = "must specify exactly one of inlineVolumeSpec and persistentVolumeName"
        if volume is None and inline is None:
            errors.append(fields.required(path, why))
        elif volume is not None and inline is not None:
            errors.append(fields.forbidden(path, why))
        elif volume == "":
            why = "must specify non empty persistentVolumeName"
            errors.append(fields.required(f"{path}.persistentVolumeName", why))
        elif inline is not None:
            errors += volume_spec_errors(inline, f"{path}.inlineVolumeSpec", inline=True)
        node = spec.get("nodeName") or ""
        errors += fields.each("spec.nodeName", node, names.subdomain_problems(node))
        if volume is not None:
            problems = names.subdomain_problems(volume)
            errors += fields.each(f"{path}.persistentVolumeName", volume, problems)
        return errors

    def validate_status(self, new: JsonDict, old: JsonDict) -> list[FieldError]:  # noqa: ARG002
        """Return what is wrong with the errors that a status tells of."""
        why = "must be between 0 and 2147483647, inclusive"
        return [
            fields.invalid_value(f"status.{part}.errorCode", code, why)
            for part in ("attachError", "detachError")
            if (code := ((new.get("status") or {}).get(part) or {}).get("errorCode", 0)) < 0
        ]

    def validate_update(self, new: JsonDict, old: JsonDict) -> list[FieldError]:
        """Return what is wrong with the change: it stays between the same two."""
        errors = self.validate(new)
        if new.get("spec") != old.get("spec"):
            shown = internal_form("storage.VolumeAttachmentSpec", new.get("spec"))
            errors.append(fields.invalid_value("spec", shown, IMMUTABLE))
        return errors


class CsiNodeStrategy(Strategy):
    """What CSI drivers tell of a node."""

    unconditional = False

    def validate(self, value: JsonDict) -> list[FieldError]:
        """Return what is wrong with the drivers."""
        errors: list[FieldError] = []
        seen = set()
        for index, driver in enumerate((value.get("spec") or {}).get("drivers") or ()):
            path, name = f"spec.drivers[{index}]", driver.get("name") or ""
            errors += csi_driver_errors(name, f"{path}.name")
            if not (node := driver.get("nodeID") or ""):
                errors.append(fields.required(f"{path}.nodeID"))
            if len(node) > LONGEST_NODE_ID:
                why = f"must be {LONGEST_NODE_ID} characters or less"
                errors.append(fields.invalid_value(f"{path}.nodeID", node, why))
            count = (driver.get("allocatable") or {}).get("count")
            if count is not None and count < 0:
                why = "must be greater than or equal to 0"
                errors.append(fields.invalid_value(f"{path}.allocatable.count", count, why))
            if name in seen:
                errors.append(fields.duplicate(f"{path}.name", name))
            seen.add(name)
            keys = driver.get("topologyKeys") or ()
            again = fields.repeated(keys)
            for number, key in enumerate(keys):
                if not key:
                    errors.append(fields.required(path, key))
                if number in again:
                    errors.append(fields.duplicate(path, key))
                errors += fields.each(path, key, names.qualified_problems(key))
        return errors


class CsiDriverStrategy(Strategy):
    """CSI drivers."""

    unconditional = False

    def default(self, value: JsonDict) -> None:
        """Fill in what the client left out."""
        spec = value.setdefault("spec", {})
        for name, item in CSI_DRIVER.items():
            spec.setdefault(name, item)
        if not spec.get("volumeLifecycleModes"):
            spec["volumeLifecycleModes"] = ["Persistent"]

    def validate(self, value: JsonDict) -> list[FieldError]:
        """Return what is wrong with the spec."""
        spec = value["spec"]
        errors = []
        if (policy := spec.get("fsGroupPolicy")) not in FS_GROUPS:
            errors.append(fields.not_supported("spec.fsGroupPolicy", policy, FS_GROUPS))
        errors += _token_errors(spec)
        path = "spec.volumeLifecycleModes"
        errors += [
            fields.not_supported(path, mode, LIFE_CYCLES, ordered=True)
            for mode in spec.get("volumeLifecycleModes") or ()
            if mode not in LIFE_CYCLES
        ]
        period = spec.get("nodeAllocatableUpdatePeriodSeconds")
        if period is not None and period < 10:
            why = "must be greater than or equal to 10 seconds"
            at = "spec.nodeAllocatableUpdatePeriodSeconds"
            errors.append(fields.invalid_value(at, period, why))
        inside = spec.get("serviceAccountTokenInSecrets")
        if inside is not None and not spec.get("tokenRequests"):
            at = "spec.serviceAccountTokenInSecrets"
            why = "serviceAccountTokenInSecrets is set but no tokenRequests are specified"
            errors.append(fields.invalid_value(at, inside, why))
        return errors

    def prepare_create(self, value: JsonDict, now: str) -> None:  # noqa: ARG002
        """Drop what needs VolumeLimitScaling, which is off by default."""
        value["spec"].pop("preventPodSchedulingIfMissing", None)

    def prepare_update(self, new: JsonDict, old: JsonDict, now: str) -> None:  # noqa: ARG002
        """The same, and count changes, though new objects have no generation."""
        new["spec"].pop("preventPodSchedulingIfMissing", None)
        if new["spec"] != old["spec"]:
            new["metadata"]["generation"] = old["metadata"].get("generation", 0) + 1

    def warnings(self, value: JsonDict, old: JsonDict | None = None) -> list[str]:
        """Return what should be set beside requests for tokens, if these are new."""
        spec = value["spec"]
        if old and old["spec"].get("tokenRequests") == spec.get("tokenRequests"):
            return []
        if not spec.get("tokenRequests") or "serviceAccountTokenInSecrets" in spec:
            return []
        return [
            "spec.serviceAccountTokenInSecrets is unset; if supported by this CSI driver, set to "
            "true to prevent possible logging of tokens in volume attributes"
        ]

    def validate_update(self, new: JsonDict, old: JsonDict) -> list[FieldError]:
        """Return what is wrong with the change."""
        errors = self.validate(new)
        # Upstream's path of the first is not its name.
        for part, shown in (
            ("attachRequired", "attachedRequired"),
            ("volumeLifecycleModes", "volumeLifecycleModes"),
        ):
            before, after = old["spec"].get(part), new["spec"].get(part)
            if before != after:
                errors.append(fields.invalid_value(f"spec.{shown}", after, IMMUTABLE))
        return errors


def _token_errors(spec: JsonObject) -> list[FieldError]:
    errors, seen = [], set()
    for index, request in enumerate(spec.get("tokenRequests") or ()):
        path, audience = f"spec.tokenRequests[{index}]", request.get("audience") or ""
        if audience in seen:
            errors.append(fields.duplicate(f"{path}.audience", audience))
            continue
        seen.add(audience)
        seconds = request.get("expirationSeconds")
        if seconds is not None and seconds < SHORTEST_TOKEN:
            why = "may not specify a duration less than 10 minutes"
            errors.append(fields.invalid_value(f"{path}.expirationSeconds", seconds, why))
        if seconds is not None and seconds > LONGEST_TOKEN:
            why = "may not specify a duration larger than 2^32 seconds"
            errors.append(fields.invalid_value(f"{path}.expirationSeconds", seconds, why))
    return errors


class StorageCapacityStrategy(Strategy):
    """What a driver can still provide somewhere."""

    unconditional = False

    def validate(self, value: JsonDict) -> list[FieldError]:
        """Return what is wrong with the capacity."""
        errors = label_selector_problems(value.get("nodeTopology") or {}, "nodeTopology")
        name = value.get("storageClassName") or ""
        errors += fields.each("storageClassName", name, names.subdomain_problems(name))
        amount = value.get("capacity")
        if amount is not None and quantity.parse(amount) < 0:
            why = "must be greater than or equal to 0"
            errors.append(fields.invalid_value("capacity", amount, why))
        return errors

    def validate_update(self, new: JsonDict, old: JsonDict) -> list[FieldError]:
        """Return what is wrong with the change."""
        return self.validate(new) + [
            fields.invalid_value(part, shown, IMMUTABLE)
            for part, shown in (
                ("nodeTopology", shown_selector(new.get("nodeTopology"))),
                ("storageClassName", new.get("storageClassName") or ""),
            )
            if new.get(part) != old.get(part)
        ]
